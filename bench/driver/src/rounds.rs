//! Interleaved rounds: every peer once in order, and again, so that what the machine does to one it
//! does to all.

use crate::Result;
use crate::cases::Table;
use crate::cell::{self, Cell};
use crate::prepare::Tools;

/// More foreign load than this, in processors, spoils a cell.
pub(crate) const QUIET_CORES: f64 = 0.12;

/// A round: one cell for each row of the table.
pub(crate) type Round = Vec<Cell>;

/// Runs all rounds of a table and tells about each cell as it ends.
pub(crate) fn measure(table: &Table, tools: &Tools, rounds: usize) -> Result<Vec<Round>> {
    let mut measured = Vec::with_capacity(rounds);
    for number in 1..=rounds {
        let mut round = Vec::with_capacity(table.rows.len());
        for row in &table.rows {
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
                "{} ({}), round {number}/{rounds}: {:<20} {:>12.1} µs, foreign load {:.2}{again}",
                table.case,
                table.title,
                row.label,
                cell.median / 1000.0,
                cell.foreign_cores,
            );
            round.push(cell);
        }
        measured.push(round);
    }
    Ok(measured)
}

/// Whether nobody else had much to do during the whole round.
pub(crate) fn is_quiet(round: &Round) -> bool {
    round.iter().all(|cell| cell.foreign_cores <= QUIET_CORES)
}
