//! A file that a stream of a command names. The open of a named pipe waits for its other side, and obeys the rules of the command
//! meanwhile.

use std::fs::{File, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use pipewright_os::base::late_open::{self, LateOpen};

use crate::rules::Rules;

/// The time between two looks at a cancellation.
const LOOK: Duration = Duration::from_millis(20);

/// A file, opened when the command starts.
pub(super) struct NamedFile {
    pub(super) path: PathBuf,
    /// A pointer, so that a program without such a file does not contain the code.
    pub(super) open: fn(&Path, &OpenOptions, &Rules) -> io::Result<File>,
}

impl NamedFile {
    pub(super) fn new(path: PathBuf) -> NamedFile {
        NamedFile { path, open }
    }
}

fn open(path: &Path, options: &OpenOptions, rules: &Rules) -> io::Result<File> {
    let Rules { timeout, deadline, cancel, .. } = rules;
    let is_bounded = timeout.is_some() || deadline.is_some() || cancel.is_some();
    if !is_bounded || !late_open::waits(path) {
        return options.open(path);
    }
    // A timeout beyond the range of the clock never expires.
    let by_timeout = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
    let end = by_timeout.into_iter().chain(*deadline).min();
    let open = LateOpen::start(path, options.clone())?;
    loop {
        let look = Instant::now() + LOOK;
        if let Some(file) = open.wait(Some(end.map_or(look, |end| end.min(look)))) {
            return file;
        }
        let words = "no other process has opened it";
        if cancel.as_ref().is_some_and(|cancel| cancel.is_cancelled()) {
            return Err(io::Error::new(io::ErrorKind::Interrupted, words));
        }
        if end.is_some_and(|end| Instant::now() >= end) {
            return Err(io::Error::new(io::ErrorKind::TimedOut, words));
        }
    }
}
