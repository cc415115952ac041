//! Reads of `/proc` with a few plain calls.
//!
//! std's functions for files and directories are general. A program that does not use them otherwise would
//! contain them because of this module.

use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;

use rustix::fs::{CWD, Mode, OFlags, RawDir};
use rustix::io::{Errno, Result};

/// Reads a whole file.
pub(crate) fn read(path: &str) -> Result<Vec<u8>> {
    let file = open(path, OFlags::RDONLY)?;
    let mut bytes = Vec::new();
    let mut chunk = [0; 4096];
    loop {
        match rustix::io::read(&file, &mut chunk) {
            Ok(0) => return Ok(bytes),
            Ok(count) => bytes.extend_from_slice(chunk.get(..count).unwrap_or_default()),
            Err(Errno::INTR) => {}
            Err(error) => return Err(error),
        }
    }
}

/// Returns `None` for what belongs to a process that is gone. Any other error is none about the process.
fn unless_gone<T>(result: Result<T>) -> Result<Option<T>> {
    match result {
        Ok(found) => Ok(Some(found)),
        Err(Errno::NOENT | Errno::SRCH) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Returns the entries of a directory whose names are numbers.
fn numbers_in(path: &str) -> Result<Vec<u32>> {
    let dir = open(path, OFlags::RDONLY | OFlags::DIRECTORY)?;
    let mut space = [MaybeUninit::uninit(); 2048];
    let mut entries = RawDir::new(dir, &mut space);
    let mut numbers = Vec::new();
    while let Some(entry) = entries.next() {
        if let Some(number) = number(entry?.file_name().to_bytes()) {
            numbers.push(number);
        }
    }
    Ok(numbers)
}

/// Returns the number that is the target of a symbolic link; `None` if there is no link, or another target.
fn number_behind(path: &str) -> Result<Option<u32>> {
    let mut space = [MaybeUninit::uninit(); 32];
    let target = unless_gone(rustix::fs::readlinkat_raw(CWD, path, &mut space))?;
    Ok(target.and_then(|(target, _)| number(target)))
}

/// Splits a line into words.
pub(crate) fn words(text: &[u8]) -> impl Iterator<Item = &[u8]> {
    text.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty())
}

/// Parses a decimal number with nothing around it.
pub(crate) fn number(digits: &[u8]) -> Option<u32> {
    u32::try_from(long_number(digits)?).ok()
}

/// Does the same for a number that may have 64 bits.
fn long_number(digits: &[u8]) -> Option<u64> {
    let mut number: u64 = 0;
    for digit in digits {
        let value = digit.checked_sub(b'0').filter(|value| *value < 10)?;
        number = number.checked_mul(10)?.checked_add(u64::from(value))?;
    }
    (!digits.is_empty()).then_some(number)
}

/// Returns true if `/proc` shows the processes of this pid namespace, so that numbers in it mean the same
/// as here.
pub(crate) fn proc_is_ours() -> Result<bool> {
    Ok(number_behind("/proc/self")? == Some(std::process::id()))
}

/// Returns the numbers of all processes.
pub(crate) fn pids() -> Result<Vec<u32>> {
    numbers_in("/proc")
}

/// Returns true if a process of the group lives; `None` if `/proc` cannot be read.
pub(crate) fn group_lives(group: u32) -> Option<bool> {
    if !proc_is_ours().ok()? {
        return None;
    }
    for pid in pids().ok()? {
        if Stat::of(pid).ok()?.is_some_and(|it| it.group == group && !it.has_ended()) {
            return Some(true);
        }
    }
    Some(false)
}

/// Returns true if the process with that number is seen stopped or traced.
pub(crate) fn is_stopped(pid: u32) -> bool {
    matches!(Stat::of(pid), Ok(Some(Stat { state: b'T' | b't', .. })))
}

/// Returns the children of a process, zombies included; none if it is gone.
pub(crate) fn children_of(pid: u32) -> Result<Vec<u32>> {
    let mut children = Vec::new();
    let tasks = unless_gone(numbers_in(&format!("/proc/{pid}/task")))?;
    for task in tasks.unwrap_or_default() {
        // A kernel may be built without that file.
        let list = unless_gone(read(&format!("/proc/{pid}/task/{task}/children")))?;
        for word in words(&list.unwrap_or_default()) {
            if let Some(child) = number(word) {
                children.push(child);
            }
        }
    }
    Ok(children)
}

/// The fields of `/proc/PID/stat` (proc(5)) that this crate needs.
pub(crate) struct Stat {
    state: u8,
    pub(crate) parent: u32,
    pub(crate) group: u32,
    /// Clock ticks since the start of the machine.
    pub(crate) start: u64,
}

impl Stat {
    /// Returns those of the process with that number; `None` if there is none.
    pub(crate) fn of(pid: u32) -> Result<Option<Stat>> {
        match unless_gone(read(&format!("/proc/{pid}/stat")))? {
            None => Ok(None),
            Some(text) => Stat::parse(&text).map(Some).ok_or(Errno::BADMSG),
        }
    }

    fn parse(stat: &[u8]) -> Option<Stat> {
        // The name comes first and may contain anything; it ends at the last parenthesis.
        let mut fields = words(stat.rsplit(|byte| *byte == b')').next()?);
        Some(Stat {
            state: *fields.next()?.first()?,
            parent: number(fields.next()?)?,
            group: number(fields.next()?)?,
            start: long_number(fields.nth(16)?)?,
        })
    }

    pub(crate) fn has_ended(&self) -> bool {
        matches!(self.state, b'Z' | b'X')
    }

    /// Returns true if it cannot start a process now.
    pub(crate) fn is_stopped_or_ended(&self) -> bool {
        matches!(self.state, b'T' | b't') || self.has_ended()
    }
}

pub(crate) fn open(path: &str, flags: OFlags) -> Result<OwnedFd> {
    rustix::fs::open(path, flags | OFlags::CLOEXEC, Mode::empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_is_digits_and_nothing_else() {
        assert_eq!(number(b"4294967295"), Some(u32::MAX));
        for text in ["", "4294967296", "99999999999999999999", "-1", "1 ", "a", "1/", "1:"] {
            assert_eq!(number(text.as_bytes()), None, "{text}");
        }
    }

    #[test]
    fn a_file_is_read_to_its_end() {
        let path = std::env::temp_dir().join(format!("proc-read-{}", std::process::id()));
        let all: Vec<u8> = (0..10_000).map(|at| at as u8).collect();
        std::fs::write(&path, &all).unwrap();
        let found = read(path.to_str().unwrap());
        std::fs::remove_file(&path).unwrap();
        assert_eq!(found, Ok(all));
        assert_eq!(read("/proc/no such file"), Err(Errno::NOENT));
    }

    #[test]
    fn numeric_directory_entries_are_listed() {
        let own = std::process::id();
        let found = numbers_in("/proc").unwrap();
        assert!(found.contains(&own), "{found:?}");
        assert_eq!(number_behind("/proc/self"), Ok(Some(own)));
        assert!(numbers_in("/proc/self/task").unwrap().contains(&own));
    }
}
