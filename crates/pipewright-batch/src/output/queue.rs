//! The queue of what is to be printed, and the thread that prints it.

use std::collections::{HashMap, VecDeque};
use std::io::{self, Write};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use std::{mem, thread};

use pipewright::Source;
use pipewright_os::base::service_thread;

use super::content::{BLOCK_BYTES, Buffer, Content, Extents, Memory, Spool};
use super::kept::{Kept, Record};
use super::options::{OutputError, OutputErrorKind};

/// The most bytes of a single write from memory.
const PIECE_BYTES: usize = 64 << 10;

/// The bytes of an item from which on another one is begun: its space in the file may be held until all of it is
/// printed.
const SPOOLED_BYTES: u64 = 8 << 20;

/// Bytes to print to one stream.
#[derive(Debug)]
pub(super) struct Item {
    pub(super) to: Source,
    pub(super) data: Data,
}

#[derive(Debug)]
pub(super) enum Data {
    Memory(Buffer),
    Spooled(Extents),
    /// It is beside the log.
    Kept(Record),
}

impl Item {
    /// Returns true if it is nowhere else.
    fn is_only_here(&self) -> bool {
        !matches!(self.data, Data::Kept(_))
    }

    /// Stores it beside the log.
    fn keep(&self, kept: &Kept) -> io::Result<Option<Record>> {
        // It has the lines of several jobs.
        const JOB: u64 = 0;
        let record = match &self.data {
            Data::Kept(_) => return Ok(None),
            Data::Memory(buffer) => {
                let bytes = buffer.bytes();
                kept.add(JOB, self.to, bytes.len() as u64, |write| write(bytes))
            }
            Data::Spooled(extents) => kept.add(JOB, self.to, extents.bytes(), |write| {
                extents.read(&mut vec![0; BLOCK_BYTES as usize], |read| write(read?))
            }),
        };
        record.map(Some)
    }
}

#[derive(Debug)]
pub(super) struct Queue {
    state: Mutex<State>,
    /// Raised for the thread that prints.
    filled: Condvar,
    /// Raised when that thread has ended.
    ended: Condvar,
    memory: Arc<Memory>,
    spool: Arc<Spool>,
    kept: Option<Arc<Kept>>,
    /// The most bytes of memory that the queue occupies.
    most_bytes: usize,
}

#[derive(Debug, Default)]
pub(super) struct State {
    pub(super) items: VecDeque<Arc<Item>>,
    /// The thread waits for an item, and has flushed what it has printed.
    #[cfg(test)]
    pub(super) is_idle: bool,
    /// The thread prints an item that is nowhere else.
    is_printing: bool,
    /// The item that is being printed, if there is a log, and its copy beside that.
    printing: Option<(Arc<Item>, Option<Record>)>,
    pub(super) memory_bytes: usize,
    /// True if nothing more is pushed.
    closed: bool,
    /// True once the thread has ended.
    pub(super) ended: bool,
    /// The streams that nothing more is printed to, stdout first.
    discards: [bool; 2],
    reader_gone: [bool; 2],
    failure: Option<OutputError>,
}

impl State {
    fn discards(&self, to: Source) -> bool {
        self.ended || self.discards[to as usize]
    }

    /// Returns the last item, unless somebody reads it.
    fn last(&mut self) -> Option<&mut Item> {
        self.items.back_mut().and_then(Arc::get_mut)
    }

    fn add(&mut self, to: Source, data: Data) {
        self.items.push_back(Arc::new(Item { to, data }));
    }

    /// Returns the last buffer, if it is for this stream.
    fn last_buffer(&mut self, to: Source) -> Option<&mut Buffer> {
        match self.last()? {
            Item { to: last, data: Data::Memory(buffer) } if *last == to => Some(buffer),
            _ => None,
        }
    }

    /// Adds to the last buffer. Returns false if that is not possible.
    fn extend_last(&mut self, to: Source, bytes: &[u8], most: usize) -> bool {
        if self.memory_bytes + PIECE_BYTES > most {
            return false;
        }
        let Some(buffer) = self.last_buffer(to) else { return false };
        let before = buffer.counted();
        if !buffer.try_extend(bytes, PIECE_BYTES) {
            return false;
        }
        let grown = buffer.counted() - before;
        self.memory_bytes += grown;
        true
    }

    fn push_buffer(&mut self, to: Source, buffer: Buffer) {
        self.memory_bytes += buffer.counted();
        self.add(to, Data::Memory(buffer));
    }

    fn push_extents(&mut self, to: Source, extents: Extents) {
        if extents.is_empty() {
            return;
        }
        match self.last() {
            Some(Item { to: last, data: Data::Spooled(list) })
                if *last == to && list.bytes() < SPOOLED_BYTES =>
            {
                list.append(extents);
            }
            _ => self.add(to, Data::Spooled(extents)),
        }
    }
}

impl Queue {
    pub(super) fn new(
        memory: &Arc<Memory>,
        spool: &Arc<Spool>,
        kept: Option<Arc<Kept>>,
        most_bytes: usize,
    ) -> Arc<Queue> {
        Arc::new(Queue {
            kept,
            state: Mutex::default(),
            filled: Condvar::new(),
            ended: Condvar::new(),
            memory: Arc::clone(memory),
            spool: Arc::clone(spool),
            most_bytes,
        })
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        // Each change is complete before anything can panic.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds stored output. It never fails: what the temporary file does not take stays in the memory that it has.
    pub(super) fn push(&self, to: Source, content: Content) {
        let mut state = self.lock();
        if state.discards(to) {
            return;
        }
        self.push_content(&mut state, to, content);
        drop(state);
        self.filled.notify_one();
    }

    /// Adds output that is in the temporary file.
    pub(super) fn push_extents(&self, to: Source, extents: Extents) {
        let mut state = self.lock();
        if state.discards(to) {
            return;
        }
        state.push_extents(to, extents);
        drop(state);
        self.filled.notify_one();
    }

    /// Adds output that is beside the log.
    pub(super) fn push_kept(&self, record: Record) {
        let mut state = self.lock();
        let to = record.source;
        // What is not printed stays there.
        if !state.discards(to) {
            state.add(to, Data::Kept(record));
        }
        drop(state);
        self.filled.notify_one();
    }

    /// Notes that kept output was printed.
    pub(super) fn handed_over(&self, record: &Record) {
        if let Some(kept) = &self.kept {
            kept.handed_over(record);
        }
    }

    /// Stores beside the log what waits to be printed, and is nowhere else: the log is about to say that its job has
    /// ended.
    ///
    /// An error is ignored: it is printed from here.
    pub(super) fn keep(&self) {
        let Some(kept) = &self.kept else { return };
        let state = self.lock();
        let printing = state.printing.iter().filter(|(_, copy)| copy.is_none());
        let items = printing.map(|(item, _)| item).chain(&state.items);
        let items: Vec<_> = items.filter(|item| item.is_only_here()).cloned().collect();
        drop(state);
        let mut copies = HashMap::new();
        for item in &items {
            let Ok(Some(copy)) = item.keep(kept) else { break };
            copies.insert(Arc::as_ptr(item), copy);
        }
        if copies.is_empty() {
            return;
        }
        let mut state = self.lock();
        if let Some((item, copy)) = &mut state.printing {
            if let Some(record) = copies.remove(&Arc::as_ptr(item)) {
                *copy = Some(record);
            }
        }
        let State { items: waiting, memory_bytes, .. } = &mut *state;
        for item in waiting {
            let Some(record) = copies.remove(&Arc::as_ptr(item)) else { continue };
            if let Data::Memory(buffer) = &item.data {
                *memory_bytes -= buffer.counted();
            }
            *item = Arc::new(Item { to: item.to, data: Data::Kept(record) });
        }
        drop(state);
        // These were printed meanwhile.
        copies.values().for_each(|record| kept.handed_over(record));
    }

    /// Keeps what has not been printed beside the log, if there is one. Returns false if it is lost.
    pub(super) fn keep_rest(&self) -> bool {
        let mut state = self.lock();
        state.discards = [true; 2];
        state.memory_bytes = 0;
        let mut rest = mem::take(&mut state.items);
        let mut is_kept = !state.is_printing || state.printing.is_some();
        // It is not whole, for what the reader knows. A copy stays.
        if let Some((item, None)) = state.printing.take() {
            rest.push_front(item);
        }
        drop(state);
        for item in rest.iter().filter(|item| item.is_only_here()) {
            is_kept &= self.kept.as_ref().is_some_and(|kept| item.keep(kept).is_ok());
        }
        is_kept
    }

    fn push_content(&self, state: &mut State, to: Source, content: Content) {
        let (extents, buffer) = content.into_parts();
        state.push_extents(to, extents);
        if buffer.is_empty() || state.extend_last(to, buffer.bytes(), self.most_bytes) {
            return;
        }
        if state.memory_bytes + buffer.counted() > self.most_bytes {
            // An error is ignored: the bytes stay in memory, where they are counted.
            if let Ok(extents) = self.spool.append_shared(buffer.bytes()) {
                return state.push_extents(to, extents);
            }
        }
        state.push_buffer(to, buffer);
    }

    /// Adds lines: stored output, and the bytes that come directly after it, which end with a line end.
    ///
    /// # Errors
    /// The temporary file cannot take the rest. The part that was added ends with a line end.
    pub(super) fn push_lines(
        &self,
        to: Source,
        content: Option<Content>,
        bytes: &[u8],
    ) -> io::Result<()> {
        let mut state = self.lock();
        if state.discards(to) {
            return Ok(());
        }
        let mut is_cut = content.is_some();
        if let Some(content) = content {
            self.push_content(&mut state, to, content);
        }
        let mut pushed = Ok(());
        for piece in bytes.chunks(PIECE_BYTES) {
            pushed = self.push_piece(&mut state, to, piece);
            if pushed.is_err() {
                break;
            }
            is_cut = !piece.ends_with(b"\n");
        }
        if pushed.is_err() && is_cut {
            let mut end = Buffer::new(&self.memory);
            end.end_line();
            state.push_buffer(to, end);
        }
        drop(state);
        self.filled.notify_one();
        pushed
    }

    fn push_piece(&self, state: &mut State, to: Source, piece: &[u8]) -> io::Result<()> {
        if state.extend_last(to, piece, self.most_bytes) {
            return Ok(());
        }
        let mut buffer = Buffer::new(&self.memory);
        let fits = state.memory_bytes + PIECE_BYTES <= self.most_bytes;
        if fits && buffer.try_extend(piece, PIECE_BYTES) {
            state.push_buffer(to, buffer);
            return Ok(());
        }
        let extents = self.spool.append_shared(piece)?;
        state.push_extents(to, extents);
        Ok(())
    }

    /// Waits for the next item, and removes it. The one before was printed. Returns `None` if there will be none. Calls
    /// `idle` before it waits.
    pub(super) fn next(&self, mut idle: impl FnMut()) -> Option<Arc<Item>> {
        let mut state = self.lock();
        let mut was_idle = false;
        if let Some((item, Some(copy))) = state.printing.take() {
            if !state.discards(item.to) {
                drop(state);
                self.handed_over(&copy);
                state = self.lock();
            }
        }
        loop {
            state.is_printing = false;
            if let Some(item) = state.items.pop_front() {
                state.is_printing = item.is_only_here();
                if state.is_printing && self.kept.is_some() {
                    state.printing = Some((Arc::clone(&item), None));
                }
                if let Data::Memory(buffer) = &item.data {
                    state.memory_bytes -= buffer.counted();
                }
                return Some(item);
            }
            if !mem::replace(&mut was_idle, true) {
                drop(state);
                idle();
                state = self.lock();
                continue;
            }
            if state.closed {
                return None;
            }
            #[cfg(test)]
            (state.is_idle = true);
            state = self.filled.wait(state).unwrap_or_else(PoisonError::into_inner);
            #[cfg(test)]
            (state.is_idle = false);
            was_idle = false;
        }
    }

    /// Returns true if nothing more is printed to the stream.
    pub(super) fn discards(&self, to: Source) -> bool {
        self.lock().discards(to)
    }

    /// Records the failure of a write, after which the stream is discarded.
    pub(super) fn note_failed_write(&self, to: Source, error: io::Error) {
        let mut state = self.lock();
        state.discards[to as usize] = true;
        if error.kind() == io::ErrorKind::BrokenPipe {
            state.reader_gone[to as usize] = true;
        } else {
            let error = OutputError::new(OutputErrorKind::Print(to), error);
            state.failure.get_or_insert(error);
        }
    }

    /// Records that part of the output cannot be read back.
    pub(super) fn note_failed_read(&self, to: Source, error: io::Error) {
        let error = OutputError::new(OutputErrorKind::ReadBack(to), error);
        self.lock().failure.get_or_insert(error);
    }

    /// Records the end of the thread. The rest is dropped.
    pub(super) fn note_end(&self, panicked: bool) {
        let mut state = self.lock();
        state.ended = true;
        if panicked {
            let panic = io::Error::other("the writer panicked");
            state.failure.get_or_insert(OutputError::new(OutputErrorKind::Thread, panic));
        }
        let rest = mem::take(&mut state.items);
        drop(state);
        drop(rest);
        self.ended.notify_all();
    }

    pub(super) fn is_reader_gone(&self, stream: Source) -> bool {
        self.lock().reader_gone[stream as usize]
    }

    pub(super) fn failure(&self) -> Option<OutputError> {
        self.lock().failure.clone()
    }

    /// Ends the queue: the thread ends when it has printed the rest.
    pub(super) fn close(&self) {
        self.lock().closed = true;
        self.filled.notify_one();
    }

    /// Drops everything that has not been printed.
    pub(super) fn discard_rest(&self) {
        let mut state = self.lock();
        state.discards = [true; 2];
        state.memory_bytes = 0;
        let rest = mem::take(&mut state.items);
        drop(state);
        drop(rest);
    }

    /// Waits until the thread has ended, but no longer than `until`. Returns true if it has.
    pub(super) fn wait_for_end(&self, until: Option<Instant>) -> bool {
        let mut state = self.lock();
        while !state.ended {
            let Some(until) = until else {
                state = self.ended.wait(state).unwrap_or_else(PoisonError::into_inner);
                continue;
            };
            let rest = until.saturating_duration_since(Instant::now());
            if rest.is_zero() {
                return false;
            }
            let waited = self.ended.wait_timeout(state, rest);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        true
    }
}

// A piece has to fit into a block.
const _: () = assert!(PIECE_BYTES as u64 <= BLOCK_BYTES);

// The thread that prints. It alone writes to stdout and stderr, so that a slow reader delays nothing else.

/// The pause before a write is tried again, if another program has made our stream non-blocking.
const RETRY_PAUSE: Duration = Duration::from_millis(10);

/// Wakes the driver.
pub(crate) type Waker = Box<dyn Fn() + Send + Sync>;

/// The streams to print to.
struct Streams<O, E> {
    stdout: O,
    stderr: E,
}

impl<O: Write, E: Write> Streams<O, E> {
    fn stream(&mut self, to: Source) -> &mut dyn Write {
        match to {
            Source::Stdout => &mut self.stdout,
            Source::Stderr => &mut self.stderr,
        }
    }
}

/// Records the end of the thread, also after a panic of a writer.
struct End(Arc<Queue>);

impl Drop for End {
    fn drop(&mut self) {
        self.0.note_end(thread::panicking());
    }
}

/// Starts the thread.
pub(super) fn start_writer(
    queue: Arc<Queue>,
    stdout: impl Write + Send + 'static,
    stderr: impl Write + Send + 'static,
    waker: Waker,
) -> Result<(), OutputError> {
    let print = move || {
        let end = End(queue);
        print_all(&end.0, Streams { stdout, stderr }, &waker);
    };
    service_thread::start_with_default_stack(c"output", print)
        .map_err(|error| OutputError::new(OutputErrorKind::Thread, error))
}

fn print_all(queue: &Queue, mut streams: Streams<impl Write, impl Write>, waker: &Waker) {
    let mut block = vec![0; BLOCK_BYTES as usize];
    // The streams with bytes that their writers may hold back, stdout first.
    let mut unflushed = [false; 2];
    loop {
        let next = queue.next(|| {
            for to in [Source::Stdout, Source::Stderr] {
                flush(&mut streams, &mut unflushed, to, queue, waker);
            }
        });
        let Some(item) = next else { return };
        let to = item.to;
        // Both may be one terminal: the order is that of the calls.
        let other = if to == Source::Stdout { Source::Stderr } else { Source::Stdout };
        flush(&mut streams, &mut unflushed, other, queue, waker);
        unflushed[to as usize] = true;
        if queue.discards(to) {
            continue;
        }
        let mut print = |read: io::Result<&[u8]>| {
            match read {
                Ok(bytes) => {
                    let written = write_all(streams.stream(to), bytes, || queue.discards(to));
                    note(written, queue, to, waker);
                }
                Err(error) => {
                    queue.note_failed_read(to, error);
                    waker();
                }
            }
            // The rest is dropped.
            if queue.discards(to) { Err(()) } else { Ok(()) }
        };
        match Arc::try_unwrap(item) {
            Ok(Item { data: Data::Kept(record), .. }) => {
                let printed = record.read(&mut block, |read| {
                    let is_whole = read.is_ok();
                    print(read).and(if is_whole { Ok(()) } else { Err(()) })
                });
                flush(&mut streams, &mut unflushed, to, queue, waker);
                if printed.is_ok() && !queue.discards(to) {
                    queue.handed_over(&record);
                }
            }
            Ok(Item { data: Data::Memory(buffer), .. }) => drop(print(Ok(buffer.bytes()))),
            Ok(Item { data: Data::Spooled(extents), .. }) => drop(extents.drain(&mut block, print)),
            // It is copied beside the log meanwhile, or may be.
            Err(item) => {
                match &item.data {
                    Data::Memory(buffer) => drop(print(Ok(buffer.bytes()))),
                    Data::Spooled(extents) => drop(extents.read(&mut block, print)),
                    Data::Kept(_) => {}
                }
                flush(&mut streams, &mut unflushed, to, queue, waker);
            }
        }
    }
}

/// Flushes a stream, if its writer may hold bytes back.
fn flush(
    streams: &mut Streams<impl Write, impl Write>,
    unflushed: &mut [bool; 2],
    to: Source,
    queue: &Queue,
    waker: &Waker,
) {
    if mem::take(&mut unflushed[to as usize]) && !queue.discards(to) {
        note(streams.stream(to).flush(), queue, to, waker);
    }
}

/// Records a failed write, and wakes the driver.
fn note(result: io::Result<()>, queue: &Queue, to: Source, waker: &Waker) {
    if let Err(error) = result {
        queue.note_failed_write(to, error);
        waker();
    }
}

/// Writes all bytes, or stops early if they are no longer wanted.
fn write_all(to: &mut dyn Write, bytes: &[u8], unwanted: impl Fn() -> bool) -> io::Result<()> {
    let mut rest = bytes;
    while !rest.is_empty() {
        match to.write(rest) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(count) => rest = rest.get(count..).unwrap_or_default(),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                if unwanted() {
                    return Ok(());
                }
                thread::park_timeout(RETRY_PAUSE);
            }
            Err(error) => return Err(error),
        }
    }
    Ok(())
}
