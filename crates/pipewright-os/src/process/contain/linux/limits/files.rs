//! The files of a group: small texts, read and written whole.

use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, OwnedFd, RawFd};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use rustix::fs::{Mode, OFlags};
use rustix::process::{Resource, getrlimit};

/// Files of groups that stay open, and those that do not exist. To open one takes several times as long as to read it.
#[derive(Debug, Default)]
pub(super) struct OpenFiles(Mutex<HashMap<(RawFd, &'static str), Option<OwnedFd>>>);

impl OpenFiles {
    /// Calls the function with a file of a directory, which must stay open as long as this value.
    pub(super) fn with<T>(
        &self,
        dir: BorrowedFd<'_>,
        file: &'static str,
        done: impl FnOnce(BorrowedFd<'_>) -> io::Result<T>,
    ) -> io::Result<T> {
        // Each change is one insertion.
        let mut files = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let key = (dir.as_raw_fd(), file);
        match files.get(&key) {
            Some(Some(open)) => return done(open.as_fd()),
            Some(None) => return Err(io::ErrorKind::NotFound.into()),
            None => {}
        }
        // The kernel refuses to open a file for writing if it does not take any.
        let opened = open(dir, file, OFlags::RDWR).or_else(|_| open(dir, file, OFlags::RDONLY));
        match opened {
            Ok(open) => {
                let result = done(open.as_fd());
                if leaves_room(open.as_fd()) {
                    files.insert(key, Some(open));
                }
                result
            }
            Err(error) => {
                if error.kind() == io::ErrorKind::NotFound {
                    files.insert(key, None);
                }
                Err(error)
            }
        }
    }
}

/// Returns true if most of the numbers for handles are free.
fn leaves_room(fd: BorrowedFd<'_>) -> bool {
    const SHARE: u64 = 4;
    let most = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    u64::try_from(fd.as_raw_fd()).is_ok_and(|number| number < most / SHARE)
}

/// Opens a file of a directory.
pub(super) fn open(dir: BorrowedFd<'_>, file: &str, flags: OFlags) -> io::Result<OwnedFd> {
    Ok(rustix::fs::openat(dir, file, flags | OFlags::CLOEXEC, Mode::empty())?)
}

pub(super) fn read(dir: BorrowedFd<'_>, file: &str) -> io::Result<String> {
    read_open(open(dir, file, OFlags::RDONLY)?.as_fd())
}

/// Reads an open file from its beginning.
pub(in super::super) fn read_open(file: BorrowedFd<'_>) -> io::Result<String> {
    // The kernel makes such a text in one go, and it is shorter than a page.
    const MOST_BYTES: usize = 4096;
    let mut text = vec![0; MOST_BYTES];
    let count = rustix::io::retry_on_intr(|| rustix::io::pread(file, &mut text, 0))?;
    text.truncate(count);
    String::from_utf8(text).map_err(|_| io::ErrorKind::InvalidData.into())
}

pub(super) fn write(dir: BorrowedFd<'_>, file: &str, text: &str) -> io::Result<()> {
    let file = open(dir, file, OFlags::WRONLY)?;
    // One write: the kernel takes each as a whole value.
    rustix::io::write(&file, text.as_bytes())?;
    Ok(())
}

/// Returns the number in a file; `None` if it has none, such as `max`.
pub(super) fn number(dir: BorrowedFd<'_>, file: &str) -> Option<u64> {
    number_of(&read(dir, file).ok()?)
}

/// Returns the number that a text consists of.
pub(super) fn number_of(text: &str) -> Option<u64> {
    text.trim_ascii().parse().ok()
}

/// Returns the number after a word, in a text of lines with a word and a number each.
pub(super) fn value(text: &str, key: &str) -> Option<u64> {
    text.lines().find_map(|line| {
        let (word, number) = line.split_once(' ')?;
        (word == key).then(|| number.trim_ascii().parse().ok())?
    })
}

/// Returns the time in which at least one thread was stalled, from a text of pressure stall information.
pub(super) fn stalled(text: &str) -> Option<Duration> {
    let some = text.lines().find(|line| line.starts_with("some "))?;
    let (_, total) = some.split_once("total=")?;
    total.trim_ascii().parse().ok().map(Duration::from_micros)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_found_by_their_whole_word() {
        let events = "low 0\noom 3\noom_kill 12\noom_group_kill 1\n";
        assert_eq!(value(events, "oom"), Some(3));
        assert_eq!(value(events, "oom_kill"), Some(12));
        assert_eq!(value(events, "kill"), None);
        assert_eq!(value("oom x\n", "oom"), None);
    }

    #[test]
    fn stall_times_are_totals() {
        let text = "some avg10=0.00 avg60=0.00 avg300=0.00 total=1500\nfull avg10=0.00 total=9\n";
        assert_eq!(stalled(text), Some(Duration::from_micros(1500)));
        assert_eq!(stalled(""), None);
    }
}
