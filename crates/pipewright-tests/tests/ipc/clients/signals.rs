//! Workers that wait: signal handlers that raise meanwhile, and a host that stops in the middle of a frame.

use pipewright::Command;
use pipewright_os::channel::shm::{ShmOptions, Written};
use pipewright_test_macros::watched_test;
use pipewright_tests::hostile::frame;
use pipewright_tests::{alive, skip, watchdog};

use super::hostile::Victim;
use super::{Client, Language, clients};
use crate::hostile::{HEAD, record};

/// Raises in each line of the two functions that announce a wait, and then waits once more.
const SCRIPT: &str = r#"
import sys
import pipewright_worker as w

class Late(Exception): pass

def ring():
    ring = w._Ring.__new__(w._Ring)
    ring.sleeps, ring.tail, ring.next = 0, 0, None
    ring.words, ring.their_words = [0] * 64, [0] * 64
    ring.fence = lambda: None
    return ring

def cut(function, line):
    seen = 0
    def trace(frame, event, _):
        nonlocal seen
        if event == "line":
            seen += 1
            if seen == line: raise Late
        return trace
    sys.settrace(trace)
    try:
        function()
    except Late:
        return 1
    finally:
        sys.settrace(None)
    return 0

cuts = 0
for name in ("fall_asleep", "wake_up"):
    for line in range(1, 20):
        it = ring()
        if name == "wake_up":
            it.fall_asleep()
        cuts += cut(getattr(it, name), line)
        before = it.words[w._SLEEP]
        assert it.fall_asleep()
        asleep = it.words[w._SLEEP]
        assert asleep % 2 == 1 and asleep > before, (name, line, before, asleep)
        it.wake_up()
        assert it.words[w._SLEEP] == asleep + 1, (name, line)
        it.wake_up()
        assert it.words[w._SLEEP] % 2 == 0
assert cuts >= 4, cuts
print("right")
"#;

#[watched_test]
fn an_exception_in_a_wait_leaves_the_announcements_right() {
    if Language::Python.client().is_none() {
        return;
    }
    let mut command = Command::new("python3");
    command.args(["-B", "-c", SCRIPT]).env("PYTHONPATH", clients().join("python"));
    let output = command.output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success() && output.stdout.starts_with(b"right"), "{stderr}");
}

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
