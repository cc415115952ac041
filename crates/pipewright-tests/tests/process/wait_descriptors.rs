//! Runs in an event loop that is not tokio: one descriptor shows that there is something to do.

use std::time::{Duration, Instant};

use pipewright::{Command, Event, Limit, Next, Outcome, RunningOutput, Stdio};
use pipewright_test_macros::watched_test;
use pipewright_tests::skip::{Need, skipped};

use super::{ended_by, flood, puppet};

/// Returns true, and reports it, if the build drives each wait of these tests by a task: then the streams belong to its
/// runtime.
fn is_driven_by_tasks() -> bool {
    if pipewright_tests::skip::is_forced_async() {
        skipped(Need::BlockingVerbs, "tasks wait by another call, and not for this descriptor");
    }
    pipewright_tests::skip::is_forced_async()
}

/// Waits until the descriptor is readable. The watchdog ends a wait without an end.
fn wait_readable(number: i32) {
    let mut entry = libc::pollfd { fd: number, events: libc::POLLIN, revents: 0 };
    // SAFETY: one live entry.
    while unsafe { libc::poll(&raw mut entry, 1, -1) } != 1 {}
}

/// Runs to the end, and never waits but for the descriptor.
fn drive(mut running: RunningOutput) -> pipewright::Output {
    let first = running.wait_descriptor().unwrap();
    loop {
        if let Some(output) = running.wait_for(Duration::ZERO).unwrap() {
            return output;
        }
        let number = running.wait_descriptor().unwrap();
        assert_eq!(number, first, "an event loop registers it once");
        wait_readable(number);
    }
}

#[watched_test]
fn a_descriptor_shows_output_input_and_the_end() {
    if is_driven_by_tasks() {
        return;
    }
    let input = flood(3_000_000);
    let mut command = puppet(["cat-both"]);
    let output = drive(command.stdin(Stdio::bytes(input.clone())).start_output().unwrap());
    assert!(output.stdout == input && output.stderr == input);
    assert!(drive(Command::new("true").start_output().unwrap()).success());
    let mut pipeline = Command::new("echo").arg("a").owned() | Command::new("cat");
    assert_eq!(drive(pipeline.start_output().unwrap()).stdout, b"a\n");
}

#[watched_test]
fn a_call_that_sees_the_end_returns_the_result() {
    if is_driven_by_tasks() {
        return;
    }
    let mut running =
        Command::new("true").stdout(Stdio::null()).stderr(Stdio::null()).start_output().unwrap();
    wait_readable(running.wait_descriptor().unwrap());
    // No further round of the event loop is needed.
    assert!(running.wait_for(Duration::ZERO).unwrap().unwrap().success());
}

#[watched_test]
fn a_descriptor_shows_that_a_rule_is_due() {
    if is_driven_by_tasks() {
        return;
    }
    let begun = Instant::now();
    let mut command = puppet(["wait=600"]);
    let output = drive(command.timeout(Duration::from_millis(100)).start_output().unwrap());
    assert_eq!(output.outcome, Outcome::TimedOut);
    assert!(begun.elapsed() >= Duration::from_millis(100));
    let mut command = Command::new("yes");
    let output = drive(command.limit(Limit::fail(1000)).start_output().unwrap());
    assert_eq!((output.outcome, output.stdout.len()), (Outcome::LimitExceeded, 1000));
}

#[watched_test]
fn without_a_timer_the_time_is_returned() {
    if is_driven_by_tasks() {
        return;
    }
    let mut command = puppet(["wait=600"]);
    let mut running = command.timeout(Duration::from_millis(100)).start_output().unwrap();
    let output = loop {
        if let Some(output) = running.wait_for(Duration::ZERO).unwrap() {
            break output;
        }
        let (number, until) = running.wait_registered().unwrap();
        let left = until.map_or(-1, |until| {
            let left = until.saturating_duration_since(Instant::now()).as_millis();
            i32::try_from(left).unwrap_or(i32::MAX - 1) + 1
        });
        let mut entry = libc::pollfd { fd: number, events: libc::POLLIN, revents: 0 };
        // SAFETY: one live entry.
        unsafe { libc::poll(&raw mut entry, 1, left) };
    };
    assert_eq!(output.outcome, Outcome::TimedOut);
}

#[watched_test]
fn lines_and_events_have_the_descriptor_too() {
    if is_driven_by_tasks() {
        return;
    }
    let mut lines = Command::new("sh").args(["-c", "echo a; sleep 0.05; echo b"]).lines().unwrap();
    let mut seen = Vec::new();
    loop {
        match lines.next_within(Duration::ZERO) {
            Next::Item(line) => seen.push(line.unwrap().text),
            Next::Pending => wait_readable(lines.wait_descriptor().unwrap()),
            Next::Done => break,
        }
    }
    assert_eq!(seen, ["a", "b"]);
    let mut events = Command::new("echo").arg("c").events().unwrap();
    loop {
        match events.next_within(Duration::ZERO) {
            Next::Item(event) => {
                if let Event::Exited(ending) = event.unwrap() {
                    assert!(ending.success());
                    break;
                }
            }
            Next::Pending => wait_readable(events.wait_descriptor().unwrap()),
            Next::Done => panic!("an end without its event"),
        }
    }
}

#[watched_test]
fn output_so_far_is_a_copy_and_a_handle_kills_from_elsewhere() {
    if is_driven_by_tasks() {
        return;
    }
    let mut command = Command::new("sh");
    let mut running = command.args(["-c", "echo said; exec sleep 600"]).start_output().unwrap();
    while running.so_far()[0].is_empty() {
        assert!(running.wait_for(Duration::from_millis(10)).unwrap().is_none());
    }
    let handle = running.handle();
    std::thread::spawn(move || handle.kill().unwrap()).join().unwrap();
    let output = drive(running);
    assert_eq!(output.stdout, b"said\n");
    ended_by(output.status, pipewright::Signal::KILL);
}

#[watched_test]
fn output_so_far_has_both_ends_that_a_limit_keeps() {
    if is_driven_by_tasks() {
        return;
    }
    let mut command = Command::new("sh");
    command.args(["-c", "seq 1000; exec sleep 600"]).limit(Limit::keep_head_and_tail(5, 10));
    let mut running = command.start_output().unwrap();
    while !running.so_far()[0].ends_with(b"\n1000\n") {
        assert!(running.wait_for(Duration::from_millis(10)).unwrap().is_none());
    }
    let [stdout, stderr] = running.so_far();
    let expected = b"1\n2\n[3880 bytes, 996 lines left out]\n999\n1000\n";
    assert_eq!(stdout, expected);
    assert_eq!((stderr.len(), running.bytes_so_far()), (0, 15));
    running.handle().kill().unwrap();
    assert_eq!(drive(running).stdout, expected);
}

#[watched_test]
fn a_large_output_is_taken_in_parts_of_bounded_size() {
    const PART_BYTES: usize = 256 << 10;
    if is_driven_by_tasks() {
        return;
    }
    let script = "seq 1000000; seq 300000 >&2";
    let mut running = Command::new("sh").args(["-c", script]).start_output().unwrap();
    let (mut taken, mut buffers) = ([Vec::new(), Vec::new()], [Vec::new(), Vec::new()]);
    let (mut parts, mut largest) = (0, 0);
    let rest = loop {
        let waited = running.wait_for_bytes(Duration::from_millis(50), PART_BYTES).unwrap();
        if let Some(output) = waited {
            break output;
        }
        running.take_so_far(&mut buffers);
        for (all, buffer) in taken.iter_mut().zip(&buffers) {
            all.extend_from_slice(buffer);
            largest = largest.max(buffer.capacity());
        }
        parts += 1;
    };
    for (all, last) in taken.iter_mut().zip([&rest.stdout, &rest.stderr]) {
        all.extend_from_slice(last);
        assert!(last.len() < 4 * PART_BYTES);
    }
    let lines = |to: u32| (1..=to).map(|number| format!("{number}\n")).collect::<String>();
    assert!(taken[0] == lines(1_000_000).as_bytes() && taken[1] == lines(300_000).as_bytes());
    assert!(
        parts > 10 && largest <= 4 * PART_BYTES,
        "{parts} parts, the largest of {largest} bytes"
    );
}

#[watched_test]
fn an_output_with_a_limit_is_not_taken_in_parts() {
    if is_driven_by_tasks() {
        return;
    }
    let mut command = Command::new("seq");
    let mut running = command.arg("100000").limit(Limit::keep_tail(7)).start_output().unwrap();
    let mut buffers = [b"old".to_vec(), Vec::new()];
    let output = loop {
        if let Some(output) = running.wait_for_bytes(Duration::from_millis(50), 1).unwrap() {
            break output;
        }
        running.take_so_far(&mut buffers);
        assert!(buffers[0].is_empty());
    };
    assert_eq!(output.stdout, b"100000\n");
}
