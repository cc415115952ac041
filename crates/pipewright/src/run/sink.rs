//! What is kept of a stream.

use std::io;

use pipewright_os::base::memory;
use pipewright_os::base::pipe::PipeWriter;
use pipewright_os::base::wait::FIRST_READ_BYTES;

use super::tee::Tee;
use crate::output::TeeFailed;
use crate::rules::{Limit, OnExceed};

/// A read into less room than this is not worth its system call.
const LEAST_ROOM_BYTES: usize = 4 << 10;
/// From here on pages are asked for by the 2 MiB: page faults are what a large capture waits for.
const HUGE_FROM_BYTES: usize = 4 << 20;
/// Where nothing is kept, what is read goes here and is overwritten.
const SCRATCH_BYTES: usize = 64 << 10;

/// The most room that a stream is given which is handed out as it comes.
const MOST_ROOM_BYTES: usize = 128 << 10;

/// Collects one stream.
#[derive(Debug)]
pub(crate) struct Sink {
    /// What is kept. While a read is under way it is in the read's buffer instead.
    kept: Vec<u8>,
    storage: Storage,
    limit: Option<Limit>,
    tee: Option<Box<dyn Tee>>,
    total_bytes: u64,
    truncated: bool,
}

#[derive(Debug)]
enum Storage {
    All,
    Nothing,
    /// Until the caller takes it, chunk by chunk.
    UntilTaken {
        /// Something has come that has not been taken, or the end.
        fresh: bool,
        /// How much is read at a time: more when that has not been enough.
        room_bytes: usize,
    },
}

/// What became of a chunk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verdict {
    Fine,
    /// More came than [`Limit::fail`] allows.
    TooMuch,
}

impl Sink {
    pub(crate) fn new(limit: Option<Limit>) -> Sink {
        let only_counts = limit.is_some_and(|limit| limit.only_counts);
        Sink {
            kept: Vec::new(),
            storage: if only_counts { Storage::Nothing } else { Storage::All },
            limit,
            tee: None,
            total_bytes: 0,
            truncated: false,
        }
    }

    /// A sink that only drains, and counts where there is a limit.
    pub(crate) fn discarding(limit: Option<Limit>) -> Sink {
        Sink { storage: Storage::Nothing, ..Sink::new(limit) }
    }

    /// A sink from which what has come is taken.
    pub(crate) fn handing_out(limit: Option<Limit>) -> Sink {
        let storage = Storage::UntilTaken { fresh: false, room_bytes: FIRST_READ_BYTES };
        Sink { storage, ..Sink::new(limit) }
    }

    /// The bytes after which the child is stopped.
    pub(super) fn most_bytes(&self) -> Option<usize> {
        self.limit.filter(|limit| limit.on_exceed == OnExceed::Fail).map(|limit| limit.bytes)
    }

    /// From here on nothing is kept.
    pub(super) fn keep_nothing(&mut self) {
        self.storage = Storage::Nothing;
        self.kept.clear();
    }

    /// What has come, if something has, or the end. The last so many bytes can be told at the end.
    pub(super) fn take(&mut self, at_end: bool) -> Option<Vec<u8>> {
        let Storage::UntilTaken { fresh, .. } = &mut self.storage else { return None };
        let tail = self.limit.filter(|limit| limit.on_exceed == OnExceed::KeepTail);
        if (tail.is_some() && !at_end) || !std::mem::take(fresh) {
            return None;
        }
        let mut taken = std::mem::take(&mut self.kept);
        if let Some(Limit { bytes, .. }) = tail {
            self.keep_tail(&mut taken, bytes);
        }
        Some(taken)
    }

    /// Nothing more comes.
    pub(super) fn note_end(&mut self) {
        if let Storage::UntilTaken { fresh, .. } = &mut self.storage {
            *fresh = true;
        }
    }

    /// Passes everything on to our own stream as it comes.
    pub(crate) fn passing_on(self, to: Box<dyn Tee>) -> Sink {
        Sink { tee: Some(to), ..self }
    }

    /// Our own stream, where it has not taken yet what came.
    pub(super) fn behind(&mut self) -> Option<&mut Box<dyn Tee>> {
        self.tee.as_mut().filter(|tee| tee.is_behind())
    }

    pub(super) fn is_behind(&self) -> bool {
        self.tee.as_ref().is_some_and(|tee| tee.is_behind())
    }

    /// What became of a write to our own stream.
    pub(super) fn note_passed(&mut self, writer: PipeWriter, result: io::Result<usize>) {
        if let Some(tee) = &mut self.tee {
            tee.note(writer, result);
        }
    }

    /// Whether nobody wants what comes: it is passed on to a reader that has gone, and nothing else is done with it.
    pub(super) fn is_in_vain(&self) -> bool {
        let only_counts = self.limit.is_some_and(|limit| limit.only_counts);
        let failed = self.tee.as_ref().and_then(|tee| tee.failed());
        only_counts && failed.is_some_and(|failed| failed.is_reader_gone())
    }

    /// Whether somebody watches the stream while it comes.
    pub(super) fn is_watched(&self) -> bool {
        self.tee.is_some() || matches!(self.storage, Storage::UntilTaken { .. })
    }

    /// A buffer with room to read into; what is kept is in it. At first it is empty and has none:
    /// a read gives it some when there is something to put in it.
    pub(super) fn lend(&mut self) -> io::Result<Vec<u8>> {
        if self.kept.capacity() == 0 {
            return Ok(Vec::new());
        }
        self.lend_with_room()
    }

    /// A buffer that has room; what is kept is in it.
    // One copy, as above.
    #[inline(never)]
    pub(super) fn lend_with_room(&mut self) -> io::Result<Vec<u8>> {
        let mut buffer = std::mem::take(&mut self.kept);
        if buffer.capacity() >= HUGE_FROM_BYTES {
            memory::prefault_next(&mut buffer);
        }
        let (least, more) = self.room_for(&buffer);
        if buffer.capacity() - buffer.len() >= least {
            return Ok(buffer);
        }
        // An allocation that fails must not end the program: the child is still to be stopped.
        buffer.try_reserve_exact(more).map_err(|_| io::ErrorKind::OutOfMemory)?;
        if buffer.capacity() >= HUGE_FROM_BYTES {
            memory::advise_huge_pages(&mut buffer);
        }
        Ok(buffer)
    }

    /// With how much room the buffer will do, and how much it is given where it has less.
    fn room_for(&self, buffer: &Vec<u8>) -> (usize, usize) {
        match (&self.storage, self.limit) {
            (Storage::Nothing, _) => (LEAST_ROOM_BYTES, SCRATCH_BYTES),
            // Twice the limit and a chunk is the most that is ever needed.
            (Storage::All, Some(limit))
            | (_, Some(limit @ Limit { on_exceed: OnExceed::KeepTail, .. })) => {
                let most = limit.bytes.saturating_mul(2).saturating_add(SCRATCH_BYTES);
                let wanted = buffer.capacity().saturating_mul(2).max(FIRST_READ_BYTES).min(most);
                let more = wanted.saturating_sub(buffer.len()).max(LEAST_ROOM_BYTES);
                (LEAST_ROOM_BYTES, more)
            }
            (Storage::All, None) => (LEAST_ROOM_BYTES, buffer.capacity().max(FIRST_READ_BYTES)),
            // As much again as is in it: a line of a gigabyte is not to be copied for each chunk.
            (Storage::UntilTaken { room_bytes, .. }, _) => {
                (room_bytes / 2, (*room_bytes).max(buffer.len()))
            }
        }
    }

    /// Takes the buffer back, with that many new bytes at its end.
    // One copy: a program pays for each in its size.
    #[inline(never)]
    pub(super) fn accept(&mut self, mut buffer: Vec<u8>, new: usize) -> Verdict {
        self.total_bytes += new as u64;
        if let Some(tee) = &mut self.tee {
            tee.pass(&buffer[buffer.len() - new..]);
        }
        let is_full = buffer.len() == buffer.capacity() || new >= MOST_ROOM_BYTES / 2;
        let verdict = self.apply_limit(&mut buffer, new);
        match &mut self.storage {
            Storage::All => {}
            Storage::Nothing => buffer.clear(),
            Storage::UntilTaken { fresh, room_bytes } => {
                *fresh = true;
                if is_full {
                    *room_bytes = room_bytes.saturating_mul(2).min(MOST_ROOM_BYTES);
                }
            }
        }
        self.kept = buffer;
        verdict
    }

    fn apply_limit(&mut self, buffer: &mut Vec<u8>, new: usize) -> Verdict {
        let Some(Limit { bytes, on_exceed, .. }) = self.limit else { return Verdict::Fine };
        if on_exceed == OnExceed::KeepTail {
            if buffer.len() > bytes.saturating_mul(2) {
                self.keep_tail(buffer, bytes);
            }
            return Verdict::Fine;
        }
        let excess = self.total_bytes.saturating_sub(bytes as u64);
        if excess == 0 {
            return Verdict::Fine;
        }
        buffer.truncate(buffer.len() - new.min(usize::try_from(excess).unwrap_or(new)));
        self.truncated = true;
        if on_exceed == OnExceed::Fail { Verdict::TooMuch } else { Verdict::Fine }
    }

    /// Takes back a buffer of a read that brought nothing.
    pub(super) fn give_back(&mut self, buffer: Vec<u8>) {
        self.kept = buffer;
    }

    /// What was kept, and whether something was not.
    // One copy, as above.
    #[inline(never)]
    pub(super) fn finish(mut self) -> Finished {
        let mut kept = std::mem::take(&mut self.kept);
        if let Some(Limit { bytes, on_exceed: OnExceed::KeepTail, .. }) = self.limit {
            self.keep_tail(&mut kept, bytes);
        }
        Finished {
            kept,
            total_bytes: self.total_bytes,
            truncated: self.truncated,
            tee_failed: self.tee.and_then(|tee| tee.failed()),
        }
    }

    fn keep_tail(&mut self, buffer: &mut Vec<u8>, bytes: usize) {
        if buffer.len() > bytes {
            let excess = buffer.len() - bytes;
            buffer.drain(..excess);
            self.truncated = true;
        }
    }
}

/// What a sink collected.
#[derive(Debug, Default)]
pub(super) struct Finished {
    pub(super) kept: Vec<u8>,
    pub(super) total_bytes: u64,
    pub(super) truncated: bool,
    pub(super) tee_failed: Option<TeeFailed>,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Passes bytes through a sink in chunks of at most the given length.
    fn pass(mut sink: Sink, bytes: &[u8], chunk: usize) -> (Finished, Verdict, usize) {
        let mut verdict = Verdict::Fine;
        let mut most_room = 0;
        for chunk in bytes.chunks(chunk) {
            let mut buffer = sink.lend().unwrap();
            let room = buffer.capacity() - buffer.len();
            assert!(room >= LEAST_ROOM_BYTES.min(chunk.len()) || buffer.capacity() == 0);
            most_room = most_room.max(buffer.capacity());
            buffer.extend_from_slice(chunk);
            if sink.accept(buffer, chunk.len()) == Verdict::TooMuch {
                verdict = Verdict::TooMuch;
            }
        }
        (sink.finish(), verdict, most_room)
    }

    fn bytes(length: usize) -> Vec<u8> {
        (0..length).map(|i| (i * 7 + i / 256) as u8).collect()
    }

    #[test]
    fn every_limit_keeps_what_it_says_whatever_the_chunks() {
        let all = bytes(50_000);
        for limit in [0, 1, 4096, 49_999, 50_000, 60_000] {
            for chunk in [1, 7, 1000, 8192] {
                let kept = limit.min(all.len());
                let (tail, verdict, _) =
                    pass(Sink::new(Some(Limit::keep_tail(limit))), &all, chunk);
                assert_eq!(tail.kept, all[all.len() - kept..]);
                assert_eq!((tail.truncated, verdict), (limit < all.len(), Verdict::Fine));
                let (head, _, _) = pass(Sink::new(Some(Limit::keep_head(limit))), &all, chunk);
                assert_eq!(head.kept, all[..kept]);
                assert_eq!(head.total_bytes, all.len() as u64);
                let (_, verdict, _) = pass(Sink::new(Some(Limit::fail(limit))), &all, chunk);
                assert_eq!(verdict == Verdict::TooMuch, limit < all.len());
            }
        }
    }

    #[test]
    fn memory_stays_within_twice_the_limit_and_a_chunk() {
        let all = bytes(4 << 20);
        for limit in [Limit::keep_tail(100_000), Limit::keep_head(100_000)] {
            let (_, _, room) = pass(Sink::new(Some(limit)), &all, LEAST_ROOM_BYTES);
            assert!(room <= 2 * 100_000 + SCRATCH_BYTES, "{room}");
        }
        let (_, _, room) = pass(Sink::discarding(None), &all, LEAST_ROOM_BYTES);
        assert!(room <= SCRATCH_BYTES, "{room}");
    }

    #[test]
    fn what_only_counts_keeps_nothing_and_still_refuses() {
        let all = bytes(4 << 20);
        let limit = |bytes| Some(Limit::fail(bytes).that_only_counts());
        let (done, verdict, room) = pass(Sink::new(limit(4 << 20)), &all, LEAST_ROOM_BYTES);
        assert_eq!((done.kept.len(), done.total_bytes, verdict), (0, 4 << 20, Verdict::Fine));
        assert!(room <= SCRATCH_BYTES, "{room}");
        let (_, verdict, _) = pass(Sink::new(limit((4 << 20) - 1)), &all, LEAST_ROOM_BYTES);
        assert_eq!(verdict, Verdict::TooMuch);
    }

    #[test]
    fn an_absurd_limit_does_not_overflow() {
        for limit in [Limit::keep_tail(usize::MAX), Limit::keep_head(usize::MAX)] {
            let (all, _, _) = pass(Sink::new(Some(limit)), &bytes(100), 9);
            assert_eq!(all.kept, bytes(100));
        }
    }
}
