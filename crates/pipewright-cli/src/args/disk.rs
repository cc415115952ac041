//! Options of `disk`.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use pipewright_disk::BackendKind;
use pipewright_disk::diagnosis::{DiagnoseOptions, Pattern};

use super::size;

/// Options of `disk`.
#[derive(Debug, Args)]
#[command(after_help = "\
A FILE is read, and never written to, but for --write-existing; --write makes files of its own beside it.
In a DIR everything is done in files of its own. They lose their names as soon as they are open.

Each test makes all its requests at once and then waits for all of them. What it prints:
  queued     how long the calls took that handed the requests over
  completed  how long it took until all were done
  free       the share of that time which the program had for itself

Examples:
  pipewright disk data.bin
  pipewright disk --json /var/lib/db | jq '.tests[] | {test, verdict, reasons: [.reasons[]?.reason]}'")]
pub(crate) struct DiskOptions {
    /// The files and folders
    #[arg(required = true, value_name = "FILE|DIR")]
    pub(crate) paths: Vec<PathBuf>,

    /// How many requests each test makes
    #[arg(long, value_name = "N", default_value_t = 500, value_parser = clap::value_parser!(u32).range(1..=30_000))]
    pub(crate) requests: u32,

    /// How many bytes each request moves
    #[arg(long, value_name = "BYTES", default_value = "64k", value_parser = size::parse_some)]
    pub(crate) block: usize,

    /// Only the tests that are synchronous
    #[arg(long)]
    pub(crate) sync: bool,

    /// Only the tests that bypass the cache
    #[arg(long)]
    pub(crate) unbuffered: bool,

    /// Writes too, in files of its own beside FILE
    #[arg(long)]
    pub(crate) write: bool,

    /// Writes too, and over FILE itself: with the bytes that it has. What others write to it meanwhile is lost
    #[arg(long)]
    pub(crate) write_existing: bool,

    /// Where requests go
    #[arg(long, value_name = "HOW", default_value = "random")]
    pub(crate) pattern: PatternName,

    /// What carries the asynchronous tests out
    #[arg(long, value_name = "NAME", default_value = "auto")]
    pub(crate) backend: BackendName,

    /// Print a JSON object for each path
    #[arg(long, conflicts_with = "html")]
    pub(crate) json: bool,

    /// Write one page of HTML to this file
    #[arg(long, value_name = "OUT")]
    pub(crate) html: Option<PathBuf>,
}

/// Where requests go.
#[derive(Debug, Clone, Copy, ValueEnum)]
pub(crate) enum PatternName {
    /// Each block once, in an order that nothing foresees
    Random,
    /// One after the other
    Seq,
}

/// What carries requests out.
#[derive(Debug, Clone, Copy, ValueEnum)]
pub(crate) enum BackendName {
    /// The best that can be had
    Auto,
    /// Linux: io_uring
    Uring,
    /// Linux: `io_submit`
    Aio,
    /// Windows: overlapped calls
    Overlapped,
    /// Threads
    Threads,
}

impl DiskOptions {
    /// What the library is asked for.
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
