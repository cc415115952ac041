//! The run of children that the caller owns: waited for, stopped and read when the caller asks.

use std::ffi::OsString;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use std::{io, mem};

use pipewright_os::base::pipe::{PipeReader, PipeWriter};
use pipewright_os::base::signal::Signal;
use pipewright_os::base::wait::{self, Slot};
use pipewright_os::process::child::ChildHandle;
use pipewright_os::process::pty::{ChildTerminal, Pty};
use pipewright_os::process::status::ExitStatus;

use super::background::{Enforcement, StatePlace};
use super::options::{Rules, RunSettings};
use super::process::ForegroundJob;
use super::run::{Children, Collect, HeldTerminal, OutputEnd, ParentEnds, Run, RunInfo, streams};
use super::state::RunState;
use super::stop::StopTargets;
#[cfg(feature = "tokio")]
use super::task::check_runtime_to_wait;
use super::tee::TeeTarget;
use crate::error::{Error, OperationError};
use crate::input::Input;

/// The common part of a [`Child`](crate::Child) and a [`PipelineChild`](crate::PipelineChild).
#[derive(Debug)]
pub(crate) struct SpawnedRun<P> {
    /// Dropped before the processes, because it has handles of them.
    enforcement: Option<Enforcement>,
    processes: Arc<P>,
    program: OsString,
    started: Instant,
    foreground: Option<Arc<dyn ForegroundJob>>,
    /// The child's side of its terminal, on a system where this process has to close it when the child has ended.
    terminal: Mutex<Option<ChildTerminal>>,
    /// Input that came with the command.
    input: Input,
    place: Arc<StatePlace>,
    options: RunSettings,
    /// The targets that get a copy of the streams that this crate reads.
    tees: [Option<TeeTarget>; 2],
    stderr_merged: bool,
}

/// The parent's ends that the caller holds, stdin first.
pub(crate) type CallerEnds = (Option<PipeWriter>, [Option<PipeReader>; 2]);

impl<P: Children + 'static> SpawnedRun<P> {
    /// Creates the run of children that have just been started. Also returns the pipe ends for the caller.
    pub(crate) fn new(
        processes: P,
        ends: ParentEnds,
        program: OsString,
        started: Instant,
        foreground: Option<Arc<dyn ForegroundJob>>,
        options: &RunSettings,
    ) -> (SpawnedRun<P>, CallerEnds) {
        let ParentEnds { stdin, feed, stdout, stderr, stderr_merged, .. } = ends;
        let input = Input::begin(feed, processes.handles());
        let (outputs, tees) = OutputEnd::split([stdout, stderr]);
        let mut run = SpawnedRun {
            enforcement: None,
            processes: Arc::new(processes),
            program,
            started,
            foreground,
            terminal: Mutex::default(),
            input,
            place: Arc::default(),
            options: options.clone(),
            tees,
            stderr_merged,
        };
        if options.is_enforced() {
            run.enforcement = options.enforce(Arc::clone(&run.processes) as _, &run.place);
            let state = RunState::new(&options.rules, run.info(), None, [None, None]);
            run.place.put(Box::new(state));
        }
        (run, (stdin, outputs))
    }

    pub(crate) fn processes(&self) -> &P {
        &self.processes
    }

    pub(crate) fn options(&self) -> &RunSettings {
        &self.options
    }

    pub(crate) fn program(&self) -> &OsString {
        &self.program
    }

    /// Adds the child's side of its terminal, to be closed when the child has ended.
    pub(crate) fn with_terminal(self, terminal: Option<ChildTerminal>) -> SpawnedRun<P> {
        SpawnedRun { terminal: Mutex::new(terminal), ..self }
    }

    /// Returns the stop signal and the grace of the options.
    pub(crate) fn stop_request(&self) -> StopRequest {
        StopRequest::by(&self.options.rules)
    }

    /// Drops everything but the processes and their name.
    pub(crate) fn into_parts(self) -> (Arc<P>, OsString) {
        let SpawnedRun { enforcement, processes, program, .. } = self;
        drop(enforcement);
        (processes, program)
    }

    /// Kills the children and the descendants that a kill reaches.
    pub(crate) fn kill(&self) -> Result<(), Error> {
        let killed = StopTargets::default().kill(self.children());
        killed.map_err(|error| self.cannot("kill", error))
    }

    /// Sends the children a signal, the last one first. Returns false if all have ended.
    pub(crate) fn signal(&self, signal: Signal) -> Result<bool, Error> {
        let mut reached = false;
        for child in self.children().iter().rev() {
            reached |= child.signal(signal).map_err(|error| self.cannot("signal", error))?;
        }
        Ok(reached)
    }

    /// Returns the status of the whole, or `None` while a child runs.
    pub(crate) fn try_wait(&self) -> Result<Option<ExitStatus>, Error> {
        if !have_ended(self.children()).map_err(|error| self.cannot("wait for", error))? {
            return Ok(None);
        }
        self.end().map(Some)
    }

    /// Closes a piped stdin that the caller has not taken, and waits until the children have ended, but no longer than
    /// `until`. `None` if they still run. An error does not affect them.
    pub(crate) fn wait_until(
        &self,
        stdin: Option<&PipeWriter>,
        until: Option<Instant>,
    ) -> Result<Option<ExitStatus>, Error> {
        self.close_stdin(stdin)?;
        match self.children() {
            // Without pidfds, waiting for several things at once would need a thread: `status` waits for nothing else.
            _ if until.is_none() && !self.needs_a_run() => {}
            [child] if !self.needs_a_run() => {
                let waited = wait::any(&mut [Slot::Event(child)], until);
                waited.map_err(|error| self.cannot("wait for", error))?;
                match self.try_wait()? {
                    Some(_) => {}
                    None => return Ok(None),
                }
            }
            children => {
                let waited = self.resume().run_to_end(children, &self.options.rules, until);
                if !waited.map_err(|failed| self.failed(failed))? {
                    return Ok(None);
                }
            }
        }
        self.status().map(Some)
    }

    /// Stops the children, waits until they have ended, and returns the status of the whole.
    pub(crate) fn stop(&self, request: StopRequest) -> Result<ExitStatus, Error> {
        if let Some((wait, rules)) = self.begin_stop(request)? {
            let waited = wait.run_to_end(self.children(), &rules, None);
            waited.map_err(|failed| self.failed(failed))?;
        }
        self.status()
    }

    /// Returns the status of the whole, after the ends of all, and stops feeding them.
    fn status(&self) -> Result<ExitStatus, Error> {
        let status = self.end()?;
        self.input.stop().map_err(|failed| self.failed(failed))?;
        Ok(status)
    }

    /// Waits for the ends of all, and takes the terminal back from them.
    fn end(&self) -> Result<ExitStatus, Error> {
        let status = self.processes.status().map_err(|error| self.cannot("wait for", error))?;
        drop(self.take_terminal());
        if let Some(job) = &self.foreground {
            job.ended();
        }
        Ok(status)
    }

    /// Takes the child's side of its terminal, which ends the output when it is dropped.
    fn take_terminal(&self) -> Option<ChildTerminal> {
        // A pointer, which is consistent at any time.
        self.terminal.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// Requests the stop. Returns the wait for the end and its rules, or `None` if the children have ended.
    fn begin_stop(&self, request: StopRequest) -> Result<Option<(ActiveWait<'_>, Rules)>, Error> {
        let children = self.children();
        if have_ended(children).map_err(|error| self.cannot("wait for", error))? {
            return Ok(None);
        }
        let rules = request.rules(&self.options.rules);
        let mut wait = self.resume();
        if let Some(state) = &mut wait.state {
            let stopped = state.stop_within(request.grace, children, &rules);
            stopped.map_err(|failed| self.failed(failed))?;
        }
        Ok(Some((wait, rules)))
    }

    /// Takes the state of the last wait, or creates one if there is none or another thread is waiting with it.
    fn resume(&self) -> ActiveWait<'_> {
        let state = self.place.take_out().unwrap_or_else(|| Box::new(self.new_state()));
        ActiveWait { place: &self.place, state: Some(state) }
    }

    /// Returns true if a wait has more to do than waiting for the children to end.
    fn needs_a_run(&self) -> bool {
        self.options.rules.can_stop()
            || self.foreground.is_some()
            || self.input.has_feed()
            || self.place.has_state()
    }

    /// Closes the piped stdin that the caller has not taken.
    fn close_stdin(&self, stdin: Option<&PipeWriter>) -> Result<(), Error> {
        match stdin {
            Some(stdin) => stdin.close().map_err(|error| self.cannot("close the input of", error)),
            None => Ok(()),
        }
    }

    /// Returns the run that reads these streams. This ends the enforcement in the background, unless that run starts it
    /// again.
    pub(crate) fn into_run(
        mut self,
        (stdin, outputs): CallerEnds,
        pty: Option<Pty>,
        collect: Collect,
    ) -> Run {
        self.enforcement = None;
        drop(stdin);
        let [stdout_tee, stderr_tee] = mem::take(&mut self.tees);
        let [stdout, stderr] = outputs;
        let ends = [
            stdout.map(|pipe| OutputEnd::new(pipe, stdout_tee)),
            stderr.map(|pipe| OutputEnd::new(pipe, stderr_tee)),
        ];
        let streams = streams(ends, collect, &self.options);
        let feed = self.input.take_feed();
        let mut state = match self.place.take_out() {
            Some(state) => state.with_streams(feed, streams),
            None => Box::new(RunState::new(&self.options.rules, self.info(), feed, streams)),
        };
        state.hold(HeldTerminal { pty, child_end: self.take_terminal() });
        let SpawnedRun { processes, program, options, .. } = self;
        Run::resuming(state, processes, program, options)
    }

    fn cannot(&self, doing: &'static str, error: io::Error) -> Error {
        Error::cannot(&self.program, doing, error)
    }

    /// Returns the error of a wait without a limit that ended before the children did. Cannot happen; not worth a
    /// panic.
    pub(crate) fn no_end(&self) -> Error {
        self.cannot("wait for", io::ErrorKind::TimedOut.into())
    }

    fn failed(&self, (doing, error): OperationError) -> Error {
        self.cannot(doing, error)
    }

    fn children(&self) -> &[ChildHandle] {
        self.processes.handles()
    }

    /// Returns a run that reads nothing.
    fn new_state(&self) -> RunState {
        let feed = self.input.take_feed();
        RunState::new(&self.options.rules, self.info(), feed, [None, None])
    }

    fn info(&self) -> RunInfo {
        RunInfo {
            started: self.started,
            made_in: self.processes.made_in(),
            background_feed: self.input.background(),
            foreground: self.foreground.clone(),
            stderr_merged: self.stderr_merged,
            terminal: HeldTerminal::default(),
            trace: self.processes.trace(),
        }
    }
}

/// A run during a wait.
///
/// # Drop
/// Suspends the run again. The next wait continues it.
#[derive(Debug)]
struct ActiveWait<'a> {
    place: &'a StatePlace,
    /// `None` after the end.
    state: Option<Box<RunState>>,
}

/// The signal and the grace of a stop: see [`SpawnedRun::stop`].
#[derive(Debug, Clone, Copy)]
pub(crate) struct StopRequest {
    pub(crate) signal: Signal,
    pub(crate) grace: Duration,
}

impl StopRequest {
    /// Returns the signal and the grace of the command.
    pub(crate) fn by(rules: &Rules) -> StopRequest {
        StopRequest { signal: rules.stop_signal, grace: rules.kill_grace }
    }

    /// Returns the command's rules with this signal, and without a cancel token.
    fn rules(self, rules: &Rules) -> Rules {
        Rules { stop_signal: self.signal, cancel: None, ..rules.clone() }
    }
}

impl ActiveWait<'_> {
    fn run_to_end(
        mut self,
        children: &[ChildHandle],
        rules: &Rules,
        until: Option<Instant>,
    ) -> Result<bool, OperationError> {
        let Some(state) = &mut self.state else { return Ok(true) };
        while state.step_until(until, children, rules)? {
            if state.is_late(until) {
                return Ok(false);
            }
        }
        self.finish(children)
    }

    fn finish(mut self, children: &[ChildHandle]) -> Result<bool, OperationError> {
        match self.state.take() {
            Some(state) => state.finish_wait(children).map(|()| true),
            None => Ok(true),
        }
    }
}

impl Drop for ActiveWait<'_> {
    fn drop(&mut self) {
        if let Some(state) = self.state.take() {
            self.place.put(state);
        }
    }
}

/// Returns true if all children have ended, so that there is nothing to stop.
fn have_ended(children: &[ChildHandle]) -> io::Result<bool> {
    for child in children {
        if child.try_wait()?.is_none() {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Waits and stops for tasks.
#[cfg(feature = "tokio")]
impl<P: Children + 'static> SpawnedRun<P> {
    /// Waits as [`wait_until`](Self::wait_until) does, without blocking the thread.
    pub(crate) async fn wait_until_async(
        &self,
        stdin: Option<&PipeWriter>,
        until: Option<Instant>,
    ) -> Result<Option<ExitStatus>, Error> {
        check_runtime_to_wait(&self.program)?;
        self.close_stdin(stdin)?;
        let rules = &self.options.rules;
        let waited = self.resume().run_to_end_async(self.children(), rules, until).await;
        match waited.map_err(|failed| self.failed(failed))? {
            true => self.status().map(Some),
            false => Ok(None),
        }
    }

    /// Stops as [`stop`](Self::stop) does, without blocking the thread. Does nothing but fail if no runtime drives the
    /// call.
    pub(crate) async fn stop_async(&self, request: StopRequest) -> Result<ExitStatus, Error> {
        check_runtime_to_wait(&self.program)?;
        if let Some((wait, rules)) = self.begin_stop(request)? {
            let waited = wait.run_to_end_async(self.children(), &rules, None).await;
            waited.map_err(|failed| self.failed(failed))?;
        }
        self.status()
    }
}

#[cfg(feature = "tokio")]
impl ActiveWait<'_> {
    async fn run_to_end_async(
        mut self,
        children: &[ChildHandle],
        rules: &Rules,
        until: Option<Instant>,
    ) -> Result<bool, OperationError> {
        let Some(state) = &mut self.state else { return Ok(true) };
        match state.run_until(until, children, rules).await? {
            true => self.finish(children),
            false => Ok(false),
        }
    }
}

/// Writes the waits of a [`Child`](crate::Child) and of a [`PipelineChild`](crate::PipelineChild), for a type that has
/// the fields `run` and `stdin`.
macro_rules! spawned_verbs {
    ($child:ty) => {
        /// Waits and stops, which several threads may call at once.
        impl $child {
            /// Waits until the child, or every stage of a pipeline, has ended. First closes a piped stdin, if it was
            /// not taken, so that a child that reads to the end of its input ends. Of a pipeline, returns its
            /// [status](crate::Pipeline#status).
            ///
            /// The timeouts and the cancel token of the command or the pipeline apply. Piped streams are not read: use
            /// [`wait_with_output`](Self::wait_with_output) for a child that may fill them.
            ///
            /// # Errors
            /// A status is lost ([`ErrorKind::StatusLost`](crate::ErrorKind::StatusLost)), or the wait itself failed,
            /// which does not affect the processes. If a [`Stdio::reader`](crate::Stdio::reader) that feeds stdin
            /// failed, they were killed, and this returns the reader's error.
            pub fn wait(&self) -> Result<$crate::ExitStatus, $crate::Error> {
                run_async_for_test!(self.wait_async());
                let waited = self.run.wait_until(self.stdin.as_ref(), None)?;
                waited.ok_or_else(|| self.run.no_end())
            }

            /// Returns the exit status, or `None` while the child, or a stage, runs. Never blocks, and enforces no
            /// timeout.
            ///
            /// # Errors
            /// Those of [`wait`](Self::wait).
            pub fn try_wait(&self) -> Result<Option<$crate::ExitStatus>, $crate::Error> {
                self.run.try_wait()
            }

            /// Waits until the child, or every stage, has ended, for at most `limit`. Returns `None` if one is still
            /// running then; it keeps running. Otherwise like [`wait`](Self::wait): a piped stdin is closed first, and
            /// the timeouts and the cancel token apply meanwhile.
            ///
            /// # Errors
            /// Those of [`wait`](Self::wait).
            ///
            /// ```
            /// use pipewright::Command;
            /// use std::time::Duration;
            /// let child = Command::new("sleep").arg("60").spawn()?;
            /// assert_eq!(child.try_wait_for(Duration::from_millis(10))?, None);
            /// child.kill()?;
            /// assert!(child.try_wait_for(Duration::from_secs(60))?.is_some());
            ///
            /// let child = (Command::new("sleep").arg("60").owned() | Command::new("cat")).spawn()?;
            /// assert_eq!(child.try_wait_for(Duration::from_millis(10))?, None);
            /// assert!(!child.stop()?.success());
            /// # Ok::<(), pipewright::Error>(())
            /// ```
            #[doc(alias = "wait_timeout")]
            pub fn try_wait_for(
                &self,
                limit: ::std::time::Duration,
            ) -> Result<Option<$crate::ExitStatus>, $crate::Error> {
                run_async_for_test!(self.try_wait_for_async(limit));
                // A limit too long for the clock means no limit.
                let until = ::std::time::Instant::now().checked_add(limit);
                self.run.wait_until(self.stdin.as_ref(), until)
            }

            /// Stops the child, or every stage, as a timeout does, and waits for the end. Sends the
            /// [`stop_signal`](crate::Command::stop_signal) to every process that [`kill`](Self::kill) would kill, the
            /// last stage first, and after the [`kill_grace`](crate::Command::kill_grace) kills those that remain. If
            /// all have already ended, that is not an error, and nothing is signalled.
            ///
            /// Meanwhile, piped streams are not read and stdin is not closed.
            ///
            /// # Platform
            /// Windows: a child that cannot receive a stop signal (see [`own_group`](crate::Command::own_group)) is
            /// killed at once.
            ///
            /// # Errors
            /// Those of [`wait`](Self::wait) and [`kill`](Self::kill).
            ///
            /// ```
            /// use pipewright::{Command, Signal};
            /// let child = Command::new("sleep").arg("60").spawn()?;
            /// assert_eq!(child.stop()?.terminating_signal(), Some(Signal::TERM));
            /// # Ok::<(), pipewright::Error>(())
            /// ```
            #[doc(alias = "terminate")]
            pub fn stop(&self) -> Result<$crate::ExitStatus, $crate::Error> {
                run_async_for_test!(self.stop_async());
                self.run.stop(self.run.stop_request())
            }

            /// Like [`stop`](Self::stop), with this signal and grace instead of those that were set. A zero grace kills
            /// at once.
            ///
            /// # Errors
            /// Those of [`stop`](Self::stop).
            pub fn stop_with(
                &self,
                signal: $crate::Signal,
                grace: ::std::time::Duration,
            ) -> Result<$crate::ExitStatus, $crate::Error> {
                run_async_for_test!(self.stop_with_async(signal, grace));
                self.run.stop($crate::run::StopRequest { signal, grace })
            }

            /// Kills the child, or every stage, the process groups that they lead, and the descendants that can be
            /// found. One that has already ended is not an error. It still has to be waited for, or dropped.
            ///
            /// # Errors
            /// A child changed its user, so this process may not signal it. Or there was no room to find all
            /// descendants ([`ErrorKind::Limit`](crate::ErrorKind::Limit)). The others are killed.
            #[doc(alias = "terminate")]
            pub fn kill(&self) -> Result<(), $crate::Error> {
                self.run.kill()
            }

            /// Sends a signal to the child, or to every stage, the last one first, and to nothing else. Returns `false`
            /// if all have already ended.
            ///
            /// A later process with the same pid never gets the signal.
            ///
            /// # Errors
            /// A child changed its user, so this process may not signal it; the stages after it were signalled.
            /// [`Unsupported`](crate::ErrorKind::Unsupported): Windows cannot send this signal to the child (see
            /// [`own_group`](crate::Command::own_group)); it can always send `KILL`.
            pub fn signal(&self, signal: $crate::Signal) -> Result<bool, $crate::Error> {
                self.run.signal(signal)
            }
        }

        /// Async waits for tokio tasks, with the feature `tokio`.
        #[cfg(feature = "tokio")]
        impl $child {
            /// Like [`wait`](Self::wait), without blocking the thread.
            ///
            /// # Cancellation
            /// Dropping the future leaves the processes running. Input that was given to the command is still fed.
            ///
            /// # Errors
            /// Those of [`wait`](Self::wait); `Unsupported` outside a tokio runtime. The processes then keep
            /// running, and their stdin stays open.
            ///
            /// ```
            /// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
            /// let child = pipewright::Command::new("sleep").arg("0.01").spawn()?;
            /// assert!(child.wait_async().await?.success());
            /// # Ok::<(), pipewright::Error>(())
            /// # }).unwrap();
            /// ```
            pub async fn wait_async(&self) -> Result<$crate::ExitStatus, $crate::Error> {
                let waited = self.run.wait_until_async(self.stdin.as_ref(), None).await?;
                waited.ok_or_else(|| self.run.no_end())
            }

            /// Like [`try_wait_for`](Self::try_wait_for), without blocking the thread.
            ///
            /// # Cancellation
            /// As for [`wait_async`](Self::wait_async).
            ///
            /// # Errors
            /// Those of [`wait_async`](Self::wait_async).
            #[doc(alias = "wait_timeout")]
            pub async fn try_wait_for_async(
                &self,
                limit: ::std::time::Duration,
            ) -> Result<Option<$crate::ExitStatus>, $crate::Error> {
                let until = ::std::time::Instant::now().checked_add(limit);
                self.run.wait_until_async(self.stdin.as_ref(), until).await
            }

            /// Like [`stop`](Self::stop), without blocking the thread.
            ///
            /// # Cancellation
            /// Dropping the future leaves the processes as they are. The next call that waits continues a stop that
            /// has begun. Without such a call, a process that ignores the signal is never killed, unless
            /// `enforce_in_background` was set.
            ///
            /// # Errors
            /// Those of [`stop`](Self::stop); `Unsupported` outside a tokio runtime, and then no signal is sent.
            ///
            /// ```
            /// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
            /// let child = pipewright::Command::new("sleep").arg("60").spawn()?;
            /// assert!(!child.stop_async().await?.success());
            /// # Ok::<(), pipewright::Error>(())
            /// # }).unwrap();
            /// ```
            #[doc(alias = "terminate")]
            pub async fn stop_async(&self) -> Result<$crate::ExitStatus, $crate::Error> {
                self.run.stop_async(self.run.stop_request()).await
            }

            /// Like [`stop_with`](Self::stop_with), without blocking the thread.
            ///
            /// # Cancellation
            /// As for [`stop_async`](Self::stop_async).
            ///
            /// # Errors
            /// Those of [`stop_async`](Self::stop_async).
            pub async fn stop_with_async(
                &self,
                signal: $crate::Signal,
                grace: ::std::time::Duration,
            ) -> Result<$crate::ExitStatus, $crate::Error> {
                self.run.stop_async($crate::run::StopRequest { signal, grace }).await
            }
        }
    };
}
pub(crate) use spawned_verbs;
