//! Runs the benchmark cases in interleaved rounds and prints a report in Markdown.

mod cases;
mod prepare;
mod report;
mod rounds;

use std::error::Error;
use std::path::PathBuf;
use std::process::ExitCode;

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
    println!("# Benchmarks\n\n{}", report::description(&tools));
    for section in sections {
        println!("\n{section}");
    }
    Ok(complete)
}

/// Measures a case and returns its section of the report.
fn section(case: Case, tools: &Tools, arguments: &Arguments) -> Result<String> {
    let mut section = format!("## {}\n\n{}\n", case.name(), case.explanation());
    if case == Case::Size {
        section += &report::sizes(tools)?;
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

const USAGE: &str =
    "usage: cargo run --release -p driver -- [CASE...] [--rounds N] [--count N] [--cli FILE]

  CASE         one of the cases below (default: all)
  machine      print only the description of this machine; takes no other argument
  --rounds N   number of interleaved rounds (default: 7)
  --count N    operations in a cell (default: the case's own number)
  --cli FILE   the tool for the case `cli` (default: ../target/release/pipewright)

cases:";

const DEFAULT_ROUNDS: usize = 7;

/// The cases to run, and their options.
pub(crate) struct Arguments {
    pub(crate) cases: Vec<Case>,
    pub(crate) rounds: usize,
    pub(crate) count: Option<usize>,
    pub(crate) cli: Option<PathBuf>,
}

impl Arguments {
    pub(crate) fn parse(mut given: impl Iterator<Item = String>) -> Result<Arguments> {
        let mut parsed =
            Arguments { cases: Vec::new(), rounds: DEFAULT_ROUNDS, count: None, cli: None };
        while let Some(argument) = given.next() {
            let mut value = || given.next().ok_or_else(|| format!("{argument} needs a value"));
            match argument.as_str() {
                "--rounds" => parsed.rounds = at_least_one(&value()?)?,
                "--count" => parsed.count = Some(at_least_one(&value()?)?),
                "--cli" => parsed.cli = Some(value()?.into()),
                name => parsed.cases.push(Case::named(name).ok_or_else(usage)?),
            }
        }
        if parsed.cases.is_empty() {
            parsed.cases = Case::ALL.to_vec();
        }
        Ok(parsed)
    }
}

fn at_least_one(text: &str) -> Result<usize> {
    match text.parse()? {
        0 => Err("the number must be at least 1".into()),
        number => Ok(number),
    }
}

fn usage() -> String {
    let mut usage = USAGE.to_owned();
    for case in Case::ALL {
        usage += &format!("\n  {:<14} {}", case.name(), case.explanation());
    }
    usage
}
