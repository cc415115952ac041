//! Signals to a batch: the first Ctrl-C lets running jobs end, all others stop them, and so does a terminal that goes
//! away.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs::File;
use std::os::unix::process::ExitStatusExt as _;
use std::process::{Child, Command, Stdio};

use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use serde_json::Value;

use super::{Place, TAKEN, err, out, pace, sorted};
use crate::random::{Random, seed};
use crate::terminal::{CTRL_C, Shell};
use crate::trees::{MARK, mark, marked, until};
use crate::{Watchdog, send_signal, with_default_stop_signals};

/// Returns a batch of a shell script with these values, two at once and with a log. Its processes are marked with the
/// name.
fn batch_of(place: &Place, name: &str, script: &str, values: &[&str]) -> Command {
    let mut command = with_default_stop_signals();
    command.args("batch --progress none -j2 --log run.db -- sh -c".split(' '));
    command.arg(script).arg(":::").args(values);
    command.env(MARK, mark(name)).current_dir(place.path("")).stdin(Stdio::null());
    command
}

/// Starts two of four jobs, with a process beside each, and waits until both run.
fn started(place: &Place, name: &str) -> Child {
    let script =
        "echo start{} >> ran; sleep 600 & until [ -e end ]; do sleep 0.05; done; echo end{} >> ran";
    let mut command = batch_of(place, name, script, &["1", "2", "3", "4"]);
    let child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    until("both jobs run", || place.lines("ran") == ["start1", "start2"]);
    child
}

/// Returns the state of each job in the log, and the end of the last run.
fn log(place: &Place) -> Option<(Vec<String>, String)> {
    let states = place.rows("run.db", "select state from jobs order by number")?;
    let run = place.rows("run.db", "select how from runs order by number desc limit 1")?;
    Some((states, run[0].clone()))
}

#[test]
fn the_first_ctrl_c_drains() {
    if pace::lacks_proc() {
        return;
    }
    let place = Place::new();
    let mut child = started(&place, "batch-drain");
    let stderr = std::io::BufReader::new(child.stderr.take().unwrap());
    send_signal(&child, "INT");
    let mut lines = std::io::BufRead::lines(stderr);
    let line = lines.next().expect("it says that it drains").unwrap();
    assert_eq!(line, "pipewright: no more jobs start: interrupted");
    let line = lines.next().expect("it says what to do").unwrap();
    assert_eq!(line, "pipewright: Ctrl-C again stops the running jobs");
    place.write("end", "");
    let rest: Vec<String> = lines.map(Result::unwrap).collect();
    let status = child.wait().unwrap();
    assert!(status.signal() == Some(2) || status.code() == Some(130), "{status}");
    assert_eq!(place.lines("ran"), ["end1", "end2", "start1", "start2"]);
    assert!(rest.last().is_some_and(|line| line.contains("2 ok")), "{rest:?}");
    assert_eq!(marked("batch-drain"), [0; 0]);
    if let Some((states, how)) = log(&place) {
        assert_eq!(
            (&states[..2], &how[..]),
            (&["succeeded", "succeeded"].map(str::to_owned)[..], "drained")
        );
        assert!(states[2..].iter().all(|state| state == "not_run"), "{states:?}");
    }
}

#[test]
fn the_second_ctrl_c_and_other_signals_stop() {
    if pace::lacks_proc() {
        return;
    }
    for (name, code) in [("INT", 130), ("TERM", 143), ("HUP", 129)] {
        let place = Place::new();
        let mut child = started(&place, "batch-stop");
        let stderr = std::io::BufReader::new(child.stderr.take().unwrap());
        let mut lines = std::io::BufRead::lines(stderr);
        send_signal(&child, name);
        if name == "INT" {
            lines.next().expect("it says that it drains").unwrap();
            send_signal(&child, name);
        }
        let rest: Vec<String> = lines.map(Result::unwrap).collect();
        let status = child.wait().unwrap();
        let is_killed_by_int = code == 130 && status.signal() == Some(2);
        assert!(is_killed_by_int || status.code() == Some(code), "{name}: {status}");
        assert_eq!(place.lines("ran"), ["start1", "start2"], "{name}");
        assert!(rest.last().is_some_and(|line| line.contains("2 stopped")), "{name}: {rest:?}");
        assert_eq!(marked("batch-stop"), [0; 0], "{name}");
        if let Some((states, how)) = log(&place) {
            assert_eq!(states[..2], ["stopped", "stopped"], "{name}");
            assert_eq!(how, "stopped", "{name}");
        }
        // A stopped job has not succeeded: a resumed batch runs it.
        place.write("end", "");
        let script = "echo start{} >> ran; sleep 600 & until [ -e end ]; do sleep 0.05; done; echo end{} >> ran";
        let args =
            ["--log", "run.db", "--resume", "--", "sh", "-c", script, ":::", "1", "2", "3", "4"];
        let resumed = place.batch(&args);
        assert_eq!(resumed.status.code(), Some(0), "{name}: {}", err(&resumed));
        let ends = place.lines("ran");
        assert_eq!(ends[..4], ["end1", "end2", "end3", "end4"], "{name}");
    }
}

#[test]
fn a_reader_that_does_not_read_does_not_hold_a_stopped_batch() {
    if pace::lacks_proc() {
        return;
    }
    // More than a pipe holds. The second job, if there is one, runs until it is stopped.
    let long = "head -c 1000000 /dev/zero; touch wrote{}; [ {} = 1 ] || exec sleep 600";
    for (jobs, signals, code) in [
        (&["1"][..], &["TERM"][..], 143),
        (&["1", "2"], &["TERM"], 143),
        (&["1", "2"], &["INT", "INT"], 130),
    ] {
        let place = Place::new();
        let mut command = batch_of(&place, "batch-reader", long, jobs);
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let stderr = std::io::BufReader::new(child.stderr.take().unwrap());
        let mut lines = std::io::BufRead::lines(stderr);
        until("the jobs have written", || {
            jobs.iter().all(|job| place.path(&format!("wrote{job}")).exists())
        });
        for signal in signals {
            send_signal(&child, signal);
            if *signal == "INT" && signals.len() == 2 {
                // Two signals at once would be one.
                lines.next().expect("it says that it drains").unwrap();
            }
        }
        until("it has ended", || child.try_wait().unwrap().is_some());
        let status = child.wait().unwrap();
        let is_killed_by_int = code == 130 && status.signal() == Some(2);
        assert!(is_killed_by_int || status.code() == Some(code), "{signals:?}: {status}");
        assert_eq!(marked("batch-reader"), [0; 0]);
    }
}

/// Runs until there is a file `end`, with a process beside it in a session of its own.
const WAIT: &str = "echo start{} >> ran; setsid sleep 600 & until [ -e end ]; do sleep 0.05; done; echo end{} >> ran";

/// Starts two of four jobs as the leader of the session of a new terminal. Returns the tool and the other side.
fn on_terminal(place: &Place, name: &str, prefix: &[&str]) -> (Child, File) {
    let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
    // The terminal would stay while a process that was started here has it.
    rustix::io::fcntl_setfd(&master, rustix::io::FdFlags::CLOEXEC).unwrap();
    grantpt(&master).unwrap();
    unlockpt(&master).unwrap();
    let slave = ptsname(&master, Vec::new()).unwrap();
    let slave = File::options().read(true).write(true).open(slave.to_str().unwrap()).unwrap();
    let mut command = Command::new("env");
    command.args(["--default-signal=TERM,INT,HUP", "setsid", "--ctty"]).args(prefix);
    command.arg(env!("CARGO_BIN_EXE_pipewright"));
    command.args(["batch", "-j2", "--log", "run.db", "--", "sh", "-c", WAIT, ":::"]);
    command.args(["1", "2", "3", "4"]).env(MARK, mark(name)).env("TERM", "xterm");
    command.current_dir(place.path("")).stdin(slave.try_clone().unwrap());
    command.stdout(slave.try_clone().unwrap()).stderr(slave);
    let tool = command.spawn().unwrap();
    drop(command);
    until("both jobs run", || place.lines("ran") == ["start1", "start2"]);
    (tool, File::from(master))
}

/// Resumes the batch, and checks that each job ends.
#[track_caller]
fn resumes(place: &Place) {
    place.write("end", "");
    let args = ["--log", "run.db", "--resume", "--", "sh", "-c", WAIT, ":::", "1", "2", "3", "4"];
    let output = place.batch(&args);
    assert_eq!(output.status.code(), Some(0), "{}", err(&output));
    assert_eq!(place.lines("ran")[..4], ["end1", "end2", "end3", "end4"]);
}

#[test]
fn a_terminal_that_goes_away_stops_the_batch() {
    let _watchdog = Watchdog::start(120);
    if Command::new("setsid").arg("--version").output().is_err() {
        return pace::skipped(pace::Need::Program("setsid"), "there is no setsid here");
    }
    let place = Place::new();
    let (mut tool, terminal) = on_terminal(&place, "batch-hangup", &[]);
    // SIGHUP to the tool, and errors of all its writes.
    drop(terminal);
    until("it has ended", || tool.try_wait().unwrap().is_some());
    // 125: it cannot say so.
    let status = tool.wait().unwrap();
    assert!(matches!(status.code(), Some(125 | 129)), "{status}");
    assert_eq!(marked("batch-hangup"), [0; 0]);
    assert_eq!(place.lines("ran"), ["start1", "start2"]);
    if let Some((states, how)) = log(&place) {
        assert_eq!(
            (&states[..2], &how[..]),
            (&["stopped", "stopped"].map(str::to_owned)[..], "stopped")
        );
    }
    resumes(&place);
}

#[test]
fn a_batch_that_ignores_the_hangup_goes_on_without_its_terminal() {
    let _watchdog = Watchdog::start(120);
    if Command::new("setsid").arg("--version").output().is_err() {
        return pace::skipped(pace::Need::Program("setsid"), "there is no setsid here");
    }
    let place = Place::new();
    let (mut tool, terminal) = on_terminal(&place, "batch-nohup", &["env", "--ignore-signal=HUP"]);
    drop(terminal);
    place.write("end", "");
    until("it has ended", || tool.try_wait().unwrap().is_some());
    let status = tool.wait().unwrap();
    assert_eq!(status.code(), Some(0), "{status}");
    assert_eq!(marked("batch-nohup"), [0; 0]);
    assert_eq!(place.lines("ran")[..4], ["end1", "end2", "end3", "end4"]);
}

#[test]
fn ctrl_c_at_a_terminal_drains_and_reaches_no_job() {
    let _watchdog = Watchdog::start(120);
    let place = Place::new();
    let Some(mut shell) = Shell::start() else { return };
    shell.types(&format!(
        "cd {}; $PW batch -j2 --progress none -- sh -c '{WAIT}' ::: 1 2 3 4\n",
        place.path("").display()
    ));
    until("both jobs run", || place.lines("ran") == ["start1", "start2"]);
    shell.types(CTRL_C);
    shell.shows("Ctrl-C again stops");
    place.write("end", "");
    shell.shows("2 ok, 0 failed, 0 skipped, 0 unknown, 2 not run");
    shell.ended_with(130);
    assert_eq!(place.lines("ran"), ["end1", "end2", "start1", "start2"]);
    std::fs::remove_file(place.path("end")).unwrap();
    std::fs::remove_file(place.path("ran")).unwrap();
    shell.types(&format!(
        "$PW batch -j2 --progress none --log run.db -- sh -c '{WAIT}' ::: 1 2 3 4\n"
    ));
    until("both jobs run", || place.lines("ran") == ["start1", "start2"]);
    shell.types(CTRL_C);
    shell.shows("Ctrl-C again stops");
    shell.types(CTRL_C);
    shell.shows("2 stopped, 2 not run");
    shell.ended_with(130);
    assert_eq!(place.lines("ran"), ["start1", "start2"]);
    resumes(&place);
}

#[test]
fn the_stdin_of_a_job_is_not_the_terminal() {
    let _watchdog = Watchdog::start(120);
    let place = Place::new();
    let Some(mut shell) = Shell::start() else { return };
    // `cat` would wait for the keyboard.
    place.write("job", "if [ -t 0 ]; then echo a termi''nal; fi; cat; echo read''all$1");
    let line = "$PW batch -j2 --progress none --from list -- sh job\n";
    place.write("list", "1\n2\n3\n");
    shell.types(&format!("cd {}; {line}", place.path("").display()));
    let text = shell.shows("3 ok, 0 failed");
    assert_eq!(text.matches("readall").count(), 3, "{text:?}");
    assert!(!text.contains("a terminal"), "{text:?}");
}

#[test]
fn a_job_that_asks_at_the_terminal_fails_and_does_not_hang() {
    let _watchdog = Watchdog::start(120);
    let place = Place::new();
    let Some(mut shell) = Shell::start() else { return };
    place.write("job", "read answer < /dev/tty && echo ans''wered");
    place.write("list", "1\n2\n");
    shell.types(&format!(
        "cd {}; $PW batch --progress none --from list -- sh job; echo co''de=$?\n",
        place.path("").display()
    ));
    let text = shell.shows("code=123");
    assert!(text.contains("0 ok, 2 failed"), "{text:?}");
    assert!(text.contains("/dev/tty") && !text.contains("answered"), "{text:?}");
}

const CTRL_S: &str = "\x13";
const CTRL_Q: &str = "\x11";

#[test]
fn a_terminal_that_takes_no_output_stops_neither_timeouts_nor_signals() {
    let _watchdog = Watchdog::start(120);
    let place = Place::new();
    let Some(mut shell) = Shell::start_with(&["bash", "--norc", "--noprofile", "-i"], "xterm")
    else {
        return;
    };
    shell.types(&format!("cd {}\n", place.path("").display()));
    // The shell stays: while a process executes a program, its mark cannot be read.
    let job = format!("env {MARK}={} sh -c 'echo ran >> ran; sleep 600; :'", mark("batch-xoff"));
    // The bar is drawn each second.
    shell.types(&format!("$PW batch -j1 --progress bar --timeout 4s -- {job} ::: 1\n"));
    until("the job runs", || place.lines("ran") == ["ran"]);
    assert!(!marked("batch-xoff").is_empty());
    shell.types(CTRL_S);
    until("the timeout ends the job", || marked("batch-xoff").is_empty());
    shell.types(CTRL_Q);
    shell.shows("0 ok, 1 failed");
    shell.ended_with(123);
    let batch = format!("$PW batch -j1 --progress bar -- {job} ::: 1 & echo pid''=$!.\n");
    shell.types(&batch);
    shell.shows("pid=");
    let pid: u32 = shell.shows(".").parse().unwrap();
    until("the job runs", || place.lines("ran") == ["ran", "ran"]);
    shell.types(CTRL_S);
    // Until it writes to the terminal.
    std::thread::park_timeout(pace::millis(1_500));
    assert!(Command::new("kill").args(["-TERM", &pid.to_string()]).status().unwrap().success());
    until("the signal ends the job", || marked("batch-xoff").is_empty());
    until("the batch ends", || {
        // A zombie of the shell, which may not have noticed.
        let state = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        state.is_empty() || state.contains(") Z ")
    });
    shell.types(CTRL_Q);
}

#[test]
fn every_job_runs_below_a_low_limit_of_open_files() {
    let numbers: Vec<String> = (1..=40).map(|number| number.to_string()).collect();
    for (contain, limit) in [("tree", 24), ("tree", 32), ("tree", 64), ("group", 20), ("group", 24)]
    {
        for options in
            ["", "--tag", "--line-buffer -k", "--log run.db", "--output-dir out", INHERITED]
        {
            let place = Place::new();
            let words = format!(
                "ulimit -n {limit}; exec $PW batch --contain {contain} --progress none -j20 {options} -- \
                 sh -c 'until grep -q \"at once: \" said; do sleep 0.02; done; echo {{}}' ::: {} 2> said",
                numbers.join(" ")
            );
            // No job ends before as many run as find room: on a slow machine that would never be so.
            let output = place.sh(&words);
            let messages = &*place.read("said");
            let case = format!("{contain}, {limit}, {options}: {messages}");
            assert_eq!(output.status.code(), Some(0), "{case}");
            let lines = out(&output).lines().map(|line| line.rsplit('\t').next().unwrap());
            assert_eq!(
                sorted(&lines.collect::<Vec<_>>().join("\n")),
                sorted(&numbers.join("\n")),
                "{case}"
            );
            assert_eq!(messages.matches("at once: ").count(), 1, "{case}");
            assert!(messages.contains("only ") && messages.contains("`ulimit -n`"), "{case}");
            if options.contains("out") {
                let stored = place.sh("cat out/*/stdout");
                assert_eq!(sorted(out(&stored)), sorted(&numbers.join("\n")), "{case}");
            }
        }
    }
}

/// Open files that every process of the batch inherits.
const INHERITED: &str = "7< /dev/null 8< /dev/null";

#[test]
fn a_batch_that_can_start_nothing_says_why_and_ends_at_once() {
    // The time of all jobs together is that of one.
    let _watchdog = Watchdog::start(20);
    let place = Place::new();
    let output =
        place.sh("ulimit -n 12; exec $PW batch --progress none -j20 -- true ::: $(seq 200)");
    assert_eq!(output.status.code(), Some(123));
    let messages = err(&output);
    let reason = "too many open files (os error 24): raise `ulimit -n`, which is 12";
    assert!(
        messages
            .contains(&format!("nothing can be started now: cannot create a tree slot: {reason}"))
    );
    for number in 1..=200 {
        let end = format!("job {number} failed: cannot create a tree slot: {reason}\n");
        assert!(messages.contains(&end), "{end}: {messages}");
    }
}

#[test]
fn a_job_that_waits_for_room_has_not_begun() {
    let _watchdog = Watchdog::start(100);
    let place = Place::new();
    let script = "echo {} >> ran; until [ -e end ]; do sleep 0.05; done";
    let words = format!(
        "ulimit -n 40; exec $PW batch --progress none --once --log run.db -j20 -- sh -c '{script}' ::: $(seq 20)"
    );
    let messages = File::create(place.path("messages")).unwrap();
    let mut tool = place.shell(&words).stderr(messages).spawn().unwrap();
    let noted =
        || place.rows("run.db", "SELECT number FROM running JOIN jobs ON jobs.id = running.job");
    // Before that another one may be about to start.
    until("there is no room for more", || place.read("messages").contains("at once: "));
    let mut last = 0;
    until("those that run are noted, and no others", || {
        let ran = place.lines("ran").len();
        let is_steady = ran > 0 && ran == std::mem::replace(&mut last, ran);
        is_steady && noted().is_none_or(|rows| rows.len() == ran)
    });
    assert!(last < 20, "there is room for all");
    tool.kill().unwrap();
    tool.wait().unwrap();
    place.write("end", "");
    let begun = place.lines("ran").len();
    let resumed = place.batch(&["--resume", "run.db"]);
    let summary = format!("{} ok, 0 failed, 0 skipped, {begun} unknown", 20 - begun);
    assert!(err(&resumed).contains(&summary), "{}", err(&resumed));
    assert_eq!(
        sorted(&place.lines("ran").join("\n")),
        sorted(&(1..=20).map(|it| it.to_string()).collect::<Vec<_>>().join("\n"))
    );
}

/// The ways in which a job of a random graph ends.
const ENDS: [&str; 7] = [
    r#""argv":["true"]"#,
    r#""argv":["true"]"#,
    r#""argv":["false"]"#,
    r#""argv":["/no/such/program"]"#,
    r#""argv":["true"],"cwd":"/no/such/folder""#,
    r#""shell":"kill -9 $$""#,
    r#""shell":"sleep 600","timeout":"SOON""#,
];

#[test]
fn random_graphs_end_and_each_job_has_one_outcome() {
    let _watchdog = Watchdog::start(300);
    let seed = seed(7);
    let mut random = Random::of(seed);
    for round in 0..8 {
        let place = Place::new();
        let jobs = 5 + random.below(20);
        // A job is after jobs of lower ranks; the lines are in another order.
        let mut lines = Vec::new();
        let mut after_of = BTreeMap::new();
        let mut fails = BTreeMap::new();
        for rank in 0..jobs {
            let end = random.pick(&ENDS).replace("SOON", &pace::option(100));
            let after: Vec<u64> =
                (0..random.below(3)).filter(|_| rank > 0).map(|_| random.below(rank)).collect();
            let names: Vec<String> = after.iter().map(|rank| format!("\"j{rank}\"")).collect();
            lines.push(format!(r#"{{"id":"j{rank}",{end},"after":[{}]}}"#, names.join(",")));
            fails.insert(rank, end != ENDS[0]);
            after_of.insert(rank, after);
        }
        for at in 1..lines.len() {
            lines.swap(at, random.below(at as u64 + 1) as usize);
        }
        place.write("jobs", &(lines.join("\n") + "\n"));
        let args = ["-j3", "--jsonl", "--from", "jobs", "--log", "run.db", "--retries", "1"];
        let output = place.batch(&[&args[..], &["--retry-delay", "1ms"]].concat());
        let code = output.status.code();
        assert!(
            code == Some(0) || code == Some(123),
            "seed {seed}, round {round}: {}",
            err(&output)
        );
        // What each job has to become, from the lowest rank on.
        let mut expected: BTreeMap<u64, &str> = BTreeMap::new();
        for rank in 0..jobs {
            let is_held_up = after_of[&rank].iter().any(|other| expected[other] != "succeeded");
            let state = match (is_held_up, fails[&rank]) {
                (true, _) => "skipped",
                (false, true) => "failed",
                (false, false) => "succeeded",
            };
            expected.insert(rank, state);
        }
        let listed = place.tool(&["jobs", "run.db", "--json"]).output().unwrap();
        let mut found = BTreeMap::new();
        for line in out(&listed).lines() {
            let job: Value = serde_json::from_str(line).unwrap();
            let name = job["name"].as_str().unwrap();
            let rank: u64 = name[1..].parse().unwrap();
            assert_eq!(found.insert(rank, job["state"].as_str().unwrap().to_owned()), None);
        }
        let mut differs = String::new();
        for (rank, state) in &expected {
            if found.get(rank).map(String::as_str) != Some(state) {
                let _ = writeln!(differs, "j{rank}: {:?}, not {state}", found.get(rank));
            }
        }
        assert_eq!(differs, "", "seed {seed}, round {round}:\n{}", lines.join("\n"));
    }
}

#[test]
fn an_input_that_is_a_pipe_without_a_writer_stops_its_job_alone() {
    let _watchdog = Watchdog::start(60);
    let place = Place::new();
    place.make_pipe("pipe");
    let timeout = pace::option(300);
    let jobs = format!(
        "{{\"argv\":[\"cat\"],\"stdin_file\":\"pipe\",\"timeout\":\"{timeout}\"}}\n\
         {{\"argv\":[\"echo\",\"other\"]}}\n"
    );
    let output = place.batch_of(&jobs, &["--jsonl", "-j2", "--log", "run.db"]);
    assert_eq!((output.status.code(), out(&output)), (Some(123), "other\n"), "{}", err(&output));
    let Some(rows) = place.rows("run.db", "SELECT outcome FROM attempts ORDER BY job") else {
        return;
    };
    assert_eq!(rows, ["timed_out", "exited"]);
    // The end of the batch, and two signals.
    let jobs = "{\"argv\":[\"cat\"],\"stdin_file\":\"pipe\"}\n";
    let output = place.batch_of(jobs, &["--jsonl", "--batch-timeout", &timeout]);
    assert_eq!(output.status.code(), Some(124), "{}", err(&output));
    place.write("jobs", jobs);
    let output = place.sh(&format!(
        "{TAKEN} $PW batch --jsonl -a jobs --quiet & while ! kill -TERM $!; do :; done; taken $!; \
         kill -TERM $!; taken $!; kill -TERM $!; wait $!; echo $?"
    ));
    assert_eq!(out(&output), "143\n", "{}", err(&output));
}

#[cfg(unix)]
#[test]
fn a_job_reads_what_a_late_writer_sends_through_a_pipe() {
    let _watchdog = Watchdog::start(60);
    let place = Place::new();
    place.make_pipe("pipe");
    place.write("jobs", "{\"argv\":[\"cat\"],\"stdin_file\":\"pipe\",\"timeout\":\"60s\"}\n");
    let output =
        place.sh("$PW batch --jsonl -a jobs --progress none & echo early > pipe; wait $!; echo $?");
    assert_eq!(out(&output), "early\n0\n", "{}", err(&output));
}

#[cfg(unix)]
#[test]
fn jobs_that_come_through_a_pipe_without_a_writer_obey_the_end_of_the_batch() {
    let _watchdog = Watchdog::start(60);
    let place = Place::new();
    place.make_pipe("pipe");
    let output = place.batch(&["-a", "pipe", "--batch-timeout", &pace::option(300), "--", "echo"]);
    assert_eq!(output.status.code(), Some(124), "{}", err(&output));
    let output = place.sh("$PW batch --progress none -a pipe -- echo & echo one > pipe; wait $!");
    assert_eq!(out(&output), "one\n", "{}", err(&output));
}

#[cfg(unix)]
#[test]
fn streams_of_a_command_that_are_pipes_obey_its_time() {
    let _watchdog = Watchdog::start(60);
    let place = Place::new();
    place.make_pipe("pipe");
    let timeout = pace::option(200);
    for stream in ["--stdin", "--stdout", "--stderr"] {
        let words = ["run", "--timeout", &timeout, stream, "pipe", "--", "true"];
        let output = place.tool(&words).output().unwrap();
        assert_eq!(output.status.code(), Some(124), "{stream}: {}", err(&output));
        assert!(err(&output).contains("no other process has opened it"), "{}", err(&output));
    }
    let output = place.sh(
        &format!("{TAKEN} $PW run --stdin pipe -- cat & until kill -TERM $!; do :; done; taken $!; kill -TERM $!; \
         wait $!; echo $?; $PW run --timeout 60 --stdin pipe -- cat & echo late > pipe; wait $!"),
    );
    assert_eq!(out(&output), "143\nlate\n", "{}", err(&output));
}
