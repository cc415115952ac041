//! The next step after a call that transferred some bytes or none. Makes no system call.

use std::io;

use pipewright_os::disk::file::Action;

use crate::Operation;
use crate::error::ErrorKind;

/// The number of retries after `EAGAIN`. The kernel returns it for requests that it had to split
/// (axboe/liburing#766).
const MAX_RETRIES: u32 = 64;

/// The number of retries after which the kernel is allowed to block.
const RETRIES_WITHOUT_WAITING: u32 = 2;

/// The progress of an operation.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Progress {
    pub(crate) action: Action,
    exact: bool,
    /// The number of bytes requested.
    wanted: usize,
    /// The number of bytes transferred so far.
    pub(crate) moved: usize,
    retries: u32,
    /// The offset of the first byte.
    offset: u64,
    /// The alignment of offsets for direct reads; 1 if any offset will do.
    block_bytes: u64,
}

/// The next step.
#[derive(Debug)]
pub(crate) enum Decision {
    /// The operation is complete.
    Done,
    /// The rest needs another call.
    Continue {
        /// True if the kernel may block in it.
        may_wait: bool,
    },
    /// The system reported an error.
    Failed(io::Error),
    /// The operation failed without an error from the system.
    Incomplete(ErrorKind),
}

impl Progress {
    /// Returns the progress of an operation that has not started.
    pub(crate) fn of(operation: &Operation) -> Progress {
        let Operation { file, action, buffer, offset, exact } = operation;
        let progress = Progress::new(*action, *exact, buffer.len(), *offset);
        // A direct read can continue only at a multiple of this.
        if file.is_direct() { progress.with_block_bytes(file.alignment().offset) } else { progress }
    }

    fn new(action: Action, exact: bool, wanted: usize, offset: u64) -> Progress {
        Progress { action, exact, wanted, moved: 0, retries: 0, offset, block_bytes: 1 }
    }

    fn with_block_bytes(mut self, block_bytes: usize) -> Progress {
        self.block_bytes = block_bytes.max(1) as u64;
        self
    }

    /// Returns the offset of the next call.
    pub(crate) fn next_offset(&self) -> u64 {
        self.offset + self.moved as u64
    }

    /// Returns the next step after a call with this result.
    pub(crate) fn after(&mut self, result: io::Result<usize>) -> Decision {
        let bytes = match result {
            Ok(bytes) => bytes,
            Err(error) => return self.after_error(error),
        };
        self.moved = self.moved.saturating_add(bytes).min(self.wanted);
        match self.action {
            Action::Read => self.after_read(bytes),
            Action::Write if bytes == 0 && self.wanted > 0 => {
                Decision::Incomplete(ErrorKind::WriteZero)
            }
            Action::Write if self.exact && self.moved < self.wanted => {
                Decision::Continue { may_wait: false }
            }
            _ => Decision::Done,
        }
    }

    fn after_read(&self, bytes: usize) -> Decision {
        if !self.exact || self.moved == self.wanted {
            return Decision::Done;
        }
        // A direct read that stops inside a block has reached the end of the file: none could continue there.
        let ends = bytes == 0 || self.next_offset() % self.block_bytes != 0;
        if ends {
            return Decision::Incomplete(ErrorKind::EndOfFile {
                wanted: self.wanted,
                got: self.moved,
            });
        }
        Decision::Continue { may_wait: false }
    }

    fn after_error(&mut self, error: io::Error) -> Decision {
        if self.action.is_sync() {
            // The kernel reports data that it could not write only once: a second sync would succeed without them.
            return Decision::Failed(error);
        }
        match error.kind() {
            io::ErrorKind::Interrupted => Decision::Continue { may_wait: false },
            io::ErrorKind::WouldBlock if self.retries < MAX_RETRIES => {
                self.retries += 1;
                Decision::Continue { may_wait: self.retries > RETRIES_WITHOUT_WAITING }
            }
            // Report the bytes transferred so far. The next call gets the error again.
            _ if self.moved > 0 && !self.exact => Decision::Done,
            _ => Decision::Failed(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(exact: bool) -> Progress {
        Progress::new(Action::Read, exact, 100, 0)
    }

    fn error(kind: io::ErrorKind) -> io::Result<usize> {
        Err(kind.into())
    }

    #[test]
    fn plain_read_is_done_after_any_number_of_bytes() {
        for bytes in [0, 1, 100] {
            let mut progress = read(false);
            assert!(matches!(progress.after(Ok(bytes)), Decision::Done));
            assert_eq!(progress.moved, bytes);
        }
    }

    #[test]
    fn exact_read_continues_until_full_or_end_of_file() {
        let mut progress = read(true);
        assert!(matches!(progress.after(Ok(60)), Decision::Continue { may_wait: false }));
        assert!(matches!(progress.after(Ok(40)), Decision::Done));
        let mut progress = read(true);
        assert!(matches!(progress.after(Ok(60)), Decision::Continue { .. }));
        let Decision::Incomplete(kind) = progress.after(Ok(0)) else { panic!() };
        assert_eq!(kind, ErrorKind::EndOfFile { wanted: 100, got: 60 });
    }

    #[test]
    fn direct_read_that_stops_inside_a_block_is_at_end_of_file() {
        let mut progress = Progress::new(Action::Read, true, 4096, 0).with_block_bytes(512);
        assert!(matches!(progress.after(Ok(1024)), Decision::Continue { .. }));
        let Decision::Incomplete(kind) = progress.after(Ok(100)) else { panic!() };
        assert_eq!(kind, ErrorKind::EndOfFile { wanted: 4096, got: 1124 });
    }

    #[test]
    fn write_of_zero_bytes_is_an_error() {
        let mut progress = Progress::new(Action::Write, true, 100, 0);
        assert!(matches!(progress.after(Ok(99)), Decision::Continue { .. }));
        assert!(matches!(progress.after(Ok(0)), Decision::Incomplete(ErrorKind::WriteZero)));
        let mut empty = Progress::new(Action::Write, true, 0, 0);
        assert!(matches!(empty.after(Ok(0)), Decision::Done));
    }

    #[test]
    fn would_block_is_retried_and_later_the_kernel_may_block() {
        let mut progress = read(false);
        assert!(matches!(
            progress.after(error(io::ErrorKind::Interrupted)),
            Decision::Continue { .. }
        ));
        for retry in 1..=MAX_RETRIES {
            let Decision::Continue { may_wait } = progress.after(error(io::ErrorKind::WouldBlock))
            else {
                panic!("given up at {retry}")
            };
            assert_eq!(may_wait, retry > RETRIES_WITHOUT_WAITING);
        }
        assert!(matches!(progress.after(error(io::ErrorKind::WouldBlock)), Decision::Failed(_)));
    }

    #[test]
    fn a_failed_sync_is_not_repeated() {
        for kind in [io::ErrorKind::Interrupted, io::ErrorKind::WouldBlock, io::ErrorKind::Other] {
            for action in [Action::SyncAll, Action::SyncData] {
                let mut progress = Progress::new(action, false, 0, 0);
                assert!(matches!(progress.after(error(kind)), Decision::Failed(_)), "{kind:?}");
            }
        }
    }

    #[test]
    fn bytes_before_an_error_are_reported() {
        let mut plain = read(false);
        plain.moved = 10;
        assert!(matches!(plain.after(error(io::ErrorKind::StorageFull)), Decision::Done));
        let mut exact = read(true);
        exact.moved = 10;
        assert!(matches!(exact.after(error(io::ErrorKind::StorageFull)), Decision::Failed(_)));
        assert_eq!(exact.moved, 10);
    }
}
