//! The facts that a way to run a command has told, and their comparison with what the script is known to do.

use std::os::unix::process::ExitStatusExt as _;

use pipewright::{Capture, Captured, Ending, Error, Event, Line, Outcome, Output, Source};
use pipewright_tests::bodies::LATE;

use crate::plan::{End, Input, Plan, Stop};

const TERM: i32 = 15;
const KILL: i32 = 9;

/// Panics with a finding unless all holds.
pub(crate) fn check(plan: &Plan, seen: &Seen) {
    let expected = Expected::of(plan, seen);
    if seen.dropped {
        return expected.check_prefixes(seen);
    }
    let is_over = expected.check_end(seen);
    let ends = !matches!(plan.script.end, End::Never { .. });
    if ends && !is_over {
        expected.check_whole(seen);
    } else {
        expected.check_prefixes(seen);
    }
    if let (Some(tee), Some(stream)) = (&seen.tee, &seen.streams[0]) {
        same("the tee", tee, stream);
    }
    if let Some(unread) = seen.unread {
        let (least, most) = (plan.script.input.len() - plan.script.read, plan.script.input.len());
        let is_exact = ends && !is_over && plan.input == Input::Bytes;
        let most = if is_exact { least } else { most };
        let least = if plan.input == Input::Bytes { least } else { 0 };
        let unread = unread as usize;
        assert!((least..=most).contains(&unread), "unread: {unread}, not {least} to {most}");
    }
    // With `StopAtExit` and after a stop there is one more look, a millisecond later: another thread's start may hold a
    // copy of a pipe that long on a machine that is busy.
    let is_waited_for = plan.linger != 'e' && !is_over;
    if seen.held_open == Some(true) && seen.outcome.is_some() && is_waited_for {
        assert!(plan.script.holds || !ends, "held open, and nothing holds it");
        assert!(plan.linger != 'u' || !ends, "held open after it was read to its end");
    }
}

/// The streams that may be, in the order of preference.
struct Expected<'a> {
    plan: &'a Plan,
    /// True if the late bytes have to be there, may be there.
    late: (bool, bool),
    streams: [Vec<u8>; 2],
}

impl Expected<'_> {
    fn of<'a>(plan: &'a Plan, seen: &Seen) -> Expected<'a> {
        let script = &plan.script;
        let is_terminal = plan.way.has('t');
        let mut streams = if plan.merges || is_terminal {
            [script.merged.clone(), Vec::new()]
        } else {
            script.streams.clone()
        };
        if script.end == (End::Never { writes: true }) {
            let seen_bytes = seen.streams[0].as_ref().map_or(0, Vec::len);
            let lines = seen.lines[0].iter().flatten().map(|(text, _)| text.len() + 2);
            // A line that is decoded with losses has at most three times its bytes.
            let count = seen.counts[0].unwrap_or(0) as usize;
            let limit = plan.limit.map_or(0, |(_, bytes)| bytes);
            let most = seen_bytes.max(lines.sum()).max(count).max(limit) + 100;
            streams[0].extend(script.endless_bytes(0, script.own_bytes(0), most));
        }
        if is_terminal {
            streams[0] = on_terminal(&streams[0]);
        }
        let may_be_killed = plan.holds_tree() || is_terminal;
        let must = seen.held_open == Some(false) && !may_be_killed;
        Expected { plan, late: (script.late && must, script.late), streams }
    }

    /// Checks the end. Returns true if a limit has stopped the run, so that streams are only parts.
    fn check_end(&self, seen: &Seen) -> bool {
        let plan = self.plan;
        let exceeds = match plan.limit {
            Some(('f', bytes)) => self.streams.iter().any(|stream| stream.len() > bytes),
            _ => false,
        };
        let is_over = seen.outcome == Some(Outcome::LimitExceeded);
        if is_over {
            assert!(exceeds, "no stream exceeds its limit");
            if let (Some((_, bytes)), Some(most)) = (plan.limit, seen.most_counted()) {
                assert!(most > bytes as u64, "no count exceeds its limit: {most}");
            }
            return true;
        }
        let outcome = match (plan.script.end, plan.stop) {
            (End::Code(_), _) => Outcome::Exited,
            (End::Signal(_), _) => Outcome::Signaled,
            (_, Stop::Timeout | Stop::Deadline) => Outcome::TimedOut,
            (_, Stop::Idle) => Outcome::IdleTimedOut,
            (_, Stop::Cancel) => Outcome::Cancelled,
            (End::Never { .. }, _) => panic!("the end of a script without one: {:?}", seen.end),
        };
        let ends = !matches!(plan.script.end, End::Never { .. });
        assert!(
            !(exceeds && ends) || seen.outcome.is_none(),
            "the limit was exceeded: {:?}",
            seen.outcome
        );
        if let Some(found) = seen.outcome {
            assert_eq!(found, outcome, "the outcome");
        }
        match (plan.script.end, seen.end) {
            (_, None) => {}
            (End::Code(code), end) => assert_eq!(end, Some((Some(code), None)), "the end"),
            (End::Signal(signal), end) => assert_eq!(end, Some((None, Some(signal))), "the end"),
            (End::Never { .. }, Some((code, signal))) => {
                let stopped = signal.is_some_and(|it| [TERM, KILL].contains(&it));
                assert!(stopped, "stopped by {signal:?}, or exited with {code:?}");
            }
        }
        false
    }

    /// Returns the forms that a whole stream can have.
    fn forms(&self, stream: usize) -> Vec<Vec<u8>> {
        let whole = &self.streams[stream];
        if stream == 1 || !self.late.1 {
            return vec![whole.clone()];
        }
        let mut with = whole.clone();
        with.extend_from_slice(&if self.plan.way.has('t') {
            on_terminal(LATE)
        } else {
            LATE.to_vec()
        });
        if self.late.0 { vec![with] } else { vec![whole.clone(), with] }
    }

    fn check_whole(&self, seen: &Seen) {
        let mut is_cut = false;
        for stream in [0, 1] {
            let forms = self.forms(stream);
            if let Some((_, bytes)) = self.plan.limit {
                is_cut |= forms.iter().any(|form| form.len() > bytes);
            }
            if let Some(count) = seen.counts[stream] {
                let is_one = forms.iter().any(|form| form.len() as u64 == count);
                assert!(is_one, "bytes of stream {stream}: {count}, not {}", forms[0].len());
            }
            if let Some(found) = &seen.streams[stream] {
                let forms = forms.iter().map(|form| self.shown(seen, form));
                one_of(stream, found, forms);
            }
            if let Some(found) = &seen.lines[stream] {
                let wanted: Vec<_> =
                    forms.iter().map(|form| lines(self.kept(form), self.plan.max_line)).collect();
                if !wanted.contains(found) {
                    let at = found.iter().zip(&wanted[0]).position(|(a, b)| a != b);
                    let at = at.unwrap_or(found.len().min(wanted[0].len()));
                    let pair = (found.get(at), wanted[0].get(at));
                    panic!(
                        "line {at} of stream {stream}, {} lines, not {}: {pair:?}",
                        found.len(),
                        wanted[0].len()
                    );
                }
            }
        }
        if let (Some(truncated), false) = (seen.truncated, self.late.1) {
            assert_eq!(truncated, is_cut, "truncated");
        }
    }

    /// Returns the part of a whole stream that its limit keeps.
    fn kept<'a>(&self, whole: &'a [u8]) -> &'a [u8] {
        match self.plan.limit {
            Some(('t', bytes)) => &whole[whole.len().saturating_sub(bytes)..],
            Some((_, bytes)) => &whole[..whole.len().min(bytes)],
            None => whole,
        }
    }

    /// Returns what is told of a whole stream.
    fn shown(&self, seen: &Seen, whole: &[u8]) -> Vec<u8> {
        let kept = self.kept(whole);
        if !seen.is_text {
            return kept.to_vec();
        }
        let mut text = String::from_utf8_lossy(kept).into_owned();
        if seen.is_trimmed {
            text.truncate(text.trim_end_matches(['\n', '\r']).len());
        }
        text.into_bytes()
    }

    /// Checks that what was seen are parts, from the start on unless the end was asked for.
    fn check_prefixes(&self, seen: &Seen) {
        for stream in [0, 1] {
            match seen.counts[stream] {
                Some(count) => self.check_counted(seen, stream, count as usize),
                None => self.check_uncounted(seen, stream),
            }
        }
        if let (Some(most), Some(truncated)) = (seen.most_counted(), seen.truncated) {
            let is_cut = self.plan.limit.is_some_and(|(_, bytes)| most > bytes as u64);
            assert_eq!(truncated, is_cut, "truncated");
        }
        if let (Some(Outcome::LimitExceeded), Some(('f', bytes))) = (seen.outcome, self.plan.limit)
        {
            let lengths = seen.streams.iter().flatten().map(Vec::len);
            if !seen.is_text && seen.streams[0].is_some() {
                assert_eq!(lengths.max(), Some(bytes), "the bytes up to the limit");
            }
        }
    }

    /// Checks a stream of which that many bytes were read.
    fn check_counted(&self, seen: &Seen, stream: usize, count: usize) {
        let whole = &self.streams[stream];
        let read = whole.get(..count).unwrap_or_else(|| {
            panic!("bytes of stream {stream}: {count}, of at most {}", whole.len());
        });
        if let Some(found) = &seen.streams[stream] {
            same(&format!("stream {stream}"), found, &self.shown(seen, read));
        }
        if let Some(found) = &seen.lines[stream] {
            // The first line of a tail and the last one may be parts.
            let is_same = *found == lines(self.kept(read), self.plan.max_line);
            assert!(is_same, "lines of stream {stream} are not those of its {count} bytes");
        }
    }

    /// Checks a stream of which nobody knows how much was read.
    fn check_uncounted(&self, seen: &Seen, stream: usize) {
        let Some(found) = &seen.streams[stream] else { return };
        let whole = &self.streams[stream];
        if seen.is_text {
            let whole = String::from_utf8_lossy(whole);
            // The last character may be cut.
            let found = String::from_utf8_lossy(found);
            let found = found.trim_end_matches('\u{fffd}');
            let is_part = whole.starts_with(found);
            assert!(is_part, "stream {stream} is no part: {} bytes", found.len());
        } else {
            let most = whole.len().min(found.len());
            same(&format!("stream {stream}"), found, &whole[..most]);
        }
    }
}

/// Returns the bytes as a terminal passes them on.
fn on_terminal(bytes: &[u8]) -> Vec<u8> {
    let mut shown = Vec::with_capacity(bytes.len());
    for byte in bytes {
        if *byte == b'\n' {
            shown.push(b'\r');
        }
        shown.push(*byte);
    }
    shown
}

/// Returns the lines of a stream, and true for those that are cut.
fn lines(whole: &[u8], max: Option<usize>) -> Vec<(String, bool)> {
    let line = |piece: &[u8]| {
        let text = match piece.strip_suffix(b"\n") {
            Some(line) => line.strip_suffix(b"\r").unwrap_or(line),
            None => piece,
        };
        let cut = text.get(..max.unwrap_or(usize::MAX)).unwrap_or(text);
        let is_cut = cut.len() < text.len();
        // No half of a character is left by the cut. The stream itself may end in one, or have some before.
        let wrong = cut.utf8_chunks().last().map_or(&[][..], |last| last.invalid());
        let is_half = |error: std::str::Utf8Error| error.error_len().is_none();
        let cut = match std::str::from_utf8(wrong) {
            Err(error) if is_cut && is_half(error) => &cut[..cut.len() - wrong.len()],
            _ => cut,
        };
        (String::from_utf8_lossy(cut).into_owned(), is_cut)
    };
    whole.split_inclusive(|byte| *byte == b'\n').map(line).collect()
}

fn one_of(stream: usize, found: &[u8], forms: impl Iterator<Item = Vec<u8>>) {
    let forms: Vec<_> = forms.collect();
    if !forms.iter().any(|form| form == found) {
        same(&format!("stream {stream}"), found, &forms[0]);
    }
}

fn same(what: &str, found: &[u8], wanted: &[u8]) {
    if found != wanted {
        let at = found.iter().zip(wanted).position(|(a, b)| a != b);
        let at = at.unwrap_or(found.len().min(wanted.len()));
        panic!(
            "{what}: {} bytes, not {}, and the first difference is at {at}",
            found.len(),
            wanted.len()
        );
    }
}

/// The facts that were told; what a way does not tell is `None`.
#[derive(Default, Clone)]
pub(crate) struct Seen {
    pub(crate) streams: [Option<Vec<u8>>; 2],
    /// True if the streams are text.
    pub(crate) is_text: bool,
    /// True if the line ends at the end were removed.
    pub(crate) is_trimmed: bool,
    pub(crate) lines: [Option<Vec<(String, bool)>>; 2],
    /// The exit code, or the signal.
    pub(crate) end: Option<(Option<i32>, Option<i32>)>,
    pub(crate) outcome: Option<Outcome>,
    pub(crate) held_open: Option<bool>,
    pub(crate) truncated: Option<bool>,
    pub(crate) unread: Option<u64>,
    pub(crate) counts: [Option<u64>; 2],
    /// The bytes that a tee of stdout has got.
    pub(crate) tee: Option<Vec<u8>>,
    /// True if the caller gave it up.
    pub(crate) dropped: bool,
}

impl Seen {
    /// Returns the bytes of the longest stream that was counted.
    fn most_counted(&self) -> Option<u64> {
        self.counts.iter().flatten().max().copied()
    }

    pub(crate) fn of_output(output: Output) -> Seen {
        let facts = Seen::of_facts(&output);
        Seen { streams: [Some(output.stdout), Some(output.stderr)], ..facts }
    }

    pub(crate) fn of_capture(capture: Capture) -> Seen {
        let facts = Seen::of_facts(&capture);
        let streams = [Some(capture.stdout.into_bytes()), Some(capture.stderr.into_bytes())];
        Seen { streams, is_text: true, ..facts }
    }

    /// Takes the stdout of `read`.
    pub(crate) fn of_text(text: String) -> Seen {
        Seen {
            streams: [Some(text.into_bytes()), None],
            is_text: true,
            is_trimmed: true,
            end: Some((Some(0), None)),
            outcome: Some(Outcome::Exited),
            ..Seen::default()
        }
    }

    pub(crate) fn of_status(status: std::process::ExitStatus) -> Seen {
        Seen { end: Some((status.code(), status.signal())), ..Seen::default() }
    }

    fn of_facts<T>(facts: &Captured<T>) -> Seen {
        assert!(facts.tee_failed.is_none(), "a tee failed: {:?}", facts.tee_failed);
        Seen {
            outcome: Some(facts.outcome),
            held_open: Some(facts.held_open),
            truncated: Some(facts.truncated),
            unread: Some(facts.stdin_unread),
            counts: [facts.stdout_bytes, facts.stderr_bytes],
            ..Seen::of_status(facts.status.into())
        }
    }

    /// Takes lines, and the end after them.
    pub(crate) fn of_lines(lines: Vec<Line>, ending: &Ending) -> Seen {
        let mut sorted = [Vec::new(), Vec::new()];
        for line in lines {
            sorted[usize::from(line.source == Source::Stderr)].push((line.text, line.truncated));
        }
        Seen { lines: sorted.map(Some), ..Seen::of_facts(ending) }
    }

    /// Takes events one by one.
    pub(crate) fn add(&mut self, event: Event) {
        assert!(self.outcome.is_none(), "an event after the last one: {event:?}");
        match event {
            Event::Stdout(bytes) => self.add_bytes(0, bytes),
            Event::Stderr(bytes) => self.add_bytes(1, bytes),
            Event::Exited(ending) => {
                let streams =
                    std::mem::take(&mut self.streams).map(|it| Some(it.unwrap_or_default()));
                *self = Seen { streams, ..Seen::of_facts(&ending) };
            }
            _ => {}
        }
    }

    fn add_bytes(&mut self, stream: usize, bytes: Vec<u8>) {
        assert!(!bytes.is_empty(), "an event without bytes");
        self.streams[stream].get_or_insert_default().extend(bytes);
    }
}

/// Returns the facts of a run that failed as `read` and `run` do; any other error is one.
pub(crate) fn failed(error: Error) -> Result<Seen, Error> {
    let pipewright::ErrorKind::Failed { status, outcome, .. } = error.kind() else {
        return Err(error);
    };
    Ok(Seen { outcome: Some(*outcome), ..Seen::of_status((*status).into()) })
}

mod tests {
    use std::sync::Arc;

    use pipewright_test_macros::watched_test;

    use super::*;
    use crate::plan::Way;

    /// Returns the plan of a run that is stopped after its script has written this to stderr.
    fn stopped(ways: &'static [Way], name: &str, limit: (char, usize), said: &[u8]) -> Plan {
        let folder = Arc::new(tempfile::tempdir().expect("a folder"));
        let mut plan = Plan::new(1, 0, &folder);
        plan.way = ways.iter().find(|way| way.name == name).expect("a way");
        (plan.limit, plan.max_line, plan.merges) = (Some(limit), None, false);
        (plan.stop, plan.script.end) = (Stop::Timeout, End::Never { writes: false });
        plan.script.ops.clear();
        (plan.script.streams, plan.script.late) = ([Vec::new(), said.to_vec()], false);
        plan
    }

    fn ended(outcome: Outcome) -> Seen {
        Seen { outcome: Some(outcome), end: Some((None, Some(TERM))), ..Seen::default() }
    }

    fn is_refused(plan: &Plan, seen: Seen) -> bool {
        std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| check(plan, &seen))).is_err()
    }

    #[watched_test]
    fn lines_of_a_tail_are_those_of_the_last_bytes_that_were_read() {
        let plan = stopped(crate::streams::WAYS, "lines", ('t', 8), b"first\nsecond\nthird\n");
        let seen = |err: &[&str], count| Seen {
            lines: [Vec::new(), err.iter().map(|it| ((*it).to_owned(), false)).collect()].map(Some),
            counts: [Some(0), Some(count)],
            truncated: Some(count > 8),
            ..ended(Outcome::TimedOut)
        };
        check(&plan, &seen(&["d", "third"], 19));
        check(&plan, &seen(&["st", "secon"], 11));
        check(&plan, &seen(&["first"], 6));
        for (lines, count) in [
            (&["third"][..], 19),
            (&["second", "third"], 19),
            (&["st", "seco"], 11),
            (&["first"], 4),
        ] {
            assert!(is_refused(&plan, seen(lines, count)), "{lines:?} {count}");
        }
    }

    #[watched_test]
    fn an_endless_stream_exceeds_each_limit_and_its_count_does() {
        let mut plan = stopped(crate::verbs::WAYS, "read", ('f', 65_535), b"");
        plan.script.end = End::Never { writes: true };
        check(&plan, &ended(Outcome::LimitExceeded));
        let counts = [Some(65_535), Some(0)];
        assert!(is_refused(&plan, Seen { counts, ..ended(Outcome::LimitExceeded) }));
        plan.script.end = End::Never { writes: false };
        assert!(is_refused(&plan, ended(Outcome::LimitExceeded)));
    }

    #[watched_test]
    fn only_half_a_character_is_lost_at_the_end_of_a_cut_line() {
        let line = |bytes: &[u8]| lines(bytes, Some(4)).remove(0);
        assert_eq!(line(b"\xffab\xc3\xa9"), ("\u{fffd}ab".to_owned(), true));
        assert_eq!(line(b"\xffab\xff\xa9"), ("\u{fffd}ab\u{fffd}".to_owned(), true));
        assert_eq!(line(b"\xffab\xc3"), ("\u{fffd}ab\u{fffd}".to_owned(), false));
    }
}
