//! The setters of [`Options`](super::Options), with their documentation: stated once, for commands and pipelines.

/// Writes the setters of a type that has a field `options`.
macro_rules! option_setters {
    ($owner:ty) => {
        /// When a run is stopped: at the first of these, the child (of a pipeline every stage, the last one first) and
        /// the descendants that can be found are sent the stop signal, and what is left of them after the grace is
        /// killed. What was written until then is in the result.
        impl $owner {
            /// Stops the run when it has taken that long. Zero stops it at once.
            ///
            /// Calls that wait enforce it, and what follows it: the kill after the grace. While a caller does something
            /// else between two calls of `next` of [`lines`](Self::lines) or [`events`](Self::events), or has not yet
            /// called a verb that waits for what [`spawn`](Self::spawn) started, nobody does, unless
            /// [`enforce_in_background`](Self::enforce_in_background) is set.
            pub fn timeout(&mut self, timeout: ::std::time::Duration) -> &mut Self {
                self.options.set_timeout(timeout);
                self
            }

            /// Stops the run at that time. With [`timeout`](Self::timeout) too, the earlier one counts.
            pub fn deadline(&mut self, deadline: ::std::time::Instant) -> &mut Self {
                self.options.set_deadline(deadline);
                self
            }

            /// Stops the run when no stream has brought anything for that long. Only streams that pass through this
            /// process count; if none does, this is a timeout from the start.
            pub fn idle_timeout(&mut self, timeout: ::std::time::Duration) -> &mut Self {
                self.options.set_idle_timeout(timeout);
                self
            }

            /// Stops the run when the token is cancelled, also [by a signal](crate::CancelToken::cancel_on). If the
            /// child has ended and something else holds its streams, they are given up.
            pub fn cancel(&mut self, token: &$crate::CancelToken) -> &mut Self {
                self.options.set_cancel(token);
                self
            }

            /// Has [`timeout`](Self::timeout), [`deadline`](Self::deadline), [`idle_timeout`](Self::idle_timeout) and
            /// [`cancel`](Self::cancel), and the kill after the grace, enforced also while nobody waits for the child: by
            /// one background thread for the whole process.
            ///
            /// Without it, only calls that wait enforce these. If the caller works for a minute between two calls of
            /// `next` of [`lines`](Self::lines) or [`events`](Self::events), or reads the streams of a
            /// [`spawn`](Self::spawn)ed child directly, a timeout comes a minute late, or with the next wait. With it,
            /// they come in time, and the next call reports them. So does the kill of a
            /// [`stop_async`](crate::Child#method.stop_async) whose future was dropped. The verbs that run to the end
            /// wait all the time, and do not need it.
            ///
            /// A child that has ended in time has not timed out, however late that is noticed. Output that has not been
            /// read is no silence. It also holds for what [`run_all`](crate::run_all) or a [`Runner`](crate::Runner)
            /// runs, between two calls of `next`; only `next` looks at the token of the whole.
            ///
            /// # Errors
            /// The verb fails if the thread cannot be started. Nothing is started then.
            ///
            /// ```
            /// use pipewright::{Command, Stdio};
            /// use std::{io::Read, time::Duration};
            /// let mut command = Command::new("sh");
            /// command.args(["-c", "echo said; exec sleep 600"]).stdout(Stdio::piped());
            /// let mut child = command.timeout(Duration::from_millis(200)).enforce_in_background().spawn()?;
            /// let mut text = String::new();
            /// // Nobody waits for the child, and yet this ends.
            /// child.stdout.take().unwrap().read_to_string(&mut text).unwrap();
            /// assert_eq!(text, "said\n");
            /// assert!(!child.wait()?.success());
            /// # Ok::<(), pipewright::Error>(())
            /// ```
            pub fn enforce_in_background(&mut self) -> &mut Self {
                self.options.set_enforce_in_background();
                self
            }

            /// Sets the time between the stop signal and the kill; 5 s if it is not set. Zero kills at once, without a
            /// stop signal.
            #[doc(alias = "grace")]
            pub fn kill_grace(&mut self, grace: ::std::time::Duration) -> &mut Self {
                self.options.set_kill_grace(grace);
                self
            }

            /// Sets the stop signal; `TERM` if it is not set.
            pub fn stop_signal(&mut self, signal: $crate::Signal) -> &mut Self {
                self.options.set_stop_signal(signal);
                self
            }

            /// Limits how much of each stream is kept; everything if it is not set. A
            /// [`Limit::fail`](crate::Limit::fail) counts also what passes through the verbs that keep nothing. What
            /// passes from one stage of a pipeline to the next is not limited.
            pub fn limit(&mut self, limit: $crate::Limit) -> &mut Self {
                self.options.set_limit(limit);
                self
            }

            /// Limits a line of [`lines`](Self::lines) to that many bytes: of a longer one the start is given and the
            /// rest skipped. Without it a line may take all the memory there is.
            pub fn max_line(&mut self, bytes: usize) -> &mut Self {
                self.options.set_max_line(bytes);
                self
            }

            /// Says what happens when the child, or every stage of a pipeline, has ended and something else holds a
            /// stream open.
            pub fn linger(&mut self, linger: $crate::Linger) -> &mut Self {
                self.options.set_linger(linger);
                self
            }

            /// Reads on in the background, and throws away, what still comes through a stream that was given up.
            /// Without it the stream is closed, and the next process that writes to it gets SIGPIPE.
            pub fn linger_drain(&mut self) -> &mut Self {
                self.options.set_linger_drain();
                self
            }

            /// Makes text that is not UTF-8 an error that says where, instead of a replacement character. A character
            /// that a limit has cut is dropped silently.
            pub fn strict_utf8(&mut self) -> &mut Self {
                self.options.set_strict_utf8();
                self
            }

            /// Decodes text from that encoding instead of UTF-8.
            #[cfg(feature = "encoding")]
            pub fn encoding(&mut self, encoding: &'static encoding_rs::Encoding) -> &mut Self {
                self.options.set_encoding(encoding);
                self
            }
        }
    };
}
pub(crate) use option_setters;
