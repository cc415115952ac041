//! One cell: a fresh process of one peer, and what it says.

use std::collections::BTreeMap;
use std::process::{Command, Stdio};

use crate::Result;
use crate::cases::{Row, Runner, Table};
use crate::load::Mark;
use crate::prepare::Tools;
use crate::statistics;

/// What one run of a peer gave.
pub(crate) struct Cell {
    /// Nanoseconds per operation.
    pub(crate) median: f64,
    pub(crate) tenth: f64,
    /// What the peer says besides, by name.
    pub(crate) extras: BTreeMap<String, f64>,
    pub(crate) notes: Vec<String>,
    /// How many processors others used meanwhile.
    pub(crate) foreign_cores: f64,
}

/// Runs a peer once.
pub(crate) fn run(table: &Table, row: &Row, tools: &Tools) -> Result<Cell> {
    let mark = Mark::now()?;
    let output = command(table, row, tools)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::inherit())
        .output()
        .map_err(|error| format!("{}: {error}", row.label))?;
    let foreign_cores = mark.foreign_cores()?;
    if !output.status.success() {
        return Err(format!("{} failed: {}", row.label, output.status).into());
    }
    let said = String::from_utf8(output.stdout)?;
    let mut samples = Vec::new();
    let mut extras = BTreeMap::new();
    let mut notes = Vec::new();
    for line in said.lines() {
        match line.split_once('=') {
            Some(("note", note)) => notes.push(note.to_owned()),
            Some((name, value)) => {
                extras.insert(name.to_owned(), value.parse()?);
            }
            None => samples.push(line.parse()?),
        }
    }
    if samples.len() != table.count_of(row) {
        return Err(format!("{} gave {} samples", row.label, samples.len()).into());
    }
    Ok(Cell {
        median: statistics::median(&samples),
        tenth: statistics::quantile(&samples, 0.1),
        extras,
        notes,
        foreign_cores,
    })
}

fn command(table: &Table, row: &Row, tools: &Tools) -> Command {
    let mut command = match row.runner {
        Runner::Rust => Command::new(tools.binaries.join("peers")),
        Runner::RustCounting => Command::new(tools.binaries.join("peers-counting")),
        Runner::C => Command::new(tools.program("peer")),
        Runner::Python => {
            let mut python = Command::new("python3");
            python.arg(tools.workspace.join("python").join("peer.py"));
            python
        }
    };
    command.args([row.peer, table.operation]);
    command.args([table.count_of(row).to_string(), table.warm_up.to_string()]);
    command.arg(table.expected_bytes.to_string());
    command.args(&row.child);
    // The same for the others, so that all children get an environment of the same size.
    command.env("BENCH_HEAP_MIB", table.heap_mib.to_string());
    command
}
