//! A host that cancels what cannot be cancelled.

use pipewright_tests::hostile::{frame, receive_frame};

use super::hostile::Victim;
use super::language::Client;

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
