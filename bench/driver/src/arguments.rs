//! The command line.

use std::path::PathBuf;

use crate::Result;
use crate::cases::Case;

const USAGE: &str =
    "usage: cargo run --release -p driver -- [CASE...] [--rounds N] [--count N] [--cli FILE]

  CASE         one of the cases below; all of them where none is given
  machine      alone: print the description of this machine, and nothing else
  --rounds N   how often every peer is run, one after the other; 7 where it is not given
  --count N    how many operations a cell measures, instead of the case's own number
  --cli FILE   the tool for the case `cli`; ../target/release/pipewright where it is not given

cases:";

const USUAL_ROUNDS: usize = 7;

/// What is to be run.
pub(crate) struct Arguments {
    pub(crate) cases: Vec<Case>,
    pub(crate) rounds: usize,
    pub(crate) count: Option<usize>,
    pub(crate) cli: Option<PathBuf>,
}

impl Arguments {
    pub(crate) fn parse(mut given: impl Iterator<Item = String>) -> Result<Arguments> {
        let mut parsed =
            Arguments { cases: Vec::new(), rounds: USUAL_ROUNDS, count: None, cli: None };
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
        0 => Err("it must be at least 1".into()),
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
