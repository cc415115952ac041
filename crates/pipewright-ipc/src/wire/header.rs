//! The header of a frame: 16 bytes, little-endian, or 24 for the first frame of several.

use std::fmt;

use super::kind;

/// `length u32 | kind u8 | flags u8 | handles u16 | id u64`.
pub(crate) const HEADER_BYTES: usize = 16;

/// The same, then `total u64`.
pub(crate) const LONG_HEADER_BYTES: usize = 24;

/// More frames follow, and the length of the whole message follows the header.
const LONG: u8 = 1;

/// The header of one frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Header {
    /// The length of the frame's body in bytes.
    pub(crate) length: u32,
    pub(crate) kind: u8,
    /// The number of handles that come with the frame.
    pub(crate) handles: u16,
    /// The call that the frame belongs to. 0: none.
    pub(crate) id: u64,
    /// The length of the whole message, in the first frame of several.
    pub(crate) total: Option<u64>,
}

/// An invalid frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Invalid {
    Kind(u8),
    Flags(u8),
    /// The frame, or its message, exceeds the agreed maximum.
    TooLong {
        bytes: u64,
        most: u64,
    },
    /// A message of several frames that would fit into the first, or a PART without a message.
    Parts,
}

/// The start of a stream of frames.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Frame {
    /// The header is incomplete.
    Incomplete,
    /// A header, and its length in the stream.
    Header(Header, usize),
}

impl Header {
    /// Returns the header of a message of one frame.
    pub(crate) fn new(kind: u8, length: usize) -> Header {
        // The length was checked against the agreed maximum, which fits.
        let length = u32::try_from(length).unwrap_or(u32::MAX);
        Header { length, kind, handles: 0, id: 0, total: None }
    }

    /// Returns the encoded header in 24 bytes, and the number of bytes to send.
    pub(crate) fn encode(&self) -> ([u8; LONG_HEADER_BYTES], usize) {
        let mut bytes = [0; LONG_HEADER_BYTES];
        let [first, second] = self.words();
        bytes[..8].copy_from_slice(&first.to_le_bytes());
        bytes[8..16].copy_from_slice(&second.to_le_bytes());
        bytes[16..].copy_from_slice(&self.total.unwrap_or(0).to_le_bytes());
        (bytes, if self.total.is_some() { LONG_HEADER_BYTES } else { HEADER_BYTES })
    }

    /// Returns the first 16 bytes as two numbers, each little-endian on the wire.
    #[inline]
    pub(crate) fn words(&self) -> [u64; 2] {
        let flags = if self.total.is_some() { LONG } else { 0 };
        let first = u64::from(self.length)
            | u64::from(self.kind) << 32
            | u64::from(flags) << 40
            | u64::from(self.handles) << 48;
        [first, self.id]
    }

    /// Decodes a header from its numbers. The third is the length of the whole message, which counts if the flag
    /// is set.
    #[inline]
    pub(crate) fn from_words(words: [u64; 2], total: u64) -> Result<Header, Invalid> {
        let [first, id] = words;
        let flags = (first >> 40) as u8;
        if flags & !LONG != 0 {
            return Err(Invalid::Flags(flags));
        }
        Ok(Header {
            length: first as u32,
            kind: (first >> 32) as u8,
            handles: (first >> 48) as u16,
            id,
            total: (flags & LONG != 0).then_some(total),
        })
    }

    /// Decodes the header at the start of a stream.
    pub(crate) fn decode(bytes: &[u8]) -> Result<Frame, Invalid> {
        let Some(short) = bytes.first_chunk::<HEADER_BYTES>() else { return Ok(Frame::Incomplete) };
        let word = |at: usize| {
            short[at..].first_chunk::<8>().map_or(0, |bytes| u64::from_le_bytes(*bytes))
        };
        let words = [word(0), word(8)];
        let header = Header::from_words(words, 0)?;
        if header.total.is_none() {
            return Ok(Frame::Header(header, HEADER_BYTES));
        }
        let Some(total) = bytes.get(HEADER_BYTES..).and_then(<[u8]>::first_chunk::<8>) else {
            return Ok(Frame::Incomplete);
        };
        let header = Header { total: Some(u64::from_le_bytes(*total)), ..header };
        Ok(Frame::Header(header, LONG_HEADER_BYTES))
    }

    /// Returns true if the frame starts a message.
    #[inline]
    pub(crate) fn begins(&self) -> bool {
        (kind::MESSAGE..=kind::LAST_MESSAGE).contains(&self.kind)
    }

    /// Returns the length of the message that the frame starts, if that is valid and at most `most`.
    #[inline]
    pub(crate) fn message_bytes(&self, most: u64) -> Result<u64, Invalid> {
        let length = u64::from(self.length);
        let bytes = self.total.unwrap_or(length);
        if bytes > most {
            return Err(Invalid::TooLong { bytes, most });
        }
        if self.total.is_some() && (bytes <= length || length == 0) {
            return Err(Invalid::Parts);
        }
        Ok(bytes)
    }
}

impl fmt::Display for Invalid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Invalid::Kind(kind) => write!(f, "unexpected frame of kind {kind}"),
            Invalid::Flags(flags) => write!(f, "a frame has unknown flags ({flags:#x})"),
            Invalid::TooLong { bytes, most } => {
                write!(
                    f,
                    "a frame or message of {bytes} bytes exceeds the agreed maximum of {most}"
                )
            }
            Invalid::Parts => f.write_str("the parts of a message do not add up to its length"),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn header_has_the_documented_bytes() {
        let header = Header { length: 0x0403_0201, kind: 16, handles: 0x0605, id: 7, total: None };
        let (bytes, count) = header.encode();
        assert_eq!(bytes[..count], [1, 2, 3, 4, 16, 0, 5, 6, 7, 0, 0, 0, 0, 0, 0, 0]);
        let long = Header { total: Some(0x09), ..header };
        let (bytes, count) = long.encode();
        assert_eq!((count, bytes[5], &bytes[16..]), (24, 1, &[9, 0, 0, 0, 0, 0, 0, 0][..]));
    }

    #[test]
    fn invalid_headers_are_refused() {
        assert_eq!(Header::decode(&[0, 0, 0, 0, 16, 2].repeat(4)), Err(Invalid::Flags(2)));
        let header = Header::new(kind::MESSAGE, 100);
        assert_eq!(header.message_bytes(100), Ok(100));
        assert_eq!(header.message_bytes(99), Err(Invalid::TooLong { bytes: 100, most: 99 }));
        let long = |total| Header { total: Some(total), ..header };
        assert_eq!(long(101).message_bytes(101), Ok(101));
        assert_eq!(long(100).message_bytes(200), Err(Invalid::Parts));
        assert!(long(u64::MAX).message_bytes(1 << 32).is_err());
        assert_eq!(Header { length: 0, ..long(5) }.message_bytes(200), Err(Invalid::Parts));
    }

    proptest! {
        #[test]
        fn encoded_header_decodes_and_its_prefixes_are_incomplete(
            length: u32, kind: u8, handles: u16, id: u64, total: Option<u64>
        ) {
            let header = Header { length, kind, handles, id, total };
            let (bytes, count) = header.encode();
            for end in 0..count {
                prop_assert_eq!(Header::decode(&bytes[..end]), Ok(Frame::Incomplete));
            }
            prop_assert_eq!(Header::decode(&bytes), Ok(Frame::Header(header, count)));
        }

        #[test]
        fn decoding_never_panics(bytes: Vec<u8>, most: u64) {
            if let Ok(Frame::Header(header, _)) = Header::decode(&bytes) {
                let _ = header.message_bytes(most);
            }
        }
    }
}
