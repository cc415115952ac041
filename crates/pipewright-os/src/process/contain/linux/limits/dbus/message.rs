//! The bytes of messages (the D-Bus specification, "Marshaling" and "Message Format").
//!
//! Each value begins at a multiple of its alignment, counted from the start of the message. A header ends at a multiple of
//! 8, so a body is aligned by itself.

/// The kinds of messages, as they are numbered.
const METHOD_CALL: u8 = 1;
const METHOD_RETURN: u8 = 2;
const ERROR: u8 = 3;

/// The fields of a header, as they are numbered.
mod field {
    pub(super) const PATH: u8 = 1;
    pub(super) const INTERFACE: u8 = 2;
    pub(super) const MEMBER: u8 = 3;
    pub(super) const ERROR_NAME: u8 = 4;
    pub(super) const REPLY_SERIAL: u8 = 5;
    pub(super) const DESTINATION: u8 = 6;
    pub(super) const SIGNATURE: u8 = 8;
}

/// The part of a header whose length is the same in every message: up to the fields.
const FIXED_BYTES: usize = 16;

/// A method, and its arguments.
#[derive(Debug, Clone)]
pub(in super::super) struct Call<'a> {
    pub(in super::super) destination: &'a str,
    pub(in super::super) path: &'a str,
    pub(in super::super) interface: &'a str,
    pub(in super::super) member: &'a str,
    /// The types of the arguments.
    pub(in super::super) signature: &'a str,
    pub(in super::super) body: Body,
}

impl Call<'_> {
    /// Returns the message, in the order of bytes of small ends first.
    pub(in super::super) fn bytes(&self, serial: u32) -> Vec<u8> {
        const NO_FLAGS: u8 = 0;
        const VERSION: u8 = 1;
        let mut message = Body(vec![b'l', METHOD_CALL, NO_FLAGS, VERSION]);
        message.u32(u32_of(self.body.0.len()));
        message.u32(serial);
        message.array(8, |fields| {
            let mut add = |code, kind, value| {
                fields.align(8);
                fields.0.push(code);
                fields.variant(kind, |it| {
                    if kind == "g" { it.signature(value) } else { it.string(value) }
                });
            };
            add(field::PATH, "o", self.path);
            add(field::MEMBER, "s", self.member);
            add(field::INTERFACE, "s", self.interface);
            add(field::DESTINATION, "s", self.destination);
            if !self.signature.is_empty() {
                add(field::SIGNATURE, "g", self.signature);
            }
        });
        message.align(8);
        message.0.extend_from_slice(&self.body.0);
        message.0
    }
}

/// Values, one after another.
#[derive(Debug, Clone, Default)]
pub(in super::super) struct Body(Vec<u8>);

impl Body {
    pub(in super::super) fn align(&mut self, to: usize) {
        self.0.resize(self.0.len().next_multiple_of(to), 0);
    }

    pub(in super::super) fn u32(&mut self, value: u32) {
        self.align(4);
        self.0.extend_from_slice(&value.to_le_bytes());
    }

    pub(in super::super) fn u64(&mut self, value: u64) {
        self.align(8);
        self.0.extend_from_slice(&value.to_le_bytes());
    }

    pub(in super::super) fn bool(&mut self, value: bool) {
        self.u32(value.into());
    }

    /// Adds a string, or the path of an object.
    pub(in super::super) fn string(&mut self, value: &str) {
        self.u32(u32_of(value.len()));
        self.0.extend_from_slice(value.as_bytes());
        self.0.push(0);
    }

    fn signature(&mut self, value: &str) {
        self.0.push(u8::try_from(value.len()).unwrap_or(u8::MAX));
        self.0.extend_from_slice(value.as_bytes());
        self.0.push(0);
    }

    /// Adds a value with its type.
    pub(in super::super) fn variant(&mut self, kind: &str, add: impl FnOnce(&mut Body)) {
        self.signature(kind);
        add(self);
    }

    /// Adds an array of values with that alignment.
    pub(in super::super) fn array(&mut self, alignment: usize, add: impl FnOnce(&mut Body)) {
        self.u32(0);
        let length_at = self.0.len() - 4;
        self.align(alignment);
        let start = self.0.len();
        add(self);
        let length = u32_of(self.0.len() - start);
        if let Some(place) = self.0.get_mut(length_at..length_at + 4) {
            place.copy_from_slice(&length.to_le_bytes());
        }
    }

    /// Adds a name with a value of any type, as `(sv)`.
    pub(in super::super) fn property(
        &mut self,
        name: &str,
        kind: &str,
        add: impl FnOnce(&mut Body),
    ) {
        self.align(8);
        self.string(name);
        self.variant(kind, add);
    }
}

fn u32_of(length: usize) -> u32 {
    u32::try_from(length).unwrap_or(u32::MAX)
}

/// The length of the message at the start of some bytes.
pub(super) enum Size {
    /// They are too few to know it.
    Unknown,
    Known(usize),
}

/// Returns the length of the message at the start of the bytes.
pub(super) fn size(bytes: &[u8]) -> Result<Size, String> {
    let Some(fixed) = bytes.get(..FIXED_BYTES) else { return Ok(Size::Unknown) };
    let mut reader = Reader::new(fixed)?;
    reader.at = 4;
    let numbers = (reader.u32(), reader.u32(), reader.u32());
    let (Some(body), Some(_serial), Some(fields)) = numbers else { return Ok(Size::Unknown) };
    let header = (FIXED_BYTES as u64 + u64::from(fields)).next_multiple_of(8);
    Ok(Size::Known(usize::try_from(header + u64::from(body)).unwrap_or(usize::MAX)))
}

/// The meaning of a message to a caller of methods.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Reply,
    Error,
    Other,
}

/// A message of the other side, as far as it is of interest.
#[derive(Debug)]
pub(super) struct Message {
    pub(super) kind: Kind,
    /// The serial of the call that it replies to.
    pub(super) reply_to: Option<u32>,
    pub(super) error_name: String,
    /// Its first argument, if that is a text.
    pub(super) text: String,
}

impl Message {
    /// Takes a whole message apart. The error is the reason why it has no meaning.
    pub(super) fn parse(bytes: &[u8]) -> Result<Message, String> {
        let mut reader = Reader::new(bytes)?;
        let kind = match bytes.get(1) {
            Some(&METHOD_RETURN) => Kind::Reply,
            Some(&ERROR) => Kind::Error,
            _ => Kind::Other,
        };
        let mut message =
            Message { kind, reply_to: None, error_name: String::new(), text: String::new() };
        reader.at = FIXED_BYTES - 4;
        let mut has_text = false;
        message
            .read_fields(&mut reader, &mut has_text)
            .ok_or_else(|| "a header that cannot be read".to_owned())?;
        reader.align(8);
        if has_text {
            message.text = reader.string().unwrap_or_default();
        }
        Ok(message)
    }

    fn read_fields(&mut self, reader: &mut Reader<'_>, has_text: &mut bool) -> Option<()> {
        let length = usize::try_from(reader.u32()?).ok()?;
        let end = reader.at.checked_add(length)?;
        while reader.at < end {
            reader.align(8);
            let code = reader.u8()?;
            let kind = reader.signature()?;
            match (code, kind) {
                (field::REPLY_SERIAL, b"u") => self.reply_to = Some(reader.u32()?),
                (field::ERROR_NAME, b"s") => self.error_name = reader.string()?,
                (field::SIGNATURE, b"g") => *has_text = reader.signature()?.starts_with(b"s"),
                (_, b"s" | b"o") => drop(reader.string()?),
                (_, b"g") => drop(reader.signature()?),
                (_, b"u") => drop(reader.u32()?),
                // A field of a later version, with a value that cannot be skipped.
                _ => return None,
            }
        }
        (reader.at == end).then_some(())
    }
}

/// The values of a message. Each read is `None` at its end.
struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
    is_big_endian: bool,
}

impl<'a> Reader<'a> {
    fn new(bytes: &'a [u8]) -> Result<Reader<'a>, String> {
        let is_big_endian = match bytes.first() {
            Some(b'l') => false,
            Some(b'B') => true,
            other => return Err(format!("a message that begins with {other:?}")),
        };
        Ok(Reader { bytes, at: 0, is_big_endian })
    }

    fn align(&mut self, to: usize) {
        self.at = self.at.next_multiple_of(to);
    }

    fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let taken = self.bytes.get(self.at..self.at.checked_add(count)?)?;
        self.at += count;
        Some(taken)
    }

    fn u8(&mut self) -> Option<u8> {
        self.take(1)?.first().copied()
    }

    fn u32(&mut self) -> Option<u32> {
        self.align(4);
        let bytes = self.take(4)?.try_into().ok()?;
        Some(if self.is_big_endian { u32::from_be_bytes(bytes) } else { u32::from_le_bytes(bytes) })
    }

    fn string(&mut self) -> Option<String> {
        let length = usize::try_from(self.u32()?).ok()?;
        let text = String::from_utf8_lossy(self.take(length)?).into_owned();
        self.take(1)?;
        Some(text)
    }

    fn signature(&mut self) -> Option<&'a [u8]> {
        let length = usize::from(self.u8()?);
        let text = self.take(length)?;
        self.take(1)?;
        Some(text)
    }
}
