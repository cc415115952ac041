//! The bytes on the wire. `docs/wire.md` specifies them for other implementations.

use std::fmt;
use std::ops::Deref;

/// The kinds of frames.
pub(crate) mod kind {
    /// Identity and capabilities of a side: its first frame.
    pub(crate) const HELLO: u8 = 1;
    /// The reason of a rejection: the last frame.
    pub(crate) const REJECT: u8 = 2;
    /// A memory object, and the number found in that of the other side.
    pub(crate) const MEMORY: u8 = 3;
    /// The end of the handshake, from the host. Messages follow.
    pub(crate) const READY: u8 = 4;
    /// The next part of a message.
    pub(crate) const PART: u8 = 8;
    /// A wake-up: the ring has records. Does not count for the order.
    pub(crate) const WAKE: u8 = 9;
    /// The end of this side's messages.
    pub(crate) const GOODBYE: u8 = 10;
    /// Ring only: unused space up to the end of the ring.
    pub(crate) const PAD: u8 = 11;
    /// A message outside of calls. The first of the kinds that start a message.
    pub(crate) const MESSAGE: u8 = 16;
    /// Host: a request. Its answers have the same id.
    pub(crate) const CALL: u8 = 17;
    /// Worker: the reply, the last message of its call.
    pub(crate) const REPLY: u8 = 18;
    /// Worker: an error instead of a reply, the last message of its call.
    pub(crate) const FAILED: u8 = 19;
    /// Host: cancels the call.
    pub(crate) const CANCEL: u8 = 20;
    /// Worker: an item before the reply. Host: an item after the request.
    pub(crate) const ITEM: u8 = 21;
    /// The number of further items that the other side may send.
    pub(crate) const CREDIT: u8 = 22;
    /// Worker: a question about its call.
    pub(crate) const ASK: u8 = 23;
    /// Host: the answer to a question.
    pub(crate) const ANSWER: u8 = 24;
    /// Host: the reason why there is no answer.
    pub(crate) const DECLINED: u8 = 25;
    /// Host: resets the worker to the state right after its start.
    pub(crate) const RESET: u8 = 26;
    /// Worker: the reset is done.
    pub(crate) const RESET_DONE: u8 = 27;
    /// Host: a request that items follow.
    pub(crate) const OPEN_CALL: u8 = 28;
    /// Host: the end of the items after a request.
    pub(crate) const ITEMS_END: u8 = 29;
    /// The last of the kinds that start a message.
    pub(crate) const LAST_MESSAGE: u8 = 31;
}

/// The most calls that one worker may have at a time.
pub(crate) const MAX_CALLS: usize = 1024;

/// Returns the number in the body of a CREDIT, whose length is checked elsewhere.
pub(crate) fn credit(body: &[u8]) -> u32 {
    body.first_chunk().map_or(0, |bytes| u32::from_le_bytes(*bytes))
}

/// The version of the protocol.
pub(crate) const VERSION: u32 = 1;

/// The first line of HELLO.
pub(crate) const MAGIC: &str = "pipewright-ipc";

// The header of a frame: 16 bytes, little-endian, or 24 for the first frame of several.

/// `length u32 | kind u8 | flags u8 | handles u16 | id u64`.
const HEADER_BYTES: usize = 16;

/// The same, then `total u64`.
const LONG_HEADER_BYTES: usize = 24;

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

/// The bytes of a header: 16 or 24.
#[derive(Debug)]
pub(crate) struct EncodedHeader {
    bytes: [u8; LONG_HEADER_BYTES],
    length: usize,
}

impl Deref for EncodedHeader {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        self.bytes.get(..self.length).unwrap_or_default()
    }
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

    /// Returns the header as it is sent.
    #[inline]
    pub(crate) fn encode(&self) -> EncodedHeader {
        let mut bytes = [0; LONG_HEADER_BYTES];
        let [first, second] = self.words();
        bytes[..8].copy_from_slice(&first.to_le_bytes());
        bytes[8..16].copy_from_slice(&second.to_le_bytes());
        bytes[16..].copy_from_slice(&self.total.unwrap_or(0).to_le_bytes());
        let length = if self.total.is_some() { LONG_HEADER_BYTES } else { HEADER_BYTES };
        EncodedHeader { bytes, length }
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

// The bodies of the handshake: lines of text, readable in a trace and easy to write by hand.

/// The longest body of a frame of the handshake.
pub(crate) const MAX_HELLO_BYTES: usize = 4096;

/// Lines of `key=value`, in order.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct HelloFields(Vec<(String, String)>);

impl HelloFields {
    /// Adds a field, without control characters in its value.
    pub(crate) fn set(&mut self, key: &str, value: impl ToString) {
        let mut value = value.to_string();
        value.retain(|character| !character.is_control());
        self.0.push((key.to_owned(), value));
    }

    /// Returns the value of a field. The first of two equal keys counts.
    pub(crate) fn get(&self, key: &str) -> Option<&str> {
        self.0.iter().find(|(other, _)| other == key).map(|(_, value)| value.as_str())
    }

    /// Returns the value of a field as a number.
    pub(crate) fn number(&self, key: &str) -> Option<u64> {
        self.get(key)?.parse().ok()
    }

    /// Returns the body, with this first line.
    pub(crate) fn encode(&self, first: &str) -> Vec<u8> {
        let mut text = format!("{first}\n");
        for (key, value) in &self.0 {
            text += &format!("{key}={value}\n");
        }
        text.into_bytes()
    }

    /// Returns the fields of a body, if its first line matches. Ignores lines without `=`, so that later versions
    /// can add others.
    pub(crate) fn decode(body: &[u8], first: &str) -> Option<HelloFields> {
        let text = std::str::from_utf8(body).ok()?;
        let mut lines = text.lines();
        if lines.next() != Some(first) {
            return None;
        }
        let field = |line: &str| {
            let (key, value) = line.split_once('=')?;
            Some((key.to_owned(), value.to_owned()))
        };
        Some(HelloFields(lines.filter_map(field).collect()))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn header_has_the_documented_bytes() {
        let header = Header { length: 0x0403_0201, kind: 16, handles: 0x0605, id: 7, total: None };
        assert_eq!(*header.encode(), [1, 2, 3, 4, 16, 0, 5, 6, 7, 0, 0, 0, 0, 0, 0, 0]);
        let long = Header { total: Some(0x09), ..header };
        let bytes = long.encode();
        assert_eq!((bytes.len(), bytes[5], &bytes[16..]), (24, 1, &[9, 0, 0, 0, 0, 0, 0, 0][..]));
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
            let bytes = header.encode();
            for end in 0..bytes.len() {
                prop_assert_eq!(Header::decode(&bytes[..end]), Ok(Frame::Incomplete));
            }
            prop_assert_eq!(Header::decode(&bytes), Ok(Frame::Header(header, bytes.len())));
        }

        #[test]
        fn decoding_never_panics(bytes: Vec<u8>, most: u64) {
            if let Ok(Frame::Header(header, _)) = Header::decode(&bytes) {
                let _ = header.message_bytes(most);
            }
        }
    }

    #[test]
    fn body_consists_of_lines() {
        let mut fields = HelloFields::default();
        fields.set("version", 1);
        fields.set("app", "a=b\nsalt=stolen");
        assert_eq!(fields.encode("x"), b"x\nversion=1\napp=a=bsalt=stolen\n");
    }

    #[test]
    fn unknown_lines_are_ignored_and_first_key_counts() {
        let fields = HelloFields::decode(b"x\nnew thing\nn=1\nn=2\nm=-1\n", "x").unwrap();
        assert_eq!(
            (fields.number("n"), fields.number("m"), fields.get("k")),
            (Some(1), None, None)
        );
        assert_eq!(HelloFields::decode(b"y\nn=1\n", "x"), None);
        assert_eq!(HelloFields::decode(b"", "x"), None);
        assert_eq!(HelloFields::decode(b"x\n\xff=1\n", "x"), None);
    }

    proptest! {
        #[test]
        fn values_survive_without_control_characters(value: String, body: Vec<u8>) {
            let mut fields = HelloFields::default();
            fields.set("key", &value);
            let back = HelloFields::decode(&fields.encode("first"), "first").unwrap();
            let expected: String = value.chars().filter(|it| !it.is_control()).collect();
            prop_assert_eq!(back.get("key"), Some(expected.as_str()));
            let _ = HelloFields::decode(&body, "first");
        }
    }
}
