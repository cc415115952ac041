//! The output of a command that the caller waits for in run.

use std::time::{Duration, Instant};

use pipewright_os::base::wait::WaitDescriptor;

use crate::error::Error;
use crate::output::Output;
use crate::run::{Run, RunDescriptor, RunHandle};

/// The output of a running command or pipeline, which the caller waits for in run, from
/// [`Command::start_output`](crate::Command::start_output).
///
/// It is for programs that have to do something else between two waits, such as to look for signals, and for event
/// loops other than tokio. The command's timeouts, limits and cancel token apply while you wait.
///
/// ```
/// use pipewright::Command;
/// use std::time::Duration;
/// let mut running = Command::new("sh").args(["-c", "sleep 0.1; echo done"]).start_output()?;
/// let output = loop {
///     if let Some(output) = running.wait_for(Duration::from_millis(20))? {
///         break output;
///     }
/// };
/// assert_eq!(output.stdout, b"done\n");
/// # Ok::<(), pipewright::Error>(())
/// ```
///
/// # Drop
/// As for [`Events`](crate::Events).
#[derive(Debug)]
pub struct RunningOutput {
    /// Declared before the run, so dropped first: it waits for the run's handles.
    descriptor: RunDescriptor,
    run: Run,
}

impl RunningOutput {
    pub(crate) fn new(run: Run) -> RunningOutput {
        RunningOutput { descriptor: RunDescriptor::default(), run }
    }

    /// Returns the process id; of a pipeline, that of the first stage.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.run.pid()
    }

    /// Returns a handle to the processes, for other threads.
    #[must_use]
    pub fn handle(&self) -> RunHandle {
        self.run.handle()
    }

    /// Waits for the end of the command, for at most `limit`; zero only does what can be done at once. Returns `None`
    /// if the command has not ended by then.
    ///
    /// # Errors
    /// The command could not be read from or waited for, and no longer runs; or its result has been returned before.
    pub fn wait_for(&mut self, limit: Duration) -> Result<Option<Output>, Error> {
        self.wait_for_bytes(limit, usize::MAX)
    }

    /// Waits as [`wait_for`](Self::wait_for) does. Returns `None` also once a stream has captured that many bytes, or
    /// more, which [`take_so_far`](Self::take_so_far) takes.
    ///
    /// # Errors
    /// As for [`wait_for`](Self::wait_for).
    pub fn wait_for_bytes(
        &mut self,
        limit: Duration,
        bytes: usize,
    ) -> Result<Option<Output>, Error> {
        // A limit too long for the clock means no limit.
        let until = Instant::now().checked_add(limit);
        loop {
            let is_over = !self.run.step(until)?;
            if is_over || (self.run.have_children_ended() && !self.run.step(until)?) {
                let output = self.run.output();
                return output.unwrap_or_else(|| Err(self.run.already_reported())).map(Some);
            }
            let is_full = bytes < usize::MAX && self.run.bytes_so_far() >= bytes;
            if is_full || until.is_some_and(|until| Instant::now() >= until) {
                return Ok(None);
            }
        }
    }

    /// Returns the number of bytes that have been captured and not taken, of stdout or stderr, whichever has more. With
    /// [`keep_head_and_tail`](crate::Limit::keep_head_and_tail): of those that are kept, before they are cut at lines.
    #[must_use]
    pub fn bytes_so_far(&mut self) -> usize {
        self.run.bytes_so_far()
    }

    /// Returns a copy of the stdout and the stderr that have been captured so far. With
    /// [`keep_head_and_tail`](crate::Limit::keep_head_and_tail) they are cut as if they ended now, and the line about
    /// what is left out names no file.
    pub fn so_far(&mut self) -> [Vec<u8>; 2] {
        self.run.so_far()
    }

    /// Takes the stdout and the stderr that have been captured so far: a large output is processed while it arrives, in
    /// bounded memory. What comes later is captured as before, in the memory of the given buffers, so that two buffers
    /// for each stream are enough for everything. Their bytes are dropped.
    ///
    /// The buffer of a stream with a [`Limit`](crate::Limit) stays empty: the limit decides at the end what is kept.
    ///
    /// ```
    /// use pipewright::Command;
    /// use std::time::Duration;
    /// let mut running = Command::new("seq").arg("200000").start_output()?;
    /// let (mut lines, mut buffers) = (0, [Vec::new(), Vec::new()]);
    /// let rest = loop {
    ///     if let Some(output) = running.wait_for_bytes(Duration::from_secs(1), 64 << 10)? {
    ///         break output.stdout;
    ///     }
    ///     running.take_so_far(&mut buffers);
    ///     lines += buffers[0].iter().filter(|byte| **byte == b'\n').count();
    /// };
    /// assert_eq!(lines + rest.iter().filter(|byte| **byte == b'\n').count(), 200000);
    /// # Ok::<(), pipewright::Error>(())
    /// ```
    pub fn take_so_far(&mut self, buffers: &mut [Vec<u8>; 2]) {
        for buffer in buffers.iter_mut() {
            buffer.clear();
        }
        self.run.take_so_far(buffers);
    }

    /// Returns a descriptor that becomes readable when [`wait_for`](Self::wait_for) with a limit of zero has something
    /// to do. The number stays the same. After each such call, call this again before the next wait for the descriptor.
    ///
    /// # Platform
    /// Linux: an `epoll`. Other systems: `Unsupported`.
    ///
    /// # Errors
    /// No more handles are available.
    pub fn wait_descriptor(&mut self) -> Result<i32, Error> {
        self.run.update_descriptor(&mut self.descriptor)
    }

    /// Returns the descriptor of [`wait_descriptor`](Self::wait_descriptor) without a timer, and the time at which the
    /// next call is due in any case. For event loops with timers of their own: one descriptor less for each run.
    ///
    /// # Errors
    /// As for [`wait_descriptor`](Self::wait_descriptor).
    pub fn wait_registered(&mut self) -> Result<(i32, Option<Instant>), Error> {
        self.run.register_descriptor(&mut self.descriptor)
    }

    /// Sets the descriptor of [`wait_descriptor`](Self::wait_descriptor), which was made before the start: so no wait
    /// fails for want of one.
    #[doc(hidden)]
    #[must_use]
    pub fn with_wait_descriptor(self, made: WaitDescriptor) -> RunningOutput {
        RunningOutput { descriptor: made.into(), ..self }
    }
}

/// Writes what `Lines` and `Events` have alike, for a type that has the fields `run` and `descriptor`.
macro_rules! running_verbs {
    ($owner:ty) => {
        impl $owner {
            /// Returns the process id of the child.
            #[must_use]
            pub fn pid(&self) -> u32 {
                self.run.pid()
            }

            /// Returns a handle to the processes, for other threads.
            #[must_use]
            pub fn handle(&self) -> $crate::RunHandle {
                self.run.handle()
            }

            /// Returns a descriptor that becomes readable when [`next_within`](Self::next_within) with a limit of zero
            /// may return something else than [`Next::Pending`](crate::Next::Pending). For event loops other than
            /// tokio: see [`RunningOutput::wait_descriptor`](crate::RunningOutput::wait_descriptor).
            ///
            /// # Errors
            /// No more handles are available; `Unsupported` on systems other than Linux.
            pub fn wait_descriptor(&mut self) -> Result<i32, $crate::Error> {
                self.run.update_descriptor(&mut self.descriptor)
            }

            /// Returns the descriptor without a timer, and the time at which the next call is due in any case: see
            /// [`RunningOutput::wait_registered`](crate::RunningOutput::wait_registered).
            ///
            /// # Errors
            /// Those of [`RunningOutput::wait_registered`](crate::RunningOutput::wait_registered).
            pub fn wait_registered(
                &mut self,
            ) -> Result<(i32, Option<::std::time::Instant>), $crate::Error> {
                self.run.register_descriptor(&mut self.descriptor)
            }
        }
    };
}
pub(crate) use running_verbs;

/// Writes the counterpart of `Lines` or `Events` for a task.
#[cfg(feature = "tokio")]
macro_rules! running_stream {
    ($(#[$docs:meta])* $name:ident, $owner:ident, $item:ident, $word:literal) => {
        $(#[$docs])*
        #[derive(Debug)]
        pub struct $name {
            /// Declared before the run, so dropped first: it holds copies of the run's handles.
            watch: ::pipewright_os::base::wait::Watch,
            inner: $owner,
        }

        impl $name {
            pub(crate) fn new(inner: $owner) -> $name {
                $name { watch: Default::default(), inner }
            }

            /// Returns the process id of the child.
            #[must_use]
            pub fn pid(&self) -> u32 {
                self.inner.pid()
            }

            /// Takes the parent's end of the child's stdin, like
            #[doc = concat!("[`", stringify!($owner), "::take_stdin`].")]
            /// Convert it with [`into_async`](crate::PipeWriter#method.into_async). To write a lot, use another task or
            /// write concurrently with [`next`](Self::next), for the reason given there.
            #[doc(alias = "stdin")]
            #[must_use = "dropping it ends the child's input"]
            pub fn take_stdin(&mut self) -> Option<$crate::ChildStdin> {
                self.inner.take_stdin()
            }

            #[doc = concat!("Returns the next ", $word, ", or `None` after the last.")]
            ///
            /// # Cancellation
            /// Dropping the future loses nothing: the next call continues. Outside a tokio runtime the item is an
            /// `Unsupported` error, and nothing is lost either.
            pub async fn next(&mut self) -> Option<Result<$item, $crate::Error>> {
                ::std::future::poll_fn(|cx| self.poll(cx, None)).await.item()
            }

            #[doc = concat!("Waits for the next ", $word, ", for at most `limit`, like")]
            #[doc = concat!("[`", stringify!($owner), "::next_within`].")]
            ///
            /// # Cancellation
            /// As for [`next`](Self::next).
            pub async fn next_within(
                &mut self,
                limit: ::std::time::Duration,
            ) -> $crate::Next<Result<$item, $crate::Error>> {
                let until = ::std::time::Instant::now().checked_add(limit);
                ::std::future::poll_fn(|cx| self.poll(cx, until)).await
            }

            /// Reads and discards the rest, waits for the child, and returns its [`Ending`](crate::Ending), like
            #[doc = concat!("[`", stringify!($owner), "::finish`].")]
            ///
            /// # Cancellation
            #[doc = concat!("Dropping the future drops the ", $word, "s.")]
            ///
            /// # Errors
            #[doc = concat!("Those of [`", stringify!($owner), "::finish`].")]
            pub async fn finish(mut self) -> Result<$crate::Ending, $crate::Error> {
                let $name { watch, inner } = &mut self;
                ::std::future::poll_fn(|cx| inner.run.poll_ending(cx, watch)).await
            }

            fn poll(
                &mut self,
                cx: &mut ::std::task::Context<'_>,
                until: Option<::std::time::Instant>,
            ) -> ::std::task::Poll<$crate::Next<Result<$item, $crate::Error>>> {
                let $name { watch, inner } = self;
                $crate::run::poll_within_budget(cx, |cx| {
                    inner.poll_next_by(until, |run| run.poll(cx, watch, until))
                })
            }
        }

        impl ::futures_core::Stream for $name {
            type Item = Result<$item, $crate::Error>;

            fn poll_next(
                mut self: ::std::pin::Pin<&mut Self>,
                cx: &mut ::std::task::Context<'_>,
            ) -> ::std::task::Poll<Option<Self::Item>> {
                self.poll(cx, None).map($crate::Next::item)
            }
        }
    };
}
#[cfg(feature = "tokio")]
pub(crate) use running_stream;
