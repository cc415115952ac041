//! Pipelines: the joints between stages, their bytes, their stderr and their status.

use std::fs;

use pipewright::{Command, ErrorKind, Event, Outcome, Pipeline, Source, Stdio};
use pipewright_test_macros::{isolated_test, watched_test};
use pipewright_tests::pace;

use super::{flood, puppet};

/// Returns a shell script as a stage.
fn sh(script: &str) -> Command {
    Command::new("/bin/sh").args(["-c", script]).owned()
}

/// Returns the file behind that handle of a process, as the kernel names it: `pipe:[4711]`.
#[cfg(target_os = "linux")]
fn target(pid: u32, number: u32) -> String {
    let link = fs::read_link(format!("/proc/{pid}/fd/{number}")).unwrap();
    link.display().to_string()
}

#[cfg(unix)]
#[watched_test]
fn every_way_to_join_commands_gives_the_same_pipeline() {
    let mut a = Command::new("printf");
    a.arg(r"b\na\n");
    assert_eq!(a.pipe(Command::new("sort")).pipe(Command::new("cat")).read().unwrap(), "a\nb");
    let read = (Command::new("printf").arg(r"b\na\n") | Command::new("sort").arg("-r")).read();
    assert_eq!(read.unwrap(), "b\na");
    let read = (Command::new("echo") | Command::new("wc").arg("-l") | Command::new("cat")).read();
    assert_eq!(read.unwrap().trim(), "1");
    let mut kept = a.owned() | Command::new("sort");
    assert_eq!(kept.to_string(), r"printf 'b\na\n' | sort");
    assert_eq!(format!("{kept:?}"), r#"["printf" "b\\na\\n", "sort"]"#);
    for _ in 0..2 {
        assert_eq!(kept.read().unwrap(), "a\nb", "it can be run again");
    }
    let collected: Pipeline<'_> =
        ["1", "2", "3"].into_iter().map(|text| sh(&format!("cat; echo {text}"))).collect();
    let mut one_more = collected | Command::new("tac");
    assert_eq!(one_more.stages().len(), 4);
    assert_eq!(one_more.read().unwrap(), "3\n2\n1");
    assert_eq!(Pipeline::new([sh("echo alone")]).read().unwrap(), "alone");
}

#[cfg(target_os = "linux")]
#[isolated_test]
fn stages_are_joined_by_a_kernel_pipe_that_we_close() {
    let mut stages = puppet(["out=x", "wait=600"]) | puppet(["eat=1", "out=x", "wait=600"]);
    let mut last = puppet(["eat=1", "out=here", "wait=600"]);
    last.stdout(Stdio::piped());
    stages = stages.pipe(last);
    let mut child = stages.spawn().unwrap();
    let mut output = Vec::with_capacity(4);
    while output.len() < 4 {
        child.stdout.as_mut().unwrap().read_spare(&mut output).unwrap();
    }
    let ids = child.ids();
    let link_ends: Vec<String> = ids.iter().map(|pid| target(*pid, 1)).collect();
    for link in 0..2 {
        assert!(link_ends[link].starts_with("pipe:["), "{link_ends:?}");
        assert_eq!(link_ends[link], target(ids[link + 1], 0), "joint {link}");
    }
    assert_ne!(link_ends[0], link_ends[1]);
    let ours: Vec<String> = pipewright::open_handles()
        .unwrap()
        .into_iter()
        .filter_map(|handle| handle.target)
        .collect();
    assert!(ours.contains(&link_ends[2]), "the last stage's stdout comes to us");
    assert!(!ours.contains(&link_ends[0]) && !ours.contains(&link_ends[1]), "{ours:?}");
    for (stage, pid) in ids.iter().enumerate() {
        let open = fs::read_dir(format!("/proc/{pid}/fd")).unwrap().count();
        assert_eq!(open, 3, "stage {stage} has its stdio and nothing else");
    }
    child.kill().unwrap();
    assert!(!child.wait().unwrap().success());
}

#[watched_test]
fn never_deadlocks_with_much_fed_and_much_captured_through_three_stages() {
    let input = flood(64 << 20);
    let mut first = puppet(["cat"]);
    first.stdin(Stdio::bytes(input.clone()));
    let output = (first | puppet(["cat"]) | puppet(["cat"])).output().unwrap();
    assert!(output.stdout == input);
    assert_eq!((output.stdin_unread, output.held_open), (0, false));
}

#[watched_test]
fn never_deadlocks_when_all_stages_flood_stderr_as_well() {
    let mut first = puppet(["cat-both"]);
    first.stdin(Stdio::bytes(flood(3_000_000)));
    let output = (first | puppet(["cat-both"]) | puppet(["cat-both"])).output().unwrap();
    assert!(output.stdout == flood(3_000_000));
    assert_eq!(output.stderr.len(), 9_000_000);
}

#[cfg(unix)]
#[watched_test]
fn a_stage_that_closes_its_stdin_early_is_counted_and_stops_no_stage() {
    // The first continues after it has closed its input; the second leaves the output of the first unread.
    let mut first = sh("exec <&-; echo done");
    first.stdin(Stdio::bytes(flood(1_000_000)));
    let output = (first | sh("exec <&-; exec sleep 0.05") | Command::new("cat")).output().unwrap();
    assert!(output.success(), "{output:?}");
    assert_eq!((output.stdout.as_slice(), output.stdin_unread), (&b""[..], 1_000_000));
    let input = Stdio::bytes(flood(3_000_000));
    let mut eater = puppet(["eat=1000000", "out=ate"]);
    let output = (eater.stdin(input) | &mut Command::new("cat")).output().unwrap();
    assert_eq!((output.stdout.as_slice(), output.stdin_unread), (&b"ate"[..], 2_000_000));
}

#[cfg(unix)]
#[watched_test]
fn sigpipe_of_an_early_stage_is_no_failure() {
    let capture = (Command::new("yes") | Command::new("head").arg("-1")).capture().unwrap();
    assert_eq!((capture.stdout.as_str(), capture.stderr.as_str()), ("y\n", ""));
    assert!(capture.success(), "{capture:?}");
    assert_eq!(capture.stages[0].status.signal(), Some(13));
    assert_eq!((capture.decided_by, capture.outcome), (1, Outcome::Exited));
    // As a shell reports it, and past a stage in the middle.
    let mut cascade = sh("yes; exit $?") | Command::new("cat") | sh("head -n 1");
    assert!(cascade.run().is_ok());
    // The reader of the last stage is the caller, and not a stage.
    let mut last = Command::new("true") | sh("kill -PIPE $$");
    let capture = last.capture().unwrap();
    assert_eq!((capture.outcome, capture.decided_by), (Outcome::Signaled, 1));
}

#[cfg(unix)]
#[watched_test]
fn the_rightmost_failed_stage_is_reported() {
    let mut pipeline = sh("exit 1") | sh("echo why >&2; exit 2") | Command::new("cat");
    let capture = pipeline.capture().unwrap();
    assert_eq!((capture.status.code(), capture.decided_by), (Some(2), 1));
    assert_eq!(capture.pid, capture.stages[1].pid);
    let codes: Vec<_> = capture.stages.iter().map(|stage| stage.status.code()).collect();
    assert_eq!(codes, [Some(1), Some(2), Some(0)]);
    assert_eq!(pipeline.status().unwrap().code(), Some(2));
    let error = pipeline.read().unwrap_err();
    assert_eq!(error.to_string(), r#""/bin/sh" failed: exit status: 2: why"#);
    assert!(matches!(error.kind(), ErrorKind::Failed { .. }));
    assert_eq!(pipeline.pipefail(false).status().unwrap().code(), Some(0));
    assert!(pipeline.capture().unwrap().success());
    let mut killed = sh("kill -KILL $$") | Command::new("cat");
    let capture = killed.capture().unwrap();
    assert_eq!((capture.outcome, capture.status.signal()), (Outcome::Signaled, Some(9)));
}

#[cfg(unix)]
#[watched_test]
fn usage_is_reported_for_each_stage_and_in_total() {
    // Some kernels count whole ticks of the processor's clock.
    let turns = pace::rounds(20_000, 200_000);
    let busy = format!("i=0; while [ $i -lt {turns} ]; do i=$((i+1)); done; cat");
    let capture = (sh("echo x") | sh(&busy) | sh(&busy)).capture().unwrap();
    let of = |stage: usize| capture.stages[stage].usage.unwrap();
    let cpu = |usage: pipewright::Usage| usage.user + usage.system;
    assert!(cpu(of(1)) > cpu(of(0)) && cpu(of(2)) > cpu(of(0)));
    assert_eq!(cpu(capture.usage.unwrap()), cpu(of(0)) + cpu(of(1)) + cpu(of(2)));
}

#[cfg(unix)]
#[watched_test]
fn every_stderr_that_is_captured_shares_one_pipe_in_exact_order() {
    let mut pipeline = sh("echo 1 >&2; echo go")
        | sh("read go; echo 2 >&2; echo go")
        | sh("read go; echo 3 >&2; echo out");
    let capture = pipeline.capture().unwrap();
    assert_eq!((capture.stdout.as_str(), capture.stderr.as_str()), ("out\n", "1\n2\n3\n"));
    assert_eq!((capture.stdout_bytes, capture.stderr_bytes), (Some(4), Some(6)));
    // A stage with another stderr is left out.
    let mut quiet = sh("echo lost >&2");
    quiet.stderr(Stdio::null());
    let capture = (quiet | sh("echo kept >&2")).capture().unwrap();
    assert_eq!(capture.stderr, "kept\n");
    // Merged, it goes where stdout goes: to the next stage, or to us.
    let mut noisy = sh("echo out; echo err >&2");
    noisy.merge_stderr();
    let capture = (noisy | Command::new("cat")).capture().unwrap();
    assert_eq!((capture.stdout.as_str(), capture.stderr_bytes), ("out\nerr\n", Some(0)));
    let mut noisy = sh("echo out; echo err >&2");
    noisy.merge_stderr();
    let capture = (sh("echo first >&2") | noisy).capture().unwrap();
    assert_eq!((capture.stdout.as_str(), capture.stderr.as_str()), ("out\nerr\n", "first\n"));
}

#[watched_test]
fn the_first_stdin_and_the_last_stdout_are_those_of_their_commands() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name);
    fs::write(path("in"), "b\na\n").unwrap();
    let mut cat = puppet(["cat"]);
    cat.stdin(Stdio::open(path("in")));
    let mut sort = puppet(["sort"]);
    sort.stdout(Stdio::create(path("out"))).stderr(Stdio::create(path("err")));
    let mut pipeline = cat | sort;
    for _ in 0..2 {
        let output = pipeline.output().unwrap();
        assert_eq!((output.stdout_bytes, output.stderr_bytes), (None, Some(0)));
        assert_eq!(fs::read_to_string(path("out")).unwrap(), "a\nb\n");
    }
    let append = puppet(["cat"]).stdout(Stdio::append(path("out"))).owned();
    assert!(
        (puppet(["out=c
"]) | append)
            .status()
            .unwrap()
            .success()
    );
    assert_eq!(fs::read_to_string(path("out")).unwrap(), "a\nb\nc\n");
    // Nothing to read, as with a command.
    assert_eq!((puppet(["cat"]) | puppet(["count"])).read().unwrap().trim(), "0");
}

#[watched_test]
fn a_pipeline_can_have_twenty_stages() {
    let input = flood(5_000_000);
    let mut first = puppet(["cat"]);
    first.stdin(Stdio::bytes(input.clone()));
    let mut pipeline = Pipeline::new([first]);
    for _ in 0..19 {
        pipeline = pipeline.pipe(puppet(["cat"]));
    }
    let output = pipeline.output().unwrap();
    assert!(output.success() && output.stdout == input);
    assert_eq!(output.stages.len(), 20);
}

#[watched_test]
fn a_spawned_pipeline_is_fed_read_and_waited_for() {
    let mut sort = puppet(["sort"]);
    sort.stdout(Stdio::piped());
    let mut cat = puppet(["cat"]);
    cat.stdin(Stdio::piped());
    let mut pipeline = cat | sort;
    let mut child = pipeline.spawn().unwrap();
    assert_eq!(child.try_wait().unwrap(), None);
    std::io::Write::write_all(child.stdin.as_mut().unwrap(), b"2\n1\n").unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.stdout, b"1\n2\n");
    // The verb that waits feeds the command's own input.
    let mut cat = puppet(["cat"]);
    cat.stdin(Stdio::bytes(flood(500_000)));
    let child = (cat | puppet(["eat-all", "exit=4"])).spawn().unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(4));
    assert_eq!(child.try_wait().unwrap().unwrap().code(), Some(4), "again and again");
    assert!(!child.signal(pipewright::Signal::TERM).unwrap(), "no stage is left");
    child.kill().unwrap();
    // A piped stdin is closed first, so that a stage which reads to its end finds one.
    let mut cat = puppet(["cat"]);
    let child = (cat.stdin(Stdio::piped()) | puppet(["cat"])).spawn().unwrap();
    assert!(child.wait().unwrap().success());
}

#[cfg(unix)]
#[watched_test]
fn lines_and_events_come_from_the_last_stage_and_every_stderr() {
    let mut pipeline = sh("echo first >&2; echo b; echo a; exit 3") | sh("echo second >&2; sort");
    let mut lines = pipeline.lines().unwrap();
    let (mut out, mut err) = (Vec::new(), Vec::new());
    for line in &mut lines {
        let line = line.unwrap();
        if line.source == Source::Stdout { &mut out } else { &mut err }.push(line.text);
    }
    err.sort();
    assert_eq!(
        (out, err),
        (vec!["a".into(), "b".into()], vec!["first".into(), "second".to_owned()])
    );
    let ending = lines.finish().unwrap();
    assert_eq!(ending.status.code(), Some(3), "pipefail holds here too");
    assert!(ending.usage.is_some());
    // A reader that stops ends the pipeline, stage by stage, without an error.
    let mut pipeline = Command::new("yes") | Command::new("cat");
    let mut lines = pipeline.lines().unwrap();
    assert_eq!(lines.next().unwrap().unwrap().text, "y");
    drop(lines);
    let last = pipeline.timeout(pace::millis(100)).events().unwrap().last();
    match last.unwrap().unwrap() {
        Event::Exited(ending) => assert_eq!(ending.outcome, Outcome::TimedOut),
        other => panic!("{other:?} is no end"),
    }
}
