//! Tests of blocks of lines. The expected blocks are those of `parallel --pipe` (20221122), except where a test says
//! so.

use super::*;
use crate::job::JobStdin;

/// Returns the blocks of an input, and the message of the error that ended them.
fn blocks(source: Source, bytes: usize) -> (Vec<Vec<u8>>, Option<String>) {
    let mut found = Vec::new();
    for job in source.blocks(["wc", "{#}"], bytes) {
        match job {
            Ok(job) => {
                assert_eq!(job.argv(1).unwrap(), ["wc", &(found.len() + 1).to_string()]);
                let JobStdin::Bytes(block) = job.get_stdin() else { panic!("no bytes") };
                found.push(block.clone());
            }
            Err(error) => return (found, Some(error.to_string())),
        }
    }
    (found, None)
}

#[track_caller]
fn texts(input: &str, bytes: usize, expected: &[&str]) {
    let (found, error) = blocks(source(input), bytes);
    let found: Vec<_> = found.iter().map(|block| std::str::from_utf8(block).unwrap()).collect();
    assert_eq!((found, error), (expected.to_vec(), None), "{input:?} {bytes}");
}

#[test]
fn blocks_end_with_lines_and_are_no_larger_than_asked_for() {
    texts("a\nb\nc\n", 4, &["a\nb\n", "c\n"]);
    texts("a\nb\nc\n", 5, &["a\nb\n", "c\n"]);
    texts("a\nb\nc\n", 6, &["a\nb\nc\n"]);
    texts("a\nb\nc", 4, &["a\nb\n", "c"]);
    texts("", 4, &[]);
    texts("abc", 1 << 40, &["abc"]);
    // A longer line is a block of its own.
    texts("a\nlonger line\nb\n", 4, &["a\n", "longer line\n", "b\n"]);
    texts("a\nlonger", 4, &["a\n", "longer"]);
}

#[test]
fn a_line_that_never_ends_is_refused_in_bounded_memory() {
    let endless = Source::new(io::repeat(b'x')).max_record_bytes(100 << 10);
    let (found, error) = blocks(endless, 1024);
    assert_eq!(found.len(), 0);
    let error = error.unwrap();
    assert!(error.starts_with("record 1 of the input: longer than 1"), "{error}");
}

#[test]
fn the_blocks_joined_are_the_input() {
    let input: String = (0..5000).map(|number| "x".repeat(number % 97) + "\n").collect();
    for bytes in [1, 10, 1000, 4096, 100_000, 1 << 20] {
        let (found, error) = blocks(source(&input), bytes);
        assert_eq!((found.concat(), error), (input.clone().into_bytes(), None));
        assert!(found.iter().all(|block| block.len() <= bytes.max(98) && block.ends_with(b"\n")));
    }
}

#[test]
fn a_command_without_words_is_an_error() {
    let jobs = source("a\n").blocks(Vec::<OsString>::new(), 10);
    assert_eq!(error_of(jobs), (0, "record 1 of the input: the command is empty".to_owned()));
}
