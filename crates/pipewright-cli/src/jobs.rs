//! `jobs`: the log of a batch.

use std::io::{self, BufWriter, IsTerminal as _, Write as _};
use std::time::Duration;

use pipewright_batch::{JobFilter, LogView, OutputQueryError};
use pipewright_os::base::{private_file, stdio};
use pipewright_os::process::terminal;

use crate::args::JobsOptions;
use crate::print::{check, is_reader_gone, print};
use crate::{Failure, exit_code, sleep};

/// The time between two looks at a log that is followed.
const FOLLOW_INTERVAL: Duration = Duration::from_millis(200);

/// Prints what the options ask for.
pub(crate) fn run(options: &JobsOptions) -> Result<i32, Failure> {
    let log = LogView::open(&options.log).map_err(Failure::from_error)?;
    if let Some(job) = &options.output {
        return output(&log, job);
    }
    if let Some(path) = &options.html {
        let page = log.page().map_err(Failure::from_error)?;
        let written = private_file::create(path, options.private)
            .and_then(|mut file| file.write_all(page.as_bytes()));
        written.map_err(Failure::cannot(&format!("write {path:?}")))?;
        return Ok(exit_code::SUCCESS);
    }
    if options.follow {
        return follow(&log);
    }
    let state = match options.failed {
        true => Some("failed".parse().map_err(Failure)?),
        false => options.state,
    };
    let filter = JobFilter { state, slowest: options.slowest };
    let mut stdout = BufWriter::new(stdio::stdout());
    let listed = match (options.summary, options.json) {
        (true, _) => Ok(()),
        (false, true) => log.write_json(&filter, &mut stdout),
        (false, false) => log.write_table(&filter, width(), &mut stdout),
    };
    match listed.and_then(|()| stdout.flush()) {
        Err(error) if !is_reader_gone(&error) => {
            return Err(Failure::cannot("list the jobs")(error));
        }
        _ => {}
    }
    drop(stdout);
    if !options.json {
        print(log.summary().map_err(Failure::from_error)?)?;
    }
    Ok(exit_code::SUCCESS)
}

/// Returns the width of the terminal, if stdout is one.
fn width() -> Option<usize> {
    if io::stdout().is_terminal() { terminal::stderr_columns() } else { None }
}

fn output(log: &LogView, job: &str) -> Result<i32, Failure> {
    match log.write_output(job, &mut stdio::stdout(), &mut io::stderr()) {
        Err(OutputQueryError::Io { path: None, source }) => check(Err(source))?,
        done => done.map_err(Failure::from_error)?,
    }
    Ok(exit_code::SUCCESS)
}

fn follow(log: &LogView) -> Result<i32, Failure> {
    let mut position = log.position().map_err(Failure::from_error)?;
    loop {
        let mut stdout = stdio::stdout();
        let written = log.write_new(position, width(), &mut stdout).and_then(|new| {
            stdout.flush()?;
            Ok(new)
        });
        let is_running;
        (position, is_running) = match written {
            Err(error) if is_reader_gone(&error) => return Ok(exit_code::SUCCESS),
            new => new.map_err(Failure::cannot("follow the log"))?,
        };
        if !is_running {
            return Ok(exit_code::SUCCESS);
        }
        sleep(FOLLOW_INTERVAL);
    }
}
