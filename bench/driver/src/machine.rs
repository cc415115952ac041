//! The date, the machine and the versions, for the report.

use std::fs;

use pipewright_bench::host;

use crate::prepare::{Tools, first_line};

/// The crates whose versions the report names.
const CRATES: [&str; 6] = ["pipewright", "tokio", "duct", "subprocess", "processkit", "libc"];

/// Returns a list in Markdown.
pub(crate) fn description(tools: &Tools) -> String {
    let workspace = &tools.workspace;
    let version = |program, arguments: &[&str]| first_line(program, arguments, workspace);
    let lines = [
        format!("- date: {}", version("date", &["-u", "+%Y-%m-%d"])),
        format!("- commit: {}", version("git", &["describe", "--always", "--dirty"])),
        format!("- machine: {}", host::look().line()),
        format!("- huge pages: {}", whole("/sys/kernel/mm/transparent_hugepage/enabled")),
        format!("- Rust: {}", version("rustc", &["--version"])),
        format!("- crates: {}", crates(tools)),
        format!("- Python: {}", version("python3", &["--version"])),
        format!("- C: {}", version("cc", &["--version"])),
        format!("- coreutils: {}", version("timeout", &["--version"])),
    ];
    lines.join("\n")
}

fn whole(path: &str) -> String {
    fs::read_to_string(path).map_or_else(|_| "unknown".to_owned(), |text| text.trim().to_owned())
}

/// Returns the versions of the crates in the lock file.
fn crates(tools: &Tools) -> String {
    let lock = fs::read_to_string(tools.workspace.join("Cargo.lock")).unwrap_or_default();
    let version = |name: &str| {
        let (_, rest) = lock.split_once(&format!("name = \"{name}\"\nversion = \""))?;
        rest.split('"').next()
    };
    CRATES.map(|name| format!("{name} {}", version(name).unwrap_or("unknown"))).join(", ")
}
