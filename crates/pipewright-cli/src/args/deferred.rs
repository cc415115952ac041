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
        command.defer(lay_out::<T>)
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

/// With the words that the list of commands has for it: those of the options are for who reads the code.
fn lay_out<T: Args>(command: Command) -> Command {
    let about = command.get_about().cloned().unwrap_or_default();
    T::augment_args(command).about(about)
}

impl<T: FromArgMatches> FromArgMatches for Deferred<T> {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, Error> {
        T::from_arg_matches(matches).map(Box::new).map(Deferred)
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), Error> {
        self.0.update_from_arg_matches(matches)
    }
}
