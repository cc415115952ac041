//! The command line.

use std::path::PathBuf;

use crate::Result;
use crate::cases::Case;

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
