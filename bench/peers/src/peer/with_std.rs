//! The standard library, with which all others are compared.

use std::error::Error;
use std::ffi::OsString;
use std::io::{self, BufRead as _, BufReader, Lines};
use std::os::unix::process::CommandExt as _;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::thread;

use super::{READ_BYTES, count};
use crate::outcome::PeerOutcome;
use crate::request::{ChildCommand, ChildOperation};
use crate::{OperationFn, Result};

fn command(child: &ChildCommand) -> Command {
    let mut command = Command::new(&child.program);
    command.args(&child.arguments);
    command
}

pub(super) fn prepare(operation: ChildOperation, child: ChildCommand) -> Result<OperationFn> {
    Ok(match operation {
        ChildOperation::Status => {
            Box::new(move || Ok(PeerOutcome::exited(command(&child).status()?.success())))
        }
        ChildOperation::Capture | ChildOperation::Collect => Box::new(move || {
            let output = command(&child).output()?;
            Ok(PeerOutcome::kept(output.status.success(), output.stdout))
        }),
        ChildOperation::Stream => {
            let mut buffer = vec![0; READ_BYTES];
            Box::new(move || {
                let mut running = command(&child).stdout(Stdio::piped()).spawn()?;
                let stdout = running.stdout.take().ok_or("stdout is not piped")?;
                let bytes = count(stdout, &mut buffer)?;
                Ok(PeerOutcome::counted(running.wait()?.success(), bytes))
            })
        }
        ChildOperation::Pipe => {
            let script = script(&child);
            Box::new(move || {
                let output = Command::new("/bin/sh").args(["-c", &script]).output()?;
                PeerOutcome::from_printed_count(output.status.success(), &output.stdout)
            })
        }
        ChildOperation::TextLines => Box::new(move || {
            let (mut running, lines) = start_lines(&child)?;
            let mut bytes = 0;
            for line in lines {
                bytes += line?.len() as u64 + 1;
            }
            Ok(PeerOutcome::counted(running.wait()?.success(), bytes))
        }),
        ChildOperation::WatchedLine => {
            let (_running, mut lines) = start_lines(&child)?;
            Box::new(move || {
                PeerOutcome::from_timestamp(&lines.next().ok_or("the lines have ended")??)
            })
        }
        ChildOperation::Many { children, at_once } => {
            Box::new(move || many(&child, children, at_once))
        }
    })
}

/// Runs many children with a thread for each running child.
fn many(child: &ChildCommand, children: usize, at_once: usize) -> Result<PeerOutcome> {
    let (next, success, bytes) = (AtomicUsize::new(0), AtomicBool::new(true), AtomicU64::new(0));
    let run = || {
        while next.fetch_add(1, Ordering::Relaxed) < children {
            let output = command(child).output()?;
            success.fetch_and(output.status.success(), Ordering::Relaxed);
            bytes.fetch_add(output.stdout.len() as u64, Ordering::Relaxed);
        }
        io::Result::Ok(())
    };
    thread::scope(|scope| {
        let threads: Vec<_> = (0..at_once).map(|_| scope.spawn(run)).collect();
        threads.into_iter().try_for_each(|thread| {
            thread.join().map_err(|_| "a thread panicked")?.map_err(Box::<dyn Error>::from)
        })
    })?;
    Ok(PeerOutcome::counted(success.into_inner(), bytes.into_inner()))
}

fn start_lines(child: &ChildCommand) -> Result<(Child, Lines<BufReader<ChildStdout>>)> {
    let mut running = command(child).stdin(Stdio::null()).stdout(Stdio::piped()).spawn()?;
    let stdout = running.stdout.take().ok_or("stdout is not piped")?;
    Ok((running, BufReader::new(stdout).lines()))
}

/// Returns a pipeline as a shell script, because std has no pipelines.
fn script(child: &ChildCommand) -> String {
    let quoted = |words: &Vec<OsString>| {
        let words = words.iter().map(|word| format!("'{}'", word.to_string_lossy()));
        words.collect::<Vec<_>>().join(" ")
    };
    child.stages().iter().map(quoted).collect::<Vec<_>>().join(" | ")
}

/// Starts the child with an empty hook: with any hook, std forks instead of calling `posix_spawn`.
pub(super) fn prepare_with_pre_exec(
    operation: ChildOperation,
    child: ChildCommand,
) -> Option<OperationFn> {
    if operation != ChildOperation::Status {
        return None;
    }
    Some(Box::new(move || {
        let mut command = command(&child);
        // SAFETY: the hook does nothing.
        unsafe { command.pre_exec(|| Ok(())) };
        Ok(PeerOutcome::exited(command.status()?.success()))
    }))
}
