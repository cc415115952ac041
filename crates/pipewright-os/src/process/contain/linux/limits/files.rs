//! The files of a group: small texts, read and written whole.

use std::fs::File;
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::fs::{Mode, OFlags};

/// Opens a file of a directory.
pub(super) fn open(dir: BorrowedFd<'_>, file: &str, flags: OFlags) -> io::Result<OwnedFd> {
    Ok(rustix::fs::openat(dir, file, flags | OFlags::CLOEXEC, Mode::empty())?)
}

pub(super) fn read(dir: BorrowedFd<'_>, file: &str) -> io::Result<String> {
    io::read_to_string(File::from(open(dir, file, OFlags::RDONLY)?))
}

pub(super) fn write(dir: BorrowedFd<'_>, file: &str, text: &str) -> io::Result<()> {
    let file = open(dir, file, OFlags::WRONLY)?;
    // One write: the kernel takes each as a whole value.
    rustix::io::write(&file, text.as_bytes())?;
    Ok(())
}

/// Returns the number in a file; `None` if it has none, such as `max`.
pub(super) fn number(dir: BorrowedFd<'_>, file: &str) -> Option<u64> {
    read(dir, file).ok()?.trim_ascii().parse().ok()
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
