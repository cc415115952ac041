//! tokio on a current-thread runtime, which is made before anything is measured.

use std::process::Stdio;

use tokio::io::AsyncReadExt as _;
use tokio::process::Command;
use tokio::runtime::{Builder, Runtime};

use super::READ_BYTES;
use crate::request::{ChildCommand, Operation};
use crate::seen::Seen;
use crate::{Result, Work};

pub(super) fn runtime() -> Result<Runtime> {
    Ok(Builder::new_current_thread().enable_all().build()?)
}

fn command(child: &ChildCommand) -> Command {
    let mut command = Command::new(&child.program);
    command.args(&child.arguments);
    command
}

pub(super) fn prepare(operation: Operation, child: ChildCommand) -> Result<Work> {
    let runtime = runtime()?;
    Ok(match operation {
        Operation::Status => Box::new(move || {
            let status = runtime.block_on(async { command(&child).status().await })?;
            Ok(Seen::ended(status.success()))
        }),
        Operation::Capture | Operation::Collect => Box::new(move || {
            let output = runtime.block_on(async { command(&child).output().await })?;
            Ok(Seen::kept(output.status.success(), output.stdout))
        }),
        Operation::Stream => {
            let mut buffer = vec![0; READ_BYTES];
            Box::new(move || runtime.block_on(stream(&child, &mut buffer)))
        }
        Operation::Pipe => return Err("tokio has no pipelines".into()),
    })
}

async fn stream(child: &ChildCommand, buffer: &mut [u8]) -> Result<Seen> {
    let mut running = command(child).stdout(Stdio::piped()).spawn()?;
    let mut stdout = running.stdout.take().ok_or("stdout is not piped")?;
    let mut bytes = 0;
    loop {
        match stdout.read(buffer).await? {
            0 => break,
            count => bytes += count as u64,
        }
    }
    Ok(Seen::counted(running.wait().await?.success(), bytes))
}
