//! `pipewright disk`: whether disk I/O is asynchronous here, and why not.

mod html;
mod json;
mod sentence;
mod text;

use std::fs::File;
use std::io::{self, Write as _};
use std::path::Path;

use pipewright_disk::diagnosis::{Report, diagnose};

use crate::args::DiskOptions;
use crate::{Failure, complain, exit_code};

/// Diagnoses each path and tells. A path that cannot be diagnosed does not keep the others from it.
pub(crate) fn run(options: &DiskOptions) -> Result<i32, Failure> {
    // Opened before anything is measured: a page that cannot be written is known at once.
    let page = options.html.as_ref().map(|path| {
        if let Some(same) = options.paths.iter().find(|other| is_same(path, other)) {
            return Err(Failure(format!("the page would replace {same:?}, which is to be read")));
        }
        let made = File::create(path);
        made.map_err(|error| Failure(format!("cannot write the page to {path:?}: {error}")))
    });
    let page = page.transpose()?;
    let (mut reports, mut code) = (Vec::new(), exit_code::SUCCESS);
    for path in &options.paths {
        match diagnose(path, &options.diagnose()) {
            Err(error) => {
                complain(&error.to_string());
                code = exit_code::OWN_FAILURE;
            }
            Ok(report) => {
                let mut words = Vec::new();
                if options.json {
                    writeln!(words, "{}", json::text(&report)?)?;
                } else {
                    if !reports.is_empty() {
                        writeln!(words)?;
                    }
                    text::write(&mut words, &report)?;
                }
                print(&words)?;
                reports.push(report);
            }
        }
    }
    if let Some(page) = page {
        write_page(page, &reports)?;
    }
    Ok(code)
}

/// Whether both names are names of one file.
fn is_same(one: &Path, other: &Path) -> bool {
    matches!((one.canonicalize(), other.canonicalize()), (Ok(one), Ok(other)) if one == other)
}

/// Prints. A reader that has gone has read what it wanted.
fn print(words: &[u8]) -> Result<(), Failure> {
    let mut out = io::stdout().lock();
    match out.write_all(words).and_then(|()| out.flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(Failure(format!("cannot print the diagnosis: {error}")))
        }
        _ => Ok(()),
    }
}

fn write_page(mut page: File, reports: &[Report]) -> Result<(), Failure> {
    page.write_all(html::page(reports).as_bytes())
        .map_err(|error| Failure(format!("cannot write the page: {error}")))
}
