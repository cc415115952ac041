//! The formats of a report, pure functions of it: terminal, picture, page, tables and lists. And its files: opened
//! before the measurement, written after each series.

mod html;
mod table;
mod terminal;

use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use pipewright_os::base::private_file;
use pipewright_os::disk::file;

use crate::Error;
use crate::options::CommonBenchOptions;
use crate::report::{BenchReport, SCHEMA};
use crate::stats::range;
use crate::units::Unit;

pub use html::page_style;
use html::{html, svg};
use table::{csv, markdown};
pub(super) use terminal::{cut, terminal};

/// The text instead of a chart without figures. The warnings have the reason.
const NOT_MEASURED: &str = "Not measured.";

/// Returns the method in a line.
fn method(report: &BenchReport) -> String {
    let settings = &report.settings;
    let series = settings.series;
    let each = match settings.count {
        Some(count) => format!("{count} blocks"),
        None => {
            let times = report.charts.iter().map(|chart| chart.cell_seconds);
            let (least, most) = range(times);
            let [shortest, longest] = [least.min(most), most].map(|time| Unit::Seconds.show(time));
            if shortest == longest { shortest } else { format!("{shortest} to {longest}") }
        }
    };
    format!(
        "{series} series, interleaved and shuffled (seed {}); each cell {each} after a warm-up; medians \
         with minimum and maximum",
        settings.seed,
    )
}

/// Returns the heading: benchmark, preset and version.
fn heading(report: &BenchReport) -> String {
    let BenchReport { benchmark, preset, tool_version, .. } = report;
    format!("pipewright bench {benchmark}, preset {preset}, version {tool_version}")
}

/// The format of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum FileFormat {
    Json,
    Html,
    Svg,
    Csv,
    Markdown,
}

/// The files to write, with their formats.
#[derive(Debug)]
pub(super) struct ReportFiles(Vec<(FileFormat, PathBuf)>);

impl ReportFiles {
    /// Opens each file once, so that a path that cannot be written fails before the measurement. An older file keeps
    /// its content until the first series is done.
    pub(crate) fn new(options: &CommonBenchOptions) -> Result<ReportFiles, Error> {
        let options = [
            (FileFormat::Json, &options.json),
            (FileFormat::Html, &options.html),
            (FileFormat::Svg, &options.svg),
            (FileFormat::Csv, &options.csv),
            (FileFormat::Markdown, &options.markdown),
        ];
        let files: Vec<(FileFormat, PathBuf)> = options
            .into_iter()
            .filter_map(|(format, path)| Some((format, path.clone()?)))
            .collect();
        for (index, (_, path)) in files.iter().enumerate() {
            if !is_stdout(path) {
                let opened = private_file::open(path, OpenOptions::new().create(true).append(true));
                opened.map_err(|error| cannot_write(path, error))?;
            }
            // All are opened, and so exist.
            let is_same =
                |other: &Path| other == path || file::is_same(other, path).unwrap_or(false);
            if files[..index].iter().any(|(_, other)| is_same(other)) {
                return Err(Error::SameFile(path.clone()));
            }
        }
        Ok(ReportFiles(files))
    }

    /// Writes all files except stdout.
    pub(crate) fn save(&self, report: &BenchReport) -> Result<(), Error> {
        self.0.iter().filter(|(_, path)| !is_stdout(path)).try_for_each(|(format, path)| {
            let text = format.text(report)?;
            let written = private_file::create(path, false)
                .and_then(|mut file| file.write_all(text.as_bytes()));
            written.map_err(|error| cannot_write(path, error))
        })
    }

    /// Returns the text of the one that goes to stdout.
    pub(crate) fn stdout(&self, report: &BenchReport) -> Result<Option<String>, Error> {
        let stdout = self.0.iter().find(|(_, path)| is_stdout(path));
        stdout.map(|(format, _)| format.text(report)).transpose()
    }
}

impl FileFormat {
    fn text(self, report: &BenchReport) -> Result<String, Error> {
        let json = || -> Result<String, Error> {
            Ok(serde_json::to_string(report).map_err(Error::Json)? + "\n")
        };
        Ok(match self {
            FileFormat::Json => json()?,
            FileFormat::Html => html(report, &json()?),
            FileFormat::Svg => svg(report),
            FileFormat::Csv => csv(report),
            FileFormat::Markdown => markdown(report),
        })
    }
}

fn is_stdout(path: &Path) -> bool {
    path.as_os_str() == "-"
}

fn cannot_write(path: &Path, source: io::Error) -> Error {
    Error::Write { path: path.to_owned(), source }
}

/// An error shows at most this much of the schema of another file.
const MOST_SCHEMA_CHARACTERS: usize = 60;

/// Reads the report of an earlier run.
pub(super) fn load(path: &Path) -> Result<BenchReport, Error> {
    let refuse = |problem: String| Error::NotAReport { path: path.to_owned(), problem };
    let text =
        fs::read_to_string(path).map_err(|source| Error::Read { path: path.to_owned(), source })?;
    let data: serde_json::Value =
        serde_json::from_str(&text).map_err(|error| refuse(format!("invalid JSON: {error}")))?;
    let Some(schema) = data.get("schema").and_then(serde_json::Value::as_str) else {
        return Err(refuse(format!("it has no schema; expected {SCHEMA}")));
    };
    if schema != SCHEMA {
        let schema = cut(&schema.escape_debug().to_string(), MOST_SCHEMA_CHARACTERS);
        return Err(refuse(format!("its schema is {schema}; expected {SCHEMA}")));
    }
    serde_json::from_value(data).map_err(|error| refuse(error.to_string()))
}

#[cfg(test)]
mod golden;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_about_another_file_is_one_short_line() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("other.json");
        for text in [
            String::new(),
            "{}".to_owned(),
            serde_json::json!({ "schema": "a\nb".repeat(10_000) }).to_string(),
        ] {
            fs::write(&path, &text).unwrap();
            let error = load(&path).err().unwrap().to_string();
            assert!(error.starts_with("cannot compare with "), "{error}");
            assert_eq!(error.lines().count(), 1, "{error}");
            assert!(error.chars().count() < 300 + path.as_os_str().len(), "{error}");
        }
    }
}
