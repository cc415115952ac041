//! Reopens pipes and terminals; for all other objects, duplicates the descriptor.

use std::io;
use std::os::fd::AsFd;
use std::task::{Context, Poll};

use rustix::io::Errno;
use tokio::io::ReadBuf;

use super::super::unix::{own_reader, writer};
use super::{read_in_place, write_in_place};
use crate::base::async_pipe::{
    AsyncPipeReader, AsyncPipeWriter, try_into_async_reader, try_into_async_writer,
};
use crate::base::pipe::{PipeReader, PipeWriter};

#[derive(Debug)]
pub(super) enum Reader {
    Closed,
    /// An object that cannot be waited for: it always has data, or is at its end.
    InPlace(PipeReader),
    Async(AsyncPipeReader),
}

#[derive(Debug)]
pub(super) enum Writer {
    Closed,
    /// An object that cannot be waited for. `None`: it has been shut down.
    InPlace(Option<PipeWriter>),
    Async(AsyncPipeWriter),
}

pub(super) fn stdin() -> io::Result<Reader> {
    let stdin = io::stdin();
    let stat = match rustix::fs::fstat(&stdin) {
        Err(Errno::BADF) => return Ok(Reader::Closed),
        stat => stat?,
    };
    let pipe = own_reader(stdin.as_fd(), &stat)?;
    if is_on_disk(&stat) {
        return Ok(Reader::InPlace(pipe));
    }
    match try_into_async_reader(pipe) {
        Ok(reader) => Ok(Reader::Async(reader)),
        Err((pipe, error)) if cannot_be_watched(&error) => Ok(Reader::InPlace(pipe)),
        Err((_, error)) => Err(error),
    }
}

pub(super) fn stdout(is_stderr: bool) -> io::Result<Writer> {
    let (stdout, stderr) = (io::stdout(), io::stderr());
    let stream = if is_stderr { stderr.as_fd() } else { stdout.as_fd() };
    let stat = match rustix::fs::fstat(stream) {
        Err(Errno::BADF) => return Ok(Writer::Closed),
        stat => stat?,
    };
    let pipe = writer(stream, &stat)?;
    if is_on_disk(&stat) {
        return Ok(Writer::InPlace(Some(pipe)));
    }
    match try_into_async_writer(pipe) {
        Ok(writer) => Ok(Writer::Async(writer)),
        Err((pipe, error)) if cannot_be_watched(&error) => Ok(Writer::InPlace(Some(pipe))),
        Err((_, error)) => Err(error),
    }
}

/// Returns true for objects on a disk. epoll refuses those, and kqueue never reports their end.
fn is_on_disk(stat: &rustix::fs::Stat) -> bool {
    use rustix::fs::FileType;
    matches!(
        FileType::from_raw_mode(stat.st_mode),
        FileType::RegularFile | FileType::BlockDevice | FileType::Directory
    )
}

/// Returns true for the error of a device that is always ready: `EPERM` by epoll, `ENODEV` or
/// `EINVAL` by kqueue.
fn cannot_be_watched(error: &io::Error) -> bool {
    let number = Errno::from_io_error(error);
    matches!(number, Some(Errno::PERM | Errno::NODEV | Errno::INVAL))
}

impl Reader {
    pub(super) fn poll_read(
        &mut self,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        use tokio::io::AsyncRead as _;
        match self {
            Reader::Closed => Poll::Ready(Ok(())),
            Reader::InPlace(pipe) => read_in_place(cx, &*pipe, buffer),
            Reader::Async(reader) => std::pin::Pin::new(reader).poll_read(cx, buffer),
        }
    }
}

impl Writer {
    pub(super) fn poll_write(
        &mut self,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        use tokio::io::AsyncWrite as _;
        match self {
            Writer::Closed => Poll::Ready(Ok(bytes.len())),
            Writer::InPlace(Some(pipe)) => write_in_place(cx, &*pipe, bytes),
            Writer::InPlace(None) => Poll::Ready(Err(io::ErrorKind::BrokenPipe.into())),
            Writer::Async(writer) => std::pin::Pin::new(writer).poll_write(cx, bytes),
        }
    }

    pub(super) fn poll_flush(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        // This side of the system call has no buffer.
        Poll::Ready(Ok(()))
    }

    pub(super) fn poll_shutdown(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        *self = Writer::InPlace(None);
        Poll::Ready(Ok(()))
    }
}
