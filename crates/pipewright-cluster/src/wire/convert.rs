//! Attempts as messages and back: what does not travel is left out and put in again.

use std::ffi::{OsStr, OsString};
use std::time::SystemTime;

use pipewright_batch::{Attempt, AttemptEnd, AttemptOutcome, JobId, NodeOutput, OutputSink};
use pipewright_os::base::os_text::from_encoded_bytes;

use super::message::{Ended, Text, WireAttempt};
use crate::error::RemoteError;

/// The last lines of an output are no more, and those of a node that lies are not shown.
const MOST_TAIL_BYTES: usize = 16 << 10;

impl Text {
    fn of(text: impl AsRef<OsStr>) -> Text {
        Text(text.as_ref().as_encoded_bytes().to_vec())
    }

    fn into_os(self) -> Result<OsString, RemoteError> {
        from_encoded_bytes(self.0).map_err(|_| RemoteError::Garbled("its text"))
    }
}

/// Returns the message of an attempt, in that slot of the node.
pub(crate) fn wire_attempt(attempt: &Attempt, slot: u32) -> WireAttempt {
    let env = attempt.env.iter();
    WireAttempt {
        key: attempt.key,
        id: attempt.id.to_bytes(),
        slot,
        argv: attempt.argv.iter().map(Text::of).collect(),
        current_dir: attempt.current_dir.as_ref().map(Text::of),
        env: env.map(|(name, value)| (Text::of(name), value.as_ref().map(Text::of))).collect(),
        stdin: attempt.stdin.clone(),
        timeout: attempt.timeout,
        memory_max_bytes: attempt.memory_max_bytes,
        is_live: attempt.output.as_ref().is_some_and(|output| output.is_live()),
        files: attempt.output.as_ref().and_then(|output| output.node_files()),
    }
}

/// Returns the attempt of a message, with that receiver of its output.
///
/// # Errors
/// A text has bytes that no text of this system has.
pub(crate) fn attempt_of(
    wire: WireAttempt,
    output: Box<dyn OutputSink>,
) -> Result<Attempt, RemoteError> {
    let argv = wire.argv.into_iter().map(Text::into_os).collect::<Result<_, _>>()?;
    let env = wire.env.into_iter().map(|(name, value)| {
        Ok::<_, RemoteError>((name.into_os()?, value.map(Text::into_os).transpose()?))
    });
    let mut attempt = Attempt::new(wire.key, JobId::from_bytes(wire.id), argv);
    attempt.slot = wire.slot;
    attempt.current_dir = wire.current_dir.map(Text::into_os).transpose()?.map(Into::into);
    attempt.env = env.collect::<Result<_, _>>()?;
    attempt.stdin = wire.stdin;
    attempt.timeout = wire.timeout;
    attempt.memory_max_bytes = wire.memory_max_bytes;
    attempt.output = Some(output);
    Ok(attempt)
}

impl Ended {
    /// Returns the message of an end, with the facts about its files if it had some.
    pub(crate) fn new(mut end: AttemptEnd, written: Option<NodeOutput>) -> Ended {
        if let Some(files) = &written {
            (end.stdout_bytes, end.stderr_bytes) = (files.stdout_bytes, files.stderr_bytes);
        }
        Ended { end, written }
    }

    /// Bounds each text that the node has written. The last lines of the output are bounded where they are shown.
    pub(crate) fn bound_texts(&mut self, bounded: impl Fn(String) -> String) {
        let bound = |text: &mut String| *text = bounded(std::mem::take(text));
        if let AttemptOutcome::NotStarted(reason) | AttemptOutcome::Lost(reason) =
            &mut self.end.outcome
        {
            bound(reason);
        }
        // The host knows it.
        self.end.node = None;
        if let Some(written) = &mut self.written {
            written.error.iter_mut().for_each(bound);
            if written.tail.len() > MOST_TAIL_BYTES {
                written.tail = String::new();
            }
        }
    }

    /// Returns the end, which arrives now from that node, and the facts about its files. Its start is told by the clock of this
    /// machine. A job that was not started has written nothing.
    pub(crate) fn arrived(self, node: &str) -> (AttemptEnd, Option<NodeOutput>) {
        let Ended { mut end, mut written } = self;
        if let AttemptOutcome::NotStarted(reason) | AttemptOutcome::Lost(reason) = &mut end.outcome
        {
            *reason = format!("node {node}: {reason}");
        }
        if let AttemptOutcome::NotStarted(_) = end.outcome {
            written.get_or_insert_default();
        }
        let now = SystemTime::now();
        end.started = now.checked_sub(end.elapsed).unwrap_or(now);
        end.node = Some(node.to_owned());
        (end, written)
    }
}
