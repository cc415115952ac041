//! The cases: their peers, operations, children and numbers of operations.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::Result;
use crate::prepare::{Tools, find};

/// A case that can be measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Case {
    Spawn,
    SpawnOptions,
    CaptureLines,
    CaptureBlock,
    Allocations,
    Stream,
    Collect,
    Pipeline,
    TextLines,
    WatchedLine,
    SpawnAsync,
    Many,
    Size,
    Cli,
}

/// A comparison of peers that run the same operation with the same child.
pub(crate) struct Table {
    pub(crate) case: &'static str,
    pub(crate) title: String,
    pub(crate) operation: &'static str,
    /// Operations in a cell.
    pub(crate) count: usize,
    pub(crate) warm_up: usize,
    /// The number of bytes that the child writes.
    pub(crate) expected_bytes: u64,
    /// The heap that the peer allocates before it begins.
    pub(crate) heap_mib: usize,
    pub(crate) rows: Vec<Row>,
    /// The labels of the rows that the others are compared with.
    pub(crate) baselines: &'static [&'static str],
    pub(crate) show: Show,
    /// The names of further figures that the peers print.
    pub(crate) extras: &'static [&'static str],
}

/// A peer with its child.
pub(crate) struct Row {
    pub(crate) label: &'static str,
    pub(crate) runner: PeerProgram,
    pub(crate) peer: &'static str,
    pub(crate) child: Vec<OsString>,
    /// Operations in a cell, if the table's number would take too long.
    pub(crate) count: Option<usize>,
}

impl Table {
    /// Returns the number of operations in a cell of that row.
    pub(crate) fn count_of(&self, row: &Row) -> usize {
        row.count.unwrap_or(self.count)
    }
}

/// The program that runs a peer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PeerProgram {
    Rust,
    RustCounting,
    C,
    Python,
}

/// The figures of the samples that the report shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Show {
    Time,
    Speed,
    ExtrasOnly,
}

const GIB: u64 = 1 << 30;
const LINES: u64 = 1000;
const LINE_BYTES: u64 = 9;
/// The length of a line of the child `text`.
const TEXT_LINE_BYTES: u64 = 80;
/// Microseconds between two lines of the case `watched-line`.
const STAMP_PAUSE: u64 = 2000;
/// Milliseconds between the two lines of an idle child.
const PAUSE: u64 = 200;
const LARGE_HEAP_MIB: usize = 2 << 10;

impl Case {
    pub(crate) const ALL: [Case; 14] = [
        Case::Spawn,
        Case::SpawnOptions,
        Case::CaptureLines,
        Case::CaptureBlock,
        Case::Allocations,
        Case::Stream,
        Case::Collect,
        Case::Pipeline,
        Case::TextLines,
        Case::WatchedLine,
        Case::SpawnAsync,
        Case::Many,
        Case::Size,
        Case::Cli,
    ];

    pub(crate) fn named(name: &str) -> Option<Case> {
        Case::ALL.into_iter().find(|case| case.name() == name)
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            Case::Spawn => "spawn",
            Case::SpawnOptions => "spawn-options",
            Case::CaptureLines => "capture-lines",
            Case::CaptureBlock => "capture-block",
            Case::Allocations => "allocations",
            Case::Stream => "stream",
            Case::Collect => "collect",
            Case::Pipeline => "pipeline",
            Case::TextLines => "text-lines",
            Case::WatchedLine => "watched-line",
            Case::SpawnAsync => "spawn-async",
            Case::Many => "many",
            Case::Size => "size",
            Case::Cli => "cli",
        }
    }

    pub(crate) fn explanation(self) -> &'static str {
        match self {
            Case::Spawn => "Start a static child with our stdio and wait for it.",
            Case::SpawnOptions => "The same with options, from a small and a large parent.",
            Case::CaptureLines => "Capture 1000 lines that the child writes one by one.",
            Case::CaptureBlock => "Capture the same lines from a single write.",
            Case::Allocations => {
                "The allocations of a capture, including the command with two arguments."
            }
            Case::Stream => "Read 1 GiB from the child in blocks of 64 KiB and discard it.",
            Case::Collect => "Read 1 GiB from the child into memory.",
            Case::Pipeline => "A writer, three times `cat` and `wc -c`, joined by pipes.",
            Case::TextLines => "Read 1 GiB of 80-byte lines, as one string after the other.",
            Case::WatchedLine => {
                "The time from before the write of a line until the reader has it as a string; the \
                 child pauses for 2 ms before each."
            }
            Case::SpawnAsync => "Start a static child from a task and wait for it.",
            Case::Many => "Capture the output of many children, some or all of which run at once.",
            Case::Size => "Two programs that start a process and differ in one `use` line.",
            Case::Cli => "The tool's `run` against coreutils' `timeout` and a plain start.",
        }
    }
}

/// Returns the tables of a case.
pub(crate) fn tables(case: Case, tools: &Tools, cli: Option<&Path>) -> Result<Vec<Table>> {
    let lines = |mode: &str, amount: u64| {
        vec![tools.program("lines").into(), mode.into(), amount.to_string().into()]
    };
    let basic = |title: &str, operation, peers: &[&'static str], child: Vec<OsString>| Table {
        case: case.name(),
        title: title.to_owned(),
        operation,
        count: 1000,
        warm_up: 20,
        expected_bytes: 0,
        heap_mib: 0,
        rows: peers.iter().map(|peer| row(peer, child.clone())).collect(),
        baselines: &["std"],
        show: Show::Time,
        extras: &[],
    };
    let text = |mode: &str, amount: u64| {
        vec![tools.program("text").into(), mode.into(), amount.to_string().into()]
    };
    let flood = |operation, peers, child| Table {
        count: 2,
        warm_up: 0,
        expected_bytes: GIB,
        show: Show::Speed,
        ..basic("1 GiB", operation, peers, child)
    };
    let capture = |title, mode| Table {
        count: 300,
        expected_bytes: LINES * LINE_BYTES,
        baselines: &["std", "tokio_ct"],
        ..basic(title, "capture", CAPTURE_PEERS, lines(mode, LINES))
    };
    Ok(match case {
        // Both cells take long enough to measure the foreign load.
        Case::Spawn => [("exit0", 1000), ("exit0-nolibc", 2000)]
            .map(|(child, count)| Table {
                count,
                baselines: &["std", "c_vfork"],
                ..basic(child, "status", SPAWN_PEERS, vec![tools.program(child).into()])
            })
            .into(),
        Case::SpawnOptions => {
            let child = || vec![tools.program("exit0").into()];
            let small = basic("small parent", "status", OPTION_PEERS, child());
            let mut large = basic("parent with 2 GiB of heap", "status", OPTION_PEERS, child());
            large.heap_mib = LARGE_HEAP_MIB;
            large.warm_up = 3;
            for row in large.rows.iter_mut().filter(|row| FORKING_PEERS.contains(&row.peer)) {
                row.count = Some(30);
            }
            vec![small, large]
        }
        Case::CaptureLines => {
            let mut table = capture("a write for each line", "each");
            let floor = Row { label: FLOOR, ..row("c_posix_spawn", lines("each", LINES)) };
            table.rows.push(floor);
            vec![table]
        }
        Case::CaptureBlock => vec![Table { count: 500, ..capture("one write", "block") }],
        Case::Allocations => {
            let mut table = capture("one write", "block");
            table.rows.retain(|row| row.runner == PeerProgram::Rust);
            for row in &mut table.rows {
                row.runner = PeerProgram::RustCounting;
            }
            table.show = Show::ExtrasOnly;
            table.extras = &["allocations", "allocated_bytes"];
            vec![table]
        }
        Case::Stream => {
            vec![Table { warm_up: 1, ..flood("stream", STREAM_PEERS, lines("flood", GIB)) }]
        }
        Case::Collect => {
            let flood = flood("collect", COLLECT_PEERS, lines("flood", GIB));
            // The warm-up gets memory that a virtual machine may otherwise have to request from its host first.
            vec![Table { warm_up: 1, extras: &["peak_rss_bytes"], ..flood }]
        }
        Case::Pipeline => {
            let large = flood("pipe", &[], lines("flood", GIB));
            let one_line = basic("one line", "pipe", &[], lines("block", 1));
            let one_line = Table { count: 200, expected_bytes: LINE_BYTES, ..one_line };
            let (cat, wc) = (find("cat")?, find("wc")?);
            let rows = |mut child: Vec<OsString>| {
                for _ in 0..3 {
                    child.extend(["|".into(), cat.clone().into()]);
                }
                child.extend(["|".into(), wc.clone().into(), "-c".into()]);
                let row = |peer| row(peer, child.clone());
                vec![
                    Row { label: "sh", ..row("std") },
                    row("duct"),
                    row("subprocess"),
                    row("pipewright"),
                ]
            };
            vec![
                Table { rows: rows(lines("flood", GIB)), baselines: &["sh"], ..large },
                Table { rows: rows(lines("block", 1)), baselines: &["sh"], ..one_line },
            ]
        }
        Case::TextLines => vec![Table {
            expected_bytes: GIB - GIB % TEXT_LINE_BYTES,
            ..flood("text_lines", TEXT_PEERS, text("flood", GIB))
        }],
        Case::WatchedLine => vec![Table {
            warm_up: 20,
            ..basic("one line at a time", "watched_line", TEXT_PEERS, text("stamps", STAMP_PAUSE))
        }],
        Case::SpawnAsync => [("exit0", 1000), ("exit0-nolibc", 2000)]
            .map(|(child, count)| Table {
                count,
                baselines: &["tokio_ct"],
                ..basic(child, "status", ASYNC_PEERS, vec![tools.program(child).into()])
            })
            .into(),
        Case::Many => {
            let many = |title, operation, child, bytes| Table {
                count: 1,
                warm_up: 0,
                expected_bytes: bytes,
                extras: &["threads", "peak_rss_bytes"],
                ..basic(title, operation, MANY_PEERS, child)
            };
            let all_lines = 1000 * LINES * LINE_BYTES;
            vec![
                many(
                    "1000, 64 at once, 1000 lines each",
                    "many:1000:64",
                    lines("each", LINES),
                    all_lines,
                ),
                many(
                    "1000 at once, 1000 lines each",
                    "many:1000:1000",
                    lines("each", LINES),
                    all_lines,
                ),
                many(
                    "300 at once, 0.2 s each",
                    "many:300:300",
                    lines("pause", PAUSE),
                    300 * 2 * LINE_BYTES,
                ),
            ]
        }
        Case::Cli => {
            let mut table = basic("run of a program that does nothing", "status", &[], Vec::new());
            table.count = 300;
            table.rows = cli_rows(tools, cli)?;
            table.baselines = &["timeout"];
            table.extras = &["child_peak_rss_bytes"];
            vec![table]
        }
        // Runs no peers.
        Case::Size => Vec::new(),
    })
}

/// The label of the lower bound: it reads after the child's exit, and no capture can wake its reader less often.
const FLOOR: &str = "(floor: C, reads after the end)";

fn row(peer: &'static str, child: Vec<OsString>) -> Row {
    let runner = match peer {
        "c_vfork" | "c_epoll" | "c_posix_spawn" => PeerProgram::C,
        "python" => PeerProgram::Python,
        _ => PeerProgram::Rust,
    };
    Row { label: peer, runner, peer, child, count: None }
}

/// Returns the rows of the case `cli`: the compared programs are children of the peer that adds the least.
fn cli_rows(tools: &Tools, cli: Option<&Path>) -> Result<Vec<Row>> {
    let nothing = find("true")?;
    let tool: PathBuf = match cli {
        Some(given) => std::path::absolute(given)?,
        None => tools.workspace.join("../target/release/pipewright"),
    };
    if !tool.is_file() {
        return Err("the tool is missing: build it with `cargo build --release` in the directory \
                    above, or give its path with --cli"
            .into());
    }
    let once = Command::new(&tool).args(["run", "--"]).arg(&nothing).output()?;
    if !once.status.success() {
        let stderr = String::from_utf8_lossy(&once.stderr).trim().to_owned();
        return Err(format!("`pipewright run -- true` fails: {}: {stderr}", once.status).into());
    }
    let timeout = find("timeout")?;
    let row =
        |label, child| Row { label, runner: PeerProgram::C, peer: "c_vfork", child, count: None };
    let nothing = nothing.into_os_string();
    Ok(vec![
        row("true", vec![nothing.clone()]),
        row("timeout", vec![timeout.into(), "10".into(), nothing.clone()]),
        row("pipewright", vec![tool.into(), "run".into(), "--".into(), nothing]),
    ])
}

const SPAWN_PEERS: &[&str] = &[
    "std",
    "c_vfork",
    "c_posix_spawn",
    "tokio_ct",
    "duct",
    "subprocess",
    "processkit",
    "python",
    "pipewright",
];
const OPTION_PEERS: &[&str] = &[
    "std",
    "std_pre_exec",
    "subprocess",
    "pipewright",
    "pipewright_options_same_thread",
    "pipewright_options",
];
/// Peers that fork: with a large parent, a fork takes tens of milliseconds.
const FORKING_PEERS: &[&str] = &["std_pre_exec", "subprocess"];
const CAPTURE_PEERS: &[&str] = &[
    "std",
    "tokio_ct",
    "duct",
    "subprocess",
    "processkit",
    "python",
    "pipewright",
    "pipewright_async",
];
const ASYNC_PEERS: &[&str] =
    &["tokio_ct", "processkit", "c_epoll", "pipewright_async", "pipewright"];
const MANY_PEERS: &[&str] = &["std", "tokio_ct", "tokio_mt", "pipewright", "pipewright_async"];
const STREAM_PEERS: &[&str] =
    &["std", "c_posix_spawn", "tokio_ct", "duct", "subprocess", "pipewright"];
const TEXT_PEERS: &[&str] = &["std", "tokio_ct", "pipewright"];
const COLLECT_PEERS: &[&str] = &[
    "std",
    "c_posix_spawn",
    "tokio_ct",
    "duct",
    "subprocess",
    "processkit",
    "python",
    "pipewright",
];
