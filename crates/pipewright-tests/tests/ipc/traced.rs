//! Events of `tracing`: traffic of connections, and exits of workers.

use super::{exit_words, start, worker};
use pipewright_ipc::{Options, Pool, PoolOptions};
use pipewright_test_macros::{isolated_test, watched_test};
use pipewright_tests::traced::TraceLines;

#[isolated_test]
fn a_closed_connection_records_its_traffic() {
    // The first event of a process decides for all whether there is a subscriber.

    let lines = TraceLines::listen("pipewright_ipc");
    let mut channel = start("echo", &Options::default());
    channel.send_bytes(&[7; 10_000]).unwrap();
    assert_eq!(channel.recv().unwrap().len(), 10_000);
    assert!(lines.lines().is_empty());
    channel.close().unwrap();
    let words = [
        "DEBUG message=connection ended",
        " sent.messages=1 ",
        " sent.bytes=10000 ",
        " received.bytes=10000 ",
    ];
    assert!(lines.find(&words), "{:?}", lines.lines());
}

#[isolated_test]
fn a_pool_records_its_workers() {
    let lines = TraceLines::listen("pipewright_ipc");
    let options = PoolOptions { max_workers: 1, max_jobs: Some(1), ..PoolOptions::default() };
    let pool = Pool::new(worker("calls"), options).unwrap();
    pool.call("echo").unwrap();
    pool.call("exit 7").unwrap_err();
    pool.shut_down();
    assert!(lines.find(&["INFO message=worker started", " worker=1 "]), "{:?}", lines.lines());
    let ended = ["INFO message=worker ended", " jobs=1 ", " worker=1 "];
    assert!(lines.find(&ended), "{:?}", lines.lines());
    let how = exit_words(7);
    let lost = ["WARN message=worker lost", " worker=2 ", &how, "the last line of 7"];
    assert!(lines.find(&lost), "{:?}", lines.lines());
    let pool = Pool::new(pipewright::Command::new("/no/such"), PoolOptions::default()).unwrap();
    pool.call("echo").unwrap_err();
    assert!(lines.find(&["WARN message=worker not started", "/no/such"]), "{:?}", lines.lines());
}

#[watched_test]
fn tuned_options_change_only_the_threshold() {
    let options = Options { app: "a".into(), ring_bytes: 64 << 10, ..Options::default() };
    let tuned = options.tune().unwrap();
    assert!((512..=128 << 10).contains(&tuned.threshold_bytes), "{tuned:?}");
    assert_eq!(Options { threshold_bytes: options.threshold_bytes, ..tuned }, options);
}
