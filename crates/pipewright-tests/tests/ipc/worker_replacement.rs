//! Workers that are replaced without a failed call: leaking, used up, of an old program, or not resettable.

use std::time::Duration;

use pipewright_ipc::{Pool, PoolOptions};
use pipewright_test_macros::watched_test;
use pipewright_tests::{alive, pace, watchdog};

use super::pool::{number, options, pool as start};
use super::worker;

#[watched_test]
fn leaking_and_used_up_workers_are_replaced() {
    let one = || PoolOptions { max_workers: 1, ..options() };
    let pool = start(PoolOptions { max_rss_bytes: Some(64 << 20), ..one() });
    let pid = number(&pool, "pid");
    pool.call("leak 1000000").unwrap();
    assert_eq!(number(&pool, "pid"), pid);
    pool.call("leak 100000000").unwrap();
    assert_ne!(number(&pool, "pid"), pid);

    let pool = start(PoolOptions { max_jobs: Some(3), ..one() });
    let counts: Vec<u64> = (0..7).map(|_| number(&pool, "count")).collect();
    assert_eq!(counts, [1, 2, 3, 1, 2, 3, 1]);
    let stats = pool.stats();
    assert_eq!((stats.died, stats.lost), (0, 0));

    let pool = start(PoolOptions { max_age: Some(Duration::from_millis(30)), ..one() });
    let pid = number(&pool, "pid");
    watchdog::until("it is replaced", || number(&pool, "pid") != pid);

    let idle_timeout = Some(Duration::from_millis(30));
    let pool = start(PoolOptions { idle_timeout, ..one() });
    let pid = number(&pool, "pid") as u32;
    watchdog::until("it is let go", || !alive::is_running(pid) && pool.stats().workers.is_empty());
    let pool = start(PoolOptions { idle_timeout, min_workers: 2, ..options() });
    let calls = ["wait 50"; 3].map(|it| pool.begin(it).unwrap());
    calls.into_iter().for_each(|call| drop(call.wait().unwrap()));
    watchdog::until("two are left", || pool.stats().workers.len() == 2);
}

#[watched_test]
fn a_worker_gets_no_more_calls_than_its_lifetime_limit() {
    for (max_jobs, calls_per_worker) in [(1, 1), (3, 1), (3, 8), (7, 2)] {
        let max_jobs = Some(max_jobs);
        let pool = start(PoolOptions { max_workers: 2, max_jobs, calls_per_worker, ..options() });
        let calls: Vec<_> = (0..30).map(|_| pool.begin("count").unwrap()).collect();
        let mut answered = std::collections::BTreeMap::<u64, u64>::new();
        for call in calls {
            *answered.entry(call.wait().unwrap().worker()).or_default() += 1;
        }
        assert!(answered.values().all(|jobs| Some(*jobs) <= max_jobs), "{answered:?}");
        let stats = pool.stats();
        assert_eq!((stats.died, stats.lost, stats.retries), (0, 0, 0));
    }
    // It also answers at least one call before it is replaced.
    let max_age = Some(Duration::ZERO);
    let pool = start(PoolOptions { max_age, max_workers: 1, calls_per_worker: 4, ..options() });
    let calls: Vec<_> = (0..5).map(|_| pool.begin("count").unwrap()).collect();
    for call in calls {
        assert_eq!(String::from_utf8(call.wait().unwrap().into_bytes()).unwrap(), "1");
    }
}

#[watched_test]
fn workers_of_a_changed_program_are_replaced() {
    let folder = tempfile::tempdir().unwrap();
    let puppet = folder.path().join("puppet");
    let library = folder.path().join("library");
    std::fs::copy(env!("CARGO_BIN_EXE_puppet"), &puppet).unwrap();
    std::fs::write(&library, "1").unwrap();
    let mut command = pipewright::Command::new(&puppet);
    command.arg("ipc=calls,ring=65536");
    let watched_files = vec![library.clone()];
    let options = PoolOptions { max_workers: 1, watched_files, ..options() };
    let pool = Pool::new(command, options).unwrap();
    let pid = number(&pool, "pid");
    assert_eq!(number(&pool, "pid"), pid);
    std::fs::write(&library, "another").unwrap();
    watchdog::until("it is replaced", || number(&pool, "pid") != pid);
    let pid = number(&pool, "pid");
    let again = folder.path().join("again");
    std::fs::copy(env!("CARGO_BIN_EXE_puppet"), &again).unwrap();
    // On Windows a copy has the time of the original; a rebuilt program does not.
    let file = std::fs::File::options().write(true).open(&again).unwrap();
    file.set_modified(std::time::SystemTime::now()).unwrap();
    drop(file);
    // Renamed first: on Windows the name of a running program is not free.
    std::fs::rename(&puppet, folder.path().join("before")).unwrap();
    std::fs::rename(again, &puppet).unwrap();
    watchdog::until("it is replaced", || number(&pool, "pid") != pid);
    assert_eq!(pool.stats().died, 0);
}

#[watched_test]
fn a_worker_that_does_not_acknowledge_a_reset_is_replaced() {
    let reset_timeout = Some(pace::seconds(10));
    let options = PoolOptions { max_workers: 1, reset_timeout, ..options() };
    let pool = start(options.clone());
    let pid = number(&pool, "pid");
    assert_eq!([(); 5].map(|()| number(&pool, "count")), [1; 5]);
    assert_eq!(number(&pool, "pid"), pid);
    // One that cannot be reset.
    let command = worker("echo,ring=65536");
    let pool = Pool::new(command, options.clone()).unwrap();
    let workers: Vec<u64> = (0..3).map(|_| pool.call("x").unwrap().worker()).collect();
    assert_eq!(workers, [1, 2, 3]);
    // A worker that does not get to its reset.
    let reset_timeout = Some(Duration::from_millis(50));
    let pool = start(PoolOptions { reset_timeout, ..options });
    let workers: Vec<u64> = (0..2).map(|_| pool.call("deaf").unwrap().worker()).collect();
    assert_eq!(workers, [1, 2]);
}
