//! The driver's half of the log: gives rows to jobs and attempts, and turns calls into changes.

use std::collections::HashMap;
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::changes::{
    Changes, Description, EndedAttempt, JobChange, NewJob, Process, RunChange, RunningAttempt,
};
use super::past::Entries;
use crate::job::{Job, JobId, shell_quoted, stored};
use crate::scheduler::{Cause, JobEnd};
use crate::vocabulary::{AttemptEnd, AttemptKey, AttemptOutcome, Failure, JobOutcome};

/// The longest text about an attempt: an error, or a reason.
const MOST_TEXT_BYTES: usize = 1024;
/// The reason for an earlier end that stands.
const NOT_STARTED: &str = "its next attempt was not started";
/// The longest end of stderr.
const MOST_TAIL_BYTES: usize = 4096;

/// A job, as the log needs it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LoggedJob<'a> {
    /// The number in this run, as in [`AttemptKey`].
    pub(crate) number: u64,
    pub(crate) id: JobId,
    pub(crate) job: &'a Job,
    /// Must not run twice: if it is interrupted, it is `unknown`.
    pub(crate) once: bool,
}

/// An attempt that is about to start.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Intent<'a> {
    pub(crate) job: LoggedJob<'a>,
    pub(crate) attempt: u32,
    /// The slot, if it is known already.
    pub(crate) slot: Option<u32>,
    /// Asks for [`Report::Durable`](super::Report::Durable).
    pub(crate) durable: bool,
}

/// The part of an attempt's output that is in the log.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct LoggedOutput<'a> {
    /// The file or folder that holds the output.
    pub(crate) path: Option<&'a Path>,
    /// The end of stderr. The log keeps up to 4 KiB of it, from the beginning of a line.
    pub(crate) stderr_tail: &'a [u8],
    /// It could not be stored whole. A success without its output is none.
    pub(crate) is_lost: bool,
}

/// The state of the driver's half.
#[derive(Debug)]
pub(crate) struct Ledger {
    run: u32,
    next_job: u32,
    next_attempt: u64,
    /// Jobs of this run that have a row and are not settled, by number.
    active: HashMap<u64, Active>,
    past: Entries,
    pub(super) changes: Changes,
    /// New rows have the values of templates, for tags.
    pub(crate) keep_values: bool,
}

#[derive(Debug)]
struct Active {
    row: u32,
    line: Option<u64>,
    /// The attempt that was intended and has not ended.
    attempt: Option<(u32, Option<u32>)>,
    /// An attempt of this run has ended that had begun.
    has_run: bool,
    /// Its end in an earlier run, which stands until another attempt has begun.
    earlier: Option<JobState>,
    once: bool,
}

/// The numbers at which a run continues.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Numbers {
    pub(crate) run: u32,
    pub(crate) next_job: u32,
    pub(crate) next_attempt: u64,
}

impl Ledger {
    pub(crate) fn new(numbers: Numbers, past: Entries) -> Ledger {
        let Numbers { run, next_job, next_attempt } = numbers;
        let (active, changes) = (HashMap::new(), Changes::default());
        Ledger { run, next_job, next_attempt, active, past, changes, keep_values: false }
    }

    /// Returns the changes since the last call.
    pub(crate) fn take(&mut self) -> Changes {
        std::mem::take(&mut self.changes)
    }

    /// Returns true if the job has a row.
    pub(crate) fn has(&self, job: &LoggedJob<'_>) -> bool {
        self.active.contains_key(&job.number) || self.past.row_of(job.id).is_some()
    }

    /// Notes an attempt that is about to start. The first call for a job notes the job too.
    pub(crate) fn intend(&mut self, intent: &Intent<'_>) {
        let Intent { job, attempt, slot, durable } = *intent;
        let row = self.change(&job, JobState::Started, None, slot);
        let has_run = self.active.get(&job.number).is_some_and(|active| active.has_run);
        let attempt_of_slot = Some((attempt, slot));
        let active = Active {
            row,
            line: job.job.get_line(),
            attempt: attempt_of_slot,
            has_run,
            earlier: self.past.state_of(job.id).filter(|state| state.is_final()),
            once: job.once,
        };
        self.active.insert(job.number, active);
        let since = unix_seconds(SystemTime::now());
        let run = self.run;
        let once = job.once;
        let process = None;
        self.changes.start(RunningAttempt { job: row, run, attempt, slot, since, once, process });
        if durable {
            self.changes.await_intent(AttemptKey { job: job.number, attempt });
        }
    }

    /// Notes the process of an attempt. One that has ended is ignored.
    pub(crate) fn runs_as(&mut self, key: AttemptKey, process: Process) {
        let active = self.active.get(&key.job);
        let is_it = |active: &&Active| active.attempt.is_some_and(|(it, _)| it == key.attempt);
        if let Some(row) = active.filter(is_it).map(|active| active.row) {
            self.changes.set_process(row, process);
        }
    }

    /// Notes that an intended attempt does not start after all, or later. Others are ignored.
    ///
    /// [`settled`](Journal::settled) does the same for the attempt of its job.
    pub(crate) fn void(&mut self, key: AttemptKey) {
        let Some((row, line, _)) = self.take_attempt(key) else { return };
        self.changes.stop(row);
        // The job is as before: an earlier end stands, or it waits for its first attempt or for another one.
        let (has_run, earlier) =
            self.active.get(&key.job).map_or((true, None), |it| (it.has_run, it.earlier));
        let earlier = earlier.filter(|_| !has_run);
        let waits = if has_run { JobState::Started } else { JobState::Waiting };
        let (number, state) = (key.job, earlier.unwrap_or(waits));
        let reason = earlier.map(|_| NOT_STARTED.into());
        let change = JobChange { number, line, state, reason, last_attempt: None };
        self.changes.change_job(row, change);
    }

    /// Notes the end of an attempt. One that was not intended, or has ended, is ignored.
    ///
    /// A success makes its job `succeeded` at once. After another end the job is `started` until it is settled.
    pub(crate) fn ended(&mut self, end: &AttemptEnd, output: LoggedOutput<'_>) {
        let Some((job, line, slot)) = self.take_attempt(end.key) else { return };
        // Nothing has run if it could not be started: an earlier end stands, unless this is its failure.
        let has_run = !matches!(end.outcome, AttemptOutcome::NotStarted(_));
        let active = self.active.get_mut(&end.key.job);
        let (once, earlier) = active.map_or((false, None), |active| {
            active.has_run |= has_run;
            (active.once, active.earlier.filter(|_| !active.has_run))
        });
        let row = self.next_attempt;
        self.next_attempt += 1;
        let mut ended = end.clone();
        if let AttemptOutcome::NotStarted(text) | AttemptOutcome::Lost(text) = &mut ended.outcome {
            shorten(text);
        }
        ended.node.iter_mut().for_each(shorten);
        self.changes.end(EndedAttempt {
            row,
            job,
            run: self.run,
            slot,
            end: ended,
            output_path: output.path.map(|path| path.as_os_str().as_encoded_bytes().to_vec()),
            stderr_tail: tail(output.stderr_tail),
            once,
        });
        if let Some(path) = output.path {
            self.changes.await_output(row, path.to_owned());
        }
        // A success is final, whatever the scheduler says about it later: if its `settled` is lost in a crash, the job
        // must not run again.
        let is_success = end.outcome.is_success() && !output.is_lost;
        // A resumed batch may begin another attempt of a job that has failed only if it is told to.
        let undecided = earlier.unwrap_or(JobState::Started);
        let state = if is_success { JobState::SUCCEEDED } else { undecided };
        let reason = earlier.map(|_| NOT_STARTED.into());
        let last_attempt = Some(row);
        let number = end.key.job;
        self.changes.change_job(job, JobChange { number, line, state, reason, last_attempt });
    }

    /// Notes the final state of a job. Returns its end of an earlier run, if that stands because no attempt has begun.
    pub(crate) fn settled(
        &mut self,
        job: &LoggedJob<'_>,
        state: JobState,
        reason: Option<&str>,
    ) -> Option<JobOutcome> {
        let active = self.active.get(&job.number);
        let has_run = active.is_some_and(|active| active.has_run);
        let earlier = self.past.state_of(job.id).filter(|state| state.is_final() && !has_run);
        if earlier.is_some() && active.is_none() {
            // It was to run again, and did not.
            return None;
        }
        // One that may have run is not known better by an attempt that has not begun.
        let stands = earlier.filter(|earlier| !state.is_final() || *earlier == JobState::UNKNOWN);
        let row = match stands {
            Some(earlier) => self.change(job, earlier, Some(NOT_STARTED.into()), None),
            None => self.change(job, state, reason.map(cut), None),
        };
        if self.active.remove(&job.number).is_some_and(|active| active.attempt.is_some()) {
            // The job is over, so its intent is void.
            self.changes.stop(row);
        }
        stands.and_then(JobState::outcome)
    }

    /// Notes a job that waits for its start, if it has no row.
    pub(crate) fn waits(&mut self, job: &LoggedJob<'_>) {
        if !self.has(job) {
            let row = self.change(job, JobState::Waiting, None, None);
            let (line, once) = (job.job.get_line(), job.once);
            let active = Active { row, line, attempt: None, has_run: false, earlier: None, once };
            self.active.insert(job.number, active);
        }
    }

    /// Describes a job that has a row from an earlier run, and is in the input of this one.
    pub(crate) fn describe(&mut self, row: u32, job: &LoggedJob<'_>) {
        let LoggedJob { number, job, .. } = *job;
        let (line, name) = (job.get_line(), job.get_name().map(Box::from));
        let settings = stored::settings(job, self.keep_values).map(Into::into);
        // A source has checked that a job can be words here.
        let command = shell_quoted(&job.argv(1).unwrap_or_default());
        self.changes.describe(Description { row, number, line, name, command, settings });
    }

    /// Notes that the input of this run does not have a job.
    pub(crate) fn remove(&mut self, row: u32) {
        self.changes.remove(row, self.run);
    }

    /// Notes the number of slots. The largest one counts.
    pub(crate) fn set_slots(&mut self, slots: u32) {
        self.changes.set_slots(self.run, slots);
    }

    pub(crate) fn end_input(&mut self, jobs: u64) {
        self.changes.end_input(self.run, jobs);
    }

    pub(crate) fn end_run(&mut self, exit_code: Option<i32>, how: &str) {
        let ended = unix_seconds(SystemTime::now());
        self.changes.end_run(RunChange { run: self.run, ended, exit_code, how: cut(how) });
    }

    /// Changes a job, which gets a row if it has none. Returns the row.
    fn change(
        &mut self,
        job: &LoggedJob<'_>,
        state: JobState,
        reason: Option<Box<str>>,
        slot: Option<u32>,
    ) -> u32 {
        let (number, line) = (job.number, job.job.get_line());
        let change = JobChange { number, line, state, reason, last_attempt: None };
        let known = self.active.get(&job.number).map(|active| active.row);
        if let Some(row) = known.or_else(|| self.past.row_of(job.id)) {
            self.changes.change_job(row, change);
            return row;
        }
        let row = self.next_job;
        // No batch has four billion jobs.
        self.next_job = row.saturating_add(1);
        // A source has checked that a job can be words here.
        let words = job.job.argv(slot.unwrap_or(1)).unwrap_or_default();
        self.changes.add_job(NewJob {
            row,
            id: job.id,
            name: job.job.get_name().map(Box::from),
            command: shell_quoted(&words),
            current_dir: job
                .job
                .get_current_dir()
                .map(|dir| dir.as_os_str().as_encoded_bytes().to_vec()),
            settings: stored::settings(job.job, self.keep_values).map(Into::into),
            change,
        });
        row
    }

    /// Takes the intended attempt of a job, with the row and the line of the job and the slot. `None`: it is another
    /// attempt, or has ended.
    fn take_attempt(&mut self, key: AttemptKey) -> Option<(u32, Option<u64>, Option<u32>)> {
        let active = self.active.get_mut(&key.job)?;
        let (_, slot) = active.attempt.take_if(|(attempt, _)| *attempt == key.attempt)?;
        Some((active.row, active.line, slot))
    }
}

/// Returns a time in seconds since 1970, as SQLite's functions for dates take it.
pub(crate) fn unix_seconds(time: SystemTime) -> f64 {
    match time.duration_since(UNIX_EPOCH) {
        Ok(after) => after.as_secs_f64(),
        Err(error) => -error.duration().as_secs_f64(),
    }
}

/// Returns a time of a log, which may come from elsewhere: none is longer than a thousand years, so that sums stay in
/// range.
pub(crate) fn duration(seconds: f64) -> Duration {
    const MOST: Duration = Duration::from_secs(1000 * 365 * 86_400);
    Duration::try_from_secs_f64(seconds).unwrap_or_default().min(MOST)
}

/// Returns the time at this number of seconds since 1970.
pub(crate) fn system_time(unix_seconds: f64) -> SystemTime {
    let since = duration(unix_seconds);
    UNIX_EPOCH.checked_add(since).unwrap_or(UNIX_EPOCH)
}

/// Keeps the beginning of a text.
fn shorten(text: &mut String) {
    text.truncate(beginning(text));
}

/// Returns the beginning of a text.
fn cut(text: &str) -> Box<str> {
    text.get(..beginning(text)).unwrap_or_default().into()
}

/// Returns the length of the beginning that the log keeps.
fn beginning(text: &str) -> usize {
    let mut ends = (0..=MOST_TEXT_BYTES.min(text.len())).rev();
    ends.find(|end| text.is_char_boundary(*end)).unwrap_or(0)
}

/// Returns the last lines of an output as text that every tool shows: without NUL, which would end it for some.
fn tail(bytes: &[u8]) -> Option<Box<str>> {
    let start = bytes.len().saturating_sub(MOST_TAIL_BYTES);
    let (before, mut last) = bytes.split_at(start);
    let begins_a_line = before.last().is_none_or(|byte| *byte == b'\n');
    let first_end = last.iter().position(|byte| *byte == b'\n');
    if let Some(end) = first_end.filter(|end| !begins_a_line && end + 1 < last.len()) {
        last = last.get(end + 1..).unwrap_or_default();
    }
    let text = String::from_utf8_lossy(last).replace('\0', "\u{fffd}");
    (!text.is_empty()).then(|| text.into())
}

// States of jobs, as words of the log.

/// The state of a job in the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum JobState {
    /// It was read, and waits for its start.
    Waiting,
    /// It was started, and has not ended for good: it runs, or waits for another attempt.
    Started,
    /// Its runner ended while it ran, or its output could not be stored. It runs again in a resumed batch.
    Interrupted,
    /// It has ended. A failed one, and no other, has the class of its failure.
    Ended(JobOutcome, Option<Failure>),
}

impl JobState {
    pub(crate) const SUCCEEDED: JobState = JobState::ended(JobOutcome::Succeeded);
    pub(crate) const UNKNOWN: JobState = JobState::ended(JobOutcome::Unknown);

    /// All states, in the order of reports.
    pub(crate) const ALL: [JobState; 15] = [
        JobState::SUCCEEDED,
        JobState::failed(Failure::ExitCode),
        JobState::failed(Failure::TimedOut),
        JobState::failed(Failure::Signalled),
        JobState::failed(Failure::OutOfMemory),
        JobState::failed(Failure::StartFailed),
        JobState::failed(Failure::Lost),
        JobState::ended(JobOutcome::Skipped),
        JobState::ended(JobOutcome::Stopped),
        JobState::ended(JobOutcome::NotRun),
        JobState::Interrupted,
        JobState::UNKNOWN,
        JobState::ended(JobOutcome::Refused),
        JobState::Started,
        JobState::Waiting,
    ];

    /// Returns the state of a job that has ended otherwise than by a failure.
    pub(crate) const fn ended(outcome: JobOutcome) -> JobState {
        JobState::Ended(outcome, None)
    }

    pub(crate) const fn failed(failure: Failure) -> JobState {
        JobState::Ended(JobOutcome::Failed, Some(failure))
    }

    /// Returns the word in the column `state`.
    #[must_use]
    pub(crate) fn name(self) -> &'static str {
        match self {
            JobState::Waiting => "waiting",
            JobState::Started => "started",
            JobState::Interrupted => "interrupted",
            JobState::Ended(outcome, _) => outcome.name(),
        }
    }

    /// Returns the words of all states, each once, in the order of reports.
    pub(crate) fn words() -> impl Iterator<Item = &'static str> {
        let mut last = "";
        // Those of the classes of a failure are one, and stand together.
        let is_new = move |word: &&'static str| std::mem::replace(&mut last, *word) != *word;
        JobState::ALL.into_iter().map(JobState::name).filter(is_new)
    }

    /// Returns the end. `None`: the job runs, or will run again.
    pub(crate) fn outcome(self) -> Option<JobOutcome> {
        match self {
            JobState::Ended(outcome, _) => Some(outcome),
            _ => None,
        }
    }

    /// Returns the class of its failure, which only failed jobs have: the column `failure`.
    pub(crate) fn failure(self) -> Option<Failure> {
        match self {
            JobState::Ended(_, failure) => failure,
            _ => None,
        }
    }

    /// Returns the state that these columns mean. `None`: no version of the log has such words.
    pub(crate) fn parse(state: &str, failure: Option<&str>) -> Option<JobState> {
        // The most frequent word of a log with a million jobs.
        if state == "succeeded" && failure.is_none() {
            return Some(JobState::SUCCEEDED);
        }
        let mut all = JobState::ALL.into_iter();
        all.find(|it| it.name() == state && it.failure().map(Failure::name) == failure)
    }

    /// Returns true if only another attempt can change the state.
    pub(crate) fn is_final(self) -> bool {
        matches!(
            self.outcome(),
            Some(JobOutcome::Succeeded | JobOutcome::Failed | JobOutcome::Unknown)
        )
    }

    /// Returns the end for the scheduler of a resumed batch. `None`: the job runs again.
    pub(crate) fn past(self) -> Option<JobEnd> {
        let outcome = self.outcome().filter(|_| self.is_final())?;
        Some(JobEnd { outcome, cause: self.failure().map(Cause::Failure) })
    }
}

impl From<&JobEnd> for JobState {
    fn from(end: &JobEnd) -> JobState {
        match end.cause {
            // A success without its output is none, and nothing has failed that a resumed batch would not run again.
            Some(Cause::Unstored) => JobState::Interrupted,
            Some(Cause::Failure(failure)) => JobState::Ended(end.outcome, Some(failure)),
            Some(Cause::After(_) | Cause::Refusal(_)) | None => JobState::ended(end.outcome),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::journal::past::Entry;

    /// Returns the driver's half of a second run.
    fn resumed(past: Vec<Entry>) -> Ledger {
        let numbers = Numbers { run: 2, next_job: 9, next_attempt: 1 };
        Ledger::new(numbers, Entries::new(past).unwrap())
    }

    fn logged(number: u64, job: &Job) -> LoggedJob<'_> {
        LoggedJob { number, id: JobId::new(job, 0), job, once: false }
    }

    fn intent(job: LoggedJob<'_>, attempt: u32) -> Intent<'_> {
        Intent { job, attempt, slot: Some(1), durable: false }
    }

    fn end(attempt: u32, outcome: AttemptOutcome) -> AttemptEnd {
        AttemptEnd::new(AttemptKey { job: 1, attempt }, outcome, UNIX_EPOCH, Duration::ZERO)
    }

    #[test]
    fn a_job_that_waits_gets_a_row_unless_it_has_one() {
        let jobs = ["new", "known"].map(Job::new);
        let [new, known] = [logged(1, &jobs[0]), logged(2, &jobs[1])];
        let mut ledger = resumed(vec![Entry::new(known.id, 3, JobState::Interrupted)]);
        ledger.waits(&known);
        assert!(ledger.take().is_empty(), "an earlier run has noted it");
        ledger.waits(&new);
        let changes = ledger.take();
        let added: Vec<_> = changes.jobs.iter().map(|it| (it.row, it.change.state)).collect();
        assert_eq!(added, [(9, JobState::Waiting)]);
        ledger.waits(&new);
        assert!(ledger.take().is_empty(), "this run has noted it");
    }

    #[test]
    fn an_earlier_failure_does_not_stand_when_an_attempt_has_run() {
        let job = Job::new("true");
        let job = logged(1, &job);
        let failed = JobState::failed(Failure::ExitCode);
        let mut ledger = resumed(vec![Entry::new(job.id, 3, failed)]);
        let outcomes = [AttemptOutcome::Exited(4), AttemptOutcome::NotStarted("gone".into())];
        for (attempt, outcome) in (1..).zip(outcomes) {
            ledger.intend(&intent(job, attempt));
            ledger.ended(&end(attempt, outcome), LoggedOutput::default());
            let changes = ledger.take();
            let states: Vec<_> = changes.updates.iter().map(|(row, it)| (*row, it.state)).collect();
            assert_eq!(states, [(3, JobState::Started)], "attempt {attempt}");
        }
    }

    #[test]
    fn a_job_whose_attempt_is_void_is_as_it_was() {
        let job = Job::new("true");
        let job = logged(1, &job);
        let failed = JobState::failed(Failure::ExitCode);
        for (earlier, has_run, expected) in [
            (None, false, JobState::Waiting),
            (None, true, JobState::Started),
            (Some(failed), false, failed),
            (Some(failed), true, JobState::Started),
        ] {
            let mut ledger =
                resumed(earlier.map(|it| Entry::new(job.id, 3, it)).into_iter().collect());
            if has_run {
                ledger.intend(&intent(job, 1));
                ledger.ended(&end(1, AttemptOutcome::Exited(4)), LoggedOutput::default());
            }
            ledger.intend(&intent(job, 2));
            ledger.take();
            ledger.void(AttemptKey { job: 1, attempt: 2 });
            let changes = ledger.take();
            assert_eq!(changes.over.len(), 1, "it does not run any more");
            let states: Vec<_> = changes.updates.values().map(|it| it.state).collect();
            assert_eq!(states, [expected], "{earlier:?} {has_run}");
        }
    }

    #[test]
    fn the_process_of_an_attempt_is_noted_while_it_runs() {
        let job = Job::new("true");
        let mut ledger = resumed(Vec::new());
        let process = Process { pid: 7, start: 70 };
        let runs_as = |ledger: &mut Ledger, attempt| {
            ledger.runs_as(AttemptKey { job: 1, attempt }, process);
        };
        ledger.intend(&intent(logged(1, &job), 2));
        ledger.take();
        runs_as(&mut ledger, 1);
        assert!(ledger.take().is_empty(), "it is the process of another attempt");
        runs_as(&mut ledger, 2);
        assert_eq!(ledger.take().processes, [(9, process)].into());
        ledger.ended(&end(2, AttemptOutcome::Exited(0)), LoggedOutput::default());
        ledger.take();
        runs_as(&mut ledger, 2);
        assert!(ledger.take().is_empty(), "the attempt has ended");
    }

    #[test]
    fn long_texts_about_an_attempt_are_cut() {
        let job = Job::new("true");
        let mut ledger = resumed(Vec::new());
        let long = "x".repeat(5000);
        for outcome in [AttemptOutcome::NotStarted, AttemptOutcome::Lost] {
            ledger.intend(&intent(logged(1, &job), 1));
            let node = Some(long.clone());
            let end = AttemptEnd { node, ..end(1, outcome(long.clone())) };
            ledger.ended(&end, LoggedOutput::default());
            let changes = ledger.take();
            let end = &changes.attempts[0].end;
            let lengths = [end.outcome.reason(), end.node.as_deref()].map(|it| it.map(str::len));
            assert_eq!(lengths, [Some(MOST_TEXT_BYTES); 2]);
        }
    }

    #[test]
    fn a_time_before_1970_is_negative_and_none_exceeds_a_thousand_years() {
        let time = Duration::from_millis(1500);
        assert_eq!([UNIX_EPOCH - time, UNIX_EPOCH + time].map(unix_seconds), [-1.5, 1.5]);
        assert_eq!(duration(1.5), time);
        assert_eq!(duration(1e12), Duration::from_secs(31_536_000_000));
    }

    #[test]
    fn a_tail_begins_with_a_line_and_is_bounded() {
        assert_eq!(tail(b""), None);
        assert_eq!(tail(b"one\ntwo\n").as_deref(), Some("one\ntwo\n"));
        let long = [b"x".repeat(5000), b"\nlast\n".to_vec()].concat();
        assert_eq!(tail(&long).as_deref(), Some("last\n"));
        let one_line = b"x".repeat(5000);
        assert_eq!(tail(&one_line).map(|text| text.len()), Some(MOST_TAIL_BYTES));
        let with_its_end = [&one_line[..], b"\n"].concat();
        assert_eq!(tail(&with_its_end).map(|text| text.len()), Some(MOST_TAIL_BYTES));
        assert_eq!(tail(b"a\0b\xff").as_deref(), Some("a\u{fffd}b\u{fffd}"));
    }

    #[test]
    fn a_text_is_cut_between_characters() {
        assert_eq!(&*cut("short"), "short");
        assert_eq!(cut(&"\u{e9}".repeat(600)).len(), MOST_TEXT_BYTES);
        assert_eq!(cut(&format!("x{}", "\u{e9}".repeat(600))).len(), MOST_TEXT_BYTES - 1);
    }
}

#[cfg(test)]
mod state_tests {
    use super::*;

    #[test]
    fn each_state_is_read_back_from_its_words() {
        for state in JobState::ALL {
            assert_eq!(
                JobState::parse(state.name(), state.failure().map(Failure::name)),
                Some(state)
            );
        }
        assert_eq!(JobState::parse("succeeded", Some("lost")), None);
        assert_eq!(JobState::parse("failed", None), None);
        assert_eq!(JobState::parse("", None), None);
    }

    #[test]
    fn each_end_and_each_class_of_failure_has_a_state() {
        for outcome in JobOutcome::ALL {
            assert!(JobState::ALL.iter().any(|it| it.outcome() == Some(outcome)), "{outcome:?}");
        }
        for failure in Failure::ALL {
            assert!(JobState::ALL.contains(&JobState::failed(failure)), "{failure:?}");
        }
    }

    #[test]
    fn each_word_is_told_once() {
        let words: Vec<_> = JobState::words().collect();
        for (index, word) in words.iter().enumerate() {
            assert!(!words[..index].contains(word), "{word}");
        }
        assert!(JobState::ALL.iter().all(|state| words.contains(&state.name())));
    }

    #[test]
    fn a_class_of_failure_belongs_to_a_failure_only() {
        for state in JobState::ALL {
            let is_failed = state.outcome() == Some(JobOutcome::Failed);
            assert_eq!(state.failure().is_some(), is_failed, "{state:?}");
        }
    }
}
