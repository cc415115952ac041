//! The log of a batch, if it has one, and processes of an earlier run that are still alive.

use std::collections::HashSet;
use std::path::PathBuf;
use std::time::{Duration, Instant};
use std::{io, thread};

use pipewright::{ErrorKind, ProcessHandle};
use pipewright_os::base::error::Quoted;
use pipewright_os::process::environ::{exiting_processes, has_variable, processes_with_variable};

use super::LiveJob;
use crate::executor::NODES_END_WITHIN;
use crate::journal::{self, Intent, Journal, LogError, LoggedJob, LoggedOutput, Past, RunFacts};
use crate::output::{KeepBeside, OutputSummary};
use crate::scheduler::{JobEnd, JobNumber};
use crate::vocabulary::{AttemptEnd, AttemptKey, JobOutcome};

#[derive(Debug, Clone)]
pub(crate) struct LogSettings {
    pub(crate) path: PathBuf,
    /// Continue the batch of the log, or start one if there is none. Otherwise the log must not exist.
    pub(crate) resume: bool,
    /// Run jobs again that failed in an earlier run.
    pub(crate) retry_failed: bool,
    /// Run jobs again that run at most once, and may have run.
    pub(crate) rerun_unknown: bool,
    pub(crate) facts: RunFacts,
}

/// The log, or nothing.
#[derive(Debug)]
pub(super) struct Log {
    pub(super) journal: Option<Journal>,
    past: Option<Past>,
    /// It was to be continued, and did not exist.
    is_begun: bool,
    retry_failed: bool,
    rerun_unknown: bool,
    /// The jobs are those of the log.
    is_input: bool,
    /// Jobs whose attempt has ended, and about which nothing is decided yet. Both belong in one commit.
    pub(super) undecided: HashSet<JobNumber>,
}

impl Log {
    /// Opens the log, if there is to be one.
    pub(super) fn open(
        settings: Option<&LogSettings>,
        waker: journal::Waker,
    ) -> Result<Log, LogError> {
        let Some(settings) = settings else {
            return Ok(Log {
                journal: None,
                past: None,
                is_begun: false,
                retry_failed: false,
                rerun_unknown: false,
                is_input: false,
                undecided: HashSet::new(),
            });
        };
        let LogSettings { path, resume, retry_failed, rerun_unknown, facts } = settings;
        // The same line begins a batch and continues it. Without an input there is nothing to begin. A log that another
        // process makes meanwhile is an error of the creation.
        let is_begun = *resume && !facts.from_log && Journal::is_missing(path)?;
        let (journal, past) = match *resume && !is_begun {
            true => {
                Journal::resume(path, facts, waker).map(|(journal, past)| (journal, Some(past)))?
            }
            false => (Journal::create(path, facts, waker)?, None),
        };
        let (retry_failed, rerun_unknown) = (*retry_failed, *rerun_unknown);
        let is_input = facts.from_log;
        let journal = Some(journal);
        let undecided = HashSet::new();
        Ok(Log { journal, past, is_begun, retry_failed, rerun_unknown, is_input, undecided })
    }

    /// Returns the place where output is kept until it is printed.
    pub(super) fn keep_beside(&self) -> Option<KeepBeside> {
        let journal = self.journal.as_ref()?;
        let (log, batch_id) = (journal.path.clone(), journal.batch_id.clone());
        Some(KeepBeside { log, batch_id, is_resumed: self.is_resumed() })
    }

    /// Returns true if this run continues an earlier one.
    pub(super) fn is_resumed(&self) -> bool {
        self.past.is_some()
    }

    /// Returns messages about the log: it is resumed, or slower than usual.
    pub(super) fn notes(&self) -> Vec<String> {
        let Some(journal) = &self.journal else { return Vec::new() };
        let resumed = self.past.as_ref().map(|past| {
            let jobs = if past.len() == 1 { "job" } else { "jobs" };
            format!("run {} of this batch; the log has {} {jobs}", journal.run, past.len())
        });
        let begun = self.is_begun.then(|| {
            let path = Quoted(journal.path.as_os_str());
            format!("log {path} is new: this is the first run of its batch")
        });
        let mode = journal.mode.notice().map(ToOwned::to_owned);
        let lost = journal.lost_outputs.iter().cloned();
        resumed.into_iter().chain(begun).chain(mode).chain(lost).collect()
    }

    /// Returns the end that a job had in an earlier run, if it counts in this one.
    pub(super) fn past(&mut self, number: JobNumber, job: &LiveJob) -> Option<JobEnd> {
        let past = self.past.as_mut()?.look_up(job.id)?;
        if let Some(journal) = self.journal.as_mut().filter(|_| !self.is_input) {
            journal.is_in_input(&past, &logged(number, job));
        }
        past.end().filter(|end| match end.outcome {
            JobOutcome::Failed => !self.retry_failed,
            JobOutcome::Unknown => !self.rerun_unknown,
            _ => true,
        })
    }

    /// Notes the end of the input: the jobs that wait, and those of the log that it does not have. Returns the number
    /// of those.
    pub(super) fn input_ended<'a>(
        &mut self,
        jobs: u64,
        waiting: impl Iterator<Item = (JobNumber, &'a LiveJob)>,
    ) -> usize {
        let Some(journal) = self.journal.as_mut().filter(|_| !self.is_input) else { return 0 };
        for (number, job) in waiting {
            journal.waits(&logged(number, job));
        }
        let removed = || self.past.iter().flat_map(Past::removed);
        journal.input_ended(jobs, removed());
        removed().count()
    }

    /// Notes an attempt that is about to start. Without a slot, the attempt waits until this is durable: returns true
    /// if a report of that follows.
    pub(super) fn intend(
        &mut self,
        number: JobNumber,
        job: &LiveJob,
        attempt: u32,
        slot: Option<u32>,
    ) -> bool {
        let Some(journal) = &mut self.journal else { return false };
        let durable = slot.is_none();
        journal.ledger.intend(&Intent { job: logged(number, job), attempt, slot, durable });
        durable
    }

    /// Notes that an attempt which was noted has not begun.
    pub(super) fn void(&mut self, key: AttemptKey) {
        if let Some(journal) = &mut self.journal {
            journal.ledger.void(key);
        }
    }

    pub(super) fn ended(&mut self, end: &AttemptEnd, output: &OutputSummary, is_lost: bool) {
        if let Some(journal) = &mut self.journal {
            let (path, stderr_tail) = (output.path.as_deref(), output.tail.as_bytes());
            journal.ledger.ended(end, LoggedOutput { path, stderr_tail, is_lost });
            self.undecided.insert(JobNumber(end.key.job));
        }
    }

    /// Hands over what was noted if it is much, unless the half of something would be committed.
    pub(super) fn submit_if_large(&mut self) {
        if let Some(journal) = self.journal.as_mut().filter(|_| self.undecided.is_empty()) {
            journal.submit_if_large();
        }
    }

    /// Notes the end of a job. Returns another one if the log keeps that: no attempt has begun in this run.
    pub(super) fn settled(
        &mut self,
        number: JobNumber,
        job: &LiveJob,
        end: &JobEnd,
        reason: Option<&str>,
    ) -> Option<JobOutcome> {
        self.journal.as_mut()?.settled(&logged(number, job), end.into(), reason)
    }

    /// Writes the end of the run, and closes the log.
    pub(super) fn close(&mut self, exit_code: i32, how: &str) -> Result<(), LogError> {
        self.journal.take().map_or(Ok(()), |journal| journal.close(Some(exit_code), how))
    }
}

/// Returns the key of the scheduler's words.
pub(super) fn attempt_of(key: AttemptKey) -> (JobNumber, u32) {
    (JobNumber(key.job), key.attempt)
}

fn logged(number: JobNumber, job: &LiveJob) -> LoggedJob<'_> {
    LoggedJob { number: number.0, id: job.id, job: &job.job, once: job.once }
}

// Processes of an earlier run that are still alive.
//
// The trees of a killed runner end with it. This makes sure: two copies of a job must never run at the same time.

/// The variable that every process of a job inherits. Its value is the identity of the batch.
pub(super) const BATCH_VARIABLE: &str = "PIPEWRIGHT_BATCH_ID";

/// The same with the identity of the run. A copy of a log does not have the runs that began after it was copied, and
/// their jobs are none of its business.
pub(super) const RUN_VARIABLE: &str = "PIPEWRIGHT_RUN_ID";

/// Looks in a row that find nothing: a chain of forks may get through one.
const CLEAN_LOOKS: u32 = 3;

/// The time that a killed process may take to end. One that takes longer is stuck in the kernel.
const END_WAIT: Duration = Duration::from_secs(10);
const PAUSE: Duration = Duration::from_millis(5);

/// Kills the processes of the batch that are alive, and waits for their ends. Returns the number of those that were
/// killed.
///
/// Those of other runs than `runs` are left alone. `None`: an older version ran, whose processes do not name their run.
///
/// # Errors
/// A process cannot be killed, or does not end.
pub(super) fn end_survivors(batch_id: &str, runs: Option<&[String]>) -> io::Result<u32> {
    let (mut killed, mut clean) = (0, 0);
    let until = Instant::now() + END_WAIT;
    loop {
        let mut pids = match processes_with_variable(BATCH_VARIABLE, batch_id) {
            // This system does not show environments. Its trees have ended with their runner.
            Err(error) if error.kind() == io::ErrorKind::Unsupported => return Ok(killed),
            pids => pids?,
        };
        if let Some(runs) = runs {
            pids = of_runs(&pids, runs)?;
        }
        let Some(pid) = pids.first().copied() else {
            clean += 1;
            if clean < CLEAN_LOOKS {
                continue;
            }
            wait_for_exits(until);
            return Ok(killed);
        };
        clean = 0;
        if Instant::now() >= until {
            return Err(io::Error::other(format!("process {pid} of an earlier run does not end")));
        }
        for pid in pids {
            killed += u32::from(kill(pid, batch_id)?);
        }
        thread::park_timeout(PAUSE);
    }
}

/// Returns those processes that belong to one of the runs.
fn of_runs(pids: &[u32], runs: &[String]) -> io::Result<Vec<u32>> {
    let mut of_runs = Vec::new();
    for &pid in pids {
        for run in runs {
            if has_variable(pid, RUN_VARIABLE, run)? {
                of_runs.push(pid);
                break;
            }
        }
    }
    Ok(of_runs)
}

/// Waits until the nodes of a killed runner have missed it, and have ended its jobs. How long it has been dead is not
/// known.
pub(super) fn wait_for_nodes() {
    let until = Instant::now() + NODES_END_WITHIN;
    while let Some(left) = until.checked_duration_since(Instant::now()).filter(|it| !it.is_zero()) {
        thread::park_timeout(left);
    }
}

/// Waits for processes that exit: they may hold locks of the batch. Whose they are, nothing shows any more.
///
/// Reads their states and opens none of them: waiting for one that is a child of this program would reap it, and the
/// code that started it would lose its status.
fn wait_for_exits(until: Instant) {
    let mut exiting = exiting_processes().unwrap_or_default();
    // One that does not end is stuck in the kernel, and may be another program's.
    while !exiting.is_empty() && Instant::now() < until {
        thread::park_timeout(PAUSE);
        let now = exiting_processes().unwrap_or_default();
        exiting.retain(|pid| now.contains(pid));
    }
}

fn kill(pid: u32, batch_id: &str) -> io::Result<bool> {
    let opened = match ProcessHandle::open(pid) {
        Ok(opened) => opened,
        Err(error) if matches!(error.kind(), ErrorKind::NoSuchProcess) => return Ok(false),
        Err(error) => return Err(error.into()),
    };
    // Another process may have got the number before it was opened.
    if !has_variable(pid, BATCH_VARIABLE, batch_id)? {
        return Ok(false);
    }
    Ok(opened.kill()?)
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use std::process::Command;
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;

    #[test]
    fn children_of_this_program_keep_their_status_for_the_code_that_started_them() {
        let finished = AtomicBool::new(false);
        thread::scope(|scope| {
            let looking = scope.spawn(|| {
                while !finished.load(Ordering::Relaxed) {
                    assert_eq!(end_survivors("of no batch", None).unwrap(), 0);
                }
            });
            let statuses: Vec<_> = (0..500).map(|_| Command::new("true").status()).collect();
            finished.store(true, Ordering::Relaxed);
            looking.join().unwrap();
            assert!(statuses.into_iter().all(|status| status.unwrap().success()));
        });
    }

    #[test]
    fn only_processes_of_known_runs_are_killed() {
        let mut child = Command::new("sleep");
        child.env(BATCH_VARIABLE, "a batch of survivors").env(RUN_VARIABLE, "later");
        let mut child = child.arg("600").spawn().unwrap();
        let end = |runs: &[&str]| {
            let runs: Vec<String> = runs.iter().map(|run| (*run).to_owned()).collect();
            end_survivors("a batch of survivors", Some(&runs)).unwrap()
        };
        // A copy of the log, made before that run.
        assert_eq!(end(&["earlier"]), 0);
        assert!(child.try_wait().unwrap().is_none());
        let waiting = thread::spawn(move || child.wait().unwrap());
        assert_eq!(end(&["earlier", "later"]), 1);
        assert!(!waiting.join().unwrap().success());
    }
}
