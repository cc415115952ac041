//! Random pipelines behave as in a shell: the same bytes, and the same status.

use std::fs;

use pipewright::{Command, Pipeline, Stdio};
use pipewright_test_macros::watched_test;
use pipewright_tests::pace;
use pipewright_tests::skip::{Need, skipped};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};

/// A stage: the words of its command, none of which a shell would change.
type StageWords = Vec<String>;

fn words(words: &[&str]) -> StageWords {
    words.iter().map(|word| (*word).to_owned()).collect()
}

fn stage() -> impl Strategy<Value = StageWords> {
    let fixed = prop::sample::select(vec![
        words(&["cat"]),
        words(&["tr", "a-m", "N-Z"]),
        words(&["tr", "-d", "a"]),
        words(&["wc", "-c"]),
        words(&["wc", "-l"]),
        words(&["sort"]),
        words(&["sort", "-r", "-u"]),
        words(&["rev"]),
        words(&["grep", "a"]),
        words(&["grep", "-c", "no-such-line"]),
        words(&["true"]),
        words(&["false"]),
        words(&["printf", "b1\\na2\\n"]),
        words(&["sh", "-c", "cat; kill -9 $$"]),
    ]);
    let counted = (prop::sample::select(vec!["head", "tail"]), prop::bool::ANY, 0_u32..300_000)
        .prop_map(|(program, by_lines, count)| {
            // Few lines; more bytes than a pipe holds.
            let (option, count) = if by_lines { ("-n", count % 50) } else { ("-c", count) };
            words(&[program, option, &count.to_string()])
        });
    let exits = (prop::bool::ANY, 0_u8..=255).prop_map(|(reads, code)| {
        let first = if reads { "cat; " } else { "" };
        words(&["sh", "-c", &format!("{first}exit {code}")])
    });
    prop_oneof![4 => fixed, 2 => counted, 1 => exits]
}

/// The input of the first stage: nothing, a little, or more than pipes hold.
fn input() -> impl Strategy<Value = Vec<u8>> {
    let lines = prop::collection::vec("[a-z]{0,12}", 0..20).prop_map(|lines| {
        lines.iter().flat_map(|line| [line.as_bytes(), b"\n"].concat()).collect()
    });
    let large = (70_000_usize..400_000).prop_map(|count| b"banana\nmango\n".repeat(count / 13));
    prop_oneof![3 => lines, 1 => large]
}

fn pipeline(
    stages: &[StageWords],
    input: &std::path::Path,
    fed: Option<&[u8]>,
) -> Pipeline<'static> {
    let mut commands: Vec<Command> =
        stages.iter().map(|stage| Command::new(&stage[0]).args(&stage[1..]).owned()).collect();
    commands[0].stdin(match fed {
        Some(bytes) => Stdio::bytes(bytes),
        None => Stdio::open(input),
    });
    Pipeline::new(commands)
}

fn script(stages: &[StageWords]) -> String {
    let quoted = |stage: &StageWords| {
        stage.iter().map(|word| format!("'{word}'")).collect::<Vec<_>>().join(" ")
    };
    stages.iter().map(quoted).collect::<Vec<_>>().join(" | ")
}

/// Returns a shell's exit as the number that another shell reports for it.
fn as_shell(status: pipewright::ExitStatus) -> i32 {
    status.code().or_else(|| status.signal().map(|signal| 128 + signal)).unwrap()
}

/// Returns the status of a pipeline whose stages have these, by the rule that [`Pipeline`] documents.
fn attributed(statuses: &[i32], pipefail: bool) -> i32 {
    let (last, others) = statuses.split_last().unwrap();
    let failed = others.iter().rev().find(|status| ![0, 141].contains(*status));
    if *last != 0 || !pipefail { *last } else { failed.copied().unwrap_or(0) }
}

#[watched_test(limit = std::time::Duration::from_secs(300))]
fn random_pipelines_match_a_shell() {
    if Command::new("bash").args(["-c", "true"]).status().is_err() {
        return skipped(
            Need::Program("bash"),
            "bash is not here, and sh does not tell the status of each stage",
        );
    }
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("input");
    let cases = std::env::var("PROPTEST_CASES").ok().and_then(|text| text.parse().ok());
    let config = Config {
        cases: cases.unwrap_or(pace::rounds(150, 15) as u32),
        failure_persistence: None,
        ..Config::default()
    };
    let case = (prop::collection::vec(stage(), 1..7), input(), prop::bool::ANY, prop::bool::ANY);
    let mut runner = TestRunner::new(config);
    let result = runner.run(&case, |(stages, input, fed, pipefail)| {
        fs::write(&file, &input).unwrap();
        let script = script(&stages);
        let mut ours = pipeline(&stages, &file, fed.then_some(&input[..]));
        let ours = ours.pipefail(pipefail).output().unwrap();
        let shell = |program: &str, script: &str| {
            let mut shell = Command::new(program);
            shell.args(["-c", script]).stdin(Stdio::open(&file)).output().unwrap()
        };
        let theirs = shell("sh", &script);
        prop_assert!(ours.stdout == theirs.stdout, "stdout of {script}");
        let statuses =
            shell("bash", &format!("{script} >/dev/null; echo ${{PIPESTATUS[@]}}")).stdout;
        let statuses: Vec<i32> = String::from_utf8(statuses)
            .unwrap()
            .split_whitespace()
            .map(|status| status.parse().unwrap())
            .collect();
        let stages: Vec<i32> = ours.stages.iter().map(|stage| as_shell(stage.status)).collect();
        // A writer may finish before its reader stops reading, or not: a race, in a shell as here.
        let same = |(ours, theirs): (&i32, &i32)| ours == theirs || [*ours, *theirs].contains(&141);
        let all_same = stages.iter().zip(&statuses).all(same) && stages.len() == statuses.len();
        prop_assert!(all_same, "{script}: {stages:?}, and in bash {statuses:?}");
        prop_assert_eq!(as_shell(ours.status), attributed(&stages, pipefail), "{}", script);
        Ok(())
    });
    if let Err(error) = result {
        panic!("{error}");
    }
}
