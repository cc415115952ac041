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
mod print;
mod run;

use std::fmt::Display;

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
    if let Some(code) = bench::run_if_child() {
        return code;
    }
    let args = match Args::try_parse() {
        Ok(args) => args,
        Err(error) => return refuse(&error),
    };
    print::let_large_files_fail();
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
    result.unwrap_or_else(Failure::tell)
}

/// Something that pipewright itself could not do, in the words to print.
struct Failure(String);

impl Failure {
    /// Says it, and gives the exit code.
    fn tell(self) -> i32 {
        complain(&self.0);
        OWN_FAILURE
    }

    /// The words of an error that says itself what failed.
    fn from_error(error: impl Display) -> Failure {
        Failure(error.to_string())
    }

    /// The words for an error: "cannot ..." and why. The error alone would not say what could not be done.
    fn cannot<E: Display>(doing: &str) -> impl FnOnce(E) -> Failure {
        move |error| Failure(format!("cannot {doing}: {error}"))
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
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => {
            let printed = print::wrote(error.print());
            return printed.map_or_else(Failure::tell, |()| exit_code::SUCCESS);
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
