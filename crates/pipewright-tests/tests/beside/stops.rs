//! Ways that give a run up: dropped futures, iterators and handles, stops and kills. Nothing of it may be left.

use std::time::Duration;

use pipewright::{Error, Signal};
use pipewright_tests::pace;

use super::plan::{Plan, Way};
use super::seen::Seen;
use super::streams::some_events;
use super::verbs::{runtime, stages};

/// The letters are those of `verbs`.
pub(crate) const WAYS: &[Way] = &[
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
