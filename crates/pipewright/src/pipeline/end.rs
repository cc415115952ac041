//! The results of a pipeline: the whole, and each stage.

use std::ffi::OsString;
use std::io;
use std::ops::Deref;

use pipewright_os::process::child::ChildHandle;
use pipewright_os::process::status::ExitStatus;
use pipewright_os::process::usage::{TreeUsage, Usage};

use super::join_names;
use crate::error::Error;
use crate::outcome::Outcome;
use crate::output::{Captured, CapturedStream, Output, check_success};
use crate::run::deciding_stage;

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
                // An unknown peak was lower than our own, so lower than any known one.
                total.peak_rss_bytes = total.peak_rss_bytes.max(usage.peak_rss_bytes);
                total
            }
        });
    }
    total
}
