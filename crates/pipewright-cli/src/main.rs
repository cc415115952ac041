//! The command line of pipewright.
//!
//! A failure of pipewright itself is one line on stderr and exit code 125; [`exit_code`] has the others.

#![forbid(unsafe_code)]

mod args;
mod batch;
mod bench;
mod disk;
mod exit_code;
mod inspect;
mod jobs;
mod lock;
mod pages;
mod pipe;
mod print;
mod run;
mod stuck;
mod timeout;
mod worker;

use std::fmt::Display;
use std::time::{Duration, Instant};

use clap::error::ErrorKind;
use pipewright_os::base::error::OneLine;
use pipewright_os::base::{stdio, this_process, wait};
use pipewright_os::process::first;

use args::ToolCommand;
use exit_code::OWN_FAILURE;

fn main() {
    // `ExitCode` has eight bits, but an exit code on Windows has 32.
    let code = run();
    stuck::wait_if_ending();
    std::process::exit(code);
}

/// Runs the command that the arguments name, and returns the exit code.
fn run() -> i32 {
    // A command whose library is missing, or that crashes, would wait for somebody to click.
    this_process::disable_dialogs();
    if let Err(error) = first::split_first_process() {
        return Failure::cannot("start beside the first process")(error).report();
    }
    if let Some(code) = bench::run_if_child() {
        return code;
    }
    if let Err(error) = stdio::keep_closed() {
        return Failure::cannot("open the null device")(error).report();
    }
    let args = match args::parse() {
        Ok(args) => args,
        Err(error) => return report_usage(&error),
    };
    print::report_large_files_as_errors();
    let result = match args.command {
        ToolCommand::Run(options) => run::run(*options.0),
        ToolCommand::Pipe(options) => pipe::run(&options.0),
        ToolCommand::Timeout(options) => timeout::run(&options.0),
        ToolCommand::Batch(options) => batch::run(*options.0),
        ToolCommand::Lock(options) => lock::run(*options.0),
        ToolCommand::Worker(options) => worker::run(*options.0),
        ToolCommand::Jobs(options) => jobs::run(&options.0),
        ToolCommand::Bench(options) => bench::run(&options.0),
        ToolCommand::Disk(options) => disk::run(&options.0),
        ToolCommand::Handles(options) => inspect::handles(&options),
        ToolCommand::Doctor(options) => inspect::doctor(&options),
        ToolCommand::Completions { shell } => pages::completions(shell),
        ToolCommand::Man { command } => pages::man(&command),
    };
    result.unwrap_or_else(Failure::report)
}

/// A failure of pipewright itself, as the message to print.
struct Failure(String);

impl Failure {
    /// Prints the message, and returns the exit code.
    fn report(self) -> i32 {
        print_error(&self.0);
        OWN_FAILURE
    }

    /// Makes the message of an error that names the operation itself.
    fn from_error(error: impl Display) -> Failure {
        Failure(error.to_string())
    }

    /// Makes the message "cannot {doing}: {error}". The error alone does not name the operation.
    fn cannot<E: Display>(action: &str) -> impl FnOnce(E) -> Failure {
        move |error| Failure(format!("cannot {action}: {error}"))
    }
}

/// Waits for that long.
pub(crate) fn sleep(time: Duration) {
    // Ignored: a wait without a source cannot fail.
    let _ = wait::any(&mut [], Some(Instant::now() + time));
}

/// Prints one line on stderr. Ignores a stderr that is closed.
fn print_error(message: &str) {
    use std::io::Write as _;
    let message = print::without_controls(message);
    let _ = writeln!(std::io::stderr().lock(), "{}: {message}", args::own_name());
}

/// Prints help and the version; reports any other result of the parser as wrong usage, on one line.
fn report_usage(error: &clap::Error) -> i32 {
    match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => {
            let printed = print::check(stdio::fail_if_closed(1).and_then(|()| error.print()));
            printed.map_or_else(Failure::report, |()| exit_code::SUCCESS)
        }
        // Who types the name alone asks for help; a script that does so has forgotten the command.
        ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
            // Ignored: stderr may be closed, and the code says that nothing has run.
            let _ = error.print();
            OWN_FAILURE
        }
        _ => {
            let other = args::other_word(error);
            let mut message = other.unwrap_or_else(|| usage_error(&error.to_string()));
            if error.kind() == ErrorKind::UnknownArgument && args::begin_with_option() {
                message.push_str(
                    "; options follow a command, as in pipewright run --timeout 5s -- CMD",
                );
            }
            print_error(&message);
            OWN_FAILURE
        }
    }
}

/// Puts a parser's error on one line: the error itself, up to the first empty line, and its tips.
fn usage_error(text: &str) -> String {
    let lines = || text.lines().map(str::trim);
    let error: Vec<&str> = lines().take_while(|line| !line.is_empty()).collect();
    // Words of the user may be long.
    let error = OneLine(&error.join(" ")).to_string();
    let mut parts = vec![error.strip_prefix("error: ").unwrap_or(&error)];
    parts.extend(lines().filter_map(|line| line.strip_prefix("tip: ")));
    let is_plain = parts.len() == 1 && !parts[0].contains(['[', ':']);
    parts.extend(is_plain.then_some("try --help"));
    parts.join("; ")
}
