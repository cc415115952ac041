//! Measurements of large batches: nanoseconds an event, bytes a job. They print numbers and assert none.
//!
//! `cargo test --release -p pipewright-batch --lib measure -- --ignored --nocapture --test-threads=1`

use std::hint::black_box;
use std::sync::LazyLock;
use std::time::Instant;

use super::*;

/// A driver that ends each job as soon as it has started as many as run at once.
struct Run {
    scheduler: Scheduler,
    decisions: Vec<Decision>,
    running: VecDeque<(JobNumber, u32)>,
    events: u64,
    settled: u64,
    began: Duration,
    resident: Option<u64>,
    most_resident: u64,
}

impl Run {
    fn new(slots: u32) -> Run {
        Run {
            scheduler: Scheduler::new(config(slots)),
            decisions: Vec::new(),
            running: VecDeque::new(),
            events: 0,
            settled: 0,
            began: processor_time(),
            resident: resident_bytes(),
            most_resident: 0,
        }
    }

    fn add(&mut self, number: u64, spec: Spec) {
        self.scheduler.add(JobNumber(number), spec, &mut self.decisions).unwrap();
        self.carry_out();
    }

    fn tell(&mut self, event: Event) {
        self.scheduler.handle(event, &mut self.decisions);
        self.carry_out();
    }

    fn end_one(&mut self) {
        if let Some((job, attempt)) = self.running.pop_front() {
            self.tell(Event::Ended { job, attempt, result: Ok(()) });
        }
    }

    fn carry_out(&mut self) {
        self.events += 1;
        for decision in self.decisions.drain(..) {
            match black_box(decision) {
                Decision::Start { job, attempt, .. } => self.running.push_back((job, attempt)),
                Decision::Settle { .. } => self.settled += 1,
                _ => {}
            }
        }
    }

    fn note_memory(&mut self) {
        self.most_resident = self.most_resident.max(resident_bytes().unwrap_or(0));
    }

    fn print(mut self, what: &str, jobs: u64) {
        self.tell(Event::InputEnded);
        while !self.running.is_empty() {
            self.end_one();
        }
        let nanos = (processor_time() - self.began).as_nanos() / u128::from(self.events);
        assert!(self.scheduler.is_finished() && self.settled == jobs);
        let bytes = self.resident.map(|before| self.most_resident.saturating_sub(before));
        let bytes = bytes.filter(|_| self.most_resident > 0).map_or_else(
            || "unknown memory".to_owned(),
            |bytes| format!("{bytes} bytes, {} a job", bytes / jobs),
        );
        println!("{what}: {jobs} jobs, {} events, {nanos} ns an event, {bytes}", self.events);
    }
}

/// Returns the time that this thread has run, or the time of day where the system does not say it.
fn processor_time() -> Duration {
    static BEGAN: LazyLock<Instant> = LazyLock::new(Instant::now);
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").ok();
    let nanos = text.and_then(|text| text.split_whitespace().next()?.parse().ok());
    nanos.map_or_else(|| BEGAN.elapsed(), Duration::from_nanos)
}

/// Returns the memory of this process, where the system shows it.
fn resident_bytes() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    Some(line.split_whitespace().next()?.parse::<u64>().ok()? * 1024)
}

/// Adds jobs while they are wanted, and ends one after the other.
fn lazily(what: &str, jobs: u64, spec: impl Fn(u64) -> Spec) {
    let mut run = Run::new(32);
    let mut next = 0;
    while next < jobs {
        while next < jobs && run.scheduler.wants_input() {
            run.add(next, spec(next));
            next += 1;
        }
        if next % 65_536 < 64 {
            run.note_memory();
        }
        run.end_one();
    }
    run.note_memory();
    run.print(what, jobs);
}

/// Adds all jobs before the first one ends.
fn eagerly(what: &str, jobs: u64, spec: impl Fn(u64) -> Spec) {
    let mut run = Run::new(32);
    for number in 0..jobs {
        run.add(number, spec(number));
    }
    run.note_memory();
    run.print(what, jobs);
}

fn name(number: u64) -> String {
    format!("job-{number}")
}

#[test]
#[ignore = "a measurement"]
fn measure() {
    // The small ones first: later ones get the memory that earlier ones gave back.
    graphs(10_000);
    lazily("plain jobs, read lazily", 1_000_000, |_| job());
    lazily("jobs with needs of their own, read lazily", 1_000_000, |number| memory(number + 1));
    lazily("named jobs, read lazily", 1_000_000, |number| named(&name(number)));
    eagerly("plain jobs, all at once", 1_000_000, |_| job());
    graphs(1_000_000);
}

fn graphs(jobs: u64) {
    let link = |number: u64| match number.checked_sub(1) {
        Some(before) => named_after(&name(number), &[&name(before)]),
        None => named(&name(number)),
    };
    let leaf = |number| if number == 0 { named("root") } else { after(&["root"]) };
    lazily("a deep chain, read lazily", jobs, link);
    eagerly("a deep chain, all at once", jobs, link);
    eagerly("a wide graph, all at once", jobs, leaf);
}
