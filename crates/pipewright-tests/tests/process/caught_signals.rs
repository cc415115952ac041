//! Signals that a program receives one by one.

use std::task::Poll;
use std::thread;
use std::time::{Duration, Instant};

use pipewright::{CaughtSignals, Signal};
use pipewright_test_macros::isolated_test;

use super::async_pipes::poll_once;
use super::async_verbs::one_thread;
use super::short;
use super::signals::sender;

#[isolated_test]
fn caught_signals_are_waited_for_with_a_limit() {
    let caught = CaughtSignals::new(&[Signal::USR1, Signal::USR2]).unwrap();
    let start = Instant::now();
    assert_eq!(caught.wait_for(short()).unwrap(), None);
    assert!(start.elapsed() >= short());
    let send_here = sender();
    send_here(Signal::USR1);
    assert_eq!(caught.wait_for(Duration::ZERO).unwrap(), Some(Signal::USR1));
    assert_eq!(caught.wait_for(Duration::ZERO).unwrap(), None);
    let sends = thread::spawn(move || send_here(Signal::USR2));
    assert_eq!(caught.wait_for(Duration::MAX).unwrap(), Some(Signal::USR2));
    sends.join().unwrap();
}

/// `pipewright timeout` waits this way: with a handle that could not be had, the time was never over.
#[cfg(target_os = "linux")]
#[isolated_test]
fn a_wait_for_signals_with_a_limit_needs_no_handle() {
    let caught = CaughtSignals::new(&[Signal::USR1]).unwrap();
    let send_here = sender();
    pipewright_tests::kernel::refuse(&[libc::SYS_signalfd4, libc::SYS_ppoll], libc::EMFILE);
    assert_eq!(caught.wait_for(short()).unwrap(), None);
    let sends = thread::spawn(move || send_here(Signal::USR1));
    assert_eq!(caught.wait_for(Duration::from_secs(600)).unwrap(), Some(Signal::USR1));
    sends.join().unwrap();
}

#[isolated_test]
fn caught_signals_wake_a_task_and_a_dropped_wait_loses_none() {
    let caught = CaughtSignals::new(&[Signal::USR1, Signal::USR2]).unwrap();
    let send_here = sender();
    one_thread().block_on(async {
        let limit = Duration::from_millis(20);
        assert!(tokio::time::timeout(limit, caught.wait_async()).await.is_err());
        send_here(Signal::USR1);
        assert_eq!(caught.wait_async().await.unwrap(), Signal::USR1);
        let sends = thread::spawn(move || send_here(Signal::USR2));
        assert_eq!(caught.wait_async().await.unwrap(), Signal::USR2);
        sends.join().unwrap();
    });
    // Outside of a runtime.
    let Poll::Ready(result) = poll_once(caught.wait_async()) else { panic!("it waits") };
    assert_eq!(result.unwrap_err().kind(), std::io::ErrorKind::Unsupported);
}
