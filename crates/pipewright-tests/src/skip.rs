//! Says aloud what was not tested, and what was found.

/// Prints that the calling test, or part of it, was not run, and why.
pub fn skipped(why: &str) {
    say("SKIPPED", why);
}

/// Prints a figure that the calling test has found and that no test is to hold it to.
pub fn counted(what: &str) {
    say("COUNTED", what);
}

/// Prints what a test has said aloud in another process.
pub(crate) fn pass_on(said: &str) {
    let is_aloud = |line: &&str| line.starts_with("SKIPPED ") || line.starts_with("COUNTED ");
    for line in said.lines().filter(is_aloud) {
        print(&format!("{line}\n"));
    }
}

fn say(kind: &str, text: &str) {
    let name = std::thread::current().name().unwrap_or("a test").to_owned();
    print(&format!("{kind} {name}: {text}\n"));
}

/// Straight to the terminal: the harness keeps the output of tests that pass to itself.
fn print(line: &str) {
    let _ = std::io::Write::write_all(&mut std::io::stderr().lock(), line.as_bytes());
}

/// Whether this build leaves out that facility (`--cfg pipewright_force_fallback`).
pub fn is_forced_off(facility: &str) -> bool {
    let one = match facility {
        "pidfd" => cfg!(pipewright_force_fallback = "pidfd"),
        "close_range" => cfg!(pipewright_force_fallback = "close_range"),
        "clone3" => cfg!(pipewright_force_fallback = "clone3"),
        "cgroup" => cfg!(pipewright_force_fallback = "cgroup"),
        "supervisor" => cfg!(pipewright_force_fallback = "supervisor"),
        "io_uring" => cfg!(pipewright_force_fallback = "io_uring"),
        "memfd" => cfg!(pipewright_force_fallback = "memfd"),
        "rwf_nowait" => cfg!(pipewright_force_fallback = "rwf_nowait"),
        // No kernel lacks these, so they have to be named.
        "vmsplice" => return cfg!(pipewright_force_fallback = "vmsplice"),
        "vfork" => return cfg!(pipewright_force_fallback = "vfork"),
        other => panic!("no facility is called {other}"),
    };
    one || cfg!(pipewright_force_fallback)
}

/// Whether this build runs verbs as tasks (`--cfg pipewright_force_async`), on a runtime that takes
/// handles of its own.
pub fn is_forced_async() -> bool {
    cfg!(pipewright_force_async)
}

/// Whether this process is root's.
#[cfg(unix)]
pub fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}
