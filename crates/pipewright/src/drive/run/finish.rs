//! What came of a run, when there is nothing left to wait for.

use std::io;

use pipewright_os::process::child::ChildHandle;

use super::{Failed, Run};
use crate::drive::Sink;
use crate::drive::sink::Finished;
use crate::outcome::{Exceeded, Outcome};
use crate::output::Output;

impl Run {
    /// What came of it; where there are several children, with the status of the last.
    pub(crate) fn finish(mut self, exits: &[ChildHandle]) -> Result<Output, Failed> {
        let elapsed = self.started.elapsed();
        self.stop_feeding()?;
        let exit = exits.last().ok_or_else(|| ("wait for", io::ErrorKind::NotFound.into()))?;
        let ended = match self.ended {
            Some(ended) => ended,
            None => exit.wait().map_err(|e| ("wait for", e))?,
        };
        let by_itself = match ended.status.signal() {
            _ if self.too_much => Outcome::LimitExceeded,
            Some(_) => Outcome::Signaled,
            None => Outcome::Exited,
        };
        let outcome = self.conduct.stopped().unwrap_or(by_itself);
        let exceeded = self.exceeded(outcome);
        let [out, err] = self.streams.map(|stream| stream.sink.map(Sink::finish));
        let passed = |finished: &Option<Finished>| finished.as_ref().map(|it| it.total_bytes);
        let tee_failed = [&out, &err].into_iter().flatten().find_map(|it| it.tee_failed);
        let (stdout_bytes, stderr_bytes) = (passed(&out), passed(&err));
        let (out, err) = (out.unwrap_or_default(), err.unwrap_or_default());
        let output = Output {
            status: ended.status,
            stdout: out.kept,
            stderr: err.kept,
            outcome,
            exceeded,
            program: self.program,
            pid: exit.pid(),
            elapsed,
            usage: ended.usage.map(|usage| exit.look_closer(usage)),
            held_open: self.held_open,
            truncated: out.truncated || err.truncated,
            tee_failed,
            stdin_unread: self.stdin_unread,
            containment: exit.containment(),
            // Whoever of the tree has not ended by now is not waited for.
            leftovers_killed: exits
                .iter()
                .filter_map(ChildHandle::tree)
                .map(|tree| tree.end())
                .sum(),
            stdout_bytes,
            stderr_bytes,
        };
        self.trace.run_ended(exits, &output);
        Ok(output)
    }

    /// The limit that such an outcome speaks of.
    fn exceeded(&self, outcome: Outcome) -> Option<Exceeded> {
        match outcome {
            Outcome::TimedOut => {
                let deadline = self.conduct.deadline()?;
                Some(Exceeded::Time(deadline.saturating_duration_since(self.started)))
            }
            Outcome::IdleTimedOut => self.conduct.idle_timeout().map(Exceeded::Silence),
            Outcome::LimitExceeded => {
                let sinks = self.streams.iter().filter_map(|stream| stream.sink.as_ref());
                sinks.filter_map(Sink::most_bytes).next().map(Exceeded::Bytes)
            }
            _ => None,
        }
    }
}
