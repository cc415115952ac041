//! `timeout` on a pseudo-terminal, beside that of coreutils: each case has the same end with both.

use std::process::Command;

use super::pace;
use super::terminal::{CTRL_C, CTRL_Z, Shell};

/// The two programs.
fn both() -> Vec<&'static str> {
    let has_other = Command::new("timeout").arg("--version").output().is_ok_and(|output| {
        String::from_utf8_lossy(&output.stdout).starts_with("timeout (GNU coreutils)")
    });
    if has_other {
        return vec!["timeout", "$PW timeout"];
    }
    pace::skipped(pace::Need::Program("timeout"), "ours is tried alone");
    vec!["$PW timeout"]
}

/// Runs a case with both programs, each in a shell of its own.
fn each(case: impl Fn(&mut Shell, &str)) {
    for program in both() {
        let Some(mut shell) = Shell::start() else { return };
        case(&mut shell, program);
        // The shell has its terminal: it reads a line.
        shell.types("echo a''live\n");
        shell.shows("alive\r\n");
    }
}

#[test]
fn a_script_reads_the_terminal_after_a_timeout() {
    each(|shell, timeout| {
        shell.types(&format!(
            "sh -c '{timeout} 60 true; echo u\"\"p; read x < /dev/tty && echo got $x'\n"
        ));
        shell.shows("up\r\n");
        shell.types("hello\n");
        shell.shows("got hello\r\n");
    });
}

#[test]
fn ctrl_c_ends_a_script_after_a_timeout() {
    each(|shell, timeout| {
        shell.types(&format!("sh -c '{timeout} 60 true; echo u\"\"p; exec sleep 600'\n"));
        shell.shows("up\r\n");
        shell.types(CTRL_C);
        shell.ended_with(130);
    });
}

#[test]
fn a_background_job_of_a_script_takes_no_terminal() {
    each(|shell, timeout| {
        shell.types(&format!(
            "sh -c '{timeout} 60 sleep 60 & echo u\"\"p; read x < /dev/tty && echo got $x; kill $!'\n"
        ));
        shell.shows("up\r\n");
        shell.types("hello\n");
        shell.shows("got hello\r\n");
    });
}

#[test]
fn a_member_of_a_pipeline_takes_no_terminal() {
    let reads = "sh -c \"read x < /dev/tty && echo got \\$x\"";
    each(|shell, timeout| {
        // The last one reads the terminal, as `less` does.
        shell.types(&format!(
            "{timeout} 60 sh -c 'echo u\"\"p; sleep 60' | (head -n1; {reads}; kill -PIPE 0)\n"
        ));
        shell.shows("up\r\n");
        shell.types("hello\n");
        shell.shows("got hello\r\n");
        shell.shows("$ ");
    });
}

#[test]
fn a_command_at_a_shell_reads_the_terminal_and_gets_its_signals() {
    each(|shell, timeout| {
        shell.types(&format!("{timeout} 60 sh -c 'echo u\"\"p; read x; echo got $x'\n"));
        shell.shows("up\r\n");
        shell.types("hello\n");
        shell.shows("got hello\r\n");
        shell.ended_with(0);
        shell.types(&format!("{timeout} 60 sh -c 'echo u\"\"p; exec sleep 60'\n"));
        shell.shows("up\r\n");
        shell.types(CTRL_C);
        shell.ended_with(130);
    });
}

#[test]
fn a_pipeline_at_a_shell_ends_by_ctrl_c() {
    each(|shell, timeout| {
        shell.types(&format!("{timeout} 60 sh -c 'echo u\"\"p; exec sleep 60' | cat\n"));
        shell.shows("up\r\n");
        shell.types(CTRL_C);
        shell.ended_with(130);
    });
}

#[test]
fn a_command_that_reads_the_terminal_in_a_script_is_stopped_and_timed_out() {
    each(|shell, timeout| {
        for command in ["cat", "sh -c \"stty sane; read x\""] {
            shell.types(&format!("sh -c '{timeout} 1 {command}; echo code=$?'\n"));
            shell.shows("code=124\r\n");
        }
    });
}

#[test]
fn with_foreground_a_command_reads_the_terminal_in_a_script() {
    each(|shell, timeout| {
        shell.types(&format!(
            "sh -c '{timeout} --foreground 60 sh -c \"echo u\\\"\\\"p; read x; echo got \\$x\"; echo code=$?'\n"
        ));
        shell.shows("up\r\n");
        shell.types("hello\n");
        shell.shows("got hello\r\n");
        shell.shows("code=0\r\n");
    });
}

#[test]
fn ctrl_z_and_fg_stop_and_continue_the_command() {
    each(|shell, timeout| {
        shell.types(&format!("{timeout} 60 sh -c 'echo u\"\"p; read x; echo got $x'\n"));
        shell.shows("up\r\n");
        shell.types(CTRL_Z);
        shell.shows("Stopped");
        shell.shows("$ ");
        shell.types("fg\n");
        shell.shows("timeout 60");
        shell.types("hello\n");
        shell.shows("got hello\r\n");
    });
}

#[test]
fn a_command_in_the_background_of_a_shell_is_stopped_by_the_terminal_and_timed_out() {
    each(|shell, timeout| {
        shell.types(&format!("{timeout} 1 cat & wait $!; echo code''=$?\n"));
        shell.shows("code=124\r\n");
    });
}

#[test]
fn nested_ones_leave_the_terminal_to_the_shell() {
    each(|shell, timeout| {
        shell.types(&format!("{timeout} 60 {timeout} 1 cat; echo code''=$?\n"));
        shell.shows("code=124\r\n");
    });
}

#[test]
fn the_time_ends_the_whole_job_of_a_shell() {
    each(|shell, timeout| {
        shell.types(&format!("{timeout} 1 sleep 60 | sleep 61; echo code''=${{PIPESTATUS[*]}}.\n"));
        // The pipeline is one group, which the signal reaches.
        shell.shows("code=124 143.\r\n");
    });
}
