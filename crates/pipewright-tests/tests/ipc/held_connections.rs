//! A worker that exits while another process holds its socket: its exit ends its calls, as the connection stays
//! open.

use std::os::fd::OwnedFd;

use pipewright_ipc::{ErrorKind, PoolOptions, WorkerState};
use pipewright_test_macros::watched_test;
use pipewright_tests::{alive, pace, skip, watchdog};
use rustix::process::{Pid, PidfdFlags, PidfdGetfdFlags, pidfd_getfd, pidfd_open};

use super::pool::{number, options, pool as start};
use super::was_killed;

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
