//! Reports of tests, written directly to the terminal: skipped parts, and figures.

use pipewright_os::base::test_hooks::{Forced, is_forced};

/// Prints that the calling test, or part of it, was skipped, and the reason.
pub fn skipped(reason: &str) {
    say("SKIPPED", reason);
}

/// Prints a figure that the calling test has measured and does not assert.
pub fn counted(what: &str) {
    say("COUNTED", what);
}

/// Prints the reports of a test that ran in another process.
pub(crate) fn pass_on(output: &str) {
    let is_aloud = |line: &&str| line.starts_with("SKIPPED ") || line.starts_with("COUNTED ");
    for line in output.lines().filter(is_aloud) {
        print(&format!("{line}\n"));
    }
}

fn say(kind: &str, text: &str) {
    let name = std::thread::current().name().unwrap_or("a test").to_owned();
    print(&format!("{kind} {name}: {text}\n"));
}

/// Writes to the terminal: the harness captures the output of tests that pass.
fn print(line: &str) {
    let _ = std::io::Write::write_all(&mut std::io::stderr().lock(), line.as_bytes());
}

/// Returns true if the tests do without that facility (`PIPEWRIGHT_FORCE` in a build with test hooks).
pub fn is_forced_off(facility: &str) -> bool {
    is_forced(match facility {
        "pidfd" => Forced::NoPidfd,
        "close_range" => Forced::NoCloseRange,
        "clone3" => Forced::NoClone3,
        "cgroup" => Forced::NoCgroup,
        "supervisor" => Forced::NoSupervisor,
        "io_uring" => Forced::NoIoUring,
        "memfd" => Forced::NoMemfd,
        "rwf_nowait" => Forced::NoRwfNowait,
        "vmsplice" => Forced::NoVmsplice,
        "vfork" => Forced::NoSharedMemory,
        other => panic!("no facility is called {other}"),
    })
}

/// Returns true if verbs run as tasks (`PIPEWRIGHT_FORCE=async` in a build with test hooks), on a runtime that has its own
/// handles.
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
