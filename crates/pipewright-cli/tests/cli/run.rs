//! `pipewright run`, and its redirects: files, and names that are none.

use std::ffi::OsStr;
use std::fs;
use std::io::{BufRead, BufReader, Read as _, Write as _};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::PermissionsExt as _;
use std::process::Stdio;

use crate::{
    Place, err, is_running, out, pace, pipewright, run_sh, send_signal, with_default_stop_signals,
};

#[test]
fn exit_codes_are_those_of_timeout() {
    for (script, code) in
        [("exit 0", 0), ("exit 3", 3), ("exit 255", 255), ("kill -9 $$", 137), ("kill $$", 143)]
    {
        let output = run_sh(&[], script);
        assert_eq!((output.status.code(), err(&output)), (Some(code), ""), "{script}");
    }
    assert_eq!(run_sh(&["--timeout", "100ms"], "sleep 60").status.code(), Some(124));
    let ignores_term = "trap '' TERM; while :; do sleep 1; done";
    let output = run_sh(&["--timeout", &pace::option(100), "--kill-after", "100ms"], ignores_term);
    assert_eq!(output.status.code(), Some(124), "also when it had to be killed");
    for (command, code) in
        [("no-such-program", 127), ("/no/such", 127), ("/etc/passwd", 126), ("/etc", 126)]
    {
        let output = pipewright(&["run", "--", command]).output().unwrap();
        assert_eq!(output.status.code(), Some(code), "{command}");
    }
}

#[test]
fn an_unusable_program_is_126_and_an_unusable_directory_is_125() {
    let dir = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str| {
        let path = dir.path().join(name);
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        path.display().to_string()
    };
    let ring = dir.path().join("ring");
    std::os::unix::fs::symlink("ring", &ring).unwrap();
    let nowhere = file("nowhere", "#!/no/such/interpreter\n");
    let plain = file("plain", "echo hi\n");
    let long = format!("/{}", "x".repeat(300));
    let ring = ring.display().to_string();
    for (command, code) in [
        (&ring[..], 126),
        (&long, 126),
        (&nowhere, 126),
        (&plain, 126),
        (&format!("{plain}/x"), 127),
        (&long[1..], 126),
    ] {
        let output = pipewright(&["run", "--", command]).output().unwrap();
        assert_eq!(output.status.code(), Some(code), "{command}: {}", err(&output));
    }
    let locked = dir.path().join("locked");
    fs::create_dir(&locked).unwrap();
    fs::set_permissions(&locked, fs::Permissions::from_mode(0o000)).unwrap();
    let locked = locked.display().to_string();
    for args in [["run", "--cwd", &locked, "--", "true"], ["pipe", "--cwd", &locked, "--", "true"]]
    {
        // Root may enter any directory, and so the tool runs as another user.
        let mut command = pipewright::Command::new(env!("CARGO_BIN_EXE_pipewright"));
        if rustix::process::geteuid().is_root() {
            command.uid(54_322).gid(54_322).groups(&[]);
        }
        match command.args(args).capture() {
            Ok(output) => {
                assert_eq!(output.status.code(), Some(125), "{}", output.stderr);
                assert!(output.stderr.contains("permission denied"), "{}", output.stderr);
            }
            Err(error) => pace::skipped(pace::Need::PublicTarget, error),
        }
    }
}

#[test]
fn an_error_is_one_line_and_is_printed_once() {
    let not_found = pipewright(&["run", "--", "no-such"]).env("PATH", "/a:/b").output().unwrap();
    let words =
        "pipewright: cannot start \"no-such\": not found in PATH (searched 2 directories)\n";
    assert_eq!((err(&not_found), out(&not_found)), (words, ""));
    let output = pipewright(&["run", "--cwd", "/no/such", "--", "true"]).output().unwrap();
    let words =
        "pipewright: cannot start \"true\": working directory \"/no/such\" does not exist\n";
    assert_eq!((err(&output), output.status.code()), (words, Some(125)));
    let output = pipewright(&["run", "--stdin", "/no/such", "--", "cat"]).output().unwrap();
    assert!(err(&output).starts_with("pipewright: cannot start \"cat\": cannot open \"/no/such\""));
    assert_eq!((err(&output).lines().count(), output.status.code()), (1, Some(125)));
}

#[test]
fn an_option_of_an_earlier_version_or_another_tool_names_ours() {
    for (args, word) in [
        ("run --kill-grace 1s -- true", "--kill-grace: write --kill-after"),
        ("run -k 1s -- true", "-k: write --kill-after"),
        ("run --capture -- true", "--capture: write --show-output on-failure"),
        ("pipe --limit 1k -- true", "--limit: write --max-output"),
        ("batch --tokens link=1 -- true", "--tokens: write --resource"),
        ("batch --fail-fast -- true", "--fail-fast: write --halt soon,fail=1"),
        ("batch --max-failures=3 -- true", "--max-failures: write --halt soon,fail=N"),
        ("batch --no-output -- true", "--no-output: write --show-output never"),
        ("batch -N 2 -- true", "-N: write --nodes for nodes, -n for several values a job"),
        ("batch -L 2 -- true", "-L: write -n"),
        ("batch --results out -- true", "--results: write --output-dir"),
        ("batch --sshlogin a -- true", "--sshlogin: write --via 'ssh HOST'"),
        (
            "run --retries 2 --retry-backoff -- true",
            "--retry-backoff: write --retry-max-delay DUR, as the delay doubles by itself",
        ),
        ("disk --unbuffered .", "--unbuffered: write --direct"),
        ("disk --block 4k .", "--block: write --bs"),
        ("bench pipes --blocks 4k", "--blocks: write --bs"),
        ("bench pipes --series 3", "--series: write --runs"),
    ] {
        let output = pipewright(&args.split(' ').collect::<Vec<_>>()).output().unwrap();
        assert_eq!(err(&output), format!("pipewright: there is no option {word}\n"), "{args}");
        assert_eq!(output.status.code(), Some(125), "{args}");
    }
}

#[test]
fn wrong_usage_is_125_and_names_the_remedy() {
    for (args, words) in [
        (&["run", "--timeout", "soon", "--", "true"][..], "write 200ms, 1.5s, 2m"),
        (&["run", "--timeout", "99999999999999999999d", "--", "true"], "is too long"),
        (&["run", "--max-output", "1X", "--", "true"], "write 4096, 64k"),
        (&["run", "--stop-signal", "NOPE", "--", "true"], "\"NOPE\" is not a signal: write TERM"),
        (&["run", "--signal", "NOPE", "--", "true"], "\"NOPE\" is not a signal: write TERM"),
        (
            &["run", "--timeuot", "2s", "--", "true"],
            "'--timeuot' found; a similar argument exists: '--timeout'",
        ),
        (&["run", "--timeout"], "none was supplied; try --help"),
        (&["disk", "--bs", "0", "."], "must be at least 1 byte"),
        (
            &["run", "--env", "NOVALUE", "--", "true"],
            "invalid --env \"NOVALUE\": the variable is not set; expected K=V",
        ),
        (&["run", "--inherit", "999", "--", "true"], "cannot inherit file descriptor 999"),
        (
            &["run", "--inherit", "1", "--", "true"],
            "cannot inherit file descriptor 1: use --stdin, --stdout or --stderr",
        ),
        (&["run"], "CMD"),
        (&["bench"], "requires a subcommand but one was not provided [subcommands: pipes, "),
        (&["frobnicate"], "frobnicate"),
    ] {
        let output = pipewright(args).output().unwrap();
        assert_eq!(output.status.code(), Some(125), "{args:?}");
        assert!(err(&output).contains(words), "{args:?}: {}", err(&output));
        assert!(err(&output).starts_with("pipewright: "), "{args:?}: {}", err(&output));
        assert_eq!(err(&output).lines().count(), 1, "{args:?}: {}", err(&output));
    }
}

#[test]
fn letters_stand_for_the_options_that_have_them_elsewhere() {
    assert_eq!(out(&run_sh(&["-C", "/"], "pwd")), "/\n");
    let output = run_sh(&["-q", "--timeout", "100ms"], "exec sleep 60");
    assert_eq!((err(&output), output.status.code()), ("", Some(124)));
    let output = pipewright(&["pipe", "-C", "/", "-q", "--", "pwd", "|", "cat"]).output().unwrap();
    assert_eq!((out(&output), err(&output)), ("/\n", ""));
    let output = pipewright(&["batch", "-q", "--", "echo", ":::", "1"]).output().unwrap();
    assert_eq!((out(&output), err(&output)), ("1\n", ""));
    for command in ["run", "pipe", "batch"] {
        let output = pipewright(&[command, "-q", "-v", "--", "true"]).output().unwrap();
        assert!(err(&output).contains("cannot be used with '--"), "{command}: {}", err(&output));
    }
}

#[test]
fn verbose_names_each_command_and_its_end() {
    let output = run_sh(&["-v", "--retries", "1", "--retry-delay", "0"], "exit 3");
    let lines: Vec<_> = err(&output).lines().collect();
    assert_eq!(lines.len(), 5, "{lines:?}");
    for at in [0, 3] {
        assert_eq!(lines[at], "pipewright: running sh -c 'exit 3'");
        assert!(lines[at + 1].starts_with("pipewright: \"sh\" ended after "), "{lines:?}");
        assert!(lines[at + 1].contains(": exit status: 3 (pid "), "{lines:?}");
    }
    let output = pipewright(&["pipe", "-v", "--", "echo", "a b", "|", "cat"]).output().unwrap();
    let lines: Vec<_> = err(&output).lines().collect();
    assert_eq!(lines[0], "pipewright: running echo 'a b' | cat");
    assert!(lines[1].starts_with("pipewright: \"echo | cat\" ended after "), "{lines:?}");
}

#[test]
fn streams_are_redirected_to_files() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name).display().to_string();
    fs::write(path("in"), "input\n").unwrap();
    let (input, both) = (path("in"), path("both"));
    let options = ["--stdin", &input, "--stdout", &both, "--merge"];
    assert!(run_sh(&options, "cat; echo err >&2").status.success());
    assert_eq!(fs::read_to_string(&both).unwrap(), "input\nerr\n");
    assert!(run_sh(&["--append", "--stdout", &both], "echo more").status.success());
    assert_eq!(fs::read_to_string(&both).unwrap(), "input\nerr\nmore\n");
    let output = run_sh(&["--tee=null"], "echo out; echo err >&2");
    assert_eq!((out(&output), err(&output)), ("out\n", "err\n"));
    let null = run_sh(&["--stdin", "null"], "cat; echo end");
    assert_eq!(out(&null), "end\n");
}

#[test]
fn tee_writes_what_the_terminal_shows_to_a_file_too() {
    let place = Place::new();
    let path = place.path("log").display().to_string();
    let tee = ["--tee", &path];
    let with = |options: &[&str], script: &str| run_sh(&[&tee[..], options].concat(), script);
    let output = with(&[], "echo out; echo err >&2; exit 3");
    assert_eq!((out(&output), err(&output), output.status.code()), ("out\n", "err\n", Some(3)));
    assert_eq!(place.lines("log"), ["err", "out"]);
    // In the order in which it was written, if both are one stream.
    let script = "for i in 1 2 3; do echo out $i; echo err $i >&2; done";
    let output = with(&["--merge", "--append"], script);
    let all = "out 1\nerr 1\nout 2\nerr 2\nout 3\nerr 3\n";
    assert_eq!(out(&output), all);
    assert!(
        place.read("log").ends_with(&format!("out\n{all}"))
            || place.read("log").ends_with(&format!("err\n{all}"))
    );
    // All attempts, with the marks.
    let retry = ["--retries", "1", "--retry-delay", "0", "--quiet", "--prefix", "> "];
    let output = with(&retry, "echo hi; exit 1");
    assert_eq!((out(&output), place.read("log").as_str()), ("> hi\n> hi\n", "> hi\n> hi\n"));
    let output = with(&["--pty"], "echo hi");
    assert_eq!(out(&output), place.read("log"));
    assert!(out(&output).starts_with("hi"));
    // No output is an empty file.
    assert!(with(&[], ":").status.success());
    assert_eq!(place.read("log"), "");
    let words = ["pipe", "--tee", &path, "--", "sh", "-c", "echo err >&2; echo out", "|", "cat"];
    let output = pipewright(&words).output().unwrap();
    assert_eq!((out(&output), err(&output)), ("out\n", "err\n"));
    assert_eq!(place.lines("log"), ["err", "out"]);
}

#[test]
fn the_file_of_tee_is_opened_once_the_command_was_found() {
    let place = Place::new();
    place.write("log", "old\n");
    for name in ["log", "none"] {
        let path = place.path(name).display().to_string();
        let output = pipewright(&["run", "--tee", &path, "--", "no-such"]).output().unwrap();
        assert_eq!(output.status.code(), Some(127));
    }
    assert_eq!((place.read("log").as_str(), place.path("none").exists()), ("old\n", false));
    // What cannot be written costs no run.
    let mark = place.path("mark").display().to_string();
    for path in ["/no/such/log", "/"] {
        for command in ["run", "pipe"] {
            let output =
                pipewright(&[command, "--tee", path, "--", "touch", &mark]).output().unwrap();
            assert_eq!(output.status.code(), Some(125));
            assert!(err(&output).starts_with("pipewright: cannot write \"/"), "{}", err(&output));
        }
    }
    assert!(!place.path("mark").exists());
    for (args, words) in [
        (&["run", "--tee"][..], "--tee needs a file: write --tee FILE, or --tee null"),
        (
            &["run", "--tee", "a", "--stdout", "b", "--", "true"],
            "'--tee <FILE>' cannot be used with",
        ),
        (&["pipe", "--tee", "a", "--", "true", ">", "b"], "--tee writes to a file and to stdout"),
        (&["run", "--tee", "a", "--report", "a", "--", "true"], "would overwrite \"a\""),
    ] {
        let output = place.tool(args).output().unwrap();
        assert!(err(&output).contains(words), "{args:?}: {}", err(&output));
        assert_eq!(output.status.code(), Some(125), "{args:?}");
    }
    if !pace::lacks("/dev/full") {
        let output = run_sh(&["--tee", "/dev/full"], "echo hi; exit 3");
        assert_eq!((out(&output), output.status.code()), ("hi\n", Some(125)));
    }
}

/// A pipe that nobody reads holds up the command, and no timeout.
#[test]
fn a_timeout_fires_even_if_the_file_of_tee_takes_nothing() {
    let shown = pace::in_time(300, |millis| {
        let place = Place::new();
        let path = place.path("fifo");
        assert!(std::process::Command::new("mkfifo").arg(&path).status().unwrap().success());
        let reader = fs::File::options().read(true).write(true).open(&path).unwrap();
        let path = path.display().to_string();
        let output = run_sh(&["--tee", &path, "--timeout", &pace::option(millis)], "exec yes");
        assert_eq!(output.status.code(), Some(124), "{}", err(&output));
        drop(reader);
        Some(out(&output).to_owned()).filter(|shown| !shown.is_empty())
    });
    assert!(shown.starts_with("y\ny\n"));
}

#[test]
fn a_failed_write_of_output_is_125() {
    if pace::lacks("/dev/full") {
        return;
    }
    let own = env!("CARGO_BIN_EXE_pipewright");
    let sh = |script: &str| {
        let script = script.replace("run", &format!("{own} run --tee=null --"));
        std::process::Command::new("sh").args(["-c", &script]).output().unwrap()
    };
    let output = sh("run echo hi > /dev/full");
    let words = "pipewright: cannot write to stdout: No space left on device (os error 28)\n";
    assert_eq!((err(&output), output.status.code()), (words, Some(125)));
    // The exit code of the command does not hide the failure.
    assert_eq!(sh("run sh -c 'echo hi; exit 3' > /dev/full").status.code(), Some(125));
}

/// SIGPIPE ends a command without a reader, with the code that a shell shows without the tool.
#[test]
fn a_command_whose_reader_has_gone_ends_with_141() {
    let own = env!("CARGO_BIN_EXE_pipewright");
    for tool in [
        "run -- yes",
        "run --tee=null -- yes",
        "run --tee=null -- seq 10000000",
        "run --max-output 1G -- yes",
        "run --idle-timeout 1h -- yes",
        "pipe -- yes '|' cat",
        "pipe --tee=null -- yes '|' cat",
        "pipe --max-output 1G -- yes",
    ] {
        let script = format!("{{ {own} {tool}; echo $? >&2; }} | head -n 1 | wc -l");
        let output = std::process::Command::new("sh").args(["-c", &script]).output().unwrap();
        assert_eq!((out(&output).trim(), err(&output)), ("1", "141\n"), "{tool}");
    }
}

#[test]
fn capture_prints_output_only_after_a_failure() {
    let output = run_sh(&["--show-output=on-failure"], "echo out; echo err >&2");
    assert_eq!((out(&output), err(&output)), ("", ""));
    let output = run_sh(&["--show-output=on-failure"], "echo out; echo err >&2; exit 1");
    assert_eq!((out(&output), err(&output)), ("out\n", "err\n"));
    // Bytes that are not text are printed unchanged.
    let output = run_sh(&["--show-output=on-failure"], r"printf 'a\377\376b'; exit 1");
    assert_eq!(output.stdout, b"a\xff\xfeb");
}

/// The tool has less memory than the output has bytes, and as much as it needs to run.
#[cfg(target_os = "linux")]
#[test]
fn captured_output_is_on_disk_beyond_what_memory_may_hold() {
    let own = env!("CARGO_BIN_EXE_pipewright");
    let command = "head -c 200000000 /dev/zero; printf '\\na\\nb\\n'; exit 3";
    for (option, bytes) in [("--show-output=on-failure", "200000005"), ("--tail 2", "4")] {
        let run = format!("ulimit -v 160000; {own} run {option} -- sh -c \"{command}\" | wc -c");
        let output = std::process::Command::new("sh").args(["-c", &run]).output().unwrap();
        assert_eq!((out(&output).trim(), err(&output)), (bytes, ""), "{option}");
    }
}

#[test]
fn both_ends_of_the_output_are_kept_and_the_start_comes_at_once() {
    let both = "1\n2\n[3880 bytes, 996 lines left out]\n999\n1000\n";
    let script = "seq 1000; seq 1000 >&2; exit 3";
    for how in ["always", "on-failure"] {
        let output = run_sh(&["--keep-output", "5+10", "--show-output", how], script);
        assert_eq!((out(&output), output.status.code()), (both, Some(3)), "{how}");
        assert!(err(&output).starts_with(both), "{}", err(&output));
    }
    // Each attempt has its own ends.
    let words = ["--keep-output", "5+10", "--retries", "1", "--retry-delay", "0", "--quiet"];
    assert_eq!(out(&run_sh(&words, "seq 1000; exit 1")), both.repeat(2));
    // The head alone is cut anywhere, and the command runs on.
    let output = run_sh(&["--keep-output", "5"], "seq 1000; exit 4");
    assert_eq!((out(&output), output.status.code()), ("1\n2\n3", Some(4)));
    for wrong in [&["--keep-output", "1+x"][..], &["--keep-output", "1+1", "--tee", "null"]] {
        assert_eq!(run_sh(wrong, "true").status.code(), Some(125), "{wrong:?}");
    }

    let words = ["run", "--keep-output", "5+10", "--", "sh", "-c", "echo go; read line; seq 1000"];
    let mut tool = pipewright(&words).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(tool.stdout.take().unwrap()).lines().map(Result::unwrap);
    assert_eq!(lines.next().unwrap(), "go");
    tool.stdin.take().unwrap().write_all(b"\n").unwrap();
    assert_eq!(lines.nth(2).unwrap(), "999");
    assert!(tool.wait().unwrap().success());
}

/// The command has ended, so nothing is said about it, whatever the reader does.
#[test]
fn a_signal_ends_a_tool_whose_reader_takes_no_kept_output() {
    let mut command = with_default_stop_signals();
    command.args(["run", "--kill-after", "0", "--keep-output", "0+1M", "--", "seq", "100000"]);
    let mut tool = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    // The tail is printed once the command has ended, and is longer than a pipe.
    let mut first = [0];
    tool.stdout.as_mut().unwrap().read_exact(&mut first).unwrap();
    send_signal(&tool, "TERM");
    let unread = tool.stdout.take();
    let output = tool.wait_with_output().unwrap();
    drop(unread);
    assert_eq!((output.status.code(), err(&output)), (Some(143), ""));
}

#[test]
fn captured_output_is_that_of_the_last_attempt() {
    let words = ["--show-output=on-failure", "--retries", "1", "--retry-delay", "0", "--quiet"];
    let output = run_sh(&words, "echo $$; exit 1");
    assert_eq!((out(&output).lines().count(), output.status.code()), (1, Some(1)));
}

#[test]
fn a_failed_write_of_captured_output_is_125_unless_the_reader_has_gone() {
    if pace::lacks("/dev/full") {
        return;
    }
    let own = env!("CARGO_BIN_EXE_pipewright");
    let sh = |script: &str, redirect: &str| {
        let script = format!(
            "{{ {own} run --show-output on-failure -- sh -c '{script}'; echo $? >&3; }} {redirect}"
        );
        let script = format!("exec 3>&1; {script}");
        std::process::Command::new("sh").args(["-c", &script]).output().unwrap()
    };
    // Without a line end std would keep the text in its buffer.
    for script in ["echo hi; exit 3", "printf hi; exit 3"] {
        let output = sh(script, "> /dev/full");
        assert_eq!(out(&output), "125\n");
        let words = "pipewright: cannot print the captured output: No space left on device (os error 28); the exit \
                     code would have been 3\n";
        assert_eq!(err(&output), words);
    }
    assert_eq!(out(&sh("echo hi >&2; exit 3", "2> /dev/full")), "125\n");
    // The reader ends before the tool starts.
    let script = format!(
        "mkfifo f; exec 3>&1; (: < f) & exec 4> f; wait; \
         {own} run --show-output on-failure -- sh -c 'echo hi; exit 3' >&4"
    );
    let dir = tempfile::tempdir().unwrap();
    let output =
        std::process::Command::new("sh").args(["-c", &script]).current_dir(&dir).output().unwrap();
    assert_eq!((err(&output), output.status.code()), ("", Some(3)));
}

#[test]
fn environment_and_directory_are_set() {
    let options = ["--clear-env", "--env", "A=1", "--env", "B=x=y", "--cwd", "/"];
    assert_eq!(out(&run_sh(&options, "echo $A $B $HOME; pwd")), "1 x=y\n/\n");
}

#[test]
fn pwd_is_the_directory_of_the_command() {
    let dir = tempfile::tempdir().unwrap();
    let real = dir.path().canonicalize().unwrap();
    let link = real.join("link");
    std::os::unix::fs::symlink(&real, &link).unwrap();
    let link = link.to_str().unwrap();
    let pwd = |options: &[&str]| {
        let mut tool = pipewright(&[&["run"], options, &["--", "printenv", "PWD"]].concat());
        let output = tool.env("PWD", "/").current_dir(&real).output().unwrap();
        out(&output).trim_end().to_owned()
    };
    for (cwd, shown) in [
        ("/usr", "/usr"),
        ("/usr/../usr/.", "/usr"),
        ("/usr//", "/usr"),
        (link, link),
        (".", real.to_str().unwrap()),
        ("./link", link),
        ("link/..", real.parent().and_then(|above| above.to_str()).unwrap()),
    ] {
        assert_eq!(pwd(&["--cwd", cwd]), shown, "{cwd}");
    }
    let output = pipewright(&["pipe", "--cwd", "/usr", "--", "printenv", "PWD"]).output().unwrap();
    assert_eq!(out(&output), "/usr\n");
    let jobs = real.join("jobs");
    fs::write(&jobs, r#"{"argv":["printenv","PWD"],"cwd":"/usr"}"#).unwrap();
    let batch = ["batch", "--quiet", "--jsonl", "--from", jobs.to_str().unwrap()];
    assert_eq!(out(&pipewright(&batch).output().unwrap()), "/usr\n");
    assert_eq!(pwd(&["--cwd", "/usr", "--env", "PWD=mine"]), "mine");
    assert_eq!(pwd(&["--cwd", "/usr", "--clear-env"]), "");
}

#[test]
fn a_variable_may_hold_bytes_that_are_not_text() {
    let variable = OsStr::from_bytes(b"A=\xff=\xfe");
    for command in ["run", "pipe"] {
        let mut tool = pipewright(&[command, "--env"]);
        tool.arg(variable).args(["--", "sh", "-c", "printf %s \"$A\""]);
        let output = tool.output().unwrap();
        assert_eq!((&output.stdout[..], err(&output)), (&b"\xff=\xfe"[..], ""), "{command}");
    }
}

#[test]
fn retries_are_limited_and_reported() {
    let dir = tempfile::tempdir().unwrap();
    let count = dir.path().join("count").display().to_string();
    let script = format!("echo x >> {count}; [ $(wc -l < {count}) = 3 ]");
    let output = run_sh(&["--retries", "5", "--retry-delay", "10ms"], &script);
    assert_eq!(output.status.code(), Some(0));
    let words = "pipewright: attempt 1 of 6: \"sh\" failed: exit status: 1; retrying in 10ms\n";
    assert!(err(&output).starts_with(words), "{}", err(&output));
    assert_eq!(err(&output).lines().count(), 2, "{}", err(&output));
    let output = run_sh(&["--retries", "1"], "exit 9");
    assert_eq!(output.status.code(), Some(9));
}

#[test]
fn a_stop_signal_to_the_tool_stops_the_command() {
    for (signal, code) in [("TERM", 143), ("INT", 130), ("HUP", 129)] {
        let mut command = with_default_stop_signals();
        command.args(["run", "--", "sh", "-c", "echo $$; sleep 60"]);
        let mut tool = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let mut pid = String::new();
        BufReader::new(tool.stdout.take().unwrap()).read_line(&mut pid).unwrap();
        send_signal(&tool, signal);
        assert_eq!(tool.wait().unwrap().code(), Some(code), "{signal}");
        assert!(!is_running(&pid), "{signal}: the command is left");
    }
}

#[test]
fn only_listed_handles_are_inherited() {
    let own = env!("CARGO_BIN_EXE_pipewright");
    // The shell opens 7 and 8 for the tool, which passes 7 on.
    let script = format!("{own} run --inherit 7 -- {own} handles 7</dev/null 8</dev/null");
    let output = std::process::Command::new("sh").args(["-c", &script]).output().unwrap();
    let numbers: Vec<&str> =
        out(&output).lines().filter_map(|line| line.split_whitespace().next()).collect();
    assert_eq!(numbers, ["0", "1", "2", "7"]);
}

#[test]
fn a_command_runs_with_stdio_closed() {
    let own = env!("CARGO_BIN_EXE_pipewright");
    let script = format!("{own} run -- sh -c 'exit 6' <&- >&- 2>&-; echo $?");
    let output = std::process::Command::new("sh").args(["-c", &script]).output().unwrap();
    assert_eq!(out(&output), "6\n");
}

#[test]
fn an_ignored_signal_stays_ignored() {
    let own = env!("CARGO_BIN_EXE_pipewright");
    // The shell ignores HUP, as nohup does. The command sends HUP to the tool.
    let script = format!("trap '' HUP; {own} run -- sh -c 'kill -HUP $PPID; echo still here'");
    let output = std::process::Command::new("sh").args(["-c", &script]).output().unwrap();
    assert_eq!((out(&output), output.status.code()), ("still here\n", Some(0)));
}

#[test]
fn inherit_null_and_a_dash_are_no_files() {
    let place = Place::new();
    let script = "echo out; echo err >&2";
    for (name, shown) in
        [("inherit", ["out\n", "err\n"]), ("-", ["out\n", "err\n"]), ("null", ["", ""])]
    {
        for more in [&[][..], &["--max-output", "100"], &["--append"]] {
            let streams = ["--stdout", name, "--stderr", name];
            let words = [&["run"], &streams[..], more, &["--", "sh", "-c", script]].concat();
            let output = place.tool(&words).output().unwrap();
            assert_eq!([out(&output), err(&output)], shown, "{words:?}");
            assert!(!place.path(name).exists(), "{words:?}");
        }
    }
    let mut tool = place.tool(&["run", "--stdin", "-", "--", "cat"]);
    place.write("in", "input");
    tool.stdin(std::fs::File::open(place.path("in")).unwrap());
    assert_eq!(out(&tool.output().unwrap()), "input");
    // A file of that name has a path.
    let output = place.tool(&["run", "--stdout", "./null", "--", "echo", "hi"]).output().unwrap();
    assert_eq!((out(&output), place.read("null").as_str()), ("", "hi\n"));
}

#[test]
fn one_file_for_both_streams_has_all_lines_in_order() {
    let script = "for i in 1 2 3; do echo out $i; echo err $i >&2; done";
    let all = "out 1\nerr 1\nout 2\nerr 2\nout 3\nerr 3\n";
    for stderr in ["both", "./both", "link"] {
        for more in [&[][..], &["--max-output", "100"], &["--append"]] {
            let place = Place::new();
            std::os::unix::fs::symlink("both", place.path("link")).unwrap();
            let streams = ["--stdout", "both", "--stderr", stderr];
            let words = [&["run"], &streams[..], more, &["--", "sh", "-c", script]].concat();
            let output = place.tool(&words).output().unwrap();
            assert_eq!(err(&output), "", "{words:?}");
            assert_eq!(place.read("both"), all, "{words:?}");
        }
    }
    // A device has nothing to overwrite, and its streams stay two.
    let place = Place::new();
    let streams = ["--stdout", "/dev/null", "--stderr", "/dev/null", "--max-output", "9", "--json"];
    let words = [&["run"], &streams[..], &["--", "sh", "-c", "echo hi"]].concat();
    let output = place.tool(&words).output().unwrap();
    assert!(out(&output).contains("\"stderr_bytes\":0"), "{}", out(&output));
}

#[test]
fn no_file_is_read_and_written_nor_written_twice() {
    for (options, written, other) in [
        (&["--stdin", "x", "--stdout", "./x"][..], "--stdout", "--stdin"),
        (&["--stdin", "x", "--stderr", "x"], "--stderr", "--stdin"),
        (&["--stdin", "x", "--report", "x"], "--report", "--stdin"),
        (&["--env-file", "x", "--stdout", "x"], "--stdout", "--env-file"),
        (&["--pty", "--record", "x", "--stdin", "x"], "--record", "--stdin"),
        (&["--pty", "--record", "x", "--stderr", "x"], "--record", "--stderr"),
        (&["--pty", "--record", "new", "--stderr", "new"], "--record", "--stderr"),
        (&["--pty", "--record", "x", "--report", "x"], "--report", "--record"),
    ] {
        let place = Place::new();
        place.write("x", "A=before\n");
        let words = [&["run"], options, &["--", "touch", "mark"]].concat();
        let output = place.tool(&words).output().unwrap();
        let words = format!("pipewright: {written} would overwrite ");
        assert!(err(&output).starts_with(&words), "{options:?}: {}", err(&output));
        assert!(err(&output).contains(&format!("the file of {other};")), "{}", err(&output));
        assert_eq!(output.status.code(), Some(125));
        assert_eq!((place.read("x").as_str(), place.path("mark").exists()), ("A=before\n", false));
    }
}

#[test]
fn a_report_does_not_overwrite_the_output() {
    for stream in ["--stdout", "--stderr"] {
        let place = Place::new();
        place.write("x", "before\n");
        let words = ["run", stream, "x", "--report", "./x", "--", "touch", "mark"];
        let output = place.tool(&words).output().unwrap();
        let error = format!(
            "pipewright: --report would overwrite \"x\", the file of {stream}; choose another file\n"
        );
        assert_eq!((err(&output), output.status.code()), (&error[..], Some(125)));
        assert_eq!((place.read("x").as_str(), place.path("mark").exists()), ("before\n", false));
    }
}
