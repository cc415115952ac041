//! Ends of a terminal and of a reader: a hang-up, a `head` behind a pipe, a stop of the whole group, a stop between attempts.

use std::fs::File;
use std::os::unix::process::ExitStatusExt as _;
use std::process::{Command, Stdio};

use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};

use super::Place;
use super::terminal::{CTRL_C, Shell};
use super::trees::{MARK, mark, marked, until};
use super::{pace, with_default_stop_signals};

/// Runs the tool as the leader of the session of a terminal, as `ssh -t host pipewright …` does, and hangs up.
#[track_caller]
fn hangs_up(name: &str, args: &[&str]) {
    let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
    rustix::io::fcntl_setfd(&master, rustix::io::FdFlags::CLOEXEC).unwrap();
    grantpt(&master).unwrap();
    unlockpt(&master).unwrap();
    let slave = ptsname(&master, Vec::new()).unwrap();
    let slave = File::options().read(true).write(true).open(slave.to_str().unwrap()).unwrap();
    let place = Place::new();
    let mut command = Command::new("env");
    command.args(["--default-signal=TERM,INT,HUP", "setsid", "--ctty"]);
    command.arg(env!("CARGO_BIN_EXE_pipewright")).args(args);
    command.env(MARK, mark(name)).env("TERM", "xterm").current_dir(place.path(""));
    command.stdin(slave.try_clone().unwrap()).stdout(slave.try_clone().unwrap()).stderr(slave);
    let mut tool = command.spawn().unwrap();
    drop(command);
    until("the command runs", || place.path("up").exists());
    drop(master);
    until("the tool ends", || tool.try_wait().unwrap().is_some());
    let status = tool.wait().unwrap();
    assert_eq!(status.code().or(status.signal().map(|it| 128 + it)), Some(129), "{args:?}");
    assert_eq!(marked(name), [0; 0], "{args:?}");
}

const UP: &str = "touch up; sleep 600";

#[test]
fn a_hang_up_ends_the_command_with_every_containment() {
    for contain in ["none", "group", "tree"] {
        hangs_up("hangup", &["run", "--contain", contain, "--", "sh", "-c", UP]);
        hangs_up(
            "hangup",
            &["run", "--contain", contain, "--timeout", "600", "--", "sh", "-c", UP],
        );
        hangs_up("hangup", &["pipe", "--contain", contain, "--", "sh", "-c", UP, "|", "cat"]);
    }
    hangs_up("hangup", &["run", "--pty", "--", "sh", "-c", UP]);
    hangs_up("hangup", &["timeout", "600", "sh", "-c", UP]);
}

#[test]
fn a_reader_that_goes_hangs_the_terminal_up() {
    let place = Place::new();
    for options in ["", "--record rec", "--prefix x"] {
        let mut sh = with_default_stop_signals();
        let script = format!("$PW run --pty {options} -- yes | head -n1; echo ${{PIPESTATUS[0]}}");
        sh = {
            let mut bash = Command::new("bash");
            bash.args(["-c", &script]).envs(sh.get_envs().filter_map(|(k, v)| Some((k, v?))));
            bash
        };
        sh.env("PW", env!("CARGO_BIN_EXE_pipewright")).current_dir(place.path(""));
        let output = sh.stdin(Stdio::null()).output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(text.ends_with("y\n141\n") || text.ends_with("y\r\n141\n"), "{options}: {text:?}");
    }
}

#[test]
fn keys_are_for_the_pager_behind_a_pipe() {
    let Some(mut shell) = Shell::start() else { return };
    let reads = "sh -c 'stty -a < /dev/tty | grep -c -e -icanon; read x < /dev/tty; echo got $x'";
    shell.types(&format!(
        "$PW run --pty -- sh -c 'read x; echo u\"\"p $?; sleep 600' | (head -n1; {reads})\n"
    ));
    // An empty stdin; and the terminal is not raw.
    shell.shows("up 1");
    shell.shows("\r\n0\r\n");
    shell.types("hello\n");
    shell.shows("got hello\r\n");
    shell.types(CTRL_C);
    shell.shows("$ ");
}

#[test]
fn one_fg_continues_a_command_that_has_stopped_its_group() {
    let Some(mut shell) = Shell::start() else { return };
    for round in 0..20 {
        shell.types(&format!("$PW run --quiet -- sh -c 'kill -TSTP 0; echo contin''ued{round}'\n"));
        shell.shows("Stopped");
        shell.shows("$ ");
        shell.types("fg\n");
        shell.shows(&format!("continued{round}\r\n"));
        shell.ended_with(0);
    }
}

#[test]
fn a_stop_between_two_attempts_is_the_end() {
    for (name, number) in [("TERM", 15), ("HUP", 1), ("INT", 2)] {
        let place = Place::new();
        let mut command = with_default_stop_signals();
        command.args("run --quiet --retries 3 --retry-delay 600 -- sh -c".split(' '));
        command.arg("touch ran; exit 7").current_dir(place.path("")).stdin(Stdio::null());
        let mut tool = command.stderr(Stdio::null()).spawn().unwrap();
        until("the first attempt has run", || place.path("ran").exists());
        // Until it waits.
        std::thread::park_timeout(pace::millis(300));
        super::send_signal(&tool, name);
        let status = tool.wait().unwrap();
        let code = status.code().or(status.signal().map(|it| 128 + it));
        assert_eq!(code, Some(128 + number), "{name}");
    }
}

#[test]
fn ctrl_c_at_a_terminal_of_its_own_is_not_retried() {
    let Some(mut shell) = Shell::start() else { return };
    let script = "trap \"exit 1\" INT; echo u\"\"p; until read -t 0.1 line; do :; done";
    shell.types(&format!(
        "$PW run --quiet --pty --retries 3 --retry-delay 100ms -- bash -c '{script}'\n"
    ));
    // Perhaps before the terminal is raw.
    shell.shows("up\r");
    shell.types(CTRL_C);
    shell.ended_with(130);
}

#[test]
fn ctrl_c_in_a_group_of_its_own_is_not_retried() {
    let Some(mut shell) = Shell::start() else { return };
    // Until the process that learns of Ctrl-C is in the group, beside bash. `pgrep` does not count itself.
    let waits = "until [ $(pgrep -c -g 0) -ge 2 ]; do :; done";
    let script =
        format!("trap \"exit 1\" INT; {waits}; echo u\"\"p; until read -t 0.1 line; do :; done");
    shell.types(&format!(
        "$PW run --quiet --contain group --retries 3 --retry-delay 100ms -- bash -c '{script}'\n"
    ));
    shell.shows("up\r");
    shell.types(CTRL_C);
    shell.ended_with(130);
}

#[test]
fn a_failure_in_a_group_of_its_own_is_retried() {
    let Some(mut shell) = Shell::start() else { return };
    shell.types(
        "$PW run --contain group --retries 1 --retry-delay 0 -- sh -c 'echo tr''ied; exit 7'\n",
    );
    shell.shows("tried\r");
    shell.shows("tried\r");
    shell.ended_with(7);
}
