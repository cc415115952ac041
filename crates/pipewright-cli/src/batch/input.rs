//! The jobs that the options describe.

use std::ffi::OsString;
use std::io;

use pipewright_batch::{
    Batch, CheckError, InputError, Job, ListWords, Source, Template, product, split_lists,
};

use crate::Failure;
use crate::args::BatchOptions;

/// The jobs, read when they are asked for.
pub(super) type AllJobs = Box<dyn Iterator<Item = Result<Job, InputError>> + Send>;

pub(super) fn jobs(options: &BatchOptions) -> Result<AllJobs, Failure> {
    let (command, lists) = split_lists(options.words.clone()).map_err(Failure::from_error)?;
    if !lists.is_empty() {
        return combinations(options, command, lists);
    }
    let source = source(options)?;
    if options.jsonl {
        return match command.first() {
            Some(_) => Err(Failure(
                "with --jsonl, each line has its own command: remove the one after the options"
                    .to_owned(),
            )),
            None => Ok(Box::new(source.json_lines())),
        };
    }
    if options.csv {
        return match command.first() {
            Some(_) => Ok(Box::new(source.csv(command))),
            None => Err(Failure(
                "with --csv, write a command with {1} or {name} for columns".to_owned(),
            )),
        };
    }
    Ok(match (command.is_empty(), options.shell) {
        (true, true) => Box::new(source.shell_lines()),
        (true, false) => Box::new(source.commands()),
        (false, true) => return Err(shell_with_command()),
        (false, false) => Box::new(source.lines(template(command)?)),
    })
}

/// Checks all jobs of a file before anything starts. A stream cannot be read twice: it is refused at the bad line.
pub(super) fn check_file(options: &BatchOptions, batch: &Batch) -> Result<(), Failure> {
    let is_structured = options.jsonl || options.csv;
    let file = options.from.as_deref().filter(|path| is_structured && path.is_file());
    let Some(path) = file else { return Ok(()) };
    match batch.check(jobs(options)?) {
        // The other kind names the file itself.
        Err(error @ CheckError::Job { .. }) => Err(Failure(format!("{path:?}: {error}"))),
        checked => checked.map(|_| ()).map_err(Failure::from_error),
    }
}

fn combinations(
    options: &BatchOptions,
    command: Vec<OsString>,
    lists: Vec<ListWords>,
) -> Result<AllJobs, Failure> {
    let other = [
        ("--from", options.from.is_some()),
        ("--jsonl", options.jsonl),
        ("--csv", options.csv),
        ("--null", options.null),
    ];
    if let Some((name, _)) = other.into_iter().find(|(_, is_set)| *is_set) {
        return Err(Failure(format!("{name} does not fit lists after ::: or ::::")));
    }
    if options.shell {
        return Err(shell_with_command());
    }
    let lists = lists.into_iter().map(ListWords::open).collect::<Result<Vec<_>, _>>();
    let lists = lists.map_err(Failure::from_error)?;
    Ok(Box::new(product(template(command)?, lists)))
}

fn shell_with_command() -> Failure {
    Failure(
        "--shell runs the lines themselves: write sh -c '...' {} as the command instead".to_owned(),
    )
}

fn template(command: Vec<OsString>) -> Result<Template, Failure> {
    if command.is_empty() {
        return Err(Failure("the command is missing before the first :::".to_owned()));
    }
    Template::parse(command).map_err(Failure::from_error)
}

fn source(options: &BatchOptions) -> Result<Source, Failure> {
    let source = match options.from.as_deref() {
        Some(path) if path.as_os_str() != "-" => Source::open(path).map_err(Failure::from_error)?,
        _ => {
            hint_at_terminal(options);
            Source::stdin()
        }
    };
    Ok(if options.null { source.nul_separated() } else { source })
}

/// Tells a user who has forgotten the input why nothing happens.
fn hint_at_terminal(options: &BatchOptions) {
    use io::IsTerminal as _;
    if !options.quiet && io::stdin().is_terminal() {
        crate::print_error("reading jobs from the terminal, one a line; end with Ctrl-D");
    }
}
