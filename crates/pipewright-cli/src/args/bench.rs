//! Options of `bench` and `disk`.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand, ValueEnum, ValueHint};
use pipewright_bench::options::{
    self, CasesPreset, Color, DiskPreset, PipesPreset, Placement, Topology, Via,
};
use pipewright_disk::BackendKind;
use pipewright_disk::diagnosis::{DiagnoseOptions, Pattern};

use super::values::{Span, choice, parse_bytes, parse_some_bytes};

/// Text that the help of every benchmark has.
macro_rules! exit_codes_and_environment {
    () => {
        "\
Exit codes:
  0      measured
  125    wrong usage, a file not written, wrong data received, or nothing measured
  128+N  interrupted by signal N, after printing the results so far

Environment variables:
  NO_COLOR  disables colors, if set and not empty

"
    };
}

/// Options of `bench`.
#[derive(Debug, Args)]
#[command(
    arg_required_else_help = false,
    subcommand_value_name = "WHAT",
    after_long_help = "\
Examples:
  pipewright bench pipes --html report.html
  pipewright bench pipes --preset full --json today.json --compare yesterday.json"
)]
pub(crate) struct BenchOptions {
    #[command(subcommand)]
    what: Bench,
}

/// The benchmarks.
#[derive(Debug, Subcommand)]
enum Bench {
    /// Measure the throughput of pipes, by block size
    Pipes(Box<PipesOptions>),
    /// Measure messages between this process and a worker, by length
    Ipc(Box<IpcOptions>),
    /// Measure reads and writes of a file, by block size and queue depth
    Disk(Box<DiskBenchOptions>),
    /// Measure process starts, with options and from a large parent
    Spawn(Box<CasesOptions>),
    /// Measure the capture of output
    Capture(Box<CasesOptions>),
    /// Run all benchmarks, with one report
    All(Box<CasesOptions>),
}

/// Options that every benchmark has.
#[derive(Debug, Args)]
struct CommonBenchOptions {
    /// Measure each cell (a point in a chart) N times [default: the preset's]
    #[arg(long, value_name = "N", allow_hyphen_values = true, value_parser = clap::value_parser!(u16).range(1..=1000))]
    runs: Option<u16>,

    /// Measure each cell for DUR in each run [default: the preset's]
    #[arg(long, value_name = "DUR", allow_hyphen_values = true)]
    time: Option<Span>,

    /// Seed for the order of the cells; the same seed gives the same order
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    seed: Option<u64>,

    /// Measure only these charts (comma-separated, named as in the JSON report)
    #[arg(long, value_name = "CHARTS", value_delimiter = ',')]
    only: Vec<String>,

    /// Compare with an older report, and mark changes beyond the noise
    #[arg(long, value_name = "OLD.json")]
    compare: Option<PathBuf>,

    /// Write the report as JSON; to stdout without FILE, or with -
    #[arg(long, value_name = "FILE", num_args = 0..=1, default_missing_value = "-")]
    json: Option<PathBuf>,

    /// Write a self-contained web page with charts, tables and data
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,

    /// Write the charts as an SVG picture
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,

    /// Write the samples as CSV, one per line
    #[arg(long, value_name = "FILE")]
    csv: Option<PathBuf>,

    /// Write the tables in Markdown
    #[arg(long, value_name = "FILE")]
    markdown: Option<PathBuf>,

    /// Control when to use colors
    #[arg(long, value_name = "WHEN", default_value = "auto", value_parser = choice(&COLORS, Color::name))]
    color: Color,

    /// Show no progress
    #[arg(short, long)]
    quiet: bool,
}

/// Options of `bench pipes`.
#[derive(Debug, Args)]
#[command(after_long_help = concat!("\
--topology, --via, --capacity and --pin each take a list, and every combination becomes a curve.
If you give any of them, the rest default to --topology threads, --via pipe, --capacity default and
--pin other. If you give none, the preset selects the measurements.

Sizes: 4096, 64k, 1MiB. Durations: 200ms, 1.5s.

", exit_codes_and_environment!(), "\
Examples:
  pipewright bench pipes --preset ibm2001 --html 2001.html
  pipewright bench pipes --bs 4k,64k,1M --topology threads,processes --pin other,same --runs 5"))]
struct PipesOptions {
    /// Set of measurements
    #[arg(long, value_name = "NAME", default_value = "quick", value_parser = choice(&PIPES_PRESETS, PipesPreset::name))]
    preset: PipesPreset,

    /// Block sizes
    #[arg(long, value_name = "SIZES", value_delimiter = ',', value_parser = parse_bytes)]
    bs: Vec<usize>,

    /// Threads or processes that write and read
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = choice(&TOPOLOGIES, Topology::name))]
    topology: Vec<Topology>,

    /// Channel between writer and reader
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = choice(&CHANNELS, Via::name))]
    via: Vec<Via>,

    /// Capacity of the channel: "default", or a size
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = capacity)]
    capacity: Vec<Capacity>,

    /// Placement of writer and reader
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = choice(&PLACEMENTS, Placement::name))]
    pin: Vec<Placement>,

    /// Move N blocks per measurement, instead of as many as fit into --time
    #[arg(long, value_name = "N", allow_hyphen_values = true, value_parser = clap::value_parser!(u64).range(1..))]
    count: Option<u64>,

    /// Compare received with sent bytes (slower; the figures include the cost)
    #[arg(long)]
    verify: bool,

    #[command(flatten)]
    common: CommonBenchOptions,
}

/// Options of the benchmarks that are lists of cases.
#[derive(Debug, Args)]
#[command(after_long_help = concat!("\
Durations: 200ms, 1.5s.

", exit_codes_and_environment!(), "\
Examples:
  pipewright bench spawn --html spawn.html
  pipewright bench capture --preset full --json capture.json"))]
struct CasesOptions {
    /// Amount of work
    #[arg(long, value_name = "NAME", default_value = "quick", value_parser = choice(&CASES_PRESETS, CasesPreset::name))]
    preset: CasesPreset,

    #[command(flatten)]
    common: CommonBenchOptions,
}

/// Options of `bench ipc`.
#[derive(Debug, Args)]
#[command(after_long_help = concat!("\
Measures messages through shared memory and through a socket.

Sizes: 100, 64k, 1MiB. Durations: 200ms, 1.5s.

", exit_codes_and_environment!(), "\
Examples:
  pipewright bench ipc --html ipc.html
  pipewright bench ipc --bs 100,64k,1M --only ipc-round-trip --json"))]
struct IpcOptions {
    /// Amount of work
    #[arg(long, value_name = "NAME", default_value = "quick", value_parser = choice(&CASES_PRESETS, CasesPreset::name))]
    preset: CasesPreset,

    /// Message lengths
    #[arg(long, value_name = "SIZES", value_delimiter = ',', value_parser = parse_bytes)]
    bs: Vec<usize>,

    /// Placement of the two processes [default: different cores where possible]
    #[arg(long, value_name = "HOW", value_parser = choice(&PLACEMENTS, Placement::name))]
    pin: Option<Placement>,

    #[command(flatten)]
    common: CommonBenchOptions,
}

/// Options of `bench disk`.
#[derive(Debug, Args)]
#[command(after_long_help = concat!("\
Reads and writes a new file in DIR. The file is unlinked as soon as it is open, so nothing is left
behind, however the command ends. To see whether I/O on a file is asynchronous, use pipewright disk.

Sizes: 4096, 64k, 1MiB. Durations: 200ms, 1.5s.

", exit_codes_and_environment!(), "\
Examples:
  pipewright bench disk /var/lib/db --html disk.html
  pipewright bench disk --bs 4k,64k,1M --depth 1,8,64 --file-size 1G --json"))]
struct DiskBenchOptions {
    /// Folder for the file
    #[arg(value_name = "DIR", default_value = ".")]
    folder: PathBuf,

    /// Set of measurements
    #[arg(long, value_name = "NAME", default_value = "quick", value_parser = choice(&DISK_PRESETS, DiskPreset::name))]
    preset: DiskPreset,

    /// Block sizes
    #[arg(long, value_name = "SIZES", value_delimiter = ',', value_parser = parse_bytes)]
    bs: Vec<usize>,

    /// Queue depths; the curves by block size use the largest
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = clap::value_parser!(u16).range(1..=4096))]
    depth: Vec<u16>,

    /// Size of the file [default: 64 MiB, with --preset full 512 MiB]
    #[arg(long, value_name = "SIZE", value_parser = parse_bytes)]
    file_size: Option<usize>,

    #[command(flatten)]
    common: CommonBenchOptions,
}

const PIPES_PRESETS: [(PipesPreset, &str); 3] = [
    (PipesPreset::Quick, "Common combinations at a dozen sizes: at most 30 s"),
    (
        PipesPreset::Ibm2001,
        "Sizes of IBM's article of 2001, with one thread and with two: at most 1 min",
    ),
    (PipesPreset::Full, "Every combination at every power of two, five times: at most 8 min"),
];

const DISK_PRESETS: [(DiskPreset, &str); 3] = [
    (DiskPreset::Quick, "A few sizes: at most 30 s"),
    (
        DiskPreset::Ibm2001,
        "Sizes of IBM's article of 2001 (direct I/O leaves out unaligned ones): at most 2 min",
    ),
    (DiskPreset::Full, "Every power of two up to 4 MiB, five times: at most 3 min"),
];

const CASES_PRESETS: [(CasesPreset, &str); 2] = [
    (CasesPreset::Quick, "At most 30 s for each benchmark, and 2 min for all of them"),
    (
        CasesPreset::Full,
        "More series, time and work: at most 2 min for each benchmark, and 15 min for all of them",
    ),
];

const TOPOLOGIES: [(Topology, &str); 4] = [
    (Topology::Thread, "One thread writes a block and reads it back"),
    (Topology::Threads, "One thread writes, another one reads"),
    (Topology::Processes, "A child writes, this process reads"),
    (Topology::Library, "Same as processes, through the pipe that the library makes for the child"),
];

const CHANNELS: [(Via, &str); 4] = [
    (Via::Pipe, "An anonymous pipe"),
    (Via::Fifo, "A named pipe"),
    (Via::Socket, "A pair of Unix sockets"),
    (Via::Memory, "Shared memory, always between two processes"),
];

const PLACEMENTS: [(Placement, &str); 4] = [
    (Placement::Other, "On different cores"),
    (Placement::Same, "On the same processor, taking turns"),
    (Placement::Sibling, "On two processors of one core"),
    (Placement::None, "Not pinned; the system may move them at any time"),
];

const COLORS: [(Color, &str); 3] = [
    (Color::Auto, "Use colors on a terminal, unless NO_COLOR is set"),
    (Color::Always, "Use colors"),
    (Color::Never, "Use no colors"),
];

/// The capacity of a channel; `None`: the system's default.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Capacity(Option<usize>);

fn capacity(text: &str) -> Result<Capacity, String> {
    if text == "default" { Ok(Capacity(None)) } else { parse_bytes(text).map(Some).map(Capacity) }
}

impl BenchOptions {
    /// Returns the options as the library takes them.
    pub(crate) fn plain(&self) -> options::BenchmarkOptions {
        use options::BenchmarkOptions;
        match &self.what {
            Bench::Pipes(options) => BenchmarkOptions::Pipes(options.plain()),
            Bench::Ipc(options) => BenchmarkOptions::Ipc(options.plain()),
            Bench::Disk(options) => BenchmarkOptions::Disk(options.plain()),
            Bench::Spawn(options) => BenchmarkOptions::Spawn(options.plain()),
            Bench::Capture(options) => BenchmarkOptions::Capture(options.plain()),
            Bench::All(options) => BenchmarkOptions::All(options.plain()),
        }
    }
}

impl CommonBenchOptions {
    fn plain(&self) -> options::CommonBenchOptions {
        options::CommonBenchOptions {
            series: self.runs,
            time: self.time.as_ref().map(|span| -> Duration { span.duration }),
            seed: self.seed,
            only: self.only.clone(),
            compare: self.compare.clone(),
            json: self.json.clone(),
            html: self.html.clone(),
            svg: self.svg.clone(),
            csv: self.csv.clone(),
            markdown: self.markdown.clone(),
            color: self.color,
            quiet: self.quiet,
        }
    }
}

impl PipesOptions {
    fn plain(&self) -> options::PipesOptions {
        options::PipesOptions {
            preset: self.preset,
            blocks: self.bs.clone(),
            topology: self.topology.clone(),
            via: self.via.clone(),
            capacity: self.capacity.iter().map(|Capacity(bytes)| *bytes).collect(),
            pin: self.pin.clone(),
            count: self.count,
            verify: self.verify,
            common: self.common.plain(),
        }
    }
}

impl CasesOptions {
    fn plain(&self) -> options::CasesOptions {
        options::CasesOptions { preset: self.preset, common: self.common.plain() }
    }
}

impl IpcOptions {
    fn plain(&self) -> options::IpcOptions {
        options::IpcOptions {
            preset: self.preset,
            blocks: self.bs.clone(),
            pin: self.pin,
            common: self.common.plain(),
        }
    }
}

impl DiskBenchOptions {
    fn plain(&self) -> options::DiskBenchOptions {
        options::DiskBenchOptions {
            folder: self.folder.clone(),
            preset: self.preset,
            blocks: self.bs.clone(),
            depth: self.depth.clone(),
            file_bytes: self.file_size.map(|bytes| bytes as u64),
            common: self.common.plain(),
        }
    }
}

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
    pub(crate) bs: usize,

    /// Run only the synchronous tests
    #[arg(long)]
    pub(crate) sync: bool,

    /// Run only the tests that bypass the page cache
    #[arg(long)]
    direct: bool,

    /// Test writes too, in temporary files beside FILE
    #[arg(long)]
    pub(crate) write: bool,

    /// Test writes to FILE itself too, with the bytes that it already has
    ///
    /// Data that another process writes to FILE during the test can be lost.
    #[arg(long)]
    write_existing: bool,

    /// Order of the requests in the file
    #[arg(long, value_name = "HOW", default_value = "random")]
    pattern: PatternName,

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
    #[value(name = "io_uring")]
    IoUring,
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
            block_bytes: self.bs,
            pattern: match self.pattern {
                PatternName::Random => Pattern::Random,
                PatternName::Seq => Pattern::Sequential,
            },
            synchronous: self.sync.then_some(true),
            direct: self.direct.then_some(true),
            writes: self.write,
            write_existing: self.write_existing,
            backend: match self.backend {
                BackendName::Auto => BackendKind::Auto,
                BackendName::IoUring => BackendKind::IoUring,
                BackendName::Aio => BackendKind::Aio,
                BackendName::Overlapped => BackendKind::Overlapped,
                BackendName::Threads => BackendKind::Threads,
            },
        }
    }
}
