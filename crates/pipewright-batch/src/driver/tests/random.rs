//! Random batches: no graph, failure or early end makes a driver wait for ever, or settle a job twice.

use proptest::prelude::*;

use super::*;

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
