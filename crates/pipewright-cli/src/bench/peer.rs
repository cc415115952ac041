//! The other process: what the benchmarks start is this very program, told to write, to print or to end.
//!
//! `pipewright __bench-peer ACT ...` is looked for before anything else is, so that such a child costs
//! as little as a child can. It is no command for people.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, BufRead as _, Write as _};
use std::path::PathBuf;
use std::sync::OnceLock;

use pipewright::os::usage;
use pipewright::{Command, console_out};

use super::pipes::{Pattern, pin};
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
        // Asked once: it is no part of what a start costs.
        static OURS: OnceLock<PathBuf> = OnceLock::new();
        let program = match OURS.get() {
            Some(program) => program,
            None => {
                let found = std::env::current_exe()?;
                OURS.get_or_init(|| found)
            }
        };
        let mut command = Command::new(program);
        command.arg(NAME).args(self.words());
        Ok(command)
    }

    fn words(&self) -> Vec<String> {
        match self {
            Act::Exit => vec!["exit".to_owned()],
            Act::Write { block_bytes, processor, verify } => {
                let processor = processor.map_or("-".to_owned(), |processor| processor.to_string());
                vec!["write".to_owned(), block_bytes.to_string(), processor, verify.to_string()]
            }
            Act::Lines { count, one_write } => {
                vec!["lines".to_owned(), count.to_string(), one_write.to_string()]
            }
            Act::Flood { bytes } => vec!["flood".to_owned(), bytes.to_string()],
        }
    }

    fn parse(words: &[&str]) -> Option<Act> {
        Some(match words {
            ["exit"] => Act::Exit,
            ["write", block, processor, verify] => Act::Write {
                block_bytes: block.parse().ok()?,
                processor: if *processor == "-" { None } else { Some(processor.parse().ok()?) },
                verify: verify.parse().ok()?,
            },
            ["lines", count, one_write] => {
                Act::Lines { count: count.parse().ok()?, one_write: one_write.parse().ok()? }
            }
            ["flood", bytes] => Act::Flood { bytes: bytes.parse().ok()? },
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
        let switches = spent.switches.map_or("-".to_owned(), |switches| switches.to_string());
        writeln!(io::stderr(), "{} {switches}", spent.cpu.as_nanos())?;
    }
    Ok(())
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
    use super::Act;

    #[test]
    fn what_is_told_is_what_is_understood() {
        for act in [
            Act::Exit,
            Act::Write { block_bytes: 4096, processor: Some(3), verify: true },
            Act::Write { block_bytes: 1, processor: None, verify: false },
            Act::Lines { count: 1000, one_write: false },
            Act::Flood { bytes: 1 << 40 },
        ] {
            let words = act.words();
            let words: Vec<&str> = words.iter().map(String::as_str).collect();
            assert_eq!(Act::parse(&words), Some(act));
        }
        assert_eq!(Act::parse(&["write", "x", "-", "true"]), None);
        assert_eq!(Act::parse(&[]), None);
    }
}
