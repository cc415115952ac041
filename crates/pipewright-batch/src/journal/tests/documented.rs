//! docs/batch-log.md describes the log as it is, and its examples run.

use std::collections::BTreeSet;
use std::process::Command;

use super::*;
use crate::vocabulary::Failure;

fn document() -> String {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/batch-log.md");
    std::fs::read_to_string(path).unwrap()
}

/// Returns the code blocks of a language.
fn blocks(document: &str, language: &str) -> Vec<String> {
    let fence = format!("```{language}\n");
    let blocks = document.split(&fence).skip(1);
    blocks.map(|rest| rest.split("```").next().unwrap().to_owned()).collect()
}

/// Makes a log with a success after a failure, a failure, and a job that runs.
fn sample(path: &Path) -> Journal {
    let mut journal = create(path);
    for (number, attempt, code) in [(1, 1, 1), (1, 2, 0), (2, 1, 3)] {
        let (job, output) =
            (job(number), LoggedOutput { stderr_tail: b"no space\n", ..LoggedOutput::default() });
        journal.intend(&intent(logged(number, &job), attempt));
        journal.ended(&end(number, attempt, AttemptOutcome::Exited(code)), output);
        if number == 2 {
            let state = JobState::failed(Failure::ExitCode);
            journal.settled(&logged(number, &job), state, Some("exited with 3"));
        }
    }
    journal.intend(&intent(logged(3, &job(3)), 1));
    journal.flush().unwrap();
    journal
}

#[test]
fn every_table_and_column_is_documented_and_no_other() {
    let folder = Folder::new();
    create(&folder.log()).close(None, "finished").unwrap();
    let connection = rusqlite::Connection::open(folder.log()).unwrap();
    let query = "SELECT s.name, c.name FROM sqlite_schema s, pragma_table_info(s.name) c";
    let mut query = connection.prepare(query).unwrap();
    let columns = query.query_map([], |row| Ok((row.get(0)?, row.get(1)?))).unwrap();
    let columns: BTreeSet<(String, String)> = columns.map(Result::unwrap).collect();

    let document = document();
    let mut documented = BTreeSet::new();
    for section in document.split("\n### ").skip(1) {
        let section = section.split("\n## ").next().unwrap();
        let (table, rest) = section.split_once('\n').unwrap();
        let rows = rest.split("| column |").nth(1).unwrap().split("\n\n").next().unwrap();
        for row in rows.lines().skip(2) {
            let names = row.split('|').nth(1).unwrap();
            let names = names.split('`').skip(1).step_by(2);
            documented.extend(names.map(|name| (table.to_owned(), name.to_owned())));
        }
    }
    assert_eq!(documented, columns);
}

#[test]
fn every_word_is_documented() {
    let document = document();
    for state in JobState::ALL {
        for word in [Some(state.name()), state.failure().map(Failure::name)].into_iter().flatten() {
            assert!(document.contains(&format!("`{word}`")), "{word}");
        }
    }
}

#[test]
fn the_documented_questions_have_answers() {
    let folder = Folder::new();
    let _journal = sample(&folder.log());
    let document = document();
    let log = rusqlite::Connection::open(folder.log()).unwrap();
    let questions: Vec<String> = blocks(&document, "sql")
        .iter()
        .flat_map(|block| block.split(';'))
        .filter(|question| !question.trim().is_empty())
        .map(str::to_owned)
        .collect();
    assert!(questions.len() >= 5, "{questions:?}");
    for question in &questions {
        let mut query = log.prepare(question).unwrap();
        assert!(query.query([]).unwrap().next().unwrap().is_some(), "no answer: {question}");
        let words: Vec<_> = question.lines().filter(|line| !line.starts_with("--")).collect();
        let mut sqlite3 = Command::new("sqlite3");
        sqlite3.args(["-readonly", "-cmd", &words.join(" ")]).arg(folder.log());
        sqlite3.stdin(std::process::Stdio::null());
        let Some(output) = installed(&mut sqlite3) else { return };
        let text = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && !output.stdout.is_empty(), "{question}: {text}");
    }
}

#[test]
fn the_documented_python_runs() {
    let folder = Folder::new();
    let _journal = sample(&folder.log());
    let document = document();
    let programs = blocks(&document, "python");
    let [program] = &programs[..] else { panic!("{programs:?}") };
    let mut python = Command::new("python3");
    python.arg("-c").arg(program).current_dir(folder.0.path());
    let Some(output) = installed(&mut python) else { return };
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let expected = "1: job 1 took 0.001 s\n1: job 1 took 0.001 s\n2: job 2 took 0.002 s\n";
    assert_eq!(said, expected, "{}", String::from_utf8_lossy(&output.stderr));
}
