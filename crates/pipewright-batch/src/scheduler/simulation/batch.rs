//! Random batches: their settings, their jobs, and the troubles that they meet.

use std::num::{NonZeroU32, NonZeroU64};
use std::time::Duration;

use super::random::Random;
use crate::scheduler::tests::{SUCCEEDED, UNKNOWN, failed};
use crate::scheduler::*;
use crate::vocabulary::Failure;

/// A batch, and how the world treats it.
#[derive(Debug)]
pub(super) struct Batch {
    pub(super) config: Config,
    pub(super) patience: u32,
    pub(super) jobs: Vec<(JobNumber, Spec)>,
    /// Jobs are added only while they are wanted.
    pub(super) is_lazy: bool,
    pub(super) failing_percent: usize,
    /// Weights of events among about 30 others.
    pub(super) log_trouble: usize,
    pub(super) memory_trouble: usize,
    pub(super) permit_trouble: usize,
    pub(super) capacity_trouble: usize,
    pub(super) early_end: usize,
    pub(super) noise: usize,
}

pub(super) fn batch(random: &mut Random) -> Batch {
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
            limits,
            retry: retry(random),
            halt: failures(random),
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

fn failures(random: &mut Random) -> HaltPolicy {
    HaltPolicy {
        limit: match random.below(10) {
            0 => HaltLimit::Failures(NonZeroU64::MIN),
            1 => HaltLimit::Failures(NonZeroU64::new(3).unwrap()),
            2 => HaltLimit::FailedPercent(10 + random.below(60) as u8),
            3 => HaltLimit::Successes(NonZeroU64::new(1 + random.below(9) as u64).unwrap()),
            _ => HaltLimit::Never,
        },
        then: *random.pick(&[OnLimit::Drain, OnLimit::Stop]),
    }
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
