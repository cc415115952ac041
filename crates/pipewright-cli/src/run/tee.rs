//! Output that passes through the tool: the marks of its lines, and `--tee`, a file that gets it beside the terminal.

use std::fs::{File, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use jiff::Timestamp;
use pipewright::{Handle, Source, Stdio};
use pipewright_os::base::error::Quoted;
use pipewright_os::base::{late_open, private_file, stdio};

use crate::Failure;
use crate::args::RunOptions;

/// The file of `--tee`. All streams and attempts write to one open file, as their output comes.
#[derive(Debug)]
pub(crate) struct TeeFile {
    /// `None`: the null device.
    path: Option<PathBuf>,
    is_append: bool,
    opened: Mutex<Option<Handle>>,
}

impl TeeFile {
    /// Checks that the file can be written, and changes nothing: a command that is not found leaves it as it is. A
    /// named pipe is opened, and waits for its reader.
    pub(crate) fn new(
        path: Option<&Path>,
        is_append: bool,
    ) -> Result<Option<Arc<TeeFile>>, Failure> {
        let Some(path) = path else { return Ok(None) };
        let file = TeeFile {
            path: Some(path.to_owned()).filter(|path| path.as_os_str() != "null"),
            is_append,
            opened: Mutex::default(),
        };
        let checked = match &file.path {
            None => Ok(()),
            Some(path) if late_open::waits(path) => file.handle().map(drop),
            Some(path) if path.exists() => {
                private_file::open(path, OpenOptions::new().append(true)).map(drop)
            }
            Some(path) => {
                let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
                private_file::check_link(path)
                    .and_then(|()| std::fs::metadata(folder.unwrap_or(Path::new("."))))
                    .map(drop)
            }
        };
        checked.map_err(|error| {
            Failure(format!("cannot write {}: {error}", Quoted(path.as_os_str())))
        })?;
        Ok(Some(Arc::new(file)))
    }

    /// Returns the file: the first call opens it.
    fn handle(&self) -> io::Result<Handle> {
        let mut opened = self.opened.lock().unwrap_or_else(PoisonError::into_inner);
        match &*opened {
            Some(handle) => handle.try_clone(),
            None => opened.insert(self.open()?).try_clone(),
        }
    }

    fn open(&self) -> io::Result<Handle> {
        let Some(path) = &self.path else { return stdio::null() };
        let mut options = File::options();
        match self.is_append {
            true => options.append(true).create(true),
            false => options.write(true).create(true).truncate(true),
        };
        private_file::open(path, &mut options).map(Handle::from)
    }
}

/// Returns the destination of a stream that has its marks, or goes to a file too.
pub(super) fn marked(stream: Source, options: &RunOptions, tee: Option<&Arc<TeeFile>>) -> Stdio {
    let mut marks = LineMarks::new(options.prefix.as_deref(), options.timestamps);
    passed_on(stream, tee, move |bytes| marks.mark(bytes))
}

/// Returns the destination of a stream that goes to this process's stream and to a file.
pub(crate) fn both(stream: Source, tee: &Arc<TeeFile>) -> Stdio {
    passed_on(stream, Some(tee), <[u8]>::to_vec)
}

fn passed_on(
    stream: Source,
    tee: Option<&Arc<TeeFile>>,
    map: impl FnMut(&[u8]) -> Vec<u8> + Send + 'static,
) -> Stdio {
    let tee = tee.map(Arc::clone);
    let file = tee.map(|tee| Arc::new(move || tee.handle()) as Arc<_>);
    Stdio::tee_map(stream, file, map)
}

/// The marks of `--prefix` and `--timestamps`, at the start of each line of a stream that arrives in pieces of any
/// length.
#[derive(Debug)]
struct LineMarks {
    prefix: String,
    has_time: bool,
    /// The next byte begins a line.
    is_at_start: bool,
}

impl LineMarks {
    fn new(prefix: Option<&str>, has_time: bool) -> LineMarks {
        LineMarks { prefix: prefix.unwrap_or_default().to_owned(), has_time, is_at_start: true }
    }

    fn mark(&mut self, bytes: &[u8]) -> Vec<u8> {
        self.mark_at(bytes, Timestamp::now())
    }

    fn mark_at(&mut self, bytes: &[u8], now: Timestamp) -> Vec<u8> {
        // As RFC 3339 writes it, in UTC and with milliseconds.
        let mut mark = if self.has_time { format!("{now:.3} ") } else { String::new() };
        mark.push_str(&self.prefix);
        if mark.is_empty() {
            return bytes.to_vec();
        }
        let mut marked = Vec::with_capacity(bytes.len() + 4 * mark.len());
        for line in bytes.split_inclusive(|byte| *byte == b'\n') {
            if self.is_at_start {
                marked.extend_from_slice(mark.as_bytes());
            }
            marked.extend_from_slice(line);
            self.is_at_start = line.ends_with(b"\n");
        }
        marked
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_line_has_one_mark_however_it_arrives() {
        let text = b"one\ntwo\n\nthree";
        for bytes in 1..=text.len() {
            let mut marks = LineMarks::new(Some("[x] "), false);
            let marked: Vec<u8> = text.chunks(bytes).flat_map(|chunk| marks.mark(chunk)).collect();
            assert_eq!(marked, b"[x] one\n[x] two\n[x] \n[x] three", "{bytes}");
        }
        assert!(LineMarks::new(Some("x"), true).mark(b"").is_empty());
    }

    #[test]
    fn the_time_comes_before_the_prefix() {
        let mut marks = LineMarks::new(Some("> "), true);
        for (millis, marked) in [
            (1_709_210_096_789, "2024-02-29T12:34:56.789Z > a\n"),
            (0, "1970-01-01T00:00:00.000Z > a\n"),
            (4_102_444_799_000, "2099-12-31T23:59:59.000Z > a\n"),
        ] {
            let at = Timestamp::from_millisecond(millis).unwrap();
            assert_eq!(marks.mark_at(b"a\n", at), marked.as_bytes());
        }
    }
}
