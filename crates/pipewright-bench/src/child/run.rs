//! The tasks of a child process, done.

use std::fs::File;
use std::io::{self, BufRead as _, Read as _, Write as _};

use pipewright::{console_in, console_out};
use pipewright_os::process::usage;

use super::task::ChildTask;
use super::usage_line::usage_line;
use super::worker;
use crate::host::pin;
use crate::pattern::BytePattern;

/// Does the task.
pub(super) fn run(task: ChildTask) -> io::Result<()> {
    // Not std's stdout, which buffers lines and copies.
    let mut out = File::from(console_out()?);
    match task {
        ChildTask::Exit => Ok(()),
        ChildTask::Write { block_bytes, processor, verify } => {
            pin(processor)?;
            write(&mut out, block_bytes, verify)
        }
        ChildTask::Lines { count, one_write } => lines(&mut out, count, one_write),
        ChildTask::Flood { bytes } => flood(&mut out, bytes),
        ChildTask::Echo { block_bytes, processor } => {
            pin(processor)?;
            echo(&mut File::from(console_in()?), &mut out, block_bytes)
        }
        ChildTask::IpcSend { packets, processor, verify } => {
            pin(processor)?;
            worker::send(packets, verify)
        }
        ChildTask::IpcEcho { processor, spins } => {
            pin(processor)?;
            worker::echo(spins)
        }
    }
}

fn write(out: &mut File, block_bytes: usize, verify: bool) -> io::Result<()> {
    let sent = BytePattern::new(block_bytes, verify);
    for line in io::stdin().lock().lines() {
        let blocks: u64 = line?.trim().parse().map_err(|_| io::ErrorKind::InvalidInput)?;
        let before = usage::of_this_process()?;
        for block in 0..blocks {
            out.write_all(sent.at(block * block_bytes as u64, block_bytes))?;
        }
        let spent = usage::of_this_process()? - before;
        writeln!(io::stderr(), "{}", usage_line(spent))?;
    }
    Ok(())
}

fn lines(out: &mut File, count: usize, one_write: bool) -> io::Result<()> {
    // The same lines as in the comparisons with other libraries: 8.9 bytes on average.
    let lines = (0..count).map(|number| format!("line {number}\n"));
    if one_write {
        return out.write_all(lines.collect::<String>().as_bytes());
    }
    for line in lines {
        out.write_all(line.as_bytes())?;
    }
    Ok(())
}

fn flood(out: &mut File, bytes: u64) -> io::Result<()> {
    const BLOCK_BYTES: usize = 64 << 10;
    let block = vec![b'x'; BLOCK_BYTES];
    let mut left = bytes;
    while left > 0 {
        let count = left.min(BLOCK_BYTES as u64) as usize;
        out.write_all(&block[..count])?;
        left -= count as u64;
    }
    Ok(())
}

/// Sends back each block until the input ends.
pub(crate) fn echo(from: &mut File, to: &mut File, block_bytes: usize) -> io::Result<()> {
    let mut block = vec![1; block_bytes];
    loop {
        match from.read_exact(&mut block) {
            Ok(()) => to.write_all(&block)?,
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(()),
            Err(error) => return Err(error),
        }
    }
}
