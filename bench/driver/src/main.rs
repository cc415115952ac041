//! Runs the benchmark cases in interleaved rounds and prints a report in Markdown.

mod arguments;
mod case_peers;
mod cases;
mod cell;
mod machine;
mod prepare;
mod report;
mod rounds;
mod size;

use std::error::Error;
use std::process::ExitCode;

use arguments::Arguments;
use cases::Case;
use prepare::Tools;

type Result<T> = std::result::Result<T, Box<dyn Error>>;

fn main() -> ExitCode {
    match run() {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::from(2)
        }
    }
}

/// Prints the report. Returns false if a case could not be measured.
fn run() -> Result<bool> {
    if std::env::args().nth(1).as_deref() == Some("machine") {
        println!("{}", pipewright_bench::host::look().line());
        return Ok(true);
    }
    let arguments = Arguments::parse(std::env::args().skip(1))?;
    if cfg!(debug_assertions) {
        return Err("only release builds are measured: use cargo run --release".into());
    }
    let tools = Tools::prepare()?;
    let mut sections = Vec::new();
    let mut complete = true;
    for &case in &arguments.cases {
        // A failed case does not discard the results of the others.
        match section(case, &tools, &arguments) {
            Ok(section) => sections.push(section),
            Err(error) => {
                complete = false;
                eprintln!("{}: {error}", case.name());
                sections.push(format!("## {}\n\nNot measured: {error}\n", case.name()));
            }
        }
    }
    println!("# Benchmarks\n\n{}", machine::description(&tools));
    for section in sections {
        println!("\n{section}");
    }
    Ok(complete)
}

/// Measures a case and returns its section of the report.
fn section(case: Case, tools: &Tools, arguments: &Arguments) -> Result<String> {
    let mut section = format!("## {}\n\n{}\n", case.name(), case.explanation());
    if case == Case::Size {
        section += &size::table(tools)?;
        return Ok(section);
    }
    for mut table in cases::tables(case, tools, arguments.cli.as_deref())? {
        if let Some(count) = arguments.count {
            table.count = count;
            table.rows.iter_mut().for_each(|row| row.count = None);
        }
        let measured = rounds::measure(&table, tools, arguments.rounds)?;
        section += &report::table(&table, &measured);
    }
    Ok(section)
}
