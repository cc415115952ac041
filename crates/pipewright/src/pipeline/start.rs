//! The start of a pipeline, its children, and its end.

use std::ffi::OsString;
use std::io;
use std::ops::Deref;
use std::sync::Arc;
use std::time::Instant;

use pipewright_os::base::pipe::{Mode, PipeOptions};
use pipewright_os::process::child::ChildHandle;
use pipewright_os::process::status::ExitStatus;
use pipewright_os::process::usage::{TreeUsage, Usage};

use super::{Pipeline, join_names};
use crate::command::{
    Command, StageJob, StagePipes, StagePosition, StageStderr, Stdio, StdioDefault, StdioDefaults,
};
use crate::error::{Error, ErrorKind, FailedOperation};
use crate::outcome::Outcome;
use crate::output::{Captured, CapturedStream, Output, check_success};
#[cfg(feature = "tokio")]
use crate::run::check_runtime_to_wait;
use crate::run::{
    Children as _, Collect, ForegroundJob, HeldTerminal, OutputEnd, ParentEnds, Processes, Run,
    RunInfo, RunSettings, SpawnedRun, Started, StopTargets, deciding_stage, spawned_verbs,
};
use crate::{ChildStderr, ChildStdin, ChildStdout};

/// Running stages, and the parent's ends of their pipes.
pub(super) struct StartedStages {
    pub(super) programs: Vec<OsString>,
    pub(super) processes: Processes,
    pub(super) ends: ParentEnds,
    pub(super) at: Instant,
    /// The terminal that the first stage has got.
    pub(super) foreground: Option<Arc<dyn ForegroundJob>>,
}

impl Pipeline<'_> {
    /// Starts all stages. After an error, none is running.
    pub(super) fn start(&mut self, defaults: StdioDefaults) -> Result<StartedStages, Error> {
        self.check()?;
        let (stderr, shared) = self.share_stderr(defaults.stderr)?;
        let mut started = StartedStages {
            programs: self.programs(),
            processes: Processes::with_room_for(self.stages.len(), self.pipefail),
            ends: ParentEnds { stderr: shared, ..ParentEnds::default() },
            at: Instant::now(),
            foreground: None,
        };
        // Closes the pipes of each stage as soon as the stage has them.
        match self.start_all(defaults, stderr, &mut started) {
            Ok(()) => Ok(started),
            Err(error) => {
                StopTargets::default().abandon(started.processes.handles(), None);
                Err(error)
            }
        }
    }

    fn start_all(
        &mut self,
        defaults: StdioDefaults,
        stderr: Option<Stdio>,
        started: &mut StartedStages,
    ) -> Result<(), Error> {
        let last = self.stages.len().saturating_sub(1);
        let mut pipes = StagePipes { stderr, ..StagePipes::default() };
        let (open, mut leader) = (self.foreground, None);
        for (index, stage) in self.stages.iter_mut().enumerate() {
            let command = stage.command_mut();
            let mut next = None;
            if index < last {
                let (reader, writer) = command.make_pipe(PipeOptions::default())?;
                pipes.stdout = Some(writer.into());
                next = Some(reader.into());
            }
            let job = StageJob { open: open.filter(|_| index == 0), leader };
            let stage = command.start_in_job(job, |stage| stage.start_stage(&mut pipes, defaults));
            let stage =
                stage.map_err(|error| if index > 0 { error.after_a_start() } else { error })?;
            if index == 0 && open.is_some() && command.has_own_group() {
                leader = Some(stage.process.pid());
            }
            started.push(stage);
            pipes.stdin = next;
            pipes.stdout = None;
        }
        Ok(())
    }

    /// Returns the errors that can be found before anything is started.
    fn check(&self) -> Result<(), Error> {
        let Some(last) = self.stages.len().checked_sub(1) else {
            let source = io::Error::new(io::ErrorKind::InvalidInput, "it has no stages");
            return Err(Error::new(
                "".as_ref(),
                FailedOperation::StartPipeline,
                ErrorKind::InvalidInput,
                Some(source),
            ));
        };
        for (index, command) in self.stages().enumerate() {
            command
                .check_as_stage(StagePosition { is_first: index == 0, is_last: index == last })?;
        }
        Ok(())
    }

    /// Makes one pipe for every stderr that passes through this process. Returns the stages' end and ours.
    fn share_stderr(
        &self,
        default: StdioDefault,
    ) -> Result<(Option<Stdio>, Option<OutputEnd>), Error> {
        let settings = self.stages().map(|command| (command, command.stage_stderr(default)));
        let mut first = None;
        for (command, stderr) in settings.filter(|(_, stderr)| *stderr != StageStderr::Unchanged) {
            match first {
                None => first = Some((command, stderr)),
                Some((_, other)) if other == stderr => {}
                Some(_) => {
                    let words = "its stderr is piped and another stage's is teed: all stages share one stderr pipe";
                    return Err(command.misuse(words));
                }
            }
        }
        let Some((command, stderr)) = first else { return Ok((None, None)) };
        let options = PipeOptions { read: Mode::Async, ..PipeOptions::default() };
        let (reader, writer) = command.make_pipe(options)?;
        let ours =
            OutputEnd::new(reader, (stderr == StageStderr::Teed).then(|| command.stage_tee()));
        Ok((Some(writer.into()), Some(ours)))
    }
}

impl Command {
    fn start_stage(
        &mut self,
        pipes: &mut StagePipes,
        defaults: StdioDefaults,
    ) -> Result<Started, Error> {
        if self.stage_stderr(defaults.stderr) != StageStderr::Unchanged {
            return self.start_with_pipes(pipes, defaults);
        }
        let shared = pipes.stderr.take();
        let started = self.start_with_pipes(pipes, defaults);
        pipes.stderr = shared;
        started
    }
}

impl StartedStages {
    fn push(&mut self, stage: Started) {
        let Started { process, ends, foreground, .. } = stage;
        self.processes.push(process);
        // Only the first stage has it.
        self.foreground = self.foreground.take().or(foreground);
        // Only the first stage has a stdin, only the last a stdout.
        self.ends.stdin = self.ends.stdin.take().or(ends.stdin);
        self.ends.feed = self.ends.feed.take().or(ends.feed);
        self.ends.stdout = self.ends.stdout.take().or(ends.stdout);
        self.ends.stderr_merged = ends.stderr_merged;
    }

    /// Returns the run, which keeps as much output as `collect` says, and the programs of the stages.
    pub(super) fn into_run(self, options: &RunSettings, collect: Collect) -> (Run, Vec<OsString>) {
        let StartedStages { programs, processes, ends, at, foreground } = self;
        let info = RunInfo {
            started: at,
            made_in: processes.made_in(),
            background_feed: None,
            foreground,
            stderr_merged: ends.stderr_merged,
            terminal: HeldTerminal::default(),
            trace: processes.trace(),
        };
        (
            Run::new(Arc::new(processes), join_names(&programs), info, ends, options, collect),
            programs,
        )
    }
}

/// A running pipeline, or one that has ended.
///
/// `wait`, `try_wait`, `kill` and `signal` take `&self`: one thread can wait while another kills.
///
/// # Drop
/// Like dropping a [`Child`](crate::Child), for each stage: the stages keep running and are reaped in the
/// background when they end. If a tree is contained or any stage is killed on drop, all stages are killed.
#[derive(Debug)]
pub struct PipelineChild {
    /// The parent's end of the first stage's stdin, if piped. Dropping it closes the input.
    pub stdin: Option<ChildStdin>,
    /// The parent's end of the last stage's stdout, if piped.
    pub stdout: Option<ChildStdout>,
    /// The parent's end of the pipe that all stages with a piped stderr share.
    pub stderr: Option<ChildStderr>,
    run: SpawnedRun<Processes>,
    programs: Vec<OsString>,
    pipefail: bool,
}

impl PipelineChild {
    pub(super) fn new(
        started: StartedStages,
        options: &RunSettings,
        pipefail: bool,
    ) -> PipelineChild {
        let StartedStages { programs, processes, ends, at, foreground } = started;
        let (run, (stdin, [stdout, stderr])) =
            SpawnedRun::new(processes, ends, join_names(&programs), at, foreground, options);
        PipelineChild { stdin, stdout, stderr, run, programs, pipefail }
    }

    /// Returns the process ids of the stages, from first to last.
    #[must_use]
    pub fn ids(&self) -> Vec<u32> {
        self.run.processes().handles().iter().map(|child| child.pid()).collect()
    }

    /// Waits until all stages have ended, and reads the piped streams meanwhile. Closes a piped stdin first.
    ///
    /// The pipeline's timeouts, limits and cancel token apply.
    ///
    /// # Errors
    /// A stage could not be read from or waited for; none is then running.
    pub fn wait_with_output(self) -> Result<PipelineOutput, Error> {
        run_async_for_test!(self.wait_with_output_async());
        let (mut run, programs, pipefail) = self.into_run();
        let whole = run.finish()?;
        pipeline_output(programs, run.children(), whole, pipefail)
    }

    /// Returns the run that reads the streams.
    fn into_run(self) -> (Run, Vec<OsString>, bool) {
        let PipelineChild { stdin, stdout, stderr, run, programs, pipefail } = self;
        // No stage has a terminal.
        (run.into_run((stdin, [stdout, stderr]), None, Collect::All), programs, pipefail)
    }

    /// Like [`wait_with_output`](Self::wait_with_output), without blocking the thread.
    ///
    /// # Cancellation
    /// Dropping the future drops the pipeline.
    ///
    /// # Errors
    /// Those of [`wait_with_output`](Self::wait_with_output); `Unsupported` outside a tokio runtime. The pipeline
    /// is then dropped, not killed.
    #[cfg(feature = "tokio")]
    pub async fn wait_with_output_async(self) -> Result<PipelineOutput, Error> {
        check_runtime_to_wait(self.run.program())?;
        let (mut run, programs, pipefail) = self.into_run();
        let whole = run.finish_async().await?;
        pipeline_output(programs, run.children(), whole, pipefail)
    }
}

spawned_verbs!(PipelineChild);

/// The end of one stage of a pipeline.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct StageEnd {
    /// The program, as given.
    pub program: OsString,
    /// Its process id.
    pub pid: u32,
    /// Its exit status.
    pub status: ExitStatus,
    /// Its CPU time and memory; `None` if other code of this program reaped it.
    pub usage: Option<Usage>,
    /// The usage of its whole tree, if it has [limits](crate::Command::limits).
    pub tree_usage: Option<Box<TreeUsage>>,
}

/// The result of a pipeline: each stage, and a [`Captured`] for the whole, to which this dereferences.
///
/// For the whole, `status` and `pid` come from the deciding stage (see [`Pipeline`](crate::Pipeline#status)).
/// `stdout` is the last stage's. `stderr` has the stderr of all stages, in order. `stdin_unread` is the input that
/// the first stage did not read. `usage` has the CPU time of all stages together and the largest peak memory of any
/// stage; it is `None` if that of any stage is.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Pipelined<T> {
    /// The whole.
    pub whole: Captured<T>,
    /// Each stage, from first to last.
    pub stages: Vec<StageEnd>,
    /// The index of the stage that decided the status of the whole.
    pub decided_by: usize,
}

/// The output of a pipeline, as bytes.
pub type PipelineOutput = Pipelined<Vec<u8>>;

/// The output of a pipeline, as text.
pub type PipelineCapture = Pipelined<String>;

impl<T> Deref for Pipelined<T> {
    type Target = Captured<T>;

    fn deref(&self) -> &Captured<T> {
        &self.whole
    }
}

#[expect(private_bounds, reason = "as for the whole")]
impl<T: CapturedStream> Pipelined<T> {
    /// Returns an error unless the pipeline succeeded, like [`Captured::check`]. The error names the stage that
    /// failed, or all stages if all were stopped.
    ///
    /// # Errors
    /// Those of [`Captured::check`].
    ///
    /// ```
    /// use pipewright::Command;
    /// let capture = (Command::new("false") | Command::new("cat")).capture()?;
    /// assert_eq!(capture.check().unwrap_err().to_string(), r#""false" failed: exit status: 1"#);
    /// # Ok::<(), pipewright::Error>(())
    /// ```
    #[doc(alias = "error_for_status")]
    pub fn check(self) -> Result<Pipelined<T>, Error> {
        check_success(&self.whole.program, &self.whole)?;
        Ok(self)
    }
}

impl StageEnd {
    pub(super) fn of(program: OsString, child: &ChildHandle) -> io::Result<StageEnd> {
        // Waited for before; the child remembers its end.
        let ended = child.wait()?;
        let usage = ended.usage.map(|usage| child.refine_peak_memory(usage));
        let resources = child.tree().and_then(|tree| tree.resources());
        let tree_usage = resources.map(|resources| Box::new(resources.usage));
        Ok(StageEnd { program, pid: child.pid(), status: ended.status, usage, tree_usage })
    }
}

/// Returns the result of a pipeline whose stages have ended.
pub(super) fn pipeline_output(
    programs: Vec<OsString>,
    children: &[ChildHandle],
    whole: Output,
    pipefail: bool,
) -> Result<PipelineOutput, Error> {
    let ends = programs.iter().zip(children);
    let stages: io::Result<Vec<_>> =
        ends.map(|(program, it)| StageEnd::of(program.clone(), it)).collect();
    match stages {
        Ok(stages) => Ok(with_stages(whole, stages, pipefail)),
        Err(error) => Err(Error::cannot(&join_names(&programs), "wait for", error)),
    }
}

/// Completes the output of the whole with the results of the stages.
pub(super) fn with_stages(output: Output, stages: Vec<StageEnd>, pipefail: bool) -> PipelineOutput {
    let decided_by = deciding_stage(stages.iter().map(|stage| stage.status), pipefail);
    let mut whole = output;
    whole.stderr_merged &= decided_by + 1 == stages.len();
    if let Some(stage) = stages.get(decided_by) {
        whole.status = stage.status;
        whole.pid = stage.pid;
        if matches!(whole.outcome, Outcome::Exited | Outcome::Signaled) {
            if !stage.program.is_empty() {
                whole.program = stage.program.clone();
            }
            whole.outcome = match stage.status.signal() {
                Some(_) => Outcome::Signaled,
                None => Outcome::Exited,
            };
        }
    }
    // Each stage has a tree of its own.
    whole.tree_usage = None;
    whole.usage = total(stages.iter().map(|stage| stage.usage));
    Pipelined { whole, stages, decided_by }
}

fn total(stages: impl Iterator<Item = Option<Usage>>) -> Option<Usage> {
    let mut total: Option<Usage> = None;
    for usage in stages {
        let usage = usage?;
        total = Some(match total {
            None => usage,
            Some(mut total) => {
                total.user += usage.user;
                total.system += usage.system;
                let switches = total.switches.zip(usage.switches);
                total.switches = switches.map(|(one, two)| one.saturating_add(two));
                // An unknown peak was lower than our own, so lower than any known one.
                total.peak_rss_bytes = total.peak_rss_bytes.max(usage.peak_rss_bytes);
                total
            }
        });
    }
    total
}
