//! A process that was started as a worker: how it finds out, and the processes that it starts before it claims
//! its channel.

use std::fs;
use std::path::Path;

use std::io::Read as _;

use pipewright::{Command, Stdio};
use pipewright_ipc::{Channel, Error, ErrorKind, Options, Pool, PoolOptions, SharedMemory, worker};
use pipewright_test_macros::watched_test;

use super::pool::{options, pool as start};

/// Returns the puppet as a program that forgets the check, one level below this process.
fn forgets(kind: &str, file: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_puppet"));
    command.arg(format!("forgets={kind},1,{}", file.display()));
    command
}

/// Returns the number of processes of each depth, from the first worker on.
fn processes_by_depth(file: &Path) -> Vec<usize> {
    let list = fs::read_to_string(file).unwrap();
    let depths: Vec<usize> = list.lines().map(|line| line.parse().unwrap()).collect();
    let deepest = depths.iter().copied().max().unwrap_or(0);
    (1..=deepest).map(|depth| depths.iter().filter(|it| **it == depth).count()).collect()
}

/// Checks that the error names the worker check that the program forgot.
#[track_caller]
fn tells_of_the_worker(error: &Error) {
    let text = error.to_string();
    assert!(text.contains("is a worker and has not claimed its handle channel"), "{text}");
    assert!(text.contains("worker::serve") && !text.contains('\n'), "{text}");
}

#[watched_test]
fn a_pool_program_without_the_worker_check_does_not_start_itself_forever() {
    for kind in ["pool", "channel", "channel-async"] {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("depths");
        let channel = Options { shared_memory: SharedMemory::Off, ..Options::default() };
        let options =
            PoolOptions { max_workers: 1, start_attempts: 2, channel, ..Default::default() };
        let pool = Pool::new(forgets(kind, &file), options).unwrap();
        let error = pool.call("x").unwrap_err();
        assert_eq!(processes_by_depth(&file), [2], "{kind}: {error}");
        assert!(matches!(error.kind(), ErrorKind::NoHandshake { .. }), "{error}");
        tells_of_the_worker(&error);
        assert_eq!(pool.stats().failed_starts, 2);
    }
}

#[watched_test]
fn a_program_without_the_worker_check_does_not_start_itself_forever() {
    for kind in ["pool", "channel", "channel-async"] {
        for is_async in [false, true] {
            let folder = tempfile::tempdir().unwrap();
            let file = folder.path().join("depths");
            let mut command = forgets(kind, &file);
            command.stderr(Stdio::piped());
            let started: Result<Channel, Error> = match is_async {
                false => Channel::start(&mut command, &Options::default()),
                true => super::async_calls::run(async {
                    Channel::start_async(&mut command, &Options::default()).await
                }),
            };
            let error = started.unwrap_err();
            assert_eq!(processes_by_depth(&file), [1], "{kind}: {error}");
            tells_of_the_worker(&error);
        }
    }
}

/// Returns the output of a worker that does these acts before it claims its channel. It still answers as a worker.
fn output_before_it_claims(acts: &[&str]) -> String {
    let (mut reader, writer) = pipewright::pipe(Default::default()).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_puppet"));
    command.args(acts).arg("ipc=echo").stdout(writer);
    let mut channel: Channel = Channel::start(&mut command, &Options::default()).unwrap();
    drop(command);
    channel.send_bytes(b"echo").unwrap();
    assert_eq!(channel.recv().unwrap().bytes().unwrap(), b"echo");
    channel.close().unwrap();
    let mut text = String::new();
    reader.read_to_string(&mut text).unwrap();
    text
}

#[watched_test]
fn a_worker_knows_its_role_before_and_after_claiming_its_channel() {
    assert!(!worker::is_worker());
    // Asking changes nothing.
    assert_eq!(output_before_it_claims(&["is-worker", "is-worker"]), "true\ntrue\n");
    let pool = start(PoolOptions { max_workers: 1, ..options() });
    for _ in 0..2 {
        assert_eq!(*pool.call("is-worker").unwrap(), *b"true\n");
    }
}

#[watched_test]
fn a_child_of_a_worker_is_no_worker() {
    let pool = start(PoolOptions { max_workers: 1, ..options() });
    for kind in ["std", "pipewright"] {
        assert_eq!(*pool.call(format!("child {kind}")).unwrap(), *b"false\n", "{kind}");
    }
    // Before the channel is claimed, a child that inherits nothing is no worker either.
    assert_eq!(output_before_it_claims(&["is-worker=pipewright", "is-worker"]), "false\ntrue\n");
}

#[watched_test]
fn a_worker_can_have_workers_of_its_own() {
    let pool = start(PoolOptions { max_workers: 1, ..options() });
    assert_eq!(*pool.call("pool").unwrap(), *b"true\necho");
}

#[cfg(unix)]
#[watched_test]
fn a_shell_may_stand_between_a_host_and_its_worker() {
    let mut command = Command::new("sh");
    // The shell stays: it has something left to do.
    command.args(["-c", "\"$0\" is-worker ipc=echo >&2; exit 3", env!("CARGO_BIN_EXE_puppet")]);
    command.stderr(Stdio::piped());
    let mut channel: Channel = Channel::start(&mut command, &Options::default()).unwrap();
    channel.send_bytes(b"echo").unwrap();
    assert_eq!(channel.recv().unwrap().bytes().unwrap(), b"echo");
    let mut stderr = channel.worker_mut().unwrap().stderr.take().unwrap();
    assert_eq!(channel.close().unwrap().unwrap().code(), Some(3));
    let mut text = String::new();
    stderr.read_to_string(&mut text).unwrap();
    assert_eq!(text, "true\n");
}

/// The variables of a worker are inherited by its descendants, which may have a socket of that number.
#[cfg(unix)]
#[watched_test]
fn another_socket_with_the_same_number_is_not_the_channel() {
    use pipewright::Handle;

    let (one, _other) = std::os::unix::net::UnixStream::pair().unwrap();
    let handle = Handle::from(std::os::fd::OwnedFd::from(one));
    let number = i32::try_from(handle.number()).unwrap();
    let is_worker = |id: Option<String>| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_puppet"));
        command.arg("is-worker").env("PIPEWRIGHT_IPC", number.to_string());
        let list = command.inherit_fd_as(handle.try_clone().unwrap(), number);
        match id {
            Some(id) => list.env("PIPEWRIGHT_IPC_ID", id),
            None => list.env_remove("PIPEWRIGHT_IPC_ID"),
        };
        command.read().unwrap()
    };
    // A host that sets no second variable, or one that has inherited that of another host.
    assert_eq!(is_worker(None), "true");
    assert_eq!(is_worker(Some(format!("{}:0:0", number + 1))), "true");
    assert_eq!(is_worker(Some(format!("{number}:0:0"))), "false");
}
