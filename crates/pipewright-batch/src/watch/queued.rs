//! A file whose reader may stand still, such as a terminal after Ctrl-S or a full pipe: another thread writes to it.
//!
//! The driver writes reports between two looks at timeouts and signals, so it never waits for a reader. What a reader
//! has not taken waits in memory, and beyond that in a temporary file.

use std::ffi::CStr;
use std::fs::File;
use std::io::{self, Read as _, Seek, SeekFrom, Write};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use std::{fmt, thread};

use pipewright_os::base::late_open::LateOpen;
use pipewright_os::base::{private_file, service_thread};

use super::monitor::Monitor;

/// The bytes that wait in memory. More wait in a temporary file.
const MOST_MEMORY_BYTES: usize = 1 << 20;

/// The most bytes of one write from the temporary file.
const PIECE_BYTES: u64 = 64 << 10;

/// The pause before a write is tried again, if another program has made our stream non-blocking.
const RETRY_PAUSE: Duration = Duration::from_millis(10);

/// A writer that never waits for the reader of its file. Copies write to the same file.
#[derive(Debug, Clone)]
pub(crate) struct QueuedFile(Way);

#[derive(Debug, Clone)]
enum Way {
    /// A regular file, which has no reader to wait for.
    Direct(Arc<File>),
    Queued(Arc<Queue>),
}

/// The writers' side of a queue. Its end is the end of the thread, once everything is written.
struct Queue {
    shared: Arc<Monitor<State>>,
    /// The file, until the first write starts the thread.
    file: Mutex<Option<Box<dyn Write + Send>>>,
    /// The open of the file, if it may wait.
    open: Option<Arc<LateOpen>>,
}

/// A file that may still be opened: a named pipe has no reader yet.
struct Opening {
    open: Arc<LateOpen>,
    file: Option<File>,
}

impl Write for Opening {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let file = match &mut self.file {
            Some(file) => file,
            none => none.insert(self.open.wait(None).unwrap_or_else(|| Err(nobody_reads()))?),
        };
        file.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Returns the error of a reader that took nothing in time.
pub(super) fn nobody_reads() -> io::Error {
    io::Error::new(io::ErrorKind::TimedOut, "its reader did not take it in time")
}

#[derive(Debug, Default)]
struct State {
    /// The oldest bytes.
    memory: Vec<u8>,
    /// The bytes after them.
    spool: Option<Spool>,
    /// The thread writes bytes that it has taken.
    is_writing: bool,
    /// Nothing more comes.
    is_closed: bool,
    /// The first error. Nothing is written after it.
    error: Option<io::Error>,
}

/// A temporary file whose bytes are written once and read once.
#[derive(Debug)]
struct Spool {
    file: File,
    written: u64,
    read: u64,
}

impl QueuedFile {
    /// Returns a writer to the file of a report.
    pub(crate) fn of_file(file: File) -> QueuedFile {
        match file.metadata() {
            Ok(metadata) if metadata.is_file() => QueuedFile(Way::Direct(Arc::new(file))),
            _ => QueuedFile::new(file),
        }
    }

    /// Empties the file of a report, which [`private_file::open_as_it_is`] has opened.
    ///
    /// # Errors
    /// The error of the system.
    pub(crate) fn empty(&self, is_private: bool) -> io::Result<()> {
        match &self.0 {
            Way::Direct(file) => private_file::empty(file, is_private),
            Way::Queued(_) => Ok(()),
        }
    }

    /// Returns a writer to any stream.
    pub(crate) fn new(stream: impl Write + Send + 'static) -> QueuedFile {
        QueuedFile::of(stream, None)
    }

    /// Returns a writer to a named pipe, which is opened once it has a reader.
    ///
    /// # Errors
    /// The system cannot start another thread.
    pub(crate) fn of_pipe(path: &Path, is_private: bool) -> io::Result<QueuedFile> {
        let create = move |path: &Path| private_file::create(path, is_private);
        let open = Arc::new(LateOpen::start_with(path, create, || {})?);
        Ok(QueuedFile::of(Opening { open: Arc::clone(&open), file: None }, Some(open)))
    }

    fn of(stream: impl Write + Send + 'static, open: Option<Arc<LateOpen>>) -> QueuedFile {
        let (shared, file) = (Arc::default(), Mutex::new(Some(Box::new(stream) as Box<_>)));
        QueuedFile(Way::Queued(Arc::new(Queue { shared, file, open })))
    }

    /// Returns true if nothing waits for the reader.
    pub(crate) fn is_idle(&self) -> bool {
        match &self.0 {
            Way::Direct(_) => true,
            Way::Queued(queue) => queue.shared.lock().is_idle(),
        }
    }

    /// Waits until the reader has taken everything. Only for a thread that nothing waits for, and for the end.
    ///
    /// # Errors
    /// The first error of a write. Everything after it is lost. Or no thread can be started.
    pub(crate) fn wait_until_written(&self) -> io::Result<()> {
        self.wait_within(None)
    }

    /// Waits until the reader has taken everything, but no longer than until that time.
    ///
    /// # Errors
    /// As [`wait_until_written`](Self::wait_until_written), or the time has passed.
    pub(crate) fn wait_within(&self, until: Option<Instant>) -> io::Result<()> {
        let Way::Queued(queue) = &self.0 else { return Ok(()) };
        if !queue.shared.lock().is_idle() {
            queue.start_with(service_thread::start)?;
        }
        let waits = |state: &mut State| !state.is_idle() && state.error.is_none();
        let state = queue.shared.lock_while(until, waits);
        match &state.error {
            Some(error) => Err(copy_of(error)),
            None if state.is_idle() => Ok(()),
            None => Err(nobody_reads()),
        }
    }
}

impl Write for QueuedFile {
    /// Takes all bytes.
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match &self.0 {
            Way::Direct(file) => (&**file).write(bytes),
            Way::Queued(queue) => queue.add(bytes).map(|()| bytes.len()),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Seek for QueuedFile {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        match &self.0 {
            Way::Direct(file) => (&**file).seek(to),
            Way::Queued(_) => Err(io::ErrorKind::NotSeekable.into()),
        }
    }
}

/// Starts a thread of that name.
type StartThread = fn(&'static CStr, Box<dyn FnOnce() + Send>) -> io::Result<()>;

impl Queue {
    fn add(&self, bytes: &[u8]) -> io::Result<()> {
        // An error is ignored: the next write tries again, and the end does.
        let _ = self.start_with(service_thread::start);
        self.shared.lock().add(bytes)?;
        self.shared.notify();
        Ok(())
    }

    /// Starts the thread, unless it was started. Without room for one, the file stays here.
    fn start_with(&self, start: StartThread) -> io::Result<()> {
        let mut waiting = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(file) = waiting.take() else { return Ok(()) };
        let file = Arc::new(Mutex::new(Some(file)));
        let take =
            |file: &Mutex<Option<_>>| file.lock().unwrap_or_else(PoisonError::into_inner).take();
        let (shared, of_thread) = (Arc::clone(&self.shared), Arc::clone(&file));
        let work = move || take(&of_thread).into_iter().for_each(|it| shared.write_all_to(it));
        let started = start(c"reports", Box::new(work));
        if started.is_err() {
            *waiting = take(&file);
        }
        started
    }
}

impl Drop for Queue {
    fn drop(&mut self) {
        // Nobody would see that it has got a reader.
        self.open.iter().for_each(|open| open.give_up());
        self.shared.lock().is_closed = true;
        self.shared.notify();
    }
}

impl Monitor<State> {
    /// Writes what comes, until nothing more does. The work of the thread.
    fn write_all_to(&self, mut file: Box<dyn Write + Send>) {
        loop {
            let mut state = self.lock_while(None, |state| state.is_empty() && !state.is_closed);
            if state.is_empty() {
                return;
            }
            let taken = state.take().unwrap_or_else(|error| state.fail(error));
            state.is_writing = true;
            drop(state);
            let written = write_whole(&mut *file, &taken);
            let mut state = self.lock();
            state.is_writing = false;
            if let Err(error) = written {
                state.fail(error);
            }
            drop(state);
            self.notify();
        }
    }
}

impl State {
    /// Returns true if no bytes wait.
    fn is_empty(&self) -> bool {
        self.memory.is_empty() && self.spool.is_none()
    }

    fn is_idle(&self) -> bool {
        !self.is_writing && self.is_empty()
    }

    fn add(&mut self, bytes: &[u8]) -> io::Result<()> {
        if let Some(error) = &self.error {
            return Err(copy_of(error));
        }
        if self.spool.is_none() && self.memory.len() + bytes.len() <= MOST_MEMORY_BYTES {
            self.memory.extend_from_slice(bytes);
            return Ok(());
        }
        let spool = match &mut self.spool {
            Some(spool) => spool,
            none => none.insert(Spool { file: tempfile::tempfile()?, written: 0, read: 0 }),
        };
        spool.file.seek(SeekFrom::Start(spool.written))?;
        spool.file.write_all(bytes)?;
        spool.written += bytes.len() as u64;
        Ok(())
    }

    /// Takes the oldest bytes.
    fn take(&mut self) -> io::Result<Vec<u8>> {
        if !self.memory.is_empty() {
            return Ok(std::mem::take(&mut self.memory));
        }
        let Some(spool) = &mut self.spool else { return Ok(Vec::new()) };
        let mut piece = Vec::new();
        spool.file.seek(SeekFrom::Start(spool.read))?;
        let most = PIECE_BYTES.min(spool.written - spool.read);
        (&spool.file).take(most).read_to_end(&mut piece)?;
        spool.read += piece.len() as u64;
        if spool.read >= spool.written || piece.is_empty() {
            self.spool = None;
        }
        Ok(piece)
    }

    /// Keeps the first error, and forgets what waits. Returns nothing to write.
    fn fail(&mut self, error: io::Error) -> Vec<u8> {
        self.error.get_or_insert(error);
        self.memory = Vec::new();
        self.spool = None;
        Vec::new()
    }
}

impl fmt::Debug for Queue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Queue").field("shared", &self.shared).finish_non_exhaustive()
    }
}

fn write_whole(file: &mut dyn Write, bytes: &[u8]) -> io::Result<()> {
    let mut rest = bytes;
    while !rest.is_empty() {
        match file.write(rest) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(count) => rest = rest.get(count..).unwrap_or_default(),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                thread::park_timeout(RETRY_PAUSE);
            }
            Err(error) => return Err(error),
        }
    }
    file.flush()
}

/// Returns the same error once more.
fn copy_of(error: &io::Error) -> io::Error {
    match error.raw_os_error() {
        Some(code) => io::Error::from_raw_os_error(code),
        None => error.kind().into(),
    }
}

// A buffer for a file whose pieces are whole: what could not be written is written first the next time.

/// Bytes that are kept while the file cannot be written. Later pieces are dropped, each as a whole.
const MOST_KEPT_BYTES: usize = 1 << 20;

/// Bytes after which a piece is written without waiting for a flush.
const WRITE_BYTES: usize = 64 << 10;

/// A writer of whole pieces.
#[derive(Debug)]
pub(super) struct Pieces<W> {
    pub(super) writer: W,
    pending: Vec<u8>,
    dropped: u64,
    error: Option<io::Error>,
    /// The place of the closing, if the file has it.
    closed_at: Option<u64>,
}

impl<W: Write> Pieces<W> {
    pub(super) fn new(writer: W) -> Pieces<W> {
        Pieces { writer, pending: Vec::new(), dropped: 0, error: None, closed_at: None }
    }

    /// Adds a piece, or drops it if too much is waiting.
    pub(super) fn add(&mut self, piece: &[u8]) {
        if self.pending.len() + piece.len() > MOST_KEPT_BYTES && !self.pending.is_empty() {
            self.flush();
            if !self.pending.is_empty() {
                self.dropped += 1;
                return;
            }
        }
        self.pending.extend_from_slice(piece);
        if self.pending.len() >= WRITE_BYTES && self.error.is_none() {
            self.flush();
        }
    }

    /// Writes what waits and can be written now.
    pub(super) fn flush(&mut self) {
        let mut written = 0;
        while let Some(rest) = self.pending.get(written..).filter(|rest| !rest.is_empty()) {
            match self.writer.write(rest) {
                Ok(0) => self.keep(io::ErrorKind::WriteZero.into()),
                Ok(count) => {
                    written += count;
                    continue;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => self.keep(error),
            }
            break;
        }
        self.pending.drain(..written.min(self.pending.len()));
        if self.pending.is_empty() && self.dropped == 0 {
            // Nothing is missing, whatever happened before.
            self.error = None;
        }
        if let Err(error) = self.writer.flush() {
            self.keep(error);
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.pending.is_empty()
    }

    /// Keeps the first error.
    pub(super) fn keep(&mut self, error: io::Error) {
        self.error.get_or_insert(error);
    }

    /// Writes the rest.
    ///
    /// # Errors
    /// Something is missing in the file: the first error of a write.
    pub(super) fn finish(&mut self) -> io::Result<()> {
        self.flush();
        self.error.take().map_or(Ok(()), Err)
    }
}

/// A file that is whole after each flush, also if the batch is killed later: it is closed, and the next piece
/// overwrites the closing. A file that cannot seek (a pipe) is closed at its end only.
impl<W: Write + Seek> Pieces<W> {
    /// Goes back to before the closing.
    pub(super) fn reopen(&mut self) {
        let Some(end) = self.closed_at.take() else { return };
        if let Err(error) = self.writer.seek(SeekFrom::Start(end)) {
            self.keep(error);
        }
    }

    /// Writes what waits, and closes the file.
    pub(super) fn flush_closed(&mut self, close: impl FnOnce(&mut W) -> io::Result<()>) {
        // What was written because it was much has no closing yet.
        if self.pending.is_empty() && self.closed_at.is_some() {
            return;
        }
        self.flush();
        // A disk that is full has an open end, where the next piece goes on.
        let end = self.writer.stream_position().ok().filter(|_| self.pending.is_empty());
        self.closed_at = end;
        if end.is_some() && close(&mut self.writer).is_err() {
            self.reopen();
        }
    }

    /// Writes the rest, and closes the file.
    pub(super) fn finish_closed(
        &mut self,
        close: impl FnOnce(&mut W) -> io::Result<()>,
    ) -> io::Result<()> {
        self.finish()?;
        if self.closed_at.is_none() { close(&mut self.writer) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{Receiver, Sender, channel};

    use super::*;

    /// A stream whose reader takes one write for each permit.
    struct Slow {
        permits: Receiver<()>,
        taken: Sender<Vec<u8>>,
    }

    impl Write for Slow {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.permits.recv().map_err(|_| io::Error::from(io::ErrorKind::BrokenPipe))?;
            let count = bytes.len().min(300_000);
            self.taken.send(bytes[..count].to_vec()).unwrap();
            Ok(count)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn slow() -> (QueuedFile, Sender<()>, Receiver<Vec<u8>>) {
        let ((permit, permits), (taken, takes)) = (channel(), channel());
        (QueuedFile::new(Slow { permits, taken }), permit, takes)
    }

    fn lines(count: u32) -> Vec<Vec<u8>> {
        (0..count).map(|number| format!("{number:0>999}\n").into_bytes()).collect()
    }

    #[test]
    fn a_reader_that_stands_still_holds_nobody_up_and_gets_everything_in_order() {
        let (mut file, permit, takes) = slow();
        assert!(file.is_idle());
        let lines = lines(5_000);
        for line in &lines {
            file.write_all(line).unwrap();
        }
        assert!(!file.is_idle());
        let Way::Queued(queue) = &file.0 else { panic!("a stream that may wait") };
        let state = queue.shared.lock();
        assert!(state.memory.len() <= MOST_MEMORY_BYTES && state.spool.is_some());
        drop(state);
        for _ in 0..10_000 {
            permit.send(()).unwrap();
        }
        file.wait_until_written().unwrap();
        assert!(file.is_idle());
        let mut taken = Vec::new();
        while let Ok(bytes) = takes.try_recv() {
            taken.extend(bytes);
        }
        assert!(taken == lines.concat());
    }

    #[test]
    fn without_room_for_the_thread_what_is_written_waits_for_it() {
        let (mut file, permit, takes) = slow();
        let Way::Queued(queue) = &file.0 else { panic!("a stream that may wait") };
        let no_room = queue.start_with(|_, _| Err(io::ErrorKind::WouldBlock.into()));
        assert_eq!(no_room.unwrap_err().kind(), io::ErrorKind::WouldBlock);
        queue.shared.lock().add(b"first ").unwrap();
        file.write_all(b"last").unwrap();
        permit.send(()).unwrap();
        permit.send(()).unwrap();
        file.wait_until_written().unwrap();
        drop(file);
        assert_eq!(takes.iter().collect::<Vec<_>>().concat(), b"first last");
    }

    #[test]
    fn an_error_of_the_thread_is_told_to_the_next_writer() {
        let (mut file, permit, _takes) = slow();
        drop(permit);
        file.write_all(b"lost").unwrap();
        assert_eq!(file.wait_until_written().unwrap_err().kind(), io::ErrorKind::BrokenPipe);
        assert_eq!(file.write_all(b"more").unwrap_err().kind(), io::ErrorKind::BrokenPipe);
        assert!(file.is_idle());
    }

    #[test]
    fn what_was_written_before_the_last_writer_went_arrives() {
        let (mut file, permit, takes) = slow();
        file.write_all(b"last words").unwrap();
        drop(file);
        permit.send(()).unwrap();
        assert_eq!(takes.recv().unwrap(), b"last words");
    }

    /// A file on a disk with room for that many bytes.
    #[derive(Debug, Default)]
    struct Disk {
        room: usize,
        text: Vec<u8>,
    }

    impl Write for Disk {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let count = bytes.len().min(self.room);
            if count == 0 {
                return Err(io::ErrorKind::StorageFull.into());
            }
            self.room -= count;
            self.text.extend_from_slice(&bytes[..count]);
            Ok(count)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_disk_that_is_full_for_a_while_loses_nothing() {
        let mut pieces = Pieces::new(Disk { room: 7, ..Disk::default() });
        pieces.add(b"first\n");
        pieces.add(b"second\n");
        pieces.flush();
        assert_eq!(pieces.writer.text, b"first\ns");
        pieces.writer.room = 100;
        pieces.add(b"third\n");
        pieces.finish().unwrap();
        assert_eq!(pieces.writer.text, b"first\nsecond\nthird\n");
    }

    #[test]
    fn a_file_is_closed_though_nothing_waits_any_more() {
        let mut pieces = Pieces::new(io::Cursor::new(Vec::new()));
        let close = |writer: &mut io::Cursor<Vec<u8>>| writer.write_all(b"]");
        pieces.add(&[b'x'; WRITE_BYTES]);
        assert!(pieces.is_empty(), "it was written at once");
        pieces.flush_closed(close);
        pieces.flush_closed(close);
        let text = pieces.writer.get_ref();
        assert!(text.len() == WRITE_BYTES + 1 && text.ends_with(b"x]"));
    }

    #[test]
    fn memory_is_bounded_and_lines_stay_whole_while_the_disk_is_full() {
        let mut pieces = Pieces::new(Disk { room: 3, ..Disk::default() });
        let line = [&[b'x'; 999][..], b"\n"].concat();
        for _ in 0..5_000 {
            pieces.add(&line);
        }
        assert!(pieces.pending.len() <= MOST_KEPT_BYTES);
        pieces.writer.room = usize::MAX;
        assert_eq!(pieces.finish().unwrap_err().kind(), io::ErrorKind::StorageFull);
        let text = &pieces.writer.text;
        assert!(
            text.len() > 1_000_000
                && text.split_inclusive(|byte| *byte == b'\n').all(|it| it == line)
        );
    }
}
