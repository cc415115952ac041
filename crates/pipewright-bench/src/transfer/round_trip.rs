//! Round trips: a block is sent and comes back, and each trip is timed.

use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::time::Instant;

use pipewright::{Child, Signal};
use pipewright_os::host::test_pipe::{self, TestPipeKind};
use pipewright_os::process::usage;

use crate::child::ChildTask;
use crate::host::Processors;
use crate::pattern::BytePattern;
use crate::rounds::{Round, Rounds};
use crate::stats::Percentiles;

/// A connection to a process that sends back what it receives.
pub(crate) trait Echo {
    /// Sends a block, and waits until all of it has come back.
    fn trip(&mut self, block: &[u8], back: &mut Vec<u8>) -> io::Result<()>;
}

/// Round trips of blocks of one size, one after the other.
#[derive(Debug)]
pub(crate) struct RoundTrips<E> {
    echo: E,
    sent: BytePattern,
    block_bytes: usize,
    back: Vec<u8>,
}

impl<E: Echo> RoundTrips<E> {
    pub(crate) fn new(echo: E, block_bytes: usize) -> RoundTrips<E> {
        let sent = BytePattern::new(block_bytes, true);
        RoundTrips { echo, sent, block_bytes, back: vec![1; block_bytes] }
    }
}

impl<E: Echo> Rounds for RoundTrips<E> {
    fn round(&mut self, blocks: u64) -> io::Result<Round> {
        // For more trips the vector grows, which makes a few of them a little slower.
        const MOST_FORESEEN: u64 = 1 << 20;
        let mut times = Vec::with_capacity(blocks.min(MOST_FORESEEN) as usize);
        let before = usage::of_this_process().ok();
        let start = Instant::now();
        for number in 0..blocks {
            let block = self.sent.at(number, self.block_bytes);
            let begin = Instant::now();
            self.echo.trip(block, &mut self.back)?;
            times.push(begin.elapsed().as_secs_f64());
            if self.back.len() != self.block_bytes {
                let words = "the reply has another length than the request";
                return Err(io::Error::new(io::ErrorKind::InvalidData, words));
            }
        }
        let elapsed = start.elapsed();
        let after = usage::of_this_process().ok();
        // Only the last one, after the clock has stopped.
        self.sent.check(blocks.saturating_sub(1), &self.back)?;
        let spent = after.zip(before).map(|(after, before)| after - before);
        Ok(Round { elapsed, each: Percentiles::of(times), spent, ..Round::default() })
    }
}

/// A child that copies its stdin to its stdout.
#[derive(Debug)]
pub(crate) struct StreamEcho {
    to: File,
    from: File,
    child: Child,
}

impl Drop for StreamEcho {
    fn drop(&mut self) {
        // Ignored: it has exited. Waited for here, so that no thread of the library does.
        let _ = self.child.signal(Signal::KILL);
        let _ = self.child.wait();
    }
}

impl StreamEcho {
    /// Starts the child with two conduits of that kind, or with one socket, which works both ways.
    pub(crate) fn start(
        kind: TestPipeKind,
        processors: Processors,
        block_bytes: usize,
    ) -> io::Result<StreamEcho> {
        let task = ChildTask::Echo { block_bytes, processor: processors.writer };
        let mut command = task.command()?;
        // In its own process group Ctrl-C does not reach it: it exits at the end of its input.
        command.own_group();
        let first = test_pipe::open(kind, None)?;
        let (to, from) = if kind == TestPipeKind::Socket {
            command.stdin(first.writer.try_clone()?).stdout(first.writer);
            (first.reader.try_clone()?, first.reader)
        } else {
            let second = test_pipe::open(kind, None)?;
            command.stdin(first.reader).stdout(second.writer);
            (first.writer, second.reader)
        };
        let child = command.spawn().map_err(io::Error::other)?;
        Ok(StreamEcho { to, from, child })
    }
}

impl Echo for StreamEcho {
    fn trip(&mut self, block: &[u8], back: &mut Vec<u8>) -> io::Result<()> {
        self.to.write_all(block)?;
        self.from.read_exact(back)
    }
}
