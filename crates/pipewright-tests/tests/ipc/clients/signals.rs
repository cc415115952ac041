//! A worker in Python whose signal handlers raise while it waits.

use pipewright::Command;
use pipewright_test_macros::watched_test;

use super::language::{Language, clients};

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
