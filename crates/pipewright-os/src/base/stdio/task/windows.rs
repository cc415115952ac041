//! Waits for a pipe, reads a console on a thread, and reads a file in place.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead as _, AsyncWrite as _, ReadBuf};

use super::super::windows::{console_writer, copy_of_standard};
use super::read_in_place;
use super::thread_reader::ThreadReader;
use crate::base::async_pipe::{AsyncPipeReader, AsyncPipeWriter};
use crate::base::handle::{Handle, HandleKind};
use crate::base::pipe::PipeReader;

#[derive(Debug)]
pub(super) enum Reader {
    Closed,
    InPlace(PipeReader),
    OnThread(ThreadReader),
    Async(AsyncPipeReader),
}

#[derive(Debug)]
pub(super) enum Writer {
    Closed,
    Async(AsyncPipeWriter),
}

pub(super) fn stdin() -> io::Result<Reader> {
    let Some(handle) = copy_of_standard(0)? else { return Ok(Reader::Closed) };
    let handle = Handle::from(handle);
    let kind = handle.kind()?;
    let pipe = PipeReader::from(handle);
    match kind {
        HandleKind::Pipe => pipe.into_async().map(Reader::Async),
        HandleKind::File | HandleKind::Directory => Ok(Reader::InPlace(pipe)),
        // A console, or another object that supports only blocking reads.
        _ => ThreadReader::new(pipe).map(Reader::OnThread),
    }
}

pub(super) fn stdout(is_stderr: bool) -> io::Result<Writer> {
    match console_writer(is_stderr)? {
        Some(pipe) => pipe.into_async().map(Writer::Async),
        None => Ok(Writer::Closed),
    }
}

impl Reader {
    pub(super) fn poll_read(
        &mut self,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self {
            Reader::Closed => Poll::Ready(Ok(())),
            Reader::InPlace(pipe) => read_in_place(cx, &*pipe, buffer),
            Reader::OnThread(source) => source.poll_read(cx, buffer),
            Reader::Async(reader) => Pin::new(reader).poll_read(cx, buffer),
        }
    }
}

impl Writer {
    pub(super) fn poll_write(
        &mut self,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        match self {
            Writer::Closed => Poll::Ready(Ok(bytes.len())),
            Writer::Async(writer) => Pin::new(writer).poll_write(cx, bytes),
        }
    }

    pub(super) fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self {
            Writer::Closed => Poll::Ready(Ok(())),
            Writer::Async(writer) => Pin::new(writer).poll_flush(cx),
        }
    }

    pub(super) fn poll_shutdown(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self {
            Writer::Closed => Poll::Ready(Ok(())),
            Writer::Async(writer) => Pin::new(writer).poll_shutdown(cx),
        }
    }
}
