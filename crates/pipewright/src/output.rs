//! The result of a run: its streams, as bytes or as text, all other facts, and the error if it did not succeed.

use std::ffi::{OsStr, OsString};
use std::path::PathBuf;
use std::time::Duration;
use std::{fmt, io};

use pipewright_os::process::child::Containment;
use pipewright_os::process::limits::{HeldLimits, OutOfMemory};
use pipewright_os::process::status::ExitStatus;
use pipewright_os::process::usage::{TreeUsage, Usage};

use crate::error::{Error, ErrorKind, FailedOperation};
use crate::outcome::{Exceeded, Outcome, Source};

/// The output of a child, as bytes ([`Output`]) or as text ([`Capture`]), and all other facts about its run.
///
/// To report a failed run on one line, print the error that [`check`](Self::check) returns.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Captured<T> {
    /// The child's exit status.
    #[doc(alias = "exit_code")]
    pub status: ExitStatus,
    /// The child's stdout, if it was captured.
    pub stdout: T,
    /// The child's stderr, if it was captured.
    pub stderr: T,
    /// The reason why the run ended.
    #[doc(alias = "timed_out")]
    pub outcome: Outcome,
    /// The limit that stopped the run, if a limit stopped it.
    pub exceeded: Option<Exceeded>,
    /// The program, as it was given. For a pipeline, the program of the stage whose status counts, or of all stages if
    /// all were stopped.
    pub program: OsString,
    /// The child's former process id.
    pub pid: u32,
    /// The time from the start until the child and its output had ended.
    #[doc(alias = "duration")]
    pub elapsed: Duration,
    /// The processes of the tree that the kernel killed for lack of memory, if there were any, also if the run was
    /// stopped for another reason. Only for a command with [`limits`](crate::Command::limits).
    pub out_of_memory: Option<OutOfMemory>,
    /// The limits in force; `None` if the command has none, or if the system cannot hold any
    /// ([`Limits::best_effort`](crate::Limits::best_effort) on macOS).
    pub limits: Option<Box<HeldLimits>>,
    /// The usage of the whole tree; `None` if the command has no [`limits`](crate::Command::limits), or if the system
    /// cannot hold any. [`Limits::new`](crate::Limits::new) without a limit only measures.
    pub tree_usage: Option<Box<TreeUsage>>,
    /// CPU time and memory; `None` if other code in this program reaped the child.
    pub usage: Option<Usage>,
    /// True if the child had ended, and something else still held one of its streams open when reading ended. Any later
    /// output is lost. See [`Linger`](crate::Linger).
    pub held_open: bool,
    /// True if a [`Limit`](crate::Limit) dropped part of a stream.
    pub truncated: bool,
    /// The error of a [`Stdio::tee`](crate::Stdio::tee) or [`Stdio::tee_to`](crate::Stdio::tee_to) that could not write
    /// to its target, or of a file of [`spill_to`](crate::Command::spill_to). The capture is complete all the same.
    pub tee_failed: Option<TeeFailed>,
    /// The number of input bytes that the child did not read.
    pub stdin_unread: u64,
    /// The containment that the child had.
    pub containment: Containment,
    /// The number of processes that the child left running and that this crate killed; 0 if its tree is not
    /// contained ([`Contain::Tree`](crate::Contain::Tree)).
    pub leftovers_killed: u32,
    /// The number of bytes written to stdout, kept or not; `None` if stdout did not pass through this process.
    pub stdout_bytes: Option<u64>,
    /// The number of bytes written to stderr, kept or not; `None` if stderr did not pass through this process.
    pub stderr_bytes: Option<u64>,
    /// The file with all of stdout, if a part of it is left out: see [`spill_to`](crate::Command::spill_to).
    pub stdout_file: Option<PathBuf>,
    /// The file with all of stderr, if a part of it is left out: see [`spill_to`](crate::Command::spill_to).
    pub stderr_file: Option<PathBuf>,
    /// True if the stderr of the child whose status counts went to stdout.
    pub(crate) stderr_merged: bool,
}

/// The error of a tee that could not write to its target.
///
/// ```
/// let done = pipewright::Command::new("echo").stdout(pipewright::Stdio::tee()).output()?;
/// if let Some(failed) = done.tee_failed.filter(|failed| !failed.is_reader_gone()) {
///     eprintln!("{failed}"); // cannot write to stdout: No space left on device (os error 28)
/// }
/// # Ok::<(), pipewright::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct TeeFailed {
    /// The child's stream. The target of [`Stdio::tee`](crate::Stdio::tee) is this process's stream of that name.
    pub source: Source,
    /// The kind of error; `TimedOut` if the run was stopped and the target did not accept the rest in time.
    pub kind: io::ErrorKind,
    /// The system's error number, if the system reported one.
    pub os_error: Option<i32>,
    /// True if the target is a handle, and not this process's stream of the same name.
    to_handle: bool,
}

impl TeeFailed {
    pub(crate) fn new(source: Source, to_handle: bool, error: &io::Error) -> TeeFailed {
        TeeFailed { source, kind: error.kind(), os_error: error.raw_os_error(), to_handle }
    }

    /// Returns true if the reader of the target is gone, as `head` is after its last line. Tools usually stop writing
    /// then, without an error.
    #[must_use]
    pub fn is_reader_gone(&self) -> bool {
        self.kind == io::ErrorKind::BrokenPipe
    }

    fn to_error(self) -> io::Error {
        match self.os_error {
            Some(number) => io::Error::from_raw_os_error(number),
            None => io::Error::from(self.kind),
        }
    }
}

impl fmt::Display for TeeFailed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let TeeFailed { source, to_handle, .. } = self;
        match to_handle {
            true => write!(f, "cannot write {source} to its file or handle: ")?,
            false => write!(f, "cannot write to {source}: ")?,
        }
        write!(f, "{}", self.to_error())
    }
}

/// Both streams as bytes, with the fields of [`std::process::Output`] and more.
pub type Output = Captured<Vec<u8>>;

/// Both streams as text.
pub type Capture = Captured<String>;

/// The result of a run whose streams were not captured.
pub type Ending = Captured<()>;

impl<T> Captured<T> {
    /// Returns true if the child exited by itself with code 0 and this crate did not stop it.
    #[must_use]
    pub fn success(&self) -> bool {
        self.outcome == Outcome::Exited && self.status.success()
    }

    /// Drops the captured streams, and keeps the facts.
    #[must_use]
    pub fn into_ending(self) -> Ending {
        self.without_streams()
    }

    /// Drops the captured streams.
    pub(crate) fn without_streams(self) -> Ending {
        match self.try_map(|_, _| Ok::<(), std::convert::Infallible>(())) {
            Ok(ending) => ending,
            Err(never) => match never {},
        }
    }

    /// Converts the streams.
    fn try_map<U, E>(
        self,
        mut convert: impl FnMut(Source, T) -> Result<U, E>,
    ) -> Result<Captured<U>, E> {
        Ok(Captured {
            stdout: convert(Source::Stdout, self.stdout)?,
            stderr: convert(Source::Stderr, self.stderr)?,
            status: self.status,
            outcome: self.outcome,
            exceeded: self.exceeded,
            program: self.program,
            pid: self.pid,
            elapsed: self.elapsed,
            out_of_memory: self.out_of_memory,
            limits: self.limits,
            tree_usage: self.tree_usage,
            usage: self.usage,
            held_open: self.held_open,
            truncated: self.truncated,
            tee_failed: self.tee_failed,
            stdin_unread: self.stdin_unread,
            containment: self.containment,
            leftovers_killed: self.leftovers_killed,
            stdout_bytes: self.stdout_bytes,
            stderr_bytes: self.stderr_bytes,
            stdout_file: self.stdout_file,
            stderr_file: self.stderr_file,
            stderr_merged: self.stderr_merged,
        })
    }
}

impl From<Output> for std::process::Output {
    fn from(output: Output) -> Self {
        std::process::Output {
            status: output.status.into(),
            stdout: output.stdout,
            stderr: output.stderr,
        }
    }
}

/// The most bytes of each stream that an error carries.
pub(crate) const TAIL_BYTES: usize = 64 << 10;

/// A captured stream. Only the types that this crate captures streams in implement it.
pub(crate) trait CapturedStream: Sized {
    /// Returns its end, as text.
    fn tail(&self) -> String;
}

impl CapturedStream for Vec<u8> {
    fn tail(&self) -> String {
        let from = self.len().saturating_sub(TAIL_BYTES);
        String::from_utf8_lossy(self.get(from..).unwrap_or_default()).into_owned()
    }
}

impl CapturedStream for String {
    fn tail(&self) -> String {
        let mut from = self.len().saturating_sub(TAIL_BYTES);
        while !self.is_char_boundary(from) {
            from += 1;
        }
        self.get(from..).unwrap_or_default().to_owned()
    }
}

impl CapturedStream for () {
    fn tail(&self) -> String {
        String::new()
    }
}

#[expect(private_bounds, reason = "for bytes, text and nothing, and for no other type")]
impl<T: CapturedStream> Captured<T> {
    /// Returns `self` if the child exited by itself with code 0, and otherwise the error that
    /// [`Command::run`](crate::Command::run) and [`Command::read`](crate::Command::read) return.
    ///
    /// # Errors
    /// [`ErrorKind::Failed`], with the outcome, the limit that was exceeded and the end of each captured stream. The
    /// error prints the last line of stderr, or of the [merged](crate::Command::merge_stderr) output. If the run was
    /// stopped and stderr is empty, the error prints the last line of stdout.
    /// Also fails if a tee could not write to its target, unless the reader of that target is gone.
    ///
    /// ```
    /// use pipewright::{Command, ErrorKind};
    /// use std::time::Duration;
    /// let mut command = Command::new("sh");
    /// command.args(["-c", "echo so far; sleep 60"]).timeout(Duration::from_secs(2));
    /// let error = command.capture()?.check().unwrap_err();
    /// assert_eq!(error.to_string(), r#""sh" failed: timed out after 2s: so far"#);
    /// let ErrorKind::Failed { stdout_tail, .. } = error.kind() else { panic!() };
    /// assert_eq!(stdout_tail, "so far\n");
    /// # Ok::<(), pipewright::Error>(())
    /// ```
    #[doc(alias = "error_for_status")]
    #[doc(alias = "exit_ok")]
    pub fn check(self) -> Result<Captured<T>, Error> {
        check_success(&self.program, &self)?;
        Ok(self)
    }
}

/// Returns an error of this program if the run did not succeed.
pub(crate) fn check_success<T: CapturedStream>(
    program: &OsStr,
    ended: &Captured<T>,
) -> Result<(), Error> {
    if ended.success() {
        return check_tee(program, ended);
    }
    let stdout_tail = ended.stdout.tail();
    let stderr_tail = match ended.stderr.tail() {
        tail if tail.is_empty() && ended.stderr_merged => stdout_tail.clone(),
        tail => tail,
    };
    let kind = ErrorKind::Failed {
        status: ended.status,
        outcome: ended.outcome,
        exceeded: ended.exceeded,
        stdout_tail,
        stderr_tail,
    };
    Err(Error::new(program, FailedOperation::Run, kind, None))
}

/// Returns the error of a failed tee, for verbs that cannot report it in their result. A reader that is gone wants no
/// more output, so that is not a failure.
pub(crate) fn check_tee<T>(program: &OsStr, ended: &Captured<T>) -> Result<(), Error> {
    match ended.tee_failed.filter(|failed| !failed.is_reader_gone()) {
        Some(failed) => Err(Error::cannot(program, "forward the output of", failed.to_error())),
        None => Ok(()),
    }
}

impl fmt::Display for Ending {
    /// Writes the end of the run on one line: `exited with code 1 after 1.2s`, `killed by SIGKILL after 31ms`,
    /// `timed out after 2s, ended after 2.1s`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let elapsed = rounded(self.elapsed);
        match (self.outcome, self.exceeded) {
            (Outcome::Exited | Outcome::Signaled, _) => {
                match (self.status.code(), self.status.terminating_signal()) {
                    (Some(code), _) => write!(f, "exited with code {code}")?,
                    (None, Some(signal)) => write!(f, "killed by {signal}")?,
                    (None, None) => write!(f, "{}", self.status)?,
                }
                write!(f, " after {elapsed:?}")
            }
            (Outcome::OutOfMemory(oom), _) => write!(f, "{oom}, ended after {elapsed:?}"),
            (_, Some(exceeded)) => write!(f, "{exceeded}, ended after {elapsed:?}"),
            (stopped, None) => write!(f, "{stopped}, ended after {elapsed:?}"),
        }
    }
}

/// Rounds down to the precision that readers need: 0.1 s, a millisecond, or a microsecond.
fn rounded(time: Duration) -> Duration {
    let unit = match time.as_secs() {
        1.. => 100_000_000,
        0 if time.as_millis() >= 1 => 1_000_000,
        0 => 1_000,
    };
    let nanos = time.subsec_nanos() / unit * unit;
    Duration::new(time.as_secs(), nanos)
}

/// The rules by which a stream is decoded.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Decoding {
    strict: bool,
    #[cfg(feature = "encoding")]
    encoding: Option<&'static encoding_rs::Encoding>,
}

/// A stream that is not valid UTF-8, and the offset of its first invalid byte.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct NotUtf8 {
    pub(crate) source: Source,
    pub(crate) offset: usize,
}

impl Decoding {
    pub(crate) fn make_strict(&mut self) {
        self.strict = true;
    }

    #[cfg(feature = "encoding")]
    pub(crate) fn use_encoding(&mut self, encoding: &'static encoding_rs::Encoding) {
        self.encoding = Some(encoding);
    }

    /// Returns true if anything but the default is set.
    pub(crate) fn is_set(self) -> bool {
        #[cfg(feature = "encoding")]
        if self.encoding.is_some() {
            return true;
        }
        self.strict
    }

    /// Fails if lines cannot be found before they are decoded: in some encodings a byte 10 can be part of another
    /// character.
    pub(crate) fn check_splits_at_line_feeds(self, program: &OsStr) -> Result<(), Error> {
        #[cfg(feature = "encoding")]
        if self.encoding.is_some_and(|encoding| !encoding.is_ascii_compatible()) {
            let message = "lines need an encoding that is compatible with ASCII";
            let source = io::Error::new(io::ErrorKind::InvalidInput, message);
            return Err(Error::new(
                program,
                FailedOperation::Start,
                ErrorKind::InvalidInput,
                Some(source),
            ));
        }
        let _ = program;
        Ok(())
    }

    /// Returns true if UTF-8 needs no conversion.
    pub(crate) fn is_utf8(self) -> bool {
        #[cfg(feature = "encoding")]
        return self.encoding.is_none();
        #[cfg(not(feature = "encoding"))]
        true
    }

    /// Drops an incomplete character at the end of bytes that were cut off.
    pub(crate) fn without_half_a_character(self, bytes: &[u8]) -> &[u8] {
        if !self.is_utf8() {
            return bytes;
        }
        // A character has at most four bytes, and std tells an incomplete one from a wrong one.
        let is_half = |end: &[u8]| {
            std::str::from_utf8(end)
                .is_err_and(|error| error.valid_up_to() == 0 && error.error_len().is_none())
        };
        let mut cuts =
            (1..=3).filter_map(|half| bytes.split_at_checked(bytes.len().checked_sub(half)?));
        cuts.find(|(_, end)| is_half(end)).map_or(bytes, |(whole, _)| whole)
    }

    /// Drops the rest of a character at the start of bytes that were cut off.
    fn without_rest_of_character(self, bytes: &[u8]) -> &[u8] {
        let is_later = |byte: &&u8| self.is_utf8() && **byte & 0xc0 == 0x80;
        let half = bytes.iter().take(3).take_while(is_later).count();
        bytes.get(half..).unwrap_or_default()
    }

    /// Drops of strict text the character that a limit has cut, at the start or at the end.
    pub(crate) fn drop_cut(self, bytes: &mut Vec<u8>, at_start: bool) {
        if self.strict && at_start {
            bytes.drain(..bytes.len() - self.without_rest_of_character(bytes).len());
        } else if self.strict {
            bytes.truncate(self.without_half_a_character(bytes).len());
        }
    }

    /// Decodes a whole stream. Valid UTF-8 keeps its allocation.
    pub(crate) fn decode(self, source: Source, bytes: Vec<u8>) -> Result<String, NotUtf8> {
        #[cfg(feature = "encoding")]
        if let Some(encoding) = self.encoding {
            return self.decode_from(encoding, source, &bytes);
        }
        match String::from_utf8(bytes) {
            Ok(text) => Ok(text),
            Err(error) if self.strict => {
                Err(NotUtf8 { source, offset: error.utf8_error().valid_up_to() })
            }
            Err(error) => Ok(String::from_utf8_lossy(error.as_bytes()).into_owned()),
        }
    }

    /// Decodes the part of a stream that a limit kept. The limit may have cut a character at either edge. That is not
    /// an error of the stream, so strict text drops the incomplete character.
    fn decode_cut(self, source: Source, bytes: Vec<u8>) -> Result<String, NotUtf8> {
        if !self.strict || !self.is_utf8() {
            return self.decode(source, bytes);
        }
        let rest = self.without_rest_of_character(&bytes);
        let half_bytes = bytes.len() - rest.len();
        self.decode(source, self.without_half_a_character(rest).to_owned())
            .map_err(|bad| NotUtf8 { offset: bad.offset + half_bytes, ..bad })
    }

    #[cfg(feature = "encoding")]
    fn decode_from(
        self,
        encoding: &'static encoding_rs::Encoding,
        source: Source,
        bytes: &[u8],
    ) -> Result<String, NotUtf8> {
        let (text, had_errors) = encoding.decode_without_bom_handling(bytes);
        if self.strict && had_errors {
            return Err(NotUtf8 { source, offset: valid_up_to(encoding, bytes) });
        }
        Ok(text.into_owned())
    }
}

/// Decodes a captured output of this program.
pub(crate) fn into_text(
    program: &OsStr,
    decoding: Decoding,
    output: Output,
) -> Result<Capture, Error> {
    let written = [output.stdout_bytes, output.stderr_bytes];
    let decode = |source, bytes: Vec<u8>| {
        let is_cut = written[source as usize].is_some_and(|written| written > bytes.len() as u64);
        if is_cut { decoding.decode_cut(source, bytes) } else { decoding.decode(source, bytes) }
    };
    output.try_map(decode).map_err(|bad| {
        let kind = ErrorKind::InvalidUtf8 { source: bad.source, offset: bad.offset };
        Error::new(program, FailedOperation::Child("decode the output of"), kind, None)
    })
}

/// Returns the offset of the first byte that is invalid in the encoding.
#[cfg(feature = "encoding")]
fn valid_up_to(encoding: &'static encoding_rs::Encoding, bytes: &[u8]) -> usize {
    let mut decoder = encoding.new_decoder_without_bom_handling();
    let mut text = String::with_capacity(bytes.len() * 3 + 16);
    let (result, read) = decoder.decode_to_string_without_replacement(bytes, &mut text, true);
    match result {
        encoding_rs::DecoderResult::Malformed(length, after) => {
            read - usize::from(length) - usize::from(after)
        }
        _ => read,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_cut_to_the_precision_that_readers_need() {
        let shown = |nanos| format!("{:?}", rounded(Duration::from_nanos(nanos)));
        assert_eq!(shown(1_234_567_890), "1.2s");
        assert_eq!(shown(31_234_567), "31ms");
        assert_eq!(shown(1_567), "1µs");
        assert_eq!(shown(2_000_000_001), "2s");
    }

    #[test]
    fn text_is_lossy_by_default_and_strict_on_request() {
        let bytes = b"caf\xc3\xa9 \xff!".to_vec();
        let lossy = Decoding::default().decode(Source::Stdout, bytes.clone());
        assert_eq!(lossy.as_deref(), Ok("caf\u{e9} \u{fffd}!"));
        let mut strict = Decoding::default();
        strict.make_strict();
        let refused = NotUtf8 { source: Source::Stderr, offset: 6 };
        assert_eq!(strict.decode(Source::Stderr, bytes), Err(refused));
    }

    #[test]
    fn strict_text_drops_an_incomplete_character_at_a_cut() {
        let mut strict = Decoding::default();
        strict.make_strict();
        let cut = |bytes: &[u8]| strict.decode_cut(Source::Stdout, bytes.to_owned());
        for text in ["caf\u{e9}", "\u{1f600}\u{1f600}", "plain", ""] {
            for (from, to) in (0..=text.len()).flat_map(|to| (0..=to).map(move |from| (from, to))) {
                let whole = cut(&text.as_bytes()[from..to]).unwrap();
                assert!(
                    text.contains(&whole) && whole.len() + 6 >= to - from,
                    "{text} {from} {to}"
                );
            }
        }
        let refused = NotUtf8 { source: Source::Stdout, offset: 4 };
        assert_eq!(cut(b"\xa9ab \xff \xc3"), Err(refused));
        // No character begins so, whatever came after it.
        let refused = |offset| Err(NotUtf8 { source: Source::Stdout, offset });
        assert_eq!(cut(b"ab\xf0\x82"), refused(2));
        assert_eq!(cut(b"ab\xe0\x80"), refused(2));
    }

    #[cfg(feature = "encoding")]
    #[test]
    fn another_encoding_is_decoded_and_its_errors_have_offsets() {
        let mut decoding = Decoding::default();
        decoding.use_encoding(encoding_rs::SHIFT_JIS);
        let decode =
            |decoding: Decoding, bytes: &[u8]| decoding.decode(Source::Stdout, bytes.into());
        assert_eq!(decode(decoding, b"\x83e\x83X\x83g").as_deref(), Ok("\u{30c6}\u{30b9}\u{30c8}"));
        decoding.make_strict();
        assert_eq!(decode(decoding, b"ab\xff").unwrap_err().offset, 2);
    }
}
