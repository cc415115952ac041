//! A worker of another version, build, user or architecture: both sides refuse it within the deadline and name
//! the field.

use std::io::Read as _;

use pipewright::Stdio;
use pipewright_ipc::{Channel, Error, ErrorKind, Options, Side};
use pipewright_os::channel::handle_channel;
use pipewright_test_macros::watched_test;
use pipewright_tests::hostile::{receive_frame, send, text};
#[cfg(unix)]
use pipewright_tests::skip;

use super::worker;

fn options() -> Options {
    Options { app: "app".into(), build: "1".into(), salt: "s".into(), ..Options::default() }
}

#[track_caller]
fn refused(error: &Error) -> (Side, &str, &str, &str) {
    match error.kind() {
        ErrorKind::Refused { by, field, host, worker } => (*by, field, host, worker),
        _ => panic!("{error}"),
    }
}

#[watched_test]
fn another_application_build_or_salt_is_named_on_both_sides() {
    let cases = [
        ("app=other,build=1,salt=s", ("app", "app", "other")),
        ("app=app,build=2,salt=s", ("build", "1", "2")),
        ("app=app,build=1,salt=t", ("salt", "s", "t")),
        ("app=app,salt=s", ("build", "1", "")),
    ];
    for (kind, (field, ours, theirs)) in cases {
        let mut command = worker(&format!("echo,{kind}"));
        command.stderr(Stdio::piped());
        // The worker's output, through a pipe of ours.
        let (mut reader, writer) = pipewright::pipe(Default::default()).unwrap();
        command.stderr(writer);
        let started: Result<Channel, _> = Channel::start(&mut command, &options());
        let error = started.unwrap_err();
        assert_eq!(refused(&error), (Side::Worker, field, ours, theirs));
        drop(command);
        let mut text = String::new();
        reader.read_to_string(&mut text).unwrap();
        let words = format!("{field} differs (host {ours:?}, worker {theirs:?})");
        assert!(text.contains(&words) && error.to_string().contains(&words), "{text} / {error}");
    }
}

#[cfg(unix)]
#[watched_test]
fn another_user_is_named() {
    if !skip::is_root() {
        return skip::skipped(skip::Need::Root, "only root can start a worker of another user");
    }
    let mut command = worker("echo,app=app,build=1,salt=s");
    // The puppet must be readable for that user, which is not the case in every folder.
    command.uid(65534).stderr(Stdio::null());
    let started: Result<Channel, _> = Channel::start(&mut command, &options());
    let error = started.unwrap_err();
    if *error.kind() == ErrorKind::Start {
        return skip::skipped(skip::Need::PublicTarget, error);
    }
    assert_eq!(refused(&error), (Side::Worker, "user", "0", "65534"));
}

/// Starts a side that sends the hello of a real one with one field changed.
fn impostor(
    field: &'static str,
    value: &'static str,
) -> (pipewright::Handle, std::thread::JoinHandle<String>) {
    let (mut end, handle) = handle_channel::pair().unwrap();
    let thread = std::thread::spawn(move || {
        let (_, hello) = receive_frame(&mut end).unwrap();
        let lines: Vec<String> = hello
            .lines()
            .map(|line| match line.split_once('=') {
                Some((key, _)) if key == field => format!("{key}={value}"),
                _ => line.to_owned(),
            })
            .collect();
        let body = lines.join("\n") + "\n";
        send(&mut end, &text(1, &body));
        receive_frame(&mut end).map(|(_, body)| body).unwrap_or_default()
    });
    (handle, thread)
}

#[watched_test]
fn a_host_that_finds_a_mismatch_reports_it() {
    let version = "1".to_owned();
    let arch = format!("{}-{}-little", std::env::consts::ARCH, usize::BITS);
    let user = handle_channel::user();
    for (field, ours) in [("version", version), ("arch", arch), ("user", user)] {
        let (link, thread) = impostor(field, "another");
        let connected: Result<Channel, _> = Channel::as_host(link, &options());
        let error = connected.unwrap_err();
        assert_eq!(refused(&error), (Side::Host, field, ours.as_str(), "another"));
        let body = thread.join().unwrap();
        let expected = format!("rejected\nby=host\nfield={field}\nhost={ours}\nworker=another\n");
        assert_eq!(body, expected);
    }
}

#[watched_test]
fn a_program_not_started_as_a_worker_gets_an_error() {
    let error = worker("echo").env_remove("PIPEWRIGHT_IPC").run().unwrap_err();
    assert!(error.to_string().contains("was not started as a worker"), "{error}");
    // A number of no handle, or of another file.
    for number in ["77", "1", "-1", "x", "99999999999999"] {
        let error = worker("echo").env("PIPEWRIGHT_IPC", number).run().unwrap_err();
        assert!(error.to_string().contains("worker"), "{error}");
    }
}
