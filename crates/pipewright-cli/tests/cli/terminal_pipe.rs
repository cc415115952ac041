//! `pipe` in an interactive shell: a pipeline with a group of its own has the terminal.

use super::terminal::{CTRL_C, CTRL_D, CTRL_Z, READS_LINE, Shell};

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
