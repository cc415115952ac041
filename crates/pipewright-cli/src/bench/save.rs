//! The files of a report: looked at before anything is measured, written again after each series.

use std::fs::{self, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};

use super::report::{Report, SCHEMA};
use super::show;
use crate::Failure;
use crate::args::MeasureOptions;
use crate::print::print;

/// What a file is to contain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Shape {
    Json,
    Html,
    Svg,
    Csv,
    Markdown,
}

/// Where what goes.
#[derive(Debug)]
pub(super) struct Files(Vec<(Shape, PathBuf)>);

impl Files {
    /// Those that are asked for. Each is opened once: a path that cannot be written is found before
    /// minutes have gone by, and an older file stays as it is until there is something new.
    pub(super) fn new(options: &MeasureOptions) -> Result<Files, Failure> {
        let asked = [
            (Shape::Json, &options.json),
            (Shape::Html, &options.html),
            (Shape::Svg, &options.svg),
            (Shape::Csv, &options.csv),
            (Shape::Markdown, &options.markdown),
        ];
        let files: Vec<(Shape, PathBuf)> =
            asked.into_iter().filter_map(|(shape, path)| Some((shape, path.clone()?))).collect();
        for (index, (_, path)) in files.iter().enumerate() {
            if files[..index].iter().any(|(_, other)| other == path) {
                return Err(Failure(format!("two reports would go to \"{}\"", path.display())));
            }
            if !is_stdout(path) {
                let opened = OpenOptions::new().create(true).append(true).open(path);
                opened.map_err(|error| cannot_write(path, &error))?;
            }
        }
        Ok(Files(files))
    }

    /// Whether one of them is stdout, where then nothing else may be printed.
    pub(super) fn take_stdout(&self) -> bool {
        self.0.iter().any(|(_, path)| is_stdout(path))
    }

    /// Writes those that are files.
    pub(super) fn save(&self, report: &Report) -> Result<(), Failure> {
        self.0.iter().filter(|(_, path)| !is_stdout(path)).try_for_each(|(shape, path)| {
            let text = shape.text(report)?;
            fs::write(path, text).map_err(|error| cannot_write(path, &error))
        })
    }

    /// Prints that which is stdout.
    pub(super) fn print(&self, report: &Report) -> Result<(), Failure> {
        self.0
            .iter()
            .filter(|(_, path)| is_stdout(path))
            .try_for_each(|(shape, _)| print(&shape.text(report)?))
    }
}

impl Shape {
    fn text(self, report: &Report) -> Result<String, Failure> {
        let json = || -> Result<String, Failure> {
            let text = serde_json::to_string(report).map_err(Failure::cannot("write JSON"))?;
            Ok(text + "\n")
        };
        Ok(match self {
            Shape::Json => json()?,
            Shape::Html => show::html(report, &json()?),
            Shape::Svg => show::svg(report),
            Shape::Csv => show::csv(report),
            Shape::Markdown => show::markdown(report),
        })
    }
}

fn is_stdout(path: &Path) -> bool {
    path.as_os_str() == "-"
}

fn cannot_write(path: &Path, error: &io::Error) -> Failure {
    Failure(format!("cannot write \"{}\": {error}", path.display()))
}

/// Reads a report of an earlier run.
pub(super) fn load(path: &Path) -> Result<Report, Failure> {
    let refuse =
        |why: String| Failure(format!("cannot compare with \"{}\": {why}", path.display()));
    let text = fs::read_to_string(path).map_err(|error| refuse(error.to_string()))?;
    let data: serde_json::Value =
        serde_json::from_str(&text).map_err(|_| refuse("it is no JSON".to_owned()))?;
    let schema = data.get("schema").and_then(serde_json::Value::as_str).unwrap_or("none");
    if schema != SCHEMA {
        return Err(refuse(format!("its schema is {schema}, and {SCHEMA} is needed")));
    }
    serde_json::from_value(data).map_err(|error| refuse(error.to_string()))
}
