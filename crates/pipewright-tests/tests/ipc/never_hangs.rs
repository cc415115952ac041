//! A dead, stopped or silent peer: neither side waits for it past the deadline, and the error says which it is,
//! and its exit status.

use std::time::{Duration, Instant};

use pipewright::Command;
#[cfg(unix)]
use pipewright::Signal;
use pipewright_ipc::{Channel, ErrorKind, Options, Peer};
use pipewright_test_macros::watched_test;
use pipewright_tests::{bodies, watchdog};

use super::{both_ways, start, was_killed};

const SHORT: Duration = Duration::from_millis(100);

#[watched_test]
fn waiting_for_a_silent_worker_times_out_and_reports_it_running() {
    for options in both_ways() {
        let mut channel = start("silent", &options);
        let pid = channel.worker().unwrap().id();
        channel.set_timeout(Some(SHORT));
        let began = Instant::now();
        let error = channel.recv().unwrap_err();
        assert!(began.elapsed() >= SHORT);
        let ErrorKind::TimedOut { peer, waiting_for } = error.kind() else { panic!("{error}") };
        assert_eq!((*peer, *waiting_for), (Peer::Runs { pid }, "a message"));
        // It can be used again: nothing was lost.
        assert!(channel.try_recv().unwrap().is_none());
        // The worker does not read: more than the ring and the socket hold.
        let error = channel.send_bytes(&vec![7; 16 << 20]).unwrap_err();
        let ErrorKind::TimedOut { waiting_for, .. } = error.kind() else { panic!("{error}") };
        assert_eq!(*waiting_for, "the other side to read");
        // The message was cut off, and the next one would be read as its rest.
        assert_eq!(channel.send_bytes(b"x").unwrap_err().kind(), &ErrorKind::CutOff);
        assert_eq!(channel.try_send_bytes(b"x").unwrap_err().kind(), &ErrorKind::CutOff);
    }
}

#[cfg(unix)]
#[watched_test]
fn a_stopped_worker_is_distinct_from_a_silent_one() {
    for options in both_ways() {
        let mut channel = start("echo", &options);
        let child = channel.worker().unwrap();
        let pid = child.id();
        child.signal(Signal::STOP).unwrap();
        watchdog::until("it is stopped", || pipewright_tests::alive::state(pid) == Some('T'));
        channel.set_timeout(Some(SHORT));
        channel.send_bytes(b"x").unwrap();
        let error = channel.recv().unwrap_err();
        let ErrorKind::TimedOut { peer, .. } = error.kind() else { panic!("{error}") };
        assert_eq!(*peer, Peer::Stopped { pid });
    }
}

#[watched_test]
fn a_dead_worker_is_reported_after_its_last_message() {
    for options in both_ways() {
        let mut channel = start("die", &options);
        assert_eq!(channel.recv().unwrap().bytes().unwrap(), b"last words");
        let error = channel.recv().unwrap_err();
        let ErrorKind::Died { status: Some(status) } = error.kind() else { panic!("{error}") };
        assert_eq!(status.code(), Some(7));
        assert!(error.is_disconnect() && error.to_string().starts_with("the worker died: "));
        // Again and again.
        assert!(channel.recv().unwrap_err().is_disconnect());
        // A message may still find room in the ring; more than that does not.
        let error = channel.send_bytes(&vec![7; 16 << 20]).unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::Died { status: Some(_) }), "{error}");
    }
}

#[watched_test]
fn a_kill_ends_waits_for_messages_and_for_room() {
    for options in both_ways() {
        for sending in [false, true] {
            let mut channel = start("silent", &options);
            let pid = channel.worker().unwrap().id();
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    std::thread::park_timeout(Duration::from_millis(50));
                    pipewright_tests::alive::kill(pid);
                });
                let error = match sending {
                    true => channel.send_bytes(&vec![7; 16 << 20]).unwrap_err(),
                    false => channel.recv().unwrap_err(),
                };
                let ErrorKind::Died { status: Some(status) } = error.kind() else {
                    panic!("{error}")
                };
                was_killed(*status);
            });
        }
    }
}

/// Returns a program that is not a worker.
fn no_worker(act: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_puppet"));
    command.arg(act);
    command
}

#[watched_test]
fn a_handshake_ends_at_worker_exit_or_at_the_deadline() {
    let options = Options { handshake_timeout: SHORT, ..Options::default() };
    // Not a worker, and exits.
    let started: Result<Channel, _> = Channel::start(&mut no_worker("exit=0"), &Options::default());
    let error = started.unwrap_err();
    let ErrorKind::NoHandshake { status: Some(status), .. } = error.kind() else {
        panic!("{error}")
    };
    assert!(status.success());
    // Not a worker, and does not exit.
    let started: Result<Channel, _> = Channel::start(&mut no_worker("wait=60"), &options);
    let error = started.unwrap_err();
    let ErrorKind::NoHandshake { pid, status: None, .. } = error.kind() else { panic!("{error}") };
    assert!(error.is_timeout(), "{error}");
    watchdog::until("it was killed", || !pipewright_tests::alive::is_running(*pid));
    // Cannot be started.
    let started: Result<Channel, _> =
        Channel::start(&mut Command::new("no-such-program"), &options);
    let error = started.unwrap_err();
    assert_eq!(error.kind(), &ErrorKind::Start);
    assert!(error.to_string().contains("no-such-program"), "{error}");
}

#[watched_test]
fn a_worker_exits_when_its_host_is_gone() {
    for options in both_ways() {
        let channel = start("echo", &options);
        let pid = channel.worker().unwrap().id();
        drop(channel);
        watchdog::until("it has ended", || !pipewright_tests::alive::is_running(pid));
    }
}

#[watched_test]
fn a_finished_worker_waits_for_a_slow_host() {
    // Longer than a host waits for its worker.
    const LONG: Duration = Duration::from_millis(5_500);
    let mut channel = start("both,count=1", &Options::default());
    let (mut body, mut received) = (Vec::new(), Vec::new());
    bodies::body(0, bodies::length(0), &mut body);
    channel.send_bytes(&body).unwrap();
    let until = Instant::now() + LONG;
    while Instant::now() < until {
        std::thread::park_timeout(LONG);
    }
    channel.recv().unwrap().read_into(&mut received).unwrap();
    assert_eq!(channel.recv().unwrap().bytes().unwrap(), b"right");
    assert!(channel.close().unwrap().unwrap().success());
}

#[watched_test]
fn a_worker_that_does_not_exit_is_killed_at_the_deadline() {
    for options in both_ways() {
        let mut channel = start("silent", &options);
        let pid = channel.worker().unwrap().id();
        channel.set_timeout(Some(SHORT));
        assert!(channel.close().unwrap_err().is_timeout());
        watchdog::until("it was killed", || !pipewright_tests::alive::is_running(pid));
    }
}

/// The end of a connection by GOODBYE: a worker that waits for the end of the stream gets it, and is not waited for.
#[cfg(unix)]
mod goodbye {
    use std::sync::{Arc, Mutex};
    use std::time::Duration;

    use pipewright::{ExitStatus, Stdio};
    use pipewright_ipc::{Channel, OnLine, Options, Pool, PoolOptions, Schedule};
    use pipewright_test_macros::watched_test;

    use super::super::async_calls::run;
    use super::super::pool::options;
    use super::super::worker;

    /// Workers that send GOODBYE before they wait for the end, and workers that do not.
    const WORKERS: [&str; 2] = ["ignores-goodbye", "ignores-goodbye,answers"];

    fn is_success(status: ExitStatus) -> bool {
        status.success()
    }

    #[watched_test]
    fn a_closed_channel_ends_the_stream_to_its_worker() {
        for kind in WORKERS {
            let mut command = worker(kind);
            command.stdout(Stdio::null());
            let channel: Channel = Channel::start(&mut command, &Options::default()).unwrap();
            assert!(channel.close().unwrap().is_some_and(is_success), "{kind}");
            let closed = run(async {
                let options = Options::default();
                let started = Channel::<(), ()>::start_async(&mut command, &options).await;
                started.unwrap().close_async().await
            });
            assert!(closed.unwrap().is_some_and(is_success), "{kind}");
        }
    }

    #[watched_test]
    fn a_pool_that_shuts_down_ends_the_stream_to_its_workers() {
        for kind in WORKERS {
            let lines = Arc::new(Mutex::new(Vec::new()));
            let taken = Arc::clone(&lines);
            let on_line = OnLine::new(move |line| taken.lock().unwrap().push(line.text.to_owned()));
            // Longer than the test may take.
            let goodbye = Duration::from_secs(100_000);
            let shutdown = Schedule { goodbye, ..Schedule::default() };
            let options = PoolOptions { shutdown, on_line: Some(on_line), ..options() };
            let pool = Pool::new(worker(kind), options).unwrap();
            assert!(pool.call("").unwrap().is_empty());
            pool.shut_down();
            assert_eq!(*lines.lock().unwrap(), ["the stream has ended"], "{kind}");
        }
    }
}

/// A worker that exits while another process holds its socket: its exit ends its calls, as the connection stays
/// open.
#[cfg(target_os = "linux")]
mod held_connections {
    use std::os::fd::OwnedFd;

    use pipewright_ipc::{ErrorKind, PoolOptions, WorkerState};
    use pipewright_test_macros::watched_test;
    use pipewright_tests::{alive, pace, skip, watchdog};
    use rustix::process::{Pid, PidfdFlags, PidfdGetfdFlags, pidfd_getfd, pidfd_open};

    use super::super::pool::{number, options, pool as start};
    use super::super::was_killed;

    /// Returns a copy of the worker's socket, as a descendant has it that closed nothing.
    fn end_of(pid: u32) -> rustix::io::Result<OwnedFd> {
        let process = pidfd_open(Pid::from_raw(pid as i32).unwrap(), PidfdFlags::empty())?;
        let files = std::fs::read_dir(format!("/proc/{pid}/fd")).unwrap().map(Result::unwrap);
        let is_socket = |path: &std::path::PathBuf| {
            std::fs::read_link(path).is_ok_and(|to| to.to_string_lossy().starts_with("socket:"))
        };
        let socket = files.map(|it| it.path()).find(is_socket).expect("its connection");
        let number = socket.file_name().unwrap().to_str().unwrap().parse().unwrap();
        pidfd_getfd(process, number, PidfdGetfdFlags::empty())
    }

    #[watched_test]
    fn calls_end_when_the_worker_exits_and_another_process_holds_its_socket() {
        for is_begun in [false, true] {
            let pool = start(PoolOptions { max_workers: 1, ..options() });
            let pid = number(&pool, "pid") as u32;
            let _held = match end_of(pid) {
                Ok(end) => end,
                Err(error) => {
                    return skip::skipped(
                        skip::Need::Kernel("5.6"),
                        format_args!("pidfd_getfd: {error}"),
                    );
                }
            };
            let is = |state| pool.stats().workers.iter().any(|it| it.state == state);
            // The statistics are of a moment ago, and may be of the call before.
            watchdog::until("it has nothing to do", || is(WorkerState::Idle));
            std::thread::scope(|scope| {
                let call = scope.spawn(|| match is_begun {
                    true => pool.begin("hang").unwrap().wait(),
                    false => pool.call("hang"),
                });
                watchdog::until("the worker has it", || is(WorkerState::Busy));
                alive::kill(pid);
                let error = call.join().unwrap().unwrap_err();
                let ErrorKind::Lost { status, .. } = error.kind() else { panic!("{error}") };
                was_killed(status.unwrap());
            });
            assert_ne!(number(&pool, "pid") as u32, pid);
            // Also if the worker was idle.
            let pid = number(&pool, "pid") as u32;
            let _held = end_of(pid).unwrap();
            alive::kill(pid);
            watchdog::until("it is found out", || pool.stats().died == 2);
            let request = pipewright_ipc::Request::new("pid").timeout(pace::seconds(60));
            assert_ne!(*pool.call(request).unwrap(), *pid.to_string().as_bytes());
        }
    }
}
