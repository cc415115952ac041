//! Two processes: a child writes, we read; through a conduit that we made, or as the library has it.

use std::fs::File;
use std::io::{self, BufRead as _, BufReader, Read, Write as _};
use std::time::Instant;

use pipewright::{Child, ChildStderr, ChildStdin, PipeReader, Signal, Stdio};
use pipewright_os::host::test_pipe::Conduit;
use pipewright_os::process::usage::{self, Spent};

use super::super::peer::{Act, parse_spent};
use super::super::place::Place;
use super::super::rounds::{Round, Rounds, both};

use super::threads::Reading;

/// A child that writes when it is told to.
#[derive(Debug)]
pub(super) struct TwoProcesses {
    source: Source,
    control: ChildStdin,
    answers: BufReader<ChildStderr>,
    reader: Reading,
    block_bytes: usize,
    child: Child,
}

impl Drop for TwoProcesses {
    fn drop(&mut self) {
        // Ignored: it has ended. Waited for, so that no thread of the library has to: it would run
        // beside the next measurement.
        let _ = self.child.signal(Signal::KILL);
        let _ = self.child.wait();
    }
}

#[derive(Debug)]
enum Source {
    Conduit(File),
    Library(PipeReader),
}

impl Read for Source {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Source::Conduit(file) => file.read(buffer),
            Source::Library(pipe) => pipe.read(buffer),
        }
    }
}

/// Of a pipe of the library: what a program that does not think about it would read with.
const LIBRARY_READ_BYTES: usize = 64 << 10;

impl TwoProcesses {
    /// `conduit`: what the child writes to; `None` is a pipe of the library's.
    pub(super) fn start(
        conduit: Option<Conduit>,
        place: Place,
        block_bytes: usize,
        verify: bool,
    ) -> io::Result<TwoProcesses> {
        let act = Act::Write { block_bytes, processor: place.writer, verify };
        let mut command = act.command()?;
        // With a group of its own Ctrl-C does not reach it: it ends with its input.
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
        // It has kept our end of what the child writes to: where the child dies, the stream has to end.
        drop(command);
        let missing = || io::Error::from(io::ErrorKind::BrokenPipe);
        let control = child.stdin.take().ok_or_else(missing)?;
        let answers = BufReader::new(child.stderr.take().ok_or_else(missing)?);
        let (source, read_bytes) = match reader {
            Some(reader) => (Source::Conduit(reader), block_bytes),
            None => {
                let pipe = child.stdout.take().ok_or_else(missing)?;
                (Source::Library(pipe), block_bytes.max(LIBRARY_READ_BYTES))
            }
        };
        let reader = Reading::new(read_bytes, verify);
        Ok(TwoProcesses { source, control, answers, reader, block_bytes, child })
    }

    /// What the child says that it has used.
    fn answer(&mut self) -> io::Result<Spent> {
        let mut line = String::new();
        self.answers.read_line(&mut line)?;
        parse_spent(&line).ok_or_else(|| {
            let words = line.trim();
            // Its own words, where it ended with an error.
            io::Error::other(if words.is_empty() { "the child has ended" } else { words })
        })
    }
}

impl Rounds for TwoProcesses {
    fn round(&mut self, blocks: u64) -> io::Result<Round> {
        let bytes = blocks * self.block_bytes as u64;
        let order = format!("{blocks}\n");
        let before = usage::of_this_process().ok();
        let start = Instant::now();
        self.control.write_all(order.as_bytes())?;
        let taken = self.reader.take(&mut self.source, bytes);
        let elapsed = start.elapsed();
        let after = usage::of_this_process().ok();
        let reads = match taken {
            // It says why.
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                return Err(self.answer().err().unwrap_or(error));
            }
            taken => taken?,
        };
        let child = self.answer()?;
        let spent = after.zip(before).map(|(after, before)| both(after - before, child));
        Ok(Round { elapsed, reads, each: None, spent })
    }
}
