//! `pipewright disk`: whether disk I/O is asynchronous here, and why not.

mod html;
mod json;
mod sentence;
mod text;

use std::fs::File;
use std::io::{self, Write as _};

use pipewright_disk::diagnosis::{Report, diagnose};

use crate::args::DiskOptions;
use crate::{Failure, complain, exit_code};

/// Diagnoses each path and tells. A path that cannot be diagnosed does not keep the others from it.
pub(crate) fn run(options: &DiskOptions) -> Result<i32, Failure> {
    // Opened before anything is measured: a page that cannot be written is known at once.
    let page = options.html.as_ref().map(|path| {
        let made = File::create(path);
        made.map_err(|error| Failure(format!("cannot write the page to {path:?}: {error}")))
    });
    let page = page.transpose()?;
    let mut out = io::stdout().lock();
    let (mut reports, mut code) = (Vec::new(), exit_code::SUCCESS);
    for path in &options.paths {
        match diagnose(path, &options.diagnose()) {
            Err(error) => {
                complain(&error.to_string());
                code = exit_code::OWN_FAILURE;
            }
            Ok(report) => {
                if options.json {
                    writeln!(out, "{}", json::text(&report)?)?;
                } else {
                    if !reports.is_empty() {
                        writeln!(out)?;
                    }
                    text::write(&mut out, &report)?;
                }
                reports.push(report);
            }
        }
    }
    if let Some(page) = page {
        write_page(page, &reports)?;
    }
    Ok(code)
}

fn write_page(mut page: File, reports: &[Report]) -> Result<(), Failure> {
    page.write_all(html::page(reports).as_bytes())
        .map_err(|error| Failure(format!("cannot write the page: {error}")))
}
