//! The tables: interleaved rounds of every peer.

use std::path::{Path, PathBuf};

use pipewright::Command;
use pipewright_bench::interleaved;
use pipewright_bench::stats::{Summary, ratios};

use crate::Result;
use crate::case::{self, Case, Row};
use crate::client;

/// Measures the named cases, or all, and prints them as tables.
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
        return Err(format!("unknown case {name}; the cases are {}", known.join(", ")).into());
    }
    let floor = build()?;
    client::build()?;
    for case in cases.iter().filter(|case| names.is_empty() || names.contains(&case.name)) {
        table(case, &floor, rounds)?;
    }
    Ok(())
}

/// Compiles the program in C and returns its path.
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
        Some("cell" | "client" | "pool" | "peer") => Command::new(std::env::current_exe()?),
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
    let measured = interleaved(rounds, &case.rows, |_, row| cell(row, floor))?;
    let of_row = |row: usize| measured.iter().map(|round| round[row]).collect::<Vec<f64>>();
    println!("\n### {}: {}\n", case.name, case.description);
    // In tables with a rate the first row is a ring in C: a memcpy on each processor, the limit of the memory's speed.
    println!(
        "| peer | µs (min..max) | GB/s (share of the first row) | time ÷ first row (min..max) |"
    );
    println!("|---|---|---|---|");
    for (index, row) in case.rows.iter().enumerate() {
        let cells = of_row(index);
        let Summary { median, least, most, .. } = summary(&cells)?;
        let Summary { median: ratio, least: low, most: high, .. } =
            summary(&ratios(&cells, &of_row(0)))?;
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

fn summary(figures: &[f64]) -> Result<Summary> {
    Ok(Summary::of(figures).ok_or("nothing was measured")?)
}
