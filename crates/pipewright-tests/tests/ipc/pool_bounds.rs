//! Bounds of a pool that hold whatever its workers do: processes, calls of one that does not end, and the pool's own
//! thread. The suite `peers` looks for more.

use std::future::Future as _;
use std::pin::Pin;
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};
#[cfg(target_os = "linux")]
use std::thread;

#[cfg(target_os = "linux")]
use pipewright::Command;
#[cfg(target_os = "linux")]
use pipewright_ipc::{ErrorKind, Request, Schedule};
use pipewright_ipc::{Pool, PoolOptions};
#[cfg(target_os = "linux")]
use pipewright_test_macros::isolated_test;
use pipewright_test_macros::watched_test;
#[cfg(target_os = "linux")]
use pipewright_tests::{alive, count, kernel, pace, watchdog};

use super::pool::{number, options, pool as start};

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
    let mut most = 0;
    for _ in 0..12 {
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
    let late = pool.begin(Request::new("hang").timeout(pace::millis(10))).unwrap();
    let error = late.wait().unwrap_err();
    assert!(error.is_timeout(), "{error}");
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
    let mut call = pool.begin("wait 50").unwrap();
    let (dropped, is_dropped) = channel();
    let waker = Waker::from(Arc::new(DropsPool(Mutex::new(Some((pool, dropped))))));
    let polled = Pin::new(&mut call).poll(&mut Context::from_waker(&waker));
    assert!(polled.is_pending());
    drop(waker);
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
