//! The command line of pipewright.
//!
//! Whatever goes wrong with pipewright itself is one line on stderr and exit code 125; see
//! [`exit_code`] for the others.

#![forbid(unsafe_code)]

mod args;
mod bench;
mod disk;
mod doctor;
mod exit_code;
mod handles;
mod pages;
mod pipe;
mod run;

use std::io;

use clap::Parser as _;
use clap::error::ErrorKind;

use args::{Args, Command};
use exit_code::OWN_FAILURE;

fn main() {
    // Not an `ExitCode`, which has eight bits: a code of Windows has 32.
    std::process::exit(work());
}

/// Does what is asked for, and gives the exit code.
fn work() -> i32 {
    if let Some(code) = bench::play() {
        return code;
    }
    let args = match Args::try_parse() {
        Ok(args) => args,
        Err(error) => return refuse(&error),
    };
    let result = match args.command {
        Command::Run(options) => run::run(*options.0),
        Command::Pipe(options) => pipe::run(&options.0),
        Command::Bench(options) => bench::run(&options.0),
        Command::Disk(options) => disk::run(&options.0),
        Command::Handles(options) => handles::run(&options),
        Command::Doctor(options) => doctor::run(&options),
        Command::Completions { shell } => pages::completions(shell),
        Command::Man { command } => pages::man(&command),
    };
    match result {
        Ok(code) => code,
        Err(Failure(message)) => {
            complain(&message);
            OWN_FAILURE
        }
    }
}

/// Something that pipewright itself could not do, in the words to print.
struct Failure(String);

impl<E: std::error::Error> From<E> for Failure {
    fn from(error: E) -> Failure {
        Failure(error.to_string())
    }
}

/// Prints one line on stderr. A stderr that is gone is no reason to fail.
fn complain(message: &str) {
    use std::io::Write as _;
    let _ = writeln!(std::io::stderr().lock(), "pipewright: {message}");
}

/// Help and version are what was asked for; anything else is a misuse, said in one line.
fn refuse(error: &clap::Error) -> i32 {
    match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => match error.print() {
            Ok(()) => return exit_code::SUCCESS,
            // Nobody is left to read it.
            Err(gone) if gone.kind() == io::ErrorKind::BrokenPipe => return exit_code::SUCCESS,
            Err(error) => complain(&format!("cannot write to stdout: {error}")),
        },
        ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
            let _ = error.print();
        }
        // What clap says up to its first empty line is the error; the rest is advice.
        _ => {
            let said = error.to_string();
            let words: Vec<&str> =
                said.lines().map(str::trim).take_while(|line| !line.is_empty()).collect();
            let words = words.join(" ");
            complain(words.strip_prefix("error: ").unwrap_or(&words));
        }
    }
    OWN_FAILURE
}
