//! Interleaved rounds: every peer once in order, and again, so that what the machine does to one it does
//! to all.

use std::path::{Path, PathBuf};

use pipewright::Command;

use crate::Result;
use crate::case::{self, Case, Row};

/// Measures the cases that are named, or all, and prints them as tables.
pub(crate) fn measure(arguments: &[String]) -> Result<()> {
    let mut rounds = 7;
    let mut names = Vec::new();
    let mut quick = false;
    let mut rest = arguments.iter();
    while let Some(argument) = rest.next() {
        match argument.as_str() {
            "--rounds" => rounds = rest.next().ok_or("--rounds N")?.parse()?,
            "--quick" => quick = true,
            name => names.push(name),
        }
    }
    let cases = case::all(quick);
    if let Some(name) = names.iter().find(|name| cases.iter().all(|case| case.name != **name)) {
        let known: Vec<&str> = cases.iter().map(|case| case.name).collect();
        return Err(format!("no case is called {name}: {}", known.join(", ")).into());
    }
    let floor = build()?;
    for case in cases.iter().filter(|case| names.is_empty() || names.contains(&case.name)) {
        table(case, &floor, rounds)?;
    }
    Ok(())
}

/// The program in C.
fn build() -> Result<PathBuf> {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let program = std::env::current_exe()?.with_file_name("ipc-floor");
    let mut command = Command::new("cc");
    command.args(["-O2", "-march=native", "-o"]).arg(&program).arg(here.join("../c/ipc.c"));
    command.run()?;
    Ok(program)
}

fn cell(row: &Row, floor: &Path) -> Result<f64> {
    let mut arguments = row.arguments.split(' ');
    let mut command = match arguments.clone().next() {
        Some("cell" | "pool" | "peer") => Command::new(std::env::current_exe()?),
        Some("python") => {
            arguments.next();
            let mut command = Command::new("python3");
            command.arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("../python/messages.py"));
            command
        }
        _ => Command::new(floor),
    };
    Ok(command.args(arguments).read()?.parse()?)
}

fn table(case: &Case, floor: &Path, rounds: usize) -> Result<()> {
    let mut measured: Vec<Vec<f64>> = case.rows.iter().map(|_| Vec::new()).collect();
    for _ in 0..rounds {
        for (row, cells) in case.rows.iter().zip(&mut measured) {
            cells.push(cell(row, floor)?);
        }
    }
    println!("\n### {}: {}\n", case.name, case.what);
    // The first of those that move bytes is a ring in C: a memcpy on each processor, which is all that memory gives.
    println!(
        "| peer | µs (min..max) | GB/s (of the first's) | times the time of the first (min..max) |"
    );
    println!("|---|---|---|---|");
    let first = measured.first().cloned().unwrap_or_default();
    for (row, cells) in case.rows.iter().zip(&measured) {
        let ratios: Vec<f64> = cells.iter().zip(&first).map(|(cell, first)| cell / first).collect();
        let [median, least, most] = spread(cells);
        let [ratio, low, high] = spread(&ratios);
        let rate = case.bytes.map_or(String::new(), |bytes| {
            format!("{:.1} ({:.0} %)", bytes as f64 / median, 100.0 / ratio)
        });
        println!(
            "| {} | {:.3} ({:.3}..{:.3}) | {rate} | {ratio:.2} ({low:.2}..{high:.2}) |",
            row.label,
            median / 1000.0,
            least / 1000.0,
            most / 1000.0,
        );
    }
    Ok(())
}

/// Median, least and most.
fn spread(values: &[f64]) -> [f64; 3] {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let at = |place: usize| sorted.get(place).copied().unwrap_or(f64::NAN);
    [at(sorted.len() / 2), at(0), at(sorted.len().saturating_sub(1))]
}
