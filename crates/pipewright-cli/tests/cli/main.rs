//! `pipewright` from the outside: its output, exit codes, and the processes and files it leaves.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests end where they cannot go on")]

#[cfg(target_os = "linux")]
mod attributes;
#[cfg(unix)]
mod batch;
mod bench;
#[cfg(target_os = "linux")]
mod bench_rough;
#[cfg(target_os = "linux")]
mod completions;
mod disk;
#[cfg(target_os = "linux")]
mod documents;
#[cfg(target_os = "linux")]
mod first_process;
mod help;
#[cfg(unix)]
mod limits;
#[cfg(target_os = "linux")]
mod nodes;
#[cfg(target_os = "linux")]
mod one_liners;
#[cfg(unix)]
mod pipe;
#[cfg(unix)]
mod pty;
#[cfg(unix)]
mod report;
#[cfg(unix)]
mod run;
mod shared;
#[cfg(unix)]
mod terminal;
#[cfg(target_os = "linux")]
mod terminal_ends;
#[cfg(target_os = "linux")]
mod timeout;
#[cfg(unix)]
mod trees;
#[cfg(windows)]
mod windows;

#[cfg(unix)]
use std::process::Child;
use std::process::{Command, Output, Stdio};

use shared::{Place, pace};
#[cfg(unix)]
use shared::{random, sorted, watchdog::Watchdog};

/// Returns the tool with arguments, not yet started.
fn pipewright(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_pipewright"));
    command.args(args).stdin(Stdio::null());
    command
}

/// Runs `pipewright run` with options, and a shell script as its command.
#[cfg(unix)]
fn run_sh(options: &[&str], script: &str) -> Output {
    let mut args = vec!["run"];
    args.extend(options);
    args.extend(["--", "sh", "-c", script]);
    pipewright(&args).output().expect("the tool starts")
}

/// Returns the tool without arguments, with the default effect of the stop signals. A signal ignored by the test would
/// stay ignored; under nohup that is HUP.
#[cfg(unix)]
fn with_default_stop_signals() -> Command {
    // The `env` of macOS cannot do it.
    let words: &[&str] = match cfg!(target_os = "macos") {
        true => &["perl", "-e", r#"$SIG{$_} = "DEFAULT" for qw(TERM INT HUP); exec @ARGV"#, "--"],
        false => &["env", "--default-signal=TERM,INT,HUP"],
    };
    let mut command = Command::new(words[0]);
    command.args(&words[1..]).arg(env!("CARGO_BIN_EXE_pipewright"));
    command
}

/// Sends a signal by its name, such as `TERM`.
#[cfg(unix)]
#[track_caller]
fn send_signal(process: &Child, signal: &str) {
    let pid = process.id().to_string();
    let status = Command::new("kill").args(["-s", signal, &pid]).status();
    assert!(status.expect("kill starts").success());
}

/// Returns true if a process with this pid runs.
#[cfg(unix)]
fn is_running(pid: &str) -> bool {
    let pid = pid.trim();
    if cfg!(target_os = "linux") {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"));
        return stat.is_ok_and(|stat| !stat.contains(") Z "));
    }
    let output = Command::new("ps").args(["-o", "stat=", "-p", pid]).output().expect("ps starts");
    let state = out(&output).trim();
    !state.is_empty() && !state.starts_with('Z')
}

fn out(output: &Output) -> &str {
    std::str::from_utf8(&output.stdout).expect("the tool prints text")
}

fn err(output: &Output) -> &str {
    std::str::from_utf8(&output.stderr).expect("the tool prints text")
}
