//! `pipewright batch` and `pipewright jobs`.
//!
//! | file | contents |
//! |---|---|
//! | `input.rs` | the jobs of every kind of input, their identity, exit codes, and bad input |
//! | `packing.rs` | values as `xargs` and GNU parallel take them: several in a job, columns, lists side by side |
//! | `joblog.rs` | job logs, JUnit XML and tags; starts that are held back |
//! | `lock.rs` | `pipewright lock` |
//! | `output.rs` | the output of jobs: tags, folders, limits, whole, and kept when a batch died |
//! | `log.rs` | logs, batches that are resumed, and one runner for one log |
//! | `signals.rs` | signals to a batch and its terminal; batches that always end |
//! | `never_answers.rs` | batches beside what never answers, and jobs of another user |
//! | `crash_exact.rs` | runners that are killed, and disks that become full |
//! | `equals.rs` | random batches, as `xargs`, GNU parallel and `make` run them |
//! | `jobserver.rs` | slots that are shared with make, cargo and ninja |
//! | `memory.rs` | memory beside many jobs and much output, and the memory of jobs |
//! | `looking.rs` | `jobs`, the reports, and the bar |

mod crash_exact;
mod equals;
mod input;
mod joblog;
mod jobserver;
mod lock;
mod log;
mod looking;
mod memory;
#[cfg(target_os = "linux")]
mod never_answers;
mod output;
mod packing;
mod signals;

use std::io::Write as _;
use std::process::{Command, Output, Stdio};

use super::{Place, err, out, pace, sorted};

impl Place {
    /// Runs `batch` without messages, and with this input.
    fn batch_of(&self, input: &str, args: &[&str]) -> Output {
        let mut command = self.tool(&[&["batch", "--quiet"], args].concat());
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        // Ignored: a batch that refuses its options does not read.
        let _ = child.stdin.take().unwrap().write_all(input.as_bytes());
        child.wait_with_output().unwrap()
    }

    /// Runs a shell script with the tool as `$PW`.
    fn sh(&self, script: &str) -> Output {
        self.shell(script).output().unwrap()
    }

    /// Returns the command that [`sh`](Self::sh) runs.
    fn shell(&self, script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script]).env("PW", env!("CARGO_BIN_EXE_pipewright"));
        command.current_dir(self.path("")).stdin(Stdio::null());
        command
    }

    /// Makes a named pipe that nobody has opened.
    fn make_pipe(&self, name: &str) {
        let made = Command::new("mkfifo").arg(self.path(name)).status().unwrap();
        assert!(made.success());
    }

    /// Returns the rows of a query of a log, with `|` between values. `None`, with a message: nothing here can query
    /// it.
    pub(super) fn rows(&self, log: &str, query: &str) -> Option<Vec<String>> {
        // A log may be locked for a moment, as when a runner begins or ends.
        let python = "import sqlite3, sys\n\
            for row in sqlite3.connect(sys.argv[1], timeout=30).execute(sys.argv[2]):\n\
            \x20print('|'.join('' if it is None else str(it) for it in row))";
        for program in [&["sqlite3", "-cmd", ".timeout 30000"][..], &["python3", "-c", python]] {
            let mut command = Command::new(program[0]);
            command.args(&program[1..]).arg(self.path(log)).arg(query);
            let Ok(output) = command.output() else { continue };
            assert!(output.status.success(), "{program:?}: {}", err(&output));
            return Some(out(&output).lines().map(ToOwned::to_owned).collect());
        }
        pace::skipped(pace::Need::Program("sqlite3"), "neither sqlite3 nor python3 is here");
        None
    }
}

/// A function of a shell that waits until a process has taken a SIGTERM, or has ended: the kernel makes one of two that
/// wait. (Bit 14 of the mask is in the fourth digit from the end.) Without `/proc` it waits a moment.
const TAKEN: &str = "taken() { sleep 0.3; while grep -q '^ShdPnd:.*[4-7c-f]...$' /proc/$1/status 2> /dev/null; \
                     do sleep 0.01; done; };";

/// A job that notes its value, and fails if there is a file `fail-VALUE`.
const NOTE: &str = "echo {} >> ran; test ! -e fail-{}";

/// Runs such jobs with a log.
fn note(place: &Place, options: &[&str], values: &[&str]) -> Output {
    let words = ["--", "sh", "-c", NOTE, ":::"];
    place.batch(&[&["--log", "run.db"], options, &words[..], values].concat())
}

/// Checks an exit code and a message of one line.
#[track_caller]
fn refused(output: &Output, words: &[&str]) {
    let text = err(output);
    assert_eq!(output.status.code(), Some(125), "{text}");
    assert_eq!(text.lines().count(), 1, "{text}");
    assert!(text.starts_with("pipewright: "), "{text}");
    for word in words {
        assert!(text.contains(word), "{word:?} is not in {text}");
    }
}

/// Runs `program --version`. `None`, with a message, if this machine does not have the program.
fn version(program: &str) -> Option<Output> {
    let mut command = Command::new(program);
    match command.arg("--version").stdin(Stdio::null()).output() {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            pace::skipped(pace::Need::Program(program), "is not here");
            None
        }
        output => Some(output.unwrap()),
    }
}
