//! Reports of tests, written directly to the terminal: skipped parts, and figures.

use std::fmt::Display;

pub use pipewright_os::base::skipped::{Need, skipped};
use pipewright_os::base::test_hooks::{Forced, NAMES, is_forced};

/// A thing that the machine lacks, as the error of a function.
#[derive(Debug)]
pub struct Lack {
    need: Need<'static>,
    detail: String,
}

impl Lack {
    pub fn new(need: Need<'static>, detail: impl Display) -> Lack {
        Lack { need, detail: detail.to_string() }
    }

    /// Replaces what is needed.
    #[must_use]
    pub fn of(self, need: Need<'static>) -> Lack {
        Lack { need, ..self }
    }

    /// Prints that the calling test was skipped.
    pub fn skip(&self) {
        skipped(self.need, &self.detail);
    }

    /// Prints that part of the calling test was skipped.
    pub fn skip_part(&self, part: &str) {
        skipped(self.need, format_args!("{part}: {}", self.detail));
    }
}

/// Prints a figure that the calling test has measured and does not assert.
pub fn counted(what: &str) {
    let name = std::thread::current().name().unwrap_or("unnamed").to_owned();
    print(&format!("COUNTED {name}: {what}\n"));
}

/// Prints the reports of a test that ran in another process.
pub(crate) fn pass_on(output: &str) {
    let is_aloud = |line: &&str| line.starts_with("SKIPPED ") || line.starts_with("COUNTED ");
    for line in output.lines().filter(is_aloud) {
        print(&format!("{line}\n"));
    }
}

/// Writes to the terminal: the harness captures the output of tests that pass.
fn print(line: &str) {
    let _ = std::io::Write::write_all(&mut std::io::stderr().lock(), line.as_bytes());
}

/// Returns true if the tests do without that facility (`PIPEWRIGHT_FORCE` in a build with test hooks).
pub fn is_forced_off(facility: &str) -> bool {
    let known = NAMES.iter().find(|(name, _)| *name == facility);
    is_forced(known.unwrap_or_else(|| panic!("no facility is called {facility}")).1)
}

/// Returns true if verbs run as tasks (`PIPEWRIGHT_FORCE=async` in a build with test hooks), on a runtime that has its
/// own handles.
pub fn is_forced_async() -> bool {
    is_forced(Forced::Async)
}

/// Returns true under Wine, which differs from Windows in places.
pub fn is_wine() -> bool {
    cfg!(windows) && pipewright_os::host::host_info::look().imitation
}

/// Returns true if this process runs as root.
#[cfg(unix)]
pub fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Returns the major and the minor version of Linux; elsewhere zeroes.
pub fn kernel() -> (u32, u32) {
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let mut numbers = release.split(['.', '-']).map_while(|part| part.trim().parse().ok());
    (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0))
}
