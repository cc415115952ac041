//! Tests of sources: inputs in, words or errors out.

mod blocks;
mod commands;
mod lines;
mod packing;
mod product;
mod speed;

use std::ffi::OsString;
use std::io::{self, Read};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

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

/// A reader that returns one byte at a time, is interrupted before each, and fails at the end.
struct Failing<'a>(&'a [u8], bool);

impl Read for Failing<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.1 = !self.1;
        if self.1 {
            return Err(io::ErrorKind::Interrupted.into());
        }
        match self.0.split_first() {
            Some((byte, rest)) => {
                self.0 = rest;
                buffer[0] = *byte;
                Ok(1)
            }
            None => Err(io::Error::from_raw_os_error(5)),
        }
    }
}

#[test]
fn a_failing_reader_is_an_error_with_the_line_and_the_systems_error() {
    let input = b"{\"argv\":[\"a\"]}\n{\"argv\":[\"b\"]}\nx";
    let failing = || Source::new(Failing(input, false));
    for (jobs, line) in [
        (failing().lines(template(&["x"])), 3),
        (failing().commands(), 3),
        (failing().shell_lines(), 3),
        (failing().json_lines(), 3),
        (Source::new(Failing(b"a\n1\n2\n", false)).csv(["x"]), 4),
    ] {
        let mut jobs = jobs;
        assert!(jobs.next().unwrap().is_ok());
        assert!(jobs.next().unwrap().is_ok());
        let error = jobs.next().unwrap().unwrap_err();
        let start = format!("cannot read the input at line {line}: ");
        assert!(error.to_string().starts_with(&start), "{error}");
        assert_eq!((error.kind(), error.line()), (&InputErrorKind::Read, Some(line)));
        let source = std::error::Error::source(&error).unwrap();
        let source = source.downcast_ref::<io::Error>().unwrap();
        assert_eq!(source.raw_os_error(), Some(5));
        assert_eq!(io::Error::from(error).kind(), io::Error::from_raw_os_error(5).kind());
        assert!(jobs.next().is_none());
    }
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

#[test]
fn a_record_of_the_longest_length_is_read_and_a_longer_one_refused() {
    // The last number is the line: the header of CSV is one too.
    type Open = fn(Source) -> Jobs;
    type Input = fn(usize) -> String;
    let formats: [(Open, Input, usize); 5] = [
        (|it| it.lines(template(&["x"])), |length| format!("{}\n", "a".repeat(length)), 1),
        (|it| it.commands(), |length| format!("{}\n", "a".repeat(length)), 1),
        (|it| it.shell_lines(), |length| format!("{}\n", "a".repeat(length)), 1),
        (
            |it| it.json_lines(),
            |length| format!("{{\"argv\":[\"a\"]{}}}\n", " ".repeat(length - 14)),
            1,
        ),
        (|it| it.csv(["x"]), |length| format!("a\n\"{}\"\n", "b\n".repeat(length / 2 - 1)), 2),
    ];
    for (open, input, line) in formats {
        let (jobs, error) = all(open(source(input(100)).max_record_bytes(100)));
        assert_eq!((jobs.len(), error), (1, None), "{}", input(100));
        let (jobs, error) = error_of(open(source(input(102)).max_record_bytes(100)));
        let expected =
            format!("line {line} of the input: longer than 100 bytes; is another separator meant?");
        assert_eq!((jobs, error), (0, expected));
    }
}

/// A reader that never ends, and counts what it has given.
struct Endless(&'static [u8], Arc<AtomicUsize>);

impl Read for Endless {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        buffer.iter_mut().zip(self.0.iter().cycle()).for_each(|(to, from)| *to = *from);
        let count = buffer.len() / self.0.len() * self.0.len();
        self.1.fetch_add(count, Ordering::Relaxed);
        Ok(count)
    }
}

#[test]
fn an_endless_input_is_read_only_as_far_as_asked() {
    let read = Arc::<AtomicUsize>::default();
    let endless = |bytes| Source::new(Endless(bytes, Arc::clone(&read)));
    let lists = || vec![List::Lines(endless(b"a\n")), List::Values(vec!["b".into()])];
    for jobs in [
        endless(b"a\n").lines(template(&["x"])),
        endless(b"a\n").commands(),
        endless(b"a\n").shell_lines(),
        endless(b"{\"argv\":[\"a\"]}\n").json_lines(),
        endless(b"a\n").csv(["x"]),
        product(template(&["x"]), lists()),
    ] {
        assert_eq!(read.swap(0, Ordering::Relaxed), 0, "read too early");
        assert_eq!(jobs.take(1000).filter(|job| job.is_ok()).count(), 1000);
        let bytes = read.swap(0, Ordering::Relaxed);
        assert!(bytes <= super::lines::BUFFER_BYTES, "{bytes}");
    }
    // A record without an end is refused when it is too long.
    let endless_field = Source::new((&b"\""[..]).chain(Endless(b"a\n", Arc::clone(&read))));
    for jobs in [endless(b"a").commands(), endless_field.csv(["x"]), endless(b"a,").csv(["x"])] {
        assert!(error_of(jobs).1.contains("longer than 1048576 bytes"));
        let bytes = read.swap(0, Ordering::Relaxed);
        assert!(
            bytes <= Source::DEFAULT_MAX_RECORD_BYTES + 2 * super::lines::BUFFER_BYTES,
            "{bytes}"
        );
    }
}

#[test]
fn sources_can_be_sent_to_another_thread() {
    fn is_send<T: Send>() {}
    is_send::<Jobs>();
    is_send::<Source>();
    is_send::<InputError>();
}
