//! The cases of a run, and the findings that are known.

use std::time::{Duration, SystemTime};

use pipewright_test_macros::isolated_test;
use pipewright_tests::skip;

use super::{judge, plan, run};

/// The rounds of a short and of a long run: in each, every family has one case.
const ROUNDS: [usize; 2] = [2, 60];

/// The findings that are known and not mended yet: family and finding. Empty: none.
const EXPECTED: &[(&str, &str)] = &[];

#[isolated_test(limit = Duration::from_secs(3600))]
fn workers_that_do_anything_harm_only_themselves() {
    let variable = |name: &str| std::env::var(name).unwrap_or_default();
    let now = SystemTime::UNIX_EPOCH.elapsed().map_or(1, |it| it.as_nanos() as u64);
    let is_long = variable("PIPEWRIGHT_NET") == "all";
    // The gate has the same cases each time: what others find is the long run's to tell, and stops no unrelated change.
    let seed = variable("PIPEWRIGHT_NET_SEED").parse().unwrap_or(if is_long { now } else { 1 });
    let rounds = ROUNDS[usize::from(is_long)];
    skip::counted(&format!("PIPEWRIGHT_NET_SEED={seed}"));
    let only = variable("PIPEWRIGHT_NET_CASE");
    let (mut cases, mut unexpected, mut known) = (0, Vec::new(), Vec::new());
    let mut latencies = Vec::new();
    for round in 0..rounds {
        for family in plan::FAMILIES.iter().filter(|it| it.name.contains(&only)) {
            let plan = plan::Plan::new(family, seed.wrapping_add(round as u64));
            let seen = run::run(&plan);
            cases += 1;
            latencies.extend(seen.latencies());
            for finding in judge::findings(&plan, &seen) {
                let line = format!("{} {}: {finding:?}: {plan:?}", family.name, finding.name());
                let is_known = EXPECTED.contains(&(family.name, finding.name()));
                skip::counted(&format!("{} {line}", if is_known { "known" } else { "FINDING" }));
                if is_known { &mut known } else { &mut unexpected }.push(line);
            }
        }
    }
    latencies.sort_unstable();
    let p99 = latencies.get(latencies.len() * 99 / 100).copied().unwrap_or_default();
    skip::counted(&format!(
        "{cases} cases, {} known findings; calls of honest workers: {}, p99 {p99:?}",
        known.len(),
        latencies.len()
    ));
    assert!(unexpected.is_empty(), "seed {seed}:\n{}", unexpected.join("\n"));
}
