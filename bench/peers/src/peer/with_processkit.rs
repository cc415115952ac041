//! processkit on tokio's current-thread runtime.

use processkit::{Command, StdioMode};

use super::with_tokio::runtime;
use crate::request::{ChildCommand, Operation};
use crate::seen::Seen;
use crate::{Result, Work};

fn command(child: &ChildCommand) -> Command {
    Command::new(&child.program).args(&child.arguments)
}

/// `None` for a stream: it hands out lines, not bytes. Its lines are not measured, and its pipelines
/// copy through the parent.
pub(super) fn prepare(operation: Operation, child: ChildCommand) -> Result<Option<Work>> {
    let runtime = runtime()?;
    Ok(match operation {
        Operation::Status => Some(Box::new(move || {
            let command = command(&child)
                .inherit_stdin()
                .stdout(StdioMode::Inherit)
                .stderr(StdioMode::Inherit);
            let outcome = runtime.block_on(async { command.start().await?.wait().await })?;
            Ok(Seen::ended(outcome.code() == Some(0)))
        })),
        Operation::Capture | Operation::Collect => Some(Box::new(move || {
            let result = runtime.block_on(command(&child).output_bytes())?;
            Ok(Seen::kept(result.is_success(), result.into_stdout()))
        })),
        Operation::Stream
        | Operation::Pipe
        | Operation::TextLines
        | Operation::WatchedLine
        | Operation::Many { .. } => None,
    })
}
