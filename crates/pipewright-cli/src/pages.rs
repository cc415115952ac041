//! Completion scripts and manual pages, made from what can be typed.

use clap::CommandFactory as _;

use crate::Failure;
use crate::args::Args;
use crate::print::print;

/// Prints a completion script.
pub(crate) fn completions(shell: clap_complete::Shell) -> Result<i32, Failure> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Args::command(), "pipewright", &mut script);
    print(script)?;
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
    let mut page = Vec::new();
    clap_mangen::Man::new(command).render(&mut page).map_err(Failure::cannot("make the page"))?;
    print(page)?;
    Ok(crate::exit_code::SUCCESS)
}
