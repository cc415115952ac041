//! The languages of workers, and how their test workers are started.

use std::path::{Path, PathBuf};

use pipewright::{Command, ErrorKind};
use pipewright_ipc::{Channel, Options};
use pipewright_tests::skip;

/// A language that workers are written in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Language {
    Python,
}

/// The test worker of a language.
#[derive(Debug)]
pub(super) struct Client {
    pub(super) language: Language,
    program: Vec<PathBuf>,
}

fn clients() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../clients")
}

/// Returns true if this machine has the program. Reports that the test is skipped otherwise.
fn has(program: &str) -> bool {
    match Command::new(program).arg("--version").output() {
        Err(error) if matches!(error.kind(), ErrorKind::NotFound { .. }) => {
            skip::skipped(&format!("no {program} here"));
            false
        }
        version => version.unwrap().status.success(),
    }
}

impl Language {
    /// Returns its test worker. `None`: this machine cannot run it, as was reported.
    pub(super) fn client(self) -> Option<Client> {
        let program = match self {
            Language::Python => has("python3")
                .then(|| vec!["python3".into(), clients().join("python/tests/worker.py")]),
        };
        program.map(|program| Client { language: self, program })
    }
}

impl Client {
    /// Returns true if its messages can go through shared memory on this machine.
    pub(super) fn has_shared_memory(&self) -> bool {
        let is_linux = cfg!(target_os = "linux") && !skip::is_forced_off("memfd");
        match self.language {
            Language::Python => is_linux && cfg!(target_arch = "x86_64"),
        }
    }

    /// Returns true if handles can be passed to it.
    pub(super) fn carries_handles(&self) -> bool {
        match self.language {
            Language::Python => true,
        }
    }

    /// Returns the command of its worker of that kind: `MODE KEY=VALUE...`.
    pub(super) fn worker(&self, kind: &str) -> Command {
        let mut command = Command::new(&self.program[0]);
        command.args(&self.program[1..]).args(kind.split(' '));
        // No files of bytecode beside the sources.
        command.env("PYTHONDONTWRITEBYTECODE", "1");
        command
    }

    /// Starts its worker of that kind, and returns the channel to it.
    #[track_caller]
    pub(super) fn start(&self, kind: &str, options: &Options) -> Channel {
        Channel::start(&mut self.worker(kind), options).unwrap()
    }
}
