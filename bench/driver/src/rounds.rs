//! The rounds of a table: one cell for each of its rows.

use pipewright_bench::interleaved;

use crate::Result;
use crate::cases::Table;
use crate::cell::{self, Figures};
use crate::prepare::Tools;

/// A cell is measured again if other processes used more than this many processors.
pub(crate) const QUIET_CORES: f64 = 0.12;

/// A round: one cell for each row of the table.
pub(crate) type Round = Vec<Figures>;

/// Measures all rounds of a table, and prints each cell to stderr.
pub(crate) fn measure(table: &Table, tools: &Tools, rounds: usize) -> Result<Vec<Round>> {
    interleaved(rounds, &table.rows, |round, row| {
        let mut cell = cell::run(table, row, tools)?;
        let mut again = "";
        if cell.foreign_cores > QUIET_CORES {
            let second = cell::run(table, row, tools)?;
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
