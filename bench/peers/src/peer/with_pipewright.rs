//! pipewright.

use std::fs::File;
use std::os::unix::fs::MetadataExt as _;

use pipewright::{Command, Pipeline, Resource, Stdio, run_all};

use super::{READ_BYTES, count};
use crate::request::{ChildCommand, Operation};
use crate::seen::Seen;
use crate::{Result, Work};

/// The user that owns nothing, by convention.
const NOBODY: u32 = 65534;
const OPEN_FILES: u64 = 1024;

pub(super) fn command(child: &ChildCommand) -> Command {
    let mut command = Command::new(&child.program);
    command.args(&child.arguments);
    command
}

pub(super) fn prepare(operation: Operation, child: ChildCommand) -> Result<Work> {
    Ok(match operation {
        Operation::Status => Box::new(move || Ok(Seen::ended(command(&child).status()?.success()))),
        Operation::Capture => Box::new(move || {
            let capture = command(&child).capture()?;
            Ok(Seen::kept(capture.status.success(), capture.stdout.into_bytes()))
        }),
        Operation::Collect => Box::new(move || {
            let output = command(&child).output()?;
            Ok(Seen::kept(output.status.success(), output.stdout))
        }),
        Operation::Stream => {
            let mut buffer = vec![0; READ_BYTES];
            Box::new(move || {
                let mut running = command(&child).stdout(Stdio::piped()).spawn()?;
                let stdout = running.stdout.take().ok_or("stdout is not piped")?;
                let bytes = count(stdout, &mut buffer)?;
                Ok(Seen::counted(running.wait()?.success(), bytes))
            })
        }
        Operation::Pipe => prepare_pipe(child),
        Operation::TextLines => Box::new(move || {
            let mut lines = command(&child).lines()?;
            let mut bytes = 0;
            for line in &mut lines {
                bytes += line?.text.len() as u64 + 1;
            }
            Ok(Seen::counted(lines.finish()?.success(), bytes))
        }),
        Operation::WatchedLine => {
            let mut lines = command(&child).lines()?;
            Box::new(move || Seen::stamp(&lines.next().ok_or("the lines have ended")??.text))
        }
        Operation::Many { children, at_once } => Box::new(move || {
            let commands = (0..children).map(|_| command(&child));
            let mut seen = Seen::counted(true, 0);
            for (_, capture) in run_all(commands).concurrency(at_once).as_they_end() {
                let capture = capture?;
                seen.add(capture.success(), capture.stdout.len());
            }
            Ok(seen)
        }),
    })
}

/// A pipeline whose last stage is captured.
fn prepare_pipe(child: ChildCommand) -> Work {
    let stages = child.stages();
    Box::new(move || {
        let commands = stages.iter().filter_map(|words| words.split_first());
        let commands = commands.map(|(program, rest)| Command::new(program).args(rest).owned());
        let output = Pipeline::new(commands).output()?;
        Seen::told(output.success(), &output.stdout)
    })
}

/// With every option that other libraries need a fork for. `kill_on_parent_exit` can be left out,
/// as it alone starts the child from another thread.
pub(super) fn prepare_with_options(
    operation: Operation,
    child: ChildCommand,
    kill_on_parent_exit: bool,
) -> Result<Option<Work>> {
    if operation != Operation::Status {
        return Ok(None);
    }
    let inherited = File::open("/dev/null")?;
    // A process is listed as owned by the user that it acts for.
    let is_root = std::fs::metadata("/proc/self")?.uid() == 0;
    if !is_root {
        println!("note=only root can start a child as another user: `uid` is left out");
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
        Ok(Seen::ended(command.status()?.success()))
    })))
}
