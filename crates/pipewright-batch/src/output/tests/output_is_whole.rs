//! The output is whole in every mode, for any order of the calls and any limit of the memory: compared with a model.

use std::collections::{BTreeMap, BTreeSet};

use pipewright::Source;
use proptest::prelude::*;

use super::*;

/// The attempts of a job, with what each writes.
#[derive(Debug, Clone)]
struct Script {
    attempts: Vec<Vec<(Source, Vec<u8>)>>,
}

#[derive(Debug, Clone)]
enum Step {
    Begin,
    Write(Source, Vec<u8>),
    Finish { keep: bool },
    Settle,
}

impl Script {
    fn steps(&self) -> Vec<Step> {
        let mut steps = Vec::new();
        for (index, writes) in self.attempts.iter().enumerate() {
            steps.push(Step::Begin);
            steps.extend(writes.iter().map(|(to, bytes)| Step::Write(*to, bytes.clone())));
            steps.push(Step::Finish { keep: index + 1 == self.attempts.len() });
        }
        steps.push(Step::Settle);
        steps
    }
}

/// The same output, with everything in memory.
struct Model {
    options: OutputOptions,
    printed: [Vec<u8>; 2],
    running: BTreeMap<u64, ModelAttempt>,
    kept: BTreeMap<u64, [Vec<u8>; 2]>,
    settled: BTreeSet<u64>,
}

#[derive(Default)]
struct ModelAttempt {
    live: bool,
    bytes: [u64; 2],
    /// Tagged output that is not printed.
    stored: [Vec<u8>; 2],
    /// The last byte of each stream.
    last: [Option<u8>; 2],
}

impl Model {
    fn next(&self) -> u64 {
        (1..).find(|job| !self.settled.contains(job)).unwrap()
    }

    fn is_by_line(&self) -> bool {
        self.options.mode == OutputMode::LineBuffer
    }

    /// Prints the complete lines of a live attempt.
    fn print_lines(&mut self, job: u64) {
        let attempt = self.running.get_mut(&job).unwrap();
        for (stored, printed) in attempt.stored.iter_mut().zip(&mut self.printed) {
            let end = stored.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
            printed.extend(stored.drain(..end));
        }
    }

    fn apply(&mut self, job: u64, step: &Step) {
        match step {
            Step::Begin => {
                let live = self.is_by_line() && (!self.options.keep_order || self.next() == job);
                self.running.insert(job, ModelAttempt { live, ..ModelAttempt::default() });
            }
            Step::Write(to, bytes) => {
                let attempt = self.running.get_mut(&job).unwrap();
                let index = *to as usize;
                for byte in bytes {
                    attempt.bytes[index] += 1;
                    if attempt.bytes[index] > self.options.max_bytes.unwrap_or(u64::MAX)
                        || self.options.mode == OutputMode::Discard
                    {
                        continue;
                    }
                    if self.options.tag && matches!(attempt.last[index], None | Some(b'\n')) {
                        attempt.stored[index].extend(format!("t{job}\t").into_bytes());
                    }
                    attempt.stored[index].push(*byte);
                    attempt.last[index] = Some(*byte);
                }
                if attempt.live {
                    self.print_lines(job);
                }
            }
            Step::Finish { keep } => {
                let ends_lines = self.is_by_line() || self.options.tag;
                let attempt = self.running.get_mut(&job).unwrap();
                for (stored, last) in attempt.stored.iter_mut().zip(attempt.last) {
                    if ends_lines && !matches!(last, None | Some(b'\n')) {
                        stored.push(b'\n');
                    }
                }
                if attempt.live {
                    self.print_lines(job);
                }
                let attempt = self.running.remove(&job).unwrap();
                if *keep {
                    self.kept.insert(job, attempt.stored);
                }
            }
            Step::Settle => {
                self.settled.insert(job);
                if !self.options.keep_order {
                    return self.print_kept(job);
                }
                let next = self.next();
                for job in 1..next {
                    self.print_kept(job);
                }
                if self.is_by_line() && self.running.contains_key(&next) {
                    self.running.get_mut(&next).unwrap().live = true;
                    self.print_lines(next);
                }
            }
        }
    }

    fn print_kept(&mut self, job: u64) {
        for (stored, printed) in self.kept.remove(&job).into_iter().flatten().zip(&mut self.printed)
        {
            printed.extend(stored);
        }
    }
}

fn bytes() -> impl Strategy<Value = Vec<u8>> {
    let small = proptest::collection::vec(prop_oneof![Just(b'\n'), Just(b'a'), any::<u8>()], 0..40);
    let large = (1_usize..70_000, 1_usize..9000, any::<u8>()).prop_map(|(length, line, byte)| {
        let at = |at| if at % line == 0 { b'\n' } else { byte.wrapping_add(at as u8) };
        (0..length).map(at).collect()
    });
    prop_oneof![8 => small, 1 => large]
}

fn script() -> impl Strategy<Value = Script> {
    let stream = prop_oneof![Just(Source::Stdout), Just(Source::Stderr)];
    let writes = proptest::collection::vec((stream, bytes()), 0..8);
    proptest::collection::vec(writes, 0..4).prop_map(|attempts| Script { attempts })
}

fn any_options() -> impl Strategy<Value = OutputOptions> {
    let mode = prop_oneof![
        3 => Just(OutputMode::Group),
        3 => Just(OutputMode::LineBuffer),
        1 => Just(OutputMode::Discard),
    ];
    let max_bytes = prop_oneof![3 => Just(None), 1 => (0_u64..100).prop_map(Some)];
    let memory = prop_oneof![Just(0), Just(300), Just(100_000), Just(24 << 20)];
    (mode, any::<bool>(), any::<bool>(), max_bytes, memory).prop_map(
        |(mode, keep_order, tag, max_bytes, memory_bytes)| OutputOptions {
            keep_order,
            tag,
            max_bytes,
            memory_bytes,
            ..options(mode)
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn every_mode_prints_what_the_model_prints(
        options in any_options(),
        scripts in proptest::collection::vec(script(), 1..8),
        picks in proptest::collection::vec(any::<prop::sample::Index>(), 300),
    ) {
        let mut batch = Batch::new(options.clone());
        let mut model = Model {
            options: options.clone(),
            printed: Default::default(),
            running: BTreeMap::new(),
            kept: BTreeMap::new(),
            settled: BTreeSet::new(),
        };
        let mut steps: BTreeMap<u64, Vec<Step>> = BTreeMap::new();
        for (index, script) in scripts.iter().enumerate() {
            steps.insert(index as u64 + 1, script.steps().into_iter().rev().collect());
        }
        let mut attempts = BTreeMap::new();
        let mut picks = picks.into_iter().cycle();
        while !steps.is_empty() {
            let at = picks.next().unwrap().index(steps.len());
            let job = *steps.keys().nth(at).unwrap();
            let Some(step) = steps.get_mut(&job).unwrap().pop() else {
                steps.remove(&job);
                continue;
            };
            match &step {
                Step::Begin => {
                    let attempt = attempts.entry(job).or_insert(0);
                    *attempt += 1;
                    batch.begin_as(key(job, *attempt), info(job));
                }
                Step::Write(to, bytes) => batch.write(job, *to, bytes),
                Step::Finish { keep } => {
                    let expected = model.running[&job].bytes;
                    let summary = batch.finish(job, *keep);
                    prop_assert_eq!([summary.stdout_bytes, summary.stderr_bytes], expected);
                    let most = options.max_bytes.unwrap_or(u64::MAX);
                    prop_assert_eq!(summary.truncated, expected.iter().any(|bytes| *bytes > most));
                    prop_assert!(summary.error.is_none());
                }
                Step::Settle => batch.output.settle(job),
            }
            model.apply(job, &step);
        }
        let limit = options.memory_bytes + 100;
        prop_assert!(batch.output.peak_memory_bytes() <= limit);
        let spool = std::sync::Arc::clone(&batch.output.shared.spool);
        let (out, err) = batch.close();
        prop_assert!(out == model.printed[0], "{:?}\n{:?}", show(&out), show(&model.printed[0]));
        prop_assert!(err == model.printed[1], "{:?}\n{:?}", show(&err), show(&model.printed[1]));
        prop_assert_eq!(spool.used_blocks(), 0, "every block is free again");
    }
}

fn show(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes.get(..bytes.len().min(500)).unwrap()).into_owned()
}

#[test]
fn what_was_not_finished_or_settled_is_printed_by_close() {
    for keep_order in [false, true] {
        let mut batch = Batch::new(OutputOptions { keep_order, ..options(OutputMode::Group) });
        batch.begin(1);
        batch.out(1, "killed");
        batch.begin(2);
        batch.out(2, " finished");
        batch.finish(2, true);
        assert_eq!(batch.close_to_text().0, "killed finished");
    }
}

#[test]
fn both_streams_of_a_job_go_to_ours_of_the_same_name() {
    let mut batch = Batch::new(options(OutputMode::Group));
    batch.begin(1);
    batch.err(1, "err 1\n");
    batch.out(1, "out 1\n");
    batch.err(1, "err 2\n");
    let summary = batch.end(1);
    assert_eq!((summary.stdout_bytes, summary.stderr_bytes), (6, 12));
    assert_eq!(summary.tail, "err 1\nerr 2");
    assert_eq!(batch.close_to_text(), ("out 1\n".to_owned(), "err 1\nerr 2\n".to_owned()));
}

#[test]
fn an_attempt_that_is_retried_is_not_printed() {
    let mut batch = Batch::new(options(OutputMode::Group));
    batch.begin(1);
    batch.out(1, "first");
    assert_eq!(batch.finish(1, false).tail, "first");
    batch.begin_as(key(1, 2), info(1));
    batch.out(1, "second");
    batch.end(1);
    assert_eq!(batch.close_to_text().0, "second");
}

#[test]
fn a_kept_attempt_is_not_printed_if_the_job_runs_again() {
    let mut batch = Batch::new(options(OutputMode::Group));
    batch.begin(1);
    batch.out(1, "kept, then lost");
    batch.finish(1, true);
    batch.begin_as(key(1, 2), info(1));
    batch.out(1, "cancelled");
    batch.finish(1, false);
    batch.output.settle(1);
    assert_eq!(batch.close_to_text().0, "");
}

#[test]
fn a_sink_that_writes_after_the_end_is_ignored() {
    for mode in [OutputMode::Group, OutputMode::LineBuffer] {
        let mut batch = Batch::new(options(mode));
        let mut sink = batch.output.begin(key(1, 1), info(1));
        sink.write(Source::Stdout, b"in time\n");
        batch.output.finish(&end_of(key(1, 1)), true);
        sink.write(Source::Stdout, b"late\n");
        batch.output.settle(1);
        assert_eq!(batch.close_to_text().0, "in time\n");
    }
}

#[test]
fn discarded_output_still_counts_and_has_a_tail() {
    let mut batch = Batch::new(options(OutputMode::Discard));
    let summary = batch.run(1, "one\ntwo\n");
    assert_eq!((summary.stdout_bytes, summary.tail.as_str()), (8, "one\ntwo"));
    assert_eq!(batch.close_to_text(), (String::new(), String::new()));
}
