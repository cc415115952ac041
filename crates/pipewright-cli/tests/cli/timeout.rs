//! `pipewright timeout`, and the tool under the name `timeout`.

use std::os::unix::process::ExitStatusExt as _;
use std::process::{Command, Output};

use super::Place;
use super::trees::until;
use super::{err, is_running, out, pace, pipewright};

fn timeout(args: &[&str]) -> Output {
    pipewright(&[&["timeout"], args].concat()).output().unwrap()
}

/// Returns the exit code as a shell shows it. KILL goes to the whole group, and so to the tool too, as in coreutils.
fn code_of(output: &Output) -> i32 {
    let status = output.status;
    status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or_default())
}

/// Runs a script in a folder where `timeout` is the tool.
fn sh(place: &Place, script: &str) -> Output {
    let link = place.path("timeout");
    if !link.exists() {
        std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_pipewright"), &link).unwrap();
    }
    let path = format!("{}:{}", place.path("").display(), std::env::var("PATH").unwrap());
    let mut sh = Command::new("env");
    sh.args(["--default-signal=INT,QUIT,HUP,TERM", "sh", "-c", script]).env("PATH", path);
    sh.current_dir(place.path("")).output().unwrap()
}

#[test]
fn every_row_of_the_table_holds() {
    let table = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/timeout.md");
    let Ok(text) = std::fs::read_to_string(table) else {
        pace::skipped(pace::Need::File("docs/timeout.md"), "the package has no documents");
        return;
    };
    let place = Place::new();
    let mut rows = 0;
    for row in text.lines().filter(|line| line.starts_with("| `timeout ")) {
        let cells: Vec<&str> = row.split('|').map(|cell| cell.trim().trim_matches('`')).collect();
        let [_, theirs, their_code, ours, our_code, ..] = cells[..] else { panic!("{row}") };
        let ours = format!("{} {ours}", env!("CARGO_BIN_EXE_pipewright"));
        for (line, code) in [(theirs, their_code), (&ours, our_code)] {
            // The shell of the row may need longer than 0.1 s until it ignores TERM.
            let is_done = |millis: u64| {
                let times =
                    line.replace("0.1 ", &format!("{}.{:03} ", millis / 1000, millis % 1000));
                let line = times.replace("sleep 9", "sleep 999");
                let output = sh(&place, &format!("{line}\necho code=$?"));
                let is_right = out(&output) == format!("code={code}\n");
                let may_be_late = line.contains("trap \"\" TERM") && millis < 20_000;
                assert!(is_right || may_be_late, "{line}: {} {}", out(&output), err(&output));
                is_right.then_some(())
            };
            pace::in_time(100, is_done);
        }
        rows += 1;
    }
    assert!(rows >= 15, "{rows}");
}

/// The exit codes of the test suite of coreutils, with and without the name.
#[test]
fn exit_codes_are_those_of_coreutils() {
    for (args, code) in [
        (&["10", "true"][..], 0),
        (&["1d", "true"], 0),
        (&["0", "true"], 0),
        (&["10", "sh", "-c", "exit 2"], 2),
        (&["10.34", "sleep", "0"], 0),
        (&["9.999999999", "sleep", "0"], 0),
        (&["2.34e+5d", "sleep", "0"], 0),
        (&["9223372036854775808d", "sleep", "0"], 0),
        (&["1.18973e+4932", "sleep", "0"], 0),
        (&["--", "-1.18973e+4932", "sleep", "0"], 125),
        (&["1e-5000", "sleep", "10"], 124),
        (&[".1", "sleep", "10"], 124),
        (&["--preserve-status", ".1", "sleep", "10"], 143),
        (&["-p", ".1", "sleep", "10"], 143),
        (&["-s0", "-k.1", ".1", "sleep", "10"], 137),
        (&["--foreground", "-s0", "-k.1", ".1", "sleep", "10"], 137),
        (&["-f", ".1", "sleep", "10"], 124),
        (&["--sig=KILL", ".1", "sleep", "10"], 137),
        (&["-k", "0", ".1", "sleep", "10"], 124),
        (&["invalid", "sleep", "0"], 125),
        (&["--kill-after=invalid", "1", "sleep", "0"], 125),
        (&["42D", "sleep", "0"], 125),
        (&["--signal=invalid", "1", "sleep", "0"], 125),
        (&["--invalid", "1", "sleep", "0"], 125),
        (&["10", "."], 126),
        (&["10", "no_such"], 127),
        (&["10"], 125),
        (&[], 125),
    ] {
        assert_eq!(code_of(&timeout(args)), code, "{args:?}");
    }
}

#[test]
fn the_tool_is_timeout_under_that_name() {
    let place = Place::new();
    let output = sh(
        &place,
        "timeout .1 sleep 10; echo $?; timeout soon true; timeout --version; timeout --help",
    );
    assert!(out(&output).starts_with("124\n"), "{}", out(&output));
    assert!(out(&output).contains("DURATION"), "{}", out(&output));
    assert!(err(&output).starts_with("timeout: "), "{}", err(&output));
    assert_eq!(err(&output).lines().count(), 1, "{}", err(&output));
}

/// Bit 12 of the signals that the command ignores. The shells that run before it keep what was ignored when they began.
#[cfg(target_os = "linux")]
#[test]
fn an_ignored_sigpipe_stays_ignored_in_the_command() {
    let look = "timeout 25 awk '/SigIgn/ { print substr($2, 13, 1) % 2 }' /proc/self/status";
    let place = Place::new();
    for (trap, is_ignored) in [("trap '' PIPE", "1\n"), ("trap - PIPE", "0\n")] {
        let output = sh(&place, &format!("({trap}; {look})"));
        assert_eq!((out(&output), err(&output)), (is_ignored, ""), "{trap}");
    }
}

#[test]
fn each_signal_is_printed_if_asked() {
    let words = "timeout: sending signal EXIT to command 'sleep'\n\
                 timeout: sending signal KILL to command 'sleep'\n";
    for option in ["-v", "--verbose"] {
        let output = timeout(&[option, "-s0", "-k", ".1", ".1", "sleep", "10"]);
        assert_eq!((err(&output), code_of(&output)), (words, 137));
    }
    let output = timeout(&["-v", ".1", "sleep", "10"]);
    assert_eq!(err(&output), "timeout: sending signal TERM to command 'sleep'\n");
    assert_eq!(err(&timeout(&[".1", "sleep", "10"])), "");
}

#[test]
fn children_and_ignored_signals_of_the_parent_do_not_confuse_it() {
    let place = Place::new();
    assert_eq!(sh(&place, "trap '' CHLD; exec timeout 10 true").status.code(), Some(0));
    let output = sh(&place, "sleep .1 & exec timeout .5 sh -c 'sleep 60; echo foo'");
    assert_eq!((out(&output), output.status.code()), ("", Some(124)));
    let blocks = "perl -MPOSIX -e 'sigprocmask(SIG_BLOCK, POSIX::SigSet->new(SIGALRM)); exec @ARGV' \
                  timeout .1 sleep 10";
    if Command::new("perl")
        .args(["-MPOSIX", "-e", "1"])
        .output()
        .is_ok_and(|it| it.status.success())
    {
        assert_eq!(sh(&place, blocks).status.code(), Some(124));
    } else {
        pace::skipped(pace::Need::Program("perl"), "there is no perl here to block a signal");
    }
}

/// A script that records INT and exits, and runs at most for a while.
const NOTES_INT: &str = "trap 'touch int.received; exit' INT; touch running; \
                         i=0; until [ -e int.received ] || [ $i = 200 ]; do sleep 0.1; i=$((i+1)); done";

#[test]
fn a_signal_reaches_the_command_below_two_timeouts() {
    let place = Place::new();
    place.write("command", NOTES_INT);
    // The first one takes ALRM for the end of its time, and the second one too.
    let script = "timeout -sALRM 30 timeout -sINT 25 sh command & pid=$!; \
                  until [ -e running ]; do sleep 0.05; done; kill -ALRM $pid; wait $pid; echo $?";
    let output = sh(&place, script);
    assert_eq!(out(&output), "124\n", "{}", err(&output));
    assert!(place.path("int.received").exists());
}

#[test]
fn a_signal_to_the_group_reaches_a_command_in_the_foreground() {
    let place = Place::new();
    place.write("command", NOTES_INT);
    place.write("group", "trap '' INT; timeout --foreground 25 sh command & wait");
    let script = "setsid sh group & pid=$!; until [ -e running ]; do sleep 0.05; done; \
                  kill -s INT -- -$pid; wait; ls int.received";
    // The shell ignores INT, and the command catches it.
    assert_eq!(out(&sh(&place, script)), "int.received\n");
}

#[test]
fn a_signal_of_the_user_is_forwarded() {
    let place = Place::new();
    let script = "timeout 25 sh -c 'trap \"exit 9\" USR1; touch running; while :; do sleep 0.01; done' & pid=$!; \
                  until [ -e running ]; do sleep 0.05; done; kill -s USR1 $pid; wait $pid; echo $?";
    assert_eq!(out(&sh(&place, script)), "9\n");
}

#[test]
fn only_the_command_itself_is_stopped_in_the_foreground() {
    let place = Place::new();
    for (option, is_left) in [("--foreground", true), ("-k9", false)] {
        let pid = pace::in_time(300, |millis| {
            let limit = format!("{}.{:03}", millis / 1000, millis % 1000);
            let command = "sleep 60 > /dev/null 2>&1 & echo $! > pid; wait";
            let script = format!("rm -f pid; timeout {option} {limit} sh -c '{command}'");
            assert_eq!(sh(&place, &script).status.code(), Some(124), "{option}");
            Some(place.read("pid")).filter(|pid| pid.ends_with('\n'))
        });
        if is_left {
            assert!(is_running(&pid));
            Command::new("kill").arg(pid.trim()).status().unwrap();
        } else {
            until("the group has ended", || !is_running(&pid));
        }
    }
}

#[test]
fn the_status_of_the_command_can_be_preserved_in_run_and_pipe() {
    for tool in ["run", "pipe"] {
        let words = [tool, "--quiet", "--preserve-status", "--timeout", ".1", "--", "sleep", "9"];
        assert_eq!(pipewright(&words).output().unwrap().status.code(), Some(143), "{tool}");
        let place = Place::new();
        let traps = ["sh", "-c", "trap 'exit 7' INT; : > ready; while :; do sleep 0.01; done"];
        let code = pace::in_time(100, |millis| {
            let limit = pace::option(millis);
            let words = [tool, "--quiet", "--preserve-status", "--timeout", &limit];
            let stops = ["-s", "INT", "--kill-after", "30", "--"];
            let output = place.tool(&[&words[..], &stops, &traps].concat()).output().unwrap();
            place.path("ready").exists().then(|| output.status.code())
        });
        assert_eq!(code, Some(7), "{tool}");
    }
}
