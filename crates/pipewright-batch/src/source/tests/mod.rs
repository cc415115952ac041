//! Tests of sources: inputs in, words or errors out.

mod commands;
mod lines;
mod product;

use std::ffi::OsString;
use std::io::{self, Read};

use super::*;

/// Returns a source of these bytes.
pub(super) fn source(input: impl AsRef<[u8]>) -> Source {
    Source::new(io::Cursor::new(input.as_ref().to_vec()))
}

pub(super) fn template(words: &[&str]) -> Template {
    Template::parse(words).unwrap()
}

/// Returns the words of each job, and the message of the error that ended them.
pub(super) fn all(jobs: Jobs) -> (Vec<Vec<OsString>>, Option<String>) {
    let mut words = Vec::new();
    for job in jobs {
        match job {
            Ok(job) => words.push(job.argv(1).unwrap()),
            Err(error) => return (words, Some(error.to_string())),
        }
    }
    (words, None)
}

/// Returns the words of each job, as text, where there is no error.
#[track_caller]
pub(super) fn words_of(jobs: Jobs) -> Vec<Vec<String>> {
    let (jobs, error) = all(jobs);
    assert_eq!(error, None);
    let text = |word: OsString| word.into_string().unwrap();
    jobs.into_iter().map(|words| words.into_iter().map(text).collect()).collect()
}

/// Returns the number of jobs before the error, and its message.
#[track_caller]
pub(super) fn error_of(jobs: Jobs) -> (usize, String) {
    let (jobs, error) = all(jobs);
    let error = error.expect("no error");
    let is_line = error.starts_with(|first: char| first.is_lowercase())
        && (!error.ends_with('.') || error.ends_with("..."))
        && !error.contains(char::is_control)
        && error.len() < 4500;
    assert!(is_line, "{error:?}");
    (jobs.len(), error)
}

#[test]
fn a_file_that_is_not_there_is_named() {
    let error = Source::open("no-such-file").unwrap_err();
    let text = error.to_string();
    assert!(text.starts_with(r#"cannot open "no-such-file": "#), "{text}");
    assert_eq!((error.input(), error.line()), (&InputName::File("no-such-file".into()), None));
    assert_eq!(io::Error::from(error).kind(), io::ErrorKind::NotFound);
}

#[test]
fn a_file_and_stdin_are_named_in_errors() {
    let path = std::env::temp_dir().join(format!("pipewright-batch-{}", std::process::id()));
    std::fs::write(&path, "a\n'\n").unwrap();
    let (count, error) = error_of(Source::open(&path).unwrap().commands());
    std::fs::remove_file(&path).unwrap();
    let name = pipewright_os::base::error::Quoted(path.as_os_str()).to_string();
    assert_eq!((count, error), (1, format!("line 2 of {name}: the quote ' is not closed")));
    let stdin = Source { name: InputName::Stdin, ..source("'") };
    assert_eq!(error_of(stdin.commands()).1, "line 1 of stdin: the quote ' is not closed");
}
