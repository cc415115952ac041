//! `pipewright disk`: whether disk I/O is asynchronous here, and why not.

mod html;
mod json;
mod sentence;
mod text;

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use pipewright_disk::diagnosis::{Report, diagnose};
use pipewright_os::disk::file;

use crate::args::DiskOptions;
use crate::print::print;
use crate::{Failure, complain, exit_code};

/// Diagnoses each path and tells. A path that cannot be diagnosed does not keep the others from it.
pub(crate) fn run(options: &DiskOptions) -> Result<i32, Failure> {
    let page = options.html.as_ref().map(|path| Page::new(path, &options.paths)).transpose()?;
    let (mut reports, mut code) = (Vec::new(), exit_code::SUCCESS);
    for path in &options.paths {
        match diagnose(path, &options.diagnose()) {
            Err(error) => {
                complain(&error.to_string());
                code = exit_code::OWN_FAILURE;
            }
            Ok(report) => {
                let words = words(options.json, reports.is_empty(), &report);
                print(words.map_err(Failure::cannot("print the diagnosis"))?)?;
                reports.push(report);
            }
        }
    }
    if let Some(page) = page {
        page.write(&reports)?;
    }
    Ok(code)
}

/// The page of HTML.
#[derive(Debug)]
struct Page {
    path: PathBuf,
    /// It was not there before.
    is_new: bool,
}

impl Page {
    /// Opened once before anything is measured: that it cannot be written is known at once. What is there
    /// stays until there is something new.
    fn new(path: &Path, read: &[PathBuf]) -> Result<Page, Failure> {
        // One that is not there is none of them.
        let is_same = |other: &&PathBuf| file::is_same(path, other).unwrap_or(false);
        if let Some(same) = read.iter().find(is_same) {
            return Err(Failure(format!(
                "--html would overwrite {same:?}, a file to test; choose another file"
            )));
        }
        let is_new = fs::symlink_metadata(path).is_err();
        let opened = File::options().create(true).append(true).open(path);
        opened
            .map_err(|error| Failure(format!("cannot write the HTML page to {path:?}: {error}")))?;
        Ok(Page { path: path.to_owned(), is_new })
    }

    fn write(self, reports: &[Report]) -> Result<(), Failure> {
        if reports.is_empty() {
            if self.is_new {
                // Ignored: an empty file does no harm.
                let _ = fs::remove_file(&self.path);
            }
            return Ok(());
        }
        let path = self.path;
        fs::write(&path, html::page(reports))
            .map_err(|error| Failure(format!("cannot write the HTML page to {path:?}: {error}")))
    }
}

/// What is printed of it.
fn words(as_json: bool, is_first: bool, report: &Report) -> io::Result<Vec<u8>> {
    let mut words = Vec::new();
    if as_json {
        writeln!(words, "{}", json::text(report)?)?;
    } else {
        if !is_first {
            writeln!(words)?;
        }
        text::write(&mut words, report)?;
    }
    Ok(words)
}
