//! Input for a child's stdin, and how much of it has been written.

use std::fmt;
use std::io::{self, Read};
use std::sync::Arc;

use pipewright_os::base::pipe::{PipeReader, PipeWriter};
use pipewright_os::base::wait::Slot;

/// The bytes that are read from a reader at a time: as much as a pipe holds.
const CHUNK_BYTES: usize = 64 << 10;

/// Input on its way to a child.
pub(crate) struct Feed {
    pipe: Option<PipeWriter>,
    /// A second handle on the child's end: what it has left there when it ends can only be asked
    /// for while somebody holds the pipe. It keeps nobody waiting: the end of the child ends the
    /// feed.
    theirs: Option<PipeReader>,
    /// The bytes being written, and how many of them are.
    bytes: Arc<Vec<u8>>,
    written: usize,
    /// The source of more bytes when these are written.
    reader: Option<Box<dyn Read + Send>>,
}

impl Feed {
    pub(crate) fn bytes(pipe: PipeWriter, theirs: PipeReader, bytes: Arc<Vec<u8>>) -> Feed {
        Feed { pipe: Some(pipe), theirs: Some(theirs), bytes, written: 0, reader: None }
    }

    pub(crate) fn reader(
        pipe: PipeWriter,
        theirs: PipeReader,
        reader: Box<dyn Read + Send>,
    ) -> Feed {
        let feed = Feed::bytes(pipe, theirs, Arc::default());
        Feed { reader: Some(reader), ..feed }
    }

    /// Returns the next write; [`Slot::Off`]: everything is written. The pipe is then closed, so that
    /// the child sees the end of its input.
    pub(crate) fn next(&mut self) -> io::Result<Slot<'static>> {
        if self.written == self.bytes.len() && self.pipe.is_some() {
            self.refill()?;
        }
        if self.written == self.bytes.len() {
            self.pipe = None;
        }
        Ok(self.next_write())
    }

    /// The rest of what has been read so far, to be written; [`Slot::Off`]: nothing is left of it.
    pub(crate) fn next_write(&mut self) -> Slot<'static> {
        let write = |pipe| Slot::Write(pipe, Arc::clone(&self.bytes), self.written);
        self.pipe.take_if(|_| self.written < self.bytes.len()).map_or(Slot::Off, write)
    }

    /// Writes what fits at once.
    pub(crate) fn write_now(&mut self) -> io::Result<()> {
        while let Slot::Write(pipe, bytes, from) = self.next_write() {
            match pipe.try_write(bytes.get(from..).unwrap_or(&[])) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.pipe = Some(pipe);
                    return Ok(());
                }
                result => self.note(pipe, result)?,
            }
        }
        Ok(())
    }

    /// Takes the pipe back from a write that was given up before it wrote anything.
    pub(crate) fn put_back(&mut self, pipe: PipeWriter) {
        self.pipe = Some(pipe);
    }

    /// True while there is a pipe, and bytes that have to be written to it.
    pub(crate) fn has_more(&self) -> bool {
        self.pipe.is_some() && self.written < self.bytes.len()
    }

    /// True while the child can be given more.
    pub(crate) fn is_open(&self) -> bool {
        self.pipe.is_some()
    }

    /// Closes the pipe: the child sees the end of its input.
    pub(crate) fn close(&mut self) {
        self.pipe = None;
    }

    /// The source of more bytes. Without it, what has been read so far is all there is.
    pub(crate) fn take_reader(&mut self) -> Option<Box<dyn Read + Send>> {
        self.reader.take()
    }

    /// Gives the source back.
    pub(crate) fn set_reader(&mut self, reader: Box<dyn Read + Send>) {
        self.reader = Some(reader);
    }

    /// The bytes to be written next, when those before them are.
    pub(crate) fn set_bytes(&mut self, bytes: Vec<u8>) {
        self.bytes = Arc::new(bytes);
        self.written = 0;
    }

    /// Gives up the second handle on the child's end, so that the pipe breaks when the last reader closes it. What is
    /// in the pipe at the end is then told only where our own end can tell.
    pub(crate) fn break_with_the_readers(&mut self) {
        self.theirs = None;
    }

    /// Takes the pipe back, with the result of writing.
    pub(crate) fn note(&mut self, pipe: PipeWriter, result: io::Result<usize>) -> io::Result<()> {
        match result {
            Ok(count) => self.written += count,
            // The child does not want the rest. That is its right, and no error of the run.
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {
                self.reader = None;
                return Ok(());
            }
            Err(error) => return Err(error),
        }
        self.pipe = Some(pipe);
        Ok(())
    }

    /// Counts the bytes that the child, which has ended, did not take.
    pub(crate) fn unread(mut self) -> u64 {
        let inside = match (&self.theirs, &self.pipe) {
            (Some(theirs), _) => {
                // Closed first: who waits for more of it then is done, and Windows makes everybody else who
                // asks about a pipe end wait behind such a read.
                self.pipe = None;
                theirs.available()
            }
            (None, Some(pipe)) => pipe.unread(),
            (None, None) => Ok(0),
        };
        (self.bytes.len() - self.written + inside.unwrap_or(0)) as u64
    }

    fn refill(&mut self) -> io::Result<()> {
        let Some(reader) = &mut self.reader else { return Ok(()) };
        // The same allocation again, unless the last write still shares it.
        let mut chunk = Arc::try_unwrap(std::mem::take(&mut self.bytes)).unwrap_or_default();
        read_chunk(reader, &mut chunk)?;
        if chunk.is_empty() {
            self.reader = None;
        }
        self.set_bytes(chunk);
        Ok(())
    }
}

/// Replaces what is in the buffer by what the reader gives next; nothing is its end.
pub(super) fn read_chunk(reader: &mut dyn Read, chunk: &mut Vec<u8>) -> io::Result<()> {
    chunk.resize(CHUNK_BYTES, 0);
    let count = loop {
        match reader.read(chunk) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            done => break done?,
        }
    };
    chunk.truncate(count);
    Ok(())
}

impl fmt::Debug for Feed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Feed")
            .field("pipe", &self.pipe)
            .field("left", &(self.bytes.len() - self.written))
            .field("reader", &self.reader.is_some())
            .finish()
    }
}
