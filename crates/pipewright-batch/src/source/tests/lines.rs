//! Tests of lines and of texts that end with NUL.

use pipewright_os::base::os_text::LINES_END_WITH_CRLF;
use proptest::prelude::*;

use super::*;

fn lines(input: &str) -> Vec<Vec<String>> {
    words_of(source(input).lines(template(&["echo"])))
}

#[test]
fn each_line_is_a_value_as_it_is() {
    assert_eq!(
        lines("a b\n\nc\r\r\n 'd \nlast\r"),
        [
            ["echo", "a b"],
            ["echo", ""],
            ["echo", if LINES_END_WITH_CRLF { "c\r" } else { "c\r\r" }],
            ["echo", " 'd "],
            ["echo", "last\r"]
        ]
    );
    assert_eq!(lines(""), Vec::<Vec<String>>::new());
    assert_eq!(lines("\n"), [["echo", ""]]);
    assert_eq!(lines("a"), lines("a\n"));
}

#[test]
fn texts_end_with_nul() {
    let jobs = source("a\0b\n\0\0c").nul_separated().lines(template(&["echo", "{#}", "{}"]));
    assert_eq!(
        words_of(jobs),
        [["echo", "1", "a"], ["echo", "2", "b\n"], ["echo", "3", ""], ["echo", "4", "c"]]
    );
}

#[test]
fn a_job_knows_its_number_and_its_line() {
    let jobs: Vec<_> = source("a\nb\n").lines(template(&["{#}", "{}"])).flatten().collect();
    assert_eq!((jobs[0].get_line(), jobs[1].get_line()), (Some(1), Some(2)));
    assert_eq!(jobs[1].argv(1).unwrap(), ["2", "b"]);
    let jobs: Vec<_> = source("a\0b").nul_separated().lines(template(&["x"])).flatten().collect();
    assert_eq!(jobs[1].get_line(), None);
}

#[test]
fn a_bad_line_ends_the_jobs_with_its_number() {
    let mut jobs = source("a\nb\0\nc\n").lines(template(&["x"]));
    assert!(jobs.next().unwrap().is_ok());
    let error = jobs.next().unwrap().unwrap_err();
    let message = "line 2 of the input: a value has a NUL byte, which no argument can have";
    assert_eq!(error.to_string(), message);
    assert!(jobs.next().is_none() && jobs.next().is_none());
    assert_eq!(
        error_of(source("a\n").lines(template(&["x{2}"]))),
        (0, "line 1 of the input: the command uses column 2, and the record has 1 column".into())
    );
    let long = source(format!("a\0{}", "b".repeat(9))).nul_separated().max_record_bytes(8);
    assert_eq!(
        error_of(long.lines(template(&["x"]))),
        (1, "record 2 of the input: longer than 8 bytes; is another separator meant?".into())
    );
}

#[test]
fn bytes_that_are_not_unicode_are_kept_or_refused() {
    let (jobs, error) = all(source(b"a\nb\xff\n").lines(template(&["echo", "<{}>"])));
    match error {
        None => assert_eq!(jobs[1][1].as_encoded_bytes(), b"<b\xff>"),
        Some(error) => assert_eq!(
            error,
            "line 2 of the input: not valid UTF-8, so it cannot be an argument here: b\u{fffd}"
        ),
    }
}

proptest! {
    #[test]
    fn the_lines_joined_are_the_input(input in "[ab\\r \u{e9}\\n]{0,40}", chunk in 1_usize..4) {
        let chunks = Chunks(input.clone().into_bytes(), chunk);
        let values = words_of(Source::new(chunks).lines(template(&["x"])));
        let mut joined: String =
            values.iter().flat_map(|words| [words[1].as_str(), "\n"]).collect();
        if !input.ends_with('\n') {
            joined.pop();
        }
        if LINES_END_WITH_CRLF {
            prop_assert_eq!(joined, input.replace("\r\n", "\n"));
        } else {
            prop_assert_eq!(joined, input);
        }
    }
}

/// A reader that returns a few bytes at a time, as a pipe may.
struct Chunks(Vec<u8>, usize);

impl Read for Chunks {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.1.min(self.0.len()).min(buffer.len());
        let rest = self.0.split_off(count);
        buffer[..count].copy_from_slice(&self.0);
        self.0 = rest;
        Ok(count)
    }
}
