//! The command line: `PEER OPERATION COUNT WARM_UP EXPECTED_BYTES PROGRAM [ARGUMENT...]`.
//!
//! `BENCH_HEAP_MIB` in the environment makes this process that much larger before it begins.

use std::ffi::OsString;

use crate::Result;

const USAGE: &str =
    "usage: peers PEER OPERATION COUNT WARM_UP EXPECTED_BYTES PROGRAM [ARGUMENT...]";

/// What is to be measured.
pub(crate) struct Request {
    pub(crate) peer: String,
    pub(crate) operation: Operation,
    pub(crate) count: usize,
    pub(crate) warm_up: usize,
    pub(crate) expected_bytes: u64,
    pub(crate) heap_bytes: usize,
    pub(crate) child: ChildCommand,
}

/// What is done with the child.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Operation {
    /// Start it with our stdio and wait.
    Status,
    /// Keep its output, which is lines.
    Capture,
    /// Keep its output, which is large.
    Collect,
    /// Read its output by 64 KiB and forget it.
    Stream,
    /// Run the children that `|` separates as a pipeline; the last one says how much came.
    Pipe,
    /// Take its output line by line, as strings, and forget them.
    TextLines,
    /// Wait for one line that says when it was written.
    WatchedLine,
    /// Keep the output of many children, some of which run at once.
    Many { children: usize, at_once: usize },
}

/// The child's command line.
pub(crate) struct ChildCommand {
    pub(crate) program: OsString,
    pub(crate) arguments: Vec<OsString>,
}

impl Request {
    pub(crate) fn from_arguments() -> Result<Request> {
        let mut arguments = std::env::args_os().skip(1);
        let mut text = || arguments.next()?.into_string().ok();
        let (Some(peer), Some(operation), Some(count), Some(warm_up), Some(expected_bytes)) =
            (text(), text(), text(), text(), text())
        else {
            return Err(USAGE.into());
        };
        let heap_mib: usize = match std::env::var("BENCH_HEAP_MIB") {
            Ok(mib) => mib.parse()?,
            Err(_) => 0,
        };
        Ok(Request {
            peer,
            operation: Operation::named(&operation)?,
            count: count.parse()?,
            warm_up: warm_up.parse()?,
            expected_bytes: expected_bytes.parse()?,
            heap_bytes: heap_mib << 20,
            child: ChildCommand {
                program: arguments.next().ok_or(USAGE)?,
                arguments: arguments.collect(),
            },
        })
    }
}

impl ChildCommand {
    /// The words of each stage of a pipeline.
    pub(crate) fn stages(&self) -> Vec<Vec<OsString>> {
        let words: Vec<OsString> =
            std::iter::once(&self.program).chain(&self.arguments).cloned().collect();
        words.split(|word| word == "|").map(<[OsString]>::to_vec).collect()
    }
}

impl Operation {
    fn named(name: &str) -> Result<Operation> {
        Ok(match name {
            "status" => Operation::Status,
            "capture" => Operation::Capture,
            "collect" => Operation::Collect,
            "stream" => Operation::Stream,
            "pipe" => Operation::Pipe,
            "text_lines" => Operation::TextLines,
            "watched_line" => Operation::WatchedLine,
            _ => Operation::many(name).ok_or_else(|| format!("no such operation: {name}"))?,
        })
    }

    /// `many:1000:64`: so many children, so many of them at once.
    fn many(name: &str) -> Option<Operation> {
        let (children, at_once) = name.strip_prefix("many:")?.split_once(':')?;
        Some(Operation::Many { children: children.parse().ok()?, at_once: at_once.parse().ok()? })
    }
}
