//! The other process: what the benchmarks start is this very program, told to write, to print or to end.
//!
//! `pipewright __bench-peer ACT ...` is looked for before anything else is, so that such a child costs
//! as little as a child can. It is no command for people.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, BufRead as _, Write as _};
use std::path::PathBuf;
use std::sync::OnceLock;
use std::time::Duration;

use pipewright::{Command, console_in, console_out};
use pipewright_os::process::usage::{self, Spent};

use super::cell::pin;
use super::ipc::{self, Packets};
use super::pattern::Pattern;
use super::trips;
use crate::exit_code::{OWN_FAILURE, SUCCESS};

/// What it is called by.
const NAME: &str = "__bench-peer";

/// What it is to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Act {
    /// End.
    Exit,
    /// For each number that comes on stdin write so many blocks to stdout, then say on stderr what that took.
    Write { block_bytes: usize, processor: Option<usize>, verify: bool },
    /// Print so many lines, with a write each or with one for all.
    Lines { count: usize, one_write: bool },
    /// Write so many bytes.
    Flood { bytes: u64 },
    /// Write to stdout what comes on stdin, block by block.
    Echo { block_bytes: usize, processor: Option<usize> },
    /// For each order that comes through a channel send so many messages, then say what that took.
    IpcSend { packets: Packets, processor: Option<usize>, verify: bool },
    /// Send back each message that comes through a channel.
    IpcEcho { processor: Option<usize>, spins: bool },
}

/// Plays the part, if that is what we were started for, and gives the exit code.
pub(crate) fn play() -> Option<i32> {
    let mut args = std::env::args_os().skip(1);
    if args.next()? != NAME {
        return None;
    }
    let words: Vec<OsString> = args.collect();
    let words: Vec<&str> = words.iter().filter_map(|word| word.to_str()).collect();
    let done = Act::parse(&words).ok_or(io::ErrorKind::InvalidInput.into()).and_then(Act::perform);
    match done {
        Ok(()) => Some(SUCCESS),
        Err(error) => {
            crate::complain(&format!("{NAME}: {error}"));
            Some(OWN_FAILURE)
        }
    }
}

impl Act {
    /// A command that does it.
    pub(super) fn command(&self) -> io::Result<Command> {
        let mut command = Command::new(program()?);
        command.arg(NAME).args(self.words());
        Ok(command)
    }

    /// A command of std's that does it.
    pub(super) fn bare_command(&self) -> io::Result<std::process::Command> {
        let mut command = std::process::Command::new(program()?);
        command.arg(NAME).args(self.words());
        Ok(command)
    }

    fn words(&self) -> Vec<String> {
        fn words(name: &str, values: &[&dyn ToString]) -> Vec<String> {
            let values = values.iter().map(|value| value.to_string());
            std::iter::once(name.to_owned()).chain(values).collect()
        }
        let on = |processor: &Option<usize>| processor.map_or("-".to_owned(), |it| it.to_string());
        match self {
            Act::Exit => words("exit", &[]),
            Act::Write { block_bytes, processor, verify } => {
                words("write", &[block_bytes, &on(processor), verify])
            }
            Act::Lines { count, one_write } => words("lines", &[count, one_write]),
            Act::Flood { bytes } => words("flood", &[bytes]),
            Act::Echo { block_bytes, processor } => words("echo", &[block_bytes, &on(processor)]),
            Act::IpcSend { packets: Packets { bytes, mixed }, processor, verify } => {
                words("ipc-send", &[bytes, mixed, &on(processor), verify])
            }
            Act::IpcEcho { processor, spins } => words("ipc-echo", &[&on(processor), spins]),
        }
    }

    fn parse(words: &[&str]) -> Option<Act> {
        fn on(word: &str) -> Option<Option<usize>> {
            if word == "-" { Some(None) } else { word.parse().ok().map(Some) }
        }
        Some(match words {
            ["exit"] => Act::Exit,
            ["write", block, processor, verify] => Act::Write {
                block_bytes: block.parse().ok()?,
                processor: on(processor)?,
                verify: verify.parse().ok()?,
            },
            ["lines", count, one_write] => {
                Act::Lines { count: count.parse().ok()?, one_write: one_write.parse().ok()? }
            }
            ["flood", bytes] => Act::Flood { bytes: bytes.parse().ok()? },
            ["echo", block, processor] => {
                Act::Echo { block_bytes: block.parse().ok()?, processor: on(processor)? }
            }
            ["ipc-send", bytes, mixed, processor, verify] => Act::IpcSend {
                packets: Packets { bytes: bytes.parse().ok()?, mixed: mixed.parse().ok()? },
                processor: on(processor)?,
                verify: verify.parse().ok()?,
            },
            ["ipc-echo", processor, spins] => {
                Act::IpcEcho { processor: on(processor)?, spins: spins.parse().ok()? }
            }
            _ => return None,
        })
    }

    fn perform(self) -> io::Result<()> {
        // Not std's stdout, which waits for the end of a line and copies.
        let mut out = File::from(console_out()?);
        match self {
            Act::Exit => Ok(()),
            Act::Write { block_bytes, processor, verify } => {
                pin(processor)?;
                write(&mut out, block_bytes, verify)
            }
            Act::Lines { count, one_write } => lines(&mut out, count, one_write),
            Act::Flood { bytes } => flood(&mut out, bytes),
            Act::Echo { block_bytes, processor } => {
                pin(processor)?;
                trips::echo(&mut File::from(console_in()?), &mut out, block_bytes)
            }
            Act::IpcSend { packets, processor, verify } => {
                pin(processor)?;
                ipc::send(packets, verify)
            }
            Act::IpcEcho { processor, spins } => {
                pin(processor)?;
                ipc::echo(spins)
            }
        }
    }
}

/// This very program. Asked once: it is no part of what a start costs.
fn program() -> io::Result<&'static PathBuf> {
    static OURS: OnceLock<PathBuf> = OnceLock::new();
    match OURS.get() {
        Some(program) => Ok(program),
        None => {
            let found = std::env::current_exe()?;
            Ok(OURS.get_or_init(|| found))
        }
    }
}

fn write(out: &mut File, block_bytes: usize, verify: bool) -> io::Result<()> {
    let sent = Pattern::new(block_bytes, verify);
    for line in io::stdin().lock().lines() {
        let blocks: u64 = line?.trim().parse().map_err(|_| io::ErrorKind::InvalidInput)?;
        let before = usage::of_this_process()?;
        for block in 0..blocks {
            out.write_all(sent.at(block * block_bytes as u64, block_bytes))?;
        }
        let spent = usage::of_this_process()? - before;
        writeln!(io::stderr(), "{}", show_spent(spent))?;
    }
    Ok(())
}

/// What a child has used, in a line.
pub(super) fn show_spent(spent: Spent) -> String {
    let switches = spent.switches.map_or("-".to_owned(), |switches| switches.to_string());
    format!("{} {switches}", spent.cpu.as_nanos())
}

/// Understands that line.
pub(super) fn parse_spent(line: &str) -> Option<Spent> {
    let (nanos, switches) = line.trim().split_once(' ')?;
    Some(Spent { cpu: Duration::from_nanos(nanos.parse().ok()?), switches: switches.parse().ok() })
}

fn lines(out: &mut File, count: usize, one_write: bool) -> io::Result<()> {
    // As long as those of the comparisons with other libraries: 8.9 bytes on average.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_told_is_what_is_understood() {
        for act in [
            Act::Exit,
            Act::Write { block_bytes: 4096, processor: Some(3), verify: true },
            Act::Write { block_bytes: 1, processor: None, verify: false },
            Act::Lines { count: 1000, one_write: false },
            Act::Flood { bytes: 1 << 40 },
            Act::Echo { block_bytes: 64, processor: Some(0) },
            Act::IpcSend { packets: Packets::all_of(100), processor: None, verify: true },
            Act::IpcEcho { processor: Some(1), spins: false },
        ] {
            let words = act.words();
            let words: Vec<&str> = words.iter().map(String::as_str).collect();
            assert_eq!(Act::parse(&words), Some(act));
        }
        assert_eq!(Act::parse(&["write", "x", "-", "true"]), None);
        assert_eq!(Act::parse(&[]), None);
    }

    #[test]
    fn what_a_child_has_used_is_understood() {
        let spent = Spent { cpu: Duration::from_nanos(1500), switches: Some(7) };
        for spent in [spent, Spent { switches: None, ..spent }] {
            assert_eq!(parse_spent(&show_spent(spent)), Some(spent));
        }
        assert_eq!(parse_spent("1500 7\n"), Some(spent));
        assert_eq!(parse_spent("pipewright: no\n"), None);
        assert_eq!(parse_spent(""), None);
    }
}
