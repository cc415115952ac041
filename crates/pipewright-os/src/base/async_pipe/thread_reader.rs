//! A source that supports only blocking reads, which a thread of its own makes.

use std::io::{self, Read};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::thread;

use tokio::io::ReadBuf;

/// The number of bytes read at once.
const CHUNK_BYTES: usize = 64 << 10;

/// The task's side of such a source.
///
/// # Drop
/// The thread ends after a read in progress.
#[derive(Debug)]
pub(crate) struct ThreadReader(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug)]
enum State {
    /// No request.
    Idle,
    /// A chunk has been requested.
    Requested(Waker),
    /// A chunk, and the number of its bytes that have been taken. An empty one is the end.
    Ready(Vec<u8>, usize),
    Failed(io::Error),
    /// The task's side has been dropped.
    Dropped,
}

impl ThreadReader {
    pub(super) fn new(source: impl Read + Send + 'static) -> io::Result<ThreadReader> {
        let state = Mutex::new(State::Idle);
        let shared = Arc::new(Shared { state, changed: Condvar::new() });
        let for_thread = Arc::clone(&shared);
        let name = String::from("pipewright-stdin");
        thread::Builder::new().name(name).spawn(move || for_thread.serve(source))?;
        Ok(ThreadReader(shared))
    }

    pub(super) fn poll_read(
        &mut self,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let mut state = self.0.state();
        match &mut *state {
            State::Ready(chunk, taken) if *taken < chunk.len() => {
                let rest = chunk.get(*taken..).unwrap_or_default();
                let piece = rest.get(..buffer.remaining()).unwrap_or(rest);
                buffer.put_slice(piece);
                *taken += piece.len();
                if *taken == chunk.len() {
                    *state = State::Idle;
                }
                Poll::Ready(Ok(()))
            }
            State::Ready(..) => {
                // The end. The next read requests another chunk: a console goes on after one.
                *state = State::Idle;
                Poll::Ready(Ok(()))
            }
            State::Failed(_) => match std::mem::replace(&mut *state, State::Idle) {
                State::Failed(error) => Poll::Ready(Err(error)),
                _ => Poll::Ready(Ok(())),
            },
            State::Idle | State::Requested(_) | State::Dropped => {
                *state = State::Requested(cx.waker().clone());
                self.0.changed.notify_one();
                Poll::Pending
            }
        }
    }
}

impl Drop for ThreadReader {
    fn drop(&mut self) {
        *self.0.state() = State::Dropped;
        self.0.changed.notify_one();
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        // Each change is one assignment.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads a chunk for each request.
    fn serve(&self, mut source: impl Read) {
        loop {
            let mut state = self.state();
            while !matches!(&*state, State::Requested(_) | State::Dropped) {
                state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
            }
            if matches!(&*state, State::Dropped) {
                return;
            }
            drop(state);
            let mut chunk = vec![0; CHUNK_BYTES];
            let result = loop {
                match source.read(&mut chunk) {
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                    done => break done,
                }
            };
            let next = match result {
                Ok(count) => {
                    chunk.truncate(count);
                    State::Ready(chunk, 0)
                }
                Err(error) => State::Failed(error),
            };
            let mut state = self.state();
            if matches!(&*state, State::Dropped) {
                return;
            }
            let before = std::mem::replace(&mut *state, next);
            drop(state);
            // After the unlock: a waker may run any code.
            if let State::Requested(waker) = before {
                waker.wake();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::io::Write as _;

    use super::*;
    use crate::base::pipe::pair;

    async fn read(source: &mut ThreadReader, most: usize) -> io::Result<Vec<u8>> {
        let mut space = vec![0; most];
        let mut buffer = ReadBuf::new(&mut space);
        poll_fn(|cx| source.poll_read(cx, &mut buffer)).await?;
        Ok(buffer.filled().to_vec())
    }

    #[test]
    fn bytes_arrive_in_pieces_and_an_abandoned_read_loses_none() {
        let (reader, mut writer) = pair(Default::default()).unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            let mut source = ThreadReader::new(reader).unwrap();
            let mut space = [0; 8];
            let mut cx = Context::from_waker(Waker::noop());
            // Requested now, and then abandoned.
            assert!(source.poll_read(&mut cx, &mut ReadBuf::new(&mut space)).is_pending());
            writer.write_all(b"hello").unwrap();
            assert_eq!(read(&mut source, 2).await.unwrap(), b"he");
            assert_eq!(read(&mut source, 9).await.unwrap(), b"llo");
            drop(writer);
            assert_eq!(read(&mut source, 9).await.unwrap(), b"");
            assert_eq!(read(&mut source, 9).await.unwrap(), b"", "the end is reported again");
        });
    }

    #[test]
    fn an_error_is_reported_once_and_the_thread_ends_with_its_owner() {
        struct Fails {
            _alive: std::sync::mpsc::Sender<()>,
        }
        impl Read for Fails {
            fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
                Err(io::ErrorKind::NotConnected.into())
            }
        }
        let (alive, ended) = std::sync::mpsc::channel();
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let mut source = ThreadReader::new(Fails { _alive: alive }).unwrap();
        let error = runtime.block_on(read(&mut source, 1)).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::NotConnected);
        drop(source);
        assert!(ended.recv().is_err(), "its source has been dropped");
    }
}
