//! The crate pipewright: without a runtime, and its async verbs on a current-thread runtime.

use std::fs::File;
use std::os::unix::fs::MetadataExt as _;

use pipewright::{Command, Pipeline, Resource, Stdio, run_all};

use super::with_tokio::runtime;
use super::{READ_BYTES, count};
use crate::outcome::PeerOutcome;
use crate::request::{ChildCommand, ChildOperation};
use crate::{OperationFn, Result};

/// The user that owns nothing, by convention.
const NOBODY: u32 = 65534;
const OPEN_FILES: u64 = 1024;

pub(super) fn command(child: &ChildCommand) -> Command {
    let mut command = Command::new(&child.program);
    command.args(&child.arguments);
    command
}

pub(super) fn prepare(operation: ChildOperation, child: ChildCommand) -> Result<OperationFn> {
    Ok(match operation {
        ChildOperation::Status => {
            Box::new(move || Ok(PeerOutcome::exited(command(&child).status()?.success())))
        }
        ChildOperation::Capture => Box::new(move || {
            let capture = command(&child).capture()?;
            Ok(PeerOutcome::kept(capture.status.success(), capture.stdout.into_bytes()))
        }),
        ChildOperation::Collect => Box::new(move || {
            let output = command(&child).output()?;
            Ok(PeerOutcome::kept(output.status.success(), output.stdout))
        }),
        ChildOperation::Stream => {
            let mut buffer = vec![0; READ_BYTES];
            Box::new(move || {
                let mut running = command(&child).stdout(Stdio::piped()).spawn()?;
                let stdout = running.stdout.take().ok_or("stdout is not piped")?;
                let bytes = count(stdout, &mut buffer)?;
                Ok(PeerOutcome::counted(running.wait()?.success(), bytes))
            })
        }
        ChildOperation::Pipe => prepare_pipe(child),
        ChildOperation::TextLines => Box::new(move || {
            let mut lines = command(&child).lines()?;
            let mut bytes = 0;
            for line in &mut lines {
                bytes += line?.text.len() as u64 + 1;
            }
            Ok(PeerOutcome::counted(lines.finish()?.success(), bytes))
        }),
        ChildOperation::WatchedLine => {
            let mut lines = command(&child).lines()?;
            Box::new(move || {
                PeerOutcome::from_timestamp(&lines.next().ok_or("the lines have ended")??.text)
            })
        }
        ChildOperation::Many { children, at_once } => Box::new(move || {
            let commands = (0..children).map(|_| command(&child));
            let mut outcome = PeerOutcome::counted(true, 0);
            for (_, capture) in run_all(commands).concurrency(at_once).as_they_end() {
                let capture = capture?;
                outcome.add(capture.success(), capture.stdout.len());
            }
            Ok(outcome)
        }),
    })
}

/// Runs a pipeline and captures its last stage.
fn prepare_pipe(child: ChildCommand) -> OperationFn {
    let stages = child.stages();
    Box::new(move || {
        let commands = stages.iter().filter_map(|words| words.split_first());
        let commands = commands.map(|(program, rest)| Command::new(program).args(rest).owned());
        let output = Pipeline::new(commands).output()?;
        PeerOutcome::from_printed_count(output.success(), &output.stdout)
    })
}

/// Sets every option for which other libraries fork. `kill_on_parent_exit` is optional, because it alone starts the
/// child from another thread.
pub(super) fn prepare_with_options(
    operation: ChildOperation,
    child: ChildCommand,
    kill_on_parent_exit: bool,
) -> Result<Option<OperationFn>> {
    if operation != ChildOperation::Status {
        return Ok(None);
    }
    let inherited = File::open("/dev/null")?;
    // The owner of a process's folder in /proc is its effective user.
    let is_root = std::fs::metadata("/proc/self")?.uid() == 0;
    if !is_root {
        println!("note=`uid` is not measured: only root can start a child as another user");
    }
    Ok(Some(Box::new(move || {
        let mut command = command(&child);
        command.own_group().inherit(inherited.try_clone()?).rlimit(
            Resource::OpenFiles,
            Some(OPEN_FILES),
            Some(OPEN_FILES),
        );
        if is_root {
            command.uid(NOBODY);
        }
        if kill_on_parent_exit {
            command.kill_on_parent_exit(pipewright::Scope::Child);
        }
        Ok(PeerOutcome::exited(command.status()?.success()))
    })))
}

pub(super) fn prepare_async(
    operation: ChildOperation,
    child: ChildCommand,
) -> Result<Option<OperationFn>> {
    let runtime = runtime()?;
    Ok(Some(match operation {
        ChildOperation::Status => Box::new(move || {
            let exit = runtime.block_on(command(&child).status_async())?;
            Ok(PeerOutcome::exited(exit.success()))
        }),
        ChildOperation::Capture => Box::new(move || {
            let capture = runtime.block_on(command(&child).capture_async())?;
            Ok(PeerOutcome::kept(capture.status.success(), capture.stdout.into_bytes()))
        }),
        ChildOperation::Collect => Box::new(move || {
            let output = runtime.block_on(command(&child).output_async())?;
            Ok(PeerOutcome::kept(output.status.success(), output.stdout))
        }),
        ChildOperation::Many { children, at_once } => Box::new(move || {
            runtime.block_on(async {
                let commands = (0..children).map(|_| command(&child));
                let mut ends = run_all(commands).concurrency(at_once).as_they_end_async();
                let mut outcome = PeerOutcome::counted(true, 0);
                while let Some((_, capture)) = ends.next().await {
                    let capture = capture?;
                    outcome.add(capture.success(), capture.stdout.len());
                }
                Ok(outcome)
            })
        }),
        _ => return Ok(None),
    }))
}
