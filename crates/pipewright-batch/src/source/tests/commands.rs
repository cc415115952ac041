//! Tests of lines that are commands, and of lines for the shell.

use proptest::prelude::*;

use super::*;
use crate::job::{Job, shell_quoted};

fn split(line: &str) -> Vec<String> {
    let jobs = words_of(source(line).commands());
    assert_eq!(jobs.len(), 1, "{line}");
    jobs.into_iter().next().unwrap()
}

#[test]
fn quotes_are_those_of_a_posix_shell() {
    for (line, words) in [
        ("a  b\tc ", &["a", "b", "c"][..]),
        ("a 'b  c' \"d  e\"", &["a", "b  c", "d  e"]),
        (r#"a '' "" ''"" b"#, &["a", "", "", "", "b"]),
        (r#"a x'y'"z"\ w"#, &["a", "xyz w"]),
        (r#"a 'it'\''s' "say \"x\" \\ \$ \` \n""#, &["a", "it's", "say \"x\" \\ $ ` \\n"]),
        (r#"a '\' '"' "'""#, &["a", r"\", "\"", "'"]),
        (r"a \a\\\'\ ", &["a", "a\\' "]),
        // No other character has a meaning.
        (
            "a $x `b` *.c >d | e; # f ~ {g}",
            &["a", "$x", "`b`", "*.c", ">d", "|", "e;", "#", "f", "~", "{g}"],
        ),
        ("a\r", &["a\r"]),
        ("'my prog' \u{e9}", &["my prog", "\u{e9}"]),
    ] {
        assert_eq!(split(line), words, "{line}");
    }
}

#[test]
fn lines_without_words_are_skipped_and_counted() {
    let jobs: Vec<Job> = source("\n \t\na\n\nb").commands().flatten().collect();
    assert_eq!(jobs.iter().map(Job::get_line).collect::<Vec<_>>(), [Some(3), Some(5)]);
    assert!(source("").commands().next().is_none());
}

#[test]
fn a_command_that_ends_with_nul_may_have_several_lines() {
    let jobs = source("a 'b\nc'\nd\0e \\\nf \"g\\\nh\"").nul_separated().commands();
    assert_eq!(words_of(jobs), [vec!["a", "b\nc", "d"], vec!["e", "f", "gh"]]);
}

#[test]
fn a_command_that_cannot_be_split_is_refused_with_its_line() {
    for (input, message) in [
        ("a\nb 'c\n", "line 2 of the input: the quote ' is not closed"),
        ("a\nb \"c\n", "line 2 of the input: the quote \" is not closed"),
        ("a\nb \"c\\", "line 2 of the input: the quote \" is not closed"),
        ("a\nb \\\n", r"line 2 of the input: a backslash at the end; write \\ for a backslash"),
        ("a\n'' b\n", "line 2 of the input: the first word is empty"),
        ("a\nb\0\n", "line 2 of the input: a value has a NUL byte, which no argument can have"),
    ] {
        assert_eq!(error_of(source(input).commands()), (1, message.to_owned()), "{input}");
    }
}

#[test]
fn a_shell_line_is_kept_as_it_is() {
    let jobs: Vec<Job> = source("a | b > 'c\n \t\r\n x; y \n").shell_lines().flatten().collect();
    assert_eq!(jobs, [Job::shell("a | b > 'c"), Job::shell(" x; y ")]);
    assert_eq!(jobs[1].get_line(), Some(3));
    assert_eq!(error_of(source("a\nb\0").shell_lines()).0, 1);
}

proptest! {
    #[test]
    fn quote_then_split_gives_the_same_words(
        words in prop::collection::vec("[ -~\\t\\n]{1,6}|['\"\\\\ \n]{1,5}|\\PC{1,3}", 1..5),
        empty in 1_usize..6,
    ) {
        let mut words: Vec<OsString> = words.into_iter().map(OsString::from).collect();
        words.insert(empty.min(words.len()), OsString::new());
        let jobs = source(shell_quoted(&words)).nul_separated().commands();
        prop_assert_eq!(all(jobs), (vec![words], None));
    }

    /// `sh` splits a line into the same words, where we split it at all.
    #[test]
    #[cfg(unix)]
    fn sh_splits_a_line_the_same(line in "[ab'\"\\\\ ]{0,12}") {
        let (jobs, error) = all(source(format!("x {line}")).commands());
        let command = format!("printf '%s\\0' x {line}");
        let output = std::process::Command::new("/bin/sh").args(["-c", &command]).output().unwrap();
        match error {
            None => {
                let words = jobs.concat();
                let bytes: Vec<u8> =
                    words.iter().flat_map(|word| [word.as_encoded_bytes(), b"\0"].concat()).collect();
                prop_assert_eq!(output.stdout, bytes);
            }
            // For a shell a backslash at the end is one; for a list of commands it is a mistake.
            Some(error) => prop_assert!(!output.status.success() || line.ends_with('\\'), "{}", error),
        }
    }
}
