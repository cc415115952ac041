//! The command line: `PEER OPERATION COUNT WARM_UP EXPECTED_BYTES PROGRAM [ARGUMENT...]`.
//!
//! With `BENCH_HEAP_MIB` in the environment, the process first allocates that much memory.

use std::ffi::OsString;

use crate::Result;

const USAGE: &str =
    "usage: peers PEER OPERATION COUNT WARM_UP EXPECTED_BYTES PROGRAM [ARGUMENT...]";

/// The case to measure.
pub(crate) struct PeerRequest {
    pub(crate) peer: String,
    pub(crate) operation: ChildOperation,
    pub(crate) count: usize,
    pub(crate) warm_up: usize,
    pub(crate) expected_bytes: u64,
    pub(crate) heap_bytes: usize,
    pub(crate) child: ChildCommand,
}

/// The operation on the child.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ChildOperation {
    /// Start the child with our stdio and wait.
    Status,
    /// Keep its output, which consists of lines.
    Capture,
    /// Keep its output, which is large.
    Collect,
    /// Read its output in blocks of 64 KiB and discard it.
    Stream,
    /// Run the children between `|` as a pipeline. The last one prints the number of bytes that it read.
    Pipe,
    /// Read its output line by line, as strings, and discard them.
    TextLines,
    /// Wait for one line that contains its time of writing.
    WatchedLine,
    /// Keep the output of many children, of which `at_once` run at the same time.
    Many { children: usize, at_once: usize },
}

/// The child's command line.
pub(crate) struct ChildCommand {
    pub(crate) program: OsString,
    pub(crate) arguments: Vec<OsString>,
}

impl PeerRequest {
    pub(crate) fn from_arguments() -> Result<PeerRequest> {
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
        Ok(PeerRequest {
            peer,
            operation: ChildOperation::named(&operation)?,
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
    /// Returns the words of each stage of a pipeline.
    pub(crate) fn stages(&self) -> Vec<Vec<OsString>> {
        let words: Vec<OsString> =
            std::iter::once(&self.program).chain(&self.arguments).cloned().collect();
        words.split(|word| word == "|").map(<[OsString]>::to_vec).collect()
    }
}

impl ChildOperation {
    fn named(name: &str) -> Result<ChildOperation> {
        Ok(match name {
            "status" => ChildOperation::Status,
            "capture" => ChildOperation::Capture,
            "collect" => ChildOperation::Collect,
            "stream" => ChildOperation::Stream,
            "pipe" => ChildOperation::Pipe,
            "text_lines" => ChildOperation::TextLines,
            "watched_line" => ChildOperation::WatchedLine,
            _ => ChildOperation::many(name).ok_or_else(|| format!("unknown operation: {name}"))?,
        })
    }

    /// Parses `many:CHILDREN:AT_ONCE`, as in `many:1000:64`.
    fn many(name: &str) -> Option<ChildOperation> {
        let (children, at_once) = name.strip_prefix("many:")?.split_once(':')?;
        Some(ChildOperation::Many {
            children: children.parse().ok()?,
            at_once: at_once.parse().ok()?,
        })
    }
}
