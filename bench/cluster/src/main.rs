//! A simulation of one batch on many nodes: what does the one coordinator carry, and what breaks first?
//!
//! `cluster [MICROSECONDS]`: the processor time that the coordinator needs for a job, as `bench/cluster.sh` measures
//! it. Prints a table in Markdown.
//!
//! The coordinator is one thread: it handles the ends of jobs in the order in which they arrive, and starts the next
//! job in the slot that has become free. A message takes half of the round trip of the network. Lengths of jobs are
//! spread evenly between half and one and a half of their mean, so that they do not end together.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// A cluster, and its jobs.
struct Setup {
    nodes: u64,
    slots_per_node: u64,
    /// The mean length of a job, in microseconds.
    job: u64,
    /// The processor time of the coordinator for a job, in microseconds.
    cost: u64,
    /// The round trip of the network, in microseconds.
    round_trip: u64,
}

/// The result of a simulated time.
struct Result {
    /// The part of the time in which slots ran jobs.
    used: f64,
    /// The part of the time in which the coordinator worked.
    busy: f64,
    jobs_per_second: f64,
}

/// Simulates the cluster once all slots have been filled, for `rounds` jobs of each slot.
fn simulate(setup: &Setup, rounds: u64) -> Result {
    let slots = setup.nodes * setup.slots_per_node;
    let mut random = 1_u64;
    let mut length = || {
        random =
            random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        setup.job / 2 + (random >> 33) % setup.job.max(1)
    };
    // Ends of jobs, by the time at which the coordinator learns of them.
    let mut ends = BinaryHeap::new();
    let mut clock = 0;
    for slot in 0..slots {
        clock += setup.cost;
        ends.push(Reverse((clock + setup.round_trip + length(), slot)));
    }
    // A warm-up, until the first wave has spread.
    let (warm_up, jobs) = (slots * 2, slots * rounds);
    let (mut begun, mut used, mut worked) = (0, 0, 0);
    for job in 0..warm_up + jobs {
        let Some(Reverse((arrived, slot))) = ends.pop() else { break };
        clock = clock.max(arrived) + setup.cost;
        if job == warm_up {
            (begun, used, worked) = (clock, 0, 0);
        }
        let time = length();
        used += time;
        worked += setup.cost;
        ends.push(Reverse((clock + setup.round_trip + time, slot)));
    }
    let elapsed = (clock - begun).max(1) as f64;
    Result {
        used: (used as f64 / slots as f64 / elapsed).min(1.0),
        busy: (worked as f64 / elapsed).min(1.0),
        jobs_per_second: jobs as f64 / elapsed * 1e6,
    }
}

fn main() {
    let cost = std::env::args().nth(1).map_or(Some(150), |text| text.parse().ok());
    let Some(cost) = cost else {
        eprintln!("usage: cluster [MICROSECONDS]");
        std::process::exit(2);
    };
    println!("The coordinator takes {cost} µs a job, and the round trip is 0.2 ms.\n");
    println!("| nodes x slots | mean length of a job | jobs/s | slots in use | coordinator busy |");
    println!("|---|--:|--:|--:|--:|");
    for (nodes, slots_per_node) in [(4, 8), (100, 128), (1000, 128)] {
        for seconds in [0.1, 1.0, 10.0, 60.0, 600.0] {
            let job = (seconds * 1e6) as u64;
            let setup = Setup { nodes, slots_per_node, job, cost, round_trip: 200 };
            let Result { used, busy, jobs_per_second } = simulate(&setup, 10);
            println!(
                "| {nodes} x {slots_per_node} | {seconds} s | {jobs_per_second:.0} | {:.0} % | {:.0} % |",
                used * 100.0,
                busy * 100.0,
            );
        }
    }
}
