//! A job, read from the line that `scontrol show job --oneliner` prints: its state, and times as Slurm prints them.

use std::fmt;
use std::time::{Duration, SystemTime};

use jiff::Timestamp;
use jiff::civil::DateTime;
use jiff::tz::TimeZone;

/// The number that Slurm gave a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct JobNumber(pub(super) u32);

impl JobNumber {
    /// Reads a number. Slurm has no job 0.
    pub(super) fn parse(text: &str) -> Option<JobNumber> {
        let is_number = text.bytes().all(|byte| byte.is_ascii_digit());
        is_number.then(|| text.parse().ok())?.filter(|number| *number > 0).map(JobNumber)
    }
}

impl fmt::Display for JobNumber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A job at one moment, as Slurm's controller knew it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct JobInfo {
    /// Its state.
    pub(crate) state: SlurmState,
    /// The reason why it waits, or why it ended; `None` if Slurm gave none.
    pub(crate) reason: Option<String>,
    /// Its time limit; `None` if it has none.
    pub(crate) time_limit: Option<Duration>,
    /// The time that it has run.
    pub(crate) run_time: Duration,
    /// The moment at which Slurm ends it, or at which it ended; `None` if that is not known.
    pub(crate) end_time: Option<SystemTime>,
    /// Its nodes, as in `n[1-4]`; `None` if it has none.
    pub(crate) node_list: Option<String>,
    /// The number of its nodes. While it waits, the number that it asks for.
    pub(crate) node_count: Option<u32>,
    /// The exit code of the script, if that has ended by itself, and the signal that killed it.
    pub(crate) exit: Option<(u32, u32)>,
}

impl JobInfo {
    /// Reads what `scontrol show job --oneliner` printed, and returns that job. `None`: it is not there, or has no
    /// state.
    pub(super) fn parse(text: &str, id: JobNumber) -> Option<JobInfo> {
        let fields = fields(after_name(record(text, id)?));
        // Users choose texts that come later, such as the path of the script: the first of each key is Slurm's own.
        let value = |key: &str| fields.iter().find(|(found, _)| *found == key).map(|(_, it)| *it);
        let given = |key: &str| value(key).filter(|it| !is_nothing(it));
        Some(JobInfo {
            state: SlurmState::parse(given("JobState")?),
            reason: given("Reason").map(str::to_owned),
            time_limit: value("TimeLimit").and_then(duration),
            run_time: value("RunTime").and_then(duration).unwrap_or_default(),
            end_time: value("EndTime").and_then(moment),
            node_list: given("NodeList").map(str::to_owned),
            // As a range while it waits: 2-4.
            node_count: value("NumNodes")
                .and_then(|it| it.split('-').next())
                .and_then(|it| it.parse().ok()),
            exit: value("ExitCode").and_then(exit),
        })
    }

    /// Returns the phase of the allocation.
    pub(crate) fn phase(&self) -> Phase {
        self.state.phase()
    }

    /// Returns the time that the allocation had left when Slurm was asked; `None` if it has no limit.
    pub(crate) fn time_left(&self) -> Option<Duration> {
        self.time_limit.map(|limit| limit.saturating_sub(self.run_time))
    }
}

/// Returns true for the words with which Slurm says that there is no value.
fn is_nothing(value: &str) -> bool {
    matches!(value, "" | "(null)" | "None" | "N/A" | "Unknown")
}

/// Reads `CODE:SIGNAL`.
fn exit(text: &str) -> Option<(u32, u32)> {
    let (code, signal) = text.split_once(':')?;
    Some((code.parse().ok()?, signal.parse().ok()?))
}

/// Returns the text about one job. A job array has one line for each of its tasks, and a text of a user may have
/// several.
fn record(text: &str, id: JobNumber) -> Option<&str> {
    const KEY: &str = "JobId=";
    let starts = text.match_indices(KEY).map(|(at, _)| at);
    let starts = starts.filter(|at| *at == 0 || text.as_bytes().get(at - 1) == Some(&b'\n'));
    let starts: Vec<usize> = starts.collect();
    let ends = starts.iter().skip(1).copied().chain([text.len()]);
    let mut records = starts.iter().zip(ends).filter_map(|(start, end)| text.get(*start..end));
    records.find(|it| {
        let number = it.get(KEY.len()..).and_then(|rest| rest.split_whitespace().next());
        number.and_then(JobNumber::parse) == Some(id)
    })
}

/// Returns the text after the name of the job, which the user chose and which may look like anything.
fn after_name(record: &str) -> &str {
    let ends = record.match_indices(" UserId=").filter_map(|(at, _)| record.get(at + 1..));
    let is_end =
        |rest: &&str| rest.split(' ').nth(1).is_some_and(|word| word.starts_with("GroupId="));
    ends.into_iter().find(is_end).unwrap_or(record)
}

/// Splits text into keys and values. A value goes on until the next word that begins with a key.
fn fields(text: &str) -> Vec<(&str, &str)> {
    let text = text.trim_end();
    let mut starts: Vec<(usize, &str)> = Vec::new();
    let mut at = 0;
    for word in text.split(' ') {
        if let Some(key) = key(word) {
            starts.push((at, key));
        }
        at += word.len() + 1;
    }
    let ends = starts.iter().skip(1).map(|(at, _)| at - 1).chain([text.len()]);
    let fields = starts.iter().zip(ends);
    fields
        .filter_map(|((start, key), end)| Some((*key, text.get(start + key.len() + 1..end)?)))
        .collect()
}

/// Returns the key that a word begins with, as in `CPUs/Task=1`. Slurm's keys begin with a capital letter.
fn key(word: &str) -> Option<&str> {
    let (key, _) = word.split_once('=')?;
    let is_part = |byte: u8| byte.is_ascii_alphanumeric() || b"/:_-".contains(&byte);
    let is_key =
        key.as_bytes().first().is_some_and(u8::is_ascii_uppercase) && key.bytes().all(is_part);
    is_key.then_some(key)
}

/// The state of a job, as Slurm names it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum SlurmState {
    /// The job waits for nodes.
    Pending,
    /// The job has nodes, which boot.
    Configuring,
    /// The job runs.
    Running,
    /// The job has nodes, and its processes are stopped.
    Suspended,
    /// The job ends, and some of its processes still run.
    Completing,
    /// The script exited with code 0.
    Completed,
    /// A user or an administrator cancelled the job.
    Cancelled,
    /// The script exited with another code, or was killed.
    Failed,
    /// The time limit of the job was reached.
    Timeout,
    /// A node of the job failed.
    NodeFail,
    /// Another job took the nodes.
    Preempted,
    /// The nodes did not boot.
    BootFail,
    /// The job could not end before its deadline.
    Deadline,
    /// A process of the job exceeded the memory limit.
    OutOfMemory,
    /// Another state, by its name.
    Other(String),
}

/// The part of its life that an allocation is in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Phase {
    /// It has no nodes that can be used yet.
    Waiting,
    /// It has nodes.
    Granted,
    /// It ends, or has ended: nothing more can be started.
    Ended,
}

/// The states with their names.
const NAMES: [(SlurmState, &str); 14] = [
    (SlurmState::Pending, "PENDING"),
    (SlurmState::Configuring, "CONFIGURING"),
    (SlurmState::Running, "RUNNING"),
    (SlurmState::Suspended, "SUSPENDED"),
    (SlurmState::Completing, "COMPLETING"),
    (SlurmState::Completed, "COMPLETED"),
    (SlurmState::Cancelled, "CANCELLED"),
    (SlurmState::Failed, "FAILED"),
    (SlurmState::Timeout, "TIMEOUT"),
    (SlurmState::NodeFail, "NODE_FAIL"),
    (SlurmState::Preempted, "PREEMPTED"),
    (SlurmState::BootFail, "BOOT_FAIL"),
    (SlurmState::Deadline, "DEADLINE"),
    (SlurmState::OutOfMemory, "OUT_OF_MEMORY"),
];

impl SlurmState {
    /// Reads the name of a state.
    pub(super) fn parse(name: &str) -> SlurmState {
        let known = NAMES.iter().find(|(_, known)| *known == name);
        known.map_or_else(|| SlurmState::Other(name.to_owned()), |(state, _)| state.clone())
    }

    /// Returns the phase of an allocation in this state. One that is unknown counts as ended: waiting for it to change
    /// could take forever.
    pub(crate) fn phase(&self) -> Phase {
        match self {
            SlurmState::Pending | SlurmState::Configuring => Phase::Waiting,
            SlurmState::Running | SlurmState::Suspended => Phase::Granted,
            SlurmState::Other(name) => match name.as_str() {
                "REQUEUED" | "REQUEUE_HOLD" | "REQUEUE_FED" | "RESV_DEL_HOLD" | "SPECIAL_EXIT"
                | "POWER_UP_NODE" => Phase::Waiting,
                "RESIZING" | "SIGNALING" | "STOPPED" => Phase::Granted,
                _ => Phase::Ended,
            },
            _ => Phase::Ended,
        }
    }
}

impl fmt::Display for SlurmState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let SlurmState::Other(name) = self {
            return f.pad(name);
        }
        let known = NAMES.iter().find(|(state, _)| state == self);
        f.pad(known.map_or("", |(_, name)| name))
    }
}

/// Reads `DAYS-HH:MM:SS`, in which the days, and the hours, may be missing. `None`: it is no duration, as `UNLIMITED`
/// is not.
pub(super) fn duration(text: &str) -> Option<Duration> {
    let (days, clock) = match text.split_once('-') {
        Some((days, clock)) => (number(days)?, clock),
        None => (0, text),
    };
    let mut seconds: u64 = 0;
    let parts = clock.split(':').count();
    if !(2..=3).contains(&parts) {
        return None;
    }
    for part in clock.split(':') {
        seconds = seconds.checked_mul(60)?.checked_add(number(part)?)?;
    }
    Some(Duration::from_secs(days.checked_mul(86_400)?.checked_add(seconds)?))
}

/// Reads `YYYY-MM-DDTHH:MM:SS`, in UTC. `None`: it is no moment after 1970, as `Unknown` is not.
pub(super) fn moment(text: &str) -> Option<SystemTime> {
    let time = DateTime::strptime("%Y-%m-%dT%H:%M:%S", text).ok()?;
    let moment = TimeZone::UTC.to_timestamp(time).ok()?;
    SystemTime::try_from(moment).ok().filter(|_| moment >= Timestamp::UNIX_EPOCH)
}

/// Reads digits, and nothing else: no sign.
fn number(text: &str) -> Option<u64> {
    let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    is_number.then(|| text.parse().ok())?
}
