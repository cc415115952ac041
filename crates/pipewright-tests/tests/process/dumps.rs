//! Signals that dump core and arrive during a start: the child shares the memory of its parent, which must not be dumped.

use pipewright::{Command, TreeSlot};
use pipewright_test_macros::isolated_test;
use pipewright_tests::skip::{Need, is_forced_off, skipped};
use pipewright_tests::watchdog;

use super::puppet;
use super::tree_slot::has_no_slots;

const CASE: &str = "PIPEWRIGHT_DUMPS_CASE";

extern "C" fn nothing(_: i32) {}

/// Runs this test again under strace, which sends a signal to each process at its first call of that name. The process of the
/// test handles it. Returns the name of the case in the process that does it.
fn inside(call: &str, signal: &str, case: &str) -> Option<String> {
    if let Ok(case) = std::env::var(CASE) {
        for signal in [libc::SIGQUIT, libc::SIGABRT] {
            // SAFETY: a function that does nothing.
            unsafe { libc::signal(signal, nothing as extern "C" fn(i32) as usize) };
        }
        let most = libc::rlimit { rlim_cur: libc::RLIM_INFINITY, rlim_max: libc::RLIM_INFINITY };
        // SAFETY: a live struct. Ignored: then no core is dumped anyway.
        unsafe { libc::setrlimit(libc::RLIMIT_CORE, &raw const most) };
        return Some(case);
    }
    let mut command = std::process::Command::new("strace");
    command.args(["-f", "-qq", "-o", "/dev/null", "-e", &format!("trace={call}"), "-e"]);
    command.arg(format!("inject={call}:signal={signal}:when=1"));
    // Until the test handles it.
    command.args(["sh", "-c", "trap '' QUIT ABRT; exec \"$@\"", "sh"]);
    command.arg(std::env::current_exe().unwrap()).arg(watchdog::current_test());
    command.args(["--exact", "--nocapture", "--test-threads=1"]);
    let output = command.env(CASE, case).output().unwrap();
    assert!(output.status.success(), "{call}, {signal}, {case}: {output:?}");
    None
}

fn cannot_test() -> bool {
    if Command::new("strace").arg("-V").output().is_err() {
        skipped(Need::Program("strace"), "it makes calls fail");
        return true;
    }
    if is_forced_off("vfork") {
        skipped(Need::Vfork, "children share no memory");
        return true;
    }
    false
}

#[isolated_test]
fn a_signal_that_dumps_core_during_a_start_dumps_nothing_of_the_parent() {
    if std::env::var_os(CASE).is_none() && cannot_test() {
        return;
    }
    // Each attempt finds the signal pending; or it arrives after the last look, when signals are unblocked.
    for (call, signal) in [
        ("rt_sigpending", "SIGQUIT"),
        ("rt_sigpending", "SIGABRT"),
        ("rt_sigpending", "SIGBUS"),
        ("rt_sigprocmask", "SIGQUIT"),
        ("rt_sigprocmask", "SIGABRT"),
    ] {
        if inside(call, signal, "plain").is_some() {
            let ended = puppet(["exit=0"]).status().unwrap();
            assert_eq!(ended.signal(), Some(libc::SIGKILL), "{ended}");
            return;
        }
    }
}

#[isolated_test]
fn a_signal_that_dumps_core_during_a_start_in_a_slot_leaves_the_supervisor_alone() {
    if std::env::var_os(CASE).is_none() && (cannot_test() || has_no_slots()) {
        return;
    }
    if inside("rt_sigpending", "SIGQUIT", "slot").is_some() {
        let slot = TreeSlot::new().unwrap();
        for _ in 0..2 {
            let ended = puppet(["exit=0"]).contain_in(&slot).status().unwrap();
            assert_eq!(ended.signal(), Some(libc::SIGKILL), "{ended}");
        }
    }
}
