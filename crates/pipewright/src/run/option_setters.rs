//! The setters of [`RunSettings`](super::RunSettings) with their documentation, written once for commands and pipelines.

/// Implements the setters for a type that has a field `options`.
macro_rules! option_setters {
    ($owner:ty) => {
        /// Limits that stop a run, and related settings. The first limit that is reached stops the run: the child (in a
        /// pipeline every stage, the last one first) and the descendants that can be found get the stop signal, and those
        /// that are left after the grace are killed. The output so far is in the result.
        impl $owner {
            /// Stops the run after this time. Zero stops it at once.
            ///
            /// Calls that wait enforce it, and also the kill after the grace. Nothing enforces it between two calls of
            /// `next` of [`lines`](Self::lines) or [`events`](Self::events), or before the first wait for a
            /// [`spawn`](Self::spawn)ed child, unless [`enforce_in_background`](Self::enforce_in_background) is set.
            pub fn timeout(&mut self, timeout: ::std::time::Duration) -> &mut Self {
                self.options.set_timeout(timeout);
                self
            }

            /// Stops the run at this time. If [`timeout`](Self::timeout) is set too, the earlier one counts.
            pub fn deadline(&mut self, deadline: ::std::time::Instant) -> &mut Self {
                self.options.set_deadline(deadline);
                self
            }

            /// Stops the run after this long without output. Only streams that pass through this process count. If none
            /// does, this is a timeout from the start.
            pub fn idle_timeout(&mut self, timeout: ::std::time::Duration) -> &mut Self {
                self.options.set_idle_timeout(timeout);
                self
            }

            /// Stops the run when the token is cancelled, for example [by a signal](crate::CancelToken::cancel_on). If
            /// the child has already ended and something else holds its streams open, stops reading them.
            pub fn cancel(&mut self, token: &$crate::CancelToken) -> &mut Self {
                self.options.set_cancel(token);
                self
            }

            /// Enforces [`timeout`](Self::timeout), [`deadline`](Self::deadline), [`idle_timeout`](Self::idle_timeout),
            /// [`cancel`](Self::cancel) and the kill after the grace even while nothing waits for the child. One
            /// background thread does this for the whole process.
            ///
            /// By default, only calls that wait enforce them. If the caller works for a minute between two calls of
            /// `next` of [`lines`](Self::lines) or [`events`](Self::events), a timeout is up to a minute late. If the
            /// caller reads or writes the streams of a [`spawn`](Self::spawn)ed child directly, a timeout takes effect
            /// with the next wait. With this setting, the run is stopped on time, and the next call reports that. The
            /// kill of a [`stop_async`](crate::Child#method.stop_async) whose future was dropped is on time as well.
            /// Verbs that run the command to its end do not need it.
            ///
            /// A child that ends in time has not timed out, however late a call notices its end. Unread output does not
            /// count as silence. The option also works for the commands of [`run_all`](crate::run_all) or a
            /// [`Runner`](crate::Runner), between two calls of `next`; only `next` checks the token of the whole set.
            ///
            /// # Errors
            /// The verb fails, and starts nothing, if the thread cannot be started.
            ///
            /// ```
            /// use pipewright::{Command, Stdio};
            /// use std::{io::Read, time::Duration};
            /// let mut command = Command::new("sh");
            /// command.args(["-c", "echo said; exec sleep 600"]).stdout(Stdio::piped());
            /// let mut child = command.timeout(Duration::from_millis(200)).enforce_in_background().spawn()?;
            /// let mut text = String::new();
            /// // Nothing waits for the child, and yet this returns.
            /// child.stdout.take().unwrap().read_to_string(&mut text).unwrap();
            /// assert_eq!(text, "said\n");
            /// assert!(!child.wait()?.success());
            /// # Ok::<(), pipewright::Error>(())
            /// ```
            pub fn enforce_in_background(&mut self) -> &mut Self {
                self.options.set_enforce_in_background();
                self
            }

            /// Sets the time between the stop signal and the kill. The default is 5 s. Zero kills at once, without a stop
            /// signal.
            #[doc(alias = "grace")]
            pub fn kill_grace(&mut self, grace: ::std::time::Duration) -> &mut Self {
                self.options.set_kill_grace(grace);
                self
            }

            /// Sets the stop signal. The default is `TERM`.
            pub fn stop_signal(&mut self, signal: $crate::Signal) -> &mut Self {
                self.options.set_stop_signal(signal);
                self
            }

            /// Limits the part of each stream that is kept. By default everything is kept.
            /// [`Limit::fail`](crate::Limit::fail) also applies in verbs that keep nothing. Data from one stage of a
            /// pipeline to the next is not limited.
            pub fn limit(&mut self, limit: $crate::Limit) -> &mut Self {
                self.options.set_limit(limit);
                self
            }

            /// Limits each line of [`lines`](Self::lines) to this many bytes: the rest of a longer line is skipped.
            /// Without it, a line may use up all memory.
            pub fn max_line(&mut self, bytes: usize) -> &mut Self {
                self.options.set_max_line(bytes);
                self
            }

            /// Sets how long streams are read after the child, or every stage of a pipeline, has ended, if something else
            /// holds a stream open.
            pub fn linger(&mut self, linger: $crate::Linger) -> &mut Self {
                self.options.set_linger(linger);
                self
            }

            /// Drains streams in the background after the run has stopped reading them, and discards the bytes. Without
            /// it, such a stream is closed, and the next process that writes to it gets SIGPIPE.
            pub fn linger_drain(&mut self) -> &mut Self {
                self.options.set_linger_drain();
                self
            }

            /// Lets up to 1 ms pass before a stream is read, so that several small writes of the child are read in one go.
            /// Each read wakes this process, which costs more than a short child. The end of the child is never delayed.
            ///
            /// Streams that are only captured are always read in this way. This includes those that are passed on as they
            /// arrive: by [`Stdio::tee`](crate::Stdio::tee), [`Stdio::tee_with`](crate::Stdio::tee_with) and
            /// [`events`](Self::events).
            pub fn coalesce_reads(&mut self) -> &mut Self {
                self.options.set_coalesce_reads();
                self
            }

            /// Makes text that is not UTF-8 an error with the offset, instead of using replacement characters. A
            /// character cut by a limit is dropped silently.
            pub fn strict_utf8(&mut self) -> &mut Self {
                self.options.set_strict_utf8();
                self
            }

            /// Decodes text from this encoding instead of UTF-8.
            #[cfg(feature = "encoding")]
            pub fn encoding(&mut self, encoding: &'static encoding_rs::Encoding) -> &mut Self {
                self.options.set_encoding(encoding);
                self
            }
        }
    };
}
pub(crate) use option_setters;
