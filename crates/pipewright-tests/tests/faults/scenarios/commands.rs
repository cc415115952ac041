//! Commands: every verb, with both streams, input, files, terminals and tasks.

use std::fs;
use std::time::Duration;

use pipewright::{
    Command, Contain, Event, Outcome, Output, Pattern, Pipeline, PtySize, Session, Signal, Source,
    Stdio, run_all,
};

use super::{Scenario, passes};
use crate::scene::{Fault, Scene, Seen, expect, pause};

pub(super) fn all() -> Vec<Scenario> {
    let mut all = passes![
        status,
        start,
        output,
        input,
        capture,
        lines,
        events,
        spawn_wait,
        spawn_read_all,
        start_output,
        kill_on_drop,
        timeout,
        timeout_in_background,
        idle_timeout,
        to_files,
        tee_to,
        pipeline,
        pipeline_spawn,
        pipeline_tree,
        pty,
        session,
        run_all_captures,
        task_output,
        task_run_all,
        std_process,
        forget,
    ];
    // Without pidfds no descendant is found: `Descendants::collect`.
    const NO_PIDFDS: &[(&str, &[i32])] = &[("host pidfd_open", &[libc::EPERM, libc::ENOSYS])];
    all.push(Scenario::new("stop_with", |_| Ok(Box::new(stop_with))).without(NO_PIDFDS));
    all
}

/// Writes a little to both streams, and exits with 7.
const BOTH: &str = "echo out; echo err >&2; exit 7";
/// Writes more than pipes hold.
const MUCH: &str = "head -c 200000 /dev/zero | tee /dev/stderr";

/// Checks an output that is a success, and says what has to stay the same.
pub(super) fn whole(output: &Output, code: i32, stdout: &[u8], stderr: &[u8]) -> Seen {
    if output.outcome != Outcome::Exited {
        return Err(Fault::Told(format!("{:?}", output.outcome)));
    }
    // Told by these fields.
    if output.held_open
        || output.truncated
        || output.stdin_unread > 0
        || output.tee_failed.is_some()
    {
        return Err(Fault::Told(format!(
            "held open {}, truncated {}, unread {}, tee {:?}",
            output.held_open, output.truncated, output.stdin_unread, output.tee_failed
        )));
    }
    expect("code", output.status.code(), Some(code))?;
    expect("stdout bytes", output.stdout.len(), stdout.len())?;
    expect("stderr bytes", output.stderr.len(), stderr.len())?;
    expect("stdout", &*output.stdout, stdout)?;
    expect("stderr", &*output.stderr, stderr)?;
    Ok(format!("{:?} leftovers {}", output.containment, output.leftovers_killed))
}

/// Runs a runtime of one thread for that task.
pub(super) fn in_a_task<T>(task: impl Future<Output = T>) -> Result<T, Fault> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    Ok(runtime.map_err(Fault::told)?.block_on(task))
}

fn status(scene: &Scene) -> Seen {
    let status = scene.script("a", "exit 7").status().map_err(Fault::told)?;
    expect("code", status.code(), Some(7))?;
    scene.ran("a")?;
    Ok(String::new())
}

fn start(scene: &Scene) -> Seen {
    let process = scene.script("a", "exit 7").start().map_err(Fault::told)?;
    let end = process.wait().map_err(Fault::told)?;
    expect("end", format!("{end:?}").contains('7') || format!("{end:?}").contains("1792"), true)?;
    scene.ran("a")?;
    Ok(String::new())
}

fn output(scene: &Scene) -> Seen {
    let output = scene.script("a", BOTH).output().map_err(Fault::told)?;
    let seen = whole(&output, 7, b"out\n", b"err\n")?;
    scene.ran("a")?;
    Ok(seen)
}

fn input(scene: &Scene) -> Seen {
    let bytes: Vec<u8> = (0..200_000_u32).map(|number| (number % 251) as u8).collect();
    let mut command = scene.script("a", "cat");
    let output = command.stdin(Stdio::bytes(bytes.clone())).output().map_err(Fault::told)?;
    let seen = whole(&output, 0, &bytes, b"")?;
    scene.ran("a")?;
    Ok(seen)
}

fn capture(scene: &Scene) -> Seen {
    let capture = scene.script("a", MUCH).capture().map_err(Fault::told)?;
    expect("success", capture.success() || capture.held_open, true)?;
    expect("stdout", capture.stdout.len(), 200_000)?;
    expect("stderr", capture.stderr.len(), 200_000)?;
    scene.ran("a")?;
    Ok(String::new())
}

fn lines(scene: &Scene) -> Seen {
    let mut script = scene.script("a", "echo one; echo two >&2; echo three");
    let mut lines = script.lines().map_err(Fault::told)?;
    let (mut out, mut err) = (Vec::new(), Vec::new());
    for line in &mut lines {
        let line = line.map_err(Fault::told)?;
        if line.source == Source::Stdout { &mut out } else { &mut err }.push(line.text);
    }
    let ending = lines.finish().map_err(Fault::told)?;
    expect("code", ending.status.code(), Some(0))?;
    expect(
        "lines",
        (out, err),
        (vec!["one".to_owned(), "three".to_owned()], vec!["two".to_owned()]),
    )?;
    scene.ran("a")?;
    Ok(String::new())
}

fn events(scene: &Scene) -> Seen {
    let (mut out, mut err, mut code) = (Vec::new(), Vec::new(), None);
    for event in scene.script("a", BOTH).events().map_err(Fault::told)? {
        match event.map_err(Fault::told)? {
            Event::Stdout(bytes) => out.extend(bytes),
            Event::Stderr(bytes) => err.extend(bytes),
            Event::Exited(ending) => code = ending.status.code(),
            _ => {}
        }
    }
    expect("code", code, Some(7))?;
    expect("stdout", &*out, b"out\n")?;
    expect("stderr", &*err, b"err\n")?;
    scene.ran("a")?;
    Ok(String::new())
}

fn spawn_wait(scene: &Scene) -> Seen {
    let child = scene.script("a", "exit 7").spawn().map_err(Fault::told)?;
    let status = child.wait().map_err(Fault::told)?;
    expect("code", status.code(), Some(7))?;
    let again = child.try_wait_for(Duration::from_secs(5)).map_err(Fault::told)?;
    expect("code, again", again.and_then(|status| status.code()), Some(7))?;
    scene.ran("a")?;
    Ok(String::new())
}

fn spawn_read_all(scene: &Scene) -> Seen {
    let mut command = scene.script("a", "cat; echo err >&2; exit 7");
    let command = command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = command.stdin(Stdio::bytes(vec![b'x'; 100_000])).spawn().map_err(Fault::told)?;
    let output = child.read_all_bytes().map_err(Fault::told)?;
    let seen = whole(&output, 7, &[b'x'; 100_000], b"err\n")?;
    scene.ran("a")?;
    Ok(seen)
}

fn start_output(scene: &Scene) -> Seen {
    let mut running = scene.script("a", BOTH).start_output().map_err(Fault::told)?;
    let output = loop {
        if let Some(output) = running.wait_for(Duration::from_secs(1)).map_err(Fault::told)? {
            break output;
        }
    };
    let seen = whole(&output, 7, b"out\n", b"err\n")?;
    scene.ran("a")?;
    Ok(seen)
}

fn kill_on_drop(scene: &Scene) -> Seen {
    let child = scene.script("a", "exec sleep 100").kill_on_drop().spawn().map_err(Fault::told)?;
    let pid = child.pid();
    drop(child);
    super::trees::gone(pid)?;
    Ok(String::new())
}

fn stop_with(scene: &Scene) -> Seen {
    let script = "sleep 100 & echo $!; sleep 100 & echo $!; sleep 100 & echo $!; wait";
    let mut command = scene.script("a", script);
    let child = command.stdout(Stdio::create(scene.path("pids"))).spawn().map_err(Fault::told)?;
    let pids = super::trees::pids_in(&scene.path("pids"), 3);
    let stopped = child.stop_with(Signal::TERM, Duration::from_secs(3));
    let status = stopped.map_err(|error| {
        // Told, so that the caller does more; here only so that the machine stays clean.
        pids.iter().for_each(|pid| crate::injector::kill(*pid as i32));
        crate::injector::kill(child.pid() as i32);
        let _ = child.wait();
        Fault::told(error)
    })?;
    expect("signal", status.terminating_signal(), Some(Signal::TERM))?;
    for pid in pids {
        super::trees::gone(pid)?;
    }
    scene.ran("a")?;
    Ok(String::new())
}

fn timeout(scene: &Scene) -> Seen {
    let mut command = scene.script("a", "echo out; exec sleep 100");
    let output = command.timeout(Duration::from_millis(60)).output().map_err(Fault::told)?;
    expect("outcome", output.outcome, Outcome::TimedOut)?;
    expect("stdout", b"out\n".starts_with(&output.stdout), true)?;
    Ok(String::new())
}

fn timeout_in_background(scene: &Scene) -> Seen {
    let mut command = scene.script("a", "exec sleep 100");
    // An error of the wait ends it too.
    let command = command.timeout(Duration::from_millis(40)).enforce_in_background().kill_on_drop();
    let child = command.spawn().map_err(Fault::told)?;
    let status = child.wait().map_err(Fault::told)?;
    expect("killed", status.terminating_signal().is_some(), true)?;
    Ok(String::new())
}

fn idle_timeout(scene: &Scene) -> Seen {
    let mut command = scene.script("a", "echo out; exec sleep 100");
    let output = command.idle_timeout(Duration::from_millis(60)).output().map_err(Fault::told)?;
    expect("outcome", output.outcome, Outcome::IdleTimedOut)?;
    Ok(String::new())
}

fn to_files(scene: &Scene) -> Seen {
    pause(|| fs::write(scene.path("in"), "the input\n")).map_err(Fault::told)?;
    let mut command = scene.script("a", "cat; echo err >&2");
    let command =
        command.stdin(Stdio::open(scene.path("in"))).stdout(Stdio::create(scene.path("out")));
    let status = command.stderr(Stdio::append(scene.path("err"))).status().map_err(Fault::told)?;
    expect("code", status.code(), Some(0))?;
    expect("stdout", &*scene.bytes_of("out"), b"the input\n")?;
    expect("stderr", &*scene.bytes_of("err"), b"err\n")?;
    scene.ran("a")?;
    Ok(String::new())
}

fn tee_to(scene: &Scene) -> Seen {
    let mut command = scene.script("a", MUCH);
    let command = command.stdout(Stdio::tee_to(Stdio::create(scene.path("tee"))));
    let output = command.output().map_err(Fault::told)?;
    let zeros = vec![0; 200_000];
    let seen = whole(&output, 0, &zeros, &zeros)?;
    expect("the tee", scene.bytes_of("tee").len(), 200_000)?;
    scene.ran("a")?;
    Ok(seen)
}

fn pipeline(scene: &Scene) -> Seen {
    let first = scene.script("a", "head -c 100000 /dev/zero");
    let mut pipeline = first | scene.script("b", "cat") | scene.script("c", "tr '\\0' x");
    let output = pipeline.output().map_err(Fault::told)?;
    // A stage that the kernel ended: told by its status.
    if output.stages.iter().any(|stage| !stage.status.success()) {
        return Err(Fault::Told(format!("{:?}", output.stages)));
    }
    let seen = whole(&output.whole, 0, &[b'x'; 100_000], b"")?;
    for name in ["a", "b", "c"] {
        scene.ran(name)?;
    }
    Ok(seen)
}

fn pipeline_tree(scene: &Scene) -> Seen {
    let mut stages = ["a", "b", "c"].map(|name| scene.script(name, "cat"));
    stages[0].stdin(Stdio::bytes(vec![b'x'; 1000]));
    for stage in &mut stages {
        stage.contain(Contain::Tree);
    }
    let output = Pipeline::new(stages).output().map_err(Fault::told)?;
    if output.stages.iter().any(|stage| !stage.status.success()) {
        return Err(Fault::Told(format!("{:?}", output.stages)));
    }
    let seen = whole(&output.whole, 0, &[b'x'; 1000], b"")?;
    for name in ["a", "b", "c"] {
        scene.ran(name)?;
    }
    Ok(seen)
}

fn pipeline_spawn(scene: &Scene) -> Seen {
    let mut pipeline = scene.script("a", "echo out") | scene.script("b", "cat >/dev/null; exit 7");
    let child = pipeline.spawn().map_err(Fault::told)?;
    let status = child.wait().map_err(Fault::told)?;
    expect("code", status.code(), Some(7))?;
    for name in ["a", "b"] {
        scene.ran(name)?;
    }
    Ok(String::new())
}

fn pty(scene: &Scene) -> Seen {
    let mut command = scene.script("a", "test -t 1 && echo terminal; exit 7");
    let output = command.pty(PtySize { rows: 24, cols: 80 }).output().map_err(Fault::told)?;
    let seen = whole(&output, 7, b"terminal\r\n", b"")?;
    scene.ran("a")?;
    Ok(seen)
}

fn session(scene: &Scene) -> Seen {
    let mut command = scene.script("a", "printf 'name? '; read name; echo hello $name; exit 7");
    let mut session = Session::spawn(&mut command).map_err(Fault::told)?;
    session.set_timeout(Duration::from_secs(4));
    session.expect("name? ").map_err(Fault::told)?;
    session.send_line("Ada").map_err(Fault::told)?;
    session.expect("hello Ada\r\n").map_err(Fault::told)?;
    session.expect(Pattern::End).map_err(Fault::told)?;
    let status = session.wait().map_err(Fault::told)?;
    expect("code", status.code(), Some(7))?;
    scene.ran("a")?;
    Ok(String::new())
}

fn run_all_captures(scene: &Scene) -> Seen {
    let names = ["a", "b", "c"];
    let commands: Vec<Command> =
        names.iter().map(|name| scene.script(name, &format!("echo {name}"))).collect();
    let mut told = None;
    for (name, capture) in names.into_iter().zip(run_all(commands).concurrency(2).captures()) {
        match capture {
            Ok(capture) => {
                expect("stdout", capture.stdout, format!("{name}\n"))?;
                scene.ran(name)?;
            }
            Err(error) => told = Some(error.to_string()),
        }
    }
    told.map_or(Ok(String::new()), |error| Err(Fault::Told(error)))
}

fn task_output(scene: &Scene) -> Seen {
    let output = in_a_task(scene.script("a", BOTH).output_async())?.map_err(Fault::told)?;
    let seen = whole(&output, 7, b"out\n", b"err\n")?;
    scene.ran("a")?;
    Ok(seen)
}

fn task_run_all(scene: &Scene) -> Seen {
    let mut runner = pipewright::AsyncRunner::new(2);
    for name in ["a", "b", "c"] {
        runner.push(name, scene.script(name, &format!("echo {name}")));
    }
    let mut told = None;
    let mut count = 0;
    in_a_task(async {
        while let Some((name, capture)) = runner.next().await {
            count += 1;
            match capture {
                Ok(capture) => {
                    expect("stdout", capture.stdout, format!("{name}\n"))?;
                    scene.ran(name)?;
                }
                Err(error) => told = Some(error.to_string()),
            }
        }
        Ok(())
    })??;
    expect("results", count, 3)?;
    told.map_or(Ok(String::new()), |error| Err(Fault::Told(error)))
}

fn std_process(scene: &Scene) -> Seen {
    let tally = scene.folder.join("tally");
    let script = format!("echo {}.a >>{}; {BOTH}", scene.pass.get(), tally.display());
    let mut command = pipewright::process::Command::new("/bin/sh");
    let output = command.args(["-c", &script]).output().map_err(Fault::told)?;
    expect("code", output.status.code(), Some(7))?;
    expect("stdout", &*output.stdout, b"out\n")?;
    expect("stderr", &*output.stderr, b"err\n")?;
    scene.ran("a")?;
    Ok(String::new())
}

fn forget(scene: &Scene) -> Seen {
    let pid = scene.script("a", "exit 7").start_and_forget().map_err(Fault::told)?;
    super::trees::gone(pid)?;
    scene.ran("a")?;
    Ok(String::new())
}
