//! Ends of a terminal and of a reader: a hang-up, a `head` behind a pipe, a stop of the whole group, a stop between
//! attempts.

use std::fs::File;
use std::os::unix::process::ExitStatusExt as _;
use std::process::{Command, Stdio};

use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{LocalModes, OutputModes, Winsize, tcgetattr, tcsetwinsize};

use crate::terminal::{CTRL_C, CTRL_D, CTRL_Z, READS_LINE, Shell};
use crate::trees::{MARK, mark, marked, until};
use crate::{Place, is_running, pace, with_default_stop_signals};

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
    // With --contain none, and in a group, what the command has started gets the hang-up itself, perhaps last.
    until("nothing is left", || marked(name).is_empty());
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
        crate::send_signal(&tool, name);
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

/// The last stage reads the terminal, as a pager does.
#[test]
fn a_stage_of_a_group_reads_the_terminal() {
    let Some(mut shell) = Shell::start() else { return };
    let reads = "'echo up; read line < /dev/tty; echo got $line; cat'";
    for way in ["", "--contain group"] {
        shell.types(&format!("$PW pipe {way} -- seq 3 '|' bash -c {reads}\n"));
        shell.shows("up\r\n");
        shell.types("hello\n");
        shell.shows("got hello\r\n1\r\n2\r\n3\r\n");
        shell.ended_with(0);
        // The first stage too.
        let cat = "sh -c 'echo up >&2; exec cat'";
        shell.types(&format!("$PW pipe {way} -- {cat} '|' tr a-z A-Z\n"));
        shell.shows("up\r\n");
        shell.types("hello\n");
        shell.shows("hello\r\n");
        shell.types(CTRL_D);
        shell.shows("HELLO");
        shell.ended_with(0);
    }
}

#[test]
fn ctrl_c_and_ctrl_z_reach_every_stage_of_a_group() {
    let Some(mut shell) = Shell::start() else { return };
    let script =
        format!("trap \"echo first >&2; exit 1\" INT; echo up >&2; {READS_LINE}; echo $line");
    let tool = "$PW pipe --contain group --quiet";
    shell.types(&format!("{tool} -- bash -c '{script}' '|' cat\n"));
    shell.shows("up\r\n");
    shell.types(CTRL_Z);
    shell.shows("Stopped");
    shell.types("echo the shell is ba''ck\n");
    shell.shows("the shell is back");
    shell.types("fg\n");
    shell.shows("$PW pipe");
    shell.types("hello\n");
    shell.shows("hello\r\nhello\r\n");
    shell.ended_with(0);
    shell.types(&format!("{tool} -- bash -c '{script}' '|' sh -c 'echo up >&2; exec sleep 600'\n"));
    // A stage that has not started yet cannot get it.
    shell.shows("up\r\n");
    shell.shows("up\r\n");
    shell.types(CTRL_C);
    shell.shows("first\r\n");
    shell.ended_with(130);
}

/// Shows no key, and then what was typed and the size.
const ASKS: &str = "sh -c 'stty -echo; echo u\"\"p; read x; echo got $x; stty size'";

fn is_raw(shell: &Shell) -> bool {
    // A shell that edits its line has a mode of its own, and processes output.
    !tcgetattr(shell.terminal()).unwrap().output_modes.contains(OutputModes::OPOST)
}

/// Types what nobody is to see.
#[track_caller]
fn types_a_secret(shell: &mut Shell) {
    until("the terminal is raw", || is_raw(shell));
    shell.types("secret\r");
    let shown = shell.shows("got secret\r\n");
    assert!(!shown.contains("secret"), "{shown:?}");
}

/// Stops the tool, and waits for the shell's prompt.
#[track_caller]
fn stop(shell: &mut Shell, signal: &str) {
    until("the terminal is raw", || is_raw(shell));
    let sent = Command::new("kill").args(["-s", signal, &shell.tool().to_string()]).status();
    assert!(sent.unwrap().success());
    shell.shows("Stopped");
    shell.shows("$ ");
}

#[test]
fn limits_hold_in_the_background() {
    let Some(mut shell) = Shell::start() else { return };
    shell.types("$PW run --quiet --pty --timeout 300ms -- sleep 600 & wait $!; echo ended''=$?\n");
    shell.shows("ended=124\r\n");
}

#[test]
fn keys_are_typed_once_a_background_job_is_in_the_foreground() {
    let Some(mut shell) = Shell::start() else { return };
    shell.types(&format!("$PW run --quiet --pty -- {ASKS} &\n"));
    shell.shows("up\r");
    shell.types("fg\n");
    types_a_secret(&mut shell);
    shell.ended_with(0);
}

#[test]
fn the_terminal_is_raw_again_after_a_stop_and_has_the_new_size() {
    // The second one neither edits its line nor sets modes after a stop.
    for with in [&["bash", "--norc", "--noprofile", "-i"][..], &["sh", "-i", "+o", "emacs"]] {
        for signal in ["TSTP", "STOP"] {
            let Some(mut shell) = Shell::start_with(with, "dumb") else { return };
            // A key that is typed at once may arrive before the size.
            let waits = "until test \"$(stty size)\" = \"12 34\"; do sleep 0.02; done; stty size";
            let asks = ASKS.replace("stty size", waits);
            shell.types(&format!("$PW run --quiet --pty -- {asks}\n"));
            shell.shows("up\r");
            stop(&mut shell, signal);
            assert!(signal == "STOP" || !is_raw(&shell), "{with:?}: the modes before a stop");
            let size = Winsize { ws_row: 12, ws_col: 34, ws_xpixel: 0, ws_ypixel: 0 };
            tcsetwinsize(shell.terminal(), size).unwrap();
            shell.types("fg\n");
            // The shell tells which job it continues, and reads no more: where it sets no modes, the terminal has been
            // raw all along.
            shell.shows("--pty");
            types_a_secret(&mut shell);
            shell.shows("12 34\r\n");
            shell.ended_with(0);
            assert!(!is_raw(&shell), "{with:?}, {signal}");
        }
    }
}

#[test]
fn the_end_in_the_background_leaves_the_modes_of_the_shell() {
    let (Some(mut shell), place) = (Shell::start(), Place::new()) else { return };
    let go = place.path("go");
    let waits = format!("until test -e {}; do sleep 0.02; done", go.display());
    shell.types(&format!("$PW run --quiet --pty -- sh -c 'echo u\"\"p; {waits}'\n"));
    shell.shows("up\r");
    let tool = shell.tool().to_string();
    stop(&mut shell, "STOP");
    shell.types("bg\n");
    shell.shows("$ ");
    let edits = |shell: &Shell| {
        let modes = tcgetattr(shell.terminal()).unwrap().local_modes;
        !modes.contains(LocalModes::ICANON)
    };
    until("the shell edits a line", || edits(&shell));
    std::fs::write(go, "").unwrap();
    until("the tool ends", || !is_running(&tool));
    assert!(edits(&shell));
}
