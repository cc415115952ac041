//! Round trips: a block there and back, each by the clock.

use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::time::Instant;

use pipewright::{Child, Signal};
use pipewright_os::host::test_pipe::{self, Kind};
use pipewright_os::process::usage;

use super::pattern::Pattern;
use super::peer::Act;
use super::place::Place;
use super::rounds::{Round, Rounds};
use super::stats::Percentiles;

/// A way to somebody who sends back what he gets.
pub(super) trait Echo {
    /// Sends a block, and waits until all of it is back.
    fn trip(&mut self, block: &[u8], back: &mut Vec<u8>) -> io::Result<()>;
}

/// Blocks of one size, one after the other.
#[derive(Debug)]
pub(super) struct RoundTrips<E> {
    echo: E,
    sent: Pattern,
    block_bytes: usize,
    back: Vec<u8>,
}

impl<E: Echo> RoundTrips<E> {
    pub(super) fn new(echo: E, block_bytes: usize) -> RoundTrips<E> {
        let sent = Pattern::new(block_bytes, true);
        RoundTrips { echo, sent, block_bytes, back: vec![1; block_bytes] }
    }
}

impl<E: Echo> Rounds for RoundTrips<E> {
    fn round(&mut self, blocks: u64) -> io::Result<Round> {
        // Beyond that it grows, which some trips of so many take a little longer for.
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
                let words = "what came back is not as long as what went";
                return Err(io::Error::new(io::ErrorKind::InvalidData, words));
            }
        }
        let elapsed = start.elapsed();
        let after = usage::of_this_process().ok();
        // Of all the last, so that comparing takes no part of the time.
        self.sent.check(blocks.saturating_sub(1), &self.back)?;
        let spent = after.zip(before).map(|(after, before)| after - before);
        Ok(Round { elapsed, each: Percentiles::of(times), spent, ..Round::default() })
    }
}

/// A child that sends back what comes on its stdin.
#[derive(Debug)]
pub(super) struct Files {
    to: File,
    from: File,
    child: Child,
}

impl Drop for Files {
    fn drop(&mut self) {
        // Ignored: it has ended. Waited for, so that no thread of the library has to.
        let _ = self.child.signal(Signal::KILL);
        let _ = self.child.wait();
    }
}

impl Files {
    /// Starts it, with two conduits of that kind; of what goes both ways by itself one is enough.
    pub(super) fn start(kind: Kind, place: Place, block_bytes: usize) -> io::Result<Files> {
        let act = Act::Echo { block_bytes, processor: place.writer };
        let mut command = act.command()?;
        // With a group of its own Ctrl-C does not reach it: it ends with its input.
        command.own_group();
        let first = test_pipe::open(kind, None)?;
        let (to, from) = if kind == Kind::Socket {
            command.stdin(first.writer.try_clone()?).stdout(first.writer);
            (first.reader.try_clone()?, first.reader)
        } else {
            let second = test_pipe::open(kind, None)?;
            command.stdin(first.reader).stdout(second.writer);
            (first.writer, second.reader)
        };
        let child = command.spawn().map_err(io::Error::other)?;
        Ok(Files { to, from, child })
    }
}

impl Echo for Files {
    fn trip(&mut self, block: &[u8], back: &mut Vec<u8>) -> io::Result<()> {
        self.to.write_all(block)?;
        self.from.read_exact(back)
    }
}

/// Sends back what comes, block by block, until no more does.
pub(super) fn echo(from: &mut File, to: &mut File, block_bytes: usize) -> io::Result<()> {
    let mut block = vec![1; block_bytes];
    loop {
        match from.read_exact(&mut block) {
            Ok(()) => to.write_all(&block)?,
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(()),
            Err(error) => return Err(error),
        }
    }
}
