//! Programs that are started as workers and never complete the handshake: the error has their exit status and
//! their output, and no call counts as lost.

use pipewright::{Command, ExitStatus, Stdio};
use pipewright_ipc::{Channel, Error, ErrorKind, Options, Pool, PoolOptions};
use pipewright_test_macros::watched_test;
use pipewright_tests::{alive, pace, watchdog};

use super::async_calls::run;
use super::exit_words;
use super::pool::options;

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
        super::was_killed(status.unwrap());
        // A kill does not show if the program is a worker, so the error does not mention that.
        let words = format!("worker {pid} ended before the handshake: {}", status.unwrap());
        assert_eq!(text, words);
    }
}

#[watched_test]
fn a_silent_program_is_reported_and_killed_at_the_deadline() {
    let options = Options { handshake_timeout: pace::seconds(1), ..quick() };
    let acts = ["err=listening on port 80", "wait=60"];
    for (error, is_read) in start_in_every_way(&|| program(&acts), &options) {
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
