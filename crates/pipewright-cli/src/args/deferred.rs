//! Options of a command that are laid out when that command is typed, and not before.
//!
//! `pipewright run` stands in front of other programs: it does not pay for what `bench` can be told.

use clap::error::Error;
use clap::{ArgMatches, Args, Command, FromArgMatches};

/// Options that are not looked at until they are needed. They stand behind a pointer, since one
/// command has many and another one none.
#[derive(Debug)]
pub(crate) struct Deferred<T>(pub(crate) Box<T>);

impl<T: Args> Args for Deferred<T> {
    fn augment_args(command: Command) -> Command {
        command.defer(T::augment_args)
    }

    fn augment_args_for_update(command: Command) -> Command {
        command.defer(T::augment_args_for_update)
    }
}

impl<T: FromArgMatches> FromArgMatches for Deferred<T> {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, Error> {
        T::from_arg_matches(matches).map(Box::new).map(Deferred)
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), Error> {
        self.0.update_from_arg_matches(matches)
    }
}
