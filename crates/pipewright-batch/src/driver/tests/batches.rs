//! A driver with jobs whose memory is short, with jobs that wait for a place, and with random ones.

use std::collections::VecDeque;
use std::io;
use std::path::PathBuf;

use proptest::prelude::*;

use super::*;
use crate::batch::Run;
use crate::executor::{Attempt, Executor, ExecutorEvent, MachineMemory};
use crate::vocabulary::{AttemptEnd, AttemptKey};

/// Runs a batch to its end, and returns its events in short words.
fn events(batch: Batch, fake: Fake, jobs: Vec<Job>) -> Vec<String> {
    let mut run = batch.start_on(fake, jobs).unwrap();
    let mut words = Vec::new();
    for event in &mut run {
        match event.unwrap() {
            Event::Started { key, .. } => words.push(format!("start {}", key.job)),
            Event::Ended { end, .. } => words.push(format!("end {}", end.key.job)),
            Event::Note(note) => words.push(note),
            Event::Settled { job, outcome, .. } => words.push(format!("{job}: {outcome:?}")),
            _ => {}
        }
    }
    words
}

/// Runs three jobs to their ends, and checks that two of them run at once, and the third one after that.
fn two_of_three_fit(mut run: Run<Fake>, gate: &Gate) {
    let (mut has_started, mut has_ended) = (0, 0);
    for event in &mut run {
        match event.unwrap() {
            Event::Started { .. } => {
                has_started += 1;
                if has_started == 2 {
                    // Both run, and none ends before this.
                    assert_eq!(has_ended, 0);
                    gate.release();
                }
                assert!(has_started < 3 || has_ended > 0, "only two of them fit");
            }
            Event::Ended { .. } => has_ended += 1,
            _ => {}
        }
    }
    assert_eq!((has_started, has_ended), (3, 3));
}

#[test]
fn jobs_reserve_no_more_than_was_free_at_the_start() {
    let (fake, gate) = Fake::held();
    let job = || exits(0).mem_bytes(400);
    let batch = Batch::new().jobs(4);
    let run = batch.start_on(fake.with_memory([1000]), vec![job(), job(), job()]).unwrap();
    two_of_three_fit(run, &gate);
}

#[test]
fn an_attempt_gets_the_memory_that_its_job_states_and_more_after_a_lack_of_it() {
    let (fake, seen) = Fake::seeing();
    let script = [AttemptOutcome::OutOfMemory, AttemptOutcome::OutOfMemory];
    let fake = fake.scripted(Script::new(script));
    let found = events(Batch::new(), fake, vec![exits(0).mem_bytes(100).most_mem_bytes(300)]);
    let given: Vec<_> = seen.lock().unwrap().iter().map(|seen| seen.memory_max_bytes).collect();
    assert_eq!(given, [Some(100), Some(200), Some(300)]);
    assert!(found.contains(&"job 1: out of memory; again with 200 bytes".to_owned()), "{found:?}");
    assert!(found.contains(&"1: Succeeded".to_owned()), "{found:?}");
}

#[test]
fn the_youngest_job_is_stopped_and_queued_again_when_no_memory_is_left() {
    let (fake, gate) = Fake::held();
    // Free at the start, gone at the second look, and free again from the third one on.
    let fake = fake.with_memory([16_000, 16_000, 100, 15_000]);
    let job = || exits(0).mem_bytes(1000);
    let mut run = Batch::new().jobs(2).start_on(fake, vec![job(), job()]).unwrap();
    let note = "job 2: stopped because memory is short; it is queued again";
    let mut has_started = 0;
    let mut is_noted = false;
    for event in &mut run {
        match event.unwrap() {
            Event::Started { key, .. } => {
                has_started += 1;
                if key.job == 2 && key.attempt == 2 {
                    assert!(is_noted);
                    gate.release();
                }
            }
            Event::Note(text) => is_noted |= text == note,
            Event::Settled { outcome, .. } => assert_eq!(outcome, JobOutcome::Succeeded),
            _ => {}
        }
    }
    assert_eq!((has_started, is_noted), (3, true));
}

#[test]
fn a_job_reserves_what_it_has_used_in_an_earlier_log_and_is_not_limited_to_it() {
    let dir = tempfile::tempdir().unwrap();
    let log = dir.path().join("earlier.db");
    // The fake executor says that each attempt has used 1,000 bytes.
    let jobs = || (0..3).map(|number| exits(0).env("N", number.to_string())).collect::<Vec<_>>();
    let earlier = states(Batch::new().log(&log), Fake::new().with_peak(1000), jobs());
    assert_eq!(earlier.len(), 3);
    let (fake, gate) = Fake::held();
    let fake = fake.with_memory([2400]);
    let batch = Batch::new().jobs(4).learn(&LogView::open(&log).unwrap()).unwrap();
    let run = batch.start_on(fake, jobs()).unwrap();
    // 1,125 each.
    two_of_three_fit(run, &gate);
    let (fake, seen) = Fake::seeing();
    // Less than one job has used: it is no reason to refuse it.
    let batch = Batch::new().memory_bytes(10).learn(&LogView::open(&log).unwrap()).unwrap();
    let states = states(batch, fake, jobs());
    assert!(states.values().all(|state| *state == said(JobOutcome::Succeeded)), "{states:?}");
    assert!(seen.lock().unwrap().iter().all(|seen| seen.memory_max_bytes.is_none()));
}

// Jobs that run at most once, on an executor where they may have to wait for a place: they begin when the log has them,
// and not before they have a place.

/// An executor with a number of places.
struct Places {
    free: u32,
    waiting: VecDeque<AttemptKey>,
    events: VecDeque<ExecutorEvent>,
    log: PathBuf,
}

impl Places {
    fn new(free: u32, log: &Path) -> Places {
        Places { free, waiting: VecDeque::new(), events: VecDeque::new(), log: log.to_owned() }
    }
}

/// Returns the numbers of the jobs that the log has as running.
fn logged(log: &Path) -> Vec<u32> {
    let connection = rusqlite::Connection::open(log).unwrap();
    let query = "SELECT number FROM running JOIN jobs ON jobs.id = running.job";
    let mut query = connection.prepare(query).unwrap();
    query.query_map([], |row| row.get(0)).unwrap().map(Result::unwrap).collect()
}

impl Executor for Places {
    fn start(&mut self, _: Attempt) {
        unreachable!("it is placed first");
    }

    fn places_first(&self) -> bool {
        true
    }

    fn place(&mut self, attempt: Attempt) {
        assert!(logged(&self.log).is_empty(), "it has not begun");
        match self.free.checked_sub(1) {
            Some(free) => {
                self.free = free;
                self.events.push_back(ExecutorEvent::Placed(attempt.key));
            }
            None => self.waiting.push_back(attempt.key),
        }
    }

    fn begin(&mut self, key: AttemptKey) {
        assert_eq!(logged(&self.log), [1], "it begins before the log has it");
        let end = AttemptEnd::without_run(key, AttemptOutcome::Exited(0));
        self.events.push_back(ExecutorEvent::Ended(Box::new(end)));
    }

    fn stop(&mut self, _: AttemptKey) {}

    fn waiting(&self) -> Vec<AttemptKey> {
        self.waiting.iter().copied().collect()
    }

    fn next_event(&mut self, _: Option<Instant>) -> io::Result<Option<ExecutorEvent>> {
        std::thread::yield_now();
        Ok(self.events.pop_front())
    }

    fn memory(&mut self) -> Option<MachineMemory> {
        None
    }

    fn waker(&mut self) -> io::Result<Box<dyn Fn() + Send + Sync>> {
        Ok(Box::new(|| ()))
    }
}

#[test]
fn a_job_that_only_waited_for_a_place_runs_in_a_resumed_batch() {
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("run.db");
    let batch = || Batch::new().jobs(1).log(&log);
    let jobs = || [exits(0).once(true)];
    let mut run = batch().start_on(Places::new(0, &log), jobs()).unwrap();
    while !matches!(run.next().unwrap().unwrap(), Event::Started { .. }) {}
    // As after a kill: the log gets no end of the run.
    drop(run);
    let states = states(batch().resume(true), Fake::new(), jobs());
    assert_eq!(states[&1], said(JobOutcome::Succeeded));
}

#[test]
fn a_job_with_a_place_begins_when_the_log_has_it() {
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("run.db");
    let run = Batch::new().jobs(1).log(&log).start_on(Places::new(1, &log), [exits(0).once(true)]);
    assert_eq!(run.unwrap().finish().unwrap().succeeded, 1);
}

// Random batches: no graph, failure or early end makes a driver wait for ever, or settle a job twice.

/// A job, by the numbers of the jobs that it is after, and the outcomes of its attempts.
#[derive(Debug, Clone)]
struct Plan {
    after: Vec<usize>,
    code: i32,
    retries: u32,
    once: bool,
    cpus: u32,
}

fn plans() -> impl Strategy<Value = Vec<Plan>> {
    let plan =
        (proptest::collection::vec(0..12_usize, 0..3), 0..3_i32, 0..3_u32, any::<bool>(), 1..4_u32);
    let plan = plan.prop_map(|(after, code, retries, once, cpus)| Plan {
        after,
        code,
        retries,
        once,
        cpus,
    });
    proptest::collection::vec(plan, 0..12)
}

/// An early end, after a number of events.
#[derive(Debug, Clone, Copy)]
enum EarlyEnd {
    None,
    Drain(usize),
    Stop(usize),
    DrainThenStop(usize),
    Failures(u64),
}

fn early_end() -> impl Strategy<Value = EarlyEnd> {
    prop_oneof![
        Just(EarlyEnd::None),
        (0..9_usize).prop_map(EarlyEnd::Drain),
        (0..9_usize).prop_map(EarlyEnd::Stop),
        (0..9_usize).prop_map(EarlyEnd::DrainThenStop),
        (1..4_u64).prop_map(EarlyEnd::Failures),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    #[test]
    fn no_batch_is_stuck(plans in plans(), early in early_end(), slots in 1..4_u32) {
        let job = |(at, plan): (usize, &Plan)| {
            let job = exits(plan.code).name(format!("j{at}")).retries(plan.retries).once(plan.once);
            plan.after.iter().fold(job.cpus(plan.cpus), |job, name| job.after(format!("j{name}")))
        };
        let jobs: Vec<Job> = plans.iter().enumerate().map(job).collect();
        let count = jobs.len() as u64;
        let mut batch = Batch::new().jobs(slots).retry_delay(Duration::ZERO, Duration::ZERO);
        if let EarlyEnd::Failures(count) = early {
            batch = batch.halt(format!("now,fail={count}").parse().unwrap());
        }
        let mut run = batch.start_on(Fake::new(), jobs).unwrap();
        let control = run.control();
        let mut settled = BTreeMap::new();
        for (number, event) in run.by_ref().enumerate() {
            match early {
                EarlyEnd::Drain(at) if at == number => control.drain(),
                EarlyEnd::Stop(at) if at == number => control.stop(),
                EarlyEnd::DrainThenStop(at) if at == number => {
                    control.drain();
                    control.stop();
                }
                _ => {}
            }
            if let Event::Settled { job, outcome, .. } = event.unwrap() {
                prop_assert!(settled.insert(job, outcome).is_none(), "job {} is settled twice", job);
            }
        }
        prop_assert!(run.is_finished());
        let total = run.summary();
        prop_assert!(settled.len() as u64 <= count);
        if total.halted.is_none() {
            prop_assert_eq!(settled.len() as u64, count);
        }
        for (job, outcome) in &settled {
            let plan = &plans[*job as usize - 1];
            let may_succeed = plan.code == 0 && plan.cpus <= slots;
            prop_assert!(*outcome != JobOutcome::Succeeded || may_succeed);
        }
    }
}
