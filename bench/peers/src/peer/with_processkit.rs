//! The crate processkit, on tokio's current-thread runtime.

use processkit::{Command, StdioMode};

use super::with_tokio::runtime;
use crate::outcome::Outcome;
use crate::request::{ChildCommand, Operation};
use crate::{Result, Work};

fn command(child: &ChildCommand) -> Command {
    Command::new(&child.program).args(&child.arguments)
}

/// Returns `None` for streams and pipelines: processkit returns lines and not bytes, and its pipelines copy through the
/// parent. Its lines are not measured.
pub(super) fn prepare(operation: Operation, child: ChildCommand) -> Result<Option<Work>> {
    let runtime = runtime()?;
    Ok(match operation {
        Operation::Status => Some(Box::new(move || {
            let command = command(&child)
                .inherit_stdin()
                .stdout(StdioMode::Inherit)
                .stderr(StdioMode::Inherit);
            let outcome = runtime.block_on(async { command.start().await?.wait().await })?;
            Ok(Outcome::exited(outcome.code() == Some(0)))
        })),
        Operation::Capture | Operation::Collect => Some(Box::new(move || {
            let result = runtime.block_on(command(&child).output_bytes())?;
            Ok(Outcome::kept(result.is_success(), result.into_stdout()))
        })),
        Operation::Stream
        | Operation::Pipe
        | Operation::TextLines
        | Operation::WatchedLine
        | Operation::Many { .. } => None,
    })
}
