//! A directory in which the tool and its jobs run.

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Output};

use super::pipewright;

/// A directory that jobs run in.
pub(super) struct Place(tempfile::TempDir);

impl Place {
    pub(super) fn new() -> Place {
        Place(tempfile::tempdir().unwrap())
    }

    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    pub(super) fn write(&self, name: &str, text: &str) {
        fs::write(self.path(name), text).unwrap();
    }

    /// Returns the text of a file, or nothing if there is none.
    pub(super) fn read(&self, name: &str) -> String {
        fs::read_to_string(self.path(name)).unwrap_or_default()
    }

    /// Returns the lines of a file, sorted.
    pub(super) fn lines(&self, name: &str) -> Vec<String> {
        sorted(&self.read(name))
    }

    /// Returns the tool in this directory, not yet started.
    pub(super) fn tool(&self, args: &[&str]) -> Command {
        let mut command = pipewright(args);
        command.current_dir(self.0.path());
        command
    }

    /// Runs `batch` without progress.
    pub(super) fn batch(&self, args: &[&str]) -> Output {
        self.tool(&[&["batch", "--progress", "none"], args].concat()).output().unwrap()
    }
}

pub(super) fn sorted(text: &str) -> Vec<String> {
    let mut lines: Vec<String> = text.lines().map(ToOwned::to_owned).collect();
    lines.sort();
    lines
}
