//! Captures: they never deadlock, return although a grandchild holds the pipe, and fail with their output so far.

use std::io::Read;
use std::time::{Duration, Instant};

use pipewright::{
    CancelToken, Capture, Error, ErrorKind, Event, Exceeded, Limit, Linger, Outcome, Source, Stdio,
};
use pipewright_test_macros::{isolated_test, watched_test};
use pipewright_tests::alive::{self, KillOnDrop};
use pipewright_tests::{pace, watchdog};

use crate::async_verbs::one_thread;
use crate::{alternating, flood, in_time, later, puppet};

/// Returns the default linger, with time for a grandchild to start.
fn patient() -> Linger {
    Linger::Settle { quiet: later(), cap: pace::seconds(60) }
}

/// Returns the pid of the grandchild, which `spawn=` writes as the first line of stderr.
fn grandchild(capture: &Capture) -> KillOnDrop {
    KillOnDrop(capture.stderr.lines().next().unwrap().parse().unwrap())
}

#[watched_test]
fn capture_returns_when_a_grandchild_holds_the_pipe() {
    let acts = ["out-bytes=200000", "spawn=wait=600", "out=last words"];
    let capture = puppet(acts).capture().unwrap();
    let holder = grandchild(&capture);
    assert!(capture.held_open);
    assert_eq!(capture.outcome, Outcome::Exited);
    assert_eq!(capture.stdout_bytes, Some(200_010));
    assert!(capture.stdout.ends_with("last words"));
    assert!(alive::is_running(holder.0), "the holder keeps running");
}

#[watched_test]
fn output_of_a_grandchild_is_read_until_it_is_idle() {
    let acts = ["out=early ", "spawn=wait=0.1;out=late ;wait=0.1;out=later;wait=600"];
    let capture = puppet(acts).linger(patient()).capture().unwrap();
    let _holder = grandchild(&capture);
    assert_eq!(capture.stdout, "early late later");
    assert!(capture.held_open);
}

#[watched_test]
fn a_grandchild_that_closes_in_time_is_not_reported() {
    let mut command = puppet(["out=a", "spawn=wait=0.05;out=b"]);
    let capture = command.linger(patient()).capture().unwrap();
    assert_eq!(capture.stdout, "ab");
    assert!(!capture.held_open);
}

#[watched_test]
fn a_flood_that_never_ends_is_cut_at_the_cap() {
    let cap = later() * 2;
    let settle = Linger::Settle { quiet: later(), cap };
    let acts = ["out=start", "spawn=out-bytes=1000000000000"];
    let mut command = puppet(acts);
    let start = Instant::now();
    let capture = command.linger(settle).limit(pipewright::Limit::keep_head(5)).capture().unwrap();
    let _holder = grandchild(&capture);
    assert!(start.elapsed() >= cap);
    assert_eq!((capture.stdout.as_str(), capture.held_open), ("start", true));
}

#[watched_test]
fn stop_at_exit_reads_only_what_is_in_the_pipe() {
    let acts = ["out-bytes=60000", "spawn=wait=600"];
    let capture = puppet(acts).linger(Linger::StopAtExit).capture().unwrap();
    let _holder = grandchild(&capture);
    assert_eq!((capture.stdout_bytes, capture.held_open), (Some(60_000), true));
}

#[cfg(unix)]
#[isolated_test]
fn stop_at_exit_without_a_holder_reads_everything() {
    // Isolated: a child of another test has a copy of the pipe until it executes its program.

    for _ in 0..pace::rounds(50, 10) {
        let mut command = puppet(["out-bytes=300000"]);
        let capture = command.linger(Linger::StopAtExit).capture().unwrap();
        assert_eq!((capture.stdout_bytes, capture.held_open), (Some(300_000), false));
    }
}

/// Runs many short commands on several threads. A child of one has copies of the pipes of the others until it executes
/// its program, which may take long on a busy machine.
fn starts_of_other_threads_hold_nothing(set: impl Fn(&mut pipewright::Command) + Sync) {
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                for _ in 0..pace::rounds(240, 60) {
                    let mut command = puppet(["out=x"]);
                    set(&mut command);
                    let capture = command.linger(Linger::StopAtExit).capture().unwrap();
                    assert_eq!((capture.stdout.as_str(), capture.held_open), ("x", false));
                }
            });
        }
    });
}

#[isolated_test]
fn the_start_of_another_thread_does_not_count_as_a_holder() {
    starts_of_other_threads_hold_nothing(|_| {});
}

#[isolated_test]
fn the_supervisor_of_another_tree_does_not_count_as_a_holder() {
    starts_of_other_threads_hold_nothing(|command| _ = command.contain(pipewright::Contain::Tree));
}

/// Also before it is known that a child of this process shares its memory.
#[cfg(target_os = "linux")]
#[isolated_test]
fn the_first_child_of_a_process_holds_no_pipe_while_its_program_is_loaded() {
    use pipewright_tests::kernel::hold;
    use pipewright_tests::skip::{Need, skipped};

    let (mut reader, writer) = pipewright::pipe(pipewright::PipeOptions::default()).unwrap();
    let (sender, held) = std::sync::mpsc::channel();
    let starts = std::thread::spawn(move || {
        sender.send(hold(libc::SYS_execve)).unwrap();
        puppet(["exit=0"]).status().unwrap().success()
    });
    let Some(held) = held.recv().unwrap() else {
        return skipped(Need::SeccompNotify, "no call can be held here");
    };
    let call = held.wait_for_one();
    drop(writer);
    assert_eq!(reader.read(&mut [0]).unwrap(), 0);
    held.continue_call(call);
    assert!(starts.join().unwrap());
}

#[watched_test]
fn until_eof_waits_for_the_last_holder() {
    // Longer than the default linger.
    let acts = ["out=a", "spawn=wait=0.6;out=b"];
    let capture = puppet(acts).linger(Linger::UntilEof).capture().unwrap();
    assert_eq!((capture.stdout.as_str(), capture.held_open), ("ab", false));
}

#[watched_test]
fn until_eof_ends_at_the_timeout_with_the_childs_own_status() {
    let mut command = puppet(["out=a", "spawn=wait=600"]);
    let capture = command.linger(Linger::UntilEof).timeout(later()).capture().unwrap();
    let _holder = grandchild(&capture);
    assert_eq!((capture.outcome, capture.held_open), (Outcome::Exited, true));
}

#[cfg(unix)]
#[watched_test]
fn linger_drain_never_sends_sigpipe_to_the_holder() {
    let dir = tempfile::tempdir().unwrap();
    let [go, done] = ["go", "done"].map(|name| dir.path().join(name).display().to_string());
    // SIGPIPE at its default, so that a write without a reader would end it before it is done.
    let acts =
        format!("spawn=raise=CONT;wait-for-file={go};out-bytes=1000000;touch={done};wait=600");
    let mut command = puppet([acts.as_str()]);
    let capture = command.linger(Linger::StopAtExit).linger_drain().capture().unwrap();
    let _holder = grandchild(&capture);
    assert!(capture.held_open);
    std::fs::write(&go, b"").unwrap();
    watchdog::until("the holder has written all", || std::path::Path::new(&done).exists());
}

/// Sizes around the capacity of a pipe, and far beyond.
const SIZES: [usize; 9] = [0, 1, 4095, 4096, 65_535, 65_536, 65_537, 1 << 20, 16 << 20];

// A fork of another test would hold the streams open.
#[isolated_test]
fn never_deadlocks_with_one_stream_after_the_other() {
    for size in SIZES {
        for [first, second] in [["out-bytes", "err-bytes"], ["err-bytes", "out-bytes"]] {
            let acts = [format!("{first}={size}"), format!("{second}={size}")];
            let output = puppet(acts).output().unwrap();
            assert!(output.stdout == flood(size) && output.stderr == flood(size), "{size}");
            assert_eq!((output.outcome, output.held_open), (Outcome::Exited, false));
        }
    }
}

#[watched_test]
fn never_deadlocks_with_streams_that_alternate() {
    let size = 8 << 20;
    let output = puppet([format!("alternate={size}")]).output().unwrap();
    assert!(output.stdout == alternating(size), "stdout");
    assert!(output.stderr == alternating(size), "stderr");
}

#[watched_test]
fn never_deadlocks_while_stdin_is_fed_and_both_streams_answer() {
    for size in SIZES {
        let input = flood(size);
        let output = puppet(["cat-both"]).stdin(Stdio::bytes(input.clone())).output().unwrap();
        assert!(output.stdout == input && output.stderr == input, "{size}");
        assert_eq!(output.stdin_unread, 0);
    }
}

#[watched_test]
fn never_deadlocks_with_a_quarter_of_a_gigabyte_each_way() {
    let input = flood(pace::rounds(256, 32) << 20);
    let output = puppet(["cat"]).stdin(Stdio::bytes(input.clone())).output().unwrap();
    assert!(output.stdout == input);
}

#[watched_test]
fn never_deadlocks_when_the_child_answers_before_it_reads() {
    let input = flood(1 << 20);
    let acts = ["out-bytes=1048576", "err-bytes=1048576", "cat"];
    let output = puppet(acts).stdin(Stdio::bytes(input.clone())).output().unwrap();
    assert!(output.stdout[1 << 20..] == input);
}

#[watched_test]
fn never_deadlocks_when_stdin_is_not_read_at_all() {
    let input = flood(4 << 20);
    let output = puppet(["out=done"]).stdin(Stdio::bytes(input)).output().unwrap();
    assert_eq!(output.stdout, b"done");
    assert_eq!(output.stdin_unread, 4 << 20);
}

#[watched_test]
fn never_deadlocks_when_piped_streams_are_not_read() {
    let mut command = puppet(["alternate=1000000"]);
    let status = command.stdout(Stdio::piped()).stderr(Stdio::piped()).status().unwrap();
    assert!(status.success());
}

#[watched_test]
fn never_deadlocks_when_a_closed_stream_goes_on_beside_an_open_one() {
    // stdout ends long before stderr does, and the child before either is read to its end.
    let output = puppet(["out=x", "err-bytes=3000000"]).output().unwrap();
    assert_eq!((output.stdout.len(), output.stderr.len()), (1, 3_000_000));
}

#[watched_test]
fn both_streams_are_drained_while_the_input_is_fed() {
    let input = flood(2_000_000);
    let mut command = puppet(["cat-both", "exit=3"]);
    command.stdin(Stdio::bytes(input.clone())).stdout(Stdio::piped()).stderr(Stdio::piped());
    let output = command.spawn().unwrap().read_all_bytes().unwrap();
    assert!(output.stdout == input && output.stderr == input);
    assert_eq!((output.status.code(), output.stdin_unread), (Some(3), 0));
    let mut lines = command.spawn().unwrap().read_all_lines().unwrap();
    let mut bytes = [0, 0];
    for line in lines.by_ref() {
        let line = line.unwrap();
        bytes[line.source as usize] += line.text.chars().count();
    }
    assert!(bytes[Source::Stdout as usize] > 0 && bytes[0] == bytes[1]);
    assert_eq!(lines.finish().unwrap().stderr_bytes, Some(2_000_000));
}

#[watched_test]
fn a_missing_stream_is_empty_and_reported() {
    let mut command = puppet(["out=o\n", "err=e\n"]);
    command.stdout(Stdio::piped()).stderr(Stdio::null());
    let text = command.spawn().unwrap().read_all_text().unwrap();
    assert_eq!((text.stdout.as_str(), text.stdout_bytes), ("o\n", Some(2)));
    assert_eq!((text.stderr.as_str(), text.stderr_bytes), ("", None));
    let mut child = command.spawn().unwrap();
    let mut taken = child.stdout.take().unwrap();
    let output = child.read_all_bytes().unwrap();
    assert_eq!((output.stdout.as_slice(), output.stdout_bytes), (&b""[..], None));
    let mut text = String::new();
    taken.read_to_string(&mut text).unwrap();
    assert_eq!(text, "o\n");
    let mut none = puppet(["exit=4"]);
    let mut lines = none.stdout(Stdio::null()).spawn().unwrap().read_all_lines().unwrap();
    assert!(lines.next().is_none());
    assert_eq!(lines.finish().unwrap().status.code(), Some(4));
}

#[watched_test]
fn read_all_follows_the_commands_options() {
    let soon = pace::millis(if cfg!(windows) { 3000 } else { 700 });
    let limited = |limit, done: &str| {
        let mut command = puppet(["out=partial\n", done, "wait=600"]);
        command.stdout(Stdio::piped()).timeout(limit).spawn().unwrap()
    };
    let (_, text) = in_time(soon, |limit, done| limited(limit, done).read_all_text().unwrap());
    assert_eq!((text.stdout.as_str(), text.outcome), ("partial\n", Outcome::TimedOut));
    assert!(!alive::is_running(text.pid));
    let (_, (lines, ending)) = in_time(soon, |limit, done| {
        let mut lines = limited(limit, done).read_all_lines().unwrap();
        let texts: Vec<_> = lines.by_ref().map(|line| line.unwrap().text).collect();
        (texts, lines.finish().unwrap())
    });
    assert_eq!((lines, ending.outcome), (vec!["partial".to_owned()], Outcome::TimedOut));
    let mut command = puppet(["out=12345\n678\n", "wait=600"]);
    command.stdout(Stdio::piped()).limit(Limit::fail(4)).max_line(2);
    let output = command.spawn().unwrap().read_all_bytes().unwrap();
    assert_eq!((output.stdout.as_slice(), output.outcome), (&b"1234"[..], Outcome::LimitExceeded));
    let mut lines = command.spawn().unwrap().read_all_lines().unwrap();
    let line = lines.next().unwrap().unwrap();
    assert_eq!((line.text.as_str(), line.truncated), ("12", true));
    assert_eq!(lines.finish().unwrap().outcome, Outcome::LimitExceeded);
}

#[watched_test]
fn strict_text_errors_have_an_offset() {
    let mut command = puppet(["out-hex=61ff"]);
    command.stdout(Stdio::piped()).strict_utf8();
    let error = command.spawn().unwrap().read_all_text().unwrap_err();
    assert!(error.to_string().ends_with("stdout is not UTF-8 at byte 1"), "{error}");
}

#[track_caller]
fn facts(error: &Error) -> (Outcome, Option<Exceeded>, &str, &str) {
    let ErrorKind::Failed { outcome, exceeded, stdout_tail, stderr_tail, .. } = error.kind() else {
        panic!("{error:?}");
    };
    (*outcome, *exceeded, stdout_tail, stderr_tail)
}

#[watched_test]
fn checked_passes_success_and_turns_failure_into_an_error() {
    assert_eq!(puppet(["out=hi"]).capture().unwrap().check().unwrap().stdout, "hi");
    assert_eq!(puppet(["out=hi"]).output().unwrap().check().unwrap().stdout, b"hi");
    let mut fails = puppet(["out=said", "err=first\nlast words\n", "exit=3"]);
    let of_read = fails.read().unwrap_err();
    let checked = [
        fails.capture().unwrap().check().unwrap_err(),
        fails.output().unwrap().check().unwrap_err(),
        one_thread().block_on(fails.output_async()).unwrap().check().unwrap_err(),
    ];
    // "exit status: 3"; Windows: "exit code: 3".
    let status = fails.status().unwrap();
    let words = format!("failed: {status}: last words");
    assert!(of_read.to_string().ends_with(&words), "{of_read}");
    for error in checked {
        assert_eq!((error.to_string(), error.kind()), (of_read.to_string(), of_read.kind()));
        assert_eq!(error.program(), of_read.program());
        assert_eq!(facts(&error), (Outcome::Exited, None, "said", "first\nlast words\n"));
    }
    let ending = fails.lines().unwrap().finish().unwrap();
    let error = ending.check().unwrap_err();
    assert!(error.to_string().ends_with(&format!("failed: {status}")), "{error}");
    let Some(Ok(Event::Exited(ending))) = fails.events().unwrap().last() else { panic!() };
    assert_eq!(ending.check().unwrap_err().program(), of_read.program());
}

#[watched_test]
fn an_error_quotes_the_last_line_of_merged_output() {
    let said = "out=one\n";
    let mut fails = puppet([said, "err=no disk\n", "exit=3"]);
    fails.merge_stderr();
    let status = fails.status().unwrap();
    let merged = fails.stdout(Stdio::piped()).spawn().unwrap().read_all_text().unwrap();
    let errors = [
        fails.read().unwrap_err(),
        fails.capture().unwrap().check().unwrap_err(),
        one_thread().block_on(fails.output_async()).unwrap().check().unwrap_err(),
        merged.check().unwrap_err(),
        (puppet(["exit=0"]) | &mut fails).read().unwrap_err(),
    ];
    for error in errors {
        let words = format!("failed: {status}: no disk");
        assert!(error.to_string().ends_with(&words), "{error}");
        let both = "one\nno disk\n";
        assert_eq!(facts(&error), (Outcome::Exited, None, both, both));
    }
    // Another stage failed: the last one's output is not its reason.
    let error = (puppet(["exit=3"]) | puppet([said]).merge_stderr()).read().unwrap_err();
    assert!(error.to_string().ends_with(&format!("failed: {status}")), "{error}");
    // Without the merge, stdout is not a reason: the child's stderr has gone elsewhere.
    let mut silent = puppet([said, "exit=3"]);
    let error = silent.stderr(Stdio::null()).read().unwrap_err();
    assert!(error.to_string().ends_with(&format!("failed: {status}")), "{error}");
}

#[watched_test]
fn a_timeout_error_has_its_limit_and_the_output_so_far() {
    let limited =
        |limit, done: &str| puppet(["out=one\ntwo\n", done, "wait=600"]).timeout(limit).owned();
    let (limit, error) = in_time(later(), |limit, done| limited(limit, done).read().unwrap_err());
    let words = format!("failed: timed out after {limit:?}: two");
    assert!(error.to_string().ends_with(&words), "{error}");
    let exceeded = Some(Exceeded::Time(limit));
    assert_eq!(facts(&error), (Outcome::TimedOut, exceeded, "one\ntwo\n", ""));
    let (limit, capture) = in_time(later(), |limit, done| limited(limit, done).capture().unwrap());
    assert_eq!(capture.exceeded, Some(Exceeded::Time(limit)));
    let words = format!("failed: timed out after {limit:?}: two");
    let error = capture.check().unwrap_err();
    assert!(error.to_string().ends_with(&words), "{error}");
    assert_eq!(facts(&error).2, "one\ntwo\n");
    // Its stderr says more.
    let (limit, error) = in_time(later(), |limit, done| {
        let mut command = puppet(["out=one\n", "err=oh\n", done, "wait=600"]);
        command.idle_timeout(limit).read().unwrap_err()
    });
    let words = format!("failed: timed out after {limit:?} without output: oh");
    assert!(error.to_string().ends_with(&words), "{error}");
    assert_eq!(facts(&error).1, Some(Exceeded::Silence(limit)));
}

#[watched_test]
fn other_limits_are_named_in_their_errors() {
    let mut command = puppet(["out=12345678901", "wait=600"]);
    let error = command.limit(Limit::fail(10)).capture().unwrap().check().unwrap_err();
    let words = "failed: exceeded its output limit of 10 bytes: 1234567890";
    assert!(error.to_string().ends_with(words), "{error}");
    assert_eq!(facts(&error).1, Some(Exceeded::Bytes(10)));
    let token = CancelToken::new();
    token.cancel();
    let error = puppet(["wait=600"]).cancel(&token).output().unwrap().check().unwrap_err();
    assert!(error.to_string().ends_with("failed: cancelled"), "{error}");
    assert_eq!((facts(&error).0, facts(&error).1), (Outcome::Cancelled, None));
}

#[watched_test]
fn an_error_line_is_bounded_and_its_facts_are_complete() {
    let (_, error) = in_time(later(), |limit, done| {
        let mut command = puppet(["out=first\n", "out-xs=100000", "out=\n", done, "wait=600"]);
        command.timeout(limit).read().unwrap_err()
    });
    let text = error.to_string();
    assert!(!text.contains('\n') && text.ends_with(&"x".repeat(200)), "{text}");
    let rest = text.rsplit(": ").next().unwrap();
    assert_eq!(rest.len(), 200);
    assert_eq!(facts(&error).2.len(), 64 << 10);
}

#[watched_test]
fn a_pipeline_names_the_stage_that_failed_or_all_that_were_stopped() {
    let mut pipeline = puppet(["err=oh\n", "exit=3"]) | puppet(["cat"]);
    let capture = pipeline.capture().unwrap();
    let error = capture.check().unwrap_err();
    assert!(
        error
            .to_string()
            .ends_with(&format!("failed: {}: oh", puppet(["exit=3"]).status().unwrap())),
        "{error}"
    );
    assert!(!error.to_string().contains('|'), "{error}");
    let mut pipeline = puppet(["out=x\n", "wait=600"]) | puppet(["cat"]);
    let output = pipeline.timeout(later()).output().unwrap();
    let error = output.check().unwrap_err();
    assert!(error.to_string().contains(" | "), "{error}");
    assert!(error.to_string().ends_with(&format!("timed out after {:?}: x", later())), "{error}");
}

#[watched_test]
fn an_exit_is_described_in_one_line() {
    let shown = |acts: &[&str]| puppet(acts).lines().unwrap().finish().unwrap().to_string();
    let line = shown(&["exit=1"]);
    assert!(line.starts_with("exited with code 1 after "), "{line}");
    if !cfg!(windows) {
        let line = shown(&["raise=KILL"]);
        assert!(line.starts_with("killed by SIGKILL after "), "{line}");
    }
    let mut command = puppet(["wait=600"]);
    let ending = command.timeout(later()).lines().unwrap().finish().unwrap();
    let line = ending.to_string();
    assert!(line.starts_with(&format!("timed out after {:?}, ended after ", later())), "{line}");
    assert!(ending.elapsed >= later());
    let mut command = puppet(["out=12345", "wait=600"]);
    let line = command.limit(Limit::fail(1)).lines().unwrap().finish().unwrap().to_string();
    assert!(line.starts_with("exceeded its output limit of 1 byte, ended after "), "{line}");
    assert_eq!(Exceeded::Time(Duration::from_millis(1500)).to_string(), "timed out after 1.5s");
}
