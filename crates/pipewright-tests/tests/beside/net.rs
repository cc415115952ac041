//! The rounds of a run: cases side by side, and a look at what is left.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime};

use pipewright_test_macros::isolated_test;
use pipewright_tests::{count, pace, skip, watchdog};

use super::judge;
use super::plan::Plan;

/// The cases of a short and of a long run.
const CASES: [u64; 2] = [1000, 100_000];
/// The cases between two looks at what is left.
const ROUND: u64 = 100;
/// The time after which a case hangs.
const HANGS: Duration = Duration::from_secs(100);

/// Runs one case. Returns a finding.
fn run(seed: u64, number: u64, folder: &Arc<tempfile::TempDir>) -> Option<String> {
    let plan = Plan::new(seed, number, folder);
    let result = catch_unwind(AssertUnwindSafe(|| match (plan.way.run)(&plan) {
        Ok(seen) => judge::check(&plan, &seen),
        Err(error) => panic!("{error} ({:?})", error.kind()),
    }));
    for name in ["in", "out", "err"] {
        // Not every case has it.
        let _ = std::fs::remove_file(plan.path(name));
    }
    let panic = result.err()?;
    let text = panic.downcast_ref::<String>().map(String::as_str);
    let text = text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("a panic");
    Some(format!("PIPEWRIGHT_NET_SEED={seed} PIPEWRIGHT_NET_CASE={number} {text}: {plan:?}"))
}

/// Runs the cases of a round, and returns their findings. Ends the program with a word if one hangs.
fn round(seed: u64, cases: std::ops::Range<u64>, folder: &Arc<tempfile::TempDir>) -> Vec<String> {
    let next = AtomicU64::new(cases.start);
    let threads = std::thread::available_parallelism().map_or(2, usize::from) + 1;
    let current: Vec<AtomicU64> = (0..threads).map(|_| AtomicU64::new(u64::MAX)).collect();
    std::thread::scope(|scope| {
        let workers: Vec<_> = current
            .iter()
            .map(|current| {
                let (next, end) = (&next, cases.end);
                scope.spawn(move || {
                    let mut found = Vec::new();
                    loop {
                        let number = next.fetch_add(1, Ordering::Relaxed);
                        if number >= end {
                            current.store(u64::MAX, Ordering::Relaxed);
                            return found;
                        }
                        current.store(number, Ordering::Relaxed);
                        found.extend(run(seed, number, folder));
                    }
                })
            })
            .collect();
        let mut since = vec![(u64::MAX, Instant::now()); threads];
        while !workers.iter().all(|worker| worker.is_finished()) {
            std::thread::park_timeout(Duration::from_millis(2));
            for (seen, current) in since.iter_mut().zip(&current) {
                let now = current.load(Ordering::Relaxed);
                if seen.0 != now {
                    *seen = (now, Instant::now());
                } else if now != u64::MAX && seen.1.elapsed() > pace::scaled(HANGS) {
                    let plan = Plan::new(seed, now, folder);
                    skip::counted(&format!(
                        "PIPEWRIGHT_NET_SEED={seed} PIPEWRIGHT_NET_CASE={now} hangs: {plan:?}"
                    ));
                    std::process::abort();
                }
            }
        }
        workers.into_iter().flat_map(|worker| worker.join().expect("findings are caught")).collect()
    })
}

/// Returns the descriptors, children and threads that this process has.
fn left() -> [usize; 3] {
    [count::handles(), count::children().len(), count::threads()]
}

#[isolated_test(limit = Duration::from_secs(3 * 3600))]
fn random_children_are_seen_as_they_are() {
    let variable = |name: &str| std::env::var(name).unwrap_or_default();
    let now = SystemTime::UNIX_EPOCH.elapsed().map_or(1, |it| it.as_nanos() as u64 >> 10);
    let is_long = variable("PIPEWRIGHT_NET") == "all";
    // The gate has the same cases each time: what others find is the long run's to tell, and stops no unrelated change.
    let seed = variable("PIPEWRIGHT_NET_SEED").parse().unwrap_or(if is_long { now } else { 1 });
    let folder = Arc::new(tempfile::tempdir().expect("a folder"));
    let mut cases =
        0..variable("PIPEWRIGHT_NET_CASES").parse().unwrap_or(CASES[usize::from(is_long)]);
    if let Ok(number) = variable("PIPEWRIGHT_NET_CASE").parse() {
        cases = number..number + 1;
    }
    skip::counted(&format!("PIPEWRIGHT_NET_SEED={seed}"));
    // Every finding is told below, with its case.
    std::panic::set_hook(Box::new(|_| {}));
    let mut found = Vec::new();
    // What is made once for the process: threads of its own, a supervisor.
    found.extend(round(seed, cases.start..(cases.start + ROUND).min(cases.end), &folder));
    let mut usual = [usize::MAX; 3];
    for start in cases.clone().step_by(ROUND as usize) {
        let end = (start + ROUND).min(cases.end);
        if start > cases.start {
            found.extend(round(seed, start..end, &folder));
        }
        let until = Instant::now() + pace::seconds(10);
        let mut now = left();
        while (now[1] > 0 || now.iter().zip(&usual).any(|(now, usual)| now > usual))
            && Instant::now() < until
        {
            std::thread::park_timeout(Duration::from_millis(5));
            now = left();
        }
        if start == cases.start {
            // The threads that only wait end by themselves.
            usual = now;
        }
        if now[1] > 0 || now[0] > usual[0] {
            found.push(format!(
                "PIPEWRIGHT_NET_SEED={seed}, cases {start} to {end} leave descriptors, children, threads: {now:?}, \
                 usually {usual:?}"
            ));
            usual[0] = usual[0].max(now[0]);
        }
    }
    let _ = std::panic::take_hook();
    watchdog::until("no child is left", || count::children().is_empty());
    skip::counted(&format!("{} cases", cases.end - cases.start));
    for line in &found {
        skip::counted(&format!("FINDING {line}"));
    }
    assert!(found.is_empty(), "{} findings", found.len());
}
