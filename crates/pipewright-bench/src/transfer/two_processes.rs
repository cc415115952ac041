//! Two processes: a child writes, this process reads; through a given conduit, or through a pipe of the library.

use std::fs::File;
use std::io::{self, BufRead as _, BufReader, Read, Write as _};
use std::time::Instant;

use pipewright::{Child, ChildStderr, ChildStdin, PipeReader, Signal, Stdio};
use pipewright_os::host::test_pipe::Conduit;
use pipewright_os::process::usage::{self, Spent};

use super::stream_reader::StreamReader;
use crate::child::{ChildTask, parse_usage_line};
use crate::host::Processors;
use crate::rounds::{Round, Rounds, add_usage};

/// A child that writes on request.
#[derive(Debug)]
pub(crate) struct TwoProcesses {
    source: PayloadSource,
    control: ChildStdin,
    answers: BufReader<ChildStderr>,
    reader: StreamReader,
    block_bytes: usize,
    child: Child,
}

impl Drop for TwoProcesses {
    fn drop(&mut self) {
        // Ignored: it has exited. Waited for here, so that no thread of the library does: it would run during the
        // next measurement.
        let _ = self.child.signal(Signal::KILL);
        let _ = self.child.wait();
    }
}

#[derive(Debug)]
enum PayloadSource {
    Conduit(File),
    Library(PipeReader),
}

impl Read for PayloadSource {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            PayloadSource::Conduit(file) => file.read(buffer),
            PayloadSource::Library(pipe) => pipe.read(buffer),
        }
    }
}

/// The buffer size for a pipe of the library: what most programs read with.
const LIBRARY_READ_BYTES: usize = 64 << 10;

impl TwoProcesses {
    /// Starts the child. It writes to `conduit`, or for `None` to a pipe of the library.
    pub(crate) fn start(
        conduit: Option<Conduit>,
        processors: Processors,
        block_bytes: usize,
        verify: bool,
    ) -> io::Result<TwoProcesses> {
        let task = ChildTask::Write { block_bytes, processor: processors.writer, verify };
        let mut command = task.command()?;
        // In its own process group Ctrl-C does not reach it: it exits at the end of its input.
        command.stdin(Stdio::piped()).stderr(Stdio::piped()).own_group();
        let reader = match conduit {
            Some(Conduit { reader, writer, .. }) => {
                command.stdout(writer);
                Some(reader)
            }
            None => {
                command.stdout(Stdio::piped());
                None
            }
        };
        let mut child = command.spawn().map_err(io::Error::other)?;
        // It still holds the writing end. If the child dies, the stream has to end.
        drop(command);
        let missing = || io::Error::from(io::ErrorKind::BrokenPipe);
        let control = child.stdin.take().ok_or_else(missing)?;
        let answers = BufReader::new(child.stderr.take().ok_or_else(missing)?);
        let (source, read_bytes) = match reader {
            Some(reader) => (PayloadSource::Conduit(reader), block_bytes),
            None => {
                let pipe = child.stdout.take().ok_or_else(missing)?;
                (PayloadSource::Library(pipe), block_bytes.max(LIBRARY_READ_BYTES))
            }
        };
        let reader = StreamReader::new(read_bytes, verify);
        Ok(TwoProcesses { source, control, answers, reader, block_bytes, child })
    }

    /// Reads the CPU time that the child reports.
    fn answer(&mut self) -> io::Result<Spent> {
        let mut line = String::new();
        self.answers.read_line(&mut line)?;
        parse_usage_line(&line).ok_or_else(|| {
            let words = line.trim();
            // Its own message, if it failed.
            io::Error::other(if words.is_empty() { "the child has exited" } else { words })
        })
    }
}

impl Rounds for TwoProcesses {
    fn round(&mut self, blocks: u64) -> io::Result<Round> {
        let bytes = blocks * self.block_bytes as u64;
        let request = format!("{blocks}\n");
        let before = usage::of_this_process().ok();
        let start = Instant::now();
        self.control.write_all(request.as_bytes())?;
        let taken = self.reader.take(&mut self.source, bytes);
        let elapsed = start.elapsed();
        let after = usage::of_this_process().ok();
        let reads = match taken {
            // The child's message has the reason.
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                return Err(self.answer().err().unwrap_or(error));
            }
            taken => taken?,
        };
        let child = self.answer()?;
        let spent = after.zip(before).map(|(after, before)| add_usage(after - before, child));
        Ok(Round { elapsed, reads, each: None, spent })
    }
}
