//! The end of either side, handshakes that are refused, and nothing left behind.

use std::io::Read as _;
use std::time::{Duration, Instant};

use pipewright_ipc::{Channel, Error, ErrorKind, Options, SharedMemory, Side};
use pipewright_tests::{alive, skip, watchdog};

use super::hostile::Victim;
use super::language::Client;
use crate::both_ways;

pub(super) fn a_goodbye_ends_the_worker(client: &Client) {
    for options in both_ways() {
        for kind in ["echo", "calls", "handles"] {
            let channel = client.start(kind, &options);
            let began = Instant::now();
            assert!(channel.close().unwrap().unwrap().success());
            // Less than the time after which it would have been killed.
            assert!(began.elapsed() < Duration::from_secs(5), "{kind}");
        }
    }
}

#[track_caller]
fn refused(error: &Error) -> (Side, &str, &str, &str) {
    match error.kind() {
        ErrorKind::Refused { by, field, host, worker } => (*by, field, host, worker),
        _ => panic!("{error}"),
    }
}

pub(super) fn refused_handshakes_name_the_field_on_both_sides(client: &Client) {
    let options = Options {
        app: "app=1".into(),
        build: "1".into(),
        salt: "\u{e9}".into(),
        ..Options::default()
    };
    // Equal values, also unusual ones.
    let channel = client.start("echo app=app=1 build=1 salt=\u{e9}", &options);
    assert!(channel.close().unwrap().unwrap().success());
    let cases = [
        ("echo app=other build=1 salt=\u{e9}", ("app", "app=1", "other")),
        ("echo app=app=1 build=2 salt=\u{e9}", ("build", "1", "2")),
        ("echo app=app=1 build=1 salt=t", ("salt", "\u{e9}", "t")),
        ("echo app=app=1 salt=\u{e9}", ("build", "1", "")),
    ];
    for (kind, (field, ours, theirs)) in cases {
        let mut command = client.worker(kind);
        let (mut reader, writer) = pipewright::pipe(Default::default()).unwrap();
        command.stderr(writer);
        let started: Result<Channel, _> = Channel::start(&mut command, &options);
        let error = started.unwrap_err();
        assert_eq!(refused(&error), (Side::Worker, field, ours, theirs));
        drop(command);
        let mut text = String::new();
        reader.read_to_string(&mut text).unwrap();
        assert!(text.contains(&format!("{field} differs")), "{text}");
    }
}

pub(super) fn required_shared_memory_is_an_error_if_unavailable(client: &Client) {
    let off = Options { shared_memory: SharedMemory::Off, ..Options::default() };
    let mut command = client.worker("echo shm=required");
    command.stderr(pipewright::Stdio::null());
    let mut channel: Channel = match Channel::start(&mut command, &off) {
        Ok(channel) => channel,
        Err(error) => {
            assert_eq!((refused(&error).0, refused(&error).1), (Side::Worker, "shared memory"));
            return;
        }
    };
    // The host may still take the READY for the end of the handshake.
    let error = channel.recv().unwrap_err();
    assert!(error.is_disconnect() || matches!(error.kind(), ErrorKind::Protocol { .. }), "{error}");
}

pub(super) fn a_program_without_a_host_is_told_so(client: &Client) {
    let error = client.worker("echo").env_remove("PIPEWRIGHT_IPC").run().unwrap_err();
    assert!(error.to_string().contains("was not started as a worker"), "{error}");
    for number in ["77", "1", "-1", "x", "99999999999999", ""] {
        let error = client.worker("echo").env("PIPEWRIGHT_IPC", number).run().unwrap_err();
        assert!(error.to_string().contains("was not started as a worker"), "{number}: {error}");
    }
}

pub(super) fn a_worker_exits_when_its_host_is_gone(client: &Client) {
    for can in ["", "shm.v1"] {
        // Idle, and in the middle of a message.
        for rest in [&b""[..], &[100, 0, 0, 0, 16, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 2]] {
            let mut victim = Victim::start(client, "echo");
            victim.shake_hands(can);
            victim.send(rest);
            let (status, stderr) = victim.leave();
            assert!(status.success() && stderr.is_empty(), "{status}: {stderr}");
        }
    }
}

/// Returns the number of handles of that process. 0: this system does not show them.
fn handles(pid: u32) -> usize {
    std::fs::read_dir(format!("/proc/{pid}/fd")).map_or(0, Iterator::count)
}

pub(super) fn nothing_is_left_in_a_worker(client: &Client) {
    for options in both_ways() {
        let mut channel = client.start("echo ring=65536", &options);
        let pid = channel.worker().unwrap().id();
        let mut before = 0;
        for number in 0..400_usize {
            let body = vec![number as u8; number * 1_237 % 90_000];
            if client.carries_handles() && number % 4 == 0 {
                // Handles that nobody takes are closed.
                channel.send_with_handles(&body, &crate::some_files(3)).unwrap();
            } else {
                channel.send_bytes(&body).unwrap();
            }
            assert_eq!(channel.recv().unwrap().bytes().unwrap(), body);
            if number == 50 {
                before = handles(pid);
            }
        }
        match before {
            0 => skip::skipped(skip::Need::File("/proc/self/fd"), "the handles of the worker"),
            _ => assert_eq!(handles(pid), before),
        }
        channel.close().unwrap();
        watchdog::until("it has ended", || !alive::is_running(pid));
    }
}
