//! One HTML page about a whole batch, without any other file and without network.
//!
//! [`PageModel`] takes every event of a batch and keeps a bounded part of it: counts of everything, a histogram of all
//! durations, the number of jobs at one time, [`MOST_ATTEMPTS`] attempts (failed ones before others, long ones before
//! short ones), [`MOST_FAILURES`] failed jobs with their last lines, and 4 bytes of each attempt for the median. The
//! page says what it leaves out.
//!
//! The page works without its script, which only sorts and filters the table, offers the data as a file, and reloads a
//! page that is written again and again.
//!
//! | file | contents |
//! |---|---|
//! | `failures.rs` | jobs that are not ok, by reason |
//! | `html.rs` | the page, with its charts |
//! | `live.rs` | the file of a batch that runs, which a thread replaces |
//! | `page.css`, `page.js` | its style, with the colors of `pipewright bench`, and its script |

mod failures;
mod html;
mod live;

use std::cmp::{Ordering, Reverse};
use std::collections::{BTreeMap, BinaryHeap, HashMap};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use serde::Serialize;

use super::events::unix_seconds;
use super::progress::Rate;
use super::text::{line, outcome};
use super::{BatchFacts, OutcomeCounts, named};
use crate::vocabulary::{AttemptEnd, AttemptKey, Event, JobOutcome};
use failures::{Failure, Failures, Reason};
pub(crate) use live::LivePage;

/// Attempts that are listed and drawn one by one.
const MOST_ATTEMPTS: usize = 2_000;

/// Failed jobs that are shown with their last lines.
const MOST_FAILURES: usize = 200;

/// Skipped jobs that are shown.
const MOST_SKIPPED: usize = 100;

// The model of a page: a bounded part of all events.

/// Columns of a command that the page has.
const MOST_COMMAND_COLUMNS: usize = 300;

/// Columns of a line that the page has.
const MOST_LINE_COLUMNS: usize = 300;

/// Notes that the page has.
const MOST_NOTES: usize = 20;

/// The model of a page about a batch.
#[derive(Debug, Clone)]
pub(crate) struct PageModel {
    facts: BatchFacts,
    counts: OutcomeCounts,
    resumed: u64,
    total: Option<u64>,
    halted: Option<String>,
    notes: Vec<String>,
    /// The number of notes that are left out.
    other_notes: u64,
    kept: Kept,
    busy: Busy,
    histogram: Histogram,
    /// The durations of all attempts.
    durations: Durations,
    failures: Failures,
    running: HashMap<AttemptKey, Running>,
    /// The time of the last event, in seconds from the start.
    end_seconds: f64,
    /// The batch has not ended.
    runs: bool,
    /// The file is written again while the batch runs.
    is_live: bool,
    rate: Rate,
    /// The start of the batch for the rate.
    began: Instant,
    /// The jobs that were over before the run began whose rate it is.
    before: u64,
}

/// An attempt that runs.
#[derive(Debug, Clone)]
struct Running {
    slot: u32,
    start_seconds: f64,
    command: String,
}

/// The state of a batch that runs.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Ahead {
    running: usize,
    /// Jobs that have not begun. `None`: the input has not ended.
    left: Option<u64>,
    /// The time until the end, if it goes on as it did.
    seconds: Option<f64>,
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
    is_running: bool,
    running: usize,
    left: Option<u64>,
    left_seconds: Option<f64>,
    halted: Option<&'a str>,
    resumed: u64,
    total: Option<u64>,
    states: BTreeMap<&'static str, u64>,
    failures: Vec<&'a Failure>,
    reasons: &'a [Reason],
    other_reasons: u64,
    attempts: Vec<&'a KeptAttempt>,
    other_attempts: u64,
    busy: &'a Busy,
    durations: &'a Histogram,
    median_seconds: Option<f64>,
    notes: &'a [String],
    other_notes: u64,
}

impl PageModel {
    /// Returns the model of a batch that begins.
    pub(crate) fn new(facts: BatchFacts) -> PageModel {
        let began = Instant::now();
        PageModel {
            facts,
            counts: OutcomeCounts::default(),
            resumed: 0,
            total: None,
            halted: None,
            notes: Vec::new(),
            other_notes: 0,
            kept: Kept::new(MOST_ATTEMPTS),
            busy: Busy::default(),
            histogram: Histogram::default(),
            durations: Durations::default(),
            failures: Failures::default(),
            running: HashMap::new(),
            end_seconds: 0.0,
            runs: true,
            is_live: false,
            rate: Rate::new(began),
            began,
            before: 0,
        }
    }

    /// Takes note of the number of all jobs, if it is known.
    pub(crate) fn added(&mut self, total: Option<u64>) {
        self.total = total.or(self.total);
    }

    /// Takes note of an event.
    pub(crate) fn event(&mut self, event: &Event, now: SystemTime) {
        self.lasts_until(now);
        match event {
            Event::InputEnded { jobs } => self.total = Some(*jobs),
            Event::Started { key, slot, command, name } => {
                self.started(*key, *slot, &named(command, name.as_deref()), now);
            }
            Event::Ended { end, command, last_lines, name } => {
                let slot = self.running.remove(&end.key).map_or(0, |running| running.slot);
                let text = named(command, name.as_deref());
                self.ended(end.key.job, end, slot, &text, last_lines);
            }
            Event::Settled { before: true, .. } => self.resumed += 1,
            Event::Settled { job, name, command, outcome, reason, .. } => {
                let text = named(command.as_deref().unwrap_or(""), name.as_deref());
                self.settled(*job, *job, &text, *outcome, reason.as_deref());
            }
            Event::Halted(halt) => self.halted = Some(halt.to_string()),
            Event::Capacity { slots } => self.facts.slots = self.facts.slots.max(*slots),
            Event::Note(text) => self.note(text),
            Event::Retrying { .. } | Event::Held { .. } => {}
        }
    }

    /// Takes note that the batch was not over before that time.
    pub(crate) fn lasts_until(&mut self, now: SystemTime) {
        self.end_seconds = self.end_seconds.max(self.since_start(now));
    }

    /// Takes note of an attempt that runs since that time.
    pub(crate) fn started(&mut self, key: AttemptKey, slot: u32, text: &str, since: SystemTime) {
        let (start_seconds, command) = (self.since_start(since), line(text, MOST_COMMAND_COLUMNS));
        self.running.insert(key, Running { slot, start_seconds, command });
    }

    /// Takes note of a message.
    pub(crate) fn note(&mut self, text: &str) {
        if self.notes.len() < MOST_NOTES {
            self.notes.push(line(text, MOST_LINE_COLUMNS));
        } else {
            self.other_notes += 1;
        }
    }

    fn since_start(&self, time: SystemTime) -> f64 {
        time.duration_since(self.facts.started).map_or(0.0, |since| since.as_secs_f64())
    }

    /// Takes note of the end of an attempt of the job with that key. Slot 0 is unknown.
    pub(crate) fn ended(
        &mut self,
        key: u64,
        end: &AttemptEnd,
        slot: u32,
        text: &str,
        last_lines: &str,
    ) {
        let AttemptKey { job, attempt } = end.key;
        let start_seconds = self.since_start(end.started);
        let elapsed_seconds = end.elapsed.as_secs_f64();
        self.end_seconds = self.end_seconds.max(start_seconds + elapsed_seconds);
        self.histogram.add(elapsed_seconds);
        self.busy.add(start_seconds, elapsed_seconds);
        let command = line(text, MOST_COMMAND_COLUMNS);
        let words = outcome(&end.outcome);
        let is_success = end.outcome.is_success();
        self.durations.push(elapsed_seconds as f32);
        if !is_success {
            let texts = (text, last_lines);
            self.failures.ended(key, (job, attempt), &words, elapsed_seconds, texts);
        }
        self.kept.add(KeptAttempt {
            job,
            attempt,
            slot,
            outcome: end.outcome.name(),
            end: words,
            is_success,
            start_seconds,
            elapsed_seconds,
            command,
        });
    }

    /// Takes note of the end of the job with that key. `text` is what is known of one that has not run.
    pub(crate) fn settled(
        &mut self,
        key: u64,
        job: u64,
        text: &str,
        outcome: JobOutcome,
        reason: Option<&str>,
    ) {
        self.counts.add(outcome);
        self.rate.record(self.now(), self.counts.all());
        match outcome {
            // It may have failed before, and was tried again.
            JobOutcome::Succeeded | JobOutcome::NotRun => self.failures.forget(key),
            _ => self.failures.settled(key, job, text, outcome, reason),
        }
    }

    /// Takes note that a run goes on since that time, and that so many jobs were over before.
    pub(crate) fn runs_since(&mut self, started: SystemTime, before: u64) {
        self.rate = Rate::new(self.instant(self.since_start(started)));
        self.before = before;
    }

    /// Returns the time of the last update for the rate.
    fn now(&self) -> Instant {
        self.instant(self.end_seconds)
    }

    fn instant(&self, after_seconds: f64) -> Instant {
        let since = Duration::try_from_secs_f64(after_seconds).unwrap_or_default();
        self.began.checked_add(since).unwrap_or(self.began)
    }

    /// Takes note of the end of the batch. Until then, the page is about one that runs.
    pub(crate) fn is_over(&mut self) {
        self.runs = false;
    }

    /// Takes note of a batch that ends without an end.
    fn give_up(&mut self) {
        self.runs = false;
        self.halted.get_or_insert_with(|| "it was given up".to_owned());
    }

    /// Returns what is ahead of a batch that runs.
    fn ahead(&self) -> Option<Ahead> {
        if !self.runs {
            return None;
        }
        let done = self.resumed + self.counts.all();
        let ended = self.counts.all().saturating_sub(self.before);
        let not_over = self.total.map(|total| total.saturating_sub(done));
        let left = not_over.map(|jobs| jobs.saturating_sub(self.running.len() as u64));
        let time = not_over.and_then(|jobs| self.rate.left(self.now(), ended, jobs));
        let seconds = time.map(|time| time.as_secs_f64());
        Some(Ahead { running: self.running.len(), left, seconds })
    }

    /// Returns the median of the durations. Sorts all of them, more or less.
    fn median(&self) -> Option<f64> {
        let mut durations = self.durations.all();
        let middle = durations.len() / 2;
        let is_even = durations.len() % 2 == 0;
        let (below, upper, _) = durations
            .get(middle)
            .is_some()
            .then(|| durations.select_nth_unstable_by(middle, f32::total_cmp))?;
        let lower = below.iter().copied().max_by(f32::total_cmp).filter(|_| is_even);
        Some((f64::from(lower.unwrap_or(*upper)) + f64::from(*upper)) / 2.0)
    }

    /// Returns the page.
    pub(crate) fn html(&self) -> String {
        html::page(self)
    }

    /// Returns the data of the page. The median is that of all attempts.
    fn json(&self, median_seconds: Option<f64>) -> String {
        let states = JobOutcome::ALL.map(|outcome| (outcome.name(), self.counts.of(outcome)));
        let ahead = self.ahead();
        let data = Data {
            is_running: self.runs,
            running: self.running.len(),
            left: ahead.and_then(|ahead| ahead.left),
            left_seconds: ahead.and_then(|ahead| ahead.seconds),
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
            failures: self.failures.kept().collect(),
            reasons: &self.failures.reasons,
            other_reasons: self.failures.of_other_reasons,
            attempts: self.kept.sorted(),
            other_attempts: self.kept.others,
            busy: &self.busy,
            durations: &self.histogram,
            median_seconds,
            notes: &self.notes,
            other_notes: self.other_notes,
        };
        // It has string keys and finite numbers only, so this does not fail.
        serde_json::to_string(&data).unwrap_or_default()
    }
}

// The attempts that a page shows one by one: failed ones before others, and long ones before short ones.

/// The facts of an attempt that the page shows.
#[derive(Debug, Clone, PartialEq, Serialize)]
struct KeptAttempt {
    job: u64,
    attempt: u32,
    /// 0: unknown.
    slot: u32,
    /// The word of its outcome.
    outcome: &'static str,
    /// Its end in words.
    end: String,
    is_success: bool,
    /// Seconds from the start of the batch.
    start_seconds: f64,
    elapsed_seconds: f64,
    command: String,
}

/// The order in which attempts are kept.
#[derive(Debug, Clone)]
struct Ranked(KeptAttempt);

impl Ranked {
    fn order(&self, other: &Ranked) -> Ordering {
        let (one, other) = (&self.0, &other.0);
        // Of equal ones the first is kept.
        (other.is_success.cmp(&one.is_success))
            .then(one.elapsed_seconds.total_cmp(&other.elapsed_seconds))
            .then(other.job.cmp(&one.job))
            .then(other.attempt.cmp(&one.attempt))
    }
}

impl PartialEq for Ranked {
    fn eq(&self, other: &Ranked) -> bool {
        self.order(other) == Ordering::Equal
    }
}

impl Eq for Ranked {}

impl PartialOrd for Ranked {
    fn partial_cmp(&self, other: &Ranked) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Ranked {
    fn cmp(&self, other: &Ranked) -> Ordering {
        self.order(other)
    }
}

/// A bounded number of attempts.
#[derive(Debug, Clone)]
struct Kept {
    most: usize,
    /// The one that goes next is at the top.
    heap: BinaryHeap<Reverse<Ranked>>,
    /// The number of attempts that are not kept.
    others: u64,
}

impl Kept {
    fn new(most: usize) -> Kept {
        Kept { most, heap: BinaryHeap::new(), others: 0 }
    }

    fn add(&mut self, attempt: KeptAttempt) {
        self.heap.push(Reverse(Ranked(attempt)));
        if self.heap.len() > self.most {
            self.heap.pop();
            self.others += 1;
        }
    }

    /// Returns the attempts: failed ones first, and then in the order of their start.
    fn sorted(&self) -> Vec<&KeptAttempt> {
        let mut all: Vec<_> = self.heap.iter().map(|Reverse(Ranked(attempt))| attempt).collect();
        all.sort_by(|one, other| {
            (one.is_success.cmp(&other.is_success))
                .then(one.start_seconds.total_cmp(&other.start_seconds))
                .then((one.job, one.attempt).cmp(&(other.job, other.attempt)))
        });
        all
    }
}

// The durations of all attempts, of which a copy is cheap: the driver waits for one while a page is made.

/// Durations that are copied together.
const MOST_NEW: usize = 4_096;

/// Durations in seconds.
#[derive(Debug, Clone, Default)]
struct Durations {
    /// Shared by all copies.
    full: Vec<Arc<[f32]>>,
    new: Vec<f32>,
}

impl Durations {
    fn push(&mut self, seconds: f32) {
        self.new.push(seconds);
        if self.new.len() == MOST_NEW {
            self.full.push(std::mem::take(&mut self.new).into());
        }
    }

    fn all(&self) -> Vec<f32> {
        let full = self.full.iter().flat_map(|part| part.iter());
        full.chain(&self.new).copied().collect()
    }
}

// The number of jobs at one time, over the whole batch, in a bounded number of intervals.

/// The number of intervals. Two of them become one when the batch takes longer.
const INTERVALS: usize = 240;

/// The length of an interval at first.
const FIRST_SECONDS: f64 = 0.005;

/// Busy time in equal intervals from the start of the batch.
#[derive(Debug, Clone, PartialEq, Serialize)]
struct Busy {
    /// The length of an interval.
    interval_seconds: f64,
    /// The sum of the times that attempts ran in each interval.
    busy_seconds: Vec<f64>,
}

impl Default for Busy {
    fn default() -> Busy {
        Busy { interval_seconds: FIRST_SECONDS, busy_seconds: Vec::new() }
    }
}

impl Busy {
    /// Adds an attempt that ran in that time. Nothing is added for a time that is not finite or not positive.
    fn add(&mut self, start: f64, seconds: f64) {
        let end = start + seconds;
        if !(start >= 0.0 && end > start && end.is_finite()) {
            return;
        }
        while end > self.interval_seconds * INTERVALS as f64 {
            self.halve();
        }
        // At most the number of intervals, by the loop above.
        let first = (start / self.interval_seconds) as usize;
        let last = ((end / self.interval_seconds) as usize).min(INTERVALS - 1);
        if self.busy_seconds.len() <= last {
            self.busy_seconds.resize(last + 1, 0.0);
        }
        for (index, busy) in self.busy_seconds.iter_mut().enumerate().take(last + 1).skip(first) {
            let from = index as f64 * self.interval_seconds;
            *busy += (end.min(from + self.interval_seconds) - start.max(from)).max(0.0);
        }
    }

    fn halve(&mut self) {
        self.interval_seconds *= 2.0;
        self.busy_seconds = self.busy_seconds.chunks(2).map(|pair| pair.iter().sum()).collect();
    }

    /// Returns the mean number of jobs at one time, for each interval with its start.
    fn levels(&self) -> impl Iterator<Item = (f64, f64)> {
        let interval = self.interval_seconds;
        let busy = self.busy_seconds.iter().enumerate();
        busy.map(move |(index, busy)| (index as f64 * interval, busy / interval))
    }
}

// A histogram of the durations of all attempts, in steps of 1, 2 and 5.

/// The steps of a decade.
const STEPS: [u64; 3] = [1, 2, 5];

/// The decades, from one millisecond on.
const DECADES: u32 = 9;

/// The numbers of attempts by their duration.
#[derive(Debug, Clone, PartialEq, Serialize)]
struct Histogram {
    /// The number of attempts in each interval. The first one starts at 0.
    counts: Vec<u64>,
    total: u64,
    sum_seconds: f64,
    most_seconds: f64,
}

/// An interval, and the number of attempts in it.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Interval {
    from: f64,
    /// `None`: without end.
    to: Option<f64>,
    count: u64,
}

impl Default for Histogram {
    fn default() -> Histogram {
        Histogram {
            counts: vec![0; edges().count()],
            total: 0,
            sum_seconds: 0.0,
            most_seconds: 0.0,
        }
    }
}

/// Returns the start of each interval.
fn edges() -> impl Iterator<Item = f64> {
    // In whole milliseconds: powers of 10.0 differ by a bit between systems.
    let millis = (0..DECADES).flat_map(|decade| STEPS.map(|step| step * 10_u64.pow(decade)));
    let decades = millis.map(|millis| millis as f64 / 1e3);
    std::iter::once(0.0).chain(decades)
}

impl Histogram {
    fn add(&mut self, seconds: f64) {
        let place = edges().take_while(|edge| *edge <= seconds).count().saturating_sub(1);
        if let Some(count) = self.counts.get_mut(place) {
            *count += 1;
        }
        self.total += 1;
        self.sum_seconds += seconds;
        self.most_seconds = self.most_seconds.max(seconds);
    }

    /// Returns the intervals from the first with an attempt to the last, and a few around them if those are few.
    fn used(&self) -> Vec<Interval> {
        const LEAST: usize = 9;
        let is_used = |count: &u64| *count > 0;
        let Some(first) = self.counts.iter().position(is_used) else { return Vec::new() };
        let last = self.counts.iter().rposition(is_used).unwrap_or(first);
        let more = LEAST.saturating_sub(last + 1 - first);
        let end = (last + 1 + more.div_ceil(2)).min(self.counts.len());
        let first = first.min(end.saturating_sub(LEAST).max(first.saturating_sub(more)));
        let edges: Vec<f64> = edges().collect();
        let interval = |(place, count): (usize, &u64)| {
            let from = edges.get(place).copied().unwrap_or_default();
            Interval { from, to: edges.get(place + 1).copied(), count: *count }
        };
        self.counts.iter().enumerate().take(end).skip(first).map(interval).collect()
    }
}

#[cfg(test)]
mod tests;
