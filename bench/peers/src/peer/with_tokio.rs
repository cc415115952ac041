//! The crate tokio on a current-thread runtime, which exists before the first measurement.

use std::process::{Output, Stdio};

use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, BufReader, Lines};
use tokio::process::{Child, ChildStdout, Command};
use tokio::runtime::{Builder, Runtime};
use tokio::task::JoinSet;

use super::READ_BYTES;
use crate::outcome::PeerOutcome;
use crate::request::{ChildCommand, ChildOperation};
use crate::{OperationFn, Result};

pub(super) fn runtime() -> Result<Runtime> {
    Ok(Builder::new_current_thread().enable_all().build()?)
}

fn command(child: &ChildCommand) -> Command {
    let mut command = Command::new(&child.program);
    command.args(&child.arguments);
    command
}

pub(super) fn prepare(operation: ChildOperation, child: ChildCommand) -> Result<OperationFn> {
    let runtime = runtime()?;
    Ok(match operation {
        ChildOperation::Status => Box::new(move || {
            let status = runtime.block_on(async { command(&child).status().await })?;
            Ok(PeerOutcome::exited(status.success()))
        }),
        ChildOperation::Capture | ChildOperation::Collect => Box::new(move || {
            let output = runtime.block_on(async { command(&child).output().await })?;
            Ok(PeerOutcome::kept(output.status.success(), output.stdout))
        }),
        ChildOperation::Stream => {
            let mut buffer = vec![0; READ_BYTES];
            Box::new(move || runtime.block_on(stream(&child, &mut buffer)))
        }
        ChildOperation::Pipe => return Err("tokio has no pipelines".into()),
        ChildOperation::TextLines => Box::new(move || {
            runtime.block_on(async {
                let (mut running, mut lines) = start_lines(&child)?;
                let mut bytes = 0;
                while let Some(line) = lines.next_line().await? {
                    bytes += line.len() as u64 + 1;
                }
                Ok(PeerOutcome::counted(running.wait().await?.success(), bytes))
            })
        }),
        ChildOperation::WatchedLine => {
            let (running, mut lines) = runtime.block_on(async { start_lines(&child) })?;
            Box::new(move || {
                let _running = &running;
                let line = runtime.block_on(lines.next_line())?;
                PeerOutcome::from_timestamp(&line.ok_or("the lines have ended")?)
            })
        }
        ChildOperation::Many { children, at_once } => {
            Box::new(move || runtime.block_on(many(&child, children, at_once)))
        }
    })
}

/// Runs many children on a runtime with one thread per processor.
pub(super) fn prepare_multi_thread(
    operation: ChildOperation,
    child: ChildCommand,
) -> Result<Option<OperationFn>> {
    let ChildOperation::Many { children, at_once } = operation else {
        return Ok(None);
    };
    let runtime = Builder::new_multi_thread().enable_all().build()?;
    Ok(Some(Box::new(move || runtime.block_on(many(&child, children, at_once)))))
}

async fn many(child: &ChildCommand, children: usize, at_once: usize) -> Result<PeerOutcome> {
    let mut tasks = JoinSet::new();
    let mut outcome = PeerOutcome::counted(true, 0);
    for started in 0..children + at_once {
        if started >= at_once
            && let Some(output) = tasks.join_next().await
        {
            let output: Output = output??;
            outcome.add(output.status.success(), output.stdout.len());
        }
        if started < children {
            let mut command = command(child);
            tasks.spawn(async move { command.output().await });
        }
    }
    Ok(outcome)
}

fn start_lines(child: &ChildCommand) -> Result<(Child, Lines<BufReader<ChildStdout>>)> {
    let mut running = command(child).stdout(Stdio::piped()).spawn()?;
    let stdout = running.stdout.take().ok_or("stdout is not piped")?;
    Ok((running, BufReader::new(stdout).lines()))
}

async fn stream(child: &ChildCommand, buffer: &mut [u8]) -> Result<PeerOutcome> {
    let mut running = command(child).stdout(Stdio::piped()).spawn()?;
    let mut stdout = running.stdout.take().ok_or("stdout is not piped")?;
    let mut bytes = 0;
    loop {
        match stdout.read(buffer).await? {
            0 => break,
            count => bytes += count as u64,
        }
    }
    Ok(PeerOutcome::counted(running.wait().await?.success(), bytes))
}
