//! Inheritance on Windows, seen by its effect: a process that holds the end of a pipe keeps its reader waiting.

use std::io::Read as _;
use std::os::windows::io::{AsRawHandle as _, OwnedHandle};
use std::sync::atomic::{AtomicBool, Ordering};

use pipewright::{Child, Mode, PipeOptions, PipeReader, Stdio};
use pipewright_test_macros::{isolated_test, watched_test};
use windows_sys::Win32::Foundation::{HANDLE_FLAG_INHERIT, SetHandleInformation};

use super::puppet;

/// Returns a pipe whose writing end is inheritable, as careless code leaves it.
fn careless_pipe() -> (PipeReader, OwnedHandle) {
    let (reader, writer) = pipewright::pipe(PipeOptions::default()).unwrap();
    let writer = OwnedHandle::from(writer);
    let flag = HANDLE_FLAG_INHERIT;
    // SAFETY: an open handle and two numbers.
    assert_ne!(unsafe { SetHandleInformation(writer.as_raw_handle(), flag, flag) }, 0);
    (reader, writer)
}

/// Checks that the pipe ends when our writing end closes: no other process has one.
fn ends_with_ours((mut reader, writer): (PipeReader, OwnedHandle)) {
    drop(writer);
    assert_eq!(reader.read(&mut [0]).unwrap(), 0);
}

fn waiting() -> Child {
    let mut command = puppet(["wait=600"]);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.kill_on_drop().spawn().unwrap()
}

#[isolated_test]
fn children_of_eight_threads_hold_no_unlisted_handle() {
    const STARTERS: usize = 8;
    const STARTS: usize = 5;
    let always = careless_pipe();
    let done = AtomicBool::new(false);
    let children: Vec<Child> = std::thread::scope(|scope| {
        let openers: Vec<_> = (0..3)
            .map(|_| {
                scope.spawn(|| {
                    let mut pipes = Vec::new();
                    while !done.load(Ordering::Relaxed) && pipes.len() < 500 {
                        pipes.push(careless_pipe());
                        std::thread::yield_now();
                    }
                    pipes
                })
            })
            .collect();
        let start = || (0..STARTS).map(|_| waiting()).collect::<Vec<_>>();
        let starters: Vec<_> = (0..STARTERS).map(|_| scope.spawn(start)).collect();
        let children = starters.into_iter().flat_map(|it| it.join().unwrap()).collect();
        done.store(true, Ordering::Relaxed);
        // While all the children run.
        for opener in openers {
            opener.join().unwrap().into_iter().for_each(ends_with_ours);
        }
        children
    });
    assert_eq!(children.len(), STARTERS * STARTS);
    ends_with_ours(always);
}

#[watched_test]
fn a_listed_handle_is_held_and_not_inheritable_afterwards() {
    let ours = PipeOptions { read: Mode::Async, ..PipeOptions::default() };
    let (mut reader, writer) = pipewright::pipe(ours).unwrap();
    let mut command = puppet(["wait=600"]);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.inherit(writer).kill_on_drop();
    let child = command.spawn().unwrap();
    // The command's own goes with it; the child has the other one.
    let other = waiting();
    drop(command);
    let look = reader.try_read_spare(&mut Vec::with_capacity(1));
    assert_eq!(look.unwrap_err().kind(), std::io::ErrorKind::WouldBlock, "the child holds it");
    drop(child);
    assert_eq!(reader.read(&mut [0]).unwrap(), 0, "no other process holds it: {}", other.id());
}
