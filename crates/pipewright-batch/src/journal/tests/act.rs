//! The test executable as another process: a runner that is killed, or that keeps a log.

use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, ChildStdout, Command, Stdio};

use super::*;

/// The variables that tell the other process what to do.
const ACT: &str = "PIPEWRIGHT_JOURNAL_ACT";
const LOG: &str = "PIPEWRIGHT_JOURNAL_LOG";

/// Another process, killed at the end of the test.
pub(super) struct Actor {
    pub(super) child: Child,
    lines: BufReader<ChildStdout>,
}

impl Actor {
    /// Returns the next line that it prints after "act: ". `None`: it has ended.
    pub(super) fn line(&mut self) -> Option<String> {
        loop {
            let mut line = String::new();
            if self.lines.read_line(&mut line).unwrap() == 0 {
                return None;
            }
            // A line that a kill has cut was not said. The harness prints lines of its own.
            let said = line.strip_suffix('\n').and_then(|line| line.split_once("act: "));
            if let Some((_, said)) = said {
                return Some(said.to_owned());
            }
        }
    }

    pub(super) fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for Actor {
    fn drop(&mut self) {
        // Ignored: it may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Starts this executable with that act. The words, if there are any, are a command that starts it.
pub(super) fn start(words: &[&str], act: &str, log: &Path) -> Actor {
    let own = std::env::current_exe().unwrap();
    let mut command = match words.split_first() {
        Some((program, words)) => {
            let mut command = Command::new(program);
            command.args(words).arg(own);
            command
        }
        None => Command::new(own),
    };
    command.args(["--exact", "journal::tests::act::act", "--ignored", "--nocapture"]);
    command.env(ACT, act).env(LOG, log).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap());
    Actor { child, lines }
}

pub(super) fn say(text: impl std::fmt::Display) {
    // In one call, so that a kill does not cut it in the middle of this process's own line.
    std::io::stdout().write_all(format!("act: {text}\n").as_bytes()).unwrap();
}

/// Waits until the test closes the other end of stdin.
pub(super) fn wait_for_test() {
    let _ = std::io::stdin().read_to_end(&mut Vec::new());
}

#[test]
#[ignore = "started by other tests"]
fn act() {
    let Some(log) = std::env::var_os(LOG).map(PathBuf::from) else { return };
    match &*std::env::var(ACT).unwrap() {
        "keep" => {
            let journal = Journal::create(&log, &facts(), no_waker());
            say(journal.as_ref().map_or_else(|error| error.to_string(), |_| "ready".into()));
            wait_for_test();
        }
        "resume" => {
            let journal = Journal::resume(&log, &facts(), no_waker());
            say(journal.as_ref().map_or_else(|error| error.to_string(), |_| "resumed".into()));
        }
        "crash" => super::resume::run_until_killed(&log),
        #[cfg(target_os = "linux")]
        "runs" => super::crash_states::write_runs(&log),
        "fill" => super::failing::fill(&log),
        "read-only" => super::opening::use_read_only_folder(&log),
        other => panic!("unknown act {other}"),
    }
}
