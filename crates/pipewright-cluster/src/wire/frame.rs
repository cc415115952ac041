//! Frames: a length in four bytes, little-endian, and so many bytes.

use std::io::{self, Read};

use crate::error::RemoteError;

/// The longest body. The arguments of a command have at most 6 MiB on Linux; its input may be longer.
pub(crate) const MOST_BODY_BYTES: usize = 256 << 20;

const HEADER_BYTES: usize = 4;

/// The least room for a read.
const READ_BYTES: usize = 128 << 10;

/// Appends a frame whose body is written by `body`.
///
/// # Errors
/// The body is too long. Nothing is appended then.
pub(crate) fn append<E>(
    out: &mut Vec<u8>,
    body: impl FnOnce(&mut Vec<u8>) -> Result<(), E>,
) -> Result<(), RemoteError>
where
    RemoteError: From<E>,
{
    let start = out.len();
    out.extend_from_slice(&[0; HEADER_BYTES]);
    let written = body(out).map_err(RemoteError::from).and_then(|()| {
        let length = out.len() - start - HEADER_BYTES;
        match u32::try_from(length) {
            Ok(header) if length <= MOST_BODY_BYTES => Ok(header),
            _ => Err(RemoteError::TooLong { bytes: length as u64 }),
        }
    });
    match written {
        Ok(header) => {
            out[start..start + HEADER_BYTES].copy_from_slice(&header.to_le_bytes());
            Ok(())
        }
        Err(error) => {
            out.truncate(start);
            Err(error)
        }
    }
}

/// Splits the bytes of a stream into frames. Takes memory as bytes arrive, whatever a header promises.
#[derive(Debug, Default)]
pub(crate) struct Frames {
    buffer: Vec<u8>,
    /// The range of the buffer that holds bytes which have not been returned.
    start: usize,
    end: usize,
}

impl Frames {
    /// Reads some bytes. Returns false at the end of the stream.
    ///
    /// # Errors
    /// The errors of the read.
    pub(crate) fn fill(&mut self, reader: &mut impl Read) -> io::Result<bool> {
        if self.start > 0 {
            self.buffer.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
        }
        if self.buffer.len() - self.end < READ_BYTES / 2 {
            // Doubled, so that a long frame is copied a few times only.
            let more = self.buffer.len().max(READ_BYTES);
            self.buffer.try_reserve(more).map_err(|_| io::ErrorKind::OutOfMemory)?;
            self.buffer.resize(self.buffer.len() + more, 0);
        }
        loop {
            match reader.read(&mut self.buffer[self.end..]) {
                Ok(count) => {
                    self.end += count;
                    return Ok(count > 0);
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Returns the body of the next frame, if it has arrived.
    ///
    /// # Errors
    /// The header promises too many bytes.
    pub(crate) fn next(&mut self) -> Result<Option<&[u8]>, RemoteError> {
        let bytes = &self.buffer[self.start..self.end];
        let Some((header, rest)) = bytes.split_first_chunk::<HEADER_BYTES>() else {
            return Ok(None);
        };
        let length = u32::from_le_bytes(*header) as usize;
        if length > MOST_BODY_BYTES {
            return Err(RemoteError::TooLong { bytes: length as u64 });
        }
        if rest.len() < length {
            return Ok(None);
        }
        let from = self.start + HEADER_BYTES;
        self.start = from + length;
        Ok(Some(&self.buffer[from..from + length]))
    }

    /// Returns true if bytes have arrived that are no whole frame.
    pub(crate) fn is_in_frame(&self) -> bool {
        self.start < self.end
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn framed(bodies: &[Vec<u8>]) -> Vec<u8> {
        let mut out = Vec::new();
        for body in bodies {
            append::<RemoteError>(&mut out, |out| {
                out.extend_from_slice(body);
                Ok(())
            })
            .unwrap();
        }
        out
    }

    /// Returns at most so many bytes a read.
    struct Pieces<'a>(&'a [u8], usize);

    impl Read for Pieces<'_> {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            let count = self.1.min(self.0.len()).min(buffer.len());
            let (piece, rest) = self.0.split_at(count);
            buffer[..count].copy_from_slice(piece);
            self.0 = rest;
            Ok(count)
        }
    }

    proptest! {
        #[test]
        fn frames_are_read_back_whatever_the_pieces(
            bodies in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..300), 0..20),
            piece in 1_usize..700,
        ) {
            let bytes = framed(&bodies);
            let (mut frames, mut pieces) = (Frames::default(), Pieces(&bytes, piece));
            let mut read = Vec::new();
            loop {
                while let Some(body) = frames.next().unwrap() {
                    read.push(body.to_vec());
                }
                if !frames.fill(&mut pieces).unwrap() {
                    break;
                }
            }
            prop_assert!(!frames.is_in_frame());
            prop_assert_eq!(read, bodies);
        }
    }

    #[test]
    fn a_header_that_promises_much_takes_no_memory() {
        let mut frames = Frames::default();
        let mut bytes = (MOST_BODY_BYTES as u32).to_le_bytes().to_vec();
        bytes.push(1);
        frames.fill(&mut &bytes[..]).unwrap();
        assert_eq!(frames.next().unwrap(), None);
        assert!(frames.is_in_frame() && frames.buffer.capacity() <= 4 * READ_BYTES);
    }

    #[test]
    fn a_longer_frame_than_allowed_is_refused() {
        let mut frames = Frames::default();
        frames.fill(&mut &u32::MAX.to_le_bytes()[..]).unwrap();
        assert!(matches!(frames.next(), Err(RemoteError::TooLong { bytes: 0xffff_ffff })));
    }
}
