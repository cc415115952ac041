//! The crate subprocess.

use subprocess::{Exec, Pipeline, Redirection};

use super::{READ_BYTES, count};
use crate::Work;
use crate::outcome::Outcome;
use crate::request::{ChildCommand, Operation};

fn exec(child: &ChildCommand) -> Exec {
    Exec::cmd(&child.program).args(&child.arguments)
}

/// Returns `None` for lines, which subprocess leaves to std's `BufRead`.
pub(super) fn prepare(operation: Operation, child: ChildCommand) -> Option<Work> {
    Some(match operation {
        Operation::Status => Box::new(move || Ok(Outcome::exited(exec(&child).join()?.success()))),
        Operation::Capture | Operation::Collect => Box::new(move || {
            let capture = exec(&child)
                .stdin(Redirection::Null)
                .stdout(Redirection::Pipe)
                .stderr(Redirection::Pipe)
                .capture()?;
            Ok(Outcome::kept(capture.success(), capture.stdout))
        }),
        Operation::Stream => {
            let mut buffer = vec![0; READ_BYTES];
            Box::new(move || {
                let mut job = exec(&child).stdout(Redirection::Pipe).start()?;
                let stdout = job.stdout.take().ok_or("stdout is not piped")?;
                let bytes = count(stdout, &mut buffer)?;
                Ok(Outcome::counted(job.wait()?.success(), bytes))
            })
        }
        Operation::Pipe => {
            let stages = child.stages();
            Box::new(move || {
                let execs = stages.iter().filter_map(|words| words.split_first());
                let execs = execs.map(|(program, rest)| Exec::cmd(program).args(rest));
                let pipeline: Pipeline = execs.collect();
                let capture = pipeline.stdin(Redirection::Null).capture()?;
                Outcome::from_printed_count(capture.success(), &capture.stdout)
            })
        }
        Operation::TextLines | Operation::WatchedLine | Operation::Many { .. } => return None,
    })
}
