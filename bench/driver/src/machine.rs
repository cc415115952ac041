//! Where, when and with what the figures were measured.

use std::fs;

use crate::prepare::{Tools, first_line};

/// The crates whose versions the report names.
const CRATES: [&str; 6] = ["pipewright", "tokio", "duct", "subprocess", "processkit", "libc"];

/// A list in Markdown.
pub(crate) fn description(tools: &Tools) -> String {
    let workspace = &tools.workspace;
    let said = |program, arguments: &[&str]| first_line(program, arguments, workspace);
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    let lines = [
        format!("- date: {}", said("date", &["-u", "+%Y-%m-%d"])),
        format!("- commit: {}", said("git", &["describe", "--always", "--dirty"])),
        format!("- processor: {}, {cores} cores", field("/proc/cpuinfo", "model name")),
        format!("- memory: {}", field("/proc/meminfo", "MemTotal")),
        format!("- kernel: {}", whole("/proc/sys/kernel/osrelease")),
        format!("- huge pages: {}", whole("/sys/kernel/mm/transparent_hugepage/enabled")),
        format!("- Rust: {}", said("rustc", &["--version"])),
        format!("- crates: {}", crates(tools)),
        format!("- Python: {}", said("python3", &["--version"])),
        format!("- C: {}", said("cc", &["--version"])),
        format!("- coreutils: {}", said("timeout", &["--version"])),
    ];
    lines.join("\n")
}

fn whole(path: &str) -> String {
    fs::read_to_string(path).map_or_else(|_| "unknown".to_owned(), |text| text.trim().to_owned())
}

/// The value of the first `name: value` line.
fn field(path: &str, name: &str) -> String {
    let text = whole(path);
    let value = text.lines().find_map(|line| {
        let (key, value) = line.split_once(':')?;
        (key.trim() == name).then(|| value.trim().to_owned())
    });
    value.unwrap_or_else(|| "unknown".to_owned())
}

/// The versions that the lock file has chosen.
fn crates(tools: &Tools) -> String {
    let lock = fs::read_to_string(tools.workspace.join("Cargo.lock")).unwrap_or_default();
    let version = |name: &str| {
        let (_, rest) = lock.split_once(&format!("name = \"{name}\"\nversion = \""))?;
        rest.split('"').next()
    };
    CRATES.map(|name| format!("{name} {}", version(name).unwrap_or("unknown"))).join(", ")
}
