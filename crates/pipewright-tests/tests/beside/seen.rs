//! The facts that a way to run a command has told, in one shape for all.

use std::os::unix::process::ExitStatusExt as _;

use pipewright::{Capture, Captured, Ending, Error, Event, Line, Outcome, Output, Source};

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

    pub(crate) fn of_facts<T>(facts: &Captured<T>) -> Seen {
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
