//! The client of a jobserver above, as a batch in a recipe of `make -jN`, and the options in `MAKEFLAGS`: read from a
//! make above, and written for the makes below.

use std::ffi::{OsStr, OsString};
use std::io;
use std::path::PathBuf;

use pipewright::Handle;
use pipewright_os::base::os_text;
use pipewright_os::base::token_pipe::TokenPipe;

use super::tokens::Tokens;
use super::{JobserverError, JobserverErrorKind};

/// A client of the jobserver that `MAKEFLAGS` names.
///
/// # Drop
/// Tokens stay valid; each is put back when it is dropped, also during a panic that unwinds.
#[derive(Debug)]
pub(crate) struct Client {
    pub(super) tokens: Tokens,
    /// The handles that `MAKEFLAGS` names, with their numbers there.
    handles: Vec<(Handle, i32)>,
}

impl Client {
    /// Connects to the jobserver that `MAKEFLAGS` names, or else `CARGO_MAKEFLAGS`. `None`: neither names one.
    ///
    /// A number in `MAKEFLAGS` that make has not passed on may be that of a handle which this process has opened. Such
    /// a handle is not taken for one of make's, because exec closes it.
    ///
    /// # Errors
    /// A jobserver is named and cannot be used: see [`JobserverError::is_warning`].
    pub(crate) fn from_env() -> Result<Option<Client>, JobserverError> {
        let flags = ["MAKEFLAGS", "CARGO_MAKEFLAGS"].map(std::env::var_os);
        for flags in flags.iter().flatten() {
            if let Some(client) = Client::from_makeflags(flags, TokenPipe::are_inherited)? {
                return Ok(Some(client));
            }
        }
        Ok(None)
    }

    /// Connects to the jobserver that these flags name. `None`: they name none.
    pub(super) fn from_makeflags(
        flags: &OsStr,
        are_inherited: impl Fn(i32, i32) -> io::Result<bool>,
    ) -> Result<Option<Client>, JobserverError> {
        let Some((option, auth)) = find(flags) else { return Ok(None) };
        let opened = match &auth {
            Auth::Fifo(path) => TokenPipe::open(path).map(|pipe| (pipe, Vec::new())),
            // The standard streams carry data, even if they are pipes. Numbers that are not open fail below.
            Auth::Pipe { read, write }
                if *read > 2 && *write > 2 && are_inherited(*read, *write).unwrap_or(true) =>
            {
                TokenPipe::from_numbers(*read, *write).and_then(|pipe| {
                    let [reader, writer] = [read, write].map(|end| Handle::copy_of_number(*end));
                    Ok((pipe, vec![(reader?, *read), (writer?, *write)]))
                })
            }
            Auth::Pipe { .. } => {
                let kind = JobserverErrorKind::NotPassedOn { option };
                return Err(JobserverError::new(kind, None));
            }
            Auth::Unknown => {
                let kind = JobserverErrorKind::Malformed { option };
                return Err(JobserverError::new(kind, None));
            }
        };
        match opened {
            Ok((pipe, handles)) => Ok(Some(Client { tokens: Tokens::new(pipe), handles })),
            Err(error) if error.kind() == io::ErrorKind::Unsupported => {
                Err(JobserverError::new(JobserverErrorKind::Unsupported, Some(error)))
            }
            Err(error) => {
                let kind = match auth {
                    Auth::Fifo(path) => JobserverErrorKind::OpenFifo { path },
                    _ => JobserverErrorKind::NotPassedOn { option },
                };
                Err(JobserverError::new(kind, Some(error)))
            }
        }
    }

    /// Returns copies of the handles that a child must inherit, each with the number that it must have there, so that
    /// the child can take part as well: for [`pipewright::Command::inherit_fd_as`]. Its `MAKEFLAGS` stays as it is.
    ///
    /// # Errors
    /// No more handles are available.
    pub(crate) fn inherited(&self) -> io::Result<Vec<(Handle, i32)>> {
        self.handles.iter().map(|(end, number)| Ok((end.try_clone()?, *number))).collect()
    }
}

// The jobserver options in `MAKEFLAGS`: read from a make above, and written for the makes below.
//
// `MAKEFLAGS` is a list of words, separated by blanks; a backslash makes the next character part of the word. The
// first word may be a group of letters without a dash. Variables follow the word `--`.

/// The option since make 4.2, and the one before.
const AUTH: &[u8] = b"--jobserver-auth=";
const FDS: &[u8] = b"--jobserver-fds=";

/// The letters of make's options that take the rest of their word as a value.
const WITH_VALUE: &[u8] = b"CEIOWfjlo";

/// The way to a jobserver, as an option states it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Auth {
    /// A FIFO.
    Fifo(PathBuf),
    /// Handles. A negative number means that make has not passed them on.
    Pipe { read: i32, write: i32 },
    /// Another form, such as the name of a semaphore.
    Unknown,
}

/// Returns the last jobserver option, and its meaning.
pub(super) fn find(flags: &OsStr) -> Option<(String, Auth)> {
    let word = words(flags.as_encoded_bytes())
        .take_while(|word| *word != b"--")
        .filter(|word| value_of(word).is_some())
        .last()?;
    let word = unescaped(word);
    let auth = parse(value_of(&word)?);
    Some((String::from_utf8_lossy(&word).into_owned(), auth))
}

/// Returns the number of jobs that the flags state, as make writes it: `-j4`, also after other letters, or `--jobs=4`.
pub(super) fn jobs(flags: &OsStr) -> Option<u32> {
    let number = |word: &[u8]| {
        let digits = word.strip_prefix(b"--jobs=").or_else(|| word.strip_prefix(b"-j"))?;
        std::str::from_utf8(digits).ok()?.parse().ok().filter(|number| *number > 0)
    };
    let words = words(flags.as_encoded_bytes()).take_while(|word| *word != b"--");
    words.filter_map(number).last()
}

fn value_of(word: &[u8]) -> Option<&[u8]> {
    word.strip_prefix(AUTH).or_else(|| word.strip_prefix(FDS))
}

fn parse(value: &[u8]) -> Auth {
    if let Some(path) = value.strip_prefix(b"fifo:") {
        return match os_text::from_bytes(path.to_vec()) {
            Ok(path) if !path.is_empty() => Auth::Fifo(PathBuf::from(path)),
            _ => Auth::Unknown,
        };
    }
    let numbers = std::str::from_utf8(value).ok().and_then(|text| {
        let (read, write) = text.split_once(',')?;
        Some((read.parse().ok()?, write.parse().ok()?))
    });
    numbers.map_or(Auth::Unknown, |(read, write)| Auth::Pipe { read, write })
}

/// Returns `MAKEFLAGS` for children: the existing flags, without a number of jobs and a jobserver, and then `options`.
pub(super) fn with_options(existing: Option<&OsStr>, options: &[u8]) -> OsString {
    let existing = existing.unwrap_or_default().as_encoded_bytes();
    let mut flags = Vec::new();
    let mut variables = Vec::new();
    let mut after_jobs = false;
    let mut rest = words(existing).enumerate();
    while let Some((place, word)) = rest.next() {
        if word == b"--" {
            variables = rest.map(|(_, word)| word).collect();
            break;
        }
        // `-j 4`: the number is a word of its own.
        let is_number = word.iter().all(u8::is_ascii_digit);
        if std::mem::take(&mut after_jobs) && is_number || value_of(word).is_some() {
            continue;
        }
        if word == b"--jobs" || word.starts_with(b"--jobs=") {
            after_jobs = word == b"--jobs";
            continue;
        }
        let is_group = place == 0
            && !existing.first().is_some_and(is_blank)
            && !word.starts_with(b"-")
            && !word.contains(&b'=');
        let kept = if word.starts_with(b"--") { word } else { without_jobs(word, is_group) };
        after_jobs = kept.len() < word.len() && word.ends_with(b"j");
        if kept == b"-" {
            continue;
        }
        // A first word without a dash is a group of letters, so another one needs the blank before it.
        if !is_group {
            flags.push(b' ');
        }
        flags.extend_from_slice(kept);
    }
    flags.push(b' ');
    flags.extend_from_slice(options);
    if !variables.is_empty() {
        flags.extend_from_slice(b" --");
    }
    for word in variables {
        flags.push(b' ');
        flags.extend_from_slice(word);
    }
    // Words cut at ASCII blanks stay words of the system. If they do not, the children have no flags but ours.
    os_text::from_bytes(flags).unwrap_or_else(|_| with_options(None, options))
}

/// Cuts `j` and its number off a word of letters, such as `-kj4`.
fn without_jobs(word: &[u8], is_group: bool) -> &[u8] {
    if !is_group && !word.starts_with(b"-") {
        return word;
    }
    match word.iter().position(|letter| WITH_VALUE.contains(letter)) {
        Some(at) if word.get(at) == Some(&b'j') => word.get(..at).unwrap_or(word),
        _ => word,
    }
}

/// Splits at blanks that no backslash precedes. The backslashes are still there.
fn words(flags: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut is_escaped = false;
    let is_separator = move |byte: &u8| {
        let separates = !is_escaped && is_blank(byte);
        is_escaped = !is_escaped && *byte == b'\\';
        separates
    };
    flags.split(is_separator).filter(|word| !word.is_empty())
}

fn is_blank(byte: &u8) -> bool {
    matches!(byte, b' ' | b'\t')
}

fn unescaped(word: &[u8]) -> Vec<u8> {
    let mut bytes = word.iter().copied();
    let mut text = Vec::with_capacity(word.len());
    while let Some(byte) = bytes.next() {
        text.push(if byte == b'\\' { bytes.next().unwrap_or(byte) } else { byte });
    }
    text
}
