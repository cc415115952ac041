//! Pipelines: the joints between stages, their bytes, their stderr and their status; their stops and failed starts.

use std::fs;
use std::time::{Duration, Instant};

use pipewright::{
    CancelToken, Command, ErrorKind, Event, Limit, Linger, Outcome, Pipeline, Signal, Source, Stdio,
};
use pipewright_test_macros::{isolated_test, watched_test};
use pipewright_tests::skip::{Need, is_forced_off, skipped};
use pipewright_tests::{alive, count, pace, watchdog};

use crate::{ended_by, flood, later, puppet, short, with_time};

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
    // By their own measure, and not compared with a stage that does little: what a virtual machine does not get of its
    // processor is counted as used, by whatever runs at that time.
    let capture =
        (sh("echo x") | puppet(["burn=30", "cat"]) | puppet(["burn=90", "cat"])).capture();
    let capture = capture.unwrap();
    let of = |stage: usize| capture.stages[stage].usage.unwrap();
    let cpu = |usage: pipewright::Usage| usage.user + usage.system;
    assert!(cpu(of(1)) >= Duration::from_millis(30), "{:?}", of(1));
    assert!(cpu(of(2)) >= Duration::from_millis(90), "{:?}", of(2));
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

/// A program that does not exist.
fn missing() -> Command {
    Command::new("/no/such/program")
}

#[watched_test]
fn a_timeout_stops_every_stage_and_keeps_the_partial_output() {
    let mut pipeline = puppet(["out=a", "wait=600"]) | puppet(["eat=1", "out=partial", "wait=600"]);
    pipeline = pipeline.pipe(puppet(["cat"]));
    with_time(later(), |time| {
        let capture = pipeline.timeout(time).capture().unwrap();
        assert!(capture.elapsed >= time);
        assert_eq!(capture.outcome, Outcome::TimedOut);
        assert!(!capture.success() && !capture.held_open);
        for stage in &capture.stages {
            ended_by(stage.status, Signal::TERM);
            assert!(!alive::is_running(stage.pid), "{stage:?}");
        }
        (capture.stdout == "partial").then_some(())
    });
    let error = pipeline.timeout(short()).run().unwrap_err();
    let words = error.to_string();
    assert_eq!(words.matches(" | ").count(), 2, "{words}");
    assert!(words.contains("\" failed: timed out after "), "{words}");
}

#[cfg(unix)]
#[watched_test]
fn the_reader_is_stopped_before_its_writer() {
    let dir = tempfile::tempdir().unwrap();
    let done = dir.path().join("done");
    for _ in 0..20 {
        // A reader cannot tell a cut input from a complete one.
        let load = format!("cat >/dev/null; echo loaded >{}", done.display());
        let commands = || {
            (
                Command::new("sleep").arg("600").owned(),
                Command::new("sh").args(["-c", &load]).owned(),
            )
        };
        let (sleep, sh) = commands();
        let output = (sleep | sh).timeout(Duration::from_millis(20)).output().unwrap();
        assert_eq!(output.outcome, Outcome::TimedOut);
        assert!(!done.exists(), "half a dump was loaded");
        // Also if the system sends the signal to both at once.
        let (mut sleep, mut sh) = commands();
        let mut pipeline = sleep.own_group().owned() | sh.own_group().owned();
        let output = pipeline.foreground().timeout(Duration::from_millis(20)).output().unwrap();
        assert_eq!(output.outcome, Outcome::TimedOut);
        assert!(!done.exists(), "half a dump was loaded");
    }
}

#[cfg(unix)]
#[watched_test]
fn stages_in_the_foreground_share_a_group_and_get_one_signal_each() {
    let dir = tempfile::tempdir().unwrap();
    let note = |name: &str| dir.path().join(name).display().to_string();
    let stage = |name: &str| {
        // Not with a `read`: a signal between the look for signals and the call would have its trap run after that.
        let script = format!(
            "trap 'echo term >> {0}' TERM; ps -o pgid= -p $$ > {0}; until [ -e {1} ]; do sleep 0.02; done",
            note(name),
            note("end")
        );
        Command::new("sh").args(["-c", &script]).own_group().stderr(Stdio::null()).owned()
    };
    let token = CancelToken::new();
    let mut pipeline = stage("first") | stage("second");
    // They end when both have noted it, however long that takes.
    pipeline.foreground().cancel(&token).kill_grace(pace::seconds(600));
    let lines = |name: &str| fs::read_to_string(note(name)).unwrap_or_default();
    let output = std::thread::scope(|scope| {
        let run = scope.spawn(|| pipeline.output().unwrap());
        // The stages write this once their handlers are set.
        watchdog::until("both stages are ready", || {
            ["first", "second"].iter().all(|name| lines(name).ends_with('\n'))
        });
        token.cancel();
        watchdog::until("both have noted the signal", || {
            ["first", "second"].iter().all(|name| lines(name).ends_with("term\n"))
        });
        fs::write(note("end"), "").unwrap();
        run.join().unwrap()
    });
    assert_eq!(output.outcome, Outcome::Cancelled);
    assert_eq!(output.containment, pipewright::Containment::Group);
    let leader = output.stages[0].pid;
    for name in ["first", "second"] {
        let words: Vec<String> = lines(name).split_whitespace().map(str::to_owned).collect();
        assert_eq!(words, [leader.to_string(), "term".to_owned()], "{name}");
    }
}

#[cfg(unix)]
#[watched_test]
fn a_stage_that_ignores_the_request_is_killed_after_the_grace() {
    let ignores_term = puppet(["ignore=TERM", "out=x", "wait=600"]);
    let mut pipeline = ignores_term | puppet(["eat=1", "out=y", "wait=600"]);
    with_time(later(), |time| {
        // The grace is also the time in which the other stage ends by the request.
        let capture = pipeline.timeout(time).kill_grace(time).capture().unwrap();
        if capture.stdout != "y" {
            return None;
        }
        assert!(capture.elapsed >= time * 2);
        let signals: Vec<_> =
            capture.stages.iter().map(|stage| stage.status.terminating_signal()).collect();
        assert_eq!(signals, [Some(Signal::KILL), Some(Signal::TERM)]);
        Some(())
    });
    let ignores_int = puppet(["ignore=INT", "out=x", "wait=600"]);
    let mut pipeline = ignores_int | puppet(["eat=1", "out=y", "wait=600"]);
    pipeline.stop_signal(Signal::INT).kill_grace(short());
    let output = with_time(later(), |time| {
        Some(pipeline.timeout(time).output().unwrap()).filter(|output| output.stdout == b"y")
    });
    ended_by(output.stages[0].status, Signal::KILL);
}

#[cfg(unix)]
#[watched_test]
fn a_stop_reaches_the_descendants_of_every_stage() {
    if is_forced_off("pidfd") {
        return skipped(Need::Pidfd, "descendants are only held by pidfds");
    }
    let stage = || puppet(["spawn=wait=600", "wait=600"]);
    let mut pipeline = stage() | stage() | stage();
    with_time(later(), |time| {
        let capture = pipeline.timeout(time).capture().unwrap();
        let below: Vec<u32> = capture.stderr.lines().map(|line| line.parse().unwrap()).collect();
        for pid in below.iter().copied().chain(capture.stages.iter().map(|stage| stage.pid)) {
            assert!(!alive::is_running(pid), "{pid} is left");
        }
        (below.len() == 3).then_some(())
    });
    // Orphans are only found through the group of their stage.
    let orphan = || {
        let mut command = puppet(["spawn=spawn=wait=600", "wait=600"]);
        command.own_group();
        command
    };
    let mut pipeline = orphan() | orphan();
    with_time(later(), |time| {
        let capture = pipeline.timeout(time).capture().unwrap();
        let below: Vec<u32> = capture.stderr.lines().filter_map(|line| line.parse().ok()).collect();
        watchdog::until("the groups are gone", || below.iter().all(|pid| !alive::is_running(*pid)));
        (below.len() == 4).then_some(())
    });
}

#[cfg(unix)]
#[watched_test]
fn idle_timeouts_limits_and_cancels_stop_a_pipeline() {
    let mut silent = puppet(["out=1", "wait=0.1", "out=2", "wait=600"]) | Command::new("cat");
    with_time(later(), |time| {
        let capture = silent.idle_timeout(time).capture().unwrap();
        assert_eq!(capture.outcome, Outcome::IdleTimedOut);
        (capture.stdout == "12").then_some(())
    });
    let mut loud = Command::new("yes") | Command::new("cat");
    let capture = loud.limit(Limit::fail(1000)).capture().unwrap();
    assert_eq!((capture.outcome, capture.stdout.len()), (Outcome::LimitExceeded, 1000));
    let token = CancelToken::new();
    let remote = token.clone();
    let canceller = std::thread::spawn(move || {
        std::thread::park_timeout(short());
        remote.cancel();
    });
    let output = (Command::new("yes") | Command::new("cat").stdout(Stdio::null()))
        .cancel(&token)
        .output()
        .unwrap();
    canceller.join().unwrap();
    assert_eq!(output.outcome, Outcome::Cancelled);
    let now = Instant::now();
    let mut late = puppet(["wait=600"]) | puppet(["wait=600"]);
    assert_eq!(late.deadline(now).output().unwrap().outcome, Outcome::TimedOut);
    let child = (puppet(["wait=600"]) | puppet(["wait=600"])).timeout(short()).spawn().unwrap();
    ended_by(child.wait().unwrap(), Signal::TERM);
}

#[watched_test]
fn a_held_last_stream_does_not_hang_the_pipeline() {
    let mut pipeline = puppet(["out=x"]) | puppet(["cat", "spawn=wait=600"]);
    let capture = pipeline.linger(Linger::StopAtExit).capture().unwrap();
    let _holder = alive::KillOnDrop(capture.stderr.trim().parse().unwrap());
    assert_eq!((capture.stdout.as_str(), capture.held_open), ("x", true));
    assert!(capture.success());
}

#[cfg(unix)]
#[isolated_test]
fn a_stage_that_cannot_start_is_named_and_nothing_is_left() {
    // Descendants can only be tracked by pidfds.
    let below = if is_forced_off("pidfd") { "out=" } else { "spawn=wait=600" };
    let sleeper = || puppet(["ignore=TERM", below, "wait=600"]);
    // The first start allocates permanent resources.
    assert!(Command::new("true").status().unwrap().success());
    let handles = count::handles_at_rest();
    // Without pidfds a thread holds a handle for a moment longer than its child exists.
    let no_handle_is_left = || watchdog::until("no handle is left", || count::handles() == handles);
    for bad in 0..3 {
        let stages = (0..3).map(|at| if at == bad { missing() } else { sleeper() });
        let mut pipeline: Pipeline<'_> = stages.collect();
        for error in [pipeline.output().unwrap_err(), pipeline.status().unwrap_err()] {
            let words = r#"cannot start "/no/such/program": no such file"#;
            assert_eq!(error.to_string(), words);
            assert!(matches!(error.kind(), ErrorKind::NotFound { .. }));
            assert_eq!(count::children(), Vec::<u32>::new(), "bad stage {bad}");
            no_handle_is_left();
        }
    }
    // A file of a later stage can be missing too.
    let mut last = Command::new("cat");
    last.stdout(Stdio::create("/no/such/dir/file"));
    let error = (sleeper() | last).output().unwrap_err();
    assert!(error.to_string().starts_with(r#"cannot start "cat": cannot open "/no/"#));
    assert_eq!(count::children(), Vec::<u32>::new());
    no_handle_is_left();
}

#[cfg(unix)]
#[watched_test]
fn unsupported_stage_options_are_refused_before_anything_starts() {
    let dir = tempfile::tempdir().unwrap();
    let started = dir.path().join("started");
    let touch = || {
        let mut command = Command::new("touch");
        command.arg(&started);
        command
    };
    let refused = |mut pipeline: Pipeline<'_>, words: &str| {
        let error = pipeline.output().unwrap_err();
        assert_eq!(error.kind(), &ErrorKind::InvalidInput, "{error}");
        assert_eq!(error.to_string(), words);
        assert!(!started.exists(), "{error}");
    };
    refused(Pipeline::new(Vec::<Command>::new()), "cannot start the pipeline: it has no stages");
    let words = r#"cannot start "": the command of a pipeline stage is empty"#;
    refused(touch() | Command::new(""), words);
    let words = r#"cannot start "cat": its stdin comes from the previous stage and cannot be set"#;
    refused(touch() | Command::new("cat").stdin(Stdio::null()), words);
    let words = r#"cannot start "cat": its stdout goes to the next stage and cannot be set"#;
    refused(touch() | Command::new("cat").stdout(Stdio::null()) | Command::new("wc"), words);
    let whole = |name: &str| {
        format!(r#"cannot start "cat": `{name}` applies to the whole run: set it on the pipeline"#)
    };
    refused(touch() | Command::new("cat").timeout(short()), &whole("timeout"));
    refused(touch() | Command::new("cat").kill_grace(short()), &whole("kill_grace"));
    refused(touch() | Command::new("cat").linger(Linger::UntilEof), &whole("linger"));
    refused(touch() | Command::new("cat").limit(Limit::fail(1)), &whole("limit"));
    refused(touch() | Command::new("cat").strict_utf8(), &whole("strict_utf8"));
    let mut teed = touch();
    teed.stderr(Stdio::tee());
    let words = "cannot start \"cat\": its stderr is piped and another stage's is teed: all \
                 stages share one stderr pipe";
    refused(teed | Command::new("cat").stderr(Stdio::piped()), words);
    // A joint is a pipe anyway.
    let read = (Command::new("echo").arg("fine").stdout(Stdio::piped())
        | Command::new("cat").stdin(Stdio::piped()).stdout(Stdio::piped()))
    .read();
    assert_eq!(read.unwrap(), "fine");
}

#[cfg(unix)]
#[watched_test]
fn stage_options_do_not_change_the_command() {
    let (mut echo, mut cat) = (Command::new("echo"), Command::new("cat"));
    echo.arg("hi");
    assert_eq!((&mut echo | &mut cat).read().unwrap(), "hi");
    let mut broken = &mut echo | &mut cat;
    broken = broken.pipe(missing());
    assert!(broken.read().is_err());
    // Each command has its own streams again, also if the pipeline did not start.
    assert_eq!(echo.read().unwrap(), "hi");
    assert_eq!(cat.stdin(Stdio::bytes("mine")).read().unwrap(), "mine");
}

/// Runs one of the ways for a pipeline to end.
fn one_run(round: usize) {
    let sh = |script: &str| {
        let mut command = Command::new("/bin/sh");
        command.args(["-c", script]);
        command
    };
    let cat = || Command::new("/bin/cat");
    match round % 8 {
        0 => assert!((cat() | missing() | cat()).output().is_err()),
        1 => assert!((cat() | cat() | missing()).capture().is_err()),
        2 => {
            let mut pipeline = sh("exec sleep 60") | cat();
            pipeline.timeout(Duration::ZERO).kill_grace(Duration::ZERO);
            assert_eq!(pipeline.output().unwrap().outcome, Outcome::TimedOut);
        }
        3 => {
            let mut pipeline = Command::new("yes") | cat();
            let output = pipeline.limit(Limit::fail(1)).output().unwrap();
            assert_eq!(output.outcome, Outcome::LimitExceeded);
        }
        4 => {
            let mut first = sh("exit 0");
            first.stdin(Stdio::bytes(vec![7; 100_000]));
            assert!((first | cat()).output().unwrap().stdin_unread > 0);
        }
        5 => drop((sh("exit 0") | cat().stdout(Stdio::piped())).spawn().unwrap()),
        6 => assert_eq!((sh("kill -9 $$") | cat()).status().unwrap().signal(), Some(9)),
        _ => assert_eq!((sh("echo hi") | cat() | cat()).read().unwrap(), "hi"),
    }
}

#[cfg(unix)]
#[isolated_test]
fn nothing_leaks_in_many_runs_with_errors_mixed_in() {
    (0..16).for_each(one_run);
    let settled = || {
        watchdog::until("dropped stages are reaped", || count::children().is_empty());
        watchdog::until("the reaper has gone to rest", || count::threads() <= 3);
        count::handles()
    };
    let handles = settled();
    (0..pace::rounds(800, 80)).for_each(one_run);
    assert_eq!(settled(), handles);
    assert_eq!(count::zombies(), Vec::<u32>::new());
}

#[cfg(unix)]
#[watched_test]
fn a_stage_keeps_its_own_options() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("file"), "x").unwrap();
    let mut first = Command::new("sh");
    first.args(["-c", "echo $NAME; ls; cat"]).env("NAME", "one").current_dir(dir.path());
    first.stdin(Stdio::bytes("fed"));
    let mut second = Command::new("sh");
    second.args(["-c", "cat; echo $NAME"]).env_clear();
    assert_eq!((first | second).read().unwrap(), "one\nfile\nfed");
}

/// Random pipelines behave as in a shell: the same bytes, and the same status.
#[cfg(unix)]
mod oracle {
    use std::fs;

    use pipewright::{Command, Pipeline, Stdio};
    use pipewright_test_macros::watched_test;
    use pipewright_tests::pace;
    use pipewright_tests::skip::{Need, skipped};
    use proptest::prelude::*;
    use proptest::test_runner::{Config, TestRunner};

    /// A stage: the words of its command, none of which a shell would change.
    type StageWords = Vec<String>;

    fn words(words: &[&str]) -> StageWords {
        words.iter().map(|word| (*word).to_owned()).collect()
    }

    fn stage() -> impl Strategy<Value = StageWords> {
        let fixed = prop::sample::select(vec![
            words(&["cat"]),
            words(&["tr", "a-m", "N-Z"]),
            words(&["tr", "-d", "a"]),
            words(&["wc", "-c"]),
            words(&["wc", "-l"]),
            words(&["sort"]),
            words(&["sort", "-r", "-u"]),
            words(&["rev"]),
            words(&["grep", "a"]),
            words(&["grep", "-c", "no-such-line"]),
            words(&["true"]),
            words(&["false"]),
            words(&["printf", "b1\\na2\\n"]),
            words(&["sh", "-c", "cat; kill -9 $$"]),
        ]);
        let counted = (prop::sample::select(vec!["head", "tail"]), prop::bool::ANY, 0_u32..300_000)
            .prop_map(|(program, by_lines, count)| {
                // Few lines; more bytes than a pipe holds.
                let (option, count) = if by_lines { ("-n", count % 50) } else { ("-c", count) };
                words(&[program, option, &count.to_string()])
            });
        let exits = (prop::bool::ANY, 0_u8..=255).prop_map(|(reads, code)| {
            let first = if reads { "cat; " } else { "" };
            words(&["sh", "-c", &format!("{first}exit {code}")])
        });
        prop_oneof![4 => fixed, 2 => counted, 1 => exits]
    }

    /// The input of the first stage: nothing, a little, or more than pipes hold.
    fn input() -> impl Strategy<Value = Vec<u8>> {
        let lines = prop::collection::vec("[a-z]{0,12}", 0..20).prop_map(|lines| {
            lines.iter().flat_map(|line| [line.as_bytes(), b"\n"].concat()).collect()
        });
        let large = (70_000_usize..400_000).prop_map(|count| b"banana\nmango\n".repeat(count / 13));
        prop_oneof![3 => lines, 1 => large]
    }

    fn pipeline(
        stages: &[StageWords],
        input: &std::path::Path,
        fed: Option<&[u8]>,
    ) -> Pipeline<'static> {
        let mut commands: Vec<Command> =
            stages.iter().map(|stage| Command::new(&stage[0]).args(&stage[1..]).owned()).collect();
        commands[0].stdin(match fed {
            Some(bytes) => Stdio::bytes(bytes),
            None => Stdio::open(input),
        });
        Pipeline::new(commands)
    }

    fn script(stages: &[StageWords]) -> String {
        let quoted = |stage: &StageWords| {
            stage.iter().map(|word| format!("'{word}'")).collect::<Vec<_>>().join(" ")
        };
        stages.iter().map(quoted).collect::<Vec<_>>().join(" | ")
    }

    /// Returns a shell's exit as the number that another shell reports for it.
    fn as_shell(status: pipewright::ExitStatus) -> i32 {
        status.code().or_else(|| status.signal().map(|signal| 128 + signal)).unwrap()
    }

    /// Returns the status of a pipeline whose stages have these, by the rule that [`Pipeline`] documents.
    fn attributed(statuses: &[i32], pipefail: bool) -> i32 {
        let (last, others) = statuses.split_last().unwrap();
        let failed = others.iter().rev().find(|status| ![0, 141].contains(*status));
        if *last != 0 || !pipefail { *last } else { failed.copied().unwrap_or(0) }
    }

    #[watched_test(limit = std::time::Duration::from_secs(300))]
    fn random_pipelines_match_a_shell() {
        if Command::new("bash").args(["-c", "true"]).status().is_err() {
            return skipped(
                Need::Program("bash"),
                "bash is not here, and sh does not tell the status of each stage",
            );
        }
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("input");
        let cases = std::env::var("PROPTEST_CASES").ok().and_then(|text| text.parse().ok());
        let config = Config {
            cases: cases.unwrap_or(pace::rounds(150, 15) as u32),
            failure_persistence: None,
            ..Config::default()
        };
        let case =
            (prop::collection::vec(stage(), 1..7), input(), prop::bool::ANY, prop::bool::ANY);
        let mut runner = TestRunner::new(config);
        let result = runner.run(&case, |(stages, input, fed, pipefail)| {
            fs::write(&file, &input).unwrap();
            let script = script(&stages);
            let mut ours = pipeline(&stages, &file, fed.then_some(&input[..]));
            let ours = ours.pipefail(pipefail).output().unwrap();
            let shell = |program: &str, script: &str| {
                let mut shell = Command::new(program);
                shell.args(["-c", script]).stdin(Stdio::open(&file)).output().unwrap()
            };
            let theirs = shell("sh", &script);
            prop_assert!(ours.stdout == theirs.stdout, "stdout of {script}");
            let statuses =
                shell("bash", &format!("{script} >/dev/null; echo ${{PIPESTATUS[@]}}")).stdout;
            let statuses: Vec<i32> = String::from_utf8(statuses)
                .unwrap()
                .split_whitespace()
                .map(|status| status.parse().unwrap())
                .collect();
            let stages: Vec<i32> = ours.stages.iter().map(|stage| as_shell(stage.status)).collect();
            // A writer may finish before its reader stops reading, or not: a race, in a shell as here.
            let same =
                |(ours, theirs): (&i32, &i32)| ours == theirs || [*ours, *theirs].contains(&141);
            let all_same = stages.iter().zip(&statuses).all(same) && stages.len() == statuses.len();
            prop_assert!(all_same, "{script}: {stages:?}, and in bash {statuses:?}");
            prop_assert_eq!(as_shell(ours.status), attributed(&stages, pipefail), "{}", script);
            Ok(())
        });
        if let Err(error) = result {
            panic!("{error}");
        }
    }
}
