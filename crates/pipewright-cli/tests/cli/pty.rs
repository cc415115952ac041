//! `run --pty`: commands on a terminal of their own, and recordings of them.

use std::fs;
use std::io::Write as _;
use std::process::Stdio;

use super::terminal::{CTRL_C, Shell};
use super::{err, out, pace, pipewright, run_sh};

#[test]
fn a_command_on_a_terminal_keeps_its_colours_when_it_is_piped() {
    let script =
        "test -t 1 && test -t 2 && printf '\\033[32mgreen\\033[0m\\n'; stty size < /dev/tty";
    let output = run_sh(&["--pty"], script);
    assert_eq!((out(&output), err(&output)), ("\x1b[32mgreen\x1b[0m\r\n24 80\r\n", ""));
    assert_eq!(output.status.code(), Some(0));
}

#[test]
fn a_terminal_has_a_type_where_none_is_set() {
    let script = "printf \"$TERM\"";
    for (term, shown) in
        [(None, "xterm-256color"), (Some(""), "xterm-256color"), (Some("vt52"), "vt52")]
    {
        let mut tool = pipewright(&["run", "--pty", "--", "sh", "-c", script]);
        tool.env_remove("TERM");
        term.map(|term| tool.env("TERM", term));
        assert_eq!(out(&tool.output().unwrap()), shown);
    }
    let output = run_sh(&["--pty", "--env", "TERM=dumb"], script);
    assert_eq!(out(&output), "dumb");
}

#[test]
fn the_terminal_belongs_to_the_user_of_the_command() {
    if !rustix::process::geteuid().is_root() {
        return pace::skipped(pace::Need::Root, "only root can start a command as another user");
    }
    let script = "echo text > /dev/stderr && stat -L -c %u /dev/stderr";
    let output = run_sh(&["--pty", "--user", "65534:65534"], script);
    assert_eq!((out(&output), output.status.code()), ("text\r\n65534\r\n", Some(0)));
}

/// Returns the text of an event of output.
fn text_of(event: &serde_json::Value) -> String {
    assert_eq!(event[1], "o", "{event}");
    event[2].as_str().unwrap().to_owned()
}

#[test]
fn a_recording_is_whole_while_the_command_runs() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("cast");
    let record = path.display().to_string();
    let words =
        ["run", "--pty", "--record", &record, "--", "sh", "-c", "echo shown; exec sleep 600"];
    let mut tool = pipewright(&words).stdout(Stdio::null()).spawn().unwrap();
    // The terminal may give the end of the line by itself.
    super::trees::until("the output is recorded", || {
        fs::read_to_string(&path)
            .is_ok_and(|text| text.contains("shown") && text.contains("\\n\"]"))
    });
    tool.kill().unwrap();
    tool.wait().unwrap();
    let text = fs::read_to_string(&path).unwrap();
    assert!(text.starts_with("{\"version\": 2") && text.ends_with("\\r\\n\"]\n"), "{text}");
    let events = text.lines().skip(1).map(|line| serde_json::from_str(line).unwrap());
    let shown: String = events.map(|event: serde_json::Value| text_of(&event)).collect();
    assert_eq!(shown, "shown\r\n");
}

#[test]
fn exit_codes_and_limits_are_those_without_a_terminal() {
    assert_eq!(run_sh(&["--pty"], "exit 3").status.code(), Some(3));
    assert_eq!(run_sh(&["--pty"], "kill -9 $$").status.code(), Some(137));
    let shown = pace::in_time(300, |millis| {
        let output =
            run_sh(&["--pty", "--timeout", &pace::option(millis)], "echo so far; sleep 60");
        assert_eq!(output.status.code(), Some(124));
        Some(out(&output).to_owned()).filter(|shown| !shown.is_empty())
    });
    assert_eq!(shown, "so far\r\n");
    let output = run_sh(&["--pty", "--max-output", "10"], "seq 100000");
    assert_eq!(output.status.code(), Some(124));
    let output = pipewright(&["run", "--pty", "--", "no-such-program"]).output().unwrap();
    assert_eq!(output.status.code(), Some(127));
}

#[test]
fn a_stdin_that_is_no_terminal_is_passed_on_unchanged() {
    let mut tool = pipewright(&["run", "--pty", "--", "sh", "-c", "test ! -t 0 && cat"]);
    let mut child = tool.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(b"text\n").unwrap();
    assert_eq!(out(&child.wait_with_output().unwrap()), "text\r\n");
}

#[test]
fn the_output_can_be_captured_and_written_to_files() {
    let output = run_sh(&["--pty", "--show-output=on-failure"], "test -t 1 && echo hidden");
    assert_eq!((out(&output), output.status.code()), ("", Some(0)));
    let output = run_sh(&["--pty", "--show-output=on-failure"], "test -t 1 && echo shown; exit 1");
    assert_eq!((out(&output), output.status.code()), ("shown\r\n", Some(1)));
    let dir = tempfile::tempdir().unwrap();
    let file = |name: &str| dir.path().join(name).display().to_string();
    let (stdout, stderr) = (file("stdout"), file("stderr"));
    let script = "test -t 1 && test ! -t 2 && echo out; echo err >&2";
    let output = run_sh(&["--pty", "--stdout", &stdout, "--stderr", &stderr], script);
    assert_eq!((out(&output), output.status.code()), ("", Some(0)));
    assert_eq!(fs::read_to_string(stdout).unwrap(), "out\r\n");
    assert_eq!(fs::read_to_string(stderr).unwrap(), "err\n");
}

#[test]
fn retries_get_a_terminal_each() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("first").display().to_string();
    let script =
        format!("test -t 1 && echo attempt; test -e {file} || {{ touch {file}; exit 1; }}");
    let output = run_sh(&["--pty", "--retries", "1", "--quiet"], &script);
    assert_eq!((out(&output), output.status.code()), ("attempt\r\nattempt\r\n", Some(0)));
}

#[test]
fn a_recording_has_what_was_shown() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("demo.cast");
    let record = file.display().to_string();
    let script = "printf 'caf\\303\\251 \\033[1m\"bold\"\\033[0m\\n'; sleep 0.1; echo end";
    let output = run_sh(&["--pty", "--record", &record], script);
    assert_eq!((err(&output), output.status.code()), ("", Some(0)));
    let text = fs::read_to_string(file).unwrap();
    let mut lines =
        text.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
    let header = lines.next().unwrap();
    assert_eq!(
        (&header["version"], &header["width"], &header["height"]),
        (&2.into(), &80.into(), &24.into())
    );
    let (mut shown, mut last) = (String::new(), 0.0);
    for event in lines {
        let time = event[0].as_f64().unwrap();
        assert!(time >= last && event[1] == "o", "{event}");
        last = time;
        shown += event[2].as_str().unwrap();
    }
    assert_eq!(shown, out(&output));
    assert!(last >= 0.1, "the times are those of the output");
}

#[test]
fn a_recording_of_version_3_ends_with_the_exit_code() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("demo.cast");
    let record = file.display().to_string();
    let options = ["--pty", "--record", &record, "--record-format", "asciicast-v3"];
    let output = run_sh(&options, "echo out; exit 3");
    assert_eq!(output.status.code(), Some(3));
    let text = fs::read_to_string(file).unwrap();
    let lines: Vec<serde_json::Value> =
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!((&lines[0]["version"], &lines[0]["term"]["cols"]), (&3.into(), &80.into()));
    let [_, output @ .., end] = &lines[..] else { panic!("{text}") };
    // In one event or two: the terminal may give the end of the line by itself.
    assert_eq!(output.iter().map(text_of).collect::<String>(), "out\r\n");
    assert_eq!((&end[1], &end[2]), (&"x".into(), &"3".into()));
}

#[test]
fn a_recording_that_cannot_be_written_is_an_error() {
    let output = run_sh(&["--pty", "--record", "/no/such/file"], "echo");
    assert_eq!(output.status.code(), Some(125));
    assert!(err(&output).starts_with("pipewright: cannot create \"/no/such/file\": "));
    let output = run_sh(&["--record", "x.cast"], "echo");
    assert_eq!(output.status.code(), Some(125), "it needs --pty");
    if pace::lacks("/dev/full") {
        return;
    }
    let output = run_sh(&["--pty", "--record", "/dev/full"], "seq 20000");
    assert_eq!(output.status.code(), Some(125));
    assert!(err(&output).contains("cannot write the recording: "), "{}", err(&output));
    assert!(out(&output).ends_with("20000\r\n"), "all is shown");
}

#[test]
fn a_person_types_at_the_command_and_gets_the_terminal_back() {
    let Some(mut shell) = Shell::start() else { return };
    shell.types("$PW run --pty -- sh -c 'printf na\"\"me?; read n; echo got \"\"$n; test -t 0'\n");
    shell.shows("name?");
    shell.types("Ada\r");
    shell.shows("got Ada\r\n");
    shell.ended_with(0);
    shell.types(
        "$PW run --pty -- sh -c 'trap \"echo cau\"\"ght; exit 7\" INT; \
                 echo rea\"\"dy; while :; do sleep 0.02; done'\n",
    );
    shell.shows("ready\r\n");
    shell.types(CTRL_C);
    shell.shows("caught\r\n");
    shell.ended_with(7);
    shell.types("stty -a\n");
    shell.shows(" icanon");
}

#[test]
fn a_tool_that_is_killed_leaves_the_terminal_as_it_was() {
    let Some(mut shell) = Shell::start() else { return };
    let dir = tempfile::tempdir().unwrap();
    let script = dir.path().join("script");
    // A shell without job control restores nothing itself.
    let text = "sh -c 'echo tool=$$.; exec \"$PW\" run --pty -- sh -c \"echo ready; read line\"'\n\
                echo code=$?\n\
                until stty -a | grep -q ' icanon'; do sleep 0.02; done\n\
                echo restored\n";
    fs::write(&script, text).unwrap();
    shell.types(&format!("sh {}\n", script.display()));
    shell.shows("tool=");
    let tool = shell.shows(".\r\n");
    shell.shows("ready\r\n");
    let killed = std::process::Command::new("kill").args(["-9", &tool]).status();
    assert!(killed.unwrap().success());
    shell.shows("code=137");
    shell.shows("restored");
}

/// A command that runs as another user could type a line for the shell of its caller (`TIOCSTI`).
#[test]
fn a_command_on_its_own_terminal_or_session_cannot_type_for_the_shell_of_its_caller() {
    let dir = tempfile::tempdir().unwrap();
    let (push, script) = (dir.path().join("push"), dir.path().join("script"));
    let words = r#"for my $path (map("/dev/fd/$_", 0 .. 9), "/dev/tty") {
        open(my $terminal, "+<", $path) or next;
        my $typed = 0;
        for my $key (split(//, "typed\n")) {
            $typed += 1 if ioctl($terminal, 0x5412, my $copy = $key);
        }
        exit if $typed;
    }"#;
    fs::write(&push, words).unwrap();
    let ways =
        ["perl", "$PW run --pty -- perl", "$PW batch -- perl", "$PW batch --contain group -- perl"];
    let lines = ways.map(|way| {
        let end = if way.contains("batch") { "::: job" } else { "" };
        format!(
            "{way} {} {end}\nline=; if read -t 0; then read -r line; fi; echo \"<<$line>>\"\n",
            push.display()
        )
    });
    fs::write(&script, lines.concat()).unwrap();
    let Some(mut shell) = Shell::start() else { return };
    shell.types(&format!("stty -echo; bash {}\n", script.display()));
    shell.shows("<<");
    if shell.shows(">>") != "typed" {
        let reason =
            "there is no perl, or the kernel lets root alone type (dev.tty.legacy_tiocsti)";
        return pace::skipped(pace::Need::Root, reason);
    }
    for way in &ways[1..] {
        shell.shows("<<");
        assert_eq!(shell.shows(">>"), "", "{way}");
    }
}
