//! Text: a multibyte character or CRLF split anywhere decodes right; a 1 GiB line with `max_line` keeps memory
//! bounded.

use std::time::Instant;

use pipewright::{Command, ErrorKind, Limit, Line, Outcome, Source, Stdio};
use pipewright_test_macros::{isolated_test, watched_test};
use pipewright_tests::{alive, count, watchdog};

use super::{later, puppet};

const TEXT: &str = "caf\u{e9}\r\n\u{1f600} \u{4f60}\u{597d}\n\r\nlast";

/// Writes the text one byte at a time, with a pause after each so that each arrives by itself.
fn byte_by_byte(text: &str) -> Vec<String> {
    text.bytes().flat_map(|byte| [format!("out-hex={byte:02x}"), "wait=0.002".to_owned()]).collect()
}

fn texts(lines: impl Iterator<Item = Result<Line, pipewright::Error>>) -> Vec<String> {
    lines.map(|line| line.unwrap().text).collect()
}

#[watched_test]
fn a_multibyte_character_split_anywhere_decodes_right() {
    assert_eq!(puppet(byte_by_byte(TEXT)).strict_utf8().capture().unwrap().stdout, TEXT);
}

#[watched_test]
fn lines_split_anywhere_decode_right() {
    let lines = puppet(byte_by_byte(TEXT)).strict_utf8().lines().unwrap();
    assert_eq!(texts(lines), ["caf\u{e9}", "\u{1f600} \u{4f60}\u{597d}", "", "last"]);
}

#[watched_test]
fn a_character_cut_by_a_limit_does_not_fail_strict_text() {
    let text = |limit| {
        let mut command = puppet(["out=\u{e9}a\u{e9}"]);
        command.strict_utf8().limit(limit).capture().map(|capture| capture.stdout)
    };
    assert_eq!(text(Limit::keep_head(4)).unwrap(), "\u{e9}a");
    assert_eq!(text(Limit::fail(4)).unwrap(), "\u{e9}a");
    assert_eq!(text(Limit::keep_tail(4)).unwrap(), "a\u{e9}");
    assert_eq!(text(Limit::keep_head(5)).unwrap(), "\u{e9}a\u{e9}");
    let mut command = puppet(["out-hex=61ff62"]);
    let error = command.strict_utf8().limit(Limit::keep_head(2)).capture().unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::InvalidUtf8 { offset: 1, .. }), "{error}");
}

#[watched_test]
fn a_character_cut_by_a_limit_is_replaced_and_the_rest_decodes() {
    let mut command = puppet(["out=ab\u{e9}"]);
    let capture = command.limit(Limit::keep_head(3)).capture().unwrap();
    assert_eq!((capture.stdout.as_str(), capture.truncated), ("ab\u{fffd}", true));
}

#[cfg(unix)]
#[isolated_test]
fn a_gigabyte_in_one_line_keeps_memory_bounded() {
    let before = count::rss_bytes();
    let mut command = Command::new("head");
    command.args(["-c", "1073741824", "/dev/zero"]);
    let lines: Vec<Line> = command.max_line(1000).lines().unwrap().map(Result::unwrap).collect();
    assert_eq!(lines.len(), 1);
    assert!(lines[0].truncated && lines[0].text.len() == 1000);
    let grown = count::rss_bytes().saturating_sub(before);
    assert!(grown < 4 << 20, "{grown} bytes");
}

#[watched_test]
fn lines_of_both_streams_arrive_as_they_are_written() {
    // The child writes a line when the one before it has been read.
    let dir = tempfile::tempdir().unwrap();
    let file = |name: &str| dir.path().join(name).display().to_string();
    let wait_for = |name: &str| format!("wait-for-file={}", file(name));
    let acts = ["out=1\n", &wait_for("1"), "err=2\n", &wait_for("2"), "out=3\n", "wait=600"];
    let mut lines = puppet(acts).lines().unwrap();
    let pid = lines.pid();
    for (source, text) in [(Source::Stdout, "1"), (Source::Stderr, "2"), (Source::Stdout, "3")] {
        let line = lines.next().unwrap().unwrap();
        assert_eq!((line.source, line.text.as_str(), line.truncated), (source, text, false));
        std::fs::write(file(text), "").unwrap();
    }
    assert!(alive::is_running(pid), "the child has not ended, and its lines are here");
    // Dropping them closes the streams; this child never writes again.
    drop(lines);
    assert!(alive::is_running(pid));
    drop(alive::KillOnDrop(pid));
}

#[cfg(unix)]
#[watched_test]
fn lines_wait_for_their_reader() {
    let mut lines = Command::new("yes").lines().unwrap();
    let pid = lines.pid();
    for _ in 0..10_000 {
        assert_eq!(lines.next().unwrap().unwrap().text, "y");
    }
    drop(lines);
    watchdog::until("SIGPIPE has ended it and it is reaped", || alive::state(pid).is_none());
}

#[watched_test]
fn the_end_of_the_lines_is_the_end_of_the_child() {
    let mut lines = puppet(["out=a\nb", "exit=3"]).lines().unwrap();
    assert_eq!(texts(lines.by_ref()), ["a", "b"]);
    assert!(lines.next().is_none(), "the end is returned again");
    let ending = lines.finish().unwrap();
    assert_eq!((ending.status.code(), ending.outcome), (Some(3), Outcome::Exited));
    assert_eq!(ending.stdout_bytes, Some(3));
}

#[watched_test]
fn finish_reads_the_rest() {
    let mut lines = puppet(["lines=20000", "exit=4"]).lines().unwrap();
    assert_eq!(lines.next().unwrap().unwrap().text, "line 0");
    let ending = lines.finish().unwrap();
    assert_eq!((ending.status.code(), ending.stdout_bytes), (Some(4), Some(208_890)));
}

#[watched_test]
fn a_timeout_ends_the_lines() {
    let start = Instant::now();
    let mut command = puppet(["out=only\n", "wait=600"]);
    let mut lines = command.timeout(later()).lines().unwrap();
    assert_eq!(texts(lines.by_ref()), ["only"]);
    assert!(start.elapsed() >= later());
    assert_eq!(lines.finish().unwrap().outcome, Outcome::TimedOut);
}

#[watched_test]
fn a_line_that_is_not_utf8_is_an_error_and_the_next_one_comes() {
    let mut command = puppet(["out-hex=ff0a", "out=fine\n"]);
    let mut lines = command.strict_utf8().lines().unwrap();
    assert!(lines.next().unwrap().is_err());
    assert_eq!(lines.next().unwrap().unwrap().text, "fine");
    let mut lossy = puppet(["out-hex=ff0a"]).stdin(Stdio::bytes("x")).lines().unwrap();
    assert_eq!(lossy.next().unwrap().unwrap().text, "\u{fffd}");
}
