//! Random graphs of jobs run as with `make -k`: the same ones, once each, after what they come after, and never more at once.
//!
//! `PIPEWRIGHT_TEST_SEED` repeats a run that failed, `PIPEWRIGHT_TEST_BATCHES` sets the number of graphs.

use std::collections::HashSet;
use std::fmt::Write as _;
use std::fs;
use std::process::Output;

use super::super::Watchdog;
use super::super::random::{self, Random};
use super::equals_xargs::each;
use super::{Place, err, version};

const SEED: u64 = 1;
const GRAPHS: u64 = 60;

/// A job: what it comes after, its exit code, and how long it runs, in milliseconds.
struct Job {
    after: Vec<usize>,
    code: u64,
    millis: u64,
}

struct Graph {
    jobs: Vec<Job>,
    at_once: usize,
}

/// The begins and ends of jobs, in the order in which they happened.
#[derive(Debug)]
struct Events(Vec<(bool, usize)>);

impl Graph {
    fn random(random: &mut Random) -> Graph {
        let count = 1 + random.below(14) as usize;
        let mut jobs = Vec::new();
        for index in 0..count {
            let mut after: Vec<usize> = (0..random.below(4).min(index as u64))
                .map(|_| random.below(index as u64) as usize)
                .collect();
            after.sort_unstable();
            after.dedup();
            let code = if random.one_in(6) { 1 + random.below(200) } else { 0 };
            jobs.push(Job { after, code, millis: random.below(12) });
        }
        Graph { jobs, at_once: 1 + random.below(5) as usize }
    }

    /// Returns the shell command of a job, which notes its begin and its end.
    fn command(&self, index: usize, events: &str) -> String {
        let Job { code, millis, .. } = self.jobs[index];
        format!(
            "echo b {index} >> {events}; sleep 0.{millis:03}; echo e {index} >> {events}; exit {code}"
        )
    }

    fn ours(&self, place: &Place, name: &str) -> (Output, Events) {
        let mut input = String::new();
        for (index, job) in self.jobs.iter().enumerate() {
            let after: Vec<String> = job.after.iter().map(|it| format!("\"{it}\"")).collect();
            let shell = self.command(index, &format!("{name}.ours"));
            let after = after.join(",");
            writeln!(input, r#"{{"id":"{index}","shell":"{shell}","after":[{after}]}}"#).unwrap();
        }
        let jobs = self.at_once.to_string();
        place.write(&format!("{name}.jsonl"), &input);
        let from = format!("{name}.jsonl");
        let args =
            ["batch", "--quiet", "-j", &jobs, "--jobserver", "off", "--jsonl", "--from", &from];
        let output = place.tool(&args).current_dir(place.path("")).output().unwrap();
        (output, Events::read(place, &format!("{name}.ours")))
    }

    fn make(&self, place: &Place, name: &str) -> (Output, Events) {
        let targets: Vec<String> = (0..self.jobs.len()).map(|it| format!("t{it}")).collect();
        let mut text = format!(".PHONY: all {0}\nall: {0}\n", targets.join(" "));
        for (index, job) in self.jobs.iter().enumerate() {
            let after: Vec<String> = job.after.iter().map(|it| format!("t{it}")).collect();
            let shell = self.command(index, &format!("{name}.make"));
            writeln!(text, "t{index}: {}\n\t@{shell}", after.join(" ")).unwrap();
        }
        place.write(&format!("{name}.mk"), &text);
        let mut command = std::process::Command::new("make");
        command.args([
            "-k",
            "-s",
            "-f",
            &format!("{name}.mk"),
            &format!("-j{}", self.at_once),
            "all",
        ]);
        command.env_remove("MAKEFLAGS").env_remove("MAKELEVEL").current_dir(place.path(""));
        (command.output().unwrap(), Events::read(place, &format!("{name}.make")))
    }

    /// Checks what holds whoever runs it.
    fn check(&self, events: &Events, shown: &str) {
        let (mut begun, mut ended, mut running) = (HashSet::new(), HashSet::new(), 0);
        for (is_begin, index) in &events.0 {
            if *is_begin {
                assert!(begun.insert(*index), "{shown}: {index} ran twice");
                let job = &self.jobs[*index];
                let is_ready = |it: &usize| ended.contains(it) && self.jobs[*it].code == 0;
                assert!(job.after.iter().all(is_ready), "{shown}: {index} ran too early");
                running += 1;
            } else {
                assert!(ended.insert(*index), "{shown}: {index} ended twice");
                running -= 1;
            }
            assert!(running <= self.at_once, "{shown}: {running} at once");
        }
        assert_eq!(begun, ended, "{shown}: begun, and ended");
    }
}

impl Events {
    fn read(place: &Place, name: &str) -> Events {
        let text = fs::read_to_string(place.path(name)).unwrap_or_default();
        let event = |line: &str| {
            let (kind, index) = line.split_once(' ').unwrap();
            (kind == "b", index.parse().unwrap())
        };
        Events(text.lines().map(event).collect())
    }

    fn ran(&self) -> Vec<usize> {
        let mut ran: Vec<usize> =
            self.0.iter().filter(|event| event.0).map(|event| event.1).collect();
        ran.sort_unstable();
        ran
    }
}

#[test]
fn random_graphs_run_as_with_make() {
    if version("make").is_none() {
        return;
    }
    let (place, first) = (Place::new(), random::seed(SEED));
    let count = random::number("PIPEWRIGHT_TEST_BATCHES").unwrap_or(GRAPHS);
    let _watchdog = Watchdog::start(300 + count / 2);
    each(count, |index| {
        let seed = first + index;
        let graph = Graph::random(&mut Random::of(seed));
        let name = seed.to_string();
        let (ours, events) = graph.ours(&place, &name);
        let (theirs, make) = graph.make(&place, &name);
        let shown = format!(
            "PIPEWRIGHT_TEST_SEED={seed} PIPEWRIGHT_TEST_BATCHES=1: {} jobs",
            graph.jobs.len()
        );
        let all = format!("{shown}: {events:?}, make {make:?}, {}", err(&ours));
        graph.check(&make, &format!("make: {shown}"));
        graph.check(&events, &all);
        assert_eq!(events.ran(), make.ran(), "{all}");
        let has_failed = theirs.status.code() != Some(0);
        assert_eq!(ours.status.code(), Some(if has_failed { 123 } else { 0 }), "{all}");
    });
}
