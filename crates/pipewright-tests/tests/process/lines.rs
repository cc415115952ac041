//! Lines of both streams: their order, their length, and a child whose lines are no longer read.

use pipewright::{Command, Limit, Line, Lines, Outcome, Source, Stdio};
use pipewright_test_macros::{isolated_test, watched_test};
use pipewright_tests::{alive, count, pace, watchdog};
use proptest::prelude::*;

use super::{flood, puppet};

fn all(lines: Lines) -> Vec<Line> {
    lines.map(|line| line.expect("a line")).collect()
}

fn texts(lines: Lines) -> Vec<String> {
    all(lines).into_iter().map(|line| line.text).collect()
}

#[watched_test]
fn merged_lines_keep_their_exact_order() {
    let acts: Vec<String> =
        (0..200).map(|n| format!("{}={n}\n", ["out", "err"][n % 3 / 2])).collect();
    let lines = all(puppet(&acts).merge_stderr().lines().unwrap());
    let numbers: Vec<String> = (0..200).map(|n| n.to_string()).collect();
    assert!(lines.iter().all(|line| line.source == Source::Stdout));
    assert_eq!(lines.into_iter().map(|line| line.text).collect::<Vec<_>>(), numbers);
}

#[watched_test]
fn lines_are_tagged_and_each_stream_keeps_its_order() {
    let acts = (0..300).map(|n| format!("{}={n}\n", ["out", "err"][n % 2]));
    let lines = all(puppet(acts).lines().unwrap());
    for (source, rest) in [(Source::Stdout, 0), (Source::Stderr, 1)] {
        let own = lines.iter().filter(|line| line.source == source);
        let numbers: Vec<usize> = own.map(|line| line.text.parse().unwrap()).collect();
        assert_eq!(numbers, (0..300).filter(|n| n % 2 == rest).collect::<Vec<_>>());
    }
}

#[watched_test]
fn a_long_line_is_cut_and_the_next_one_is_whole() {
    let long = "x".repeat(70_000);
    // In one go, in two, and with its end after a pause.
    for acts in [
        vec!["out=a\n", "out-xs=70000", "out=\nb\n"],
        vec!["out=a\n", "out-xs=70000", "wait=0.02", "out-xs=70000", "out=\nb\n"],
        vec!["out=a\n", "out-xs=70000", "wait=0.02", "out=\n", "out=b\n"],
    ] {
        let lines = all(puppet(acts).max_line(100).lines().unwrap());
        let seen: Vec<_> = lines.iter().map(|line| (line.text.as_str(), line.truncated)).collect();
        assert_eq!(seen, [("a", false), (&long[..100], true), ("b", false)]);
    }
    let lines = all(puppet(["out=12345\r\n"]).max_line(5).lines().unwrap());
    assert_eq!((lines[0].text.as_str(), lines[0].truncated), ("12345", false));
    // No half character is left, and strict text does not fail.
    let mut command = puppet(["out=ab\u{e9}\n"]);
    let lines = all(command.max_line(3).strict_utf8().lines().unwrap());
    assert_eq!((lines[0].text.as_str(), lines[0].truncated), ("ab", true));
}

/// Returns the lines that std reads from the same text.
fn by_std(text: &str, max: usize) -> Vec<(String, bool)> {
    let cut = |line: &str| {
        let mut most = line.len().min(max);
        while !line.is_char_boundary(most) {
            most -= 1;
        }
        (line[..most].to_owned(), line.len() > max)
    };
    let whole = |line: &str| match line.strip_suffix('\n') {
        Some(line) => cut(line.strip_suffix('\r').unwrap_or(line)),
        None => cut(line),
    };
    text.split_inclusive('\n').map(whole).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(pace::rounds(48, 12) as u32))]

    #[watched_test]
    fn lines_match_std_and_next_matches_next_into(
        pieces in prop::collection::vec("[a-c\r\n\u{e9}\u{1f600}]{0,40}", 0..20),
        max in prop_oneof![Just(usize::MAX), 0_usize..30],
    ) {
        let text = pieces.concat();
        let acts: Vec<String> = pieces.iter().map(|piece| format!("out={piece}")).collect();
        let lines = all(puppet(&acts).max_line(max).strict_utf8().lines().unwrap());
        let lines: Vec<_> = lines.into_iter().map(|line| (line.text, line.truncated)).collect();
        prop_assert_eq!(&lines, &by_std(&text, max));
        let (mut again, mut line) = (Vec::new(), Line::default());
        let mut borrowed = puppet(&acts).max_line(max).lines().unwrap();
        while borrowed.next_into(&mut line).unwrap() {
            again.push((line.text.clone(), line.truncated));
        }
        prop_assert_eq!(again, lines);
    }
}

#[watched_test]
fn bytes_that_are_no_text_are_replaced_in_their_own_line() {
    // One write, so that the three lines are one chunk: ok, 0xff, ok.
    let lines = texts(puppet(["out-hex=6f6b0a61ff0ac3a90a"]).lines().unwrap());
    assert_eq!(lines, ["ok", "a\u{fffd}", "\u{e9}"]);
}

#[cfg(unix)]
#[isolated_test]
fn a_break_ends_the_child_by_sigpipe_and_leaves_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let status = dir.path().join("status");
    let before = count::handles();
    // The shell tells how its own child ended: 128 and the number of SIGPIPE.
    let script = format!("yes; echo $? > '{0}.new'; mv '{0}.new' '{0}'", status.display());
    let lines = Command::new("sh").args(["-c", &script]).lines().unwrap();
    for line in lines.take(3) {
        assert_eq!(line.unwrap().text, "y");
    }
    watchdog::until("the shell has written it", || status.exists());
    assert_eq!(std::fs::read_to_string(&status).unwrap(), "141\n");
    watchdog::until("no child is left", || count::children().is_empty());
    watchdog::until("no handle is left", || count::handles() == before);
}

#[cfg(unix)]
#[watched_test]
fn a_child_that_writes_too_fast_waits() {
    let dir = tempfile::tempdir().unwrap();
    let done = dir.path().join("done");
    // More than all pipes and buffers hold.
    let count = pace::rounds(500_000, 50_000);
    let acts = [format!("lines={count}"), format!("touch={}", done.display())];
    let mut lines = puppet(acts).lines().unwrap();
    assert_eq!(lines.next().unwrap().unwrap().text, "line 0");
    let pid = lines.pid();
    watchdog::until("the pipe is full", || alive::state(pid) == Some('S'));
    assert!(!done.exists(), "it has written everything although no output was read");
    assert_eq!(lines.count(), count - 1);
    assert!(done.exists());
}

#[watched_test]
fn limits_hold_for_lines() {
    let limited = |limit| {
        let mut lines = puppet(["lines=20000"]).limit(limit).lines().unwrap();
        let texts: Vec<String> = lines.by_ref().map(|line| line.unwrap().text).collect();
        (texts, lines.finish().unwrap())
    };
    let (head, ending) = limited(Limit::keep_head(17));
    assert_eq!(head, ["line 0", "line 1", "lin"]);
    assert!(ending.truncated && ending.success());
    assert_eq!(ending.stdout_bytes, Some(208_890));
    let (tail, ending) = limited(Limit::keep_tail(15));
    assert_eq!(tail, ["998", "line 19999"]);
    assert!(ending.truncated && ending.success());
    let (_, ending) = limited(Limit::fail(10_000));
    assert_eq!((ending.outcome, ending.truncated), (Outcome::LimitExceeded, true));
    let (whole, ending) = limited(Limit::fail(208_890));
    assert_eq!((whole.len(), ending.outcome), (20_000, Outcome::Exited));
}

#[watched_test]
fn fast_lines_are_the_same() {
    let bytes: Vec<u8> = flood(3_000_000);
    let lossy = String::from_utf8_lossy(&bytes).into_owned();
    let expected = lossy.split_inclusive('\n').map(|line| line.trim_end_matches(['\n', '\r']));
    let lines = texts(puppet(["cat"]).stdin(Stdio::bytes(bytes.clone())).lines().unwrap());
    // A flood has no carriage return before a line feed.
    assert!(lines.iter().map(String::as_str).eq(expected));
}
