//! The process of a worker: its start, its stdout and stderr, and its exit status.

use std::collections::VecDeque;
#[cfg(feature = "tokio")]
use std::future::poll_fn;
use std::time::{Duration, Instant};

use pipewright::{Child, Command, ExitStatus, PipeReader};
use pipewright_os::base::wait::{self, Slot};
use pipewright_os::channel::handle_channel::{self, ChannelEnd, Inheritance};

use crate::error::{Error, ErrorKind};

/// The environment variable with the number of the worker's end.
pub(crate) const VARIABLE: &str = "PIPEWRIGHT_IPC";

/// The most bytes kept of a worker's stderr from before the handshake.
const MAX_STDERR_TAIL_BYTES: usize = 16 << 10;

/// Returns an error if this process is a worker that has not claimed its handle channel. A program that starts itself
/// as its worker, and forgets to check, would start itself endlessly.
pub(crate) fn check_may_start() -> Result<(), Error> {
    match handle_channel::inheritance(VARIABLE) {
        Inheritance::Unclaimed => Err(Error::new(ErrorKind::Unclaimed)),
        Inheritance::Nothing | Inheritance::Claimed => Ok(()),
    }
}

/// Starts the command as a worker. It is killed when the child is dropped and when this process ends.
pub(crate) fn start(command: &mut Command) -> Result<(ChannelEnd, Child), Error> {
    check_may_start()?;
    let (mut ours, theirs) =
        handle_channel::pair().map_err(Error::cannot("create a handle channel"))?;
    // Passed by value: a copy kept here would hide the exit of the worker.
    let variables = handle_channel::variables(VARIABLE, &theirs);
    let child = command.spawn_worker(theirs, variables)?;
    ours.set_worker(child.child_handle())
        .map_err(Error::cannot("bind the handle channel to its worker"))?;
    Ok((ours, child))
}

/// Returns the error of a channel's worker that did not complete the handshake, with the end of its stderr if that is
/// piped.
pub(crate) fn without_handshake(error: Error, child: &mut Child) -> Error {
    let (status, timeout) = match error.kind() {
        ErrorKind::Died { status } => (*status, None),
        ErrorKind::TimedOut { .. } => (None, Some(&error)),
        _ => return error,
    };
    let mut stderr = WorkerOutput::new(child.stderr.take(), MAX_STDERR_TAIL_BYTES);
    stderr.read_available();
    Error::no_handshake((child.id(), status), stderr.tail(), timeout)
}

// The stdout or stderr of a worker: keeps the end of it, and reports whole lines.

/// The longest line that is reported as a whole.
const MAX_LINE_BYTES: usize = 16 << 10;

/// The read end of a worker's stdout or stderr.
#[derive(Debug)]
pub(crate) struct WorkerOutput {
    /// `None`: in a wait, or closed.
    pipe: Option<PipeReader>,
    chunk: Vec<u8>,
    /// The incomplete line.
    line: Vec<u8>,
    /// The end of the stream, at most `most` bytes.
    kept: VecDeque<u8>,
    most: usize,
}

impl WorkerOutput {
    pub(crate) fn new(pipe: Option<PipeReader>, most: usize) -> WorkerOutput {
        WorkerOutput { pipe, chunk: Vec::new(), line: Vec::new(), kept: VecDeque::new(), most }
    }

    /// Returns the slot of a wait.
    pub(crate) fn slot(&mut self) -> Slot<'static> {
        let chunk = &mut self.chunk;
        self.pipe.take().map_or(Slot::Off, |pipe| Slot::Read(pipe, std::mem::take(chunk)))
    }

    /// Evaluates a wait. Returns true if something has arrived.
    pub(crate) fn after_wait(&mut self, slot: Slot<'_>, on_line: &mut dyn FnMut(&str)) -> bool {
        let (pipe, mut chunk, count) = match slot {
            Slot::Read(pipe, chunk) => {
                (self.pipe, self.chunk) = (Some(pipe), chunk);
                return false;
            }
            Slot::ReadDone(pipe, chunk, Ok(count @ 1..)) => (pipe, chunk, count),
            // The end of the stream. An error counts as one: nothing depends on it.
            Slot::ReadDone(..) => {
                self.end_line(on_line);
                return false;
            }
            _ => return false,
        };
        let from = chunk.len() - count.min(chunk.len());
        self.append(chunk.get(from..).unwrap_or_default(), on_line);
        chunk.clear();
        (self.pipe, self.chunk) = (Some(pipe), chunk);
        true
    }

    fn append(&mut self, bytes: &[u8], on_line: &mut dyn FnMut(&str)) {
        self.kept.extend(bytes);
        let too_many = self.kept.len().saturating_sub(self.most);
        self.kept.drain(..too_many);
        for line in bytes.split_inclusive(|byte| *byte == b'\n') {
            let mut rest = line;
            while !rest.is_empty() {
                let room = MAX_LINE_BYTES.saturating_sub(self.line.len()).max(1);
                let (piece, later) = rest.split_at(rest.len().min(room));
                self.line.extend_from_slice(piece);
                if self.line.len() >= MAX_LINE_BYTES || piece.ends_with(b"\n") {
                    self.end_line(on_line);
                }
                rest = later;
            }
        }
    }

    /// Reports the line so far.
    fn end_line(&mut self, on_line: &mut dyn FnMut(&str)) {
        let line = self.line.strip_suffix(b"\n").unwrap_or(&self.line);
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        if !self.line.is_empty() {
            on_line(&String::from_utf8_lossy(line));
        }
        self.line.clear();
    }

    /// Reads what was written so far, without waiting. Bounded: a descendant that holds the stream may write forever.
    fn read_available(&mut self) {
        const READS: usize = 64;
        for _ in 0..READS {
            let mut slots = [self.slot()];
            // Ignored: output that cannot be read is not reported.
            let _ = wait::any(&mut slots, Some(Instant::now()));
            let [slot] = slots.map(Slot::detach);
            if !self.after_wait(slot, &mut |_| {}) {
                break;
            }
        }
    }

    /// Returns the last whole lines.
    pub(crate) fn tail(&mut self) -> String {
        let is_cut = self.kept.len() >= self.most;
        let kept = self.kept.make_contiguous();
        let first_end = kept.iter().position(|byte| *byte == b'\n');
        let from = if is_cut { first_end.map_or(0, |end| end + 1) } else { 0 };
        let whole = kept.get(from..).filter(|rest| !rest.is_empty()).unwrap_or(kept);
        String::from_utf8_lossy(whole).trim_end().to_owned()
    }
}

// The exit status of a worker, for errors that would otherwise know only that the other side is gone.

/// The longest wait for the exit of a worker that has closed its end of the connection.
pub(crate) const EXIT_DEADLINE: Duration = Duration::from_secs(1);

/// Waits until the child exits or the deadline passes. Returns its exit status, if it has exited.
pub(crate) fn wait_for_exit(child: &Child, until: Option<Instant>) -> Option<ExitStatus> {
    // Ignored, here and below: an unknown status is none.
    let _ = wait::any(&mut [Slot::Event(child.child_handle())], until);
    exit_status(child)
}

/// Like [`wait_for_exit`], without blocking a thread.
#[cfg(feature = "tokio")]
pub(crate) async fn wait_for_exit_async(
    child: &Child,
    until: Option<Instant>,
) -> Option<ExitStatus> {
    let (mut watch, mut slots) = (wait::Watch::default(), [Slot::Event(child.child_handle())]);
    let _ = poll_fn(|context| watch.poll_wait(context, &mut slots, until)).await;
    exit_status(child)
}

fn exit_status(child: &Child) -> Option<ExitStatus> {
    child.child_handle().try_wait().ok().flatten().map(|ended| ended.status)
}

/// Adds the exit status of the child to an error that knows only that the other side is gone.
pub(crate) fn explain(error: Error, child: Option<&Child>, until: Option<Instant>) -> Error {
    match unexplained(&error, child) {
        Some(child) => with_status(error, wait_for_exit(child, exit_deadline(until))),
        None => error,
    }
}

/// Like [`explain`], without blocking a thread.
#[cfg(feature = "tokio")]
pub(crate) async fn explain_async(
    error: Error,
    child: Option<&Child>,
    until: Option<Instant>,
) -> Error {
    match unexplained(&error, child) {
        Some(child) => with_status(error, wait_for_exit_async(child, exit_deadline(until)).await),
        None => error,
    }
}

fn unexplained<'a>(error: &Error, child: Option<&'a Child>) -> Option<&'a Child> {
    child.filter(|_| matches!(error.kind(), ErrorKind::Died { status: None }))
}

fn with_status(error: Error, status: Option<ExitStatus>) -> Error {
    if status.is_some() { Error::new(ErrorKind::Died { status }) } else { error }
}

fn exit_deadline(until: Option<Instant>) -> Option<Instant> {
    let exit = Instant::now().checked_add(EXIT_DEADLINE);
    [until, exit].into_iter().flatten().min()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(chunks: &[&[u8]], most: usize) -> (Vec<String>, String) {
        let (mut output, mut lines) = (WorkerOutput::new(None, most), Vec::new());
        let mut take = |line: &str| lines.push(line.to_owned());
        for chunk in chunks {
            output.append(chunk, &mut take);
        }
        output.end_line(&mut take);
        (lines, output.tail())
    }

    #[test]
    fn lines_are_whole_however_they_are_split() {
        let (lines, tail) = lines(&[b"a\nb", b"c\r\n\n", b"d"], 100);
        assert_eq!(lines, ["a", "bc", "", "d"]);
        assert_eq!(tail, "a\nbc\r\n\nd");
    }

    #[test]
    fn a_long_line_is_cut_at_the_same_places_however_it_arrives() {
        let (lines, _) = lines(&[&[b'x'; 16_000], &[b'x'; 16_384], &[b'x'; 16_000]], 30);
        assert_eq!(lines.iter().map(String::len).collect::<Vec<_>>(), [16384, 16384, 15616]);
    }

    #[test]
    fn tail_is_bounded_and_starts_with_a_whole_line() {
        let (lines, tail) = lines(&[&b"0123456789\n".repeat(10), &[b'x'; 40_000]], 30);
        assert_eq!(lines.iter().map(String::len).collect::<Vec<_>>()[10..], [16384, 16384, 7232]);
        assert_eq!(tail, "x".repeat(30));
        let (_, tail) = super::tests::lines(&[&b"0123456789\n".repeat(10)], 30);
        assert_eq!(tail, "0123456789\n0123456789");
    }
}
