//! Completion scripts and manual pages, made from the definition of the command line.

mod completions;
mod man;
mod roff;

use clap::CommandFactory as _;

use crate::Failure;
use crate::args::Args;
use crate::print::print;

/// Prints a completion script.
pub(crate) fn completions(shell: clap_complete::Shell) -> Result<i32, Failure> {
    print(completions::script(shell)?)?;
    Ok(crate::exit_code::SUCCESS)
}

/// Prints a manual page.
pub(crate) fn man(names: &[String]) -> Result<i32, Failure> {
    let mut command = Args::command();
    command.build();
    for name in names {
        let found = command.find_subcommand(name);
        let found = found
            .ok_or_else(|| Failure(format!("unknown command \"{name}\": see pipewright --help")))?;
        command = found.clone();
    }
    print(man::page(&mut command))?;
    Ok(crate::exit_code::SUCCESS)
}
