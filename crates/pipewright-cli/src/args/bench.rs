//! Options of `bench`.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};

use super::duration::Span;
use super::size;
use crate::bench::Placement;

/// Options of `bench`.
#[derive(Debug, Args)]
#[command(
    arg_required_else_help = false,
    subcommand_value_name = "WHAT",
    after_help = "\
Examples:
  pipewright bench pipes --html report.html
  pipewright bench pipes --preset full --json today.json --compare yesterday.json"
)]
pub(crate) struct BenchOptions {
    #[command(subcommand)]
    pub(crate) what: Bench,
}

/// What can be measured.
#[derive(Debug, Subcommand)]
pub(crate) enum Bench {
    /// How fast bytes go through pipes, over the size of the blocks
    Pipes(Box<PipesOptions>),
    /// How fast messages go between this process and a worker, over their length
    Ipc(Box<IpcOptions>),
    /// How fast a file is read and written, over the size of the blocks
    Disk(Box<BenchDiskOptions>),
    /// What it costs to start a process; with options, and from a large one
    Spawn(Box<CasesOptions>),
    /// What it costs to take what processes print
    Capture(Box<CasesOptions>),
    /// All of these, in one report
    All(Box<CasesOptions>),
}

/// Options of every benchmark.
#[derive(Debug, Args)]
pub(crate) struct MeasureOptions {
    /// How often each cell is measured; the preset says how often where this does not
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1000))]
    pub(crate) series: Option<u16>,

    /// For how long each cell is measured in each series; the preset says it where this does not
    #[arg(long, value_name = "DUR")]
    pub(crate) time: Option<Span>,

    /// The order of the cells comes from this number; the same gives the same order
    #[arg(long, value_name = "N")]
    pub(crate) seed: Option<u64>,

    /// Measure only charts of these names, which are those in the JSON
    #[arg(long, value_name = "CHARTS", value_delimiter = ',')]
    pub(crate) only: Vec<String>,

    /// Compare with an older report, and mark what differs by more than the noise and the machine itself
    #[arg(long, value_name = "OLD.json")]
    pub(crate) compare: Option<PathBuf>,

    /// Write everything as JSON to this file; alone, or -, is stdout
    #[arg(long, value_name = "FILE", num_args = 0..=1, default_missing_value = "-")]
    pub(crate) json: Option<PathBuf>,

    /// Write one page with charts, tables and the data; needs nothing else to be read
    #[arg(long, value_name = "FILE")]
    pub(crate) html: Option<PathBuf>,

    /// Write the charts as a picture
    #[arg(long, value_name = "FILE")]
    pub(crate) svg: Option<PathBuf>,

    /// Write a line for each sample
    #[arg(long, value_name = "FILE")]
    pub(crate) csv: Option<PathBuf>,

    /// Write the tables in Markdown
    #[arg(long, value_name = "FILE")]
    pub(crate) markdown: Option<PathBuf>,

    /// When to colour
    #[arg(long, value_name = "WHEN", default_value = "auto")]
    pub(crate) color: Color,

    /// Show no progress
    #[arg(long)]
    pub(crate) quiet: bool,
}

/// Options of `bench pipes`.
#[derive(Debug, Args)]
#[command(after_help = "\
Each of --topology, --via, --capacity and --pin takes a list, and every combination is a
curve; what is left out is then threads, pipe, default and other. Without any of them the
preset says what is measured.

Sizes are written 4096, 64k, 1MiB; durations 200ms, 1.5s.

Examples:
  pipewright bench pipes --preset ibm2001 --html 2001.html
  pipewright bench pipes --blocks 4k,64k,1M --topology threads,processes --pin other,same --series 5")]
pub(crate) struct PipesOptions {
    #[command(flatten)]
    pub(crate) sweep: SweepOptions,

    #[command(flatten)]
    pub(crate) measure: MeasureOptions,
}

/// Options of the benchmarks that are lists of cases.
#[derive(Debug, Args)]
#[command(after_help = "\
Durations are written 200ms, 1.5s.

Examples:
  pipewright bench spawn --html spawn.html
  pipewright bench capture --preset full --json capture.json")]
pub(crate) struct CasesOptions {
    /// How thoroughly it is measured
    #[arg(long, value_name = "NAME", default_value = "quick")]
    pub(crate) preset: CasesPreset,

    #[command(flatten)]
    pub(crate) measure: MeasureOptions,
}

/// Options of `bench ipc`.
#[derive(Debug, Args)]
#[command(after_help = "\
Messages go through shared memory, and through a socket. Sizes are written 100, 64k, 1MiB;
durations 200ms, 1.5s.

Examples:
  pipewright bench ipc --html ipc.html
  pipewright bench ipc --blocks 100,64k,1M --only ipc-round-trip --json")]
pub(crate) struct IpcOptions {
    /// How thoroughly it is measured
    #[arg(long, value_name = "NAME", default_value = "quick")]
    pub(crate) preset: CasesPreset,

    /// How long the messages are
    #[arg(long, value_name = "SIZES", value_delimiter = ',', value_parser = size::parse)]
    pub(crate) blocks: Vec<usize>,

    /// Where the two processes run; on different cores where that can be had
    #[arg(long, value_name = "HOW")]
    pub(crate) pin: Option<Placement>,

    #[command(flatten)]
    pub(crate) measure: MeasureOptions,
}

/// Options of `bench disk`.
#[derive(Debug, Args)]
#[command(after_help = "\
Everything is done in a file of its own in DIR, whose name is gone as soon as it is open: nothing is left
of it, however the command ends. What kind of I/O a file gets is told by pipewright disk.

Sizes are written 4096, 64k, 1MiB; durations 200ms, 1.5s.

Examples:
  pipewright bench disk /var/lib/db --html disk.html
  pipewright bench disk --blocks 4k,64k,1M --depth 1,8,64 --file-size 1G --json")]
pub(crate) struct BenchDiskOptions {
    /// In which folder; here where it is left out
    #[arg(value_name = "DIR", default_value = ".")]
    pub(crate) folder: PathBuf,

    /// What is measured, and how thoroughly
    #[arg(long, value_name = "NAME", default_value = "quick")]
    pub(crate) preset: DiskPreset,

    /// The sizes of the blocks
    #[arg(long, value_name = "SIZES", value_delimiter = ',', value_parser = size::parse)]
    pub(crate) blocks: Vec<usize>,

    /// How many are under way at once; the curves with many have the largest of these
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = clap::value_parser!(u16).range(1..=4096))]
    pub(crate) depth: Vec<u16>,

    /// How large the file is; 64 MiB, and 512 MiB for full
    #[arg(long, value_name = "SIZE", value_parser = size::parse)]
    pub(crate) file_size: Option<usize>,

    #[command(flatten)]
    pub(crate) measure: MeasureOptions,
}

/// What `bench pipes` measures.
#[derive(Debug, Args)]
pub(crate) struct SweepOptions {
    /// What is measured, and how thoroughly
    #[arg(long, value_name = "NAME", default_value = "quick")]
    pub(crate) preset: PipesPreset,

    /// The sizes of the blocks
    #[arg(long, value_name = "SIZES", value_delimiter = ',', value_parser = size::parse)]
    pub(crate) blocks: Vec<usize>,

    /// Who writes, and who reads
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pub(crate) topology: Vec<Topology>,

    /// What the bytes go through
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pub(crate) via: Vec<Via>,

    /// What it holds: "default", or a size
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = capacity)]
    pub(crate) capacity: Vec<Capacity>,

    /// Where the two run
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pub(crate) pin: Vec<Placement>,

    /// Move so many blocks in each cell, as the article did, instead of as many as fit into --time
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) count: Option<u64>,

    /// Compare what comes out with what went in (slower, so the figures are others)
    #[arg(long)]
    pub(crate) verify: bool,
}

impl SweepOptions {
    /// What that preset says, and nothing else.
    pub(crate) fn preset(preset: PipesPreset) -> SweepOptions {
        SweepOptions {
            preset,
            blocks: Vec::new(),
            topology: Vec::new(),
            via: Vec::new(),
            capacity: Vec::new(),
            pin: Vec::new(),
            count: None,
            verify: false,
        }
    }
}

/// `--preset` of `bench pipes`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum PipesPreset {
    /// The ways that matter, at a dozen sizes: less than half a minute
    Quick,
    /// The sizes of IBM's article of 2001, with one thread and with two
    Ibm2001,
    /// Every way at every power of two, five times: about seven minutes
    Full,
}

/// `--preset` of `bench disk`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum DiskPreset {
    /// A few sizes: less than half a minute, unless the disk is slow
    Quick,
    /// The sizes of IBM's article of 2001, as far as a file can be read and written with them
    Ibm2001,
    /// Every power of two up to 4 MiB, five times: about two minutes
    Full,
}

/// `--preset` of the others.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum CasesPreset {
    /// Less than half a minute for each benchmark; all of them take two minutes
    Quick,
    /// More often, longer, and with more to do: about a minute for each; all of them take a quarter of an hour
    Full,
}

/// `--topology`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Topology {
    /// One thread writes a block and reads it back
    Thread,
    /// One thread writes, another one reads
    Threads,
    /// A child writes, we read
    Processes,
    /// A child that the library has started writes, we read from the pipe that it gives us
    Library,
}

/// `--via`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Via {
    /// An anonymous pipe
    Pipe,
    /// A pipe with a name
    Fifo,
    /// A pair of Unix sockets
    Socket,
    /// Shared memory, always between two processes
    Memory,
}

/// `--color`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Color {
    /// On a terminal, unless NO_COLOR is set
    Auto,
    /// Always
    Always,
    /// Never
    Never,
}

/// What a conduit is to hold; `None`: what is usual.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Capacity(pub(crate) Option<usize>);

fn capacity(text: &str) -> Result<Capacity, String> {
    if text == "default" { Ok(Capacity(None)) } else { size::parse(text).map(Some).map(Capacity) }
}
