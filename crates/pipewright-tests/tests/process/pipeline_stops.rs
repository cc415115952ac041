//! Pipelines that are stopped, refused or fail to start: no process and no handle is left.

use std::fs;
use std::time::{Duration, Instant};

use pipewright::{
    CancelToken, Command, ErrorKind, Limit, Linger, Outcome, Pipeline, Signal, Stdio,
};
use pipewright_test_macros::{isolated_test, watched_test};
use pipewright_tests::skip::{Need, is_forced_off, skipped};
use pipewright_tests::{alive, count, pace, watchdog};

use super::{ended_by, later, puppet, short};

/// A program that does not exist.
fn missing() -> Command {
    Command::new("/no/such/program")
}

#[watched_test]
fn a_timeout_stops_every_stage_and_keeps_the_partial_output() {
    let mut pipeline = puppet(["out=a", "wait=600"]) | puppet(["eat=1", "out=partial", "wait=600"]);
    pipeline = pipeline.pipe(puppet(["cat"]));
    let capture = pipeline.timeout(later()).capture().unwrap();
    assert!(capture.elapsed >= later());
    assert_eq!((capture.outcome, capture.stdout.as_str()), (Outcome::TimedOut, "partial"));
    assert!(!capture.success() && !capture.held_open);
    for stage in &capture.stages {
        ended_by(stage.status, Signal::TERM);
        assert!(!alive::is_running(stage.pid), "{stage:?}");
    }
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
        let script = format!(
            "trap 'echo term >> {0}' TERM; ps -o pgid= -p $$ > {0}; exec 3< {1}; while :; do read x <&3; done",
            note(name),
            note("fifo")
        );
        Command::new("sh").args(["-c", &script]).own_group().owned()
    };
    assert!(Command::new("mkfifo").arg(note("fifo")).status().unwrap().success());
    let token = CancelToken::new();
    let mut pipeline = stage("first") | stage("second");
    pipeline.foreground().cancel(&token).kill_grace(later());
    let lines = |name: &str| fs::read_to_string(note(name)).unwrap_or_default();
    let output = std::thread::scope(|scope| {
        let run = scope.spawn(|| pipeline.output().unwrap());
        // The stages open the FIFO once their handlers are set.
        let _writer = fs::File::options().write(true).open(note("fifo")).unwrap();
        watchdog::until("both stages are ready", || {
            !lines("first").is_empty() && !lines("second").is_empty()
        });
        token.cancel();
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
    let capture = pipeline.timeout(later()).kill_grace(short()).capture().unwrap();
    assert!(capture.elapsed >= later() + short());
    let signals: Vec<_> =
        capture.stages.iter().map(|stage| stage.status.terminating_signal()).collect();
    assert_eq!(signals, [Some(Signal::KILL), Some(Signal::TERM)]);
    let mut pipeline = puppet(["ignore=INT", "wait=600"]) | puppet(["wait=600"]);
    pipeline.stop_signal(Signal::INT).timeout(later()).kill_grace(short());
    let output = pipeline.output().unwrap();
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
    let capture = pipeline.timeout(later()).capture().unwrap();
    let below: Vec<u32> = capture.stderr.lines().map(|line| line.parse().unwrap()).collect();
    assert_eq!(below.len(), 3);
    for pid in below.into_iter().chain(capture.stages.iter().map(|stage| stage.pid)) {
        assert!(!alive::is_running(pid), "{pid} is left");
    }
    // Orphans are only found through the group of their stage.
    let orphan = || {
        let mut command = puppet(["spawn=spawn=wait=600", "wait=600"]);
        command.own_group();
        command
    };
    let capture = (orphan() | orphan()).timeout(later()).capture().unwrap();
    let below: Vec<u32> = capture.stderr.lines().filter_map(|line| line.parse().ok()).collect();
    assert!(below.len() >= 4, "{below:?}");
    watchdog::until("the groups are gone", || below.iter().all(|pid| !alive::is_running(*pid)));
}

#[cfg(unix)]
#[watched_test]
fn idle_timeouts_limits_and_cancels_stop_a_pipeline() {
    let mut silent = puppet(["out=1", "wait=0.1", "out=2", "wait=600"]) | Command::new("cat");
    let capture = silent.idle_timeout(later()).capture().unwrap();
    assert_eq!((capture.outcome, capture.stdout.as_str()), (Outcome::IdleTimedOut, "12"));
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
    let words = "cannot start \"cat\": its stderr is piped and another stage's is teed: all stages share one stderr pipe";
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
