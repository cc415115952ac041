//! The verbs that run a command to its end, their tasks, files and tees, `std::process`, pipelines and sets.

use std::fs;
use std::io::Read as _;
use std::sync::{Arc, Mutex};

use pipewright::{AsyncRunner, Command, Error, Pipeline, Runner, Stdio, run_all};
use tokio::runtime::{Builder, Runtime};

use super::plan::{Plan, Way};
use crate::judge::{Seen, failed};

/// Letters: `s` can be stopped, `l` has a limit, `m` can merge, `c` can be contained, `b` in the background, `i` feeds
/// no input, `o` needs its pipes set, `x` has lines, `d` is dropped.
pub(crate) const WAYS: &[Way] = &[
    Way { name: "output", run: output, kinds: "btln", traits: "slmcb" },
    Way { name: "output_async", run: output_async, kinds: "btln", traits: "slmcb" },
    Way { name: "capture", run: capture, kinds: "btln", traits: "slmcb" },
    Way { name: "capture_async", run: capture_async, kinds: "btln", traits: "slmcb" },
    Way { name: "read", run: read, kinds: "btln", traits: "slmcb" },
    Way { name: "read_async", run: read_async, kinds: "btln", traits: "slmcb" },
    Way { name: "start_output", run: start_output, kinds: "btln", traits: "slmcb" },
    Way { name: "files", run: files, kinds: "btln", traits: "scb" },
    Way { name: "files_async", run: files_async, kinds: "btln", traits: "scb" },
    Way { name: "tee_to", run: tee_to, kinds: "btln", traits: "scb" },
    Way { name: "tee_to_async", run: tee_to_async, kinds: "btln", traits: "scb" },
    Way { name: "tee_with", run: tee_with, kinds: "btln", traits: "slcb" },
    Way { name: "std_output", run: std_output, kinds: "btln", traits: "i" },
    Way { name: "std_spawn", run: std_spawn, kinds: "btln", traits: "i" },
    Way { name: "pipeline", run: pipeline, kinds: "btln", traits: "slc" },
    Way { name: "pipeline_async", run: pipeline_async, kinds: "btln", traits: "slc" },
    Way { name: "run_all", run: run_all_of_three, kinds: "tln", traits: "slcb" },
    Way { name: "runner", run: runner, kinds: "tln", traits: "slcb" },
    Way { name: "async_runner", run: async_runner, kinds: "tln", traits: "slcb" },
];

/// Returns a runtime, of one thread or of two.
pub(super) fn runtime(plan: &Plan) -> Runtime {
    let mut builder = if plan.choice % 4 == 0 {
        Builder::new_multi_thread()
    } else {
        Builder::new_current_thread()
    };
    builder.worker_threads(2).enable_all().build().expect("a runtime")
}

fn output(plan: &Plan) -> Result<Seen, Error> {
    let slot = plan.slot()?;
    plan.command_in(&slot).output().map(Seen::of_output)
}

fn output_async(plan: &Plan) -> Result<Seen, Error> {
    let slot = plan.slot()?;
    let mut command = plan.command_in(&slot);
    runtime(plan).block_on(command.output_async()).map(Seen::of_output)
}

fn capture(plan: &Plan) -> Result<Seen, Error> {
    let slot = plan.slot()?;
    plan.command_in(&slot).capture().map(Seen::of_capture)
}

fn capture_async(plan: &Plan) -> Result<Seen, Error> {
    let slot = plan.slot()?;
    let mut command = plan.command_in(&slot);
    runtime(plan).block_on(command.capture_async()).map(Seen::of_capture)
}

fn read(plan: &Plan) -> Result<Seen, Error> {
    let slot = plan.slot()?;
    plan.command_in(&slot).read().map(Seen::of_text).or_else(failed)
}

fn read_async(plan: &Plan) -> Result<Seen, Error> {
    let slot = plan.slot()?;
    let mut command = plan.command_in(&slot);
    runtime(plan).block_on(command.read_async()).map(Seen::of_text).or_else(failed)
}

/// Waits in steps; takes what is there meanwhile, in some cases.
fn start_output(plan: &Plan) -> Result<Seen, Error> {
    let slot = plan.slot()?;
    let mut running = plan.command_in(&slot).start_output()?;
    let takes = plan.limit.is_none() && plan.choice % 2 == 0;
    let bytes = [1, 4096, 100_000, usize::MAX][plan.choice % 4];
    let (mut taken, mut buffers) = ([Vec::new(), Vec::new()], [Vec::new(), Vec::new()]);
    loop {
        let limit = std::time::Duration::from_micros([0, 500, 20_000, 1_000_000][plan.choice % 3]);
        if let Some(output) = running.wait_for_bytes(limit, bytes)? {
            let mut seen = Seen::of_output(output);
            for (mut first, stream) in taken.into_iter().zip(&mut seen.streams) {
                first.extend(stream.take().unwrap_or_default());
                *stream = Some(first);
            }
            return Ok(seen);
        }
        if takes {
            running.take_so_far(&mut buffers);
            for (all, new) in taken.iter_mut().zip(&mut buffers) {
                all.append(new);
            }
        } else {
            assert!(running.so_far().iter().map(Vec::len).max() >= Some(running.bytes_so_far()));
        }
    }
}

fn to_files(plan: &Plan, command: &mut Command) {
    // What is there is kept, and comes first.
    fs::write(plan.path("err"), "before\n").expect("a file");
    command.stdout(Stdio::create(plan.path("out"))).stderr(Stdio::append(plan.path("err")));
}

fn from_files(plan: &Plan, seen: Seen) -> Seen {
    let bytes = |name| fs::read(plan.path(name)).expect("a file");
    let appended = bytes("err").strip_prefix(b"before\n").expect("what was there").to_vec();
    // The time of a late writer is not that of the wait.
    let held_open = plan.script.late.then_some(true);
    Seen { streams: [Some(bytes("out")), Some(appended)], held_open, ..seen }
}

fn files(plan: &Plan) -> Result<Seen, Error> {
    let slot = plan.slot()?;
    let mut command = plan.command_in(&slot);
    to_files(plan, &mut command);
    let status = command.status()?;
    Ok(from_files(plan, Seen::of_status(status.into())))
}

fn files_async(plan: &Plan) -> Result<Seen, Error> {
    let slot = plan.slot()?;
    let mut command = plan.command_in(&slot);
    to_files(plan, &mut command);
    let status = runtime(plan).block_on(command.status_async())?;
    Ok(from_files(plan, Seen::of_status(status.into())))
}

fn tee_to(plan: &Plan) -> Result<Seen, Error> {
    let slot = plan.slot()?;
    let mut command = plan.command_in(&slot);
    command.stdout(Stdio::tee_to(Stdio::create(plan.path("out"))));
    let seen = command.output().map(Seen::of_output)?;
    Ok(Seen { tee: fs::read(plan.path("out")).ok(), ..seen })
}

/// Passes it on to a pipe whose reader is slow.
fn tee_to_async(plan: &Plan) -> Result<Seen, Error> {
    let slot = plan.slot()?;
    let mut command = plan.command_in(&slot);
    let (mut reader, writer) =
        pipewright::pipe(pipewright::PipeOptions::default()).expect("a pipe");
    command.stdout(Stdio::tee_to(writer));
    let is_slow = plan.choice % 3 == 0;
    let taken = std::thread::spawn(move || {
        let (mut all, mut buffer) = (Vec::new(), [0; 30_000]);
        loop {
            match reader.read(&mut buffer) {
                Ok(0) | Err(_) => return all,
                Ok(count) => all.extend_from_slice(&buffer[..count]),
            }
            if is_slow {
                std::thread::park_timeout(std::time::Duration::from_micros(300));
            }
        }
    });
    let seen = runtime(plan).block_on(command.output_async()).map(Seen::of_output);
    drop(command);
    let tee = taken.join().expect("the reader");
    Ok(Seen { tee: Some(tee), ..seen? })
}

fn tee_with(plan: &Plan) -> Result<Seen, Error> {
    let slot = plan.slot()?;
    let mut command = plan.command_in(&slot);
    let all = Arc::new(Mutex::new(Vec::new()));
    let to = Arc::clone(&all);
    command.stdout(Stdio::tee_with(move |bytes| {
        to.lock().expect("no panic").extend_from_slice(bytes)
    }));
    let seen = if plan.choice % 2 == 0 {
        command.output()
    } else {
        runtime(plan).block_on(command.output_async())
    };
    let tee = all.lock().expect("no panic").clone();
    // A closure gets the whole stream, and the tee of a limit is compared with the stream.
    Ok(Seen { tee: plan.limit.is_none().then_some(tee), ..seen.map(Seen::of_output)? })
}

fn std_command(plan: &Plan) -> pipewright::process::Command {
    let mut command = pipewright::process::Command::new(env!("CARGO_BIN_EXE_puppet"));
    command.arg(plan.script.act());
    command
}

fn of_std(output: pipewright::process::Output, plan: &Plan) -> Seen {
    Seen {
        streams: [Some(output.stdout), Some(output.stderr)],
        // As std's, it reads until nobody holds the pipes.
        held_open: plan.script.holds.then_some(false),
        ..Seen::of_status(output.status)
    }
}

fn std_error(error: std::io::Error) -> Error {
    let inner = error.into_inner().and_then(|inner| inner.downcast::<Error>().ok());
    *inner.expect("an error of ours")
}

fn std_output(plan: &Plan) -> Result<Seen, Error> {
    std_command(plan).output().map(|output| of_std(output, plan)).map_err(std_error)
}

fn std_spawn(plan: &Plan) -> Result<Seen, Error> {
    use pipewright::process::Stdio;
    let mut command = std_command(plan);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = command.spawn().map_err(std_error)?;
    child.wait_with_output().map(|output| of_std(output, plan)).map_err(std_error)
}

/// Returns the command as the first stage of a pipeline of copies.
pub(super) fn stages(plan: &Plan) -> Pipeline<'static> {
    let copies = 1 + plan.choice % 2;
    let mut pipeline = Pipeline::new([plan.command()]);
    for _ in 0..copies {
        pipeline = pipeline.pipe(Command::new("cat"));
    }
    plan.set_all(&mut pipeline);
    pipeline
}

fn pipeline(plan: &Plan) -> Result<Seen, Error> {
    if plan.choice % 3 == 0 {
        return stages(plan).capture().map(|it| Seen::of_capture(it.whole));
    }
    stages(plan).output().map(|it| Seen::of_output(it.whole))
}

fn pipeline_async(plan: &Plan) -> Result<Seen, Error> {
    let mut stages = stages(plan);
    runtime(plan).block_on(stages.output_async()).map(|it| Seen::of_output(it.whole))
}

/// Returns three of the same command. Each reads its input anew.
fn three(plan: &Plan) -> [Command; 3] {
    [(); 3].map(|()| plan.command_in(&None))
}

/// Checks that all have seen the same, where nothing stops them, and returns one of them.
fn one_of(plan: &Plan, mut all: Vec<Result<pipewright::Capture, Error>>) -> Result<Seen, Error> {
    assert_eq!(all.len(), 3, "results");
    let one = all.swap_remove(plan.choice % 3).map(Seen::of_capture);
    for other in all {
        let seen = Seen::of_capture(other?);
        super::judge::check(plan, &seen);
    }
    one
}

fn run_all_of_three(plan: &Plan) -> Result<Seen, Error> {
    let set = run_all(three(plan)).concurrency(1 + plan.choice % 3);
    let all = match plan.choice % 4 {
        0 => set.captures(),
        1 => runtime(plan).block_on(set.captures_async()),
        _ => set.as_they_end().map(|(_, capture)| capture).collect(),
    };
    one_of(plan, all)
}

fn runner(plan: &Plan) -> Result<Seen, Error> {
    let mut runner = Runner::new(1 + plan.choice % 3);
    three(plan).into_iter().for_each(|command| runner.push((), command));
    let all = runner.map(|(_, capture)| capture).collect();
    one_of(plan, all)
}

fn async_runner(plan: &Plan) -> Result<Seen, Error> {
    let mut runner = AsyncRunner::new(1 + plan.choice % 3);
    three(plan).into_iter().for_each(|command| runner.push((), command));
    let all = runtime(plan).block_on(async {
        let mut all = Vec::new();
        while let Some((_, capture)) = runner.next().await {
            all.push(capture);
        }
        all
    });
    one_of(plan, all)
}
