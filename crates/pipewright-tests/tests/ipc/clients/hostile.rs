//! A host that breaks the protocol: the worker reports an error and exits. It never crashes, hangs or reads beyond its
//! memory (the worker in C is built with sanitizers).

use std::io::IoSlice;

use pipewright::{Child, ExitStatus, Stdio};
use pipewright_os::base::wait::{self, Slot};
use pipewright_os::channel::handle_channel::{self, Arrived, ChannelEnd};
use pipewright_os::channel::shm::{Seen, ShmOptions, Written};
use pipewright_tests::hostile::{frame, receive_frame, send, text};
use pipewright_tests::{pace, skip};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};

use super::{Client, clients};
use crate::hostile::{HEAD, record, wrong_records};
use crate::some_files;

const RING: usize = 64 << 10;

/// A worker in front of a hostile host.
pub(super) struct Victim {
    pub(super) end: ChannelEnd,
    child: Child,
}

impl Victim {
    pub(super) fn start(client: &Client, kind: &str) -> Victim {
        let (mut end, theirs) = handle_channel::pair().unwrap();
        let variables = handle_channel::variables("PIPEWRIGHT_IPC", &theirs);
        let mut command = client.worker(kind);
        command.stdout(Stdio::null()).stderr(Stdio::piped());
        let child = command.spawn_worker(theirs, variables).unwrap();
        end.set_worker(child.child_handle()).unwrap();
        Victim { end, child }
    }

    #[cfg(target_os = "linux")]
    pub(super) fn id(&self) -> u32 {
        self.child.id()
    }

    pub(super) fn send(&mut self, bytes: &[u8]) {
        send(&mut self.end, bytes);
    }

    /// Sends the HELLO of a good host with that maximum.
    fn hello(&mut self, can: &str) {
        let order = if cfg!(target_endian = "little") { "little" } else { "big" };
        let arch = format!("{}-{}-{order}", std::env::consts::ARCH, usize::BITS);
        let user = handle_channel::user();
        self.send(&text(
            1,
            &format!(
                "pipewright-ipc\nversion=1\napp=\nbuild=\narch={arch}\nuser={user}\nsalt=\n\
                 max_message_bytes=1048576\ncan=calls.v1 handles.v1 {can}\n"
            ),
        ));
        let (kind, hello) = receive_frame(&mut self.end).unwrap();
        assert_eq!(kind, 1, "{hello}");
    }

    /// Completes the handshake, without shared memory.
    pub(super) fn shake_hands(&mut self, can: &str) {
        self.hello(can);
        self.send(&text(4, "ready\nshared=0\nwhy=a test\n"));
    }

    /// Completes the handshake with shared memory. Returns the worker's memory.
    pub(super) fn share(&mut self, ours: &mut Written) -> Seen {
        let nonce = 0x0123_4567_89ab_cdef_u64;
        ours.data()[..8].copy_from_slice(&nonce.to_le_bytes());
        self.hello("shm.v1");
        self.memory(&format!("bytes={}", ours.bytes()), ours);
        let (kind, memory) = receive_frame(&mut self.end).unwrap();
        assert!(kind == 3 && memory.contains(&format!("proof={nonce}\n")), "{memory}");
        let theirs = self.end.take_handle().unwrap();
        let bytes = memory.lines().find_map(|line| line.strip_prefix("bytes=")).unwrap();
        let shm = ShmOptions { bytes: bytes.parse().unwrap(), prefault: false };
        let theirs = Seen::open(&theirs, shm).unwrap();
        let [proof, ..] = theirs.numbers(0).unwrap();
        self.send(&text(4, &format!("ready\nshared=1\nproof={}\n", u64::from_le(proof))));
        theirs
    }

    /// Sends MEMORY with that line and the object.
    fn memory(&mut self, line: &str, object: &Written) {
        let body = format!("memory\n{line}\n");
        let frame = frame(3, 0, 1, body.len() as u32, body.as_bytes());
        let handle = object.handle().try_clone().unwrap();
        assert!(self.end.send_handles(&[IoSlice::new(&frame)], &[handle]).unwrap());
    }

    /// Reads until the worker closes the connection, and waits for its exit.
    fn ending(mut self) -> (ExitStatus, String) {
        loop {
            self.end.consume(self.end.arrived().len());
            wait::any(&mut [Slot::Event(&self.end)], None).unwrap();
            // Its end is closed by a reset if it has not read everything.
            if !matches!(self.end.receive(usize::MAX), Ok(Arrived::Bytes { .. } | Arrived::Nothing))
            {
                break;
            }
        }
        self.exit()
    }

    /// Closes the connection, and waits for the worker's exit.
    pub(super) fn leave(self) -> (ExitStatus, String) {
        let Victim { end, child } = self;
        drop(end);
        exit(child)
    }

    fn exit(self) -> (ExitStatus, String) {
        exit(self.child)
    }
}

/// Returns the status and the stderr of a worker that exits by itself.
fn exit(child: Child) -> (ExitStatus, String) {
    let status = child.try_wait_for(pace::seconds(60)).unwrap().expect("it exits by itself");
    let output = child.wait_with_output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(status.code().is_some(), "{status}: {stderr}");
    for crash in ["Sanitizer", "runtime error", "Traceback", "node:internal"] {
        assert!(!stderr.contains(crash), "{stderr}");
    }
    (status, stderr)
}

#[track_caller]
fn is_error((status, stderr): (ExitStatus, String), words: &str) {
    assert!(!status.success() && stderr.contains(": "), "{words}: {status}: {stderr}");
    assert!(stderr.contains(words), "{words}: {stderr}");
}

fn long(length: u32, total: u64, body: &[u8]) -> Vec<u8> {
    frame(16, 1, 0, length, &[&total.to_le_bytes()[..], body].concat())
}

pub(super) fn wrong_frames_end_the_worker_with_a_reason(client: &Client) {
    let cases: [(Vec<u8>, &str); 19] = [
        (frame(200, 0, 0, 0, b""), "kind 200"),
        (frame(1, 0, 0, 0, b""), "kind 1"),
        (frame(8, 0, 0, 4, b"part"), "kind 8"),
        (frame(11, 0, 0, 0, b""), "kind 11"),
        (frame(18, 0, 0, 0, b""), "kind 18"),
        (frame(30, 0, 0, 0, b""), "kind 30"),
        (frame(16, 2, 0, 0, b""), "flags"),
        (frame(16, 0x80, 0, 0, b""), "flags"),
        (frame(16, 0, 0, u32::MAX, b""), "4294967295 bytes exceeds the agreed maximum of 1048576"),
        (frame(17, 0, 0, 1 << 20 | 1, b""), "1048577 bytes"),
        (long(4, u64::MAX, b""), "18446744073709551615 bytes"),
        (long(9, 8, b""), "parts"),
        (long(0, 8, b""), "parts"),
        (frame(16, 0, 1, 1, b"x"), "handles"),
        (frame(9, 0, 0, 1, b"x"), "WAKE"),
        (frame(10, 0, 0, 1, b"x"), "GOODBYE"),
        ([long(4, 8, b"1234"), frame(16, 0, 0, 1, b"x")].concat(), "kind 16"),
        ([long(4, 8, b"1234"), frame(8, 0, 0, 0, b"")].concat(), "parts"),
        ([long(4, 8, b"1234"), frame(8, 0, 0, 5, b"56789")].concat(), "parts"),
    ];
    for (bytes, words) in cases {
        let mut victim = Victim::start(client, "echo");
        victim.shake_hands("");
        victim.send(&bytes);
        is_error(victim.ending(), words);
    }
    // More calls than a worker may have.
    let mut victim = Victim::start(client, "calls");
    victim.shake_hands("");
    let mut call = frame(17, 0, 0, 10, b"wait 60000");
    call[8] = 1;
    victim.send(&call);
    victim.send(&frame(17, 0, 0, 0, b"").repeat(1025));
    is_error(victim.ending(), "too many calls");
}

pub(super) fn wrong_handshakes_end_the_worker_with_a_reason(client: &Client) {
    let cases: [(Vec<u8>, &str); 8] = [
        (text(1, "pipewright\nversion=1\n"), "first line"),
        (text(1, ""), "first line"),
        (frame(1, 0, 0, 4, b"\xff\xfe\n\n"), ""),
        (frame(1, 0, 0, 5000, &[b'x'; 5000]), "too long"),
        (long(4, 8, b"1234"), "too long"),
        (text(4, "ready\nshared=0\n"), "kind 4"),
        (text(2, "rejected\nby=host\nfield=app\nhost=a\nworker=b\n"), "app differs"),
        (text(1, "pipewright-ipc\nversion=2\n"), "version differs"),
    ];
    for (bytes, words) in cases {
        let mut victim = Victim::start(client, "echo");
        victim.send(&bytes);
        is_error(victim.ending(), words);
    }
    let after_hello: [(Vec<u8>, &str); 4] = [
        (text(4, "ready\nshared=1\nproof=1\n"), "proof"),
        (text(4, "readiness\nshared=0\n"), "first line"),
        (text(16, "x"), "kind 16"),
        (text(2, "rejected\nby=host\nfield=salt\nhost=a\nworker=b\n"), "salt differs"),
    ];
    for (bytes, words) in after_hello {
        let mut victim = Victim::start(client, "echo");
        victim.hello("");
        victim.send(&bytes);
        is_error(victim.ending(), words);
    }
}

/// Returns memory of a host, or `None` if this machine has none or the client does without.
fn memory(client: &Client) -> Option<Written> {
    if !client.has_shared_memory() {
        return None;
    }
    let memory = Written::create(ShmOptions { bytes: RING, prefault: false });
    memory.map_err(|_| skip::skipped(skip::Need::SharedMemory, "no shared memory here")).ok()
}

pub(super) fn unsafe_memory_is_refused(client: &Client) {
    let Some(ours) = memory(client) else { return };
    let sizes = ["bytes=131072", "bytes=0", "bytes=-1", "bytes=18446744073709551616", "why=none"];
    for line in sizes.into_iter().chain(["bytes=65536"]) {
        let mut victim = Victim::start(client, "echo");
        victim.hello("shm.v1");
        if line == "bytes=65536" {
            // A file instead of memory.
            let body = format!("memory\n{line}\n");
            let frame = frame(3, 0, 1, body.len() as u32, body.as_bytes());
            assert!(victim.end.send_handles(&[IoSlice::new(&frame)], &some_files(1)).unwrap());
        } else {
            victim.memory(line, &ours);
        }
        let (kind, answer) = receive_frame(&mut victim.end).unwrap();
        assert!(kind == 3 && answer.contains("why=") && !answer.contains("proof="), "{answer}");
        victim.send(&text(4, "ready\nshared=0\nwhy=no proof\n"));
        victim.send(&frame(16, 0, 0, 5, b"hello"));
        assert_eq!(receive_frame(&mut victim.end).unwrap(), (16, "hello".to_owned()));
        let (status, stderr) = victim.leave();
        assert!(status.success(), "{status}: {stderr}");
    }
    let mut victim = Victim::start(client, "echo");
    victim.hello("shm.v1");
    victim.memory("bytes=65536", &ours);
    receive_frame(&mut victim.end).unwrap();
    victim.send(&text(4, "ready\nshared=1\nproof=12345\n"));
    is_error(victim.ending(), "proof");
}

pub(super) fn a_corrupt_ring_ends_the_worker_with_a_reason(client: &Client) {
    let mut with_handles = record(0, 16, 0, 0, 0);
    with_handles[6] = 1;
    let more = [(64, record(0, 9, 0, 0, 0), "kind 9"), (64, with_handles, "handles")];
    for (head, record, words) in wrong_records().into_iter().chain(more) {
        let Some(mut ours) = memory(client) else { return };
        let mut victim = Victim::start(client, "echo");
        victim.share(&mut ours);
        ours.data()[..32].copy_from_slice(&record);
        ours.publish(HEAD, head);
        victim.send(&frame(9, 0, 0, 0, b""));
        is_error(victim.ending(), words);
    }
    // TAIL passes what the worker has sent.
    let Some(mut ours) = memory(client) else { return };
    let mut victim = Victim::start(client, "echo ring=65536");
    victim.share(&mut ours);
    ours.publish(1, 1 << 20);
    for _ in 0..40 {
        victim.send(&frame(16, 0, 0, 8000, &[7; 8000]));
    }
    is_error(victim.ending(), "TAIL of the ring");
}

pub(super) fn unexpected_handles_end_the_worker(client: &Client) {
    if !client.carries_handles() {
        return;
    }
    let mut victim = Victim::start(client, "echo");
    victim.shake_hands("");
    let handles = some_files(60);
    for _ in 0..3 {
        // Not announced by any frame.
        let frame = frame(16, 0, 0, 1, b"x");
        if victim.end.send_handles(&[IoSlice::new(&frame)], &handles).is_err() {
            break;
        }
    }
    is_error(victim.ending(), "handles");
}

/// Runs that property with a few cases, because each starts a process, or with `PROPTEST_CASES`.
fn property<S: Strategy>(strategy: S, test: impl Fn(S::Value)) {
    let mut config = Config { failure_persistence: None, ..Config::default() };
    if std::env::var_os("PROPTEST_CASES").is_none() {
        config.cases = pace::rounds(60, 10) as u32;
    }
    let result = TestRunner::new(config).run(&strategy, |value| {
        test(value);
        Ok(())
    });
    if let Err(error) = result {
        panic!("{error}");
    }
}

pub(super) fn bytes(most: usize) -> impl Strategy<Value = Vec<u8>> {
    prop::collection::vec(prop::num::u8::ANY, 0..most)
}

pub(super) fn any_frames_end_without_a_crash(client: &Client) {
    let one = (0_u8..32, prop::num::u8::ANY, 0_u16..3, 0_u32..300, 0_u8..3, bytes(300));
    let frames = prop::collection::vec(one, 0..12);
    property((0..4_u8, frames, bytes(64)), |(greets, frames, junk)| {
        let mut victim = Victim::start(client, "calls");
        if greets > 0 {
            victim.shake_hands("");
        }
        for (kind, flags, handles, length, id, body) in frames {
            // Mostly valid, so that later frames are checked too.
            let flags = if flags < 230 { 0 } else { flags & 3 };
            let handles = if handles == 2 { 1 } else { 0 };
            let kind = if greets > 1 { 16 + kind % 14 } else { kind };
            let length = if length % 8 == 0 { length } else { body.len() as u32 };
            let mut bytes = frame(kind, flags, handles, length, &body);
            bytes[8] = id;
            victim.send(&bytes);
        }
        victim.send(&junk);
        victim.leave();
    });
}

pub(super) fn any_ring_ends_without_a_crash(client: &Client) {
    let act = (0_u8..7, prop::num::u8::ANY, prop::num::u16::ANY, prop::num::u64::ANY, bytes(100));
    property(prop::collection::vec(act, 0..24), |acts| {
        let Some(mut ours) = memory(client) else { return };
        let mut victim = Victim::start(client, "echo ring=65536");
        let _theirs = victim.share(&mut ours);
        let mut head = 0_u64;
        for (act, small, medium, large, bytes) in acts {
            let mut fill = |at: usize, bytes: &[u8]| {
                for (place, byte) in ours.data()[at % RING..].iter_mut().zip(bytes) {
                    *place = *byte;
                }
            };
            match act {
                0 => fill(usize::from(medium), &bytes),
                1 => {
                    let at = usize::from(small) * 64;
                    let total = large % 70_000;
                    fill(at, &record(u32::from(medium), 8 + small % 20, small & 1, 0, total));
                }
                2 => ours.publish(usize::from(small % 3), large),
                3 | 4 => {
                    // A valid record at the head, or nearly.
                    let length = u32::from(medium % 3_000);
                    let at = (head % RING as u64) as usize;
                    fill(at, &record(length, 16, 0, u64::from(small / 250), 0));
                    head += (u64::from(length) + 32).next_multiple_of(64);
                    ours.publish(HEAD, head);
                }
                5 => victim.send(&frame(9, 0, 0, 0, b"")),
                _ => victim.send(&frame(16, 0, 0, bytes.len() as u32, &bytes)),
            }
        }
        victim.leave();
    });
}

const CALL: u8 = 17;
const ITEM: u8 = 21;
const CREDIT: u8 = 22;
const OPEN_CALL: u8 = 28;
const ITEMS_END: u8 = 29;

/// Returns a frame of that call.
fn of(call: u8, kind: u8, body: &[u8]) -> Vec<u8> {
    let mut frame = frame(kind, 0, 0, body.len() as u32, body);
    frame[8] = call;
    frame
}

fn start(client: &Client) -> Victim {
    let mut victim = Victim::start(client, "calls");
    victim.shake_hands("streams.v1");
    victim
}

/// Starts a worker that waits for an item of its first call. It may send sixteen.
fn waiting(client: &Client) -> Victim {
    let mut victim = start(client);
    victim.send(&of(1, OPEN_CALL, b"take-items"));
    assert_eq!(receive_frame(&mut victim.end), Some((CREDIT, "\u{10}\0\0\0".to_owned())));
    victim
}

/// Sends what the host sends in the example of `docs/wire.md`, and compares what the worker sends.
pub(super) fn items_have_the_documented_bytes(client: &Client) {
    let wire = std::fs::read_to_string(clients().join("../docs/wire.md")).unwrap();
    let mut victim = start(client);
    let mut frames = 0;
    for line in wire.lines() {
        let Some((direction, frame)) = line.split_at_checked(2) else { continue };
        if !["->", "<-"].contains(&direction) {
            continue;
        }
        // The name of the frame follows.
        let bytes =
            frame.split_ascii_whitespace().map_while(|byte| u8::from_str_radix(byte, 16).ok());
        let bytes: Vec<u8> = bytes.collect();
        if direction == "->" {
            victim.send(&bytes);
        } else {
            let body = String::from_utf8(bytes[16..].to_vec()).unwrap();
            assert_eq!(receive_frame(&mut victim.end), Some((bytes[4], body)), "{line}");
        }
        frames += 1;
    }
    assert_eq!(frames, 6);
    let (status, stderr) = victim.leave();
    assert!(status.success() && stderr.is_empty(), "{status}: {stderr}");
}

pub(super) fn items_without_credit_end_the_worker(client: &Client) {
    // A worker that waits for the answer to a question has not asked for items yet.
    let busy = of(1, OPEN_CALL, b"ask me");
    let cases = [
        [busy.clone(), of(1, ITEM, b"x")].concat(),
        // For a request that comes as a whole, and for calls that wait.
        [of(1, CALL, b"ask me"), of(1, ITEM, b"x")].concat(),
        [busy.clone(), of(2, OPEN_CALL, b"take-items"), of(2, ITEM, b"x")].concat(),
        [busy, of(2, CALL, b"echo x"), of(2, ITEM, b"x")].concat(),
    ];
    for bytes in cases {
        let mut victim = start(client);
        victim.send(&bytes);
        is_error(victim.ending(), "an item without credit");
    }
    // One more than it asked for, and one after the end.
    let rests = [of(1, ITEM, b"x").repeat(16), [of(1, ITEMS_END, b""), of(1, ITEM, b"x")].concat()];
    for rest in rests {
        let mut victim = start(client);
        // It may send no items, so it waits with the first one.
        victim.send(&of(1, CREDIT, &[0; 4]));
        victim.send(&of(1, OPEN_CALL, b"echo-items"));
        assert_eq!(receive_frame(&mut victim.end), Some((CREDIT, "\u{10}\0\0\0".to_owned())));
        victim.send(&of(1, ITEM, b"x"));
        victim.send(&rest);
        is_error(victim.ending(), "an item without credit");
    }
}

pub(super) fn late_frames_of_items_are_ignored(client: &Client) {
    let mut victim = waiting(client);
    victim.send(&of(1, ITEM, b"x"));
    victim.send(&of(1, ITEMS_END, b""));
    assert_eq!(receive_frame(&mut victim.end), Some((18, "done".to_owned())));
    // Of a call that has ended, and of calls that never come.
    for call in [0, 1, 9] {
        victim.send(&[of(call, ITEM, b"x"), of(call, ITEMS_END, b"")].concat().repeat(1_100));
    }
    victim.send(&of(2, CALL, b"count-items"));
    assert_eq!(receive_frame(&mut victim.end), Some((18, "0".to_owned())));
    let (status, stderr) = victim.leave();
    assert!(status.success() && stderr.is_empty(), "{status}: {stderr}");
}

pub(super) fn a_host_that_ends_between_items_ends_the_worker(client: &Client) {
    // Without a word, in the middle of an item, and with a goodbye.
    let half = of(1, ITEM, b"half an item")[..20].to_vec();
    for last in [Vec::new(), half, frame(10, 0, 0, 0, b"")] {
        let mut victim = waiting(client);
        victim.send(&last);
        let said_goodbye = last.get(4) == Some(&10);
        let (status, stderr) = if said_goodbye { victim.ending() } else { victim.leave() };
        assert!(status.success() && stderr.is_empty(), "{status}: {stderr}");
    }
}

pub(super) fn any_items_end_without_a_crash(client: &Client) {
    let kinds = prop::sample::select(vec![
        ITEM, ITEM, CREDIT, OPEN_CALL, OPEN_CALL, ITEMS_END, CALL, 20, 24, 26,
    ]);
    let requests = ["take-items", "echo-items", "first-item", "two-by-two", "count-items", "echo"];
    let request = prop::sample::select(requests.to_vec());
    let frames = prop::collection::vec((kinds, 0_u8..4, request, bytes(40)), 0..40);
    property(frames, |frames| {
        let mut victim = start(client);
        for (kind, call, request, body) in frames {
            let body = if matches!(kind, CALL | OPEN_CALL) { request.as_bytes() } else { &body };
            victim.send(&of(call, kind, body));
        }
        victim.leave();
    });
}

/// A plain message and a reset have the id 0, and so has a worker without a call: none of them can be cancelled. (The
/// worker in C kept that cancellation beside those of all calls that it may have, and wrote past their place.)
pub(super) fn cancellations_of_no_call_are_ignored(client: &Client) {
    let mut victim = Victim::start(client, "calls");
    victim.shake_hands("streams.v1");
    let of = |call: u64, kind: u8, body: &[u8]| {
        let mut bytes = frame(kind, 0, 0, body.len() as u32, body);
        bytes[8..16].copy_from_slice(&call.to_le_bytes());
        bytes
    };
    let calls = 1 + 1024;
    victim.send(&of(0, 20, b"").repeat(3));
    victim.send(&of(1, 17, b"wait 600000"));
    let waiting: Vec<u8> = (2..=calls).flat_map(|call| of(call, 17, b"echo x")).collect();
    // The running call last: while it runs, its worker only collects.
    let cancels: Vec<u8> = (1..=calls).rev().flat_map(|call| of(call, 20, b"")).collect();
    victim.send(&[waiting, cancels].concat());
    for _ in 0..calls {
        let (kind, text) = receive_frame(&mut victim.end).unwrap();
        assert_eq!(kind, 19, "{text}");
    }
    // Nor a reset, which has the id 0 too.
    victim.send(&[of(2000, 17, b"wait 100"), of(0, 26, b""), of(0, 20, b"")].concat());
    assert_eq!(receive_frame(&mut victim.end).unwrap().0, 18);
    assert_eq!(receive_frame(&mut victim.end).unwrap(), (27, String::new()));
    let (status, stderr) = victim.leave();
    assert!(status.success() && stderr.is_empty(), "{status}: {stderr}");
}
