//! The crate duct.

use duct::Expression;

use super::{READ_BYTES, count};
use crate::OperationFn;
use crate::outcome::PeerOutcome;
use crate::request::{ChildCommand, ChildOperation};

fn expression(child: &ChildCommand) -> Expression {
    duct::cmd(&child.program, &child.arguments)
}

/// Returns `None` for lines, which duct leaves to std's `BufRead`.
pub(super) fn prepare(operation: ChildOperation, child: ChildCommand) -> Option<OperationFn> {
    Some(match operation {
        ChildOperation::Status => {
            Box::new(move || Ok(PeerOutcome::exited(expression(&child).run()?.status.success())))
        }
        ChildOperation::Capture | ChildOperation::Collect => Box::new(move || {
            let output = expression(&child).stdin_null().stdout_capture().stderr_capture().run()?;
            Ok(PeerOutcome::kept(output.status.success(), output.stdout))
        }),
        ChildOperation::Stream => {
            let mut buffer = vec![0; READ_BYTES];
            Box::new(move || {
                let reader = expression(&child).reader()?;
                let bytes = count(&reader, &mut buffer)?;
                let success = reader.try_wait()?.is_some_and(|output| output.status.success());
                Ok(PeerOutcome::counted(success, bytes))
            })
        }
        ChildOperation::Pipe => {
            let stages = child.stages();
            Box::new(move || {
                let expressions = stages.iter().filter_map(|words| words.split_first());
                let expressions = expressions.map(|(program, rest)| duct::cmd(program, rest));
                let pipeline = expressions.reduce(|left, right| left.pipe(right));
                let pipeline = pipeline.ok_or("no stages")?.stdin_null();
                let output = pipeline.stdout_capture().stderr_capture().run()?;
                PeerOutcome::from_printed_count(output.status.success(), &output.stdout)
            })
        }
        ChildOperation::TextLines | ChildOperation::WatchedLine | ChildOperation::Many { .. } => {
            return None;
        }
    })
}
