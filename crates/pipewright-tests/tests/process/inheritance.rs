//! A child inherits exactly its stdio and the list, while 8 threads start children and others open inheritable
//! handles.

use std::fs::File;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use pipewright::{Command, ErrorKind, Handle, HandleKind, PipeOptions, Stdio, open_handles};
use pipewright_test_macros::{isolated_test, watched_test};
use pipewright_tests::pace;
use pipewright_tests::skip::{Need, is_forced_async, skipped};

use super::puppet;

/// Returns a handle that is not close-on-exec, as careless code leaves it.
#[cfg(target_os = "linux")]
fn inheritable() -> OwnedFd {
    let file = File::open("/dev/null").unwrap();
    // SAFETY: numbers.
    let copy = unsafe { libc::dup(file.as_raw_fd()) };
    assert!(copy >= 0);
    // SAFETY: the call above made it, and nothing else owns it.
    unsafe { OwnedFd::from_raw_fd(copy) }
}

/// Returns number and kind of the handles of a child of this command.
#[cfg(target_os = "linux")]
fn handles_of_child(command: &mut Command) -> Vec<(i64, String)> {
    let text = command.read().unwrap();
    let line = |line: &str| {
        let (number, kind) = line.split_once(' ').unwrap();
        (number.parse().unwrap(), kind.to_owned())
    };
    text.lines().map(line).collect()
}

/// Returns the inheritable handles of this process: at first those that it was started with.
fn inheritable_numbers() -> Vec<i64> {
    let open = open_handles().unwrap();
    open.iter().filter(|handle| handle.inheritable).map(|handle| handle.number).collect()
}

fn is_inheritable(number: i64) -> Option<bool> {
    let open = open_handles().unwrap();
    open.iter().find(|handle| handle.number == number).map(|handle| handle.inheritable)
}

#[cfg(target_os = "linux")]
#[isolated_test]
fn children_of_eight_threads_inherit_only_listed_handles() {
    const STARTERS: usize = 8;
    let starts = pace::rounds(30, 4);
    let done = AtomicBool::new(false);
    let opened = AtomicUsize::new(0);
    let before = inheritable_numbers();
    // One handle stays open all the time, so that there is always one to leak.
    let always = inheritable();
    assert_eq!(is_inheritable(i64::from(always.as_raw_fd())), Some(true));
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    let batch: Vec<OwnedFd> = (0..20).map(|_| inheritable()).collect();
                    opened.fetch_add(batch.len(), Ordering::Relaxed);
                }
            });
        }
        let starters: Vec<_> = (0..STARTERS)
            .map(|_| scope.spawn(|| (0..starts).for_each(start_with_a_list)))
            .collect();
        let results: Vec<_> = starters.into_iter().map(|it| it.join()).collect();
        done.store(true, Ordering::Relaxed);
        results.into_iter().for_each(|result| result.unwrap());
    });
    assert!(opened.into_inner() > STARTERS * starts, "there was something to leak");
    drop(always);
    assert_eq!(inheritable_numbers(), before);
}

/// Starts a child with a list of its own, and checks the handles on both sides.
#[cfg(target_os = "linux")]
fn start_with_a_list(round: usize) {
    let (reader, writer) = pipewright::pipe(PipeOptions::default()).unwrap();
    let file = Handle::from(File::open("/proc/self/status").unwrap());
    let (reader, writer) = (Handle::from(reader), Handle::from(writer));
    // Numbers that other threads of this process use for other things meanwhile.
    let wanted = [100 + round as i32 % 7, 3 + round as i32 % 40];
    let listed = [reader.number(), writer.number(), file.number()];
    let mut expected = vec![(listed[0], "pipe".to_owned())];
    let mut command = puppet(["handles"]);
    command.stdin(Stdio::null()).inherit(reader);
    for (handle, wanted, kind) in [(writer, wanted[0], "pipe"), (file, wanted[1], "file")] {
        if i64::from(wanted) == listed[0] {
            continue;
        }
        command.inherit_fd_as(handle, wanted);
        expected.push((i64::from(wanted), kind.to_owned()));
    }
    let mut all: Vec<_> = handles_of_child(&mut command);
    let stdio = all.drain(..3).map(|(number, _)| number).collect::<Vec<_>>();
    assert_eq!(stdio, [0, 1, 2]);
    expected.sort();
    assert_eq!(all, expected, "in round {round}");
    assert_eq!(is_inheritable(listed[0]), Some(false));
}

#[isolated_test]
fn a_listed_handle_is_never_marked_inheritable_on_our_side() {
    let done = AtomicBool::new(false);
    let looks = AtomicUsize::new(0);
    let file = File::open("/dev/null").unwrap();
    let listed = Handle::from(file.try_clone().unwrap());
    let number = listed.number();
    let mut commands: Vec<Command> = (0..4)
        .map(|_| {
            let mut command = puppet(["exit=0"]);
            command
                .inherit(file.try_clone().unwrap())
                .inherit_fd_as(Handle::copy_of_number(number as i32).unwrap(), number as i32);
            command
        })
        .collect();
    let before = inheritable_numbers();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                assert_eq!(inheritable_numbers(), before);
                looks.fetch_add(1, Ordering::Relaxed);
            }
        });
        let starters: Vec<_> = commands
            .iter_mut()
            .map(|command| {
                scope.spawn(|| {
                    for _ in 0..pace::rounds(50, 10) {
                        assert!(command.status().unwrap().success());
                    }
                })
            })
            .collect();
        let results: Vec<_> = starters.into_iter().map(|it| it.join()).collect();
        done.store(true, Ordering::Relaxed);
        results.into_iter().for_each(|result| result.unwrap());
    });
    assert!(looks.into_inner() > 10);
    assert_eq!(is_inheritable(number), Some(false));
}

#[isolated_test]
fn a_listed_handle_that_was_closed_is_named_in_the_error() {
    if is_forced_async() {
        return skipped(
            Need::BlockingVerbs,
            "a runtime takes the numbers that are free, which would be those",
        );
    }
    let null = || File::open("/dev/null").unwrap();
    let closed = Handle::from(null());
    let number = closed.number() as i32;
    let mut command = puppet(["exit=0"]);
    command.inherit(null()).inherit(closed);
    // Other code of the program must not do this.
    // SAFETY: this process runs nothing but this test, and ends without the owner's drop.
    assert_eq!(unsafe { libc::close(number) }, 0);
    let error = command.status().unwrap_err();
    assert_eq!(error.kind(), &ErrorKind::InvalidInput);
    assert!(error.to_string().contains("cannot pass it inherit[1]: "), "{error}");
    // As stdio: closed again, or dropped twice.
    let mut command2 = puppet(["exit=0"]);
    let file = null();
    let number = file.as_raw_fd();
    command2.stdout(file);
    // SAFETY: as above.
    assert_eq!(unsafe { libc::close(number) }, 0);
    let error = command2.status().unwrap_err();
    assert_eq!(error.kind(), &ErrorKind::InvalidInput);
    assert!(error.to_string().contains("cannot redirect its stdout: "), "{error}");
    std::mem::forget((command, command2));
}

#[watched_test]
fn a_listed_pipe_has_the_reported_number_in_the_child() {
    let (mut reader, writer) = pipewright::pipe(PipeOptions::default()).unwrap();
    let writer = Handle::from(writer);
    assert_eq!(writer.kind().unwrap(), HandleKind::Pipe);
    let mut command = Command::new("sh");
    // Uses the path, because after `>&` some shells accept only a single digit, and the number may have more.
    command.args(["-c", "echo through the list > \"/dev/fd/$1\"", "sh"]);
    command.arg(writer.number().to_string());
    command.inherit(writer);
    command.run().unwrap();
    drop(command);
    let mut text = String::new();
    std::io::Read::read_to_string(&mut reader, &mut text).unwrap();
    assert_eq!(text, "through the list\n");
}
