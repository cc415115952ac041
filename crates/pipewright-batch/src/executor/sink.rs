//! The receiver of an attempt's output.

use std::fmt;
use std::path::PathBuf;

use pipewright::Source;
use serde::{Deserialize, Serialize};

use crate::job::path_bytes;

/// The receiver of an attempt's output. The executor calls it as the bytes arrive, and drops it before it reports the end
/// of the attempt.
pub trait OutputSink: Send + fmt::Debug {
    /// Takes bytes of a stream, in the order in which they were written to that stream. Must not block.
    fn write(&mut self, stream: Source, bytes: &[u8]);

    /// Returns true if somebody watches the output, so that it must not wait for more. Otherwise the executor may
    /// hand it over up to 1 ms late, in larger pieces.
    fn is_live(&self) -> bool {
        true
    }

    /// Returns the number of files that it opens for the attempt, so that handles are kept for them. The default is none.
    fn files(&self) -> usize {
        0
    }

    /// Returns the files that the node of the attempt may write itself. An executor that does so never calls
    /// [`write`](Self::write), and calls [`written`](Self::written) at the end. `None`, the default: it has to call `write`.
    fn node_files(&self) -> Option<NodeFiles> {
        None
    }

    /// Takes the facts about output that the node has written.
    fn written(&mut self, output: NodeOutput) {
        drop(output);
    }
}

/// The files of an attempt's output, for a node that writes them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct NodeFiles {
    /// The folder of the job. It exists, on a file system that the nodes share, and gets the files `stdout` and `stderr`.
    #[serde(with = "path_bytes")]
    pub folder: PathBuf,
    /// The most bytes of each file.
    pub max_bytes: Option<u64>,
    /// The files have to be on disk before the end is reported.
    pub is_durable: bool,
}

/// The facts about output that a node has written to files.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct NodeOutput {
    /// The number of bytes that the attempt wrote to stdout, kept or not.
    pub stdout_bytes: u64,
    /// The number of bytes that it wrote to stderr, kept or not.
    pub stderr_bytes: u64,
    /// The last lines of stderr, or of stdout if stderr is empty.
    pub tail: String,
    /// True if not all bytes were kept.
    pub is_truncated: bool,
    /// The first error of a write. The rest of that stream is lost.
    pub error: Option<String>,
}
