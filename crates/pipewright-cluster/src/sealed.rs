//! The secret of a batch, and records: what follows the hellos of a connection with a secret. Nobody else can read,
//! change, repeat, reorder or leave out one. It is the protocol Noise, with a key that both sides make of the secret
//! and of both hellos.

use std::io::{self, Read, Write};
use std::path::Path;
use std::sync::Arc;
use std::{fmt, fs};

use hmac::{Hmac, Mac};
use pipewright_os::base::memory::UndumpedBytes;
use sha2::Sha256;
use snow::{Builder, HandshakeState, StatelessTransportState};
use zeroize::Zeroizing;

use crate::error::RemoteError;

/// Two messages, each with a fresh key of its side; who does not know the secret can make neither. Captured traffic
/// stays secret even if the secret becomes known later.
const PATTERN: &str = "Noise_NNpsk0_25519_ChaChaPoly_SHA256";

/// The bytes of a tag, which proves that a record is whole and in its place.
const TAG_BYTES: usize = 16;

/// The bytes of a message of the handshake: a public key and a tag.
const MESSAGE_BYTES: usize = 32 + TAG_BYTES;

/// The most bytes of a record, its length not included, and of what is in it.
const MOST_RECORD_BYTES: usize = 65_535;
const MOST_PLAIN_BYTES: usize = MOST_RECORD_BYTES - TAG_BYTES;

/// The bytes of the length before each record.
const LENGTH_BYTES: usize = 2;

/// The keys of a connection.
#[derive(Clone)]
pub(crate) struct Session(Arc<StatelessTransportState>);

impl Session {
    /// Makes the keys as the host, who gets the first message.
    ///
    /// # Errors
    /// The other side does not know the secret, or the connection failed.
    pub(crate) fn accept(
        reader: &mut impl Read,
        writer: &mut impl Write,
        secret: &Secret,
        hellos: &[u8],
    ) -> Result<Session, RemoteError> {
        let mut handshake = handshake(secret, hellos, |it| it.build_responder())?;
        read_message(reader, &mut handshake)?;
        write_message(writer, &mut handshake)?;
        Session::of(handshake)
    }

    /// Makes the keys as the worker.
    ///
    /// # Errors
    /// As of `accept`.
    pub(crate) fn open(
        reader: &mut impl Read,
        writer: &mut impl Write,
        secret: &Secret,
        hellos: &[u8],
    ) -> Result<Session, RemoteError> {
        let mut handshake = handshake(secret, hellos, |it| it.build_initiator())?;
        write_message(writer, &mut handshake)?;
        read_message(reader, &mut handshake)?;
        Session::of(handshake)
    }

    fn of(handshake: HandshakeState) -> Result<Session, RemoteError> {
        let state = handshake.into_stateless_transport_mode().map_err(failed)?;
        Ok(Session(Arc::new(state)))
    }

    /// Returns what the other side writes. One for each connection.
    pub(crate) fn reader<R: Read>(&self, stream: R) -> Unsealing<R> {
        let session = self.clone();
        let sealed = vec![0; 2 * (LENGTH_BYTES + MOST_RECORD_BYTES)];
        Unsealing { stream, session, number: 0, sealed, start: 0, end: 0, plain: Vec::new(), at: 0 }
    }

    /// Returns a writer for the other side. One for each connection.
    pub(crate) fn writer<W: Write>(&self, stream: W) -> Sealing<W> {
        let session = self.clone();
        Sealing { stream, session, number: 0, record: vec![0; LENGTH_BYTES + MOST_RECORD_BYTES] }
    }
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Session")
    }
}

type Build = fn(Builder<'_>) -> Result<HandshakeState, snow::Error>;

fn handshake(secret: &Secret, hellos: &[u8], build: Build) -> Result<HandshakeState, RemoteError> {
    // Not the secret itself: the implementation leaves copies of its key in memory.
    let key = secret.key_of(hellos);
    let key: &[u8; KEY_BYTES] = &key;
    let params = PATTERN.parse().map_err(failed)?;
    let builder = Builder::new(params).psk(0, key).and_then(|it| it.prologue(hellos));
    build(builder.map_err(failed)?).map_err(failed)
}

fn failed(error: snow::Error) -> RemoteError {
    RemoteError::Io(io::Error::other(error))
}

fn write_message(
    writer: &mut impl Write,
    handshake: &mut HandshakeState,
) -> Result<(), RemoteError> {
    let mut message = [0; MESSAGE_BYTES];
    handshake.write_message(&[], &mut message).map_err(failed)?;
    writer.write_all(&message)?;
    Ok(writer.flush()?)
}

fn read_message(reader: &mut impl Read, handshake: &mut HandshakeState) -> Result<(), RemoteError> {
    let mut message = [0; MESSAGE_BYTES];
    // Who does not know the secret may close the connection instead.
    reader.read_exact(&mut message).map_err(|error| match error.kind() {
        io::ErrorKind::UnexpectedEof => RemoteError::WrongSecret,
        _ => error.into(),
    })?;
    let read = handshake.read_message(&message, &mut []);
    read.map(drop).map_err(|_| RemoteError::WrongSecret)
}

/// Writes records.
#[derive(Debug)]
pub(crate) struct Sealing<W> {
    stream: W,
    session: Session,
    /// The number of the next record.
    number: u64,
    record: Vec<u8>,
}

impl<W: Write> Write for Sealing<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let plain = bytes.get(..MOST_PLAIN_BYTES).unwrap_or(bytes);
        if plain.is_empty() {
            return Ok(0);
        }
        let (length, record) = self.record.split_at_mut(LENGTH_BYTES);
        let sealed = self.session.0.write_message(self.number, plain, record);
        let sealed = sealed.map_err(io::Error::other)?;
        self.number += 1;
        let bytes = u16::try_from(sealed).map_err(io::Error::other)?;
        length.copy_from_slice(&bytes.to_le_bytes());
        let whole = self.record.get(..LENGTH_BYTES + sealed).unwrap_or_default();
        self.stream.write_all(whole)?;
        Ok(plain.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.stream.flush()
    }
}

/// Reads records.
#[derive(Debug)]
pub(crate) struct Unsealing<R> {
    stream: R,
    session: Session,
    /// The number of the next record.
    number: u64,
    /// Bytes of the stream, and the range that has not been opened.
    sealed: Vec<u8>,
    start: usize,
    end: usize,
    /// The contents of a record, and the place that was read up to.
    plain: Vec<u8>,
    at: usize,
}

impl<R: Read> Unsealing<R> {
    /// Returns the next record, if all of it has arrived.
    fn next_record(&self) -> Option<&[u8]> {
        let arrived = self.sealed.get(self.start..self.end)?;
        let (length, rest) = arrived.split_first_chunk::<LENGTH_BYTES>()?;
        rest.get(..usize::from(u16::from_le_bytes(*length)))
    }

    /// Opens the next record, and returns the bytes that were in it; `None` if it has not arrived whole.
    fn open_next(&mut self, plain: &mut [u8]) -> io::Result<Option<usize>> {
        let Some(record) = self.next_record() else { return Ok(None) };
        let taken = LENGTH_BYTES + record.len();
        let opened = self.session.0.read_message(self.number, record, plain);
        // Nobody who has the keys writes an empty one.
        let count = opened.ok().filter(|count| *count > 0).ok_or_else(|| {
            let words = "a record is not what the other side wrote";
            io::Error::new(io::ErrorKind::InvalidData, words)
        })?;
        self.number += 1;
        self.start += taken;
        Ok(Some(count))
    }

    /// Reads from the stream. Returns false at its end.
    fn fill(&mut self) -> io::Result<bool> {
        self.sealed.copy_within(self.start..self.end, 0);
        (self.start, self.end) = (0, self.end - self.start);
        // Never full: there is room for two of the longest records, and less than one is there.
        let room = self.sealed.get_mut(self.end..).unwrap_or_default();
        let count = self.stream.read(room)?;
        self.end += count;
        match count {
            0 if self.end > 0 => Err(io::ErrorKind::UnexpectedEof.into()),
            count => Ok(count > 0),
        }
    }
}

impl<R: Read> Read for Unsealing<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if buffer.is_empty() {
            return Ok(0);
        }
        loop {
            let rest = self.plain.get(self.at..).unwrap_or_default();
            if !rest.is_empty() {
                let count = rest.len().min(buffer.len());
                buffer[..count].copy_from_slice(&rest[..count]);
                self.at += count;
                return Ok(count);
            }
            if buffer.len() >= MOST_RECORD_BYTES {
                if let Some(count) = self.open_next(buffer)? {
                    return Ok(count);
                }
            } else {
                let mut plain = std::mem::take(&mut self.plain);
                plain.resize(MOST_RECORD_BYTES, 0);
                let opened = self.open_next(&mut plain);
                plain.truncate(opened.as_ref().map_or(0, |count| count.unwrap_or(0)));
                (self.plain, self.at) = (plain, 0);
                if opened?.is_some() {
                    continue;
                }
            }
            if !self.fill()? {
                return Ok(0);
            }
        }
    }
}

/// The number of bytes of a secret.
const SECRET_BYTES: usize = 32;

/// The number of bytes of a key.
const KEY_BYTES: usize = 32;

/// A random secret, which is in no core file, and overwritten when it is dropped.
pub(crate) struct Secret(UndumpedBytes);

impl Secret {
    /// Returns a new secret.
    ///
    /// # Errors
    /// The system has no random bytes, or no memory.
    pub(crate) fn random() -> io::Result<Secret> {
        let mut secret = Secret(UndumpedBytes::zeroed(SECRET_BYTES)?);
        getrandom::fill(&mut secret.0).map_err(io::Error::other)?;
        Ok(secret)
    }

    /// Returns the secret as hexadecimal digits.
    pub(crate) fn to_text(&self) -> Zeroizing<String> {
        let mut text = Zeroizing::new(String::with_capacity(2 * SECRET_BYTES));
        for byte in &*self.0 {
            for digit in [byte >> 4, byte & 15] {
                text.push(char::from_digit(digit.into(), 16).unwrap_or('0'));
            }
        }
        text
    }

    /// Reads a secret from a file.
    ///
    /// # Errors
    /// The file cannot be read, or has no secret.
    pub(crate) fn read(path: &Path) -> Result<Secret, RemoteError> {
        let mut text = Zeroizing::new([0; 2 * SECRET_BYTES]);
        let read = fs::File::open(path).and_then(|mut file| file.read_exact(&mut *text));
        read.map_err(RemoteError::Secret)?;
        Secret::parse(&*text)
    }

    /// Returns the secret with these hexadecimal digits.
    ///
    /// # Errors
    /// The text is not that of a secret.
    pub(crate) fn parse(text: &[u8]) -> Result<Secret, RemoteError> {
        let bytes = UndumpedBytes::zeroed(SECRET_BYTES).map_err(RemoteError::Secret)?;
        let mut secret = Secret(bytes);
        let digit = |at: usize| char::from(*text.get(at)?).to_digit(16);
        for (at, byte) in secret.0.iter_mut().enumerate() {
            let (Some(high), Some(low)) = (digit(2 * at), digit(2 * at + 1)) else {
                return Err(RemoteError::Secret(io::ErrorKind::InvalidData.into()));
            };
            *byte = u8::try_from(high << 4 | low).unwrap_or(0);
        }
        overwrite_stack();
        match text.len() == 2 * SECRET_BYTES {
            true => Ok(secret),
            false => Err(RemoteError::Secret(io::ErrorKind::InvalidData.into())),
        }
    }

    /// Returns the key for the connection with these bytes, which differ for each.
    fn key_of(&self, connection: &[u8]) -> Zeroizing<[u8; KEY_BYTES]> {
        let key = self.mac(connection);
        overwrite_stack();
        key
    }

    #[inline(never)]
    fn mac(&self, connection: &[u8]) -> Zeroizing<[u8; KEY_BYTES]> {
        // A shorter key than a block of the hash is padded with zeros, by definition of HMAC.
        let mut key = Zeroizing::new([0; 64]);
        key[..SECRET_BYTES].copy_from_slice(&self.0);
        let mut mac = Hmac::<Sha256>::new((&*key).into());
        mac.update(b"pipewright batch key\0");
        mac.update(connection);
        Zeroizing::new(mac.finalize().into_bytes().into())
    }
}

/// Overwrites what functions that have returned left on the stack: the implementation of HMAC copies the key there.
#[inline(never)]
fn overwrite_stack() {
    let mut area = Zeroizing::new([0_u8; 16 << 10]);
    std::hint::black_box(&mut *area);
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret")
    }
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};
    use std::thread;

    use proptest::prelude::*;

    use super::*;

    /// Returns the keys of a host and of its worker.
    fn sessions() -> [Session; 2] {
        let secret = Secret::random().unwrap();
        let copy = Secret::parse(secret.to_text().as_bytes()).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let worker = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let host = listener.accept().unwrap().0;
        let opening =
            thread::spawn(move || Session::open(&mut &worker, &mut &worker, &copy, b"hellos"));
        let accepted = Session::accept(&mut &host, &mut &host, &secret, b"hellos");
        [accepted.unwrap(), opening.join().unwrap().unwrap()]
    }

    /// Returns the records of these pieces.
    fn records(session: &Session, pieces: &[&[u8]]) -> Vec<Vec<u8>> {
        let mut stream = Vec::new();
        let mut writer = session.writer(&mut stream);
        pieces.iter().for_each(|piece| writer.write_all(piece).unwrap());
        let mut records = Vec::new();
        let mut rest = &stream[..];
        while let Some((length, _)) = rest.split_first_chunk::<2>() {
            let (record, after) = rest.split_at(2 + usize::from(u16::from_le_bytes(*length)));
            records.push(record.to_vec());
            rest = after;
        }
        records
    }

    fn read(session: &Session, stream: &[u8]) -> (Vec<u8>, io::Result<usize>) {
        let mut all = Vec::new();
        let read = session.reader(stream).read_to_end(&mut all);
        (all, read)
    }

    #[test]
    fn what_one_side_writes_the_other_one_reads_and_nobody_else() {
        let [host, worker] = sessions();
        let long = vec![7; 200_000];
        let pieces: [&[u8]; 4] = [b"one", b"", &long, b"the words of a job"];
        let sealed = records(&host, &pieces).concat();
        let seen = |words: &[u8]| sealed.windows(words.len()).any(|it| it == words);
        assert!(!seen(b"one") && !seen(b"words") && !seen(&[7; 16]));
        let (all, end) = read(&worker, &sealed);
        assert_eq!((all, end.unwrap()), (pieces.concat(), pieces.concat().len()));
        // Not even the side that wrote it, or another connection with the same secret.
        for other in [&host, &sessions()[1]] {
            let (all, end) = read(other, &sealed);
            assert!(all.is_empty());
            assert_eq!(end.unwrap_err().kind(), io::ErrorKind::InvalidData);
        }
    }

    #[test]
    fn records_that_are_changed_repeated_reordered_or_left_out_are_refused() {
        let [host, worker] = sessions();
        let honest = records(&host, &[b"first", b"second", b"third"]);
        let [first, second, third] = &honest[..] else { panic!("{}", honest.len()) };
        let mut changed = second.clone();
        changed[5] ^= 1;
        for stream in [
            [first, first, second],
            [first, third, second],
            [first, &changed, third],
            [first, &vec![0, 0], second],
            [first, &vec![16, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16], third],
        ] {
            let (all, end) = read(&worker, &stream.map(|it| &it[..]).concat());
            assert_eq!(all, b"first");
            assert_eq!(end.unwrap_err().kind(), io::ErrorKind::InvalidData);
        }
        // A cut inside a record is an error here; one between two is for the messages to notice.
        let (all, end) = read(&worker, &[&first[..], &second[..9]].concat());
        assert_eq!(
            (&all[..], end.unwrap_err().kind()),
            (&b"first"[..], io::ErrorKind::UnexpectedEof)
        );
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(32))]
        #[test]
        fn any_pieces_arrive_whole_in_any_reads(
            pieces in prop::collection::vec((0_usize..70_000, any::<u8>()), 0..6),
            arrivals in prop::collection::vec(1_usize..70_000, 1..6),
            buffers in prop::collection::vec(1_usize..140_000, 1..6),
        ) {
            let [host, worker] = sessions();
            let pieces: Vec<Vec<u8>> = pieces.iter().map(|(n, byte)| vec![*byte; *n]).collect();
            let pieces: Vec<&[u8]> = pieces.iter().map(|it| &it[..]).collect();
            let sealed = records(&host, &pieces).concat();
            let mut reader = worker.reader(Arriving { rest: &sealed, at: 0, arrivals: &arrivals });
            let (mut all, mut turn) = (Vec::new(), 0);
            loop {
                let mut buffer = vec![0; buffers[turn % buffers.len()]];
                turn += 1;
                let count = reader.read(&mut buffer).unwrap();
                if count == 0 {
                    break;
                }
                all.extend_from_slice(&buffer[..count]);
            }
            prop_assert_eq!(all, pieces.concat());
        }
    }

    /// A stream whose bytes come in these portions.
    struct Arriving<'a> {
        rest: &'a [u8],
        at: usize,
        arrivals: &'a [usize],
    }

    impl Read for Arriving<'_> {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            let most = self.arrivals[self.at % self.arrivals.len()].min(buffer.len());
            self.at += 1;
            let (portion, rest) = self.rest.split_at(most.min(self.rest.len()));
            buffer[..portion.len()].copy_from_slice(portion);
            self.rest = rest;
            Ok(portion.len())
        }
    }

    #[test]
    fn a_secret_is_read_back_from_its_text_and_is_not_printed() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let secret = Secret::random().unwrap();
        fs::write(file.path(), &*secret.to_text()).unwrap();
        assert_eq!(*Secret::read(file.path()).unwrap().0, *secret.0);
        assert!(!format!("{secret:?}").contains(&*secret.to_text()));
    }

    #[test]
    fn texts_that_are_no_secret_are_refused() {
        let good = Secret::random().unwrap().to_text();
        assert!(Secret::parse(good.as_bytes()).is_ok());
        let long = format!("{}00", &*good);
        let wrong = good.replacen(|_| true, "g", 1);
        for text in ["", "00", &good[1..], &long, &wrong] {
            assert!(matches!(Secret::parse(text.as_bytes()), Err(RemoteError::Secret(_))));
        }
    }

    #[test]
    fn a_key_is_that_of_its_secret_and_its_connection_only() {
        let (secret, other) = (Secret::random().unwrap(), Secret::random().unwrap());
        let key = secret.key_of(b"a");
        assert_eq!(key, secret.key_of(b"a"));
        assert_ne!(key, secret.key_of(b"b"));
        assert_ne!(key, other.key_of(b"a"));
    }
}
