//! The async verbs of the crate pipewright, on a current-thread runtime.

use pipewright::run_all;

use super::with_pipewright::command;
use super::with_tokio::runtime;
use crate::outcome::PeerOutcome;
use crate::request::{ChildCommand, ChildOperation};
use crate::{OperationFn, Result};

pub(super) fn prepare(
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
