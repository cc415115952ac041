//! `/dev/null` and descriptors 0 to 2.

use std::fs::OpenOptions;
use std::io;
#[cfg(target_os = "linux")]
use std::os::fd::AsRawFd;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{FileType, Stat};
#[cfg(target_os = "linux")]
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

use crate::base::handle::Handle;
#[cfg(feature = "tokio")]
use crate::base::pipe::PipeReader;
use crate::base::pipe::{NonblockMethod, PipeWriter};

pub(super) fn null() -> io::Result<Handle> {
    OpenOptions::new().read(true).write(true).open("/dev/null").map(Handle::from)
}

pub(super) fn console(number: i32) -> io::Result<Handle> {
    let owned = match number {
        0 => std::io::stdin().as_fd().try_clone_to_owned()?,
        1 => std::io::stdout().as_fd().try_clone_to_owned()?,
        _ => {
            let stderr = std::io::stderr();
            let borrowed: BorrowedFd<'_> = stderr.as_fd();
            borrowed.try_clone_to_owned()?
        }
    };
    Ok(Handle::from(owned))
}

pub(super) fn console_writer(to_stderr: bool) -> io::Result<Option<PipeWriter>> {
    let (stdout, stderr) = (io::stdout(), io::stderr());
    let console = if to_stderr { stderr.as_fd() } else { stdout.as_fd() };
    match rustix::fs::fstat(console) {
        Ok(stat) => writer(console, &stat).map(Some),
        Err(Errno::BADF) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

pub(super) fn writer_to(target: Handle) -> io::Result<PipeWriter> {
    writer(target.as_fd(), &rustix::fs::fstat(&target)?)
}

/// Returns a reader of our own for the same file, pipe or terminal.
#[cfg(feature = "tokio")]
pub(super) fn own_reader(target: BorrowedFd<'_>, stat: &Stat) -> io::Result<PipeReader> {
    let kind = FileType::from_raw_mode(stat.st_mode);
    Ok(match reopen(target, stat, kind, false) {
        Some(own) => PipeReader::with_method(own, NonblockMethod::Plain),
        None => PipeReader::with_method(target.try_clone_to_owned()?, NonblockMethod::Detect),
    })
}

pub(super) fn writer(target: BorrowedFd<'_>, stat: &Stat) -> io::Result<PipeWriter> {
    let kind = FileType::from_raw_mode(stat.st_mode);
    if let Some(own) = reopen(target, stat, kind, true) {
        return Ok(PipeWriter::with_method(own, NonblockMethod::Plain));
    }
    // Writes in pieces that fit, unless it is a file or a socket.
    Ok(PipeWriter::from(target.try_clone_to_owned()?))
}

/// Reopens the same pipe or terminal, for an open file of our own.
#[cfg(target_os = "linux")]
fn reopen(target: BorrowedFd<'_>, stat: &Stat, kind: FileType, writes: bool) -> Option<OwnedFd> {
    // Opening the controlling side of a terminal makes a new terminal.
    let is_ptmx = stat.st_rdev == rustix::fs::makedev(5, 2);
    let is_terminal = kind == FileType::CharacterDevice && io::IsTerminal::is_terminal(&target);
    if kind != FileType::Fifo && (is_ptmx || !is_terminal) {
        return None;
    }
    let path = format!("/proc/self/fd/{}", target.as_raw_fd());
    let access = if writes { OFlags::WRONLY } else { OFlags::RDONLY };
    let flags = access | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    // Ignored: the caller falls back to a duplicate.
    rustix::fs::open(path, flags, Mode::empty()).ok()
}

#[cfg(not(target_os = "linux"))]
fn reopen(_: BorrowedFd<'_>, _: &Stat, _: FileType, _: bool) -> Option<OwnedFd> {
    // Elsewhere /dev/fd returns another handle of the same open file.
    None
}
