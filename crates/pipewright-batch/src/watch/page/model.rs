//! The model of a page: a bounded part of all updates.

use std::collections::{BTreeMap, HashMap};
use std::time::SystemTime;

use serde::Serialize;

use super::busy::Busy;
use super::histogram::Histogram;
use super::kept::{Kept, KeptAttempt};
use super::{MOST_ATTEMPTS, MOST_FAILURES, html};
use crate::executor::{AttemptEnd, AttemptKey};
use crate::vocabulary::JobOutcome;
use crate::watch::events::unix_seconds;
use crate::watch::text::{line, outcome};
use crate::watch::update::OutcomeCounts;
use crate::watch::{BatchFacts, Update};

/// Columns of a command that the page has.
const MOST_COMMAND_COLUMNS: usize = 300;

/// Lines of output that a failed job has, and columns of each.
const MOST_LAST_LINES: usize = 20;
const MOST_LINE_COLUMNS: usize = 300;

/// Notes that the page has.
const MOST_NOTES: usize = 20;

/// The model of a page about a batch.
#[derive(Debug)]
pub(crate) struct PageModel {
    pub(super) facts: BatchFacts,
    pub(super) counts: OutcomeCounts,
    pub(super) resumed: u64,
    pub(super) total: Option<u64>,
    pub(super) halted: Option<String>,
    pub(super) notes: Vec<String>,
    pub(super) kept: Kept,
    pub(super) busy: Busy,
    pub(super) histogram: Histogram,
    pub(super) failures: BTreeMap<u64, Failure>,
    running: HashMap<AttemptKey, u32>,
    /// The time of the last update, in seconds from the start.
    pub(super) end_seconds: f64,
}

/// A job that failed.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct Failure {
    pub(super) job: u64,
    pub(super) attempts: u32,
    /// `None`: it will be tried again.
    pub(super) state: Option<JobOutcome>,
    /// The end of its last attempt.
    pub(super) end: Option<String>,
    pub(super) elapsed_seconds: Option<f64>,
    pub(super) command: Option<String>,
    pub(super) reason: Option<String>,
    pub(super) last_lines: String,
}

/// The data of the page, as JSON.
#[derive(Serialize)]
struct Data<'a> {
    schema: &'static str,
    command: String,
    slots: u32,
    log: Option<String>,
    started_unix_seconds: f64,
    elapsed_seconds: f64,
    halted: Option<&'a str>,
    resumed: u64,
    total: Option<u64>,
    states: BTreeMap<&'static str, u64>,
    failures: Vec<&'a Failure>,
    attempts: Vec<&'a KeptAttempt>,
    other_attempts: u64,
    busy: &'a Busy,
    durations: &'a Histogram,
    notes: &'a [String],
}

impl PageModel {
    /// Returns the model of a batch that begins.
    pub(crate) fn new(facts: BatchFacts) -> PageModel {
        PageModel {
            facts,
            counts: OutcomeCounts::default(),
            resumed: 0,
            total: None,
            halted: None,
            notes: Vec::new(),
            kept: Kept::new(MOST_ATTEMPTS),
            busy: Busy::default(),
            histogram: Histogram::default(),
            failures: BTreeMap::new(),
            running: HashMap::new(),
            end_seconds: 0.0,
        }
    }

    /// Takes note of an update.
    pub(crate) fn update(&mut self, update: &Update<'_>, now: SystemTime) {
        self.end_seconds = self.end_seconds.max(self.since_start(now));
        match *update {
            Update::Resumed { jobs } => self.resumed += jobs,
            Update::Added { total, .. } => self.total = total.or(self.total),
            Update::InputEnded { total } => self.total = Some(total),
            Update::Started { key, slot, .. } => {
                self.running.insert(key, slot);
            }
            Update::Ended { end, text, last_lines } => self.ended(end, text, last_lines),
            Update::Settled { job, outcome, reason } => self.settled(job, outcome, reason),
            Update::Halted { cause } => self.halted = Some(line(cause, MOST_LINE_COLUMNS)),
            Update::Capacity { slots } => self.facts.slots = self.facts.slots.max(slots),
            Update::Note(text) if self.notes.len() < MOST_NOTES => {
                self.notes.push(line(text, MOST_LINE_COLUMNS));
            }
            Update::Began(_) | Update::Retried { .. } | Update::Note(_) | Update::Finished(_) => {}
        }
    }

    fn since_start(&self, time: SystemTime) -> f64 {
        time.duration_since(self.facts.started).map_or(0.0, |since| since.as_secs_f64())
    }

    fn ended(&mut self, end: &AttemptEnd, text: &str, last_lines: &str) {
        let AttemptKey { job, attempt } = end.key;
        let start_seconds = self.since_start(end.started);
        let elapsed_seconds = end.elapsed.as_secs_f64();
        self.end_seconds = self.end_seconds.max(start_seconds + elapsed_seconds);
        self.histogram.add(elapsed_seconds);
        self.busy.add(start_seconds, elapsed_seconds);
        let command = line(text, MOST_COMMAND_COLUMNS);
        let words = outcome(&end.outcome);
        let is_success = end.outcome.is_success();
        if !is_success && self.has_room_for_failure(job) {
            let failure = Failure {
                job,
                attempts: attempt,
                state: None,
                end: Some(words.clone()),
                elapsed_seconds: Some(elapsed_seconds),
                command: Some(command.clone()),
                reason: None,
                last_lines: bounded_lines(last_lines),
            };
            self.failures.insert(job, failure);
        }
        self.kept.add(KeptAttempt {
            job,
            attempt,
            slot: self.running.remove(&end.key).unwrap_or(0),
            outcome: end.outcome.name(),
            end: words,
            is_success,
            start_seconds,
            elapsed_seconds,
            command,
        });
    }

    fn has_room_for_failure(&self, job: u64) -> bool {
        self.failures.len() < MOST_FAILURES || self.failures.contains_key(&job)
    }

    fn settled(&mut self, job: u64, outcome: JobOutcome, reason: Option<&str>) {
        self.counts.add(outcome);
        if matches!(outcome, JobOutcome::Succeeded | JobOutcome::Skipped | JobOutcome::NotRun) {
            // It has failed before, and was tried again.
            self.failures.remove(&job);
            return;
        }
        if !self.has_room_for_failure(job) {
            return;
        }
        let failure = self.failures.entry(job).or_insert_with(|| Failure {
            job,
            attempts: 0,
            state: None,
            end: None,
            elapsed_seconds: None,
            command: None,
            reason: None,
            last_lines: String::new(),
        });
        failure.state = Some(outcome);
        failure.reason = reason.map(|reason| line(reason, MOST_LINE_COLUMNS));
    }

    /// Returns the page, for a batch that has ended at that time.
    pub(crate) fn html(&self) -> String {
        html::page(self)
    }

    /// Returns the data of the page.
    pub(super) fn json(&self) -> String {
        let states = JobOutcome::ALL.map(|outcome| (outcome.name(), self.counts.of(outcome)));
        let data = Data {
            schema: "pipewright.batch-page/1",
            command: line(&self.facts.command, MOST_COMMAND_COLUMNS),
            slots: self.facts.slots,
            log: self.facts.log.as_ref().map(|log| line(log, MOST_LINE_COLUMNS)),
            started_unix_seconds: unix_seconds(self.facts.started),
            elapsed_seconds: self.end_seconds,
            halted: self.halted.as_deref(),
            resumed: self.resumed,
            total: self.total,
            states: states.into_iter().collect(),
            failures: self.failures.values().collect(),
            attempts: self.kept.sorted(),
            other_attempts: self.kept.others,
            busy: &self.busy,
            durations: &self.histogram,
            notes: &self.notes,
        };
        // It has string keys and finite numbers only, so this does not fail.
        serde_json::to_string(&data).unwrap_or_default()
    }
}

/// Returns the last lines, each on one bounded line.
fn bounded_lines(text: &str) -> String {
    let mut lines: Vec<&str> = text.trim_end().rsplit('\n').take(MOST_LAST_LINES).collect();
    lines.reverse();
    let lines: Vec<String> = lines.into_iter().map(|text| line(text, MOST_LINE_COLUMNS)).collect();
    lines.join("\n")
}
