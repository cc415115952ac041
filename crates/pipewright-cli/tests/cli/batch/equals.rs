//! Random batches print the same as `xargs -P` and GNU parallel, and fail when they fail. Random graphs of jobs run as
//! with `make -k`: the same ones, once each, after what they come after, and never more at once.
//!
//! `PIPEWRIGHT_TEST_SEED` repeats a run that failed, `PIPEWRIGHT_TEST_BATCHES` sets the number of batches or graphs,
//! and `PIPEWRIGHT_NET=all` makes them four times as many.

use std::collections::HashSet;
use std::fmt::Write as _;
use std::process::{Command, Output, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::{fs, thread};

use super::{Place, err, pace, version};
use crate::Watchdog;
use crate::random::{self, Random};

const SEED: u64 = 1;
const BATCHES: u64 = 125;

/// The end of each line that a job prints. No value has it.
const END: u8 = 0x1e;

/// Parts of values: all that a shell, `xargs` or a placeholder could take for something else.
const PARTS: [&[u8]; 33] = [
    b"a",
    b"b",
    b"f",
    b"x1",
    b"-n",
    b" ",
    b"  ",
    b"\t",
    b"'",
    b"\"",
    b"\\",
    b"\\n",
    b"$HOME",
    b"`id`",
    b"*",
    b"{}",
    b"{.}",
    b"{",
    b"#",
    b"~",
    b"!",
    b";",
    b"|&",
    b"%s",
    b"(",
    b"/",
    b".",
    b"\r",
    b"\x01",
    "ü".as_bytes(),
    "漢".as_bytes(),
    b"\xff",
    b"\xc3",
];

/// Ways to run values as jobs.
#[derive(Debug, Clone, Copy)]
enum Way {
    /// Appended to a command.
    Append,
    /// Inside of words.
    Replace,
    /// Appended to a command that fails for some values.
    Fail,
    /// Appended to a command that ends in a way that makes `xargs` stop.
    Stop,
    /// The program does not exist, or cannot be executed.
    Missing,
    /// Each line is a command without a shell.
    Command,
    /// Each line is for a shell.
    Shell,
}

const WAYS: [&Way; 7] = [
    &Way::Append,
    &Way::Replace,
    &Way::Fail,
    &Way::Stop,
    &Way::Missing,
    &Way::Command,
    &Way::Shell,
];

/// Prints its arguments, and fails for some.
const FAIL: &str = r#"printf '%s\036' "$1"; case $1 in *a*) exit 1;; *b*) exit 254;; esac"#;
/// Prints its arguments, and for some ends in a way that makes `xargs` stop.
const STOP: &str =
    r#"printf '%s\036' "$1"; case $1 in *a*) exit 3;; *b*) exit 255;; *f*) kill -9 $$;; esac"#;

/// Input and options of the three programs.
struct Batch {
    way: Way,
    is_null: bool,
    jobs: String,
    input: Vec<u8>,
}

impl Batch {
    /// Makes a batch of up to `most` jobs.
    fn random(random: &mut Random, way: Way, most: u64, may_have_lines: bool) -> Batch {
        // Lines that are commands are lines.
        let is_null = !matches!(way, Way::Command | Way::Shell) && random.one_in(3);
        let end = if is_null { 0 } else { b'\n' };
        let mut input = Vec::new();
        let count = random.below(most + 1);
        for index in 0..count {
            match way {
                Way::Command | Way::Shell => input.extend(command(random)),
                _ => input.extend(value(random, is_null && may_have_lines)),
            }
            // The last one needs no end, but then it is not empty.
            if index + 1 < count || input.last() == Some(&end) || !random.one_in(4) {
                input.push(end);
            }
        }
        if input.is_empty() && count > 0 {
            input.push(end);
        }
        Batch { way, is_null, jobs: (1 + random.below(4)).to_string(), input }
    }

    /// Returns the command that gets the values. `words` are those of a placeholder test.
    fn words<'a>(&self, replace: &[&'a str]) -> Vec<&'a str> {
        match self.way {
            Way::Append => vec!["printf", r"%s\036"],
            Way::Replace => replace.to_vec(),
            Way::Fail => vec!["sh", "-c", FAIL, "sh"],
            Way::Stop => vec!["sh", "-c", STOP, "sh"],
            Way::Missing if self.jobs == "1" => vec!["./no-such-program"],
            Way::Missing => vec!["./not-executable"],
            Way::Command | Way::Shell => Vec::new(),
        }
    }

    fn ours(&self, place: &Place, options: &[&str], replace: &[&str]) -> Output {
        let mut args = vec!["batch", "--quiet", "-j", &self.jobs];
        args.extend(options);
        args.extend(self.is_null.then_some("-0"));
        args.extend(matches!(self.way, Way::Shell).then_some("--shell"));
        args.push("--");
        args.extend(self.words(replace));
        self.run(place, place.tool(&args))
    }

    fn xargs(&self, place: &Place, replace: &[&str]) -> Output {
        let mut command = Command::new("xargs");
        command.args(["-r", "-P", &self.jobs]);
        match self.way {
            // The rules for quotes are those of a shell for what `command` makes.
            Way::Command => command.args(["-L1", "sh", "-c", r#""$@""#, "sh"]),
            _ => command.args(if self.is_null { ["-0"].as_slice() } else { &["-d", "\n"] }),
        };
        match self.way {
            Way::Replace => command.args(["-I", "{}"]),
            Way::Shell => command.args(["-I", "{}", "sh", "-c", "{}"]),
            Way::Command => &mut command,
            _ => command.arg("-n1"),
        };
        command.args(self.words(replace));
        self.run(place, command)
    }

    fn parallel(&self, place: &Place, replace: &[&str]) -> Output {
        let mut command = Command::new("parallel");
        command.args(["--keep-order", "--jobs", &self.jobs]);
        // Without `-q` a shell takes the command apart. It quotes only what it inserts.
        command.args((!matches!(self.way, Way::Shell)).then_some("-q"));
        command.args(self.is_null.then_some("-0")).args(self.words(replace));
        self.run(place, command)
    }

    fn run(&self, place: &Place, mut command: Command) -> Output {
        let input = tempfile::NamedTempFile::new_in(place.path("")).unwrap();
        fs::write(input.path(), &self.input).unwrap();
        command.stdin(Stdio::from(input.reopen().unwrap())).current_dir(place.path(""));
        // Bytes, and not characters, for a shell and for parallel, whose files are in the home folder.
        command.env("LC_ALL", "C").env("HOME", place.path("")).output().unwrap()
    }

    fn show(&self) -> String {
        let Batch { way, is_null, jobs, input } = self;
        format!("{way:?}, NUL {is_null}, {jobs} at once, {}", input.escape_ascii())
    }
}

/// Returns a value without NUL, and without a line end unless it is allowed.
fn value(random: &mut Random, may_have_lines: bool) -> Vec<u8> {
    let mut value = Vec::new();
    for _ in 0..random.below(6) {
        match may_have_lines && random.one_in(12) {
            true => value.push(b'\n'),
            false => value.extend(random.pick(&PARTS)),
        }
    }
    value
}

/// Returns a command with quoted words, which prints them, or an empty line.
fn command(random: &mut Random) -> Vec<u8> {
    let mut line = Vec::new();
    if random.one_in(8) {
        return line;
    }
    line.extend(br"printf '%s\036'");
    for _ in 0..=random.below(3) {
        line.extend(random.pick::<[u8]>(&[b" ", b"\t", b"  "]));
        let value = value(random, false);
        let is_plain = value.iter().all(u8::is_ascii_alphanumeric) && !value.is_empty();
        // The same for a shell, for xargs and for us.
        let fits_in_double = !value.iter().any(|byte| b"\"\\$`!".contains(byte));
        match random.below(3) {
            0 if is_plain => line.extend(value),
            1 if fits_in_double => line.extend([b"\"", &value[..], b"\""].concat()),
            2 if !value.is_empty() => line.extend(value.iter().flat_map(|byte| [b'\\', *byte])),
            _ => {
                line.push(b'\'');
                for byte in value {
                    line.extend(if byte == b'\'' {
                        br"'\''".as_slice()
                    } else {
                        std::slice::from_ref(&byte)
                    });
                }
                line.push(b'\'');
            }
        }
    }
    // After a blank at the end of a line, also a quoted one, xargs adds the next line to it.
    line.extend(b" .");
    line
}

fn records(output: &Output) -> Vec<&[u8]> {
    let mut records: Vec<&[u8]> = output.stdout.split_inclusive(|byte| *byte == END).collect();
    records.sort_unstable();
    records
}

/// Returns a place with a file that is no program.
fn place() -> Place {
    let place = Place::new();
    place.write("not-executable", "");
    place
}

/// Returns true, with a message, if GNU's program of this name is not here.
fn is_missing(program: &str) -> bool {
    let Some(version) = version(program) else { return true };
    let is_gnu = version.stdout.windows(3).any(|word| word == b"GNU");
    if !is_gnu {
        pace::skipped(pace::Need::Program(program), "is not of GNU");
    }
    !is_gnu
}

/// Runs the batches with these numbers on all processors, each with a seed of its own.
pub(super) fn each(count: u64, run: impl Fn(u64) + Sync) {
    let next = AtomicU64::new(0);
    thread::scope(|scope| {
        for _ in 0..thread::available_parallelism().map_or(1, |count| count.get().min(8)) {
            scope.spawn(|| {
                loop {
                    let index = next.fetch_add(1, Ordering::Relaxed);
                    if index >= count {
                        break;
                    }
                    run(index);
                }
            });
        }
    });
}

fn check_xargs(place: &Place, batch: &Batch, seed: u64) {
    let replace = ["printf", r"%s\037%s\036", "{}", "x{}y{}"].as_slice();
    let (ours, theirs) = (batch.ours(place, &[], replace), batch.xargs(place, replace));
    let shown = || {
        format!(
            "seed {seed}: {}\nours {}: {} {}\nxargs {}: {} {}",
            batch.show(),
            ours.status,
            ours.stdout.escape_ascii(),
            ours.stderr.escape_ascii(),
            theirs.status,
            theirs.stdout.escape_ascii(),
            theirs.stderr.escape_ascii()
        )
    };
    // It has other codes for the failures that make it stop, except after a signal that it sees while it ends.
    let has_stopped = theirs.stderr.starts_with(b"xargs: ");
    let code = if has_stopped { Some(123) } else { theirs.status.code() };
    assert_eq!(ours.status.code(), code, "{}", shown());
    let (ours, theirs) = (records(&ours), records(&theirs));
    if has_stopped {
        let mut rest = ours.iter();
        assert!(theirs.iter().all(|record| rest.any(|other| other == record)), "{}", shown());
    } else {
        assert_eq!(ours, theirs, "{}", shown());
    }
}

/// Returns the number of batches of a run.
fn batches() -> u64 {
    let is_long = std::env::var_os("PIPEWRIGHT_NET").is_some_and(|value| value == "all");
    random::number("PIPEWRIGHT_TEST_BATCHES").unwrap_or(if is_long { 4 * BATCHES } else { BATCHES })
}

#[test]
fn random_batches_print_and_fail_as_with_xargs() {
    if is_missing("xargs") {
        return;
    }
    let _watchdog = Watchdog::start(300 + random::number("PIPEWRIGHT_TEST_BATCHES").unwrap_or(0));
    let (place, first) = (place(), random::seed(SEED));
    each(batches(), |index| {
        let seed = first + index;
        let mut random = Random::of(seed);
        let way = *random.pick(&WAYS);
        check_xargs(&place, &Batch::random(&mut random, way, 8, true), seed);
    });
}

#[test]
fn random_batches_print_in_the_order_of_parallel() {
    if is_missing("parallel") {
        return;
    }
    let _watchdog = Watchdog::start(300 + random::number("PIPEWRIGHT_TEST_BATCHES").unwrap_or(0));
    let (place, first) = (place(), random::seed(SEED));
    // One start of parallel takes as long as many jobs. So batches are few and large.
    let ways = [Way::Append, Way::Replace, Way::Replace, Way::Fail, Way::Shell];
    let count = (batches() / 50).max(ways.len() as u64);
    let replace = ["printf", r"%s\037%s\037%s\037%s\037%s\037%s\037%s\036"];
    let replace = [&replace[..], &["{}", "{.}", "{/}", "{//}", "{/.}", "{#}", "x{}y{/}"]].concat();
    each(count, |index| {
        let seed = first + index;
        let mut random = Random::of(seed);
        let way = ways[index as usize % ways.len()];
        // Its patterns for the parts of a path end at a line end.
        let may_have_lines = !matches!(way, Way::Replace);
        let batch = Batch::random(&mut random, way, 40, may_have_lines);
        let ours = batch.ours(&place, &["--keep-order"], &replace);
        let theirs = batch.parallel(&place, &replace);
        let shown = batch.show();
        let lines = |output: &Output| -> Vec<String> {
            let records = output.stdout.split_inclusive(|byte| *byte == END);
            records.map(|record| record.escape_ascii().to_string()).collect()
        };
        let (our_lines, their_lines) = (lines(&ours), lines(&theirs));
        let first = our_lines.iter().zip(&their_lines).find(|(ours, theirs)| ours != theirs);
        assert_eq!(first, None, "seed {seed}: {shown}");
        assert_eq!(our_lines.len(), their_lines.len(), "seed {seed}: {shown}");
        // Its code is the number of jobs that failed.
        let has_failed = theirs.status.code() != Some(0);
        assert_eq!(
            ours.status.code(),
            Some(if has_failed { 123 } else { 0 }),
            "seed {seed}: {shown}"
        );
        // It warns where its own starts take long.
        let mut said = theirs.stderr.split(|byte| *byte == b'\n');
        let is_warning = |line: &[u8]| line.is_empty() || line.starts_with(b"parallel: Warning: ");
        assert!(said.all(is_warning), "{}", theirs.stderr.escape_ascii());
    });
}

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
