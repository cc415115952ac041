//! The rounds of a table: one cell for each of its rows. A cell is a new process of one peer, and the samples that it
//! prints.

use std::collections::BTreeMap;
use std::process::{Command, Stdio};
use std::time::Instant;

use pipewright_bench::host::CpuUse;
use pipewright_bench::interleaved;
use pipewright_bench::stats::{median, quantile};

use crate::Result;
use crate::cases::{PeerProgram, Row, Table};
use crate::prepare::Tools;

/// A cell is measured again if other processes used more than this many processors.
const QUIET_CORES: f64 = 0.12;

/// A round: one cell for each row of the table.
pub(crate) type Round = Vec<Figures>;

/// Measures all rounds of a table, and prints each cell to stderr.
pub(crate) fn measure(table: &Table, tools: &Tools, rounds: usize) -> Result<Vec<Round>> {
    interleaved(rounds, &table.rows, |round, row| {
        let mut cell = run(table, row, tools)?;
        let mut again = "";
        if cell.foreign_cores > QUIET_CORES {
            let second = run(table, row, tools)?;
            again = ", after a busy try";
            if second.foreign_cores < cell.foreign_cores {
                cell = second;
            }
        }
        eprintln!(
            "{} ({}), round {}/{rounds}: {:<20} {:>12.1} µs, foreign load {:.2}{again}",
            table.case,
            table.title,
            round + 1,
            row.label,
            cell.median / 1000.0,
            cell.foreign_cores,
        );
        Ok(cell)
    })
}

/// Returns true if other processes were quiet during the whole round.
pub(crate) fn is_quiet(round: &Round) -> bool {
    round.iter().all(|cell| cell.foreign_cores <= QUIET_CORES)
}

/// The shortest cell whose foreign load is measured: the clock of CPU time ticks every 10 ms.
const LEAST_SECONDS: f64 = 0.2;

/// The figures of one run of a peer.
pub(crate) struct Figures {
    /// Nanoseconds per operation.
    pub(crate) median: f64,
    pub(crate) tenth: f64,
    /// Further figures that the peer prints, by name.
    pub(crate) extras: BTreeMap<String, f64>,
    pub(crate) notes: Vec<String>,
    /// The number of processors that other processes used.
    pub(crate) foreign_cores: f64,
}

/// Runs a peer once.
pub(crate) fn run(table: &Table, row: &Row, tools: &Tools) -> Result<Figures> {
    let (start, cpu_use) = (Instant::now(), CpuUse::start().ok_or("the CPU time is unknown")?);
    let output = command(table, row, tools)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::inherit())
        .output()
        .map_err(|error| format!("{}: {error}", row.label))?;
    let foreign_cores = if start.elapsed().as_secs_f64() < LEAST_SECONDS {
        0.0
    } else {
        cpu_use.others_processors().ok_or("the CPU time is unknown")?
    };
    if !output.status.success() {
        return Err(format!("{} failed: {}", row.label, output.status).into());
    }
    let stdout = String::from_utf8(output.stdout)?;
    let mut samples = Vec::new();
    let mut extras = BTreeMap::new();
    let mut notes = Vec::new();
    for line in stdout.lines() {
        match line.split_once('=') {
            Some(("note", note)) => notes.push(note.to_owned()),
            Some((name, value)) => {
                extras.insert(name.to_owned(), value.parse()?);
            }
            None => samples.push(line.parse()?),
        }
    }
    if samples.len() != table.count_of(row) {
        return Err(format!("{} printed {} samples", row.label, samples.len()).into());
    }
    Ok(Figures {
        median: median(&samples).ok_or("there are no samples")?,
        tenth: quantile(&samples, 0.1).ok_or("there are no samples")?,
        extras,
        notes,
        foreign_cores,
    })
}

fn command(table: &Table, row: &Row, tools: &Tools) -> Command {
    let mut command = match row.runner {
        PeerProgram::Rust => Command::new(tools.binaries.join("peers")),
        PeerProgram::RustCounting => Command::new(tools.binaries.join("peers-counting")),
        PeerProgram::C => Command::new(tools.program("peer")),
        PeerProgram::Python => {
            let mut python = Command::new("python3");
            python.arg(tools.workspace.join("python").join("peer.py"));
            python
        }
    };
    command.args([row.peer, table.operation]);
    command.args([table.count_of(row).to_string(), table.warm_up.to_string()]);
    command.arg(table.expected_bytes.to_string());
    command.args(&row.child);
    // Set for every runner, so that all children get an environment of the same size.
    command.env("BENCH_HEAP_MIB", table.heap_mib.to_string());
    command
}
