//! Completion scripts and manual pages, made from the definition of the command line.

mod man;

use clap::builder::PossibleValuesParser;
use clap::{Command, CommandFactory as _};
use clap_complete::Shell;

use crate::Failure;
use crate::args::Args;
use crate::print::print;

/// Prints a completion script.
pub(crate) fn completions(shell: clap_complete::Shell) -> Result<i32, Failure> {
    print(completion_script(shell)?)?;
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

/// Returns the script of clap, and below it the completion of the command after the options: clap does not know how a
/// shell completes another program's command line, and each shell has a way of its own, in the scripts beside this
/// file.
fn completion_script(shell: Shell) -> Result<String, Failure> {
    let mut command = offered(&Args::command());
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

/// Returns the definition that a script is made of: without hidden commands, and with the names that `man` takes.
fn offered(command: &Command) -> Command {
    let shown: Vec<&Command> =
        command.get_subcommands().filter(|command| !command.is_hide_set()).collect();
    // The definition takes static words only, and a process makes one script.
    let name_of = |command: &&Command| -> &'static str { command.get_name().to_owned().leak() };
    let names: Vec<&'static str> = shown.iter().map(name_of).collect();
    let subcommands = shown.into_iter().cloned().map(|command| match command.get_name() {
        "man" => {
            command.mut_arg("command", |word| word.value_parser(PossibleValuesParser::new(&names)))
        }
        _ => command,
    });
    let offered = Command::new("pipewright").version(env!("CARGO_PKG_VERSION"));
    offered.args(command.get_arguments()).subcommands(subcommands)
}

/// Returns the options of `run` and `pipe` whose value is the next word.
fn options_with_value(command: &Command) -> Vec<String> {
    let commands = ["run", "pipe"].iter().filter_map(|name| command.find_subcommand(name));
    let options = commands.flat_map(Command::get_opts);
    let names = options.flat_map(|option| {
        let long = option.get_long_and_visible_aliases().into_iter().flatten();
        let long = long.chain(option.get_all_aliases().into_iter().flatten());
        let short = option.get_short().map(|letter| format!("-{letter}"));
        long.map(|name| format!("--{name}")).chain(short)
    });
    let mut names: Vec<String> = names.collect();
    names.sort_unstable();
    names.dedup();
    names
}
