//! Random batches end, print and fail in the same way here, on nodes behind a command, behind a real sshd, and on Slurm.
//!
//! `PIPEWRIGHT_TEST_BATCHES` sets their number, `PIPEWRIGHT_TEST_SEED` repeats the choices of a run that failed.

use std::fmt::Write as _;

use serde_json::{Map, Value, json};

use super::super::random::{self, Random};
use super::slurm::{Cluster, on_slurm, until_released};
use super::ssh::Sshd;
use super::via::ends;
use super::*;

const BATCHES: u64 = 6;

/// The options of a batch, and its jobs as lines of JSON.
struct Batch {
    options: Vec<&'static str>,
    jobs: String,
}

impl Batch {
    fn of(random: &mut Random) -> Batch {
        let mut options = vec!["--jsonl", "--from", "jobs", "--keep-order", "--limit", "100k"];
        if random.one_in(3) {
            options.push("--tag");
        }
        if random.one_in(3) {
            options.extend(["--retries", "2", "--retry-delay", "1ms"]);
        }
        let mut jobs = String::new();
        for number in 0..4 + random.below(16) {
            let mut job = job(random, number);
            if random.one_in(4) && number > 0 {
                job.insert("after".to_owned(), json!([format!("job{}", random.below(number))]));
            }
            let _ = writeln!(jobs, "{}", Value::Object(job));
        }
        Batch { options, jobs }
    }

    /// Runs it in a directory of its own, and returns all that is the same wherever it runs.
    fn run(
        &self,
        batch_on: impl FnOnce(&Place, &[&str]) -> Command,
    ) -> (Option<i32>, Vec<u8>, Vec<String>) {
        let place = Place::new();
        place.write("jobs", &self.jobs);
        place.write("input", "text of a file\n");
        std::fs::create_dir(place.path("folder")).unwrap();
        let log: &[&str] = &["--log", "run.db"];
        let mut command = batch_on(&place, &[&self.options[..], log].concat());
        let output = command.output().unwrap();
        let ends = ends(&place, "run.db", &output);
        (output.status.code(), output.stdout, ends)
    }
}

/// Returns a job whose end and output depend on nothing but itself.
fn job(random: &mut Random, number: u64) -> Map<String, Value> {
    let mut job = Map::new();
    let mut set = |name: &str, value: Value| drop(job.insert(name.to_owned(), value));
    set("id", json!(format!("job{number}")));
    let shell = |script: &str| json!(["sh", "-c", script, "x"]);
    match random.below(14) {
        0 => set("argv", json!(["true"])),
        1 => set("argv", shell(&format!("exit {}", random.below(256)))),
        2 => set("argv", shell(&format!("kill -{} $$", random.pick(&["9", "15", "1", "6", "10"])))),
        3 => set(
            "argv",
            json!([
                "printf",
                "%s|",
                random.pick(&["", " ", "a b", "'", "\"", "\\", "é\n", "*", "-n"]),
                "end"
            ]),
        ),
        4 => set("argv", shell(&format!("seq {}; echo error >&2", random.below(12_000)))),
        5 => set("argv", shell(&format!("seq {} >&2; exit 1", random.below(50)))),
        6 => {
            set("argv", json!(["cat"]));
            set("stdin", json!("line\n".repeat(random.below(20_000) as usize)));
        }
        7 => {
            set("argv", json!(["cat"]));
            set("stdin_file", json!(random.pick(&["input", "missing"])));
        }
        8 => {
            set("argv", shell("echo \"${A-unset} ${HOME-unset}\""));
            set("env", json!({"A": random.pick(&["", "1", "a b"]), "HOME": null}));
        }
        9 => {
            set("argv", shell("basename \"$PWD\""));
            set("cwd", json!(random.pick(&["folder", "/", "missing"])));
        }
        10 => {
            set("argv", json!(["sleep", "600"]));
            set("timeout", json!(0.05));
        }
        11 => set("argv", json!([random.pick(&["no-such-program", "./input", "/"])])),
        // Succeeds in a later attempt.
        12 => {
            set("retries", json!(random.below(4)));
            let script =
                format!("echo >> tries-{number}; [ $(wc -l < tries-{number}) -ge 3 ] && echo done");
            set("argv", shell(&script));
        }
        _ => set("argv", shell("(echo from a child; sleep 0.01; echo late) & wait; echo parent")),
    }
    if random.one_in(6) {
        set("cpus", json!(2));
    }
    job
}

/// Compares random batches here and elsewhere.
fn check(name: &str, batch_on: impl Fn(&Place, &[&str]) -> Command) {
    let count = random::number("PIPEWRIGHT_TEST_BATCHES").unwrap_or(BATCHES);
    let _watchdog = Watchdog::start(120 + 30 * count);
    let seed = random::seed(19);
    for number in 0..count {
        let batch = Batch::of(&mut Random::of(seed.wrapping_add(number)));
        let here = batch.run(|place, args| {
            place.tool(&[&["batch", "--progress", "none", "-j4"], args].concat())
        });
        let there = batch.run(&batch_on);
        let seed = seed.wrapping_add(number);
        assert_eq!(
            (here.0, &here.2),
            (there.0, &there.2),
            "{name}, seed {seed}: {}",
            batch.jobs.chars().take(3000).collect::<String>()
        );
        assert!(here.1 == there.1, "{name}, seed {seed}: the outputs differ");
    }
}

#[test]
fn random_batches_end_on_nodes_as_they_do_here() {
    check("via", |place, args| batch_on(place, &nodes(2), args));
}

#[test]
fn random_batches_end_over_ssh_as_they_do_here() {
    let Some(sshd) = Sshd::start() else { return };
    check("ssh", |place, args| batch_on(place, &sshd.nodes(place, 2), args));
}

#[test]
fn random_batches_end_on_slurm_as_they_do_here() {
    let Some(_cluster) = Cluster::take(3600) else { return };
    check("slurm", |place, args| on_slurm(place, 2, args));
    until_released();
}
