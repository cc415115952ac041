//! A small task runner: tasks that depend on others, two at a time, with retries for flaky ones.
//!
//! `cargo run --example runner`

use std::collections::BTreeSet;
use std::error::Error;
use std::time::Duration;

use pipewright::{Command, Runner};

struct Task {
    name: &'static str,
    needs: &'static [&'static str],
    attempts: u32,
    script: &'static str,
}

const TASKS: [Task; 5] = [
    Task { name: "package", needs: &["test", "lint"], attempts: 1, script: "echo packaged" },
    Task { name: "compile", needs: &[], attempts: 1, script: "echo compiled" },
    // Fails the first time.
    Task { name: "test", needs: &["compile"], attempts: 3, script: "test $1 -ge 2 && echo tested" },
    Task { name: "lint", needs: &["compile"], attempts: 1, script: "echo linted | tr a-z A-Z" },
    Task { name: "docs", needs: &["missing"], attempts: 1, script: "echo documented" },
];

impl Task {
    fn command(&self, attempt: u32) -> Command {
        // Without `owned`, this function would return a reference to a temporary.
        Command::new("sh")
            .args(["-c", self.script, self.name])
            .arg(attempt.to_string())
            .timeout(Duration::from_secs(60))
            .owned()
    }
}

pub(crate) fn main() -> Result<(), Box<dyn Error>> {
    let (mut started, mut done) = (BTreeSet::new(), Vec::new());
    let mut runner = Runner::new(2);
    loop {
        // Push all tasks that became ready. The key has all that is needed to continue or to retry.
        for task in &TASKS {
            let is_ready = task.needs.iter().all(|need| done.contains(need));
            if is_ready && started.insert(task.name) {
                runner.push((task, 1), task.command(1));
            }
        }
        let Some(((task, attempt), result)) = runner.next() else { break };
        let capture = result?;
        if capture.success() {
            println!("{}: {}", task.name, capture.stdout.trim_end());
            done.push(task.name);
        } else if attempt < task.attempts {
            println!("{}: {}, attempt {attempt}", task.name, capture.status);
            runner.push((task, attempt + 1), task.command(attempt + 1));
        } else {
            println!("{}: {}", task.name, capture.status);
            // Running tasks continue; queued ones are not started.
            runner.cancel_queued();
        }
    }
    for task in TASKS.iter().filter(|task| !done.contains(&task.name)) {
        println!("{}: not done, needs {:?}", task.name, task.needs);
    }
    assert_eq!((done.first(), done.last()), (Some(&"compile"), Some(&"package")));
    Ok(())
}
