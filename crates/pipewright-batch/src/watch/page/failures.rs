//! The jobs of a page that are not ok: the first of them with their last lines, and all of them counted by reason.
//!
//! A batch with a thousand failures has few reasons. Jobs have the same reason if they ended in the same way, and if
//! the last line of their output is the same apart from numbers and from the words of their commands.

use std::collections::{BTreeMap, HashMap};

use serde::Serialize;

use super::{MOST_FAILURES, MOST_LINE_COLUMNS, MOST_SKIPPED};
use crate::vocabulary::JobOutcome;
use crate::watch::text::line;

/// Columns of the command of a job that is not ok: it is shown whole.
pub(super) const MOST_WHOLE_COLUMNS: usize = 2_000;

/// Lines of output that a failed job has.
const MOST_LAST_LINES: usize = 20;

/// Reasons that are told apart.
pub(super) const MOST_REASONS: usize = 200;

/// Words of a command that may stand in its last line.
const MOST_WORDS: usize = 64;

/// A job that is not ok.
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
    /// The place of its reason among all reasons.
    #[serde(skip)]
    pub(super) place: Option<usize>,
}

/// A reason, and the jobs that have it.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct Reason {
    pub(super) state: JobOutcome,
    /// The end in words, or the cause.
    pub(super) reason: String,
    /// The last line of the first of them.
    pub(super) last_line: String,
    pub(super) jobs: u64,
    pub(super) first_job: u64,
}

/// An attempt that has ended, of a job that is not over.
#[derive(Debug, Clone)]
struct LastEnd {
    words: String,
    last_line: String,
    /// The last line without what differs between two jobs.
    pattern: String,
}

/// All jobs that are not ok.
///
/// A job has a key beside its number, which two jobs of a log may have: the input was edited.
#[derive(Debug, Clone, Default)]
pub(super) struct Failures {
    kept: BTreeMap<u64, Failure>,
    /// Those that are skipped leave room for the others.
    skipped: BTreeMap<u64, Failure>,
    pub(super) reasons: Vec<Reason>,
    /// The number of jobs that have none of those reasons.
    pub(super) of_other_reasons: u64,
    places: HashMap<(JobOutcome, String, String), usize>,
    /// The failed attempts of jobs that are not over.
    ends: HashMap<u64, LastEnd>,
}

impl Failures {
    pub(super) fn kept(&self) -> impl Iterator<Item = &Failure> {
        self.kept.values().chain(self.skipped.values())
    }

    /// Takes note of an attempt that did not succeed. `words` says how it ended.
    pub(super) fn ended(
        &mut self,
        key: u64,
        (job, attempts): (u64, u32),
        words: &str,
        elapsed_seconds: f64,
        (text, last_lines): (&str, &str),
    ) {
        let last_line = last_lines.lines().rev().find(|line| !line.trim().is_empty());
        let last_line = line(last_line.unwrap_or_default().trim(), MOST_LINE_COLUMNS);
        let pattern = pattern(&last_line, text);
        self.ends.insert(key, LastEnd { words: words.to_owned(), last_line, pattern });
        if !has_room(&self.kept, key, MOST_FAILURES) {
            return;
        }
        let failure = Failure {
            job,
            attempts,
            state: None,
            end: Some(words.to_owned()),
            elapsed_seconds: Some(elapsed_seconds),
            command: Some(line(text, MOST_WHOLE_COLUMNS)),
            reason: None,
            last_lines: bounded_lines(last_lines),
            place: None,
        };
        self.kept.insert(key, failure);
    }

    /// Takes note of a job that is ok at last, or that nobody has to look at.
    pub(super) fn forget(&mut self, key: u64) {
        self.ends.remove(&key);
        self.kept.remove(&key);
        self.skipped.remove(&key);
    }

    /// Takes note of a job that is over and not ok. `text` is what is known of a job that has not run.
    pub(super) fn settled(
        &mut self,
        key: u64,
        job: u64,
        text: &str,
        outcome: JobOutcome,
        reason: Option<&str>,
    ) {
        let end = self.ends.remove(&key);
        let is_skipped = outcome == JobOutcome::Skipped;
        let (words, last_line, pattern) = match end.filter(|_| !is_skipped) {
            Some(LastEnd { words, last_line, pattern }) => (words, last_line, pattern),
            None => {
                (line(reason.unwrap_or_default(), MOST_LINE_COLUMNS), String::new(), String::new())
            }
        };
        let place = self.count(job, outcome, words, last_line, pattern);
        let (kept, most) = match is_skipped {
            true => {
                self.kept.remove(&key);
                (&mut self.skipped, MOST_SKIPPED)
            }
            false => (&mut self.kept, MOST_FAILURES),
        };
        if !has_room(kept, key, most) {
            return;
        }
        let failure = kept.entry(key).or_insert_with(|| Failure {
            job,
            attempts: 0,
            state: None,
            end: None,
            elapsed_seconds: None,
            command: Some(line(text, MOST_WHOLE_COLUMNS)).filter(|text| !text.is_empty()),
            reason: None,
            last_lines: String::new(),
            place: None,
        });
        (failure.state, failure.place) = (Some(outcome), place);
        failure.reason = reason.map(|reason| line(reason, MOST_LINE_COLUMNS));
    }

    /// Counts a job for its reason, and returns the place of that. `None`: there are too many.
    fn count(
        &mut self,
        job: u64,
        state: JobOutcome,
        reason: String,
        last_line: String,
        pattern: String,
    ) -> Option<usize> {
        let key = (state, reason, pattern);
        let place = match self.places.get(&key) {
            Some(place) => *place,
            None if self.reasons.len() >= MOST_REASONS => {
                self.of_other_reasons += 1;
                return None;
            }
            None => {
                let reason = key.1.clone();
                self.reasons.push(Reason { state, reason, last_line, jobs: 0, first_job: job });
                self.places.insert(key, self.reasons.len() - 1);
                self.reasons.len() - 1
            }
        };
        self.reasons.get_mut(place)?.jobs += 1;
        Some(place)
    }
}

/// Returns true if the job can be kept.
fn has_room(kept: &BTreeMap<u64, Failure>, key: u64, most: usize) -> bool {
    kept.len() < most || kept.contains_key(&key)
}

/// Returns the last lines, each on one bounded line.
fn bounded_lines(text: &str) -> String {
    let mut lines: Vec<&str> = text.trim_end().rsplit('\n').take(MOST_LAST_LINES).collect();
    lines.reverse();
    let lines: Vec<String> = lines.into_iter().map(|text| line(text, MOST_LINE_COLUMNS)).collect();
    lines.join("\n")
}

/// Returns a line without the words of that command, and without its numbers.
fn pattern(text: &str, command: &str) -> String {
    let is_quote = |character: char| matches!(character, '\'' | '"' | '\\');
    let words = command.split_whitespace().skip(1).take(MOST_WORDS);
    let mut words: Vec<&str> = words.map(|word| word.trim_matches(is_quote)).collect();
    words.retain(|word| word.len() > 1 && !word.starts_with('-'));
    // A word that is a part of another one would leave the rest of that.
    words.sort_by_key(|word| std::cmp::Reverse(word.len()));
    let text = words.iter().fold(text.to_owned(), |text, word| text.replace(word, "…"));
    let mut pattern = String::with_capacity(text.len());
    for character in text.chars() {
        match character.is_ascii_digit() {
            true if pattern.ends_with('0') => {}
            true => pattern.push('0'),
            false => pattern.push(character),
        }
    }
    pattern
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_has_neither_numbers_nor_the_words_of_the_command() {
        let pattern = |text: &str, command: &str| super::pattern(text, command);
        let one = pattern("gzip: d.log: No such file", "gzip -k d.log");
        assert_eq!(one, pattern("gzip: other.log: No such file", "gzip -k 'other.log'"));
        assert_eq!(one, "gzip: …: No such file");
        assert_eq!(pattern("line 12 of 300", "x"), pattern("line 7 of 4", "x"));
        assert_ne!(pattern("no space", "x"), pattern("no file", "x"));
        assert_eq!(pattern("", ""), "");
    }

    #[test]
    fn jobs_are_counted_by_reason_and_skipped_ones_leave_room() {
        let mut failures = Failures::default();
        for job in 1..=1_000 {
            let text = format!("convert {job}.png");
            let said = format!("reading\nconvert: {job}.png: broken\n\n");
            failures.ended(job, (job, 1), "exit 1", 0.5, (&text, &said));
            failures.settled(job, job, "", JobOutcome::Failed, Some("exit code 1"));
            let cause = Some("job 1 did not succeed");
            failures.settled(2_000 + job, 2_000 + job, "echo", JobOutcome::Skipped, cause);
        }
        failures.ended(1_001, (1_001, 2), "SIGSEGV", 0.5, ("x", ""));
        failures.settled(1_001, 1_001, "", JobOutcome::Failed, None);
        // One that is tried again, and succeeds.
        failures.ended(1_002, (1_002, 1), "exit 1", 0.5, ("x", ""));
        failures.forget(1_002);
        let reasons: Vec<_> = failures.reasons.iter().map(|it| (it.jobs, it.first_job)).collect();
        assert_eq!(reasons, [(1_000, 1), (1_000, 2_001), (1, 1_001)]);
        assert_eq!(failures.reasons[0].last_line, "convert: 1.png: broken");
        assert_eq!(failures.reasons[1].reason, "job 1 did not succeed");
        assert_eq!(failures.kept().count(), MOST_FAILURES + MOST_SKIPPED);
        assert_eq!(failures.ends.len(), 0);
    }

    #[test]
    fn two_jobs_with_one_number_are_two() {
        let mut failures = Failures::default();
        let cause = Some("job 1 did not succeed");
        // Skipped ones of an earlier input, and what has their numbers now.
        for job in 2..=4 {
            failures.settled(job, job, "old", JobOutcome::Skipped, cause);
        }
        for job in 2..=4 {
            failures.ended(10 + job, (job, 1), "exit 1", 0.5, ("new", "bad"));
            failures.settled(10 + job, job, "new", JobOutcome::Failed, None);
        }
        failures.forget(12);
        let kept = |state| failures.kept().filter(|it| it.state == Some(state)).count();
        assert_eq!((kept(JobOutcome::Failed), kept(JobOutcome::Skipped)), (2, 3));
        // A job that was skipped, and is skipped again or runs now, is one.
        failures.settled(2, 2, "old", JobOutcome::Skipped, cause);
        failures.forget(2);
        assert_eq!(failures.kept().count(), 4);
    }
}
