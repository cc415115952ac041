//! The pool: tokens that are taken, put back, lost and found again.

use std::os::unix::fs::PermissionsExt;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use pipewright_os::base::token_pipe::TokenPipe;
use pipewright_test_macros::isolated_test;
use pipewright_tests::watchdog::in_a_fork;

use super::*;
use crate::jobserver::Token;
use crate::jobserver::server::{Correction, Pool};

const STYLES: [Style; 2] = [Style::Fifo, Style::Pipe];

/// Returns the path by which children find the pool.
fn fifo(server: &Server) -> &Path {
    match &server.pool {
        Pool::Fifo(fifo) => fifo.path(),
        Pool::Pipe { .. } => panic!("its children inherit the ends"),
    }
}

/// Returns a client as a program below the server has one, in this process.
fn client_of(server: &Server) -> Client {
    client(&server.makeflags(None)).unwrap().unwrap()
}

#[test]
fn jobs_and_the_programs_below_them_share_the_slots() {
    for style in STYLES {
        let server = Server::new(slots(3), style).unwrap();
        let job = server.tokens.try_acquire().unwrap().unwrap();
        let client = client_of(&server);
        // The first one of the client is the job's own slot.
        let below: Vec<Token> =
            std::iter::from_fn(|| client.tokens.try_acquire().unwrap()).collect();
        assert_eq!(below.len(), 3);
        assert!(server.tokens.try_acquire().unwrap().is_none());
        drop(below);
        let jobs: Vec<_> = std::iter::from_fn(|| server.tokens.try_acquire().unwrap()).collect();
        assert_eq!(jobs.len(), 2);
        drop((job, jobs));
        assert_eq!(server.tokens.shared.pipe.count().unwrap(), 2);
    }
}

#[test]
fn one_slot_has_no_token_and_runs_one_job() {
    let server = Server::new(slots(1), Style::Fifo).unwrap();
    let job = server.tokens.try_acquire().unwrap().unwrap();
    assert!(server.tokens.try_acquire().unwrap().is_none());
    drop(job);
    assert!(server.tokens.try_acquire().unwrap().is_some());
}

#[test]
fn a_token_is_put_back_byte_for_byte_in_any_order() {
    let server = Server::new(slots(1), Style::Fifo).unwrap();
    for byte in *b"abc" {
        server.tokens.shared.pipe.put(byte).unwrap();
    }
    let client = client_of(&server);
    let mut tokens: Vec<_> = std::iter::from_fn(|| client.tokens.try_acquire().unwrap()).collect();
    assert_eq!(tokens.len(), 4);
    // The free one goes first, and is free again only when the last one goes.
    drop(tokens.remove(0));
    assert_eq!(server.tokens.shared.pipe.count().unwrap(), 1);
    drop(tokens);
    let mut bytes: Vec<u8> =
        std::iter::from_fn(|| server.tokens.shared.pipe.try_take().unwrap()).collect();
    bytes.sort_unstable();
    assert_eq!(bytes, b"abc");
}

#[test]
fn a_panic_puts_tokens_back() {
    let server = Server::new(slots(4), Style::Pipe).unwrap();
    let client = client_of(&server);
    let panicked = std::thread::spawn(move || {
        let _tokens: Vec<_> = std::iter::from_fn(|| client.tokens.try_acquire().unwrap()).collect();
        panic!("as the test wants");
    });
    assert!(panicked.join().is_err());
    assert_eq!(server.tokens.shared.pipe.count().unwrap(), 3);
}

#[test]
fn a_refill_restores_lost_tokens_and_removes_surplus_ones() {
    let server = Server::new(slots(5), Style::Fifo).unwrap();
    for _ in 0..3 {
        server.tokens.shared.pipe.try_take().unwrap().unwrap();
    }
    assert_eq!(server.refill().unwrap(), Correction { lost: 3, surplus: 0 });
    server.tokens.shared.pipe.put(b'x').unwrap();
    assert_eq!(server.refill().unwrap(), Correction { lost: 0, surplus: 1 });
    assert_eq!(server.refill().unwrap(), Correction::default());
}

#[test]
fn a_refill_changes_nothing_while_a_job_runs() {
    let server = Server::new(slots(3), Style::Fifo).unwrap();
    let job = server.tokens.try_acquire().unwrap();
    server.tokens.shared.pipe.try_take().unwrap().unwrap();
    assert_eq!(server.refill().unwrap(), Correction::default());
    assert_eq!(server.tokens.shared.pipe.count().unwrap(), 1);
    drop(job);
    assert_eq!(server.refill().unwrap(), Correction { lost: 1, surplus: 0 });
}

#[test]
fn one_job_can_run_whatever_happened_to_the_tokens() {
    let server = Server::new(slots(3), Style::Pipe).unwrap();
    while server.tokens.shared.pipe.try_take().unwrap().is_some() {}
    assert!(server.tokens.try_acquire().unwrap().is_some());
}

#[test]
fn the_waker_is_called_once_after_a_refusal_and_no_token_is_taken() {
    for style in STYLES {
        let server = Server::new(slots(2), style).unwrap();
        let (sender, calls) = mpsc::channel();
        server.tokens.notify_when_available(Box::new(move || sender.send(()).unwrap()));
        let job = server.tokens.try_acquire().unwrap();
        let byte = server.tokens.shared.pipe.try_take().unwrap().unwrap();
        assert!(calls.try_recv().is_err(), "nobody was refused");
        for _ in 0..3 {
            assert!(server.tokens.try_acquire().unwrap().is_none());
            server.tokens.shared.pipe.put(byte).unwrap();
            calls.recv_timeout(Duration::from_secs(60)).unwrap();
            assert_eq!(server.tokens.shared.pipe.try_take().unwrap(), Some(byte));
        }
        assert!(calls.try_recv().is_err(), "called twice for one refusal");
        drop(job);
    }
}

#[test]
fn the_thread_ends_with_the_server() {
    let server = Server::new(slots(1), Style::Fifo).unwrap();
    let (sender, calls) = mpsc::channel::<()>();
    server.tokens.notify_when_available(Box::new(move || sender.send(()).unwrap()));
    let job = server.tokens.try_acquire().unwrap();
    assert!(server.tokens.try_acquire().unwrap().is_none());
    drop((server, job));
    // The sender is dropped with the thread.
    let ended = calls.recv_timeout(Duration::from_secs(60));
    assert_eq!(ended, Err(mpsc::RecvTimeoutError::Disconnected));
}

#[test]
fn the_fifo_is_private_and_goes_with_the_server() {
    let server = Server::new(slots(2), Style::Fifo).unwrap();
    let fifo = fifo(&server).to_owned();
    let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(fifo.parent().unwrap()), 0o700);
    assert_eq!(mode(&fifo) & 0o077, 0);
    drop(server);
    assert!(!fifo.parent().unwrap().exists());
}

#[test]
fn more_slots_than_a_pipe_has_room_for_are_refused() {
    let error = Server::new(slots(u32::MAX), Style::Fifo).unwrap_err();
    let JobserverErrorKind::TooManySlots { slots: wanted, most } = *error.kind() else {
        panic!("{error}")
    };
    assert_eq!(wanted, u32::MAX);
    assert!(Server::new(slots(most), Style::Fifo).is_ok(), "{error}");
    assert!(!error.is_warning());
}

#[test]
fn handles_that_are_not_a_jobserver_are_refused() {
    let (reader, writer) = pipewright::pipe(Default::default()).unwrap();
    let [reader, writer] = [pipewright::Handle::from(reader), pipewright::Handle::from(writer)];
    let named = |read: i64, write: i64| {
        let flags = format!(" -j --jobserver-auth={read},{write}");
        client(flags.as_ref())
    };
    assert!(named(reader.number(), writer.number()).unwrap().is_some());
    let file = pipewright::Handle::from(std::fs::File::open("/dev/null").unwrap());
    let wrong = [
        (writer.number(), reader.number()),
        (reader.number(), file.number()),
        (reader.number(), 1_000_000),
        (0, 1),
    ];
    for (read, write) in wrong {
        let error = named(read, write).unwrap_err();
        assert!(matches!(error.kind(), JobserverErrorKind::NotPassedOn { .. }), "{error}");
        assert!(error.is_warning());
    }
}

#[test]
fn a_fifo_that_is_gone_or_a_file_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let plain = file(folder.path(), "plain", "text");
    for path in [folder.path().join("gone"), plain.clone(), folder.path().to_owned()] {
        let flags = format!(" -j --jobserver-auth=fifo:{}", path.display());
        let error = client(flags.as_ref()).unwrap_err();
        assert_eq!(*error.kind(), JobserverErrorKind::OpenFifo { path });
        assert!(error.is_warning());
    }
    assert_eq!(std::fs::read(plain).unwrap(), b"text");
}

#[test]
fn a_wait_for_a_token_leaves_the_shared_pipe_in_blocking_mode() {
    let server = Server::new(slots(1), Style::Pipe).unwrap();
    let [(reader, number), _] = <[_; 2]>::try_from(server.inherited().unwrap()).unwrap();
    let client = client_of(&server);
    let _first = client.tokens.try_acquire().unwrap().unwrap();
    assert!(client.tokens.try_acquire().unwrap().is_none());
    assert!(server.tokens.shared.pipe.try_take().unwrap().is_none());
    // Linux lists the flags of an open file: 04000 is O_NONBLOCK.
    let Ok(info) = std::fs::read_to_string(format!("/proc/self/fdinfo/{number}")) else {
        return skipped(Need::File("/proc/self/fdinfo"), "no /proc/self/fdinfo");
    };
    let flags = info.lines().find_map(|line| line.strip_prefix("flags:")).unwrap();
    assert_eq!(u32::from_str_radix(flags.trim(), 8).unwrap() & 0o4000, 0, "{info}");
    drop(reader);
}

#[test]
fn a_pipe_of_tokens_is_an_event_while_it_has_one() {
    use pipewright_os::base::wait::{self, Slot};
    let server = Server::new(slots(2), Style::Fifo).unwrap();
    let pipe = TokenPipe::open(fifo(&server)).unwrap();
    let is_ready = || wait::any(&mut [Slot::Event(&pipe)], Some(Instant::now())).unwrap() == 1;
    assert!(is_ready());
    let byte = pipe.try_take().unwrap().unwrap();
    assert!(!is_ready());
    pipe.put(byte).unwrap();
    assert!(is_ready());
}

#[isolated_test]
fn a_fork_puts_no_token_of_its_parent_back() {
    for style in STYLES {
        let server = Server::new(slots(3), style).unwrap();
        let mut tokens: Vec<_> =
            std::iter::from_fn(|| server.tokens.try_acquire().unwrap()).collect();
        assert_eq!(tokens.len(), 3);
        assert!(in_a_fork(|| tokens.clear()));
        assert!(server.tokens.try_acquire().unwrap().is_none(), "{style:?}");
        drop(tokens);
        assert_eq!(server.tokens.shared.pipe.count().unwrap(), 2);
    }
}
