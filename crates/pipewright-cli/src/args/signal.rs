//! Signals as people write them, and as shells complete them.

use std::ffi::OsStr;

use clap::builder::{PossibleValue, TypedValueParser};
use clap::{Arg, Command, Error};
use pipewright::Signal;

/// The largest number that can have a name.
const LAST_NAMED: i32 = 64;

/// A parser that takes names, with or without `SIG`, and numbers. It lists the names for completion.
#[derive(Debug, Clone)]
pub(super) struct Parser;

impl TypedValueParser for Parser {
    type Value = Signal;

    fn parse_ref(
        &self,
        command: &Command,
        arg: Option<&Arg>,
        value: &OsStr,
    ) -> Result<Signal, Error> {
        let parse = |text: &str| {
            text.parse::<Signal>().map_err(|error| format!("{error}: write TERM, INT, HUP or 15"))
        };
        TypedValueParser::parse_ref(&parse, command, arg, value)
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue>>> {
        let names = (1..=LAST_NAMED).filter_map(|number| Signal::from_number(number)?.name());
        Some(Box::new(names.map(|name| PossibleValue::new(name.trim_start_matches("SIG")))))
    }
}

#[cfg(test)]
mod tests {
    use clap::builder::TypedValueParser as _;

    use super::{Parser, Signal};

    #[test]
    fn every_name_that_is_offered_parses() {
        let names: Vec<_> = Parser.possible_values().unwrap().collect();
        for name in &names {
            assert!(name.get_name().parse::<Signal>().is_ok(), "{name:?}");
        }
        for usual in ["TERM", "INT", "HUP", "KILL"] {
            assert!(names.iter().any(|name| name.get_name() == usual), "{usual}");
        }
    }
}
