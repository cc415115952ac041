//! A host that stops in the middle of a frame, with records behind it in the ring.

use pipewright_os::channel::shm::{ShmOptions, Written};
use pipewright_tests::hostile::frame;
use pipewright_tests::{alive, skip, watchdog};

use super::hostile::Victim;
use super::language::Client;
use crate::hostile::{HEAD, record};

/// The records are of no use before the end of the frame. A worker that looks at them again and again takes a whole
/// processor for as long as its host is stopped.
pub(super) fn a_worker_with_half_a_message_sleeps(client: &Client) {
    if !client.has_shared_memory() {
        return;
    }
    let Ok(mut ours) = Written::create(ShmOptions { bytes: 64 << 10, prefault: false }) else {
        return skip::skipped(skip::Need::SharedMemory, "the ring is in it");
    };
    let mut victim = Victim::start(client, "echo ring=65536");
    let theirs = victim.share(&mut ours);
    let whole = frame(16, 0, 0, 5, b"first");
    for cut in [7, 18] {
        let (half, rest) = whole.split_at(cut);
        victim.send(half);
        let number = u64::from(cut == 18);
        let at = (number * 64) as usize;
        ours.data()[at..at + 32].copy_from_slice(&record(6, 16, 0, number + 1, 0));
        ours.data()[at + 32..at + 38].copy_from_slice(b"second");
        ours.publish(HEAD, (number + 1) * 64);
        let mut asleep = 0;
        watchdog::until("it sleeps", || {
            asleep = if alive::state(victim.id()) == Some('S') { asleep + 1 } else { 0 };
            asleep == 20
        });
        victim.send(rest);
        // This side never sleeps, so both come back through the ring.
        let before = number as usize * 128;
        watchdog::until("both have come back", || theirs.word(HEAD) == before as u64 + 128);
        for (place, text) in [(0, "first"), (64, "second")] {
            let mut body = Vec::new();
            theirs.append_to(before + place + 32, text.len(), &mut body).unwrap();
            assert_eq!(body, text.as_bytes());
        }
    }
    let (status, stderr) = victim.leave();
    assert!(status.success(), "{status}: {stderr}");
}
