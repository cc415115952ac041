//! A pool that cannot go on, or whose workers cannot start: each caller gets the reason. In a forked copy of
//! its process a pool does nothing.

use std::error::Error as _;
use std::time::Duration;

use pipewright_ipc::{CallEvent, ErrorKind, Pool, PoolOptions, Request};
#[cfg(target_os = "linux")]
use pipewright_test_macros::isolated_test;
use pipewright_test_macros::watched_test;
#[cfg(target_os = "linux")]
use pipewright_tests::kernel;
use pipewright_tests::{skip, watchdog};

use super::pool::{number, options, pool as start};
#[cfg(target_os = "linux")]
use super::start as channel;
use super::{complains_and_ends, worker};

#[cfg(target_os = "linux")]
#[isolated_test]
fn a_pool_that_cannot_wait_fails_its_calls() {
    let pool = start(PoolOptions { max_workers: 1, ..options() });
    number(&pool, "pid");
    let open = pool.begin("hang").unwrap();
    watchdog::until("the worker has it", || pool.stats().waiting == 0);
    kernel::refuse(&[libc::SYS_ppoll], libc::ENOMEM);
    // Wakes the pool's thread.
    let waiting = pool.begin("pid").map(|call| call.wait().unwrap_err());
    let errors = [
        waiting.unwrap_or_else(|error| error),
        open.wait().unwrap_err(),
        // Later calls fail too, begun or blocking, as long as it cannot.
        pool.begin("pid").and_then(|call| call.wait()).unwrap_err(),
        pool.call("pid").unwrap_err(),
    ];
    for error in errors {
        assert_eq!(error.kind(), &ErrorKind::Io, "{error}");
        let words = "cannot wait for workers: Cannot allocate memory";
        assert!(error.to_string().starts_with(words), "{error}");
        let source = error.source().unwrap().downcast_ref::<std::io::Error>().unwrap();
        assert_eq!(source.raw_os_error(), Some(libc::ENOMEM));
    }
}

#[watched_test]
fn a_call_without_a_ready_worker_gets_the_start_error() {
    let options = PoolOptions {
        min_workers: 1,
        start_attempts: u32::MAX,
        backoff: Duration::from_millis(1),
        max_backoff: Duration::from_millis(10),
        ..options()
    };
    let pool = Pool::new(complains_and_ends(), options).unwrap();
    watchdog::until("one has ended", || pool.stats().failed_starts > 0);
    let call = Request::new("x").timeout(Duration::from_millis(20));
    let error = pool.call(call).unwrap_err();
    assert!(error.is_timeout(), "{error}");
    let words = error.to_string();
    let begin =
        "timed out waiting for a worker: none was available; the last one failed to start: ";
    assert!(words.starts_with(begin) && words.ends_with(": no disk"), "{words}");
    assert!(error.source().unwrap().to_string().ends_with(": no disk"));
    // A pool whose workers are busy has no such reason.
    let pool = start(PoolOptions { max_workers: 1, ..self::options() });
    number(&pool, "pid");
    let _open = pool.begin("hang").unwrap();
    let call = Request::new("pid").timeout(Duration::from_millis(20));
    let error = pool.begin(call).unwrap().wait().unwrap_err();
    assert!(error.is_timeout() && error.source().is_none(), "{error:?}");
}

/// A handler may fail with any text, and errors are logged, copied and kept.
#[watched_test]
fn an_error_keeps_only_the_beginning_of_a_failure_text() {
    const BYTES: usize = 7_000_000;
    let pool = start(options());
    let request = format!("fail {}", "\u{20ac}x\n".repeat(BYTES / 5));
    let requests = [Request::new(request.as_str()), Request::new(request).in_pieces(1)];
    for error in requests.map(|request| pool.call(request).unwrap_err()) {
        let ErrorKind::Failed { message, bytes } = error.kind() else { panic!("{error}") };
        assert_eq!((message.len(), *bytes), (4_095, BYTES), "{error}");
        assert!(
            error.to_string().len() < 3_000 && error.to_string().ends_with("... (7000000 bytes)")
        );
        assert!(format!("{error:?}").len() < 20_000);
    }
    // The other direction: the worker's error is the text of this one.
    let mut call = pool.begin("ask x").unwrap();
    let CallEvent::Question(question) = call.next().unwrap() else { panic!() };
    question.decline("y".repeat(BYTES));
    let error = call.wait().unwrap_err();
    let ErrorKind::Failed { message, bytes } = error.kind() else { panic!("{error}") };
    assert!(
        message.starts_with("the host declined: yyy") && message.ends_with("yy... (7000000 bytes)")
    );
    assert!(*bytes < 1_000, "{bytes}");
}

#[watched_test]
fn a_pool_reports_the_shared_memory_of_its_workers() {
    let memory = |kind| {
        let pool = Pool::new(worker(kind), options()).unwrap();
        number(&pool, "pid");
        // The failure is reported at the next wait of the pool's thread.
        watchdog::until("it serves", || {
            pool.stats().workers.iter().any(|it| it.shared_memory || it.fallback.is_some())
        });
        let stats = pool.stats();
        (stats.workers[0].shared_memory, stats.workers[0].fallback.clone())
    };
    let off = memory("calls,shm=off");
    assert_eq!((off.0, off.1.as_deref()), (false, Some("the other side has shared memory off")));
    let (used, reason) = memory("calls,ring=65536");
    if skip::is_forced_off("memfd") {
        assert!(!used && reason.is_some());
        return skip::skipped(skip::Need::SharedMemory, "this build has no memfd");
    }
    assert_eq!((used, reason), (true, None));
}

/// The forked process has a copy of everything but the threads.
#[cfg(target_os = "linux")]
#[isolated_test]
fn a_forked_process_can_drop_its_parents_pool() {
    let pool = start(PoolOptions { max_workers: 1, ..options() });
    let pid = number(&pool, "pid");
    let mut line = channel("echo,ring=65536", &options().channel);
    for is_polite in [false, true] {
        // SAFETY: the child calls nothing that another thread could have locked: they rest.
        #[expect(clippy::disallowed_methods, reason = "tests a fork by other code")]
        let forked = unsafe { libc::fork() };
        if forked == 0 {
            // SAFETY: takes a number. Ends this copy if it hangs, because nothing else would.
            unsafe { libc::alarm(30) };
            match is_polite {
                true => pool.shut_down(),
                false => drop(pool),
            }
            drop(line);
            // SAFETY: ends the copy without running the test harness's exit handlers.
            unsafe { libc::_exit(0) };
        }
        let mut status = 0;
        #[expect(clippy::disallowed_methods, reason = "this child belongs to no command")]
        // SAFETY: a live number.
        let waited = unsafe { libc::waitpid(forked, &raw mut status, 0) };
        assert_eq!((waited, status), (forked, 0));
        // Our own pool still works.
        assert_eq!(number(&pool, "pid"), pid);
        line.send_bytes(b"still here").unwrap();
        assert_eq!(line.recv().unwrap().bytes().unwrap(), b"still here");
    }
    pool.shut_down();
}
