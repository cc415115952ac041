//! What `/proc` says, read by a few plain calls.
//!
//! std's ways to read a file or a directory are general, and a program that would not contain them
//! otherwise would have them from here.

use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;

use rustix::fs::{CWD, Mode, OFlags, RawDir};
use rustix::io::Errno;

/// A whole file.
pub(crate) fn read(path: &str) -> Option<Vec<u8>> {
    let file = open(path, OFlags::RDONLY)?;
    let mut bytes = Vec::new();
    let mut chunk = [0; 4096];
    loop {
        match rustix::io::read(&file, &mut chunk) {
            Ok(0) => return Some(bytes),
            Ok(count) => bytes.extend_from_slice(chunk.get(..count)?),
            Err(Errno::INTR) => {}
            Err(_) => return None,
        }
    }
}

/// The entries of a directory whose names are numbers.
pub(super) fn numbers_in(path: &str) -> Option<Vec<u32>> {
    let dir = open(path, OFlags::RDONLY | OFlags::DIRECTORY)?;
    let mut space = [MaybeUninit::uninit(); 2048];
    let mut entries = RawDir::new(dir, &mut space);
    let mut numbers = Vec::new();
    // An error ends the list: who was found by then is found.
    while let Some(Ok(entry)) = entries.next() {
        if let Some(number) = number(entry.file_name().to_bytes()) {
            numbers.push(number);
        }
    }
    Some(numbers)
}

/// The number that a symbolic link leads to.
pub(super) fn number_behind(path: &str) -> Option<u32> {
    let mut space = [MaybeUninit::uninit(); 32];
    let (target, _) = rustix::fs::readlinkat_raw(CWD, path, &mut space).ok()?;
    number(target)
}

/// The words of a line.
pub(crate) fn words(text: &[u8]) -> impl Iterator<Item = &[u8]> {
    text.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty())
}

/// A decimal number, and nothing else.
pub(crate) fn number(digits: &[u8]) -> Option<u32> {
    let mut number: u32 = 0;
    for digit in digits {
        let value = digit.checked_sub(b'0').filter(|value| *value < 10)?;
        number = number.checked_mul(10)?.checked_add(u32::from(value))?;
    }
    (!digits.is_empty()).then_some(number)
}

fn open(path: &str, flags: OFlags) -> Option<OwnedFd> {
    rustix::fs::open(path, flags | OFlags::CLOEXEC, Mode::empty()).ok()
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
        assert_eq!(found, Some(all));
        assert_eq!(read("/proc/no such file"), None);
    }

    #[test]
    fn a_directory_tells_its_numbers() {
        let own = std::process::id();
        let found = numbers_in("/proc").unwrap();
        assert!(found.contains(&own), "{found:?}");
        assert_eq!(number_behind("/proc/self"), Some(own));
        assert_eq!(numbers_in("/proc/self/task").map(|tasks| tasks.contains(&own)), Some(true));
    }
}
