//! What is fed to a child's stdin, and how far it came.

use std::fmt;
use std::io::{self, Read};
use std::sync::Arc;

use pipewright_os::mux::Slot;
use pipewright_os::pipe::{PipeReader, PipeWriter};

/// How much is read from a reader at a time: what a pipe holds.
const CHUNK_BYTES: usize = 64 << 10;

/// Input on its way to a child.
pub(crate) struct Feed {
    pipe: Option<PipeWriter>,
    /// A second handle on the child's end: what it has left there when it ends can only be asked
    /// for while somebody holds the pipe. It keeps nobody waiting: the end of the child ends the
    /// feed.
    theirs: PipeReader,
    /// The bytes being written, and how many of them are.
    bytes: Arc<Vec<u8>>,
    written: usize,
    /// Where more bytes come from when these are written.
    reader: Option<Box<dyn Read + Send>>,
}

impl Feed {
    pub(crate) fn bytes(pipe: PipeWriter, theirs: PipeReader, bytes: Arc<Vec<u8>>) -> Feed {
        Feed { pipe: Some(pipe), theirs, bytes, written: 0, reader: None }
    }

    pub(crate) fn reader(
        pipe: PipeWriter,
        theirs: PipeReader,
        reader: Box<dyn Read + Send>,
    ) -> Feed {
        Feed { pipe: Some(pipe), theirs, bytes: Arc::default(), written: 0, reader: Some(reader) }
    }

    /// What to write next; [`Slot::Off`]: everything is written. The pipe is then closed, so that
    /// the child sees the end of its input.
    pub(super) fn next(&mut self) -> io::Result<Slot<'static>> {
        if self.written == self.bytes.len() && self.pipe.is_some() {
            self.refill()?;
        }
        if self.written == self.bytes.len() {
            self.pipe = None;
        }
        let write = |pipe| Slot::Write(pipe, Arc::clone(&self.bytes), self.written);
        Ok(self.pipe.take().map_or(Slot::Off, write))
    }

    /// Takes the pipe back, with the result of writing.
    pub(super) fn note(&mut self, pipe: PipeWriter, result: io::Result<usize>) -> io::Result<()> {
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

    /// The child has ended: says how many bytes it did not take.
    pub(super) fn unread(mut self) -> u64 {
        // Closed first: who waits for more of it then is done, and Windows makes everybody else who
        // asks about a pipe end wait behind such a read.
        self.pipe = None;
        let inside = self.theirs.available().unwrap_or(0);
        (self.bytes.len() - self.written + inside) as u64
    }

    fn refill(&mut self) -> io::Result<()> {
        let Some(reader) = &mut self.reader else { return Ok(()) };
        // The same allocation again, unless the last write still shares it.
        let mut chunk = Arc::try_unwrap(std::mem::take(&mut self.bytes)).unwrap_or_default();
        chunk.resize(CHUNK_BYTES, 0);
        let count = loop {
            match reader.read(&mut chunk) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                done => break done?,
            }
        };
        chunk.truncate(count);
        if count == 0 {
            self.reader = None;
        }
        self.bytes = Arc::new(chunk);
        self.written = 0;
        Ok(())
    }
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
