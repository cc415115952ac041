//! Attempts, their ends and the settings, as messages and back.

use std::ffi::{OsStr, OsString};
use std::sync::Arc;
use std::time::SystemTime;

use pipewright::Signal;
use pipewright_os::base::os_text::from_encoded_bytes;

use super::message::{
    Key, Settings, Text, WireAttempt, WireEnd, WireFiles, WireOutcome, WireStdin, WireWritten,
};
use crate::executor::{
    Attempt, AttemptEnd, AttemptKey, AttemptOutcome, Containing, LocalSettings, NodeFiles,
    NodeOutput, OutputSink,
};
use crate::job::{JobId, JobStdin};
use crate::remote::error::RemoteError;

impl From<AttemptKey> for Key {
    fn from(key: AttemptKey) -> Key {
        Key { job: key.job, attempt: key.attempt }
    }
}

impl From<Key> for AttemptKey {
    fn from(key: Key) -> AttemptKey {
        AttemptKey { job: key.job, attempt: key.attempt }
    }
}

impl Text {
    fn of(text: impl AsRef<OsStr>) -> Text {
        Text(text.as_ref().as_encoded_bytes().to_vec())
    }

    fn into_os(self) -> Result<OsString, RemoteError> {
        from_encoded_bytes(self.0).map_err(|_| RemoteError::Garbled("its text"))
    }
}

/// Returns the message of an attempt, in that slot of the node. Its output and its handles stay here.
pub(crate) fn wire_attempt(attempt: &Attempt, slot: u32) -> WireAttempt {
    let env = attempt.env.iter();
    WireAttempt {
        key: attempt.key.into(),
        id: attempt.id.to_bytes(),
        slot,
        argv: attempt.argv.iter().map(Text::of).collect(),
        current_dir: attempt.current_dir.as_ref().map(Text::of),
        env: env.map(|(name, value)| (Text::of(name), value.as_ref().map(Text::of))).collect(),
        stdin: match &attempt.stdin {
            JobStdin::Null => WireStdin::Null,
            JobStdin::Bytes(bytes) => WireStdin::Bytes(bytes.clone()),
            JobStdin::File(path) => WireStdin::File(Text::of(path)),
        },
        timeout: attempt.timeout,
        memory_max_bytes: attempt.memory_max_bytes,
        is_live: attempt.output.as_ref().is_some_and(|output| output.is_live()),
        files: attempt.output.as_ref().and_then(|output| output.node_files()).map(|files| {
            WireFiles {
                folder: Text::of(&files.folder),
                max_bytes: files.max_bytes,
                is_durable: files.is_durable,
            }
        }),
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
    Ok(Attempt {
        key: wire.key.into(),
        id: JobId::from_bytes(wire.id),
        slot: wire.slot,
        cpus: 1,
        argv,
        current_dir: wire.current_dir.map(Text::into_os).transpose()?.map(Into::into),
        env: env.collect::<Result<_, _>>()?,
        handles: Arc::from([]),
        stdin: match wire.stdin {
            WireStdin::Null => JobStdin::Null,
            WireStdin::Bytes(bytes) => JobStdin::Bytes(bytes),
            WireStdin::File(path) => JobStdin::File(path.into_os()?.into()),
        },
        timeout: wire.timeout,
        memory_max_bytes: wire.memory_max_bytes,
        output: Some(output),
    })
}

/// Returns the files of a message.
///
/// # Errors
/// The folder has bytes that no path of this system has.
pub(crate) fn files_of(wire: WireFiles) -> Result<NodeFiles, RemoteError> {
    let folder = wire.folder.into_os()?.into();
    Ok(NodeFiles { folder, max_bytes: wire.max_bytes, is_durable: wire.is_durable })
}

/// Takes the facts about written files out of an end. A job that was not started has written nothing.
pub(crate) fn node_output(end: &mut WireEnd) -> Option<NodeOutput> {
    let written = match (end.written.take(), &end.outcome) {
        (Some(written), _) => written,
        (None, WireOutcome::NotStarted(_)) => return Some(NodeOutput::default()),
        (None, _) => return None,
    };
    Some(NodeOutput {
        stdout_bytes: end.stdout_bytes,
        stderr_bytes: end.stderr_bytes,
        tail: written.tail,
        is_truncated: written.is_truncated,
        error: written.error,
    })
}

/// Returns the message of an end, with the facts about its files if it had some.
pub(crate) fn wire_end(end: &AttemptEnd, files: Option<NodeOutput>) -> WireEnd {
    let outcome = match &end.outcome {
        AttemptOutcome::Exited(code) => WireOutcome::Exited(*code),
        AttemptOutcome::Signaled(signal) => WireOutcome::Signaled(*signal),
        AttemptOutcome::TimedOut => WireOutcome::TimedOut,
        AttemptOutcome::IdleTimedOut => WireOutcome::IdleTimedOut,
        AttemptOutcome::LimitExceeded => WireOutcome::LimitExceeded,
        AttemptOutcome::Cancelled => WireOutcome::Cancelled,
        AttemptOutcome::OutOfMemory => WireOutcome::OutOfMemory,
        AttemptOutcome::NotStarted(reason) => WireOutcome::NotStarted(reason.clone()),
        AttemptOutcome::Lost(reason) => WireOutcome::Lost(reason.clone()),
    };
    let bytes = files.as_ref().map(|files| (files.stdout_bytes, files.stderr_bytes));
    let (stdout_bytes, stderr_bytes) = bytes.unwrap_or((end.stdout_bytes, end.stderr_bytes));
    WireEnd {
        key: end.key.into(),
        outcome,
        elapsed: end.elapsed,
        user: end.user,
        system: end.system,
        peak_rss_bytes: end.peak_rss_bytes,
        stdout_bytes,
        stderr_bytes,
        leftovers_killed: end.leftovers_killed,
        written: files.map(|files| WireWritten {
            tail: files.tail,
            is_truncated: files.is_truncated,
            error: files.error,
        }),
    }
}

/// Returns the end of a message that arrives now from that node. Its start is told by the clock of this machine.
pub(crate) fn end_of(wire: WireEnd, node: &str) -> AttemptEnd {
    let outcome = match wire.outcome {
        WireOutcome::Exited(code) => AttemptOutcome::Exited(code),
        WireOutcome::Signaled(signal) => AttemptOutcome::Signaled(signal),
        WireOutcome::TimedOut => AttemptOutcome::TimedOut,
        WireOutcome::IdleTimedOut => AttemptOutcome::IdleTimedOut,
        WireOutcome::LimitExceeded => AttemptOutcome::LimitExceeded,
        WireOutcome::Cancelled => AttemptOutcome::Cancelled,
        WireOutcome::OutOfMemory => AttemptOutcome::OutOfMemory,
        WireOutcome::NotStarted(reason) => {
            AttemptOutcome::NotStarted(format!("node {node}: {reason}"))
        }
        WireOutcome::Lost(reason) => AttemptOutcome::Lost(format!("node {node}: {reason}")),
    };
    let now = SystemTime::now();
    let started = now.checked_sub(wire.elapsed).unwrap_or(now);
    let mut end = AttemptEnd::new(wire.key.into(), outcome, started, wire.elapsed);
    (end.user, end.system, end.peak_rss_bytes) = (wire.user, wire.system, wire.peak_rss_bytes);
    (end.stdout_bytes, end.stderr_bytes) = (wire.stdout_bytes, wire.stderr_bytes);
    end.leftovers_killed = wire.leftovers_killed;
    end.node = Some(node.to_owned());
    end
}

/// Returns the message of the settings.
pub(crate) fn wire_settings(settings: &LocalSettings) -> Settings {
    Settings {
        tree: settings.contain == Containing::Tree,
        stop_signal: settings.stop_signal.number(),
        kill_grace: settings.kill_grace,
        idle_timeout: settings.idle_timeout,
        limit_bytes: settings.limit_bytes.map(|bytes| bytes as u64),
        room_timeout: settings.room_timeout,
    }
}

/// Returns the settings of a message.
///
/// # Errors
/// This system has no such signal.
pub(crate) fn settings_of(wire: &Settings) -> Result<LocalSettings, RemoteError> {
    Ok(LocalSettings {
        contain: if wire.tree { Containing::Tree } else { Containing::Group },
        stop_signal: Signal::from_number(wire.stop_signal)
            .ok_or(RemoteError::Garbled("its signal"))?,
        kill_grace: wire.kill_grace,
        idle_timeout: wire.idle_timeout,
        limit_bytes: wire.limit_bytes.map(|bytes| usize::try_from(bytes).unwrap_or(usize::MAX)),
        room_timeout: wire.room_timeout,
    })
}
