//! The crate processkit, on tokio's current-thread runtime.

use processkit::{Command, StdioMode};

use super::with_tokio::runtime;
use crate::outcome::PeerOutcome;
use crate::request::{ChildCommand, ChildOperation};
use crate::{OperationFn, Result};

fn command(child: &ChildCommand) -> Command {
    Command::new(&child.program).args(&child.arguments)
}

/// Returns `None` for streams and pipelines: processkit returns lines and not bytes, and its pipelines copy through the
/// parent. Its lines are not measured.
pub(super) fn prepare(
    operation: ChildOperation,
    child: ChildCommand,
) -> Result<Option<OperationFn>> {
    let runtime = runtime()?;
    Ok(match operation {
        ChildOperation::Status => Some(Box::new(move || {
            let command = command(&child)
                .inherit_stdin()
                .stdout(StdioMode::Inherit)
                .stderr(StdioMode::Inherit);
            let outcome = runtime.block_on(async { command.start().await?.wait().await })?;
            Ok(PeerOutcome::exited(outcome.code() == Some(0)))
        })),
        ChildOperation::Capture | ChildOperation::Collect => Some(Box::new(move || {
            let result = runtime.block_on(command(&child).output_bytes())?;
            Ok(PeerOutcome::kept(result.is_success(), result.into_stdout()))
        })),
        ChildOperation::Stream
        | ChildOperation::Pipe
        | ChildOperation::TextLines
        | ChildOperation::WatchedLine
        | ChildOperation::Many { .. } => None,
    })
}
