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
            let most = seen_bytes.max(lines.sum()).max(count) + 100;
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
            let whole = &self.streams[stream];
            if let Some(found) = &seen.streams[stream] {
                let count = seen.counts[stream].map_or(found.len(), |count| count as usize);
                match self.plan.limit {
                    Some(('t', bytes)) if !seen.is_text => {
                        assert!(found.len() == count.min(bytes), "a tail of {}", found.len());
                        let count = count.min(whole.len());
                        same("the tail", found, &whole[count - found.len()..count]);
                    }
                    Some(('t', _)) => {}
                    _ if seen.is_text => {
                        let whole = String::from_utf8_lossy(whole);
                        // The last character may be cut.
                        let found = String::from_utf8_lossy(found);
                        let found = found.trim_end_matches('\u{fffd}');
                        assert!(
                            whole.starts_with(found),
                            "stream {stream} is no part: {} bytes",
                            found.len()
                        );
                    }
                    _ => {
                        let most = whole.len().min(found.len());
                        same(&format!("stream {stream}"), found, &whole[..most]);
                    }
                }
                if let Some(('f' | 'h', bytes)) = self.plan.limit {
                    let is_bytes = !seen.is_text;
                    assert!(
                        !is_bytes || found.len() <= bytes,
                        "{} bytes, beyond {bytes}",
                        found.len()
                    );
                }
            }
            if let Some(found) = &seen.lines[stream] {
                let wanted = lines(whole, self.plan.max_line);
                let most = found.len().saturating_sub(1);
                assert!(
                    wanted.get(..most) == found.get(..most),
                    "lines of stream {stream} are no part"
                );
            }
        }
        if let (Some(Outcome::LimitExceeded), Some(('f', bytes))) = (seen.outcome, self.plan.limit)
        {
            let lengths = seen.streams.iter().flatten().map(Vec::len);
            if !seen.is_text && seen.streams[0].is_some() {
                assert_eq!(lengths.max(), Some(bytes), "the bytes up to the limit");
            }
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
        // No half of a character is left by the cut. The stream itself may end in one.
        let cut = match std::str::from_utf8(cut) {
            Err(error) if is_cut && error.error_len().is_none() => &cut[..error.valid_up_to()],
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
