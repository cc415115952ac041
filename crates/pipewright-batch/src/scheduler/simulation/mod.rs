//! Random batches, played against a model: 10,000 seeds, and each decision of each is checked.

mod model;

use std::num::{NonZeroU32, NonZeroU64};
use std::ops::Index;
use std::time::Duration;

use super::event::Refusal;
use super::tests::{SUCCEEDED, UNKNOWN, failed};
use super::*;
use crate::vocabulary::{Failure, HaltAt, HaltRule};
use model::{Job, Model, Phase};
use pipewright_tests::random::Random;

/// Prints the seed of a failed game.
struct Named(u64);

impl Drop for Named {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("the seed is {}", self.0);
        }
    }
}

/// A move of the world.
#[derive(Clone, Copy, Debug)]
enum Move {
    Add,
    EndInput,
    Intended,
    End,
    Retry,
    Log,
    Memory,
    Permits,
    Capacity,
    EarlyEnd,
    Noise,
}

/// A game: the scheduler, the model, and the jobs that have not been added.
struct Game<'a> {
    random: Random,
    scheduler: Scheduler,
    model: Model<'a>,
    batch: &'a Batch,
    added: usize,
    decisions: Vec<Decision>,
    trace: Vec<Decision>,
}

/// The most moves of a batch. The longest of 10,000 batches makes 1,160.
const MOST_STEPS: usize = 20_000;

/// Plays a batch to its end, and returns all decisions.
fn play(seed: u64) -> Vec<Decision> {
    let _named = Named(seed);
    let mut random = Random::new(seed);
    let batch = batch(&mut random);
    let mut game = Game {
        random,
        scheduler: Scheduler::with_patience(batch.config.clone(), batch.patience),
        model: Model::new(&batch),
        batch: &batch,
        added: 0,
        decisions: Vec::new(),
        trace: Vec::new(),
    };
    let mut steps = 0;
    while game.step() {
        steps += 1;
        assert!(steps < MOST_STEPS, "the batch goes on for ever");
    }
    game.check_nothing_is_left();
    game.trace
}

impl Game<'_> {
    /// Makes a move, and returns false after the last one.
    fn step(&mut self) -> bool {
        let moves = self.moves();
        let goes_on = moves.iter().any(|(it, _)| {
            matches!(it, Move::Add | Move::EndInput | Move::Intended | Move::End | Move::Retry)
        }) || self.scheduler.wanted_permits().is_some()
            || !self.scheduler.is_finished() && batch_lacks_nodes(&self.model);
        if !goes_on && self.model.log_works {
            assert!(self.scheduler.is_finished(), "the batch is stuck");
            return false;
        }
        let mut place = self.random.below(moves.iter().map(|(_, weight)| weight).sum());
        let chosen = moves.iter().find(|(_, weight)| {
            let is_here = place < *weight;
            place = place.wrapping_sub(*weight);
            is_here
        });
        match chosen.unwrap().0 {
            Move::Add => self.add(),
            Move::Noise => self.noise(),
            other => {
                let event = self.event(other);
                self.report(event);
            }
        }
        true
    }

    /// Checks that the scheduler holds nothing for jobs that are settled.
    fn check_nothing_is_left(&self) {
        let Scheduler { jobs, ready, pool, sheddable, .. } = &self.scheduler;
        assert!(jobs.is_empty() && sheddable.is_empty());
        assert_eq!((ready.len(), ready.shapes.len() - ready.unused.len(), pool.jobs()), (0, 0, 0));
        let Scheduler { blocked, retrying, running, shedding, .. } = self.scheduler;
        assert_eq!((blocked, retrying, running, shedding), (0, 0, 0, 0));
    }

    fn moves(&self) -> Vec<(Move, usize)> {
        let (batch, model) = (self.batch, &self.model);
        let is_left = self.added < batch.jobs.len() && !model.input_ended;
        let may_add = is_left && (self.scheduler.wants_input() || !batch.is_lazy && !model.halted);
        let has = |is_in: fn(&Phase) -> bool| !model.in_phase(is_in).is_empty();
        let moves = [
            (Move::Add, may_add, 12),
            (Move::EndInput, !is_left && !model.input_ended && !model.halted, 4),
            (Move::Intended, has(is_intended), 10),
            (Move::End, has(is_running), 8),
            (Move::Retry, has(|phase| *phase == Phase::Retrying), 5),
            (Move::Log, batch.log_trouble > 0 || !model.log_works, 2),
            (Move::Memory, true, batch.memory_trouble),
            (Move::Permits, batch.permit_trouble > 0, 6),
            (Move::Capacity, true, batch.capacity_trouble),
            (Move::EarlyEnd, self.added > 2, batch.early_end),
            (Move::Noise, self.added > 0, batch.noise * 4),
        ];
        moves.into_iter().filter(|it| it.1).map(|(it, _, weight)| (it, weight)).collect()
    }

    fn add(&mut self) {
        let (number, spec) = &self.batch.jobs[self.added];
        self.added += 1;
        self.model.add(*number, spec);
        self.scheduler.add(*number, spec.clone(), &mut self.decisions).unwrap();
        self.check();
    }

    fn report(&mut self, event: Event) {
        self.model.report(&event);
        self.scheduler.handle(event, &mut self.decisions);
        self.check();
    }

    fn check(&mut self) {
        for decision in self.decisions.drain(..) {
            self.model.decide(&decision);
            self.trace.push(decision);
        }
        self.model.check(&self.scheduler);
    }

    fn event(&mut self, chosen: Move) -> Event {
        let random = &mut self.random;
        match chosen {
            Move::Intended => {
                let job = *random.pick(&self.model.in_phase(is_intended));
                Event::Intended { job, attempt: self.model.jobs[job].attempts }
            }
            Move::End => {
                let job = *random.pick(&self.model.in_phase(is_running));
                let failure = *random.pick(&Failure::ALL);
                let is_failed = random.percent(self.batch.failing_percent);
                let attempt = self.model.jobs[job].attempts;
                if !is_failed && random.percent(10) {
                    return Event::Unstored { job, attempt };
                }
                if is_failed && failure == Failure::Lost && random.percent(50) {
                    return Event::Unanswered { job, attempt };
                }
                Event::Ended { job, attempt, result: if is_failed { Err(failure) } else { Ok(()) } }
            }
            Move::Retry => {
                let jobs = self.model.in_phase(|phase| *phase == Phase::Retrying);
                Event::RetryDue { job: *random.pick(&jobs) }
            }
            Move::Log if self.model.log_works => Event::LogFailed,
            Move::Log => Event::LogWorks,
            Move::Memory if random.percent(40) => {
                Event::MemoryAvailable { bytes: *random.pick(&[0, 30, 100, 1000]) }
            }
            Move::Memory => Event::Pressure(*random.pick(&[
                Pressure::None,
                Pressure::None,
                Pressure::Hold,
                Pressure::Shed,
            ])),
            // What the next job lacks is given often enough, so that the batch comes to its end.
            Move::Permits => Event::Permits {
                cpus: match self.scheduler.wanted_permits() {
                    Some(wanted) if random.percent(70) => wanted,
                    _ => random.below(self.batch.config.limits.slots.get() as usize + 1) as u32,
                },
            },
            // All nodes come back often enough.
            Move::Capacity => Event::Capacity {
                cpus: match random.percent(50) {
                    true => u32::MAX,
                    false => random.below(self.batch.config.limits.slots.get() as usize) as u32,
                },
            },
            Move::EarlyEnd => random.pick(&[Event::Drain, Event::Stop]).clone(),
            Move::Add | Move::EndInput | Move::Noise => Event::InputEnded,
        }
    }

    /// Reports something that is late or wrong, which has to change nothing.
    fn noise(&mut self) {
        let random = &mut self.random;
        let (job, spec) = random.pick(&self.batch.jobs[..self.added]);
        let (job, attempt) = (*job, self.model.jobs[*job].attempts);
        let phase = &self.model.jobs[job].phase;
        let wrong = if is_running(phase) { attempt + 1 } else { attempt };
        let result = if random.percent(50) { Ok(()) } else { Err(Failure::Lost) };
        let event = match random.below(6) {
            0 => Event::Ended { job, attempt: wrong, result },
            1 => Event::Ended { job: JobNumber(u64::MAX), attempt, result },
            2 => Event::Intended { job, attempt: attempt.wrapping_sub(1) },
            3 if !is_intended(phase) => Event::Intended { job, attempt },
            4 if *phase != Phase::Retrying => Event::RetryDue { job },
            _ => return self.add_impossible(job, spec),
        };
        self.scheduler.handle(event, &mut self.decisions);
        assert_eq!(self.decisions, []);
        self.model.check(&self.scheduler);
    }

    /// Adds a job that has to be refused, for a reason out of three.
    fn add_impossible(&mut self, job: JobNumber, spec: &Spec) {
        let mut spec = Spec { past: None, ..spec.clone() };
        let is_late = self.random.percent(50);
        if spec.name.is_none() || self.model.halted {
            spec.needs.named.push(ResourceNeed { kind: 99, count: 1 });
        }
        let number = if is_late { job } else { JobNumber(u64::MAX) };
        assert!(self.scheduler.add(number, spec, &mut self.decisions).is_err());
        assert_eq!(self.decisions, []);
        self.model.check(&self.scheduler);
    }
}

/// Returns true if there are fewer CPUs than there could be.
fn batch_lacks_nodes(model: &Model<'_>) -> bool {
    model.capacity < model.batch.config.limits.slots.get()
}

fn is_intended(phase: &Phase) -> bool {
    matches!(phase, Phase::Intended { is_durable: false, .. })
}

fn is_running(phase: &Phase) -> bool {
    matches!(phase, Phase::Running { .. })
}

/// Plays that many batches, each twice now and then.
fn play_all(seeds: std::ops::Range<u64>) {
    for seed in seeds {
        let trace = play(seed);
        if seed % 10 == 0 {
            assert_eq!(play(seed), trace, "seed {seed}: not the same decisions");
        }
    }
}

// Two halves, so that two processors share the work.
#[test]
fn random_batches_follow_the_rules_first_half() {
    play_all(0..5_000);
}

#[test]
fn random_batches_follow_the_rules_second_half() {
    play_all(5_000..10_000);
}

/// Shows that the batches contain what the other tests are about.
#[test]
fn random_batches_are_of_all_kinds() {
    let mut seen = std::collections::BTreeMap::new();
    let mut count = |kind: String| *seen.entry(kind).or_insert(0) += 1;
    for seed in 0..1_000 {
        for decision in play(seed) {
            match decision {
                Decision::Intend { attempt, .. } if attempt > 1 => count("further attempt".into()),
                Decision::Intend { durable: true, .. } => count("durable intent".into()),
                Decision::Stop { .. } => count("stop".into()),
                Decision::Retry { .. } => count("retry".into()),
                Decision::Requeue { .. } => count("requeue".into()),
                Decision::Settle { end, .. } => match end.cause {
                    Some(Cause::After(_)) => count("skip".into()),
                    Some(Cause::Refusal(refusal)) => {
                        let is_cycle = matches!(refusal, Refusal::Cycle { .. });
                        count(if is_cycle { "cycle" } else { "unknown name" }.into());
                    }
                    _ => count(format!("{end:?}")),
                },
                _ => {}
            }
        }
    }
    assert_eq!(seen.len(), 19, "{seen:?}");
    assert!(seen.values().all(|count| *count >= 20), "{seen:?}");
}

// Random batches: their settings, their jobs, and the troubles that they meet.

/// A batch, and how the world treats it.
#[derive(Debug)]
struct Batch {
    config: Config,
    patience: u32,
    jobs: Vec<(JobNumber, Spec)>,
    /// Jobs are added only while they are wanted.
    is_lazy: bool,
    failing_percent: usize,
    /// Weights of events among about 30 others.
    log_trouble: usize,
    memory_trouble: usize,
    permit_trouble: usize,
    capacity_trouble: usize,
    early_end: usize,
    noise: usize,
}

fn batch(random: &mut Random) -> Batch {
    let limits = limits(random);
    let count = match random.below(20) {
        0 => random.below(2),
        1 => 60 + random.below(60),
        _ => 2 + random.below(24),
    };
    let jobs = jobs(random, &limits, count);
    let ran_here = jobs.iter().filter(|(_, spec)| spec.past.is_none()).count() as u64;
    let has_nodes = random.percent(25);
    let trouble = |random: &mut Random, percent| usize::from(random.percent(percent));
    Batch {
        config: Config {
            spaced: false,
            read_ahead: LEAST_READ_AHEAD,
            limits,
            retry: retry(random),
            halt: halt(random),
            total: random.percent(30).then_some(ran_here),
            max_lost: random.below(4) as u32,
            capacity: has_nodes.then_some(0),
            seed: random.next(),
        },
        patience: *random.pick(&[0, 1, 2, 3, 16]),
        jobs,
        is_lazy: random.percent(70),
        failing_percent: *random.pick(&[0, 5, 20, 50, 90]),
        log_trouble: trouble(random, 30),
        memory_trouble: trouble(random, 50) * 4,
        permit_trouble: trouble(random, 25),
        capacity_trouble: usize::from(has_nodes) * 5,
        early_end: trouble(random, 15),
        noise: trouble(random, 50),
    }
}

fn limits(random: &mut Random) -> Limits {
    let kind = |(name, capacity): (&str, usize)| ResourceKind {
        name: name.into(),
        capacity: capacity as u32,
    };
    let kinds = [("link", 1 + random.below(3)), ("gpu", 1 + random.below(2))];
    Limits {
        slots: NonZeroU32::new(1 + *random.pick(&[0, 1, 2, 3, 5, 40])).unwrap(),
        memory_bytes: random.percent(40).then_some(100),
        named: kinds[..random.below(3)].iter().copied().map(kind).collect(),
    }
}

fn retry(random: &mut Random) -> RetryPolicy {
    let delay = Duration::from_millis(random.below(3000) as u64);
    RetryPolicy {
        on: Failure::ALL.into_iter().filter(|_| random.percent(70)).collect(),
        delay,
        max_delay: delay.saturating_mul(1 + random.below(5) as u32),
        jitter_percent: *random.pick(&[0, 50, 100]),
    }
}

fn halt(random: &mut Random) -> Option<HaltRule> {
    let at = match random.below(10) {
        0 => Some(HaltAt::Failures(NonZeroU64::MIN)),
        1 => Some(HaltAt::Failures(NonZeroU64::new(3).unwrap())),
        2 => Some(HaltAt::FailedPercent(10 + random.below(60) as u8)),
        3 => Some(HaltAt::Successes(NonZeroU64::new(1 + random.below(9) as u64).unwrap())),
        _ => None,
    };
    let stops_running = *random.pick(&[false, true]);
    at.map(|at| HaltRule { at, stops_running })
}

fn jobs(random: &mut Random, limits: &Limits, count: usize) -> Vec<(JobNumber, Spec)> {
    let named_percent = *random.pick(&[0, 60, 100]);
    let most_after = *random.pick(&[0, 1, 2, 5]);
    // A job may wait only for those of a lower rank, unless cycles are wanted. In a stream, ranks are in any order.
    let mut ranks: Vec<usize> = (0..count).collect();
    if random.percent(50) {
        (1..count).for_each(|at| ranks.swap(at, random.below(at + 1)));
    }
    let cycle_percent = if random.percent(25) { 20 } else { 0 };
    let unknown_percent = if random.percent(20) { 5 } else { 0 };
    let past_percent = if random.percent(20) { 40 } else { 0 };
    let once_percent = *random.pick(&[0, 20, 100]);
    let is_named: Vec<bool> = (0..count).map(|_| random.percent(named_percent)).collect();
    let mut number = 0;
    let job = |at: usize| {
        number += 1 + random.below(2) as u64;
        let mut after = Vec::new();
        for _ in 0..random.below(most_after + 1) {
            let other = random.below(count);
            let is_lower = ranks[other] < ranks[at] || random.percent(cycle_percent);
            if is_named[other] && is_lower {
                after.push(name(other));
            }
        }
        if random.percent(unknown_percent) {
            after.push("nobody".into());
        }
        let failure = *random.pick(&Failure::ALL);
        let ends = [SUCCEEDED, failed(failure), UNKNOWN];
        let past = random.pick(&ends).clone();
        let spec = Spec {
            name: is_named[at].then(|| name(at)),
            after,
            needs: needs(random, limits),
            most_memory_bytes: random.percent(40).then(|| *random.pick(&[30, 40, 160, 1000])),
            retries: *random.pick(&[0, 0, 1, 3]),
            once: random.percent(once_percent),
            past: random.percent(past_percent).then_some(past),
        };
        (JobNumber(number), spec)
    };
    (0..count).map(job).collect()
}

fn needs(random: &mut Random, limits: &Limits) -> Needs {
    let slots = limits.slots.get();
    let cpus = if random.percent(25) { 1 + random.below(slots as usize) as u32 } else { 1 };
    let mut named = Vec::new();
    for (kind, ResourceKind { capacity, .. }) in limits.named.iter().enumerate() {
        if random.percent(40) {
            named.push(ResourceNeed { kind, count: 1 + random.below(*capacity as usize) as u32 });
        }
    }
    let memory_bytes = random.percent(50).then(|| *random.pick(&[10, 40, 100]));
    Needs { cpus: NonZeroU32::new(cpus).unwrap(), memory_bytes, named }
}

fn name(at: usize) -> Box<str> {
    format!("job {at}").into()
}

// The jobs of the model: a list in order of arrival, which is fast to walk without optimisation.

#[derive(Debug, Default)]
struct Jobs<'a>(Vec<(JobNumber, Job<'a>)>);

impl<'a> Jobs<'a> {
    fn push(&mut self, number: JobNumber, job: Job<'a>) {
        self.0.push((number, job));
    }

    fn get_mut(&mut self, number: JobNumber) -> &mut Job<'a> {
        let place = self.place(number);
        &mut self.0[place].1
    }

    fn iter(&self) -> impl Iterator<Item = (JobNumber, &Job<'a>)> {
        self.0.iter().map(|(number, job)| (*number, job))
    }

    /// Returns the jobs that were added before that one.
    fn before(&self, number: JobNumber) -> impl Iterator<Item = (JobNumber, &Job<'a>)> {
        self.0[..self.place(number)].iter().map(|(number, job)| (*number, job))
    }

    fn values(&self) -> impl Iterator<Item = &Job<'a>> {
        self.0.iter().map(|(_, job)| job)
    }

    fn place(&self, number: JobNumber) -> usize {
        self.0.binary_search_by_key(&number, |(number, _)| *number).expect("no such job was added")
    }
}

impl<'a> Index<JobNumber> for Jobs<'a> {
    type Output = Job<'a>;

    fn index(&self, number: JobNumber) -> &Job<'a> {
        &self.0[self.place(number)].1
    }
}
