//! One of the child's streams: read with a delay, copied to a tee, kept up to its limit, and in the end given
//! up.

use std::path::PathBuf;
use std::time::{Duration, Instant};
use std::{io, mem};

use pipewright_os::base::memory;
use pipewright_os::base::pipe::{PipeReader, PipeWriter};
use pipewright_os::base::wait::{FIRST_READ_BYTES, Slot};

use super::ends::{Ends, SpillFailed};
use super::options::{Limit, OnExceed, RunSettings};
use super::tee::{PanicPayload, Tee};
use crate::outcome::Source;
use crate::output::TeeFailed;

/// One of the child's streams.
#[derive(Debug, Default)]
pub(super) struct Stream {
    /// `None` during a read, which has it in its slot, and after the end.
    pub(super) pipe: Option<PipeReader>,
    pub(super) sink: Option<Sink>,
}

impl Stream {
    pub(super) fn new(stream: Option<(PipeReader, Sink)>) -> Stream {
        match stream {
            Some((pipe, sink)) => Stream { pipe: Some(pipe), sink: Some(sink) },
            None => Stream::default(),
        }
    }

    /// Returns the next read or write, or [`Slot::Off`] if there is no new one.
    pub(super) fn next(&mut self, paused: bool) -> io::Result<Slot<'static>> {
        let Some(sink) = &mut self.sink else { return Ok(Slot::Off) };
        if let Some(tee) = sink.pending_tee() {
            // The write comes before the next read, and uses the slot of the read.
            return Ok(tee.submit());
        }
        match self.pipe.take_if(|_| !paused) {
            Some(pipe) => sink.lend().map(|buffer| Slot::Read(pipe, buffer)),
            None => Ok(Slot::Off),
        }
    }

    /// Returns true if the tee has unwritten bytes.
    pub(super) fn has_pending_tee(&self) -> bool {
        self.sink.as_ref().is_some_and(Sink::has_pending_tee)
    }

    /// Closes this process's end if nobody wants the stream, as a direct reader of the child would have done. Returns
    /// true if it was a terminal's: the other handles of that side have to go too, and the terminal hangs up.
    pub(super) fn close_if_unwanted(&mut self) -> bool {
        let Some(sink) = &self.sink else { return false };
        let is_terminal = |pipe: &PipeReader| pipe.most_buffered_of_terminal().is_some();
        let is_terminal = self.pipe.as_ref().is_some_and(is_terminal);
        if !sink.is_unwanted(is_terminal) {
            return false;
        }
        self.pipe = None;
        is_terminal
    }

    /// Reads the bytes that are in the pipe now, and gives the stream up, with the unwritten bytes of its tee.
    ///
    /// `drain` takes over a pipe that others still hold.
    #[cold]
    pub(super) fn give_up(
        &mut self,
        slot: &mut Slot<'static>,
        drain: Option<fn(PipeReader)>,
    ) -> io::Result<Rest> {
        let nothing = Rest { at_end: true, exceeds_limit: false };
        let Stream { pipe, sink: Some(sink) } = self else { return Ok(nothing) };
        let pipe = match mem::take(slot) {
            Slot::Read(pipe, buffer) => {
                sink.give_back(buffer);
                Some(pipe)
            }
            _ => pipe.take(),
        };
        if let Some(tee) = sink.pending_tee() {
            tee.give_up();
        }
        let Some(pipe) = pipe else { return Ok(nothing) };
        let rest = take_rest(&pipe, sink)?;
        sink.note_end();
        if let Some(drain) = drain.filter(|_| !rest.at_end) {
            drain(pipe);
        }
        Ok(rest)
    }
}

/// The size from which a chunk of a terminal is not small: a quarter of what one read can return.
const LARGE_TERMINAL_READ_BYTES: usize = 1 << 10;

/// Returns true if the length of a read says nothing about the child: the read filled its buffer, or came from a
/// terminal, where it returns a few KiB at most.
pub(super) fn is_full_read(pipe: &PipeReader, buffer: &Vec<u8>, count: usize) -> bool {
    buffer.len() == buffer.capacity()
        || (pipe.most_buffered_of_terminal().is_some() && count >= LARGE_TERMINAL_READ_BYTES)
}

/// A chunk of a stream.
#[derive(Debug)]
pub(crate) struct Chunk {
    pub(crate) bytes: Vec<u8>,
    /// True if this is the last chunk of the stream.
    pub(crate) at_end: bool,
    /// The limit that has cut the stream, in its last chunk.
    pub(crate) cut_by: Option<Limit>,
}

/// The result of reading the rest of a pipe.
pub(super) struct Rest {
    /// True if no process holds the stream open any more.
    pub(super) at_end: bool,
    /// True if the stream exceeds [`Limit::fail`](crate::Limit::fail).
    pub(super) exceeds_limit: bool,
}

/// Reads the bytes that are in the pipe now, but not those that a fast writer adds meanwhile.
fn take_rest(pipe: &PipeReader, sink: &mut Sink) -> io::Result<Rest> {
    let mut left = match pipe.most_buffered_of_terminal() {
        Some(most) => most,
        None => pipe.available()?,
    };
    let mut exceeds_limit = false;
    loop {
        let mut buffer = sink.lend_with_room()?;
        match pipe.try_read_spare(&mut buffer) {
            Ok(0) => {
                sink.give_back(buffer);
                return Ok(Rest { at_end: true, exceeds_limit });
            }
            Ok(count) => {
                exceeds_limit |= sink.accept(buffer, count) == LimitCheck::Exceeded;
                left = left.saturating_sub(count);
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                sink.give_back(buffer);
                return Ok(Rest { at_end: false, exceeds_limit });
            }
            Err(error) => return Err(error),
        }
        if left == 0 && pipe.available()? > 0 {
            return Ok(Rest { at_end: false, exceeds_limit });
        }
    }
}

/// The least room for a read. Less is not worth the system call.
const MIN_ROOM_BYTES: usize = 4 << 10;
/// The buffer size from which huge pages of 2 MiB are requested: a large capture waits mostly for page faults.
const HUGE_FROM_BYTES: usize = 4 << 20;
/// The size of a buffer that is overwritten by each read, if nothing is kept.
const SCRATCH_BYTES: usize = 64 << 10;

/// The most room for a stream that is handed out in chunks.
const MAX_ROOM_BYTES: usize = 128 << 10;

/// Collects one stream.
#[derive(Debug)]
pub(crate) struct Sink {
    /// The kept bytes. During a read they are in the read's buffer instead.
    kept: Vec<u8>,
    storage: Storage,
    limit: Option<Limit>,
    /// Keeps what [`Limit::keep_head_and_tail`] keeps, in place of `kept`.
    ends: Option<Box<dyn Ends>>,
    tee: Option<Box<dyn Tee>>,
    /// The stream has ended, and a tee that is called late does not know it.
    tells_end_late: bool,
    total_bytes: u64,
    truncated: bool,
    /// The file with all of a stream that was cut.
    file: Option<PathBuf>,
    /// The error of that file.
    spill_failed: Option<TeeFailed>,
}

#[derive(Debug)]
enum Storage {
    All,
    Nothing,
    /// Nothing, once the tee has it: the owner of the run calls the tee between two steps.
    ForTee,
    /// Everything until the caller takes it, chunk by chunk.
    Chunks {
        /// True if bytes, or the end, have arrived and have not been taken.
        has_new: bool,
        /// The room for a read. It grows when a read fills it.
        room_bytes: usize,
    },
}

/// The result of checking a chunk against the limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LimitCheck {
    Within,
    /// The stream exceeds [`Limit::fail`].
    Exceeded,
}

impl Sink {
    pub(crate) fn new(limit: Option<Limit>) -> Sink {
        let only_counts = limit.is_some_and(|limit| limit.only_counts);
        Sink {
            kept: Vec::new(),
            storage: if only_counts { Storage::Nothing } else { Storage::All },
            limit,
            ends: None,
            tee: None,
            tells_end_late: false,
            total_bytes: 0,
            truncated: false,
            file: None,
            spill_failed: None,
        }
    }

    /// Creates a sink that only drains, and counts if there is a limit.
    pub(crate) fn discarding(limit: Option<Limit>) -> Sink {
        Sink { storage: Storage::Nothing, ..Sink::new(limit) }
    }

    /// Creates a sink from which the caller takes chunks.
    pub(crate) fn for_chunks(limit: Option<Limit>) -> Sink {
        let storage = Storage::Chunks { has_new: false, room_bytes: FIRST_READ_BYTES };
        Sink { storage, ..Sink::new(limit) }
    }

    /// Keeps both ends, if the limit asks for that.
    pub(super) fn with_ends(mut self, settings: &RunSettings, source: Source) -> Sink {
        if let (Some(limit), Some(open)) = (self.limit, settings.open_ends) {
            if let OnExceed::KeepHeadAndTail(tail) = limit.on_exceed {
                let folder = settings.spill.as_deref();
                self.ends = (!limit.only_counts).then(|| open(limit.bytes, tail, folder, source));
            }
        }
        self
    }

    /// Returns the limit beyond which the child is stopped.
    pub(super) fn fail_limit_bytes(&self) -> Option<usize> {
        self.limit.filter(|limit| limit.on_exceed == OnExceed::Fail).map(|limit| limit.bytes)
    }

    /// Drops the kept bytes, and keeps nothing from now on.
    pub(super) fn keep_nothing(&mut self) {
        self.storage = Storage::Nothing;
        self.ends = None;
        self.kept.clear();
    }

    /// Takes the new bytes, if there are any or the stream has ended. With `keep_tail` and `keep_head_and_tail` they
    /// are known only at the end.
    pub(super) fn take(&mut self, at_end: bool) -> Option<Chunk> {
        let Storage::Chunks { has_new, .. } = &mut self.storage else { return None };
        let tail = self.limit.filter(|limit| limit.on_exceed == OnExceed::KeepTail);
        let is_late = tail.is_some() || self.ends.is_some();
        if (is_late && !at_end) || !std::mem::take(has_new) {
            return None;
        }
        if let Some(ends) = self.ends.take() {
            // The cut is between characters, and a line says so.
            return Some(Chunk { bytes: self.finish_ends(ends), at_end, cut_by: None });
        }
        let mut bytes = std::mem::take(&mut self.kept);
        if let Some(limit) = tail {
            self.keep_tail(&mut bytes, limit.bytes);
        }
        let cut_by = self.limit.filter(|_| at_end && self.truncated);
        Some(Chunk { bytes, at_end, cut_by })
    }

    /// Returns what the ends have kept.
    fn finish_ends(&mut self, ends: Box<dyn Ends>) -> Vec<u8> {
        let kept = ends.finish();
        self.truncated |= kept.is_cut;
        self.file = kept.file;
        let failed = |it: SpillFailed| TeeFailed::new(it.source, true, &it.error);
        self.spill_failed = kept.spill_failed.map(failed);
        kept.bytes
    }

    /// Records the end of the stream.
    pub(super) fn note_end(&mut self) {
        match &mut self.storage {
            Storage::Chunks { has_new, .. } => *has_new = true,
            Storage::ForTee => {
                self.tells_end_late = true;
                return;
            }
            Storage::All | Storage::Nothing => {}
        }
        if let Some(tee) = &mut self.tee {
            tee.end();
        }
    }

    /// Adds a tee, which gets a copy of everything as it arrives.
    pub(crate) fn with_tee(self, to: Box<dyn Tee>) -> Sink {
        Sink { tee: Some(to), ..self }
    }

    /// Leaves calls of a tee that may take long to [`take_late`](Self::take_late), if nothing is kept.
    pub(super) fn call_tee_late(&mut self) {
        let may_wait = self.tee.as_ref().is_some_and(|tee| tee.may_wait());
        if may_wait && matches!(self.storage, Storage::Nothing) {
            self.storage = Storage::ForTee;
        }
    }

    /// Takes the tee with the bytes that it has not got. They come back by [`done_late`](Self::done_late).
    pub(super) fn take_late(&mut self) -> Option<LateTee> {
        if !matches!(self.storage, Storage::ForTee)
            || (self.kept.is_empty() && !self.tells_end_late)
        {
            return None;
        }
        let tee = self.tee.take()?;
        let at_end = mem::take(&mut self.tells_end_late);
        Some(LateTee { tee, bytes: mem::take(&mut self.kept), at_end })
    }

    /// Takes back a tee that has got its bytes.
    pub(super) fn done_late(&mut self, late: LateTee) {
        let LateTee { tee, mut bytes, .. } = late;
        bytes.clear();
        (self.tee, self.kept) = (Some(tee), bytes);
    }

    /// Returns the tee if it has unwritten bytes.
    fn pending_tee(&mut self) -> Option<&mut Box<dyn Tee>> {
        self.tee.as_mut().filter(|tee| tee.has_pending())
    }

    /// Returns true if the tee has unwritten bytes.
    pub(super) fn has_pending_tee(&self) -> bool {
        self.tee.as_ref().is_some_and(|tee| tee.has_pending())
    }

    /// Records the result of a write to the tee.
    pub(super) fn note_written(&mut self, writer: PipeWriter, result: io::Result<usize>) {
        if let Some(tee) = &mut self.tee {
            tee.note_written(writer, result);
        }
    }

    /// Takes the panic of the tee.
    pub(super) fn take_panic(&mut self) -> Option<PanicPayload> {
        self.tee.as_mut().and_then(|tee| tee.take_panic())
    }

    /// Returns true if nobody wants the stream: the reader of its tee is gone, and nothing is kept. Of a terminal:
    /// whatever the error of its tee is, as nobody sees what the child shows and asks.
    fn is_unwanted(&self, is_terminal: bool) -> bool {
        let only_counts = self.limit.is_some_and(|limit| limit.only_counts);
        let failed = self.tee.as_ref().and_then(|tee| tee.failed());
        only_counts && failed.is_some_and(|failed| is_terminal || failed.is_reader_gone())
    }

    /// Returns true if somebody watches the stream as it arrives.
    pub(super) fn is_watched(&self) -> bool {
        self.tee.is_some() || matches!(self.storage, Storage::Chunks { .. })
    }

    /// Returns what keeps both ends, if the limit asks for that: neither this nor a read has the bytes then.
    pub(super) fn ends(&self) -> Option<&dyn Ends> {
        self.ends.as_deref()
    }

    /// Returns the kept bytes, unless a read has them.
    pub(super) fn so_far(&self) -> &[u8] {
        &self.kept
    }

    /// Swaps the kept bytes with an empty buffer. Does nothing if a limit decides about them.
    pub(super) fn swap_kept(&mut self, buffer: &mut Vec<u8>) {
        if matches!(self.storage, Storage::All) && self.limit.is_none() {
            std::mem::swap(&mut self.kept, buffer);
        }
    }

    /// Lends a buffer with room to read into, which contains the kept bytes. The first buffer has no room: a read
    /// allocates it when there are bytes.
    fn lend(&mut self) -> io::Result<Vec<u8>> {
        if self.kept.capacity() == 0 {
            return Ok(Vec::new());
        }
        self.lend_with_room()
    }

    /// Lends a buffer with room, which contains the kept bytes.
    // One copy, as for `accept`.
    #[inline(never)]
    fn lend_with_room(&mut self) -> io::Result<Vec<u8>> {
        let mut buffer = std::mem::take(&mut self.kept);
        if buffer.capacity() >= HUGE_FROM_BYTES {
            memory::prefault_next(&mut buffer);
        }
        let (least, more) = self.room_for(&buffer);
        if buffer.capacity() - buffer.len() >= least {
            return Ok(buffer);
        }
        // A failed allocation must not abort the program: the child still has to be stopped.
        buffer.try_reserve_exact(more).map_err(|_| io::ErrorKind::OutOfMemory)?;
        if buffer.capacity() >= HUGE_FROM_BYTES {
            memory::advise_huge_pages(&mut buffer);
        }
        Ok(buffer)
    }

    /// Returns the room that the buffer needs at least, and the room to reserve if it has less.
    fn room_for(&self, buffer: &Vec<u8>) -> (usize, usize) {
        match (&self.storage, self.limit) {
            // It is emptied after each read.
            _ if self.ends.is_some() => (MIN_ROOM_BYTES, SCRATCH_BYTES),
            (Storage::Nothing | Storage::ForTee, _) => (MIN_ROOM_BYTES, SCRATCH_BYTES),
            // Twice the limit plus a chunk is the most that is ever needed.
            (Storage::All, Some(limit))
            | (_, Some(limit @ Limit { on_exceed: OnExceed::KeepTail, .. })) => {
                let most = limit.bytes.saturating_mul(2).saturating_add(SCRATCH_BYTES);
                let wanted = buffer.capacity().saturating_mul(2).max(FIRST_READ_BYTES).min(most);
                let more = wanted.saturating_sub(buffer.len()).max(MIN_ROOM_BYTES);
                (MIN_ROOM_BYTES, more)
            }
            (Storage::All, None) => (MIN_ROOM_BYTES, buffer.capacity().max(FIRST_READ_BYTES)),
            // The capacity doubles, so that a line of a gigabyte is not copied for each chunk.
            (Storage::Chunks { room_bytes, .. }, _) => {
                (room_bytes / 2, (*room_bytes).max(buffer.len()))
            }
        }
    }

    /// Takes the buffer back, with this many new bytes at its end.
    // Not inlined: each copy adds to the program's size.
    #[inline(never)]
    pub(super) fn accept(&mut self, mut buffer: Vec<u8>, new: usize) -> LimitCheck {
        self.total_bytes += new as u64;
        if matches!(self.storage, Storage::ForTee) {
            // All of it is for the tee, and nothing is kept.
            self.kept = buffer;
            return self.apply_limit(&mut Vec::new(), 0);
        }
        self.write_to_tee(&buffer[buffer.len() - new..]);
        let is_full = buffer.len() == buffer.capacity() || new >= MAX_ROOM_BYTES / 2;
        if let Some(ends) = &mut self.ends {
            ends.push(&buffer);
            buffer.clear();
        }
        let check = self.apply_limit(&mut buffer, new);
        match &mut self.storage {
            Storage::All | Storage::ForTee => {}
            Storage::Nothing => buffer.clear(),
            Storage::Chunks { has_new, room_bytes } => {
                *has_new = true;
                if is_full {
                    *room_bytes = room_bytes.saturating_mul(2).min(MAX_ROOM_BYTES);
                }
            }
        }
        self.kept = buffer;
        check
    }

    /// Writes new bytes to the tee, up to the limit that stops the child.
    fn write_to_tee(&mut self, new: &[u8]) {
        let fail_limit_bytes = self.fail_limit_bytes();
        let Some(tee) = &mut self.tee else { return };
        let passed = match fail_limit_bytes.filter(|_| !tee.takes_excess()) {
            Some(limit) => {
                let excess = self.total_bytes.saturating_sub(limit as u64);
                let excess = usize::try_from(excess).unwrap_or(new.len()).min(new.len());
                &new[..new.len() - excess]
            }
            None => new,
        };
        if !passed.is_empty() {
            tee.write(passed);
        }
    }

    fn apply_limit(&mut self, buffer: &mut Vec<u8>, new: usize) -> LimitCheck {
        let Some(Limit { bytes, on_exceed, .. }) = self.limit else { return LimitCheck::Within };
        if let OnExceed::KeepHeadAndTail(tail) = on_exceed {
            self.truncated |= self.total_bytes > bytes.saturating_add(tail) as u64;
            return LimitCheck::Within;
        }
        if on_exceed == OnExceed::KeepTail {
            if buffer.len() > bytes.saturating_mul(2) {
                self.keep_tail(buffer, bytes);
            }
            return LimitCheck::Within;
        }
        let excess = self.total_bytes.saturating_sub(bytes as u64);
        if excess == 0 {
            return LimitCheck::Within;
        }
        buffer.truncate(buffer.len() - new.min(usize::try_from(excess).unwrap_or(new)));
        self.truncated = true;
        if on_exceed == OnExceed::Fail { LimitCheck::Exceeded } else { LimitCheck::Within }
    }

    /// Takes back the buffer of a read without new bytes.
    pub(super) fn give_back(&mut self, buffer: Vec<u8>) {
        self.kept = buffer;
    }

    /// Returns the kept bytes and the counts.
    // Not inlined, as for `accept`.
    #[inline(never)]
    pub(super) fn finish(mut self) -> Collected {
        // Only after an error, or a run that nobody has stepped since.
        if let Some(mut late) = self.take_late() {
            late.call();
            self.done_late(late);
        }
        let mut kept = std::mem::take(&mut self.kept);
        if let Some(Limit { bytes, on_exceed: OnExceed::KeepTail, .. }) = self.limit {
            self.keep_tail(&mut kept, bytes);
        }
        if let Some(ends) = self.ends.take() {
            kept = self.finish_ends(ends);
        }
        Collected {
            kept,
            file: self.file,
            total_bytes: self.total_bytes,
            truncated: self.truncated,
            tee_failed: self.tee.and_then(|tee| tee.failed()).or(self.spill_failed),
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

/// A tee that is called between two steps of its run, and the bytes for it.
#[derive(Debug)]
pub(crate) struct LateTee {
    tee: Box<dyn Tee>,
    bytes: Vec<u8>,
    /// True if the stream has ended with these bytes.
    at_end: bool,
}

impl LateTee {
    pub(crate) fn call(&mut self) {
        if !self.bytes.is_empty() {
            self.tee.write(&self.bytes);
        }
        if self.at_end {
            self.tee.end();
        }
    }
}

/// The result of a sink.
#[derive(Debug, Default)]
pub(super) struct Collected {
    pub(super) kept: Vec<u8>,
    pub(super) file: Option<PathBuf>,
    pub(super) total_bytes: u64,
    pub(super) truncated: bool,
    pub(super) tee_failed: Option<TeeFailed>,
}

/// The delay after the start. A program takes about this long to load and to write anything, and a short one has exited
/// by then.
const AT_START: Duration = Duration::from_millis(1);
/// The first delay after a chunk that was not small. Each further delay is twice as long.
const FIRST: Duration = Duration::from_micros(100);
/// The longest delay. In this time a fast child writes less than a pipe holds, or the resulting chunk is not small.
const LONGEST: Duration = Duration::from_millis(1);
/// The size from which a chunk is not small: a quarter of a pipe.
const SMALL_BYTES: usize = 16 << 10;

/// The read delay of one run. It is common to both streams, because a wake-up costs the same for either.
#[derive(Debug, Default)]
pub(super) struct ReadCoalescer {
    length: Duration,
    until: Option<Instant>,
}

impl ReadCoalescer {
    /// Starts with a delay.
    pub(super) fn at_start(now: Instant) -> ReadCoalescer {
        ReadCoalescer { length: AT_START, until: Some(now + AT_START) }
    }

    /// Records a chunk of this length. If it filled its buffer, its length says nothing about the child. (A limit of a
    /// few bytes has a small buffer, and a delay after each chunk made a child that writes without pause a hundred
    /// times slower.)
    pub(super) fn note(&mut self, bytes: usize, filled_buffer: bool, now: Instant) {
        if bytes < SMALL_BYTES && !filled_buffer {
            self.length = (self.length * 2).clamp(FIRST, LONGEST);
            self.until = Some(now + self.length);
        } else {
            *self = ReadCoalescer::default();
        }
    }

    /// Returns the end of the current delay, if there is one.
    pub(super) fn until(&self) -> Option<Instant> {
        self.until
    }

    /// Ends the delay if its time is over.
    pub(super) fn expire(&mut self, now: Instant) {
        self.until = self.until.filter(|until| now < *until);
    }

    /// Ends the delay.
    pub(super) fn end(&mut self) {
        self.until = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Passes bytes through a sink in chunks of at most the given length.
    fn pass(mut sink: Sink, bytes: &[u8], chunk: usize) -> (Collected, LimitCheck, usize) {
        let mut check = LimitCheck::Within;
        let mut most_room = 0;
        for chunk in bytes.chunks(chunk) {
            let mut buffer = sink.lend().unwrap();
            let room = buffer.capacity() - buffer.len();
            assert!(room >= MIN_ROOM_BYTES.min(chunk.len()) || buffer.capacity() == 0);
            most_room = most_room.max(buffer.capacity());
            buffer.extend_from_slice(chunk);
            if sink.accept(buffer, chunk.len()) == LimitCheck::Exceeded {
                check = LimitCheck::Exceeded;
            }
        }
        (sink.finish(), check, most_room)
    }

    fn bytes(length: usize) -> Vec<u8> {
        (0..length).map(|i| (i * 7 + i / 256) as u8).collect()
    }

    #[test]
    fn every_limit_keeps_the_same_bytes_for_any_chunk_size() {
        let all = bytes(50_000);
        for limit in [0, 1, 4096, 49_999, 50_000, 60_000] {
            for chunk in [1, 7, 1000, 8192] {
                let kept = limit.min(all.len());
                let (tail, check, _) = pass(Sink::new(Some(Limit::keep_tail(limit))), &all, chunk);
                assert_eq!(tail.kept, all[all.len() - kept..]);
                assert_eq!((tail.truncated, check), (limit < all.len(), LimitCheck::Within));
                let (head, _, _) = pass(Sink::new(Some(Limit::keep_head(limit))), &all, chunk);
                assert_eq!(head.kept, all[..kept]);
                assert_eq!(head.total_bytes, all.len() as u64);
                let (_, check, _) = pass(Sink::new(Some(Limit::fail(limit))), &all, chunk);
                assert_eq!(check == LimitCheck::Exceeded, limit < all.len());
            }
        }
    }

    #[test]
    fn memory_stays_within_twice_the_limit_plus_a_chunk() {
        let all = bytes(4 << 20);
        for limit in [Limit::keep_tail(100_000), Limit::keep_head(100_000)] {
            let (_, _, room) = pass(Sink::new(Some(limit)), &all, MIN_ROOM_BYTES);
            assert!(room <= 2 * 100_000 + SCRATCH_BYTES, "{room}");
        }
        let (_, _, room) = pass(Sink::discarding(None), &all, MIN_ROOM_BYTES);
        assert!(room <= SCRATCH_BYTES, "{room}");
    }

    #[test]
    fn a_limit_that_only_counts_keeps_nothing_and_is_still_enforced() {
        let all = bytes(4 << 20);
        let limit = |bytes| Some(Limit::fail(bytes).count_only());
        let (done, check, room) = pass(Sink::new(limit(4 << 20)), &all, MIN_ROOM_BYTES);
        assert_eq!((done.kept.len(), done.total_bytes, check), (0, 4 << 20, LimitCheck::Within));
        assert!(room <= SCRATCH_BYTES, "{room}");
        let (_, check, _) = pass(Sink::new(limit((4 << 20) - 1)), &all, MIN_ROOM_BYTES);
        assert_eq!(check, LimitCheck::Exceeded);
    }

    #[test]
    fn an_absurd_limit_does_not_overflow() {
        for limit in [Limit::keep_tail(usize::MAX), Limit::keep_head(usize::MAX)] {
            let (all, _, _) = pass(Sink::new(Some(limit)), &bytes(100), 9);
            assert_eq!(all.kept, bytes(100));
        }
    }
}
