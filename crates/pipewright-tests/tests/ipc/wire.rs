//! The wire of `docs/wire.md`: a worker in another language, written from that document.

use std::io::Read as _;

use pipewright::{Command, ErrorKind, Handle, PipeOptions};
use pipewright_ipc::{Channel, Options};
use pipewright_test_macros::watched_test;
use pipewright_tests::{bodies, skip};

/// Returns a channel to that worker, unless this machine cannot run it.
fn python(options: &Options) -> Option<Channel> {
    match Command::new("python3").arg("--version").output() {
        Err(error) if matches!(error.kind(), ErrorKind::NotFound { .. }) => {
            skip::skipped("no python3 here");
            return None;
        }
        version => drop(version.unwrap()),
    }
    let mut command = Command::new("python3");
    command.arg(concat!(env!("CARGO_MANIFEST_DIR"), "/../pipewright-ipc/examples/worker.py"));
    Some(Channel::start(&mut command, options).unwrap())
}

#[watched_test]
fn a_worker_written_from_the_wire_document_works() {
    let options = Options { app: "app=1".into(), salt: "\u{e9}".into(), ..Options::default() };
    let Some(mut channel) = python(&options) else { return };
    let (mut body, mut received) = (Vec::new(), Vec::new());
    for number in 0..60 {
        let length = bodies::length(number);
        bodies::body(number, length, &mut body);
        channel.send_bytes(&body).unwrap();
        channel.recv().unwrap().read_into(&mut received).unwrap();
        bodies::check(number, length, &received, &mut body);
    }
    channel.send_bytes(b"long").unwrap();
    assert_eq!(channel.recv().unwrap().bytes().unwrap(), b"inparts!");
    channel.send_bytes(b"big 3000000").unwrap();
    assert_eq!(channel.recv().unwrap().bytes().unwrap(), vec![b'x'; 3_000_000]);
    let stats = channel.stats();
    assert!(!stats.shared_memory);
    assert_eq!(stats.fallback.as_deref(), Some("the other side has shared memory off"));
    assert!(channel.close().unwrap().unwrap().success());
}

#[watched_test]
fn a_worker_written_from_the_wire_document_gets_handles() {
    let Some(mut channel) = python(&Options::default()) else { return };
    let (mut reader, writer) = pipewright::pipe(PipeOptions::default()).unwrap();
    channel.send_with_handles(b"take it", &[Handle::from(writer)]).unwrap();
    let mut text = String::new();
    reader.read_to_string(&mut text).unwrap();
    assert_eq!(text, "from python\n");
    assert_eq!(channel.recv().unwrap().bytes().unwrap(), b"take it");
    // A worker that just exits has died.
    channel.worker().unwrap().kill().unwrap();
    assert!(channel.recv().unwrap_err().is_disconnect());
}
