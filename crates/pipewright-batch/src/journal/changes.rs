//! Changes of the log that belong in one transaction, merged by row.

use std::collections::BTreeMap;

use std::path::PathBuf;

use super::ledger::JobState;
use crate::job::JobId;
use crate::vocabulary::{AttemptEnd, AttemptKey};

/// Changes of the log that are committed together.
///
/// Calls for the same row are merged, so a job that starts and ends within one group of commits is written once.
/// Writing the same changes twice leaves the same log as writing them once: a commit that reported an error may have
/// been durable.
#[derive(Debug, Default)]
pub(crate) struct Changes {
    /// New jobs. Their rows are consecutive, which makes a lookup an index.
    pub(super) jobs: Vec<NewJob>,
    /// Changes of jobs that the log has.
    pub(super) updates: BTreeMap<u32, JobChange>,
    /// Rows of jobs whose attempt the log has as running, and that does not run any more.
    pub(super) over: Vec<u32>,
    /// Attempts that run now, by the row of the job. Written after `over`.
    pub(super) running: BTreeMap<u32, RunningAttempt>,
    /// The processes of attempts that the log has as running, by the row of the job.
    pub(super) processes: BTreeMap<u32, Process>,
    pub(super) attempts: Vec<EndedAttempt>,
    pub(super) run: Option<RunChange>,
    /// Jobs of the log, as the input of the run describes them.
    pub(super) described: Vec<Description>,
    /// Jobs of the log that the input of a run does not have.
    pub(super) removed: Vec<(u32, u32)>,
    /// The end of the input of a run, and the number of its jobs.
    pub(super) input_end: Option<(u32, u64)>,
    /// A run, and the largest number of its slots.
    pub(super) slots: Option<(u32, u32)>,
    /// Intents that are reported when they are durable.
    pub(super) awaited: Vec<AttemptKey>,
    /// Attempts with a folder that has to be on disk before this is committed.
    pub(super) outputs: Vec<(u64, PathBuf)>,
    bytes: usize,
}

/// A job that the log does not have.
#[derive(Debug)]
pub(crate) struct NewJob {
    pub(crate) row: u32,
    pub(crate) id: JobId,
    pub(crate) name: Option<Box<str>>,
    pub(crate) command: Vec<u8>,
    pub(crate) current_dir: Option<Vec<u8>>,
    /// JSON: see [`stored`](crate::job::stored).
    pub(crate) settings: Option<Box<str>>,
    pub(crate) change: JobChange,
}

/// A job of the log, as the input of a run describes it. Its words are the same, its name and settings may have
/// changed.
#[derive(Debug)]
pub(crate) struct Description {
    pub(crate) row: u32,
    /// The number in the input of the current run.
    pub(crate) number: u64,
    pub(crate) line: Option<u64>,
    pub(crate) name: Option<Box<str>>,
    /// Its words with that number, which may be among them.
    pub(crate) command: Vec<u8>,
    /// JSON: see [`stored`](crate::job::stored).
    pub(crate) settings: Option<Box<str>>,
}

/// New values of a job.
#[derive(Debug, Clone)]
pub(crate) struct JobChange {
    /// The number in the input of the current run.
    pub(crate) number: u64,
    pub(crate) line: Option<u64>,
    pub(crate) state: JobState,
    pub(crate) reason: Option<Box<str>>,
    /// The row of its last attempt that has ended. `None`: as before.
    pub(crate) last_attempt: Option<u64>,
}

/// An attempt that was intended and has not ended.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct RunningAttempt {
    pub(crate) job: u32,
    pub(crate) run: u32,
    pub(crate) attempt: u32,
    pub(crate) slot: Option<u32>,
    /// The time of the intent, in seconds since 1970.
    pub(crate) since: f64,
    pub(crate) once: bool,
    /// Unknown until it has been started.
    pub(crate) process: Option<Process>,
}

/// The process of an attempt: its number, and its start time, which tells it from a later one with that number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Process {
    pub(crate) pid: u32,
    pub(crate) start: u64,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct EndedAttempt {
    pub(crate) row: u64,
    pub(crate) job: u32,
    pub(crate) run: u32,
    pub(crate) slot: Option<u32>,
    /// The number of its job is not in the log.
    pub(crate) end: AttemptEnd,
    pub(crate) output_path: Option<Vec<u8>>,
    pub(crate) stderr_tail: Option<Box<str>>,
    /// Its job must not run twice. The log does not have it.
    pub(crate) once: bool,
}

/// The end of a run.
#[derive(Debug, Clone)]
pub(crate) struct RunChange {
    pub(crate) run: u32,
    pub(crate) ended: f64,
    pub(crate) exit_code: Option<i32>,
    pub(crate) how: Box<str>,
}

impl JobChange {
    fn merge(&mut self, later: JobChange) {
        let last_attempt = later.last_attempt.or(self.last_attempt);
        *self = JobChange { last_attempt, ..later };
    }
}

impl Changes {
    pub(crate) fn is_empty(&self) -> bool {
        self.bytes == 0
    }

    /// Returns an upper estimate of the memory in use.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Returns true if an intent is to be reported when it is durable.
    pub(crate) fn is_awaited(&self) -> bool {
        !self.awaited.is_empty()
    }

    /// Asks that the folder of an attempt is put on disk before this is committed.
    pub(crate) fn await_output(&mut self, attempt: u64, folder: PathBuf) {
        self.bytes += size_of::<(u64, PathBuf)>() + folder.as_os_str().len();
        self.outputs.push((attempt, folder));
    }

    /// Makes an attempt a success without its output, if it was a success. Returns the number of its job.
    pub(crate) fn lose_output(&mut self, attempt: u64, reason: &str) -> Option<u64> {
        let ended = self.attempts.iter().find(|ended| ended.row == attempt)?;
        let (job, once) = (ended.job, ended.once);
        let is_new = self.new_job(job).is_some();
        let change = match is_new {
            true => self.new_job(job).map(|job| &mut job.change),
            false => self.updates.get_mut(&job),
        };
        let change = change.filter(|change| change.state == JobState::SUCCEEDED)?;
        change.state = if once { JobState::UNKNOWN } else { JobState::Interrupted };
        change.reason = Some(reason.into());
        Some(change.number)
    }

    /// Adds a job with the row after that of the last one.
    pub(crate) fn add_job(&mut self, job: NewJob) {
        let dir = job.current_dir.as_ref().map_or(0, Vec::len);
        let name = job.name.as_ref().map_or(0, |name| name.len());
        let settings = job.settings.as_ref().map_or(0, |text| text.len());
        self.bytes += size_of::<NewJob>() + job.command.len() + dir + name + settings;
        self.jobs.push(job);
    }

    pub(crate) fn change_job(&mut self, row: u32, change: JobChange) {
        self.bytes += size_of::<JobChange>() + change.reason.as_ref().map_or(0, |text| text.len());
        if let Some(job) = self.new_job(row) {
            job.change.merge(change);
        } else if let Some(earlier) = self.updates.get_mut(&row) {
            earlier.merge(change);
        } else {
            self.updates.insert(row, change);
        }
    }

    /// Adds an attempt that runs now.
    pub(crate) fn start(&mut self, attempt: RunningAttempt) {
        self.bytes += size_of::<RunningAttempt>();
        self.running.insert(attempt.job, attempt);
    }

    /// Notes the process of the running attempt of a job.
    pub(crate) fn set_process(&mut self, row: u32, process: Process) {
        if let Some(attempt) = self.running.get_mut(&row) {
            attempt.process = Some(process);
        } else {
            self.bytes += size_of::<(u32, Process)>();
            self.processes.insert(row, process);
        }
    }

    /// Asks for a report when this intent is durable.
    pub(crate) fn await_intent(&mut self, key: AttemptKey) {
        self.bytes += size_of::<AttemptKey>();
        self.awaited.push(key);
    }

    /// Ends the running attempt of a job, or voids its intent.
    pub(crate) fn stop(&mut self, row: u32) {
        self.processes.remove(&row);
        if self.running.remove(&row).is_none() {
            self.bytes += size_of::<u32>();
            self.over.push(row);
        }
    }

    pub(crate) fn end(&mut self, attempt: EndedAttempt) {
        let texts = attempt.end.outcome.reason().map_or(0, str::len)
            + attempt.output_path.as_ref().map_or(0, Vec::len)
            + attempt.end.node.as_ref().map_or(0, |text| text.len())
            + attempt.stderr_tail.as_ref().map_or(0, |text| text.len());
        self.bytes += size_of::<EndedAttempt>() + texts;
        self.stop(attempt.job);
        self.attempts.push(attempt);
    }

    /// Ends the run.
    pub(crate) fn end_run(&mut self, run: RunChange) {
        self.bytes += size_of::<RunChange>();
        self.run = Some(run);
    }

    /// Describes a job that both the log and the input have.
    pub(crate) fn describe(&mut self, job: Description) {
        let texts = job.name.iter().chain(&job.settings);
        self.bytes += size_of::<Description>()
            + job.command.len()
            + texts.map(|text| text.len()).sum::<usize>();
        self.described.push(job);
    }

    /// Marks a job that the input of this run does not have.
    pub(crate) fn remove(&mut self, row: u32, run: u32) {
        self.bytes += size_of::<(u32, u32)>();
        self.removed.push((row, run));
    }

    /// Notes the end of the input.
    pub(crate) fn end_input(&mut self, run: u32, jobs: u64) {
        self.bytes += size_of::<(u32, u64)>();
        self.input_end = Some((run, jobs));
    }

    /// Notes the number of slots. The largest one counts.
    pub(crate) fn set_slots(&mut self, run: u32, slots: u32) {
        self.bytes += size_of::<(u32, u32)>();
        self.slots = self.slots.max(Some((run, slots)));
    }

    pub(crate) fn append(&mut self, later: Changes) {
        if self.is_empty() {
            *self = later;
            return;
        }
        self.bytes += later.bytes;
        self.jobs.extend(later.jobs);
        for (row, change) in later.updates {
            self.change_job(row, change);
        }
        for row in later.over {
            self.stop(row);
        }
        self.running.extend(later.running);
        for (row, process) in later.processes {
            self.set_process(row, process);
        }
        self.attempts.extend(later.attempts);
        self.described.extend(later.described);
        self.removed.extend(later.removed);
        self.input_end = later.input_end.or(self.input_end);
        self.slots = self.slots.max(later.slots);
        self.run = later.run.or(self.run.take());
        self.awaited.extend(later.awaited);
        self.outputs.extend(later.outputs);
    }

    fn new_job(&mut self, row: u32) -> Option<&mut NewJob> {
        let index = row.checked_sub(self.jobs.first()?.row)?;
        self.jobs.get_mut(index as usize)
    }
}
