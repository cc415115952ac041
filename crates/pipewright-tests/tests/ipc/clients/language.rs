//! The languages of workers, and how their test workers are started.

use std::path::{Path, PathBuf};
#[cfg(unix)]
use std::sync::OnceLock;

use pipewright::Command;
#[cfg(unix)]
use pipewright::ErrorKind;
use pipewright_ipc::{Channel, Options};
use pipewright_tests::skip;

/// A language that workers are written in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Language {
    /// The library itself, for the hostile hosts.
    Rust,
    C,
    Python,
    Node,
}

/// The test worker of a language.
#[derive(Debug)]
pub(super) struct Client {
    pub(super) language: Language,
    program: Vec<PathBuf>,
}

pub(super) fn clients() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../clients")
}

/// Returns the program in C that `ci/windows.sh` has compiled, as there is no compiler under Wine.
#[cfg(windows)]
pub(super) fn compiled_before(name: &str) -> Option<PathBuf> {
    let folder = std::env::var_os("PIPEWRIGHT_C_WORKERS");
    if folder.is_none() {
        skip::skipped(
            skip::Need::CWorkers,
            "the workers in C were not compiled: see ci/windows.sh",
        );
    }
    Some(Path::new(&folder?).join(name).with_extension("exe"))
}

/// Returns true if this machine has the program. Reports that the test is skipped otherwise.
#[cfg(unix)]
fn has(program: &str) -> bool {
    match Command::new(program).arg("--version").output() {
        Err(error) if matches!(error.kind(), ErrorKind::NotFound { .. }) => {
            skip::skipped(skip::Need::Program(program), "is not here");
            false
        }
        version => version.unwrap().status.success(),
    }
}

/// Compiles a program of `clients`, with all warnings.
#[cfg(unix)]
pub(super) fn compile(source: &str, flags: &[&str], program: &Path) {
    let mut command = Command::new("cc");
    command.args(["-std=c99", "-Wall", "-Wextra", "-Wpedantic", "-Werror"]).args(flags);
    command.arg("-I").arg(clients().join("c")).arg(clients().join(source));
    command.arg("-o").arg(program).run().unwrap();
}

/// Compiles the worker in C with the address and undefined behaviour sanitizers, once.
#[cfg(unix)]
fn compiled() -> PathBuf {
    static COMPILED: OnceLock<PathBuf> = OnceLock::new();
    let compiled = || {
        let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join("pipewright-worker-c");
        let sanitizers = ["-fsanitize=address,undefined", "-fno-sanitize-recover=all"];
        compile("c/tests/worker.c", &[&["-g", "-O1"], &sanitizers[..]].concat(), &program);
        program
    };
    COMPILED.get_or_init(compiled).clone()
}

impl Language {
    /// Returns its test worker. `None`: this machine cannot run it, as was reported.
    #[cfg(windows)]
    pub(super) fn client(self) -> Option<Client> {
        let program = match self {
            Language::Rust => PathBuf::from(env!("CARGO_BIN_EXE_puppet")),
            Language::C => compiled_before("worker")?,
            Language::Python | Language::Node => {
                skip::skipped(skip::Need::Unix, "this client is for Unix only");
                return None;
            }
        };
        Some(Client { language: self, program: vec![program] })
    }

    /// Returns its test worker. `None`: this machine cannot run it, as was reported.
    #[cfg(unix)]
    pub(super) fn client(self) -> Option<Client> {
        let script = |program: &str, file: &str| {
            has(program).then(|| vec![program.into(), clients().join(file)])
        };
        let program = match self {
            Language::Rust => Some(vec![env!("CARGO_BIN_EXE_puppet").into()]),
            Language::C => has("cc").then(|| vec![compiled()]),
            Language::Python => script("python3", "python/tests/worker.py"),
            Language::Node => script("node", "node/tests/worker.mjs"),
        };
        program.map(|program| Client { language: self, program })
    }
}

impl Client {
    /// Returns true if its messages can go through shared memory on this machine.
    pub(super) fn has_shared_memory(&self) -> bool {
        let is_linux = cfg!(target_os = "linux") && !skip::is_forced_off("memfd");
        match self.language {
            Language::Rust => is_linux || cfg!(any(windows, target_os = "macos")),
            Language::C => (is_linux || cfg!(windows)) && cfg!(target_pointer_width = "64"),
            Language::Python => is_linux && cfg!(target_arch = "x86_64"),
            Language::Node => false,
        }
    }

    /// Returns true if handles can be passed to it.
    pub(super) fn carries_handles(&self) -> bool {
        match self.language {
            Language::Rust | Language::C | Language::Python => true,
            Language::Node => false,
        }
    }

    /// Returns the command of its worker of that kind: `MODE KEY=VALUE...`.
    pub(super) fn worker(&self, kind: &str) -> Command {
        let mut command = Command::new(&self.program[0]);
        if self.language == Language::Rust {
            command.arg(format!("ipc={}", kind.replace(' ', ",")));
            return command;
        }
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
