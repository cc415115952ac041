//! The waits of a session for tasks: feature `tokio`.

use std::future::poll_fn;
use std::io;
use std::task::Poll;
use std::time::Instant;

use pipewright_os::base::wait::{Slot, Watch};

use super::interact::InteractEnd;
use super::pattern::{Match, Pattern};
use super::pump::{Progress, Pump};
use super::{Session, Wait};
use crate::error::Error;
use crate::runtime::check_runtime_to_wait;

/// Async waits for tokio tasks, with the feature `tokio`.
impl Session {
    /// Like [`expect`](Self::expect), without blocking the thread.
    ///
    /// # Cancellation
    /// Dropping the future loses no output: what was read stays [unread](Self::unread).
    ///
    /// # Errors
    /// Those of [`expect`](Self::expect); `Unsupported` outside a tokio runtime.
    pub async fn expect_async(&mut self, pattern: impl Into<Pattern>) -> Result<Match, Error> {
        self.expect_any_async([pattern.into()]).await
    }

    /// Like [`expect_any`](Self::expect_any), without blocking the thread.
    ///
    /// # Cancellation
    /// As for [`expect_async`](Self::expect_async).
    ///
    /// # Errors
    /// Those of [`expect_async`](Self::expect_async).
    pub async fn expect_any_async<I>(&mut self, patterns: I) -> Result<Match, Error>
    where
        I: IntoIterator<Item: Into<Pattern>>,
    {
        check_runtime_to_wait(self.child.program())?;
        let patterns: Vec<Pattern> = patterns.into_iter().map(Into::into).collect();
        let mut wait = Wait::new(&patterns, self.deadline());
        let mut watch = Watch::default();
        loop {
            if let Some(found) = self.advance(&mut wait)? {
                return Ok(found);
            }
            let stepped = step(&mut self.pump, &mut watch, wait.next()).await;
            self.stepped(&mut wait, stepped)?;
        }
    }

    /// Like [`send`](Self::send), without blocking the thread.
    ///
    /// # Cancellation
    /// Dropping the future stops the typing; a part may have been typed.
    ///
    /// # Errors
    /// Those of [`send`](Self::send); `Unsupported` outside a tokio runtime.
    pub async fn send_async(&mut self, bytes: impl AsRef<[u8]>) -> Result<(), Error> {
        check_runtime_to_wait(self.child.program())?;
        let until = self.deadline();
        let cannot = |error| Error::cannot(self.child.program(), "type at the terminal of", error);
        self.pump.check_open().map_err(cannot)?;
        // Also drops what a future that was dropped has left.
        self.pump.begin_typing(bytes.as_ref());
        let mut watch = Watch::default();
        while self.pump.is_typing() {
            let stepped = step(&mut self.pump, &mut watch, until).await;
            self.pump.typed(stepped, until).map_err(cannot)?;
        }
        Ok(())
    }

    /// Like [`send_line`](Self::send_line), without blocking the thread.
    ///
    /// # Cancellation
    /// As for [`send_async`](Self::send_async).
    ///
    /// # Errors
    /// Those of [`send_async`](Self::send_async).
    pub async fn send_line_async(&mut self, text: impl AsRef<[u8]>) -> Result<(), Error> {
        self.send_async([text.as_ref(), b"\r"].concat()).await
    }

    /// Like [`interact`](Self::interact), without blocking the thread: other tasks run while a person types, also while the
    /// person's terminal is stopped (Ctrl-S).
    ///
    /// # Cancellation
    /// Dropping the future restores the modes of this process's terminal. Output that was read and not shown is lost.
    ///
    /// # Errors
    /// Those of [`interact`](Self::interact); `Unsupported` outside a tokio runtime.
    pub async fn interact_async(&mut self, escape: Option<u8>) -> Result<InteractEnd, Error> {
        check_runtime_to_wait(self.child.program())?;
        let (mut relay, mut watched) = self.connect(escape)?;
        let mut watch = Watch::default();
        loop {
            if let Some(end) = relay.advance(self, &mut watched)? {
                return Ok(end);
            }
            poll_fn(|cx| {
                let (mut slots, until) = relay.submit(self, &watched);
                match watch.poll_wait(cx, &mut slots, until) {
                    Poll::Ready(waited) => {
                        Poll::Ready(relay.complete(self, &watched, slots, waited))
                    }
                    Poll::Pending => {
                        // Takes the ends back: nothing is done.
                        let _ = relay.complete(self, &watched, slots, Ok(0));
                        Poll::Pending
                    }
                }
            })
            .await?;
        }
    }
}

/// Waits once.
async fn step(pump: &mut Pump, watch: &mut Watch, until: Option<Instant>) -> io::Result<Progress> {
    poll_fn(|cx| {
        let Some(mut slots) = pump.submit(Slot::Off) else {
            return Poll::Ready(Ok(Progress::Ended));
        };
        match watch.poll_wait(cx, &mut slots, until) {
            Poll::Ready(waited) => Poll::Ready(pump.complete(slots, waited)),
            Poll::Pending => {
                // Takes the ends back: nothing is done.
                let _ = pump.complete(slots, Ok(0));
                Poll::Pending
            }
        }
    })
    .await
}
