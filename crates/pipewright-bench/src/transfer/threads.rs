//! One thread that writes and reads in turns, and two threads of which one writes and one reads.

use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::sync::Barrier;
use std::thread;
use std::time::Instant;

use pipewright_os::host::test_pipe::Conduit;
use pipewright_os::process::usage;

use super::stream_reader::StreamReader;
use crate::host::{Processors, pin};
use crate::pattern::BytePattern;
use crate::rounds::{Round, Rounds};
use crate::stats::histogram::ReadSizes;

/// One thread that writes a block and reads it back: `pipespeed2` of the article of 2001.
#[derive(Debug)]
pub(crate) struct OneThread {
    conduit: Conduit,
    block_bytes: usize,
    sent: BytePattern,
    buffer: Vec<u8>,
}

/// A thread that writes and one that reads: `pipespeed2t` of the article of 2001.
#[derive(Debug)]
pub(crate) struct TwoThreads {
    /// Reader and writer, lent to the two threads for a round. Closed if one of them fails, so that the other one
    /// fails too instead of waiting forever.
    ends: Option<(File, File)>,
    processors: Processors,
    block_bytes: usize,
    sent: BytePattern,
    reader: StreamReader,
}

impl OneThread {
    pub(crate) fn new(conduit: Conduit, block_bytes: usize, verify: bool) -> OneThread {
        OneThread {
            conduit,
            block_bytes,
            sent: BytePattern::new(block_bytes, verify),
            buffer: vec![1; block_bytes],
        }
    }
}

impl Rounds for OneThread {
    fn round(&mut self, blocks: u64) -> io::Result<Round> {
        let Conduit { reader, writer, .. } = &mut self.conduit;
        let before = usage::of_this_process().ok();
        let start = Instant::now();
        for block in 0..blocks {
            let place = block * self.block_bytes as u64;
            writer.write_all(self.sent.at(place, self.block_bytes))?;
            reader.read_exact(&mut self.buffer)?;
            self.sent.check(place, &self.buffer)?;
        }
        let elapsed = start.elapsed();
        let after = usage::of_this_process().ok();
        let spent = after.zip(before).map(|(after, before)| after - before);
        Ok(Round { elapsed, reads: ReadSizes::of(blocks, self.block_bytes), each: None, spent })
    }
}

impl TwoThreads {
    pub(crate) fn new(
        conduit: Conduit,
        processors: Processors,
        block_bytes: usize,
        verify: bool,
    ) -> TwoThreads {
        TwoThreads {
            ends: Some((conduit.reader, conduit.writer)),
            processors,
            block_bytes,
            sent: BytePattern::new(block_bytes, verify),
            reader: StreamReader::new(block_bytes, verify),
        }
    }
}

impl Rounds for TwoThreads {
    fn round(&mut self, blocks: u64) -> io::Result<Round> {
        let (mut reader, writer) = self.ends.take().ok_or(io::ErrorKind::BrokenPipe)?;
        let bytes = blocks * self.block_bytes as u64;
        let (sent, block_bytes, on) = (&self.sent, self.block_bytes, self.processors.writer);
        let ready = Barrier::new(2);
        let (taken, written) = thread::scope(|scope| {
            let write = || {
                let pinned = pin(on);
                ready.wait();
                pinned?;
                send(writer, sent, block_bytes, blocks)
            };
            let writing = thread::Builder::new().spawn_scoped(scope, write)?;
            ready.wait();
            let before = usage::of_this_process().ok();
            let start = Instant::now();
            let taken = self.reader.take(&mut reader, bytes).map(|reads| {
                let elapsed = start.elapsed();
                let after = usage::of_this_process().ok();
                let spent = after.zip(before).map(|(after, before)| after - before);
                (Round { elapsed, reads, each: None, spent }, reader)
            });
            let written = writing.join().unwrap_or_else(|_| Err(io::ErrorKind::Other.into()));
            io::Result::Ok((taken, written))
        })?;
        // An error of the writer is the cause, and the end of the stream its consequence; except that a reader which
        // finds wrong bytes closes the stream itself.
        match (taken, written) {
            (Err(error), _) if error.kind() == io::ErrorKind::InvalidData => Err(error),
            (_, Err(error)) | (Err(error), Ok(_)) => Err(error),
            (Ok((round, reader)), Ok(writer)) => {
                self.ends = Some((reader, writer));
                Ok(round)
            }
        }
    }
}

/// Writes that many blocks, and returns the writer.
fn send(mut writer: File, sent: &BytePattern, block_bytes: usize, blocks: u64) -> io::Result<File> {
    for block in 0..blocks {
        writer.write_all(sent.at(block * block_bytes as u64, block_bytes))?;
    }
    Ok(writer)
}
