//! The tool as the first process of a container: it reaps orphans, passes signals on, and has the exit code of its
//! command.

use std::fs;
use std::io::{BufRead, BufReader};
use std::process::{Command, Output, Stdio};

use super::shared::watchdog::Watchdog;
use super::terminal::{CTRL_C, CTRL_Z, Shell};
use super::{err, out, pace};

const NAMESPACE: [&str; 4] = ["--pid", "--fork", "--kill-child", "--mount-proc"];

/// Makes the tool the first process of a pid namespace, with its arguments and a shell script as its command; `None` if
/// there can be no namespace here.
fn first_process(options: &[&str], script: &str) -> Option<Command> {
    first_process_below(&[], options, script)
}

/// Does the same, with a command that becomes the tool.
fn first_process_below(before: &[&str], options: &[&str], script: &str) -> Option<Command> {
    if !has_namespaces() {
        return None;
    }
    let mut command = Command::new("unshare");
    command.args(NAMESPACE).args(before).arg(env!("CARGO_BIN_EXE_pipewright")).args(options);
    command.args(["--", "sh", "-c", script]).stdin(Stdio::null());
    Some(command)
}

/// Returns false, and reports it, if there can be no namespace here.
fn has_namespaces() -> bool {
    let tried = Command::new("unshare").args(NAMESPACE).arg("true").output();
    let has_namespaces = tried.as_ref().is_ok_and(|tried| tried.status.success());
    if !has_namespaces {
        pace::skipped(pace::Need::PidNamespace, format!("{tried:?}"));
    }
    has_namespaces
}

fn output_of_first_process(options: &[&str], script: &str) -> Option<Output> {
    first_process(options, script).map(|mut command| command.output().unwrap())
}

#[test]
fn a_storm_of_orphans_leaves_no_zombie() {
    let _watchdog = Watchdog::start(300);
    let count = if std::env::var_os("PIPEWRIGHT_NET").is_some() { 10_000 } else { 2_000 };
    // The script ends when there is no zombie.
    let script = format!(
        "orphan=$(sleep 60 > /dev/null & echo $!); grep PPid: /proc/$orphan/status
         i=0; while [ $i -lt {count} ]; do (true &); i=$((i + 1)); done
         while grep -qs ') Z ' /proc/[0-9]*/stat; do :; done; echo $i; exit 7"
    );
    for options in [&["run", "--contain", "none"][..], &["timeout", "250"]] {
        let Some(output) = output_of_first_process(options, &script) else { return };
        assert_eq!(out(&output), format!("PPid:\t1\n{count}\n"), "{options:?}: {}", err(&output));
        assert_eq!(output.status.code(), Some(7), "{options:?}");
    }
}

#[test]
fn the_exit_code_is_that_of_the_command() {
    let _watchdog = Watchdog::start(60);
    let cases: [(&[&str], &str, i32); 4] = [
        (&["run"], "exit 0", 0),
        (&["run"], "kill -KILL $$", 137),
        (&["run", "--timeout", "100ms"], "sleep 60", 124),
        (&["timeout", "0.1"], "sleep 60", 124),
    ];
    for (options, script, code) in cases {
        let Some(output) = output_of_first_process(options, script) else { return };
        assert_eq!(output.status.code(), Some(code), "{options:?} {script}: {}", err(&output));
    }
}

#[test]
fn signals_reach_the_command() {
    let _watchdog = Watchdog::start(60);
    // SIGTERM stops the command, and the code says so; a signal that only the command knows is passed on.
    for (signal, code) in [("TERM", 143), ("USR1", 3)] {
        let script = "trap 'exit 3' USR1; echo ready; while :; do sleep 0.1; done";
        let Some(mut command) = first_process(&["run"], script) else { return };
        let mut namespace = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(namespace.stdout.take().unwrap()).read_line(&mut line).unwrap();
        assert_eq!(line, "ready\n");
        kill(signal, &first_of(namespace.id()));
        assert_eq!(namespace.wait().unwrap().code(), Some(code), "{signal}");
    }
}

/// Returns the number of the first process of a namespace.
fn first_of(unshare: u32) -> String {
    let children = fs::read_to_string(format!("/proc/{unshare}/task/{unshare}/children")).unwrap();
    children.trim().to_owned()
}

fn kill(signal: &str, to: &str) {
    let sent = Command::new("kill").args(["-s", signal, "--", to]).status().unwrap();
    assert!(sent.success(), "{signal} {to}");
}

/// As a container does that has been asked for a terminal.
#[test]
fn the_terminal_is_that_of_the_command() {
    let _watchdog = Watchdog::start(120);
    // It reads the line that the helper types first.
    let script =
        "trap 'echo ca\"\"ught; exit 3' INT; read line; echo begin; read line; echo got $line
        while :; do sleep 0.1; done";
    for options in [&["run"][..], &["timeout", "100"]] {
        if !has_namespaces() {
            return;
        }
        let tool = [env!("CARGO_BIN_EXE_pipewright")];
        // The first process takes the terminal for a session of its own.
        let words = [&["unshare"][..], &NAMESPACE, &["setsid", "--ctty"], &tool, options];
        let words = [&words.concat()[..], &["--", "sh", "-c", script]].concat();
        let Some(mut shell) = Shell::start_with(&words, "dumb") else { return };
        // Nobody could continue what it stops.
        shell.types(CTRL_Z);
        shell.types("word\n");
        shell.shows("got word");
        shell.types(CTRL_C);
        shell.shows("caught");
        assert_eq!(shell.end(), Some(3), "{options:?}");
    }
}

#[test]
fn a_signal_to_the_group_of_the_first_process_arrives_once() {
    let _watchdog = Watchdog::start(60);
    let script = "trap 'echo usr' USR1; trap 'echo end; exit 3' USR2; echo ready
        sleep 600 & while :; do wait; done";
    // In a session of its own, as in a container, its group has no other process.
    let Some(mut command) = first_process_below(&["setsid"], &["run"], script) else { return };
    let mut namespace = command.stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(namespace.stdout.take().unwrap()).lines().map(Result::unwrap);
    assert_eq!(lines.next().unwrap(), "ready");
    let first = first_of(namespace.id());
    // Two that arrive at almost the same time may count as one.
    for _ in 0..10 {
        kill("USR1", &format!("-{first}"));
        assert_eq!(lines.next().unwrap(), "usr");
    }
    // It comes after a second one of those.
    kill("USR2", &first);
    assert_eq!(lines.next().unwrap(), "end");
    assert_eq!(namespace.wait().unwrap().code(), Some(3));
}
