//! A buffer for a file whose pieces are whole: what could not be written is written first the next time.

use std::io::{self, Write};

/// Bytes that are kept while the file cannot be written. Later pieces are dropped, each as a whole.
const MOST_KEPT_BYTES: usize = 1 << 20;

/// Bytes after which a piece is written without waiting for a flush.
const WRITE_BYTES: usize = 64 << 10;

/// A writer of whole pieces.
#[derive(Debug)]
pub(super) struct Pieces<W> {
    writer: W,
    pending: Vec<u8>,
    dropped: u64,
    error: Option<io::Error>,
}

impl<W: Write> Pieces<W> {
    pub(super) fn new(writer: W) -> Pieces<W> {
        Pieces { writer, pending: Vec::new(), dropped: 0, error: None }
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

    pub(super) fn writer(&mut self) -> &mut W {
        &mut self.writer
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

#[cfg(test)]
mod tests {
    use super::*;

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
        assert_eq!(pieces.writer().text, b"first\ns");
        pieces.writer().room = 100;
        pieces.add(b"third\n");
        pieces.finish().unwrap();
        assert_eq!(pieces.writer().text, b"first\nsecond\nthird\n");
    }

    #[test]
    fn memory_is_bounded_and_lines_stay_whole_while_the_disk_is_full() {
        let mut pieces = Pieces::new(Disk { room: 3, ..Disk::default() });
        let line = [&[b'x'; 999][..], b"\n"].concat();
        for _ in 0..5_000 {
            pieces.add(&line);
        }
        assert!(pieces.pending.len() <= MOST_KEPT_BYTES);
        pieces.writer().room = usize::MAX;
        assert_eq!(pieces.finish().unwrap_err().kind(), io::ErrorKind::StorageFull);
        let text = &pieces.writer().text;
        assert!(
            text.len() > 1_000_000
                && text.split_inclusive(|byte| *byte == b'\n').all(|it| it == line)
        );
    }
}
