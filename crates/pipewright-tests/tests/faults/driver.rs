//! Finds the cases of each scenario, picks some or all, and runs them; the findings that are known.

use std::collections::hash_map::DefaultHasher;
use std::collections::{BTreeMap, BTreeSet};
use std::hash::{Hash as _, Hasher as _};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::time::Instant;
use std::{env, fs};

use crate::case::{self, Facts, Finding, Injection};
use crate::scenarios::{self, Scenario};
use crate::scene::Left;
use crate::{calls, injector};

/// The seed of the short run.
const SEED: u64 = 19;
/// The cases of a scenario in the short run, for each point of its weight.
const SHORT: usize = 5;
/// The calls of one kind that fail, one at a time, in a scenario.
const MOST: u32 = 12;

/// A case: a scenario, and the call that fails in it.
struct Case {
    scenario: usize,
    injection: Injection,
}

/// Runs the suite. Returns the exit code.
pub(crate) fn main() -> i32 {
    let arguments: Vec<String> = env::args().skip(1).collect();
    if arguments.iter().any(|argument| argument == "--list") {
        return 0;
    }
    let words: Vec<&String> = arguments.iter().filter(|it| !it.starts_with('-')).collect();
    let is_named = |scenario: &Scenario| words.iter().any(|word| scenario.name.contains(&***word));
    let scenarios: Vec<Scenario> =
        scenarios::all().into_iter().filter(|it| words.is_empty() || is_named(it)).collect();
    let begun = Instant::now();
    let root = Root::new();
    if let Some(case) = env::var_os("PIPEWRIGHT_NET_CASE") {
        return repeat(&scenarios, &root, &case.to_string_lossy());
    }
    let is_long = env::var_os("PIPEWRIGHT_NET").is_some_and(|value| value == "all");
    let seed = env::var("PIPEWRIGHT_NET_SEED").ok().and_then(|it| it.parse().ok()).unwrap_or(SEED);
    let mut usual = Vec::new();
    let mut cases = Vec::new();
    let mut found_all = 0;
    for (index, scenario) in scenarios.iter().enumerate() {
        let facts = case::run(
            scenario,
            &root.folder(scenario, &format!("usual.{index}")),
            None,
            &Left::new(),
        );
        root.clean(scenario, &format!("usual.{index}"));
        if let Some(reason) = &facts.skipped {
            let (need, detail) = reason.split_once(' ').unwrap_or((reason, ""));
            println!("SKIPPED need={need} faults::{}: {detail}", scenario.name);
        } else {
            let all = all_cases(index, &facts);
            found_all += all.len();
            cases.extend(if is_long { all } else { picked(scenario, all, seed) });
        }
        usual.push(facts);
    }
    println!(
        "faults: {} of {found_all} cases, seed {seed}, of {} scenarios",
        cases.len(),
        scenarios.len()
    );
    let mut wrong = usual_findings(&scenarios, &usual);
    let lines = in_shards(&scenarios, &usual, &cases, &root);
    let mut seen = BTreeSet::new();
    let mut rows: BTreeMap<&str, usize> = BTreeMap::new();
    for line in &lines {
        let fields: Vec<&str> = line.split('\t').collect();
        let [what, scenario, call, nth, error, kind, text] = fields[..] else {
            println!("{line}");
            continue;
        };
        let row = EXPECTED.iter().position(|row| row.is(scenario, call, error, kind, text));
        match (row, what) {
            (Some(row), _) => {
                seen.insert(row);
                *rows.entry(EXPECTED[row].row).or_default() += 1;
            }
            (None, "once") => println!(
                "COUNTED faults: seen once: {scenario}|{call}|{nth}|{error}: {kind}: {text}"
            ),
            (None, _) => wrong.push(format!("{scenario}|{call}|{nth}|{error}: {kind}: {text}")),
        }
    }
    for (row, count) in rows {
        println!("COUNTED faults: expected: {row}: {count}");
    }
    // Without a facility others occur.
    if is_long && words.is_empty() && env::var_os("PIPEWRIGHT_FORCE").is_none() {
        for (index, row) in EXPECTED.iter().enumerate().filter(|(index, _)| !seen.contains(index)) {
            wrong.push(format!(
                "expected row {index} ({}, {}) did not occur: remove it",
                row.row, row.call
            ));
        }
    }
    println!("faults: {} cases in {} s", cases.len(), begun.elapsed().as_secs());
    for finding in &wrong {
        println!("FAILED {finding}");
    }
    // In the words of the usual harness, which are counted.
    let (result, passed) = (if wrong.is_empty() { "ok" } else { "FAILED" }, cases.len());
    println!("\ntest result: {result}. {passed} passed; {} failed; 0 ignored", wrong.len());
    i32::from(!wrong.is_empty())
}

/// Returns what does not hold although no call failed.
fn usual_findings(scenarios: &[Scenario], usual: &[Facts]) -> Vec<String> {
    let mut wrong = Vec::new();
    for (scenario, facts) in
        scenarios.iter().zip(usual).filter(|(_, facts)| facts.skipped.is_none())
    {
        let mut none = case::findings(scenario, facts, facts, None);
        let told = facts.passes.iter().find(|(_, (result, _))| result != "ok");
        none.extend(
            told.map(|(number, it)| Finding { kind: "told", text: format!("{number}: {it:?}") }),
        );
        for Finding { kind, text } in none {
            wrong.push(format!("{}|||: {kind}: {text} {}", scenario.name, facts.stderr));
        }
    }
    wrong
}

/// Returns every case of a scenario.
fn all_cases(scenario: usize, facts: &Facts) -> Vec<Case> {
    let mut cases = Vec::new();
    for (key, (count, errors)) in &facts.calls {
        for nth in 1..=(*count).min(MOST) {
            for errno in errors {
                let injection = Injection { key: key.clone(), nth, errno: *errno };
                cases.push(Case { scenario, injection });
            }
        }
    }
    cases
}

/// Returns some cases, those with the smallest hashes: others as the seed differs, and nearly the same as the calls do.
/// Those that are known to hang are left to the long run.
fn picked(scenario: &Scenario, mut cases: Vec<Case>, seed: u64) -> Vec<Case> {
    cases.retain(|case| {
        let error = calls::error_name(case.injection.errno);
        !EXPECTED.iter().any(|row| row.hangs(scenario.name, &case.injection.key, error))
    });
    cases.sort_by_cached_key(|case| {
        let mut hasher = DefaultHasher::new();
        let Injection { key, nth, errno } = &case.injection;
        (seed, key, nth, errno).hash(&mut hasher);
        hasher.finish()
    });
    cases.truncate(scenario.weight * SHORT);
    cases
}

/// Runs the cases in as many processes as there are processors. Returns the lines that these write.
fn in_shards(scenarios: &[Scenario], usual: &[Facts], cases: &[Case], root: &Root) -> Vec<String> {
    let shards = std::thread::available_parallelism().map_or(1, usize::from);
    let _ = std::io::stdout().flush();
    let outputs: Vec<PathBuf> =
        (0..shards).map(|shard| root.slow.join(format!("shard.{shard}"))).collect();
    for (shard, output) in outputs.iter().enumerate() {
        let started = injector::fork_plain(|| {
            let mut output = fs::File::create(output).expect("a file for the findings");
            for case in cases.iter().skip(shard).step_by(shards) {
                let lines = run_case(scenarios, usual, case, root, shard);
                output.write_all(lines.as_bytes()).expect("a file for the findings");
            }
            output.write_all(b"whole\n").expect("a file for the findings");
        });
        started.expect("a process for a part of the cases");
    }
    while injector::wait_for_one() {}
    let mut lines = Vec::new();
    for output in outputs {
        let text = fs::read_to_string(&output).unwrap_or_default();
        assert!(text.ends_with("whole\n"), "a part of the cases has ended too early: {text}");
        lines.extend(text.lines().filter(|line| *line != "whole").map(str::to_owned));
    }
    lines
}

/// Runs a case; if something does not hold, up to two more times. Returns a line for each finding that was seen twice,
/// or that is expected.
fn run_case(
    scenarios: &[Scenario],
    usual: &[Facts],
    case: &Case,
    root: &Root,
    shard: usize,
) -> String {
    let (scenario, injection) = (&scenarios[case.scenario], &case.injection);
    let error = calls::error_name(injection.errno);
    let mut kinds: Vec<(Finding, u32)> = Vec::new();
    for _ in 0..3 {
        let name = format!("case.{shard}");
        let facts = case::run(
            scenario,
            &root.folder(scenario, &name),
            Some(injection),
            &usual[case.scenario].left,
        );
        root.clean(scenario, &name);
        let found = if facts.fired {
            case::findings(scenario, &usual[case.scenario], &facts, Some(injection))
        } else {
            Vec::new()
        };
        for finding in found {
            match kinds.iter_mut().find(|(it, _)| it.kind == finding.kind) {
                Some((_, count)) => *count += 1,
                None => kinds.push((finding, 1)),
            }
        }
        let is_expected = |finding: &Finding| {
            EXPECTED.iter().any(|row| {
                row.is(scenario.name, &injection.key, error, finding.kind, &finding.text)
            })
        };
        if kinds.iter().all(|(finding, count)| *count > 1 || is_expected(finding)) {
            break;
        }
    }
    let line = |(finding, count): &(Finding, u32)| {
        let what = if *count > 1 { "found" } else { "once" };
        let text = finding.text.replace(['\t', '\n'], " ");
        let Injection { key, nth, .. } = injection;
        format!("{what}\t{}\t{key}\t{nth}\t{error}\t{}\t{text}\n", scenario.name, finding.kind)
    };
    kinds.iter().map(line).collect()
}

/// Runs one case and prints all about it.
fn repeat(scenarios: &[Scenario], root: &Root, case: &str) -> i32 {
    let fields: Vec<&str> = case.split('|').collect();
    let scenario =
        scenarios.iter().find(|it| it.name == fields[0]).expect("the name of a scenario");
    let usual = case::run(scenario, &root.folder(scenario, "usual"), None, &Left::new());
    println!("without a failure: {usual:#?}");
    let [_, key, nth, error] = fields[..] else { return 0 };
    let (errno, _) = calls::ERRORS.iter().find(|it| it.1 == error).expect("the name of an error");
    let nth = nth.parse().expect("a number");
    let injection = Injection { key: key.to_owned(), nth, errno: *errno };
    let facts = case::run(scenario, &root.folder(scenario, "case"), Some(&injection), &usual.left);
    println!(
        "with it: {facts:#?}\n{:#?}",
        case::findings(scenario, &usual, &facts, Some(&injection))
    );
    0
}

/// The folders of the runs: in memory, and on a disk for what is about disks.
struct Root {
    fast: PathBuf,
    slow: PathBuf,
}

impl Root {
    fn new() -> Root {
        let name = format!("faults.{}", std::process::id());
        let slow = Path::new(env!("CARGO_TARGET_TMPDIR")).join(&name);
        let fast = Path::new("/dev/shm");
        let fast = if fs::create_dir_all(fast.join(&name)).is_ok() {
            fast.join(&name)
        } else {
            slow.clone()
        };
        fs::create_dir_all(&slow).expect("a folder for the runs");
        Root { fast, slow }
    }

    fn folder(&self, scenario: &Scenario, name: &str) -> PathBuf {
        let root = if scenario.name.starts_with("disk") { &self.slow } else { &self.fast };
        root.join(name)
    }

    fn clean(&self, scenario: &Scenario, name: &str) {
        // What cannot be removed is found by the next run, whose folder is not empty.
        let _ = fs::remove_dir_all(self.folder(scenario, name));
    }
}

impl Drop for Root {
    fn drop(&mut self) {
        // Both are in folders for such files.
        let _ = fs::remove_dir_all(&self.fast);
        let _ = fs::remove_dir_all(&self.slow);
    }
}

/// A known finding. A `*` stands for any text.
pub(crate) struct Expected {
    pub(crate) scenario: &'static str,
    /// The caller, its name and its object.
    pub(crate) call: &'static str,
    /// The errors, with spaces between them, or `*`.
    pub(crate) errors: &'static str,
    /// The kind of finding, and its text.
    pub(crate) kind: &'static str,
    pub(crate) text: &'static str,
    /// The row of the audit, or what is known about it.
    row: &'static str,
}

const EXPECTED: &[Expected] = &[];

impl Expected {
    /// Returns true if it is that finding.
    pub(crate) fn is(
        &self,
        scenario: &str,
        call: &str,
        error: &str,
        kind: &str,
        text: &str,
    ) -> bool {
        self.is_for(scenario, call, error) && matches(self.kind, kind) && matches(self.text, text)
    }
}

impl Expected {
    /// Returns true if that case is known to hang.
    pub(crate) fn hangs(&self, scenario: &str, call: &str, error: &str) -> bool {
        self.kind == "hang" && self.is_for(scenario, call, error)
    }

    fn is_for(&self, scenario: &str, call: &str, error: &str) -> bool {
        matches(self.scenario, scenario)
            && matches(self.call, call)
            && (self.errors == "*" || self.errors.split(' ').any(|it| it == error))
    }
}

/// Returns true if a text is of that form, in which a `*` stands for any text.
fn matches(form: &str, text: &str) -> bool {
    let Some((start, rest)) = form.split_once('*') else { return form == text };
    let Some(text) = text.strip_prefix(start) else { return false };
    rest.is_empty()
        || (0..=text.len()).any(|at| text.is_char_boundary(at) && matches(rest, &text[at..]))
}
