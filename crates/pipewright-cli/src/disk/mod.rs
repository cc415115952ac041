//! `pipewright disk`: tests if disk I/O is asynchronous, and explains why it is not.

mod html;
mod json;
mod sentence;
mod text;

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use pipewright_disk::diagnosis::{Report, diagnose};
use pipewright_os::base::private_file;
use pipewright_os::disk::file;

use crate::args::DiskOptions;
use crate::print::print;
use crate::{Failure, exit_code, print_error};

/// Diagnoses each path and prints the result. An error for one path does not stop the others.
pub(crate) fn run(options: &DiskOptions) -> Result<i32, Failure> {
    let page = options.html.as_ref().map(|path| Page::new(path, &options.paths)).transpose()?;
    let (mut reports, mut code) = (Vec::new(), exit_code::SUCCESS);
    for path in &options.paths {
        match diagnose(path, &options.diagnose()) {
            Err(error) => {
                print_error(&error.to_string());
                code = exit_code::OWN_FAILURE;
            }
            Ok(report) => {
                let text = text_of(options.json, reports.is_empty(), &report);
                print(text.map_err(Failure::cannot("print the diagnosis"))?)?;
                reports.push(report);
            }
        }
    }
    if let Some(page) = page {
        page.write(&reports)?;
    }
    Ok(code)
}

/// The HTML page.
#[derive(Debug)]
struct Page {
    path: PathBuf,
    /// The file did not exist before.
    is_new: bool,
}

impl Page {
    /// Opens the file before the first test, so that an error is known at once. Its content stays until the page is
    /// written.
    fn new(path: &Path, read: &[PathBuf]) -> Result<Page, Failure> {
        // A page that does not exist yet is none of the tested files.
        let is_same = |other: &&PathBuf| file::is_same(path, other).unwrap_or(false);
        if let Some(same) = read.iter().find(is_same) {
            return Err(Failure(format!(
                "--html would overwrite {same:?}, a file to test; choose another file"
            )));
        }
        let is_new = fs::symlink_metadata(path).is_err();
        private_file::open(path, File::options().create(true).append(true))
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
        private_file::create(&path, false)
            .and_then(|mut file| file.write_all(html::page(reports).as_bytes()))
            .map_err(|error| Failure(format!("cannot write the HTML page to {path:?}: {error}")))
    }
}

/// Returns the text to print for a diagnosis.
fn text_of(as_json: bool, is_first: bool, report: &Report) -> io::Result<Vec<u8>> {
    let mut text = Vec::new();
    if as_json {
        writeln!(text, "{}", json::text(report)?)?;
    } else {
        if !is_first {
            writeln!(text)?;
        }
        text::write(&mut text, report)?;
    }
    Ok(text)
}
