//! Ways that hand the output out piece by piece: lines, events, spawned children, terminals; and ways that give a run
//! up.

use std::io::{Read as _, Write as _};
use std::time::Duration;

use pipewright::{
    Child, Error, Event, Events, Line, Lines, Next, Pattern, PtySize, Session, Signal,
};
use pipewright_tests::pace;
use tokio::io::AsyncReadExt as _;

use crate::judge::Seen;
use crate::plan::{Plan, Way};
use crate::verbs::{runtime, stages};

/// The letters are those of `verbs`.
pub(crate) const WAYS: &[Way] = &[
    Way { name: "lines", run: lines, kinds: "btln", traits: "slmcbx" },
    Way { name: "lines_async", run: lines_async, kinds: "btln", traits: "slmcbx" },
    Way { name: "events", run: events, kinds: "btln", traits: "slmcb" },
    Way { name: "events_async", run: events_async, kinds: "btln", traits: "slmcb" },
    Way {
        name: "spawn_read_all_bytes",
        run: spawn_read_all_bytes,
        kinds: "btln",
        traits: "slmcbo",
    },
    Way { name: "spawn_read_all_text", run: spawn_read_all_text, kinds: "btln", traits: "slmcbo" },
    Way { name: "spawn_lines", run: spawn_lines, kinds: "btln", traits: "slmcbox" },
    Way { name: "spawn_events", run: spawn_events, kinds: "btln", traits: "slmcbo" },
    Way { name: "spawn_streams", run: spawn_streams, kinds: "btln", traits: "cbo" },
    Way { name: "spawn_streams_async", run: spawn_streams_async, kinds: "btln", traits: "cbo" },
    Way { name: "typed_input", run: typed_input, kinds: "btln", traits: "scbo" },
    Way { name: "pipeline_pieces", run: pipeline_pieces, kinds: "btln", traits: "slc" },
    Way { name: "pipeline_spawn", run: pipeline_spawn, kinds: "btln", traits: "slc" },
    Way { name: "pty", run: pty, kinds: "ln", traits: "csit" },
    Way { name: "session", run: session, kinds: "ln", traits: "cit" },
    Way { name: "start", run: start, kinds: "btln", traits: "ciq" },
];

/// Takes all lines, in one of three ways.
fn all_lines(plan: &Plan, mut lines: Lines) -> Result<Seen, Error> {
    let mut all = Vec::new();
    match plan.choice % 3 {
        0 => {
            for line in lines.by_ref() {
                all.push(line?);
            }
        }
        1 => {
            let mut line = Line::default();
            while lines.next_into(&mut line)? {
                all.push(line.clone());
            }
        }
        _ => loop {
            match lines.next_within(Duration::from_micros(300)) {
                Next::Item(line) => all.push(line?),
                Next::Pending => std::thread::yield_now(),
                Next::Done => break,
            }
        },
    }
    Ok(Seen::of_lines(all, &lines.finish()?))
}

async fn all_lines_async(mut lines: pipewright::AsyncLines) -> Result<Seen, Error> {
    let mut all = Vec::new();
    while let Some(line) = lines.next().await {
        all.push(line?);
    }
    Ok(Seen::of_lines(all, &lines.finish().await?))
}

fn all_events(plan: &Plan, mut events: Events) -> Result<Seen, Error> {
    let mut seen = Seen::default();
    if plan.choice % 2 == 0 {
        for event in events {
            seen.add(event?);
        }
        return Ok(seen);
    }
    loop {
        match events.next_within(Duration::from_micros(300)) {
            Next::Item(event) => seen.add(event?),
            Next::Pending => std::thread::yield_now(),
            Next::Done => return Ok(seen),
        }
    }
}

async fn all_events_async(mut events: pipewright::AsyncEvents) -> Result<Seen, Error> {
    let mut seen = Seen::default();
    while let Some(event) = events.next().await {
        seen.add(event?);
    }
    Ok(seen)
}

fn lines(plan: &Plan) -> Result<Seen, Error> {
    let slot = plan.slot()?;
    all_lines(plan, plan.command_in(&slot).lines()?)
}

fn lines_async(plan: &Plan) -> Result<Seen, Error> {
    let slot = plan.slot()?;
    runtime(plan).block_on(async { all_lines_async(plan.command_in(&slot).lines_async()?).await })
}

fn events(plan: &Plan) -> Result<Seen, Error> {
    let slot = plan.slot()?;
    all_events(plan, plan.command_in(&slot).events()?)
}

fn events_async(plan: &Plan) -> Result<Seen, Error> {
    let slot = plan.slot()?;
    runtime(plan).block_on(async { all_events_async(plan.command_in(&slot).events_async()?).await })
}

fn spawn_read_all_bytes(plan: &Plan) -> Result<Seen, Error> {
    let slot = plan.slot()?;
    let child = plan.command_in(&slot).spawn()?;
    let output = match plan.choice % 2 {
        0 => child.read_all_bytes(),
        _ => runtime(plan).block_on(child.read_all_bytes_async()),
    };
    output.map(Seen::of_output)
}

fn spawn_read_all_text(plan: &Plan) -> Result<Seen, Error> {
    let slot = plan.slot()?;
    let child = plan.command_in(&slot).spawn()?;
    let capture = match plan.choice % 2 {
        0 => child.read_all_text(),
        _ => runtime(plan).block_on(child.read_all_text_async()),
    };
    capture.map(Seen::of_capture)
}

fn spawn_lines(plan: &Plan) -> Result<Seen, Error> {
    let slot = plan.slot()?;
    let child = plan.command_in(&slot).spawn()?;
    if plan.choice % 7 == 0 {
        return runtime(plan)
            .block_on(async { all_lines_async(child.read_all_lines_async()?).await });
    }
    all_lines(plan, child.read_all_lines()?)
}

fn spawn_events(plan: &Plan) -> Result<Seen, Error> {
    let slot = plan.slot()?;
    let child = plan.command_in(&slot).spawn()?;
    if plan.choice % 7 == 0 {
        return runtime(plan)
            .block_on(async { all_events_async(child.read_all_events_async()).await });
    }
    all_events(plan, child.read_all_events())
}

/// Returns what was read until nobody held the streams, and the end.
fn read_whole(plan: &Plan, child: &Child, streams: [Vec<u8>; 2]) -> Result<Seen, Error> {
    let status = child.wait()?;
    Ok(Seen {
        streams: streams.map(Some),
        held_open: plan.script.holds.then_some(false),
        ..Seen::of_status(status.into())
    })
}

/// Reads the streams itself, each in a thread, as with std.
fn spawn_streams(plan: &Plan) -> Result<Seen, Error> {
    let slot = plan.slot()?;
    let mut child = plan.command_in(&slot).spawn()?;
    let (mut out, mut err) =
        (child.stdout.take().expect("piped"), child.stderr.take().expect("piped"));
    let other = std::thread::spawn(move || {
        let mut bytes = Vec::new();
        err.read_to_end(&mut bytes).expect("a pipe");
        bytes
    });
    let mut bytes = Vec::new();
    out.read_to_end(&mut bytes).expect("a pipe");
    read_whole(plan, &child, [bytes, other.join().expect("the thread")])
}

fn spawn_streams_async(plan: &Plan) -> Result<Seen, Error> {
    let slot = plan.slot()?;
    let mut child = plan.command_in(&slot).spawn()?;
    let (out, err) = (child.stdout.take().expect("piped"), child.stderr.take().expect("piped"));
    let (mut first, mut second) = (Vec::new(), Vec::new());
    runtime(plan).block_on(async {
        let (mut out, mut err) =
            (out.into_async().expect("a pipe"), err.into_async().expect("a pipe"));
        let (one, two) = tokio::join!(out.read_to_end(&mut first), err.read_to_end(&mut second));
        one.and(two).expect("pipes");
        child.wait_async().await.map(drop)
    })?;
    read_whole(plan, &child, [first, second])
}

/// Writes the input itself, from another thread, while the output is read.
fn typed_input(plan: &Plan) -> Result<Seen, Error> {
    let slot = plan.slot()?;
    let mut command = plan.command_in(&slot);
    command.stdin(pipewright::Stdio::piped()).enforce_in_background();
    let mut child = command.spawn()?;
    let mut stdin = child.stdin.take().expect("piped");
    let input = plan.script.input.clone();
    let writer = std::thread::spawn(move || {
        // A script need not read it.
        let _ = stdin.write_all(&input);
    });
    let seen = child.read_all_bytes().map(Seen::of_output);
    if seen.as_ref().is_ok_and(|it| it.held_open != Some(true)) {
        writer.join().expect("the writer");
    }
    // What it writes itself is not counted.
    Ok(Seen { unread: None, ..seen? })
}

fn pipeline_pieces(plan: &Plan) -> Result<Seen, Error> {
    let mut stages = stages(plan);
    match plan.choice % 5 {
        0 => all_lines(plan, stages.lines()?),
        1 => all_events(plan, stages.events()?),
        2 => runtime(plan).block_on(async { all_lines_async(stages.lines_async()?).await }),
        3 => runtime(plan).block_on(async { all_events_async(stages.events_async()?).await }),
        _ => {
            let mut running = stages.start_output()?;
            loop {
                if let Some(output) = running.wait_for(Duration::from_millis(20))? {
                    return Ok(Seen::of_output(output));
                }
            }
        }
    }
}

fn pipeline_spawn(plan: &Plan) -> Result<Seen, Error> {
    let mut first = plan.command();
    first.stderr(pipewright::Stdio::piped());
    let mut last = pipewright::Command::new("cat");
    last.stdout(pipewright::Stdio::piped()).stderr(pipewright::Stdio::piped());
    let mut pipeline = pipewright::Pipeline::new([first, last]);
    plan.set_all(&mut pipeline);
    let child = pipeline.spawn()?;
    let output = match plan.choice % 2 {
        0 => child.wait_with_output(),
        _ => runtime(plan).block_on(child.wait_with_output_async()),
    };
    output.map(|it| Seen::of_output(it.whole))
}

fn pty(plan: &Plan) -> Result<Seen, Error> {
    let slot = plan.slot()?;
    let mut command = plan.command_in(&slot);
    command.pty(PtySize { rows: 24, cols: 80 });
    let output = match plan.choice % 2 {
        0 => command.output(),
        _ => runtime(plan).block_on(command.output_async()),
    };
    let seen = output.map(Seen::of_output)?;
    Ok(Seen { unread: None, ..seen })
}

fn session(plan: &Plan) -> Result<Seen, Error> {
    let slot = plan.slot()?;
    let mut command = plan.command_in(&slot);
    let mut session = Session::spawn(&mut command)?;
    session.set_timeout(Duration::from_secs(600));
    let before = match plan.choice % 3 {
        0 => session.expect_end()?,
        1 => session.expect(Pattern::End)?.before,
        _ => runtime(plan).block_on(session.expect_async(Pattern::End))?.before,
    };
    let status = session.wait()?;
    let held_open = plan.script.holds.then_some(false);
    Ok(Seen { streams: [Some(before), None], held_open, ..Seen::of_status(status.into()) })
}

/// Waits for a process whose streams nobody reads here.
fn start(plan: &Plan) -> Result<Seen, Error> {
    let mut command = plan.command();
    for stream in ["out", "err"] {
        let target = pipewright::Stdio::create(plan.path(stream));
        _ = if stream == "out" { command.stdout(target) } else { command.stderr(target) };
    }
    command.stdin(pipewright::Stdio::null());
    let process = command.start()?;
    let end = match plan.choice % 3 {
        0 => process.wait()?,
        1 => runtime(plan).block_on(process.wait_async())?,
        _ => loop {
            if let Some(end) = process.try_wait_for(Duration::from_millis(3))? {
                break end;
            }
        },
    };
    let bytes = |name| std::fs::read(plan.path(name)).expect("a file");
    let held_open = plan.script.late.then_some(true);
    let streams = [Some(bytes("out")), Some(bytes("err"))];
    let seen = end.status.map(|status| Seen::of_status(status.into())).unwrap_or_default();
    Ok(Seen { streams, held_open, ..seen })
}

/// Returns the events of a run that is given up after some.
fn some_events(mut events: Events, count: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    for event in events.by_ref().take(count) {
        if let Ok(Event::Stdout(more)) = event {
            bytes.extend(more);
        }
    }
    bytes
}

/// The letters are those of `verbs`.
pub(crate) const GIVE_UP: &[Way] = &[
    Way { name: "drop_future", run: drop_future, kinds: "bt", traits: "dlc" },
    Way { name: "drop_events", run: drop_events, kinds: "bt", traits: "dc" },
    Way { name: "drop_lines", run: drop_lines, kinds: "tl", traits: "dc" },
    Way { name: "drop_child", run: drop_child, kinds: "bt", traits: "dco" },
    Way { name: "drop_pipeline", run: drop_pipeline, kinds: "bt", traits: "dc" },
    Way { name: "stop_child", run: stop_child, kinds: "bt", traits: "dcbo" },
    Way { name: "drop_runner", run: drop_runner, kinds: "bt", traits: "dc" },
];

const GIVEN_UP: Seen = Seen {
    streams: [None, None],
    is_text: false,
    is_trimmed: false,
    lines: [None, None],
    end: None,
    outcome: None,
    held_open: None,
    truncated: None,
    unread: None,
    counts: [None, None],
    tee: None,
    dropped: true,
};

fn drop_future(plan: &Plan) -> Result<Seen, Error> {
    let slot = plan.slot()?;
    let mut command = plan.command_in(&slot);
    runtime(plan).block_on(async {
        let after = pace::millis(plan.after);
        match plan.choice % 3 {
            0 => tokio::time::timeout(after, command.output_async()).await.map(drop).is_err(),
            1 => tokio::time::timeout(after, command.capture_async()).await.map(drop).is_err(),
            _ => tokio::time::timeout(after, command.status_async()).await.map(drop).is_err(),
        }
    });
    Ok(GIVEN_UP)
}

/// Returns the part of stdout that came before.
fn drop_events(plan: &Plan) -> Result<Seen, Error> {
    let slot = plan.slot()?;
    let mut command = plan.command_in(&slot);
    command.kill_on_drop();
    let count = if plan.script.streams.iter().all(Vec::is_empty) { 1 } else { 2 };
    let bytes = some_events(command.events()?, count);
    Ok(Seen { streams: [Some(bytes), None], ..GIVEN_UP })
}

fn drop_lines(plan: &Plan) -> Result<Seen, Error> {
    let slot = plan.slot()?;
    let mut command = plan.command_in(&slot);
    command.kill_on_drop();
    if plan.choice % 2 == 0 {
        let mut lines = command.lines()?;
        let _ = lines.next_within(pace::millis(plan.after));
    } else {
        runtime(plan).block_on(async {
            let mut lines = command.lines_async()?;
            let _ = lines.next_within(pace::millis(plan.after)).await;
            Ok(())
        })?;
    }
    Ok(GIVEN_UP)
}

fn drop_child(plan: &Plan) -> Result<Seen, Error> {
    let slot = plan.slot()?;
    let mut command = plan.command_in(&slot);
    let child = command.kill_on_drop().spawn()?;
    match plan.choice % 4 {
        0 => drop(child),
        1 => {
            child.kill()?;
            child.wait()?;
        }
        2 => {
            let _ = child.try_wait_for(pace::millis(plan.after))?;
        }
        _ => {
            let read = child.read_all_bytes_async();
            let _ = runtime(plan)
                .block_on(async { tokio::time::timeout(pace::millis(plan.after), read).await });
        }
    }
    Ok(GIVEN_UP)
}

fn drop_pipeline(plan: &Plan) -> Result<Seen, Error> {
    let mut stages = stages(plan);
    let after = pace::millis(plan.after);
    if plan.choice % 2 == 0 {
        let _ = runtime(plan)
            .block_on(async { tokio::time::timeout(after, stages.output_async()).await });
    } else {
        let child = stages.spawn()?;
        child.kill()?;
        child.wait()?;
    }
    Ok(GIVEN_UP)
}

fn stop_child(plan: &Plan) -> Result<Seen, Error> {
    let slot = plan.slot()?;
    let child = plan.command_in(&slot).spawn()?;
    let grace = pace::millis(plan.after);
    let status = match plan.choice % 3 {
        0 => child.stop_with(Signal::TERM, grace)?,
        1 => runtime(plan).block_on(child.stop_with_async(Signal::TERM, grace))?,
        _ => child.stop_with(Signal::KILL, Duration::ZERO)?,
    };
    let signal = status.terminating_signal();
    assert!([Some(Signal::TERM), Some(Signal::KILL)].contains(&signal), "stopped by {signal:?}");
    assert_eq!(child.wait()?, status, "a second wait");
    Ok(GIVEN_UP)
}

fn drop_runner(plan: &Plan) -> Result<Seen, Error> {
    let mut runner = pipewright::Runner::new(2);
    for key in 0..3 {
        runner.push(key, plan.command_in(&None));
    }
    let _ = runner.next_within(pace::millis(plan.after));
    match plan.choice % 3 {
        0 => drop(runner),
        1 => {
            runner.cancel_all();
            let keys: Vec<i32> = runner.map(|(key, _)| key).collect();
            assert_eq!(keys.len(), 3, "keys: {keys:?}");
        }
        _ => {
            assert!(runner.cancel(&0), "it was queued or ran");
            drop(runner);
        }
    }
    Ok(GIVEN_UP)
}
