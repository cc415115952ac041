//! Lines, text and events of both streams: their order, their length, their limits, and waits for them.

use std::time::{Duration, Instant};

use pipewright::{
    CancelToken, Command, Ending, ErrorKind, Event, Events, Limit, Line, Lines, Next, Outcome,
    Source, Stdio, run_all,
};
use pipewright_test_macros::{isolated_test, watched_test};
use pipewright_tests::{alive, count, pace, watchdog};
use proptest::prelude::*;

use crate::async_verbs::one_thread;
use crate::{alternating, flood, in_time, later, puppet, short, with_time};

fn all(lines: Lines) -> Vec<Line> {
    lines.map(|line| line.expect("a line")).collect()
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
fn both_ends_of_a_stream_are_kept_with_every_verb() {
    let dir = tempfile::tempdir().unwrap();
    let mut command = puppet(["lines=20000"]);
    command.limit(Limit::keep_head_and_tail(17, 25)).spill_to(dir.path());
    let done = command.capture().unwrap();
    let file = done.stdout_file.unwrap();
    let said = format!("[208854 bytes, 19996 lines left out: all is in {}]", file.display());
    let expected = ["line 0", "line 1", &said, "line 19998", "line 19999"];
    assert!(done.stdout.lines().eq(expected), "{}", done.stdout);
    assert!(done.truncated && done.stderr_file.is_none() && done.stderr.is_empty());
    let whole = std::fs::read(&file).unwrap();
    assert_eq!(whole, puppet(["lines=20000"]).output().unwrap().stdout);
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt as _;
        assert_eq!(file.metadata().unwrap().permissions().mode() & 0o777, 0o600);
    }

    let about = |line: &str| line.starts_with("[208854 bytes, 19996 lines left out");
    let mut lines = command.lines().unwrap();
    let texts: Vec<String> = lines.by_ref().map(|line| line.unwrap().text).collect();
    assert!(texts.len() == 5 && about(&texts[2]), "{texts:?}");
    let ending = lines.finish().unwrap();
    assert!(ending.truncated && ending.stdout_file.is_some() && ending.success());
    let mut events = command.events().unwrap();
    let bytes = events.by_ref().find_map(|event| match event.unwrap() {
        pipewright::Event::Stdout(bytes) => Some(bytes),
        _ => None,
    });
    assert!(about(String::from_utf8(bytes.unwrap()).unwrap().lines().nth(2).unwrap()));
    drop(events);
    // A file that cannot be written is told like one of a tee.
    let nowhere = dir.path().join("nowhere");
    let failed = command.spill_to(nowhere).capture().unwrap();
    assert!(failed.truncated && failed.stdout_file.is_none() && failed.success());
    assert_eq!(failed.tee_failed.map(|it| it.kind), Some(std::io::ErrorKind::NotFound));
    // Verbs that keep nothing make no file, and a stream that fits is left as it is.
    let files = std::fs::read_dir(dir.path()).unwrap().count();
    command.spill_to(dir.path()).stdout(Stdio::null()).run().unwrap();
    let mut command = puppet(["out=short"]);
    command.limit(Limit::keep_head_and_tail(2, 3)).spill_to(dir.path());
    assert_eq!(command.read().unwrap(), "short");
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), files);
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

#[watched_test]
fn head_and_tail_are_kept_and_the_child_runs_to_its_end() {
    let all = flood(2_000_000);
    for limit in [0, 1, 1000, 100_000] {
        let mut command = puppet(["out-bytes=2000000", "err=fits"]);
        let head = command.limit(Limit::keep_head(limit)).output().unwrap();
        assert!(head.stdout == all[..limit]);
        let tail = command.limit(Limit::keep_tail(limit)).output().unwrap();
        assert!(tail.stdout == all[all.len() - limit..]);
        for output in [head, tail] {
            assert!(output.truncated && output.status.success());
            assert_eq!((output.outcome, output.stdout_bytes), (Outcome::Exited, Some(2_000_000)));
        }
    }
    let fits = puppet(["out=abc"]).limit(Limit::keep_tail(3)).output().unwrap();
    assert_eq!((fits.stdout.as_slice(), fits.truncated), (&b"abc"[..], false));
}

#[watched_test]
fn fail_stops_the_child_and_keeps_what_fits() {
    let mut command = puppet(["out=12345", "wait=600"]);
    let capture = command.limit(Limit::fail(3)).capture().unwrap();
    assert_eq!((capture.outcome, capture.stdout.as_str()), (Outcome::LimitExceeded, "123"));
    assert!(!capture.success() && capture.truncated);
    assert!(!alive::is_running(capture.pid));
    // Also if the child has exited before the first read.
    let capture = puppet(["out=12345"]).limit(Limit::fail(4)).capture().unwrap();
    assert_eq!(capture.outcome, Outcome::LimitExceeded);
    let capture = puppet(["out=12345"]).limit(Limit::fail(5)).capture().unwrap();
    assert_eq!((capture.outcome, capture.truncated), (Outcome::Exited, false));
    let error = puppet(["out=12345"]).limit(Limit::fail(4)).read().unwrap_err();
    let words = "failed: exceeded its output limit of 4 bytes: 1234";
    assert!(error.to_string().ends_with(words), "{error}");
}

#[watched_test]
fn fail_passes_no_byte_beyond_the_limit_to_a_tee() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("out");
    for limit in [Limit::fail(1000), Limit::fail(1000).count_only()] {
        let mut command = puppet(["out-bytes=300000", "wait=600"]);
        let output = command.stdout(Stdio::tee_to(Stdio::create(&path))).limit(limit).output();
        assert_eq!(output.unwrap().outcome, Outcome::LimitExceeded);
        assert!(std::fs::read(&path).unwrap() == flood(1000), "{limit:?}");
    }
    // Output that just fits is passed on whole.
    let mut command = puppet(["out-bytes=1000"]);
    command.stdout(Stdio::tee_to(Stdio::create(&path))).limit(Limit::fail(1000));
    assert_eq!(command.output().unwrap().outcome, Outcome::Exited);
    assert!(std::fs::read(&path).unwrap() == flood(1000));
    // A limit that stops nothing does not limit the tee either.
    let mut command = puppet(["out-bytes=3000"]);
    command.stdout(Stdio::tee_to(Stdio::create(&path))).limit(Limit::keep_head(1000));
    assert!(command.output().unwrap().truncated);
    assert!(std::fs::read(&path).unwrap() == flood(3000));
}

#[watched_test]
fn fail_stops_the_child_whatever_the_verb_keeps() {
    let is_stopped = |command: &mut Command| {
        let error = command.limit(Limit::fail(3)).run().unwrap_err();
        let ErrorKind::Failed { outcome, .. } = error.kind() else { panic!("{error}") };
        assert_eq!(*outcome, Outcome::LimitExceeded, "{error}");
    };
    is_stopped(puppet(["out=12345", "wait=600"]).stdout(Stdio::piped()));
    is_stopped(puppet(["err=12345", "wait=600"]).stderr(Stdio::piped()));
    let mut command = puppet(["out=12345", "wait=600"]);
    let status = command.stdout(Stdio::piped()).limit(Limit::fail(3)).status().unwrap();
    assert!(!status.success(), "{status}");
    let last = puppet(["out=12345", "wait=600"]).stdout(Stdio::piped()).owned();
    let error = (puppet(["out="]) | last).limit(Limit::fail(3)).run().unwrap_err();
    assert!(error.to_string().ends_with("failed: exceeded its output limit of 3 bytes"), "{error}");
    // A tail limit stops no child here either, and the error has the whole end of stderr.
    let mut command = puppet(["err=12345", "exit=3"]);
    let error = command.stderr(Stdio::piped()).limit(Limit::keep_head(3)).run().unwrap_err();
    assert!(error.to_string().ends_with("12345"), "{error}");
}

#[isolated_test]
fn memory_stays_bounded_whatever_the_child_writes() {
    let before = count::anonymous_bytes();
    // Wine moves a few megabytes in a second.
    let bytes = if cfg!(windows) { 30_000_000 } else { pace::rounds(300_000_000, 60_000_000) };
    for limit in [Limit::keep_head(10_000), Limit::keep_tail(10_000)] {
        let output = puppet([format!("out-bytes={bytes}")]).limit(limit).output().unwrap();
        assert_eq!(output.stdout_bytes, Some(bytes as u64));
    }
    let grown = count::anonymous_bytes().saturating_sub(before);
    assert!(grown < 4 << 20, "{grown} bytes");
}

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
fn a_character_cut_by_a_limit_does_not_fail_strict_lines() {
    let lines = |act: &str, limit| {
        let mut command = puppet([act]);
        let lines: Result<Vec<Line>, _> = command.strict_utf8().limit(limit).lines()?.collect();
        lines.map(|lines| lines.into_iter().map(|line| line.text).collect::<Vec<_>>())
    };
    let text = "out=\u{e9}a\nb\u{e9}";
    assert_eq!(lines(text, Limit::keep_head(6)).unwrap(), ["\u{e9}a", "b"]);
    assert_eq!(lines(text, Limit::fail(6)).unwrap(), ["\u{e9}a", "b"]);
    assert_eq!(lines(text, Limit::keep_tail(6)).unwrap(), ["a", "b\u{e9}"]);
    assert_eq!(lines(text, Limit::keep_tail(7)).unwrap(), ["\u{e9}a", "b\u{e9}"]);
    // Only the edge that the limit has cut is tolerated.
    for (act, limit) in [
        ("out-hex=61c3", Limit::keep_head(2)),
        ("out-hex=a961c361", Limit::keep_head(3)),
        ("out-hex=6161c3", Limit::keep_tail(2)),
        ("out-hex=61a90a61", Limit::keep_head(3)),
    ] {
        let error = lines(act, limit).unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::InvalidUtf8 { .. }), "{act}: {error}");
    }
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
    let before = count::anonymous_bytes();
    let mut command = Command::new("head");
    command.args(["-c", "1073741824", "/dev/zero"]);
    let lines: Vec<Line> = command.max_line(1000).lines().unwrap().map(Result::unwrap).collect();
    assert_eq!(lines.len(), 1);
    assert!(lines[0].truncated && lines[0].text.len() == 1000);
    let grown = count::anonymous_bytes().saturating_sub(before);
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
    let (_, (lines, ending)) = in_time(later(), |limit, done| {
        let start = Instant::now();
        let mut command = puppet(["out=only\n", done, "wait=600"]);
        let mut lines = command.timeout(limit).lines().unwrap();
        let texts = texts(lines.by_ref());
        assert!(start.elapsed() >= limit);
        (texts, lines.finish().unwrap())
    });
    assert_eq!((lines, ending.outcome), (vec!["only".to_owned()], Outcome::TimedOut));
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

/// Returns both streams put together again, and the exit.
fn gather(events: Events) -> (Vec<u8>, Vec<u8>, Ending) {
    let (mut out, mut err, mut ending) = (Vec::new(), Vec::new(), None);
    for (number, event) in events.enumerate() {
        assert!(ending.is_none(), "nothing comes after the end");
        match event.unwrap() {
            Event::Started(pid) => assert!(number == 0 && pid > 0),
            Event::Stdout(bytes) if !bytes.is_empty() => out.extend(bytes),
            Event::Stderr(bytes) if !bytes.is_empty() => err.extend(bytes),
            Event::Exited(last) => ending = Some(last),
            other => panic!("event {number} is {other:?}"),
        }
    }
    (out, err, ending.expect("the last event is the end"))
}

#[watched_test]
fn events_come_in_the_order_in_which_things_happen() {
    let dir = tempfile::tempdir().unwrap();
    let gates = ["1", "2", "3"].map(|name| dir.path().join(name));
    let acts = [
        "out=a".to_owned(),
        format!("wait-for-file={}", gates[0].display()),
        "err=b".to_owned(),
        format!("wait-for-file={}", gates[1].display()),
        "out=c".to_owned(),
        format!("wait-for-file={}", gates[2].display()),
        "exit=3".to_owned(),
    ];
    let mut events = puppet(acts).events().unwrap();
    let mut next = || events.next().unwrap().unwrap();
    assert!(matches!(next(), Event::Started(pid) if alive::is_running(pid)));
    for (gate, expected) in
        gates.iter().zip([Event::Stdout(b"a".into()), Event::Stderr(b"b".into()), {
            Event::Stdout(b"c".into())
        }])
    {
        // Each is here before the next thing can happen.
        assert_eq!(next(), expected);
        std::fs::write(gate, b"").unwrap();
    }
    let Event::Exited(ending) = next() else { panic!("the last event is the end") };
    assert_eq!((ending.status.code(), ending.stdout_bytes), (Some(3), Some(2)));
    assert!(events.next().is_none() && events.next().is_none());
}

#[watched_test]
fn events_contain_every_byte() {
    let (out, err, ending) = gather(puppet(["alternate=3000000"]).events().unwrap());
    let expected = alternating(3_000_000);
    assert!(out == expected && err == expected);
    assert_eq!((ending.stdout_bytes, ending.stderr_bytes), (Some(3_000_000), Some(3_000_000)));
    let (out, err, ending) = gather(puppet::<_, &str>([]).events().unwrap());
    assert!(out.is_empty() && err.is_empty() && ending.success());
}

#[watched_test]
fn timeouts_and_cancels_are_reported_by_the_last_event() {
    let (_, (out, _, ending)) = in_time(later(), |limit, done| {
        let start = Instant::now();
        let mut command = puppet(["out=x", done, "wait=600"]);
        let all = gather(command.timeout(limit).events().unwrap());
        assert!(start.elapsed() >= limit);
        all
    });
    assert_eq!((out.as_slice(), ending.outcome), (&b"x"[..], Outcome::TimedOut));
    let mut command = puppet(["out=x", "wait=600"]);
    let (_, _, ending) = gather(command.idle_timeout(later()).events().unwrap());
    assert_eq!(ending.outcome, Outcome::IdleTimedOut);
    let token = CancelToken::new();
    let mut command = puppet(["out=x", "wait=600"]);
    let mut events = command.cancel(&token).events().unwrap();
    events.next().unwrap().unwrap();
    assert_eq!(events.next().unwrap().unwrap(), Event::Stdout(b"x".into()));
    token.cancel();
    let Some(Ok(Event::Exited(ending))) = events.next() else { panic!("the last event") };
    assert_eq!(ending.outcome, Outcome::Cancelled);
}

#[watched_test]
fn limits_hold_for_events() {
    let limited = |limit| {
        let mut command = puppet(["out-bytes=200000"]);
        gather(command.limit(limit).events().unwrap())
    };
    let all = crate::flood(200_000);
    let (head, _, ending) = limited(Limit::keep_head(70_001));
    assert!(head == all[..70_001] && ending.truncated && ending.success());
    let (tail, _, ending) = limited(Limit::keep_tail(70_001));
    assert!(tail == all[all.len() - 70_001..] && ending.truncated && ending.success());
    let (start, _, ending) = limited(Limit::fail(70_001));
    assert!(start == all[..70_001]);
    assert_eq!(ending.outcome, Outcome::LimitExceeded);
}

#[cfg(unix)]
#[watched_test]
fn a_child_waits_until_its_events_are_read() {
    let dir = tempfile::tempdir().unwrap();
    let done = dir.path().join("done");
    let acts = ["out-bytes=5000000".to_owned(), format!("touch={}", done.display())];
    let mut events = puppet(acts).events().unwrap();
    events.next().unwrap().unwrap();
    events.next().unwrap().unwrap();
    let pid = events.pid();
    watchdog::until("the pipe is full", || alive::state(pid) == Some('S'));
    assert!(!done.exists(), "it has written everything although no output was read");
    let ending = events.finish().unwrap();
    assert_eq!(ending.stdout_bytes, Some(5_000_000));
    assert!(done.exists());
}

#[cfg(unix)]
#[isolated_test]
fn dropped_events_end_a_child_that_writes_and_leave_nothing() {
    let before = count::handles();
    let mut events = Command::new("yes").events().unwrap();
    let Event::Started(pid) = events.next().unwrap().unwrap() else { panic!("the start") };
    assert!(matches!(events.next(), Some(Ok(Event::Stdout(_)))));
    drop(events);
    watchdog::until("SIGPIPE has ended it and it is reaped", || alive::state(pid).is_none());
    watchdog::until("no handle is left", || count::handles() == before);
}

#[watched_test]
fn the_exit_is_reported_once() {
    let mut events = puppet(["exit=5"]).events().unwrap();
    events.next().unwrap().unwrap();
    assert!(matches!(events.next(), Some(Ok(Event::Exited(ending))) if !ending.success()));
    assert!(events.next().is_none());
    let error = events.finish().unwrap_err();
    assert!(error.to_string().contains("has already been returned"), "{error}");
}

const TICK: Duration = Duration::from_millis(20);
const LONG: Duration = Duration::from_secs(600);

/// Returns a command that writes a line, and another one when the file exists.
fn held_up(dir: &std::path::Path) -> (Command, std::path::PathBuf) {
    let go = dir.join("go");
    let wait = format!("wait-for-file={}", go.display());
    (puppet(["out=one\n", &wait, "out=two\n", "exit=3"]), go)
}

#[watched_test]
fn next_within_tells_a_line_from_a_timeout_and_the_end() {
    let dir = tempfile::tempdir().unwrap();
    let (mut command, go) = held_up(dir.path());
    let mut lines = command.lines().unwrap();
    assert_eq!(lines.next_within(LONG).item().unwrap().unwrap().text, "one");
    let start = Instant::now();
    assert!(matches!(lines.next_within(TICK), Next::Pending));
    assert!(start.elapsed() >= TICK);
    assert!(matches!(lines.next_within(Duration::ZERO), Next::Pending));
    std::fs::write(&go, b"").unwrap();
    let mut line = lines.next_within(Duration::ZERO);
    while matches!(line, Next::Pending) {
        line = lines.next_within(TICK);
    }
    assert_eq!(line.item().unwrap().unwrap().text, "two");
    assert!(matches!(lines.next_within(Duration::MAX), Next::Done));
    assert!(matches!(lines.next_within(TICK), Next::Done));
    assert_eq!(lines.finish().unwrap().status.code(), Some(3));
}

#[watched_test]
fn next_within_tells_an_event_from_a_timeout_and_the_end() {
    let dir = tempfile::tempdir().unwrap();
    let (mut command, go) = held_up(dir.path());
    let mut events = command.events().unwrap();
    assert!(matches!(events.next_within(Duration::ZERO), Next::Item(Ok(Event::Started(_)))));
    let mut next = || events.next_within(LONG).item().unwrap().unwrap();
    assert_eq!(next(), Event::Stdout(b"one\n".into()));
    assert!(matches!(events.next_within(TICK), Next::Pending));
    std::fs::write(&go, b"").unwrap();
    let mut next = || events.next_within(LONG).item().unwrap().unwrap();
    assert_eq!(next(), Event::Stdout(b"two\n".into()));
    assert!(matches!(next(), Event::Exited(ending) if ending.status.code() == Some(3)));
    assert!(matches!(events.next_within(TICK), Next::Done));
}

#[watched_test]
fn async_next_within_behaves_the_same() {
    one_thread().block_on(async {
        let dir = tempfile::tempdir().unwrap();
        let (mut command, go) = held_up(dir.path());
        let mut lines = command.lines_async().unwrap();
        let mut events = command.events_async().unwrap();
        assert_eq!(lines.next_within(LONG).await.item().unwrap().unwrap().text, "one");
        assert!(matches!(events.next().await, Some(Ok(Event::Started(_)))));
        assert!(matches!(events.next_within(LONG).await, Next::Item(Ok(Event::Stdout(_)))));
        let start = Instant::now();
        assert!(matches!(lines.next_within(TICK).await, Next::Pending));
        assert!(matches!(events.next_within(TICK).await, Next::Pending));
        assert!(start.elapsed() >= TICK * 2);
        assert!(matches!(lines.next_within(Duration::ZERO).await, Next::Pending));
        std::fs::write(&go, b"").unwrap();
        assert_eq!(lines.next_within(LONG).await.item().unwrap().unwrap().text, "two");
        assert!(matches!(lines.next_within(Duration::MAX).await, Next::Done));
        while !matches!(events.next_within(LONG).await, Next::Item(Ok(Event::Exited(_)))) {}
        assert!(matches!(events.next_within(TICK).await, Next::Done));
    });
}

#[watched_test]
fn a_timeout_holds_from_tick_to_tick() {
    with_time(short(), |limit| {
        let start = Instant::now();
        let mut lines = puppet(["wait=600"]).timeout(limit).lines().unwrap();
        let mut ticks = 0;
        while let Next::Pending = lines.next_within(TICK) {
            ticks += 1;
        }
        assert!(start.elapsed() >= limit);
        let pid = lines.pid();
        assert_eq!(lines.finish().unwrap().outcome, Outcome::TimedOut);
        assert!(!alive::is_running(pid));
        // None if this thread rested for as long after the start.
        (ticks > 0).then_some(())
    });
}

#[watched_test]
fn next_within_tells_an_exit_from_a_timeout_and_the_end() {
    let dir = tempfile::tempdir().unwrap();
    let go = dir.path().join("go");
    let commands = || [puppet([format!("wait-for-file={}", go.display())]), puppet(["exit=3"])];
    let code = |end: Next<(usize, pipewright::Result<pipewright::Capture>)>| {
        let (index, end) = end.item()?;
        Some((index, end.unwrap().status.code()?))
    };
    let mut ends = run_all(commands()).concurrency(2).as_they_end();
    assert_eq!(code(ends.next_within(LONG)), Some((1, 3)));
    assert!(matches!(ends.next_within(TICK), Next::Pending));
    assert!(matches!(ends.next_within(Duration::ZERO), Next::Pending));
    one_thread().block_on(async {
        let mut of_task = run_all(commands()).concurrency(2).as_they_end_async();
        assert_eq!(code(of_task.next_within(LONG).await), Some((1, 3)));
        assert!(matches!(of_task.next_within(TICK).await, Next::Pending));
        assert!(matches!(of_task.next_within(Duration::ZERO).await, Next::Pending));
        std::fs::write(&go, b"").unwrap();
        assert_eq!(code(of_task.next_within(Duration::MAX).await), Some((0, 0)));
        assert!(matches!(of_task.next_within(TICK).await, Next::Done));
    });
    assert_eq!(code(ends.next_within(Duration::MAX)), Some((0, 0)));
    assert!(matches!(ends.next_within(TICK), Next::Done));
}
