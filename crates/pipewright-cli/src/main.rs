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

/// Prints help and the version; reports any other result of the parser as wrong usage, on one line.
fn refuse(error: &clap::Error) -> i32 {
    match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => {
            let printed = print::wrote(error.print());
            printed.map_or_else(Failure::tell, |()| exit_code::SUCCESS)
        }
        _ => {
            complain(&usage_error(&error.to_string()));
            OWN_FAILURE
        }
    }
}

/// Puts a parser's error on one line: the error itself, up to the first empty line, and its tips.
fn usage_error(text: &str) -> String {
    let lines = || text.lines().map(str::trim);
    let error: Vec<&str> = lines().take_while(|line| !line.is_empty()).collect();
    let error = error.join(" ");
    let mut parts = vec![error.strip_prefix("error: ").unwrap_or(&error)];
    parts.extend(lines().filter_map(|line| line.strip_prefix("tip: ")));
    let is_plain = parts.len() == 1 && !parts[0].contains(['[', ':']);
    parts.extend(is_plain.then_some("try --help"));
    parts.join("; ")
}
