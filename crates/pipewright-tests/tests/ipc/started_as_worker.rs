//! A process that was started as a worker: how it finds out, and the processes that it starts before it claims
//! its channel.

use std::fs;
use std::io::Read as _;
use std::path::Path;

use pipewright::{Command, ExitStatus, Stdio};
use pipewright_ipc::{Channel, Error, ErrorKind, Options, Pool, PoolOptions, SharedMemory, worker};
use pipewright_test_macros::watched_test;
use pipewright_tests::{alive, pace, watchdog};

use crate::async_calls::run;
use crate::exit_words;
use crate::pool::{options, pool as start};

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
                true => crate::async_calls::run(async {
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

/// Returns the puppet as a program that is not a worker.
fn program(acts: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_puppet"));
    command.args(acts);
    command
}

/// Starts it as the worker of a channel and of a pool, by threads and by tasks. Returns each error, and true if
/// stderr was read.
fn start_in_every_way(program: &dyn Fn() -> Command, options: &Options) -> Vec<(Error, bool)> {
    let mut errors = Vec::new();
    for is_piped in [false, true] {
        let command = || {
            let mut command = program();
            command.stderr(if is_piped { Stdio::piped() } else { Stdio::null() });
            command
        };
        let started: Result<Channel, Error> = Channel::start(&mut command(), options);
        errors.push((started.unwrap_err(), is_piped));
        let started: Result<Channel, Error> =
            run(async { Channel::start_async(&mut command(), options).await });
        errors.push((started.unwrap_err(), is_piped));
    }
    let options = PoolOptions { start_attempts: 2, channel: options.clone(), ..self::options() };
    let pool = || Pool::new(program(), options.clone()).unwrap();
    let counts = |pool: &Pool| {
        let stats = pool.stats();
        assert_eq!((stats.lost, stats.died, stats.failed_starts), (0, 0, 2));
    };
    let by_thread = pool();
    errors.push((by_thread.call("x").unwrap_err(), true));
    counts(&by_thread);
    let by_task = pool();
    errors.push((run(by_task.call_async("x")).unwrap_err(), true));
    counts(&by_task);
    errors
}

/// Returns the facts of such an error, which is one line.
#[track_caller]
fn facts(error: &Error) -> (u32, Option<ExitStatus>, &str, String) {
    let text = error.to_string();
    let ErrorKind::NoHandshake { pid, status, stderr_tail } = error.kind() else {
        panic!("{error}")
    };
    assert!(!text.contains('\n') && !text.contains("during the call"), "{text}");
    assert!(text.contains(&pid.to_string()), "{text}");
    (*pid, *status, stderr_tail, text)
}

fn quick() -> Options {
    Options { ring_bytes: 64 << 10, ..Options::default() }
}

#[watched_test]
fn a_program_that_exits_is_reported_with_its_status() {
    for (error, _) in start_in_every_way(&|| program(&["exit=0"]), &quick()) {
        let (pid, status, stderr_tail, text) = facts(&error);
        assert!(status.unwrap().success() && stderr_tail.is_empty());
        let words = format!(
            "worker {pid} ended before the handshake, so it may not be a worker program: {}",
            exit_words(0)
        );
        assert_eq!(text, words);
        assert!(error.is_disconnect() && !error.is_timeout());
    }
}

#[watched_test]
fn usage_text_of_a_program_is_part_of_the_error() {
    let acts = ["err=a line before\nusage: puppet [acts]\n", "exit=2"];
    for (error, is_read) in start_in_every_way(&|| program(&acts), &quick()) {
        let (_, status, stderr_tail, text) = facts(&error);
        assert_eq!(status.unwrap().code(), Some(2));
        let (words, line) = match is_read {
            true => ("a line before\nusage: puppet [acts]", ": usage: puppet [acts]"),
            false => ("", ""),
        };
        assert_eq!(stderr_tail, words);
        assert!(text.ends_with(&format!("{}{line}", exit_words(2))), "{text}");
    }
}

#[cfg(unix)]
#[watched_test]
fn a_killed_program_is_reported_with_its_signal() {
    for (error, _) in start_in_every_way(&|| program(&["raise=KILL"]), &quick()) {
        let (pid, status, _, text) = facts(&error);
        crate::was_killed(status.unwrap());
        // A kill does not show if the program is a worker, so the error does not mention that.
        let words = format!("worker {pid} ended before the handshake: {}", status.unwrap());
        assert_eq!(text, words);
    }
}

#[watched_test]
fn a_silent_program_is_reported_and_killed_at_the_deadline() {
    let folder = tempfile::tempdir().unwrap();
    let mark = format!("touch-pid={}", folder.path().display());
    let acts = ["err=listening on port 80", &mark, "wait=60"];
    let mut time = pace::seconds(1);
    let errors = loop {
        let options = Options { handshake_timeout: time, ..quick() };
        let errors = start_in_every_way(&|| program(&acts), &options);
        let has_begun = |pid: u32| folder.path().join(pid.to_string()).exists();
        if errors.iter().all(|(error, _)| has_begun(facts(error).0)) {
            break errors;
        }
        // On a busy machine the time may be over before a program has said anything.
        time *= 2;
    };
    for (error, is_read) in errors {
        let (pid, status, stderr_tail, text) = facts(&error);
        assert!(status.is_none() && error.is_timeout() && !error.is_disconnect());
        assert_eq!(stderr_tail, if is_read { "listening on port 80" } else { "" });
        let words = format!(
            "timed out waiting for the handshake: the worker (process {pid}) is running and silent, \
             so it may not be a worker program"
        );
        assert!(text.starts_with(&words) && text.ends_with(stderr_tail), "{text}");
        watchdog::until("it was killed", || !alive::is_running(pid));
    }
}

#[watched_test]
fn a_program_that_closes_its_channel_is_reported_and_killed() {
    for (error, _) in start_in_every_way(&|| program(&["ipc=leaves"]), &quick()) {
        let (pid, status, _, text) = facts(&error);
        assert!(status.is_none(), "{text}");
        let words =
            format!("worker {pid} closed its handle channel before the handshake, so it may not");
        assert!(text.starts_with(&words), "{text}");
        watchdog::until("it was killed", || !alive::is_running(pid));
    }
}

#[watched_test]
fn a_program_that_cannot_start_is_named_in_the_error() {
    for (error, _) in start_in_every_way(&|| Command::new("/no/such/worker"), &quick()) {
        assert_eq!(error.kind(), &ErrorKind::Start);
        assert!(error.to_string().contains("/no/such/worker"), "{error}");
    }
}

#[watched_test]
fn program_output_in_an_error_is_bounded() {
    // Less than a pipe holds: a channel does not read it meanwhile.
    let acts = ["err-bytes=30000", "exit=2"];
    for (error, _) in start_in_every_way(&|| program(&acts), &quick()) {
        let (_, _, stderr_tail, text) = facts(&error);
        assert!(stderr_tail.len() <= 3 * (16 << 10), "{}", stderr_tail.len());
        assert!(text.chars().count() < 6_000, "{text}");
    }
}
