//! One thread that writes a block and reads it back, and two of which one writes and one reads.

use std::fs::File;
use std::io::{self, Read, Write as _};
use std::sync::Barrier;
use std::thread;
use std::time::Instant;

use pipewright_os::host::test_pipe::Conduit;
use pipewright_os::process::usage;

use super::super::cell::pin;
use super::super::histogram::Reads;
use super::super::pattern::Pattern;
use super::super::place::Place;
use super::super::rounds::{Round, Rounds};

/// The article's `pipespeed2`.
#[derive(Debug)]
pub(in crate::bench) struct OneThread {
    conduit: Conduit,
    block_bytes: usize,
    sent: Pattern,
    buffer: Vec<u8>,
}

/// The article's `pipespeed2t`.
#[derive(Debug)]
pub(super) struct TwoThreads {
    /// The ends are lent to the two for a round, and are closed where one of them fails: then the
    /// other fails as well, and does not wait for ever.
    ends: Option<(File, File)>,
    place: Place,
    block_bytes: usize,
    sent: Pattern,
    reader: Reading,
}

/// What reads a stream.
#[derive(Debug)]
pub(super) struct Reading {
    buffer: Vec<u8>,
    expected: Pattern,
}

impl Reading {
    pub(super) fn new(buffer_bytes: usize, verify: bool) -> Reading {
        Reading { buffer: vec![1; buffer_bytes], expected: Pattern::new(buffer_bytes, verify) }
    }

    /// Reads so many bytes, and counts the reads.
    pub(super) fn take(&mut self, source: &mut impl Read, bytes: u64) -> io::Result<Reads> {
        let (mut place, mut reads) = (0, Reads::default());
        while place < bytes {
            let count = source.read(&mut self.buffer)?;
            if count == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            self.expected.check(place, &self.buffer[..count])?;
            place += count as u64;
            reads.add(1, count);
        }
        if place == bytes { Ok(reads) } else { Err(too_many()) }
    }
}

fn too_many() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "more came out than went in")
}

impl OneThread {
    pub(in crate::bench) fn new(conduit: Conduit, block_bytes: usize, verify: bool) -> OneThread {
        OneThread {
            conduit,
            block_bytes,
            sent: Pattern::new(block_bytes, verify),
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
        Ok(Round { elapsed, reads: Reads::of(blocks, self.block_bytes), each: None, spent })
    }
}

impl TwoThreads {
    pub(super) fn new(
        conduit: Conduit,
        place: Place,
        block_bytes: usize,
        verify: bool,
    ) -> TwoThreads {
        TwoThreads {
            ends: Some((conduit.reader, conduit.writer)),
            place,
            block_bytes,
            sent: Pattern::new(block_bytes, verify),
            reader: Reading::new(block_bytes, verify),
        }
    }
}

impl Rounds for TwoThreads {
    fn round(&mut self, blocks: u64) -> io::Result<Round> {
        let (mut reader, writer) = self.ends.take().ok_or(io::ErrorKind::BrokenPipe)?;
        let bytes = blocks * self.block_bytes as u64;
        let (sent, block_bytes, on) = (&self.sent, self.block_bytes, self.place.writer);
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
        // What the writer says is the cause, and the reader's end of the stream the consequence; but for
        // a reader that found something wrong, and went.
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

/// Writes so many blocks, and gives the end back.
fn send(mut writer: File, sent: &Pattern, block_bytes: usize, blocks: u64) -> io::Result<File> {
    for block in 0..blocks {
        writer.write_all(sent.at(block * block_bytes as u64, block_bytes))?;
    }
    Ok(writer)
}
