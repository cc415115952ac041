//! Options of `disk`.

use std::path::PathBuf;

use clap::{Args, ValueEnum, ValueHint};
use pipewright_disk::BackendKind;
use pipewright_disk::diagnosis::{DiagnoseOptions, Pattern};

use super::values::parse_some_bytes;

/// Options of `disk`.
#[derive(Debug, Args)]
#[command(after_long_help = "\
A FILE is only read, unless --write-existing is given; --write creates temporary files beside it.
In a DIR, all tests use temporary files, which are unlinked once they are open.

An asynchronous test submits all its requests and then waits for them. It prints:
  queued     time spent in the submitting calls
  completed  time until all requests were done
  free       share of that time in which the program could do other work

Sizes: 4096, 64k, 1MiB.

Exit codes:
  0    every path was tested
  125  a path could not be tested, or pipewright failed

Examples:
  pipewright disk data.bin
  pipewright disk --json /var/lib/db | jq '.tests[] | {test, verdict}'")]
pub(crate) struct DiskOptions {
    /// Files to read, or directories to create files in
    #[arg(required = true, value_name = "FILE|DIR", value_hint = ValueHint::AnyPath)]
    pub(crate) paths: Vec<PathBuf>,

    /// Requests per test
    #[arg(long, value_name = "N", allow_hyphen_values = true, value_hint = ValueHint::Other, default_value_t = 500,
          value_parser = clap::value_parser!(u32).range(1..=30_000))]
    pub(crate) requests: u32,

    /// Bytes per request
    #[arg(long, value_name = "BYTES", allow_hyphen_values = true, value_hint = ValueHint::Other, default_value = "64k",
          value_parser = parse_some_bytes)]
    pub(crate) block: usize,

    /// Run only the synchronous tests
    #[arg(long)]
    pub(crate) sync: bool,

    /// Run only the tests that bypass the page cache
    #[arg(long)]
    pub(crate) unbuffered: bool,

    /// Test writes too, in temporary files beside FILE
    #[arg(long)]
    pub(crate) write: bool,

    /// Test writes to FILE itself too, with the bytes that it already has
    ///
    /// Data that another process writes to FILE during the test can be lost.
    #[arg(long)]
    pub(crate) write_existing: bool,

    /// Order of the requests in the file
    #[arg(long, value_name = "HOW", default_value = "random")]
    pub(crate) pattern: PatternName,

    /// System interface of the asynchronous tests
    #[arg(long, value_name = "NAME", default_value = "auto")]
    pub(crate) backend: BackendName,

    /// Print a JSON object for each path
    #[arg(long, conflicts_with = "html")]
    pub(crate) json: bool,

    /// Write an HTML page to FILE
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) html: Option<PathBuf>,
}

/// Order of the requests in the file.
#[derive(Debug, Clone, Copy, ValueEnum)]
pub(crate) enum PatternName {
    /// Each block once, in random order
    Random,
    /// Each block once, in sequence
    Seq,
}

/// System interfaces for asynchronous requests.
#[derive(Debug, Clone, Copy, ValueEnum)]
pub(crate) enum BackendName {
    /// Best one available
    Auto,
    /// Linux io_uring
    Uring,
    /// Linux io_submit
    Aio,
    /// Windows overlapped I/O
    Overlapped,
    /// A pool of threads
    Threads,
}

impl DiskOptions {
    /// Returns the options of the library for these.
    pub(crate) fn diagnose(&self) -> DiagnoseOptions {
        DiagnoseOptions {
            requests: self.requests as usize,
            block_bytes: self.block,
            pattern: match self.pattern {
                PatternName::Random => Pattern::Random,
                PatternName::Seq => Pattern::Sequential,
            },
            synchronous: self.sync.then_some(true),
            direct: self.unbuffered.then_some(true),
            writes: self.write,
            write_existing: self.write_existing,
            backend: match self.backend {
                BackendName::Auto => BackendKind::Auto,
                BackendName::Uring => BackendKind::Uring,
                BackendName::Aio => BackendKind::Aio,
                BackendName::Overlapped => BackendKind::Overlapped,
                BackendName::Threads => BackendKind::Threads,
            },
        }
    }
}
