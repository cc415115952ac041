//! Input for a child's stdin, and the progress of writing it.

use std::fmt;
use std::io::{self, Read};
use std::sync::Arc;

use pipewright_os::base::pipe::{PipeReader, PipeWriter};
use pipewright_os::base::wait::Slot;

/// The number of bytes to read from a reader at a time: the capacity of a pipe.
const CHUNK_BYTES: usize = 64 << 10;

/// The number of bytes of an owner to copy at a time: more than a pipe takes at once.
const PART_BYTES: usize = 256 << 10;

/// Bytes that stay with their owner.
pub(crate) type Owner = Arc<dyn AsRef<[u8]> + Send + Sync>;

/// Input on its way to a child.
pub(crate) struct Feed {
    pipe: Option<PipeWriter>,
    /// The pipe after its last reader has closed it: only it knows how many bytes that reader has left in it.
    broken: Option<PipeWriter>,
    /// A second handle to the child's end of the pipe. The bytes that the child left unread can be counted only
    /// while a reading handle is open. This handle does not prolong anything: feeding stops when the child ends.
    child_end: Option<PipeReader>,
    /// The bytes being written; `written` of them are done.
    bytes: Arc<Vec<u8>>,
    written: usize,
    /// The owner of the next bytes, and where they begin. A write is of a vector in an `Arc` ([`Slot::Write`]), which lives and
    /// stays where it is until the system has completed it, as on Windows after the call. An owner does not promise that: it may
    /// return another slice each time. So its bytes are copied, a part at a time, and those of a vector are not.
    owner: Option<(Owner, usize)>,
    /// The source of the next bytes.
    reader: Option<Box<dyn Read + Send>>,
}

impl Feed {
    pub(crate) fn bytes(pipe: PipeWriter, child_end: PipeReader, bytes: Arc<Vec<u8>>) -> Feed {
        let (pipe, child_end) = (Some(pipe), Some(child_end));
        Feed { pipe, broken: None, child_end, bytes, written: 0, owner: None, reader: None }
    }

    /// Feeds the bytes of an owner, a part at a time.
    pub(crate) fn of_owner(pipe: PipeWriter, child_end: PipeReader, owner: Owner) -> Feed {
        let feed = Feed::bytes(pipe, child_end, Arc::default());
        Feed { owner: Some((owner, 0)), ..feed }
    }

    pub(crate) fn reader(
        pipe: PipeWriter,
        child_end: PipeReader,
        reader: Box<dyn Read + Send>,
    ) -> Feed {
        let feed = Feed::bytes(pipe, child_end, Arc::default());
        Feed { reader: Some(reader), ..feed }
    }

    /// Returns the next write, or [`Slot::Off`] if everything is written. The pipe is then closed, so that the
    /// child sees the end of its input.
    pub(crate) fn next(&mut self) -> io::Result<Slot<'static>> {
        if !self.has_more() && self.pipe.is_some() {
            self.refill()?;
        }
        if !self.has_more() {
            self.pipe = None;
        }
        Ok(self.next_write())
    }

    /// Returns the next write of the bytes that are there, or [`Slot::Off`] if none are left.
    pub(crate) fn next_write(&mut self) -> Slot<'static> {
        if self.written == self.bytes.len() {
            self.take_part();
        }
        let write = |pipe| Slot::Write(pipe, Arc::clone(&self.bytes), self.written);
        self.pipe.take_if(|_| self.written < self.bytes.len()).map_or(Slot::Off, write)
    }

    /// Writes as much as the pipe accepts without blocking.
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

    /// Takes the pipe back from a write that was abandoned before it wrote anything.
    pub(crate) fn put_back(&mut self, pipe: PipeWriter) {
        self.pipe = Some(pipe);
    }

    /// Returns true if the pipe is open and there are bytes to write.
    pub(crate) fn has_more(&self) -> bool {
        self.pipe.is_some()
            && (self.written < self.bytes.len() || !self.left_with_owner().is_empty())
    }

    /// Returns true if the pipe is open.
    pub(crate) fn is_open(&self) -> bool {
        self.pipe.is_some()
    }

    /// Closes the pipe, so that the child sees the end of its input.
    pub(crate) fn close(&mut self) {
        self.pipe = None;
    }

    /// Takes the source of more bytes. Without it, the bytes read so far are all there is.
    pub(crate) fn take_reader(&mut self) -> Option<Box<dyn Read + Send>> {
        self.reader.take()
    }

    /// Gives the source back.
    pub(crate) fn set_reader(&mut self, reader: Box<dyn Read + Send>) {
        self.reader = Some(reader);
    }

    /// Sets the bytes to write next. The previous ones must have been written.
    pub(crate) fn set_bytes(&mut self, bytes: Vec<u8>) {
        self.bytes = Arc::new(bytes);
        self.written = 0;
    }

    /// Closes the second handle to the child's end, so that the pipe breaks when its last reader closes it. The
    /// number of unread bytes is then known only where our own end can report it.
    pub(crate) fn close_child_end(&mut self) {
        self.child_end = None;
    }

    /// Takes the pipe back, with the result of a write.
    pub(crate) fn note(&mut self, pipe: PipeWriter, result: io::Result<usize>) -> io::Result<()> {
        match result {
            Ok(count) => self.written += count,
            // The child does not read the rest. It need not, so this is not an error of the run.
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {
                self.reader = None;
                self.broken = Some(pipe);
                return Ok(());
            }
            Err(error) => return Err(error),
        }
        self.pipe = Some(pipe);
        Ok(())
    }

    /// Returns the number of bytes that the child, which has ended, did not read.
    pub(crate) fn unread(mut self) -> u64 {
        let inside = match (&self.child_end, self.pipe.as_ref().or(self.broken.as_ref())) {
            (Some(child_end), _) => {
                // Closed first, which completes the reads of other processes that wait for more. On Windows, every
                // query about a pipe end blocks behind such a read.
                self.pipe = None;
                child_end.available()
            }
            (None, Some(pipe)) => pipe.unread(),
            (None, None) => Ok(0),
        };
        let left = self.bytes.len() - self.written + self.left_with_owner().len();
        (left + inside.unwrap_or(0)) as u64
    }

    fn left_with_owner(&self) -> &[u8] {
        let Some((owner, begin)) = &self.owner else { return &[] };
        (**owner).as_ref().get(*begin..).unwrap_or_default()
    }

    /// Copies the next part of the owner's bytes.
    fn take_part(&mut self) {
        if self.left_with_owner().is_empty() {
            return;
        }
        let mut part = self.take_buffer();
        let left = self.left_with_owner();
        part.clear();
        part.extend_from_slice(left.get(..PART_BYTES).unwrap_or(left));
        if let Some((_, begin)) = &mut self.owner {
            *begin += part.len();
        }
        self.set_bytes(part);
    }

    /// Takes the memory of bytes that have been written, unless the last write still shares it.
    fn take_buffer(&mut self) -> Vec<u8> {
        Arc::try_unwrap(std::mem::take(&mut self.bytes)).unwrap_or_default()
    }

    fn refill(&mut self) -> io::Result<()> {
        let Some(mut reader) = self.reader.take() else { return Ok(()) };
        let mut chunk = self.take_buffer();
        read_chunk(&mut *reader, &mut chunk)?;
        self.reader = Some(reader).filter(|_| !chunk.is_empty());
        self.set_bytes(chunk);
        Ok(())
    }
}

/// Replaces the buffer's content by the next bytes of the reader; empty at its end.
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
            .field("left", &(self.bytes.len() - self.written + self.left_with_owner().len()))
            .field("reader", &self.reader.is_some())
            .finish()
    }
}
