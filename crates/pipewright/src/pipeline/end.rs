//! What a pipeline gives: the whole, and each stage.

use std::ffi::OsString;
use std::io;
use std::ops::Deref;

use pipewright_os::base::signal::Signal;
use pipewright_os::process::child::ChildHandle;
use pipewright_os::process::status::ExitStatus;
use pipewright_os::process::usage::Usage;

use crate::error::Error;
use crate::outcome::Outcome;
use crate::output::{Captured, CapturedStream, Output, check_success};

/// How a stage of a pipeline ended.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct StageEnd {
    /// The program, as it was given.
    pub program: OsString,
    /// The process id that it had.
    pub pid: u32,
    /// How it ended.
    pub status: ExitStatus,
    /// CPU time and memory; `None` where other code of this program reaped it.
    pub usage: Option<Usage>,
}

/// What a pipeline gave: as [`Captured`] for the whole, to which this dereferences, and each stage.
///
/// Of the whole, `status` and `pid` are those of the stage that decided (see
/// [`Pipeline`](crate::Pipeline#status)), `stdout` is the last stage's, `stderr` what all stages
/// wrote in its order, `stdin_unread` what the first left. Its `usage` has the CPU time of all stages
/// together and the largest peak memory of one of them; it is `None` where a stage's is.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Pipelined<T> {
    /// The whole.
    pub whole: Captured<T>,
    /// Each stage, from the first to the last.
    pub stages: Vec<StageEnd>,
    /// Which of the stages the status of the whole is from.
    pub decided_by: usize,
}

/// What a pipeline wrote, as bytes.
pub type PipelineOutput = Pipelined<Vec<u8>>;

/// What a pipeline wrote, as text.
pub type PipelineCapture = Pipelined<String>;

impl<T> Deref for Pipelined<T> {
    type Target = Captured<T>;

    fn deref(&self) -> &Captured<T> {
        &self.whole
    }
}

#[expect(private_bounds, reason = "as for the whole")]
impl<T: CapturedStream> Pipelined<T> {
    /// As [`Captured::check`]: the error is that of the stage that failed, or of all where all were stopped.
    ///
    /// # Errors
    /// As [`Captured::check`].
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
        // Asked before: an end is remembered.
        let ended = child.wait()?;
        let usage = ended.usage.map(|usage| child.refine_peak_memory(usage));
        Ok(StageEnd { program, pid: child.pid(), status: ended.status, usage })
    }
}

/// Returns the result of a pipeline whose stages have ended.
pub(super) fn result_of(
    programs: Vec<OsString>,
    children: &[ChildHandle],
    whole: Output,
    pipefail: bool,
) -> io::Result<PipelineOutput> {
    let ends = programs.into_iter().zip(children);
    let stages: io::Result<Vec<_>> = ends.map(|(program, it)| StageEnd::of(program, it)).collect();
    Ok(conclude(whole, stages?, pipefail))
}

/// The whole, with what the stages say.
pub(super) fn conclude(output: Output, stages: Vec<StageEnd>, pipefail: bool) -> PipelineOutput {
    let decided_by = deciding(stages.iter().map(|stage| stage.status), pipefail);
    let mut whole = output;
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
    whole.usage = total(stages.iter().map(|stage| stage.usage));
    Pipelined { whole, stages, decided_by }
}

/// Which stage the status of the whole is from.
pub(super) fn deciding(
    statuses: impl DoubleEndedIterator<Item = ExitStatus> + ExactSizeIterator,
    pipefail: bool,
) -> usize {
    let last = statuses.len().saturating_sub(1);
    let failed = |index: usize, status: ExitStatus| {
        !status.success() && (index == last || !is_quiet(status))
    };
    let mut right_most = statuses.enumerate().rev();
    match right_most.find(|(index, status)| pipefail && failed(*index, *status)) {
        Some((index, _)) => index,
        None => last,
    }
}

/// The end of a stage whose reader has gone: by the signal, or as a shell tells of that.
fn is_quiet(status: ExitStatus) -> bool {
    const SHELL_BASE: i32 = 128;
    let number = Signal::PIPE.number();
    status.signal() == Some(number) || status.code() == Some(SHELL_BASE + number)
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
                // Where a peak is unknown it was less than our own, and so than any that is known.
                total.peak_rss_bytes = total.peak_rss_bytes.max(usage.peak_rss_bytes);
                total
            }
        });
    }
    total
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The stage that decides, where the stages end with these wait statuses.
    fn decides(raw: &[i32], pipefail: bool) -> usize {
        deciding(raw.iter().map(|raw| ExitStatus::from_raw(*raw)), pipefail)
    }

    const PIPE: i32 = 13;
    const KILL: i32 = 9;
    const fn exit(code: i32) -> i32 {
        code << 8
    }

    #[test]
    fn the_right_most_that_failed_decides() {
        assert_eq!(decides(&[0, 0, 0], true), 2);
        assert_eq!(decides(&[exit(1), exit(2), 0], true), 1);
        assert_eq!(decides(&[exit(1), 0, 0], true), 0);
        assert_eq!(decides(&[KILL, 0, exit(3)], true), 2);
        assert_eq!(decides(&[exit(1), exit(2), 0], false), 2);
    }

    #[test]
    fn a_reader_that_had_enough_is_no_failure_of_its_writer() {
        if ExitStatus::from_raw(PIPE).signal().is_none() {
            eprintln!("SKIPPED: no signal ends a process here");
            return;
        }
        assert_eq!(decides(&[PIPE, 0], true), 1);
        assert_eq!(decides(&[exit(141), 0], true), 1);
        assert_eq!(decides(&[exit(1), PIPE, 0], true), 0);
        assert_eq!(decides(&[0, PIPE], true), 1, "nobody reads from the last but us");
        assert_eq!(decides(&[exit(1), 0, exit(141)], true), 2);
    }
}
