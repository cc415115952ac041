//! The tool as the first process of a container: it reaps orphans, passes signals on, and has the exit code of its
//! command.

use std::fs;
use std::io::{BufRead, BufReader};
use std::process::{Command, Output, Stdio};

use super::shared::watchdog::Watchdog;
use super::{err, out, pace};

/// Makes the tool the first process of a pid namespace, with its arguments and a shell script as its command; `None` if
/// there can be no namespace here.
fn first_process(options: &[&str], script: &str) -> Option<Command> {
    let namespace = ["--pid", "--fork", "--kill-child", "--mount-proc"];
    let tried = Command::new("unshare").args(namespace).arg("true").output();
    if !tried.as_ref().is_ok_and(|tried| tried.status.success()) {
        pace::skipped(pace::Need::PidNamespace, format!("{tried:?}"));
        return None;
    }
    let mut command = Command::new("unshare");
    command.args(namespace).arg(env!("CARGO_BIN_EXE_pipewright")).args(options);
    command.args(["--", "sh", "-c", script]).stdin(Stdio::null());
    Some(command)
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
        let pid = namespace.id();
        let first = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap();
        let sent = Command::new("kill").args(["-s", signal, first.trim()]).status().unwrap();
        assert!(sent.success());
        assert_eq!(namespace.wait().unwrap().code(), Some(code), "{signal}");
    }
}
