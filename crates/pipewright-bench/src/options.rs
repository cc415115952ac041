//! Options of the benchmarks: plain data, without a command line.

use std::path::PathBuf;
use std::time::Duration;

/// A benchmark and its options.
#[derive(Debug, Clone)]
pub enum BenchmarkOptions {
    /// Throughput and round trips of pipes, by block size.
    Pipes(PipesOptions),
    /// Throughput and round trips of messages, by length.
    Ipc(IpcOptions),
    /// Reads and writes of a file, by block size and by queue depth.
    Disk(DiskBenchOptions),
    /// Starts of processes.
    Spawn(CasesOptions),
    /// Captures of output.
    Capture(CasesOptions),
    /// All of these, in one report.
    All(CasesOptions),
}

/// Options that every benchmark has.
#[derive(Debug, Clone, Default)]
pub struct CommonBenchOptions {
    /// The number of series; `None`: the preset's.
    pub series: Option<u16>,
    /// The time for each cell in each series; `None`: the preset's.
    pub time: Option<Duration>,
    /// The seed of the order of the cells; `None`: taken from the clock.
    pub seed: Option<u64>,
    /// The ids of the charts to measure; empty: all.
    pub only: Vec<String>,
    /// An older report in JSON to compare with.
    pub compare: Option<PathBuf>,
    /// The file for the report in JSON. `-` is stdout, here and below.
    pub json: Option<PathBuf>,
    /// The file for the report as a web page.
    pub html: Option<PathBuf>,
    /// The file for the charts as a picture.
    pub svg: Option<PathBuf>,
    /// The file for the samples, one in a line.
    pub csv: Option<PathBuf>,
    /// The file for the tables in Markdown.
    pub markdown: Option<PathBuf>,
    /// The use of colors on stdout.
    pub color: Color,
    /// Shows no progress on stderr.
    pub quiet: bool,
}

/// Options of the benchmark of pipes.
#[derive(Debug, Clone, Default)]
pub struct PipesOptions {
    /// The charts, block sizes and times to use where the fields below do not say otherwise.
    pub preset: PipesPreset,
    /// The block sizes, in bytes; empty: the preset's.
    pub blocks: Vec<usize>,
    /// The kinds of writer and reader; empty: threads.
    pub topology: Vec<Topology>,
    /// The kinds of channel; empty: pipes.
    pub via: Vec<Via>,
    /// The capacities of the channel in bytes, `None` for the system's default; empty: that default.
    pub capacity: Vec<Option<usize>>,
    /// The placements of writer and reader; empty: different cores where possible.
    pub pin: Vec<Placement>,
    /// The number of blocks in each cell; `None`: as many as fit into its time.
    pub count: Option<u64>,
    /// Compares the received bytes with the sent bytes.
    pub verify: bool,
    /// Options that every benchmark has.
    pub common: CommonBenchOptions,
}

/// Options of the benchmark of messages.
#[derive(Debug, Clone, Default)]
pub struct IpcOptions {
    /// The number of series and the time for each cell.
    pub preset: CasesPreset,
    /// The message lengths, in bytes; empty: 100 bytes to 16 MiB.
    pub blocks: Vec<usize>,
    /// The placement of the two processes; `None`: different cores where possible.
    pub pin: Option<Placement>,
    /// Options that every benchmark has.
    pub common: CommonBenchOptions,
}

/// Options of the benchmark of files.
#[derive(Debug, Clone)]
pub struct DiskBenchOptions {
    /// The folder for the file.
    pub folder: PathBuf,
    /// The block sizes, queue depths and times to use where the fields below do not say otherwise.
    pub preset: DiskPreset,
    /// The block sizes, in bytes; empty: the preset's.
    pub blocks: Vec<usize>,
    /// The queue depths; empty: the preset's. The curves by block size use the largest.
    pub depth: Vec<u16>,
    /// The size of the file, in bytes; `None`: the preset's.
    pub file_bytes: Option<u64>,
    /// Options that every benchmark has.
    pub common: CommonBenchOptions,
}

impl Default for DiskBenchOptions {
    fn default() -> DiskBenchOptions {
        DiskBenchOptions {
            folder: PathBuf::from("."),
            preset: DiskPreset::default(),
            blocks: Vec::new(),
            depth: Vec::new(),
            file_bytes: None,
            common: CommonBenchOptions::default(),
        }
    }
}

/// Options of the benchmarks that are lists of cases.
#[derive(Debug, Clone, Default)]
pub struct CasesOptions {
    /// The number of series, the time for each cell and the amount of work.
    pub preset: CasesPreset,
    /// Options that every benchmark has.
    pub common: CommonBenchOptions,
}

/// An enum whose values have names on the command line and in reports.
macro_rules! named {
    ($(#[$doc:meta])* $name:ident { $($(#[$value_doc:meta])* $value:ident = $text:literal,)+ }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
        pub enum $name {
            $($(#[$value_doc])* $value,)+
        }

        impl $name {
            /// Returns the name on the command line and in reports.
            #[must_use]
            pub fn name(self) -> &'static str {
                match self {
                    $($name::$value => $text,)+
                }
            }
        }
    };
}

named! {
    /// A preset of the benchmark of pipes.
    PipesPreset {
        /// Common combinations at a dozen sizes.
        #[default]
        Quick = "quick",
        /// The block sizes of IBM's article of 2001, with one thread and with two.
        Ibm2001 = "ibm2001",
        /// Every combination at every power of two.
        Full = "full",
    }
}

named! {
    /// A preset of the benchmark of files.
    DiskPreset {
        /// A few block sizes.
        #[default]
        Quick = "quick",
        /// The block sizes of IBM's article of 2001.
        Ibm2001 = "ibm2001",
        /// Every power of two up to 4 MiB.
        Full = "full",
    }
}

named! {
    /// A preset of the other benchmarks.
    CasesPreset {
        /// Less than half a minute for each benchmark.
        #[default]
        Quick = "quick",
        /// More series, more time and more work.
        Full = "full",
    }
}

named! {
    /// The kinds of writer and reader.
    Topology {
        /// One thread writes a block and reads it back.
        Thread = "thread",
        /// One thread writes, another one reads.
        #[default]
        Threads = "threads",
        /// A child process writes, this process reads.
        Processes = "processes",
        /// The same, with the pipe that the library makes.
        Library = "library",
    }
}

named! {
    /// The channel between writer and reader.
    Via {
        /// An anonymous pipe.
        #[default]
        Pipe = "pipe",
        /// A named pipe.
        Fifo = "fifo",
        /// A pair of Unix stream sockets.
        Socket = "socket",
        /// Shared memory, always between two processes.
        Memory = "memory",
    }
}

named! {
    /// The placement of writer and reader on processors.
    Placement {
        /// On different cores.
        Other = "other",
        /// On the same processor.
        Same = "same",
        /// On two processors of one core.
        Sibling = "sibling",
        /// Not pinned: the system moves them as it likes.
        #[default]
        None = "none",
    }
}

named! {
    /// The use of colors on stdout.
    Color {
        /// On a terminal, unless `NO_COLOR` is set.
        #[default]
        Auto = "auto",
        /// Always.
        Always = "always",
        /// Never.
        Never = "never",
    }
}
