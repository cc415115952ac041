//! Signals to the tool stop the command, or are forwarded to it.

use std::io::{BufRead, BufReader, Lines};
use std::process::{Child, ChildStdout, Command, Stdio};

use super::trees::until;
use super::{pace, pipewright};

/// Starts a shell that prints the signals it gets.
fn listening(options: &[&str], end: &str) -> (Child, Lines<BufReader<ChildStdout>>) {
    let mut traps = String::new();
    for name in ["INT", "TERM", "HUP", "QUIT", "USR1", "USR2"] {
        let end = if ["INT", "TERM", "HUP"].contains(&name) { end } else { "" };
        traps += &format!("trap 'echo {name}; {end}' {name}; ");
    }
    let script = format!("{traps} echo ready; while :; do sleep 0.02; done");
    let mut args = vec!["run"];
    args.extend(options);
    args.extend(["--", "bash", "-c", &script]);
    let mut child = pipewright(&args).stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    assert_eq!(lines.next().unwrap().unwrap(), "ready");
    (child, lines)
}

fn send(signal: &str, pid: u32) {
    let status = Command::new("kill").args([format!("-{signal}"), pid.to_string()]).status();
    assert!(status.unwrap().success());
}

/// Returns true, with a message, if this process ignores a signal, as below `nohup` or after `&` in a shell. The command
/// then ignores it too.
fn is_ignored(name: &str, number: u32) -> bool {
    // Unknown without `/proc`: then the test finds out.
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:")).unwrap_or("0");
    let ignored = (u64::from_str_radix(mask.trim(), 16).unwrap() >> (number - 1)) & 1 == 1;
    if ignored {
        pace::skipped(pace::Need::DefaultSignals, format_args!("SIG{name} is ignored"));
    }
    ignored
}

#[cfg(target_os = "linux")]
#[test]
fn a_failed_start_of_the_signal_thread_is_reported() {
    // The limit does not apply to root. No other process runs as this user.
    let other = rustix::process::geteuid().is_root().then_some(54_321);
    for args in [["run", "--", "true"], ["pipe", "--", "true"]] {
        let mut command = pipewright::Command::new(env!("CARGO_BIN_EXE_pipewright"));
        command.args(args).rlimit(pipewright::Resource::Processes, Some(1), Some(1));
        if let Some(user) = other {
            command.uid(user).gid(user).groups(&[]);
        }
        let output = match command.capture() {
            Ok(output) => output,
            Err(error) => {
                pace::skipped(pace::Need::PublicTarget, error);
                return;
            }
        };
        let words =
            "pipewright: cannot catch signals: Resource temporarily unavailable (os error 11)\n";
        assert_eq!((output.stderr.as_str(), output.status.code()), (words, Some(125)));
    }
}

#[test]
fn the_command_gets_the_stop_signal_that_the_tool_got() {
    for (name, number) in [("INT", 2), ("TERM", 15), ("HUP", 1)] {
        if is_ignored(name, number) {
            continue;
        }
        for options in [&["--quiet"][..], &["--quiet", "--contain", "group"]] {
            let (mut child, mut lines) = listening(options, "exit 3");
            send(name, child.id());
            assert_eq!(lines.next().unwrap().unwrap(), name);
            assert_eq!(child.wait().unwrap().code(), Some(128 + number as i32), "{name}");
        }
    }
}

#[test]
fn a_command_that_ignores_the_stop_signal_is_killed_after_the_grace() {
    // Long enough for a shell to report the signal on a busy machine.
    let (mut child, mut lines) = listening(&["--quiet", "--kill-grace", "3s"], ":");
    send("TERM", child.id());
    assert_eq!(lines.next().unwrap().unwrap(), "TERM");
    assert_eq!(child.wait().unwrap().code(), Some(143));
}

#[test]
fn other_signals_are_forwarded_and_stop_nothing() {
    let (mut child, mut lines) = listening(&["--quiet"], "exit 3");
    for (name, number) in [("USR1", 10), ("USR2", 12), ("QUIT", 3), ("USR1", 10)] {
        if is_ignored(name, number) {
            continue;
        }
        send(name, child.id());
        assert_eq!(lines.next().unwrap().unwrap(), name);
    }
    send("TERM", child.id());
    assert_eq!(lines.next().unwrap().unwrap(), "TERM");
    child.wait().unwrap();
}

#[test]
fn a_stop_signal_before_the_start_ends_the_tool() {
    if pace::lacks_proc() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let fifo = dir.path().join("fifo");
    assert!(Command::new("mkfifo").arg(&fifo).status().unwrap().success());
    let fifo = fifo.to_str().unwrap();
    // No process opens the other side, so the command never starts.
    let ways = [
        &["run", "--stdin", fifo, "--", "cat"][..],
        &["run", "--stdout", fifo, "--", "true"],
        &["pipe", "--", "<", fifo, "cat"],
        &["pipe", "--", "true", ">", fifo],
    ];
    for args in ways {
        let mut child = pipewright(args).spawn().unwrap();
        until("it catches signals", || catches(child.id(), 15));
        send("TERM", child.id());
        assert_eq!(child.wait().unwrap().code(), Some(143), "{args:?}");
    }
    let mut child = pipewright(&["run", "--report", fifo, "--", "true"]).spawn().unwrap();
    until("it catches signals", || catches(child.id(), 15));
    // The signal may arrive before or after the end of the command: both have to end the tool.
    until("it has ended", || {
        send("TERM", child.id());
        child.try_wait().unwrap().is_some()
    });
    assert_eq!(child.wait().unwrap().code(), Some(143));
}

/// Returns true if the process catches a signal, which it blocks for that. While a thread starts, all signals are blocked, among
/// them those that no process here catches.
pub(super) fn catches(pid: u32, signal: u32) -> bool {
    const VTALRM: u32 = 26;
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigBlk:")).unwrap_or("0");
    let mask = u64::from_str_radix(mask.trim(), 16).unwrap_or(0);
    let blocks = |signal: u32| mask >> (signal - 1) & 1 == 1;
    blocks(signal) && !blocks(VTALRM)
}
