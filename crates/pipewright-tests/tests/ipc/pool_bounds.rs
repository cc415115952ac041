//! Bounds of a pool whatever its workers and callers do, pools that cannot go on, and workers that are replaced.

use std::error::Error as _;
use std::future::Future as _;
use std::pin::Pin;
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};
#[cfg(target_os = "linux")]
use std::thread;
use std::time::Duration;

#[cfg(unix)]
use pipewright::CancelToken;
#[cfg(target_os = "linux")]
use pipewright::Command;
#[cfg(target_os = "linux")]
use pipewright_ipc::Schedule;
use pipewright_ipc::{
    CallEvent, ErrorKind, OnLine, Options, PendingCall, Pool, PoolOptions, Request, WorkerState,
};
#[cfg(unix)]
use pipewright_test_macros::isolated_test;
use pipewright_test_macros::watched_test;
use pipewright_tests::{alive, pace, skip, watchdog};
#[cfg(target_os = "linux")]
use pipewright_tests::{count, kernel};

use crate::pool::{number, options, pool as start};
use crate::{complains_and_ends, worker};

#[watched_test]
fn calls_that_wait_are_served_during_a_shutdown() {
    // Each worker is used up by one call.
    let pool = start(PoolOptions { max_workers: 1, max_jobs: Some(1), ..options() });
    let calls: Vec<_> = (0..4).map(|_| pool.begin("pid").unwrap()).collect();
    pool.shut_down();
    let mut pids: Vec<_> =
        calls.into_iter().map(|call| call.wait().unwrap().into_bytes()).collect();
    pids.sort();
    pids.dedup();
    assert_eq!(pids.len(), 4);
}

#[cfg(target_os = "linux")]
#[isolated_test]
fn workers_that_leave_count_for_the_bound_on_processes() {
    let schedule = Schedule {
        goodbye: pace::millis(300),
        terminate: pace::millis(100),
        ..Schedule::default()
    };
    // Stays until it is killed.
    let mut command = Command::new(env!("CARGO_BIN_EXE_puppet"));
    command.arg("peer=-;/dev/null;65536;stubborn serve pause:20000");
    let options =
        PoolOptions { max_workers: 2, max_jobs: Some(1), shutdown: schedule, ..options() };
    let pool = Pool::new(command, options).unwrap();
    let (mut most, mut rounds) = (0, 0);
    // On a busy machine the next two may take longer to start than the last two to leave.
    while rounds < 12 || most < 3 {
        rounds += 1;
        let calls = [(); 2].map(|()| pool.begin("x").unwrap());
        for call in calls {
            call.wait().unwrap();
            most = most.max(count::children().len());
        }
    }
    assert!((3..=4).contains(&most), "{most} processes");
}

/// A program with set-user-ID is such a worker; here no process may be signalled.
#[cfg(target_os = "linux")]
#[isolated_test]
fn a_worker_that_cannot_be_killed_costs_only_its_own_calls() {
    let options = PoolOptions { max_workers: 1, cancel_grace: pace::millis(10), ..options() };
    let pool = start(options);
    let pid = number(&pool, "pid");
    kernel::refuse(&[libc::SYS_kill, libc::SYS_pidfd_send_signal, libc::SYS_tgkill], libc::EPERM);
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("begun");
    let hangs = pool.begin(format!("hang-with-file {}", file.display())).unwrap();
    // A worker that is told of the cancellation before it begins does not begin, and is kept.
    watchdog::until("the worker has begun the call", || file.exists());
    hangs.cancel();
    assert_eq!(hangs.wait().unwrap_err().kind(), &ErrorKind::Cancelled);
    // The next worker serves beside it, and is not held up.
    let next = number(&pool, "pid");
    assert_ne!(next, pid);
    // (By its number: the list of children may miss one while others end.)
    assert!(alive::is_running(pid as u32));
    // Ends although the first one does not. The other closes its connection and ends by itself.
    pool.shut_down();
    watchdog::until("the second has ended", || !alive::is_running(next as u32));
    // Its descriptors are closed, so it ends in the end, as the refusal does with this process.
}

/// Drops the pool, and reports that.
struct DropsPool(Mutex<Option<(Arc<Pool>, Sender<bool>)>>);

impl Wake for DropsPool {
    fn wake(self: Arc<Self>) {
        if let Some((pool, dropped)) = self.0.lock().unwrap().take() {
            let is_last = Arc::try_unwrap(pool).map(drop).is_ok();
            dropped.send(is_last).unwrap();
        }
    }
}

#[watched_test]
fn a_pool_may_be_dropped_by_a_waker_on_its_own_thread() {
    let pool = Arc::new(start(PoolOptions { max_workers: 1, ..options() }));
    number(&pool, "pid");
    // Ends when its items do, and so not before it is waited for.
    let (items, mut call) = pool.begin_with_items("take-items").unwrap();
    let (dropped, is_dropped) = channel();
    let waker = Waker::from(Arc::new(DropsPool(Mutex::new(Some((pool, dropped))))));
    let polled = Pin::new(&mut call).poll(&mut Context::from_waker(&waker));
    assert!(polled.is_pending());
    drop(waker);
    items.finish();
    assert!(is_dropped.recv().unwrap(), "it was the last");
    let Poll::Ready(reply) = Pin::new(&mut call).poll(&mut Context::from_waker(Waker::noop()))
    else {
        panic!("the reply is there");
    };
    assert_eq!(*reply.unwrap(), *b"done");
}

/// Something else may need the descriptors or the memory that a wait needs, and give them back.
#[cfg(target_os = "linux")]
#[isolated_test]
fn a_pool_goes_on_after_a_wait_that_failed() {
    let pool = start(PoolOptions { max_workers: 1, ..options() });
    let pid = number(&pool, "pid");
    let open = pool.begin("hang").unwrap();
    watchdog::until("the worker has it", || pool.stats().waiting == 0);
    // If it has not begun to wait yet, that wait ends the open call alone, and the other one needs a new worker.
    watchdog::until("the thread of the pool waits", || is_in_call("pw-pool", libc::SYS_ppoll));
    // The kernel polls no more descriptors than a process may open.
    let before = limit_descriptors(2);
    let waiting = pool.begin("pid").unwrap();
    for call in [open, waiting] {
        let error = call.wait().unwrap_err();
        assert_eq!(error.kind(), &ErrorKind::Io, "{error}");
        assert!(error.to_string().starts_with("cannot wait for workers: "), "{error}");
    }
    limit_descriptors(before);
    assert_ne!(number(&pool, "pid"), pid);
    pool.shut_down();
}

/// Returns true if a thread of that name sleeps in that system call.
#[cfg(target_os = "linux")]
fn is_in_call(name: &str, call: libc::c_long) -> bool {
    let threads = std::fs::read_dir("/proc/self/task").unwrap().flatten();
    let read = |path| std::fs::read_to_string(path).unwrap_or_default();
    let mut named = threads.filter(|it| read(it.path().join("comm")).trim_end() == name);
    // The number of the call, and its arguments; or that the thread runs.
    let number = |text: String| text.split(' ').next().and_then(|word| word.parse().ok());
    named.any(|it| number(read(it.path().join("syscall"))) == Some(call))
}

/// Sets the number of descriptors that this process may have, and returns the number before.
#[cfg(target_os = "linux")]
fn limit_descriptors(most: u64) -> u64 {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: a live struct.
    assert_eq!(unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) }, 0);
    let before = limit.rlim_cur;
    limit.rlim_cur = most;
    // SAFETY: as above.
    assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit) }, 0);
    before
}

/// In a fork nobody serves the pool, and a lock of it may be held for ever.
#[cfg(target_os = "linux")]
#[isolated_test]
fn calls_of_a_forked_copy_are_an_error() {
    let pool = Arc::new(start(PoolOptions { max_workers: 1, calls_per_worker: 64, ..options() }));
    number(&pool, "pid");
    let busy = Arc::clone(&pool);
    // Its locks are held most of the time.
    thread::spawn(move || {
        loop {
            let calls: Vec<_> = (0..16).map_while(|_| busy.begin("echo y").ok()).collect();
            calls.into_iter().for_each(|call| drop(call.wait()));
        }
    });
    for _ in 0..100 {
        let mut call = pool.begin("ask x").unwrap();
        let (mut items, other) = pool.begin_with_items("echo-items").unwrap();
        // SAFETY: the child calls only what is tested, and `_exit`.
        #[expect(clippy::disallowed_methods, reason = "tests a fork by other code")]
        let forked = unsafe { libc::fork() };
        if forked == 0 {
            // SAFETY: takes a number. Ends this copy if it hangs, because nothing else would.
            unsafe { libc::alarm(30) };
            let is_refused =
                |error: pipewright_ipc::Error| error.to_string().contains("this is a fork");
            let ok = pool.call("pid").is_err_and(is_refused)
                && pool.begin("pid").is_err_and(is_refused)
                && call.next().is_err_and(is_refused)
                && items.send("x").is_err_and(is_refused);
            let _ = pool.stats();
            call.cancel();
            drop((call, items, other));
            // SAFETY: ends the child at once.
            unsafe { libc::_exit(i32::from(!ok)) };
        }
        let mut status = 0;
        #[expect(clippy::disallowed_methods, reason = "this child belongs to no command")]
        // SAFETY: waits for the child, and writes to a live number.
        let waited = unsafe { libc::waitpid(forked, &raw mut status, 0) };
        assert_eq!((waited, status), (forked, 0));
        drop((items, other));
        let pipewright_ipc::CallEvent::Question(question) = call.next().unwrap() else {
            panic!("it asks");
        };
        question.answer("y");
        assert_eq!(*call.wait().unwrap(), *b"y");
    }
}

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
    let mut line = crate::start("echo,ring=65536", &options().channel);
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

#[watched_test]
fn a_body_that_is_too_long_fails_only_its_own_call() {
    // Whichever side refuses the length.
    for (kind, max_message_bytes) in [("calls,ring=65536,most=1000", 1 << 20), ("calls", 1000)] {
        let channel = Options { max_message_bytes, ..options().channel };
        let options = PoolOptions { max_workers: 1, calls_per_worker: 4, channel, ..options() };
        let pool = Pool::new(worker(kind), options).unwrap();
        let pid = number(&pool, "pid");
        let too_long = ErrorKind::TooLong { bytes: 1001, most: 1000 };
        let body = |length: usize| [b"echo ".to_vec(), vec![b'x'; length - 5]].concat();
        for _ in 0..3 {
            // By the caller itself, and by the pool's thread with others beside it.
            let error = pool.call(Request::new(body(1001)).idempotent()).unwrap_err();
            assert_eq!(error.kind(), &too_long);
            let calls = [1000, 1001, 1000].map(|it| pool.begin(body(it)).unwrap());
            let [before, long, after] = calls.map(PendingCall::wait);
            assert_eq!((before.unwrap().len(), after.unwrap().len()), (995, 995));
            assert_eq!(long.unwrap_err().kind(), &too_long);
            assert_eq!(pool.call(body(1000)).unwrap().len(), 995);
        }
        // The worker's reply, either way; its question; and the answer to that.
        for _ in 0..2 {
            let error = pool.call("long 1001").unwrap_err();
            let ErrorKind::Failed { message, .. } = error.kind() else { panic!("{error}") };
            assert!(message.contains("1001"), "{message}");
            let error = pool.begin("long 1001").unwrap().wait().unwrap_err();
            assert!(matches!(error.kind(), ErrorKind::Failed { .. }), "{error}");
            assert_eq!(pool.call("long 1000").unwrap().len(), 1000);
        }
        let mut call = pool.begin("ask x").unwrap();
        let CallEvent::Question(question) = call.next().unwrap() else { panic!("no question") };
        question.answer(vec![0; 1001]);
        let error = call.wait().unwrap_err();
        assert!(error.to_string().contains("1001"), "{error}");
        assert_eq!(number(&pool, "pid"), pid);
        let stats = pool.stats();
        assert_eq!((stats.started, stats.died, stats.lost), (1, 0, 0));
    }
}

#[watched_test]
fn a_worker_never_has_more_calls_than_its_limit() {
    let options = PoolOptions { max_workers: 1, calls_per_worker: 10_000, ..options() };
    let pool = start(options);
    // The worker checks for a cancel, and reads the frames that have arrived.
    let first = pool.begin("wait 200").unwrap();
    let calls: Vec<PendingCall> = (0..3000).map(|_| pool.begin("count").unwrap()).collect();
    assert_eq!(*first.wait().unwrap(), *b"done");
    for (number, call) in calls.into_iter().enumerate() {
        assert_eq!(*call.wait().unwrap(), *(number + 2).to_string().as_bytes());
    }
    assert_eq!((pool.stats().started, pool.stats().died), (1, 0));
}

#[watched_test]
fn calls_dropped_as_their_reply_arrives_affect_no_other_call() {
    const ROUNDS: u64 = if cfg!(windows) { 100 } else { 2000 };
    let pool = start(PoolOptions { max_workers: 2, calls_per_worker: 3, ..options() });
    std::thread::scope(|scope| {
        for thread in 0..3 {
            let pool = &pool;
            scope.spawn(move || {
                for round in 0..ROUNDS {
                    let call = pool.begin(format!("echo {round}")).unwrap();
                    match (round + thread) % 4 {
                        0 => drop(call),
                        1 => call.cancel(),
                        2 => {
                            call.cancel();
                            let result = call.wait();
                            let is_cancelled = |error: &pipewright_ipc::Error| {
                                error.kind() == &ErrorKind::Cancelled
                            };
                            assert!(result.as_ref().err().is_none_or(is_cancelled), "{result:?}");
                        }
                        _ => assert_eq!(*call.wait().unwrap(), *round.to_string().as_bytes()),
                    }
                    let reply = pool.call(format!("echo {round}")).unwrap();
                    assert_eq!(*reply, *round.to_string().as_bytes());
                }
            });
        }
    });
    let stats = pool.stats();
    assert_eq!((stats.died, stats.lost, stats.retries), (0, 0, 0), "{stats:?}");
    pool.shut_down();
}

#[watched_test]
fn waiting_threads_get_an_error_when_the_pool_is_dropped() {
    for rounds in 0..5 {
        let pool = start(options());
        let calls: Vec<PendingCall> = (0..20).map(|_| pool.begin("hang").unwrap()).collect();
        if rounds > 0 {
            watchdog::until("workers have some", || {
                pool.stats().workers.iter().any(|it| it.state == WorkerState::Busy)
            });
        }
        std::thread::scope(|scope| {
            let waits: Vec<_> = calls.into_iter().map(|it| scope.spawn(|| it.wait())).collect();
            drop(pool);
            for wait in waits {
                let error = wait.join().unwrap().unwrap_err();
                assert_eq!(error.kind(), &ErrorKind::ShutDown);
            }
        });
    }
}

#[watched_test]
fn thousands_of_waiting_calls_get_the_start_error() {
    let backoff = Duration::from_millis(1);
    let options = PoolOptions { min_workers: 2, backoff, ..options() };
    let pool = Pool::new(pipewright::Command::new("/no/such/worker"), options).unwrap();
    let calls: Vec<PendingCall> = (0..4000).filter_map(|_| pool.begin("x").ok()).collect();
    for call in calls {
        assert_eq!(call.wait().unwrap_err().kind(), &ErrorKind::Start);
    }
    // Also later callers.
    assert_eq!(pool.call("x").unwrap_err().kind(), &ErrorKind::Start);
    assert_eq!(pool.stats().started, 0);
}

#[watched_test]
fn a_pool_with_no_restart_delay_accepts_calls() {
    let options = PoolOptions { min_workers: 1, backoff: Duration::ZERO, ..options() };
    let pool = Pool::new(pipewright::Command::new("/no/such/worker"), options).unwrap();
    assert_eq!(pool.call("x").unwrap_err().kind(), &ErrorKind::Start);
    pool.shut_down();
}

#[watched_test]
fn a_panicking_line_function_ends_the_pool() {
    let on_line = OnLine::new(|_| panic!("this panic is part of the test"));
    let pool = start(PoolOptions { max_workers: 2, on_line: Some(on_line), ..options() });
    let pid = number(&pool, "pid") as u32;
    let other = pool.begin("hang").unwrap();
    // Its line may be read after its answer.
    let is_over = |call| pool.call(call).is_err_and(|it| it.kind() == &ErrorKind::ShutDown);
    watchdog::until("nothing is answered any more", || is_over("print 1"));
    assert_eq!(other.wait().unwrap_err().kind(), &ErrorKind::ShutDown);
    assert!(is_over("pid"));
    watchdog::until("the worker is gone", || !alive::is_running(pid));
    pool.shut_down();
}

#[cfg(unix)]
#[isolated_test]
fn a_token_that_cannot_be_waited_for_is_an_error() {
    let pool = start(PoolOptions { max_workers: 1, ..options() });
    number(&pool, "pid");
    let files = rustix::process::Resource::Nofile;
    let most = rustix::process::getrlimit(files);
    let few = rustix::process::Rlimit { current: Some(64), ..most };
    rustix::process::setrlimit(files, few).unwrap();
    let token = CancelToken::new();
    let request = || Request::new("hang").cancel(&token);
    let open = || std::fs::File::open("/dev/null").ok();
    let all: Vec<_> = std::iter::from_fn(open).collect();
    for error in [pool.begin(request()).unwrap_err(), pool.call(request()).unwrap_err()] {
        assert_eq!(error.kind(), &ErrorKind::Io, "{error}");
    }
    drop(all);
    let call = pool.begin(request()).unwrap();
    token.cancel();
    assert_eq!(call.wait().unwrap_err().kind(), &ErrorKind::Cancelled);
}

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
