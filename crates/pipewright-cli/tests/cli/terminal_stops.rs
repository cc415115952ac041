//! `run --pty` in the background, and over a stop from elsewhere: whose modes the terminal has.

use std::process::Command;

use rustix::termios::{LocalModes, OutputModes, Winsize, tcgetattr, tcsetwinsize};

use super::terminal::Shell;
use super::trees::until;
use super::{Place, is_running};

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
            shell.types(&format!("$PW run --quiet --pty -- {ASKS}\n"));
            shell.shows("up\r");
            stop(&mut shell, signal);
            assert!(signal == "STOP" || !is_raw(&shell), "{with:?}: the modes before a stop");
            let size = Winsize { ws_row: 12, ws_col: 34, ws_xpixel: 0, ws_ypixel: 0 };
            tcsetwinsize(shell.terminal(), size).unwrap();
            shell.types("fg\n");
            // The shell tells which job it continues, and reads no more: where it sets no modes, the terminal has been raw all along.
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
