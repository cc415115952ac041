//! A host that breaks the rules of items: the worker reports an error and exits, and never takes more than it asked
//! for.

use pipewright_tests::hostile::{frame, receive_frame};
use proptest::prelude::*;

use super::hostile::{Victim, bytes, is_error, property};
use super::language::{Client, clients};

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
