//! Setters for what is about the whole of a pipeline: the names and rules of `Command`.

use std::time::{Duration, Instant};

use pipewright_os::base::signal::Signal;

use super::Pipeline;
use crate::cancel::CancelToken;
use crate::command::{Limit, Linger};
use crate::drive::BACKGROUND;

/// When a run is stopped: at the first of these, every stage and the descendants that can be found
/// are sent the stop signal, and what is left of them after the grace is killed. What was written
/// until then is in the result.
impl Pipeline<'_> {
    /// Stops the pipeline when it has run for that long. Zero stops it at once. Who enforces it, and when, is as with
    /// [`Command::timeout`](crate::Command::timeout).
    pub fn timeout(&mut self, timeout: Duration) -> &mut Self {
        self.rules.timeout = Some(timeout);
        self
    }

    /// Stops the pipeline at that time. With [`timeout`](Self::timeout) too, the earlier one counts.
    pub fn deadline(&mut self, deadline: Instant) -> &mut Self {
        self.rules.deadline = Some(deadline);
        self
    }

    /// How long a line of [`lines`](Self::lines) may be, in bytes; see
    /// [`Command::max_line`](crate::Command::max_line).
    pub fn max_line(&mut self, bytes: usize) -> &mut Self {
        self.max_line_bytes = Some(bytes);
        self
    }

    /// Stops the pipeline when neither the last stage's stdout nor anybody's stderr has brought
    /// anything for that long. Only streams that pass through us count; where none does, this is a
    /// timeout from the start.
    pub fn idle_timeout(&mut self, timeout: Duration) -> &mut Self {
        self.rules.idle_timeout = Some(timeout);
        self
    }

    /// Stops the pipeline when the token is cancelled. Where all stages have ended and something
    /// else holds their streams, these are given up.
    pub fn cancel(&mut self, token: &CancelToken) -> &mut Self {
        self.rules.cancel = Some(token.clone());
        self
    }

    /// As [`Command::enforce_in_background`](crate::Command::enforce_in_background).
    pub fn enforce_in_background(&mut self) -> &mut Self {
        self.rules.background = Some(BACKGROUND);
        self
    }

    /// How long the stages and their descendants have between the stop signal and the kill; 5 s
    /// where it is not set. Zero kills at once, without a stop signal.
    #[doc(alias = "grace")]
    pub fn kill_grace(&mut self, grace: Duration) -> &mut Self {
        self.rules.kill_grace = grace;
        self
    }

    /// The stop signal; `TERM` where it is not set.
    pub fn stop_signal(&mut self, signal: Signal) -> &mut Self {
        self.rules.stop_signal = signal;
        self
    }

    /// How much is kept of the last stage's stdout, and of what the stages write to stderr;
    /// everything where it is not set. What passes from stage to stage is not limited.
    pub fn limit(&mut self, limit: Limit) -> &mut Self {
        self.limit = Some(limit);
        self
    }

    /// What happens when all stages have ended and something else holds their streams open.
    pub fn linger(&mut self, linger: Linger) -> &mut Self {
        self.rules.linger = linger;
        self
    }

    /// As [`Command::linger_drain`](crate::Command::linger_drain).
    pub fn linger_drain(&mut self) -> &mut Self {
        self.rules.linger_drain = true;
        self
    }

    /// Makes text that is not UTF-8 an error that tells where, instead of a replacement character. What a limit
    /// has left of a character is neither: it is left out.
    pub fn strict_utf8(&mut self) -> &mut Self {
        self.decoding.make_strict();
        self
    }

    /// Decodes text from that encoding instead of UTF-8.
    #[cfg(feature = "encoding")]
    pub fn encoding(&mut self, encoding: &'static encoding_rs::Encoding) -> &mut Self {
        self.decoding.use_encoding(encoding);
        self
    }

    /// Whether a stage that failed makes the pipeline fail, as it does where this is not set; or
    /// only the last one, as in sh.
    ///
    /// ```
    /// use pipewright::Command;
    /// let mut pipeline = Command::new("false") | Command::new("true");
    /// assert_eq!(pipeline.status()?.code(), Some(1));
    /// assert_eq!(pipeline.pipefail(false).status()?.code(), Some(0));
    /// # Ok::<(), pipewright::Error>(())
    /// ```
    pub fn pipefail(&mut self, pipefail: bool) -> &mut Self {
        self.pipefail = pipefail;
        self
    }
}
