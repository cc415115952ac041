//! Both streams of a child, line by line.

mod splitter;

use std::ffi::OsString;

pub(crate) use splitter::{RawLine, Splitter};

use crate::child::Process;
use crate::command::Rules;
use crate::drive::Run;
use crate::error::{Doing, Error, ErrorKind};
use crate::output::{Ending, Source};
use crate::text::Decoding;

/// A line that a child wrote, without its line end.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Line {
    /// The stream that it came from.
    pub source: Source,
    /// What it says.
    pub text: String,
    /// It was longer than [`Command::max_line`](crate::Command::max_line), and this is its start.
    pub truncated: bool,
}

/// The lines of a running child, both streams in the order in which they arrive.
///
/// Made by [`Command::lines`](crate::Command::lines). Nothing is read ahead of the caller but one
/// buffer of each stream: a child that writes faster than its lines are taken waits. The command's
/// timeouts hold while a line is waited for.
///
/// # Drop
/// The streams are closed: the child is not killed, but it gets SIGPIPE when it next writes, as it
/// would from `| head`. It is reaped in the background. [`finish`](Self::finish) waits for it
/// instead, and [`kill_on_drop`](crate::Command::kill_on_drop) kills it.
#[derive(Debug)]
pub struct Lines {
    process: Process,
    program: OsString,
    rules: Rules,
    run: Run,
    decoding: Decoding,
    state: State,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Running,
    /// Everything is read, and the child has ended.
    Ended,
    /// An error has been told, and there is no child.
    Failed,
}

impl Lines {
    pub(crate) fn new(
        process: Process,
        program: OsString,
        rules: Rules,
        run: Run,
        decoding: Decoding,
    ) -> Lines {
        Lines { process, program, rules, run, decoding, state: State::Running }
    }

    /// The process id of the child.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.process.pid()
    }

    /// Reads the rest without keeping it, waits for the child, and tells how it ended.
    ///
    /// # Errors
    /// The child could not be read from or waited for; it is then no longer running.
    pub fn finish(mut self) -> Result<Ending, Error> {
        self.run.keep_nothing();
        while self.state == State::Running {
            self.step()?;
        }
        let ended = self.run.finish(self.process.alone());
        let output = ended.map_err(|(doing, e)| Error::talk(&self.program, doing, e))?;
        Ok(output.without_streams())
    }

    fn step(&mut self) -> Result<(), Error> {
        match self.run.step(self.process.alone(), &self.rules) {
            Ok(true) => Ok(()),
            Ok(false) => {
                self.state = State::Ended;
                Ok(())
            }
            Err((doing, source)) => {
                self.state = State::Failed;
                self.run.abandon(self.process.alone());
                Err(Error::talk(&self.program, doing, source))
            }
        }
    }

    fn decode(&self, source: Source, line: RawLine) -> Result<Line, Error> {
        let text = self.decoding.decode(source, line.bytes).map_err(|bad| {
            let kind = ErrorKind::InvalidUtf8 { source: bad.source, offset: bad.offset };
            Error::new(&self.program, Doing::Talk("decode the output of"), kind, None)
        })?;
        Ok(Line { source, text, truncated: line.truncated })
    }
}

impl Iterator for Lines {
    type Item = Result<Line, Error>;

    fn next(&mut self) -> Option<Result<Line, Error>> {
        loop {
            if let Some((source, line)) = self.run.take_line() {
                return Some(self.decode(source, line));
            }
            if self.state != State::Running {
                return None;
            }
            if let Err(error) = self.step() {
                return Some(Err(error));
            }
        }
    }
}

impl std::iter::FusedIterator for Lines {}
