//! The crate subprocess.

use subprocess::{Exec, Pipeline, Redirection};

use super::{READ_BYTES, count};
use crate::OperationFn;
use crate::outcome::PeerOutcome;
use crate::request::{ChildCommand, ChildOperation};

fn exec(child: &ChildCommand) -> Exec {
    Exec::cmd(&child.program).args(&child.arguments)
}

/// Returns `None` for lines, which subprocess leaves to std's `BufRead`.
pub(super) fn prepare(operation: ChildOperation, child: ChildCommand) -> Option<OperationFn> {
    Some(match operation {
        ChildOperation::Status => {
            Box::new(move || Ok(PeerOutcome::exited(exec(&child).join()?.success())))
        }
        ChildOperation::Capture | ChildOperation::Collect => Box::new(move || {
            let capture = exec(&child)
                .stdin(Redirection::Null)
                .stdout(Redirection::Pipe)
                .stderr(Redirection::Pipe)
                .capture()?;
            Ok(PeerOutcome::kept(capture.success(), capture.stdout))
        }),
        ChildOperation::Stream => {
            let mut buffer = vec![0; READ_BYTES];
            Box::new(move || {
                let mut job = exec(&child).stdout(Redirection::Pipe).start()?;
                let stdout = job.stdout.take().ok_or("stdout is not piped")?;
                let bytes = count(stdout, &mut buffer)?;
                Ok(PeerOutcome::counted(job.wait()?.success(), bytes))
            })
        }
        ChildOperation::Pipe => {
            let stages = child.stages();
            Box::new(move || {
                let execs = stages.iter().filter_map(|words| words.split_first());
                let execs = execs.map(|(program, rest)| Exec::cmd(program).args(rest));
                let pipeline: Pipeline = execs.collect();
                let capture = pipeline.stdin(Redirection::Null).capture()?;
                PeerOutcome::from_printed_count(capture.success(), &capture.stdout)
            })
        }
        ChildOperation::TextLines | ChildOperation::WatchedLine | ChildOperation::Many { .. } => {
            return None;
        }
    })
}
