//! Completion scripts: those of clap, and below them the completion of the command after the options.
//!
//! clap does not know how a shell completes another program's command line. Each shell has a way, which the scripts
//! beside this file use.

use clap::{Command, CommandFactory as _};
use clap_complete::Shell;

use crate::Failure;
use crate::args::Args;

pub(super) fn script(shell: Shell) -> Result<String, Failure> {
    let mut command = Args::command();
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut command, "pipewright", &mut script);
    let script = String::from_utf8(script).map_err(Failure::cannot("make the script"))?;
    let options = options_with_value(&command);
    Ok(match shell {
        Shell::Bash => {
            script + &include_str!("completion.bash").replace("@OPTIONS@", &options.join(" | "))
        }
        Shell::Fish => {
            script + &include_str!("completion.fish").replace("@OPTIONS@", &options.join(" "))
        }
        Shell::Zsh => {
            let script = script.replace("_cmdambivalent", "_pipewright_command_words");
            // The last lines run the script, and so the function has to stand before them.
            let last = script.rfind("\nif [ \"$funcstack[1]\"").map_or(script.len(), |at| at + 1);
            let (functions, run) = script.split_at(last);
            [functions, include_str!("completion.zsh"), run].concat()
        }
        _ => script,
    })
}

/// Returns the options of `run` and `pipe` whose value is the next word.
fn options_with_value(command: &Command) -> Vec<String> {
    let commands = ["run", "pipe"].iter().filter_map(|name| command.find_subcommand(name));
    let options = commands.flat_map(Command::get_opts);
    let names = options.flat_map(|option| {
        option
            .get_long_and_visible_aliases()
            .into_iter()
            .flatten()
            .chain(option.get_all_aliases().into_iter().flatten())
    });
    let mut names: Vec<String> = names.map(|name| format!("--{name}")).collect();
    names.sort_unstable();
    names.dedup();
    names
}
