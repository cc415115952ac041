//! The options that commands and pipelines have in common: the rules of a run, as plain data, and their setters, with
//! their documentation written once.

use std::ffi::OsStr;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use pipewright_os::base::pipe::PipeReader;
use pipewright_os::base::signal::Signal;

use super::background::{EnforcedRun, Enforcement, Enforcer, StatePlace};
use super::ends::OpenEnds;
use super::on_demand;
use super::run::{Children, FinishStatus};
use crate::cancel::CancelToken;
use crate::error::{Error, could_not_prepare};
use crate::output::Decoding;

/// The rules of a run: when and how it is stopped, and how long its streams are read.
#[derive(Debug, Clone)]
pub(crate) struct Rules {
    pub(crate) timeout: Option<Duration>,
    pub(crate) deadline: Option<Instant>,
    pub(crate) idle_timeout: Option<Duration>,
    pub(crate) cancel: Option<CancelToken>,
    pub(crate) kill_grace: Duration,
    pub(crate) stop_signal: Signal,
    pub(crate) linger: Linger,
    /// Drains a stream that the run has given up.
    pub(crate) linger_drain: Option<fn(PipeReader)>,
    /// Delays reads even of streams that somebody watches.
    pub(crate) coalesce_reads: bool,
}

impl Default for Rules {
    fn default() -> Rules {
        Rules {
            timeout: None,
            deadline: None,
            idle_timeout: None,
            cancel: None,
            kill_grace: Duration::from_secs(5),
            stop_signal: Signal::TERM,
            linger: Linger::default(),
            linger_drain: None,
            coalesce_reads: false,
        }
    }
}

impl Rules {
    /// Returns the stop signal of the cancel, if it came with one, and otherwise that of the command.
    pub(crate) fn effective_stop_signal(&self) -> Signal {
        self.cancel.as_ref().and_then(CancelToken::signal).unwrap_or(self.stop_signal)
    }

    /// Returns true if anything but the child itself can end the run.
    pub(crate) fn can_stop(&self) -> bool {
        self.timeout.is_some()
            || self.deadline.is_some()
            || self.idle_timeout.is_some()
            || self.cancel.is_some()
    }
}

/// Limits how much of each stream is kept.
///
/// Beyond the limit the pipes are still drained, so the child never blocks on them. Memory stays bounded: by the limit
/// plus 64 KiB for [`keep_head`](Limit::keep_head) and [`fail`](Limit::fail), by twice the limit plus 64 KiB for
/// [`keep_tail`](Limit::keep_tail), and by the head, twice the tail and 64 KiB for
/// [`keep_head_and_tail`](Limit::keep_head_and_tail). (An allocator that cannot extend a buffer in its place copies it,
/// and for that moment has both.)
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Limit {
    pub(crate) bytes: usize,
    pub(crate) on_exceed: OnExceed,
    /// Keeps nothing. The stream is counted, and copied to its tee if it has one.
    pub(crate) only_counts: bool,
}

/// The reaction to a stream that exceeds its limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum OnExceed {
    Fail,
    KeepHead,
    KeepTail,
    /// The head is `bytes`; this is the tail.
    KeepHeadAndTail(usize),
}

impl Limit {
    /// Stops the child as soon as a stream exceeds this many bytes. The outcome is then
    /// [`LimitExceeded`](crate::Outcome::LimitExceeded), and the result contains the bytes up to the limit.
    #[must_use]
    pub const fn fail(bytes: usize) -> Limit {
        Limit { bytes, on_exceed: OnExceed::Fail, only_counts: false }
    }

    /// Keeps the first `bytes` bytes of each stream.
    #[must_use]
    pub const fn keep_head(bytes: usize) -> Limit {
        Limit { bytes, on_exceed: OnExceed::KeepHead, only_counts: false }
    }

    /// Keeps the last `bytes` bytes of each stream.
    #[must_use]
    pub const fn keep_tail(bytes: usize) -> Limit {
        Limit { bytes, on_exceed: OnExceed::KeepTail, only_counts: false }
    }

    /// Keeps the first `head` and the last `tail` bytes of each stream, for readers with little room: what went wrong
    /// is at either end. A line between the two says how much is left out, as in `[5120 bytes, 87 lines left out]`.
    ///
    /// Both are cut at whole lines and, where a line is longer, at whole characters of UTF-8. Nothing is cut and
    /// nothing added if all of it fits. [`spill_to`](crate::Command::spill_to) keeps all of it in a file. With
    /// [`lines`](crate::Command::lines) and [`events`](crate::Command::events) the output comes at the end of the
    /// stream.
    ///
    /// ```
    /// use pipewright::{Command, Limit};
    /// let mut command = Command::new("seq");
    /// let done = command.arg("1000").limit(Limit::keep_head_and_tail(5, 10)).capture()?;
    /// assert_eq!(done.stdout, "1\n2\n[3880 bytes, 996 lines left out]\n999\n1000\n");
    /// assert!(done.truncated);
    /// # Ok::<(), pipewright::Error>(())
    /// ```
    #[must_use]
    pub const fn keep_head_and_tail(head: usize, tail: usize) -> Limit {
        Limit { bytes: head, on_exceed: OnExceed::KeepHeadAndTail(tail), only_counts: false }
    }

    pub(crate) fn keeps_tail(self) -> bool {
        self.on_exceed == OnExceed::KeepTail
    }

    /// Returns the same limit, which counts the bytes that pass through and keeps none. If the reader of a tee is gone,
    /// nobody wants the stream any more, so it is closed: the child gets the SIGPIPE that it would have got from that
    /// reader.
    #[doc(hidden)]
    #[must_use]
    pub const fn count_only(self) -> Limit {
        Limit { only_counts: true, ..self }
    }
}

/// The rule for reading on after the child has ended, if something else still holds one of its streams open: a daemon
/// that it started, a build server, a shell's background job.
///
/// Bytes that are already in the pipe are always read. If a stream is still held when reading ends, the result has
/// [`held_open`](crate::Captured::held_open) set.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Linger {
    /// Reads until the last holder closes the stream, or until the command's timeout.
    UntilEof,
    /// Reads until nothing has arrived for `quiet`, but no longer than `cap`. Every chunk restarts `quiet`. This is the
    /// default, with 250 ms and 5 s.
    Settle {
        /// The time without output after which reading ends.
        quiet: Duration,
        /// The time after which reading ends in any case.
        cap: Duration,
    },
    /// Reads the bytes that are in the pipe when the child ends, and no more.
    StopAtExit,
}

impl Default for Linger {
    fn default() -> Linger {
        Linger::Settle { quiet: Duration::from_millis(250), cap: Duration::from_secs(5) }
    }
}

/// The settings of a whole run: its rules, and the part of its output that is kept.
#[derive(Debug, Clone, Default)]
pub(crate) struct RunSettings {
    pub(crate) rules: Rules,
    /// Enforces the rules in the background; `None` if that is not set.
    pub(crate) enforcer: Option<Enforcer>,
    pub(crate) limit: Option<Limit>,
    /// The code that keeps both ends of a stream, if a limit is set.
    pub(crate) open_ends: Option<OpenEnds>,
    /// The folder for streams of which a part is left out.
    pub(crate) spill: Option<Arc<Path>>,
    pub(crate) max_line_bytes: Option<usize>,
    pub(crate) decoding: Decoding,
    /// Sees to a child until it ends; `None` if its wait is all there is to do.
    pub(crate) finish: Option<FinishStatus>,
}

impl RunSettings {
    /// Has the child of `status` seen to until it ends. Each setter that gives it a stream, a limit of time, a terminal
    /// or a tree calls this: the others do not need the code of a run.
    pub(crate) fn see_to_end(&mut self) -> &mut RunSettings {
        self.finish = Some(on_demand::FINISH_STATUS);
        self
    }

    /// Returns the name of the first option that is set.
    pub(crate) fn first_set(&self) -> Option<&'static str> {
        let default = Rules::default();
        let rules = &self.rules;
        let settings = [
            ("timeout", rules.timeout.is_some()),
            ("deadline", rules.deadline.is_some()),
            ("idle_timeout", rules.idle_timeout.is_some()),
            ("cancel", rules.cancel.is_some()),
            ("kill_grace", rules.kill_grace != default.kill_grace),
            ("stop_signal", rules.stop_signal != default.stop_signal),
            ("linger", rules.linger != default.linger),
            ("linger_drain", rules.linger_drain.is_some()),
            ("enforce_in_background", self.enforcer.is_some()),
            ("limit", self.limit.is_some()),
            ("spill_to", self.spill.is_some()),
            ("max_line", self.max_line_bytes.is_some()),
            ("strict_utf8", self.decoding.is_set()),
        ];
        settings.into_iter().find(|(_, is_set)| *is_set).map(|(name, _)| name)
    }

    /// Returns true if the rules are enforced in the background.
    pub(crate) fn is_enforced(&self) -> bool {
        self.enforcer.is_some()
    }

    /// Enforces the rules in the background while the run's state is in its place, if that is set.
    pub(crate) fn enforce(
        &self,
        children: Arc<dyn Children>,
        place: &Arc<StatePlace>,
    ) -> Option<Enforcement> {
        let enforcer = self.enforcer?;
        let place = Arc::clone(place);
        Some((enforcer.enforce)(EnforcedRun { children, place, rules: self.rules.clone() }))
    }

    /// Starts the background thread, if it is needed. Fails if it cannot be started.
    pub(crate) fn prepare_enforcement(&self, program: &OsStr) -> Result<(), Error> {
        let prepared = match self.enforcer {
            Some(enforcer) => (enforcer.prepare)(),
            None => return Ok(()),
        };
        let step = || "cannot start the thread that enforces its limits".to_owned();
        prepared.map_err(|error| could_not_prepare(program, step(), error))
    }
}

/// Implements the setters for a type that has a field `options`.
macro_rules! option_setters {
    ($owner:ty) => {
        /// Limits that stop a run, and related settings. The first limit that is reached stops the run: the child (in a
        /// pipeline every stage, the last one first) and the descendants that can be found get the stop signal, and
        /// those that are left after the grace are killed. The output so far is in the result.
        impl $owner {
            /// Stops the run after this time. Zero stops it at once.
            ///
            /// Calls that wait enforce it, and also the kill after the grace. Nothing enforces it between two calls of
            /// `next` of [`lines`](Self::lines) or [`events`](Self::events), or before the first wait for a
            /// [`spawn`](Self::spawn)ed child, unless [`enforce_in_background`](Self::enforce_in_background) is set.
            pub fn timeout(&mut self, timeout: ::std::time::Duration) -> &mut Self {
                self.options.see_to_end().rules.timeout = Some(timeout);
                self
            }

            /// Stops the run at this time. If [`timeout`](Self::timeout) is set too, the earlier one counts.
            pub fn deadline(&mut self, deadline: ::std::time::Instant) -> &mut Self {
                self.options.see_to_end().rules.deadline = Some(deadline);
                self
            }

            /// Stops the run after this long without output. Only streams that pass through this process count. If none
            /// does, this is a timeout from the start.
            pub fn idle_timeout(&mut self, timeout: ::std::time::Duration) -> &mut Self {
                self.options.see_to_end().rules.idle_timeout = Some(timeout);
                self
            }

            /// Stops the run when the token is cancelled, for example [by a signal](crate::CancelToken::cancel_on). If
            /// the child has already ended and something else holds its streams open, stops reading them.
            pub fn cancel(&mut self, token: &$crate::CancelToken) -> &mut Self {
                self.options.see_to_end().rules.cancel = Some(token.clone());
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
            /// count as silence. The option also works for the commands of [`run_all`](crate::run_all::run_all) or a
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
                self.options.enforcer = Some($crate::run::on_demand::ENFORCER);
                self
            }

            /// Sets the time between the stop signal and the kill. The default is 5 s. Zero kills at once, without a
            /// stop signal.
            #[doc(alias = "grace")]
            pub fn kill_grace(&mut self, grace: ::std::time::Duration) -> &mut Self {
                self.options.rules.kill_grace = grace;
                self
            }

            /// Sets the stop signal. The default is `TERM`.
            pub fn stop_signal(&mut self, signal: $crate::Signal) -> &mut Self {
                self.options.rules.stop_signal = signal;
                self
            }

            /// Limits the part of each stream that is kept. By default everything is kept.
            /// [`Limit::fail`](crate::Limit::fail) also applies in verbs that keep nothing. Data from one stage of a
            /// pipeline to the next is not limited.
            pub fn limit(&mut self, limit: $crate::Limit) -> &mut Self {
                self.options.limit = Some(limit);
                self.options.open_ends = Some($crate::run::on_demand::OPEN_ENDS);
                self
            }

            /// Writes each stream of which [`Limit::keep_head_and_tail`](crate::Limit::keep_head_and_tail) leaves out a
            /// part to a file of its own in this folder: all of it, from its first byte on. The line about what is left
            /// out names the file, and so do [`stdout_file`](crate::Captured::stdout_file) and
            /// [`stderr_file`](crate::Captured::stderr_file). Only its owner can read it, and nobody removes it. If it
            /// cannot be written, that line says so, and [`tee_failed`](crate::Captured::tee_failed). A disk that does
            /// not answer holds the run up.
            ///
            /// ```
            /// use pipewright::{Command, Limit};
            /// let mut command = Command::new("seq");
            /// command.arg("1000").limit(Limit::keep_head_and_tail(5, 10)).spill_to(std::env::temp_dir());
            /// let file = command.capture()?.stdout_file.unwrap();
            /// assert_eq!(std::fs::metadata(&file).unwrap().len(), 3893);
            /// # std::fs::remove_file(file).unwrap();
            /// # Ok::<(), pipewright::Error>(())
            /// ```
            #[doc(alias = "spill")]
            pub fn spill_to(&mut self, folder: impl Into<::std::path::PathBuf>) -> &mut Self {
                self.options.spill = Some(folder.into().into());
                self
            }

            /// Limits each line of [`lines`](Self::lines) to this many bytes: the rest of a longer line is skipped.
            /// Without it, a line may use up all memory.
            pub fn max_line(&mut self, bytes: usize) -> &mut Self {
                self.options.max_line_bytes = Some(bytes);
                self
            }

            /// Sets how long streams are read after the child, or every stage of a pipeline, has ended, if something
            /// else holds a stream open.
            pub fn linger(&mut self, linger: $crate::Linger) -> &mut Self {
                self.options.rules.linger = linger;
                self
            }

            /// Drains streams in the background after the run has stopped reading them, and discards the bytes. Without
            /// it, such a stream is closed, and the next process that writes to it gets SIGPIPE.
            pub fn linger_drain(&mut self) -> &mut Self {
                self.options.rules.linger_drain = Some($crate::run::on_demand::DRAIN);
                self
            }

            /// Lets up to 1 ms pass before a stream is read, so that several small writes of the child are read in one
            /// go. Each read wakes this process, which costs more than a short child. The end of the child is never
            /// delayed.
            ///
            /// Streams that are only captured are always read in this way. This includes those that are passed on as
            /// they arrive: by [`Stdio::tee`](crate::Stdio::tee), [`Stdio::tee_with`](crate::Stdio::tee_with) and
            /// [`events`](Self::events).
            pub fn coalesce_reads(&mut self) -> &mut Self {
                self.options.rules.coalesce_reads = true;
                self
            }

            /// Makes text that is not UTF-8 an error with the offset, instead of using replacement characters. A
            /// character cut by a limit is dropped silently.
            pub fn strict_utf8(&mut self) -> &mut Self {
                self.options.decoding.make_strict();
                self
            }

            /// Decodes text from this encoding instead of UTF-8.
            #[cfg(feature = "encoding")]
            pub fn encoding(&mut self, encoding: &'static encoding_rs::Encoding) -> &mut Self {
                self.options.decoding.use_encoding(encoding);
                self
            }
        }
    };
}
pub(crate) use option_setters;
