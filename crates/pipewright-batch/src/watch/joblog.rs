//! A table of the jobs that ran, as `--joblog` of GNU parallel writes it.

use std::collections::HashMap;
use std::io::{self, Write};

use super::events::unix_seconds;
use super::queued::Pieces;
use crate::vocabulary::{AttemptEnd, AttemptOutcome, Event, JobOutcome};

/// The first line, with the names of the columns.
const HEADER: &str = "Seq\tHost\tStarttime\tJobRuntime\tSend\tReceive\tExitval\tSignal\tCommand\n";

/// A writer of the table. Each job that ran is a line once it is settled, with its last attempt.
///
/// A cause that GNU parallel does not know has the columns that its shell or its connection would give: a job that
/// could not be started has exit value 127, one whose machine was lost has 255, and one that the batch has stopped has
/// -1 and signal 15, as after its timeout. `Send` is always 0, and `Receive` counts the bytes of stdout.
#[derive(Debug)]
pub(crate) struct JoblogWriter<W> {
    lines: Pieces<W>,
    /// The line of the last attempt of each job that is not settled.
    last: HashMap<u64, String>,
}

impl<W: Write> JoblogWriter<W> {
    /// Returns a writer of the table. `is_continued`: the file has the beginning of it.
    pub(crate) fn new(writer: W, is_continued: bool) -> JoblogWriter<W> {
        let mut lines = Pieces::new(writer);
        if !is_continued {
            lines.add(HEADER.as_bytes());
        }
        JoblogWriter { lines, last: HashMap::new() }
    }

    pub(crate) fn event(&mut self, event: &Event) {
        match event {
            // Programs run these commands: there is no name before them.
            Event::Ended { end, command, .. } => {
                _ = self.last.insert(end.key.job, line(end, command))
            }
            Event::Settled { job, outcome, .. } => {
                let line = self.last.remove(job).filter(|_| *outcome != JobOutcome::NotRun);
                line.iter().for_each(|line| self.lines.add(line.as_bytes()));
            }
            _ => {}
        }
    }

    /// Writes all lines so far. The driver calls it before it waits, so that a reader sees them.
    pub(crate) fn flush(&mut self) {
        if !self.lines.is_empty() {
            self.lines.flush();
        }
    }

    /// Writes the last lines.
    ///
    /// # Errors
    /// Lines are missing: the first error of a write.
    pub(crate) fn finish(mut self) -> io::Result<()> {
        self.lines.finish()
    }
}

fn line(end: &AttemptEnd, command: &str) -> String {
    const TERM: i32 = 15;
    const KILL: i32 = 9;
    let (code, signal) = match end.outcome {
        AttemptOutcome::Exited(code) => (code, 0),
        AttemptOutcome::Signaled(number) => (0, number),
        AttemptOutcome::OutOfMemory => (0, KILL),
        AttemptOutcome::TimedOut
        | AttemptOutcome::IdleTimedOut
        | AttemptOutcome::LimitExceeded
        | AttemptOutcome::Cancelled => (-1, TERM),
        AttemptOutcome::NotStarted(_) => (127, 0),
        AttemptOutcome::Lost(_) | AttemptOutcome::Interrupted => (255, 0),
    };
    let (job, host) = (end.key.job, end.node.as_deref().unwrap_or(":"));
    let (start, seconds) = (unix_seconds(end.started), end.elapsed.as_secs_f64());
    // A line end would be another job. GNU parallel writes this, too.
    let command = command.replace('\n', "\0");
    let received = end.stdout_bytes;
    format!(
        "{job}\t{host}\t{start:.3}\t{seconds:10.3}\t0\t{received}\t{code}\t{signal}\t{command}\n"
    )
}

#[cfg(test)]
mod tests {
    use super::super::tests::{end, ended, settled};
    use super::*;

    #[test]
    fn lines_are_those_of_gnu_parallel() {
        let mut file = Vec::new();
        let mut log = JoblogWriter::new(&mut file, false);
        let mut run = |job, outcome: AttemptOutcome, text: &str, state| {
            log.event(&ended(end(job, outcome, 0.25, 0.0061), text, ""));
            if let Some(outcome) = state {
                log.event(&settled(job, outcome, None));
            }
        };
        run(2, AttemptOutcome::Exited(3), "sh -c 'a\nb'", Some(JobOutcome::Failed));
        // The last attempt of a job that is tried again.
        run(1, AttemptOutcome::Exited(1), "x", None);
        run(1, AttemptOutcome::Exited(0), "x", Some(JobOutcome::Succeeded));
        run(3, AttemptOutcome::Signaled(9), "x", Some(JobOutcome::Failed));
        run(4, AttemptOutcome::TimedOut, "x", Some(JobOutcome::Failed));
        log.event(&settled(5, JobOutcome::Skipped, None));
        log.finish().unwrap();
        // `parallel --joblog`, with other commands and times.
        let start = "1800000000.250\t     0.006\t0\t0";
        let expected = [
            "Seq\tHost\tStarttime\tJobRuntime\tSend\tReceive\tExitval\tSignal\tCommand".to_owned(),
            format!("2\t:\t{start}\t3\t0\tsh -c 'a\0b'"),
            format!("1\t:\t{start}\t0\t0\tx"),
            format!("3\t:\t{start}\t0\t9\tx"),
            format!("4\t:\t{start}\t-1\t15\tx"),
        ];
        assert_eq!(String::from_utf8(file).unwrap().lines().collect::<Vec<_>>(), expected);
    }
}
