//! Tests of sources: inputs in, words or errors out.

use std::ffi::OsString;
use std::io::{self, Read};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use pipewright_os::base::os_text::LINES_END_WITH_CRLF;
use proptest::prelude::*;

use super::*;
use crate::job::{Identities, Job, JobStdin, shell_quoted};

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

// Tests of lines that are commands, and of lines for the shell.

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

// Tests of lines and of texts that end with NUL.

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

// Tests of the combinations of lists. The expected results are GNU parallel's (20221122), except where a test says so.

fn values(values: &[&str]) -> List {
    List::Values(values.iter().map(OsString::from).collect())
}

fn products(command: &[&str], lists: Vec<List>) -> Vec<String> {
    let jobs = product(template(command), lists);
    words_of(jobs).into_iter().map(|words| words.join(" ")).collect()
}

#[test]
fn the_last_list_varies_fastest() {
    let lists = || vec![values(&["a", "b"]), values(&["x", "y", "z"])];
    let expected = ["a x", "a y", "a z", "b x", "b y", "b z"].map(|pair| format!("echo {pair}"));
    assert_eq!(products(&["echo"], lists()), expected);
    assert_eq!(products(&["echo", "{1}", "{2}"], lists()), expected);
    assert_eq!(products(&["echo", "{}"], lists()), expected);
    assert_eq!(products(&["echo", "{#}"], lists())[5], "echo 6");
    let three = vec![values(&["a", "b"]), values(&["c", "d"]), values(&["e", "f"])];
    let expected = ["ace", "acf", "ade", "adf", "bce", "bcf", "bde", "bdf"];
    assert_eq!(products(&["{1}{2}{3}"], three), expected);
}

#[test]
fn one_list_is_that_list() {
    assert_eq!(products(&["echo"], vec![values(&["a", ""])]), ["echo a", "echo "]);
}

#[test]
fn lists_from_inputs_are_combined_too() {
    let lines = || List::Lines(source("l1\nl2\n"));
    let expected = ["echo a l1", "echo a l2", "echo b l1", "echo b l2"];
    assert_eq!(products(&["echo"], vec![values(&["a", "b"]), lines()]), expected);
    let expected = ["echo l1 a", "echo l1 b", "echo l2 a", "echo l2 b"];
    assert_eq!(products(&["echo"], vec![lines(), values(&["a", "b"])]), expected);
    let expected = ["echo l1 l1", "echo l1 l2", "echo l2 l1", "echo l2 l2"];
    assert_eq!(products(&["echo"], vec![lines(), lines()]), expected);
}

#[test]
fn an_empty_list_has_no_combinations() {
    // GNU parallel takes an empty second list for one empty value.
    for lists in [
        vec![],
        vec![values(&[])],
        vec![values(&["a"]), values(&[])],
        vec![values(&[]), values(&["a"])],
        vec![values(&["a"]), List::Lines(source(""))],
    ] {
        assert_eq!(products(&["echo"], lists), Vec::<String>::new());
    }
}

#[test]
fn errors_name_the_arguments_or_the_line() {
    let jobs = product(template(&["{3}"]), vec![values(&["a"]), values(&["b"])]);
    let message = "in the arguments: the command uses column 3, and the record has 2 columns";
    assert_eq!(error_of(jobs), (0, message.to_owned()));
    let lists = vec![List::Lines(source("a\nb\0")), values(&["x", "y"])];
    let (count, message) = error_of(product(template(&["echo"]), lists));
    assert_eq!(count, 2);
    assert!(message.starts_with("line 2 of the input: a value has a NUL byte"), "{message}");
    let long = List::Lines(source("abc").max_record_bytes(2));
    let (count, message) = error_of(product(template(&["echo"]), vec![values(&["x"]), long]));
    assert_eq!(count, 0);
    assert!(message.starts_with("line 1 of the input: longer than 2"), "{message}");
}

#[test]
fn words_are_split_into_command_and_lists() {
    let split = |text: &str| split_lists(text.split(' ').map(OsString::from));
    let (command, lists) = split("cmd {} :: ::: a b :::: f g ::: ::: x").unwrap();
    assert_eq!(command, ["cmd", "{}", "::"]);
    let values = |words: &[&str]| ListWords::Values(words.iter().map(OsString::from).collect());
    let file = |path: &str| ListWords::File(path.into());
    assert_eq!(lists, [values(&["a", "b"]), file("f"), file("g"), values(&[]), values(&["x"])]);
    assert_eq!(split("cmd a").unwrap(), (vec!["cmd".into(), "a".into()], vec![]));
    let beside = |lists: &[ListWords]| ListWords::SideBySide(lists.to_vec());
    let (_, lists) = split("cmd ::: a b :::+ c d ::::+ f g ::: x").unwrap();
    let first = [values(&["a", "b"]), values(&["c", "d"]), file("f"), file("g")];
    assert_eq!(lists, [beside(&first), values(&["x"])]);
    for word in [":::+", "::::+"] {
        let error = split(&format!("cmd {word} b")).unwrap_err();
        assert_eq!(error.to_string(), format!("in the arguments: no list before \"{word}\""));
    }
}

#[test]
fn lists_side_by_side_end_with_the_shortest_and_are_combined_with_others() {
    let beside = |lists: Vec<List>| List::SideBySide(lists);
    let first = || beside(vec![values(&["a", "b", "c"]), values(&["1", "2"])]);
    assert_eq!(products(&["echo"], vec![first()]), ["echo a 1", "echo b 2"]);
    let expected = ["echo a 1 X", "echo a 1 Y", "echo b 2 X", "echo b 2 Y"];
    assert_eq!(products(&["echo"], vec![first(), values(&["X", "Y"])]), expected);
    let expected = ["echo X a 1", "echo X b 2", "echo Y a 1", "echo Y b 2"];
    assert_eq!(products(&["echo"], vec![values(&["X", "Y"]), first()]), expected);
}

#[test]
fn linked_lists_begin_again_until_the_longest_has_ended() {
    let linked = |lists: Vec<List>| {
        let jobs = Records::linked(lists).fill(template(&["echo"]));
        words_of(jobs).into_iter().map(|words| words.join(" ")).collect::<Vec<_>>()
    };
    let lists = vec![values(&["a", "b", "c"]), values(&["1", "2"]), List::Lines(source("x\n"))];
    assert_eq!(linked(lists), ["echo a 1 x", "echo b 2 x", "echo c 1 x"]);
    let lists = vec![values(&["a"]), List::Lines(source("1\n2\n"))];
    assert_eq!(linked(lists), ["echo a 1", "echo a 2"]);
    assert_eq!(linked(vec![values(&["a"]), values(&[])]), [""; 0]);
}

#[test]
fn a_list_in_a_file_is_opened() {
    assert!(matches!(ListWords::File("-".into()).open(), Ok(List::Lines(_))));
    let error = ListWords::File("no-such-list".into()).open().unwrap_err();
    assert!(error.to_string().starts_with("cannot open \"no-such-list\": "), "{error}");
}

// Tests of several values in one job, and of columns. The expected results are those of GNU xargs (4.9.0) and GNU
// parallel (20221122), except where a test says so.

fn packed(command: &[&str], input: &str, packing: Packing) -> Vec<String> {
    let jobs = source(input).records().pack(template(command), packing);
    words_of(jobs).into_iter().map(|words| words.join(" ")).collect()
}

#[test]
fn a_job_has_so_many_values_and_the_last_one_has_the_rest() {
    let two = Packing::default().most_values(2);
    assert_eq!(packed(&["echo"], "a\nb\nc\n", two), ["echo a b", "echo c"]);
    assert_eq!(packed(&["echo", "{}", "-", "{/}"], "d/a\nb\n", two), ["echo d/a b - a b"]);
    // A column that the last job lacks is empty.
    assert_eq!(packed(&["echo", "{2}-{1}-{#}"], "a\nb\nc\n", two), ["echo b-a-1", "echo -c-2"]);
    // And one that no job can have is refused.
    let jobs = source("a\nb\n").records().pack(template(&["{3}"]), two);
    let message = "line 2 of the input: the command uses column 3, and the record has 2 columns";
    assert_eq!(error_of(jobs), (0, message.to_owned()));
}

#[test]
fn as_many_values_as_fit_are_packed_as_by_xargs() {
    // `seq 100000 | xargs echo | awk '{print NF}'`
    let numbers: String = (1..=100_000).map(|number| format!("{number}\n")).collect();
    let jobs = source(&numbers).records().pack(template(&["echo"]), Packing::default());
    let counts: Vec<usize> = words_of(jobs).iter().map(|words| words.len() - 1).collect();
    assert_eq!(counts, [23_695, 21_844, 21_844, 21_844, 10_773]);
    // `printf '%s\n' a bb ccc dddd | xargs -s 12 echo`
    let small = Packing::default().most_bytes(12);
    assert_eq!(
        packed(&["echo"], "a\nbb\nccc\ndddd\n", small),
        ["echo a bb", "echo ccc", "echo dddd"]
    );
    // A value that never fits is alone. GNU xargs ends there.
    assert_eq!(
        packed(&["echo"], "a\nmuch longer\nb\n", small),
        ["echo a", "echo much longer", "echo b"]
    );
}

#[test]
fn a_word_around_a_value_is_repeated_only_if_that_is_asked_for() {
    let words = ["echo", "x{}y", "{.}", "{#}a{}"];
    let repeated = Template::parse(words).unwrap().repeat_words();
    let jobs = source("1.c\n2.c\n").records().pack(repeated, Packing::default());
    assert_eq!(words_of(jobs), [["echo", "x1.cy", "x2.cy", "1", "2", "1a1.c", "1a2.c"]]);
    let jobs = source("1\n2\n").records().pack(template(&["x{}y"]), Packing::default());
    assert_eq!(words_of(jobs), [["x1 2y"]]);
}

#[test]
fn the_bytes_of_a_job_are_counted_exactly() {
    for words in [
        &["echo"][..],
        &["echo", "{}", "{/}", "-"],
        &["x{}y", "{.}"],
        &["a{2}b{1/}", "{}{}"],
        &["{1}{}{#}"],
        &["-{//}-", "literal"],
    ] {
        for repeats in [false, true] {
            let parsed = Template::parse(words).unwrap();
            let template = Arc::new(if repeats { parsed.repeat_words() } else { parsed });
            let values = ["d/e.f", "", "long value.x", "y"];
            let (mut record, mut bytes) = (None::<crate::job::Record>, template.fixed_bytes());
            for value in values {
                let next = crate::job::Record::new(value);
                bytes += template.value_bytes(record.as_ref(), &next);
                match &mut record {
                    Some(record) => record.append(&next),
                    None => record = Some(next),
                }
            }
            let job = template.job(1, record.unwrap()).unwrap();
            let real: usize = job.argv(1).unwrap().iter().map(|word| word.len() + 1).sum();
            // The space after the last value inside a word is counted too, and the most digits of a number.
            let more = if repeats { 4 * 20 } else { 20 + 2 * words.len() };
            assert!(bytes >= real && bytes <= real + more, "{words:?} {repeats}: {bytes} {real}");
        }
    }
}

#[test]
fn values_are_split_into_columns_before_they_are_packed() {
    let split = |value: &[u8]| {
        let mut parts = value.split(|byte| *byte == b',');
        let first = crate::job::Record::new(parts.next().unwrap_or_default());
        parts.fold(first, crate::job::Record::and)
    };
    let jobs = source("a,b\nc,d\n").records().columns(split).fill(template(&["echo", "{2}{1}"]));
    assert_eq!(words_of(jobs), [["echo", "ba"], ["echo", "dc"]]);
    let two = Packing::default().most_values(2);
    let jobs = source("a,b\nc,d\n").records().columns(split).pack(template(&["{4}{1}"]), two);
    assert_eq!(words_of(jobs), [["da"]]);
    let jobs = source("a,b\nc\n").records().columns(split).fill(template(&["echo", "{2}"]));
    let message = "line 2 of the input: the command uses column 2, and the record has 1 column";
    assert_eq!(error_of(jobs), (1, message.to_owned()));
    let lists = vec![List::Values(vec!["a,b".into()]), List::Values(vec!["c,d".into()])];
    let jobs = Records::combined(lists).columns(split).fill(template(&["echo"]));
    assert_eq!(words_of(jobs), [["echo", "a", "b", "c", "d"]]);
}

#[test]
fn values_that_no_word_has_whole_fill_a_job_too() {
    // Of each value, the first word has less than the value, or the first alone, or nothing.
    let folder = format!("{}/\n", "d".repeat(999));
    for (word, line) in
        [("{1}", "1234567\n"), ("{#}", "\n"), ("{/}", &folder), ("{1}-{%}", &folder)]
    {
        let count = 3 * Packing::USUAL_BYTES / line.len();
        for template in [template(&[word]), template(&[word]).repeat_words()] {
            let jobs = source(line.repeat(count)).records().pack(template, Packing::default());
            let lines: Vec<_> = jobs.map(|job| job.unwrap().get_line().unwrap()).collect();
            let most = (Packing::USUAL_BYTES / line.len()) as u64;
            assert!(lines.len() >= 3, "{word}: {} jobs", lines.len());
            assert!(lines.windows(2).all(|two| two[1] - two[0] <= most), "{word}: {lines:?}");
        }
    }
}

#[test]
fn values_before_an_error_are_a_job_and_then_it_is_told() {
    let bad = || source("a\nb\nc\nlonger\nd\n").max_record_bytes(1).records();
    let (words, error) = all(bad().pack(template(&["echo"]), Packing::default()));
    assert_eq!(words, [["echo", "a", "b", "c"]]);
    let message = "line 4 of the input: longer than 1 bytes; is another separator meant?";
    assert_eq!(error.as_deref(), Some(message));
    let two = Packing::default().most_values(2);
    let (words, error) = all(bad().pack(template(&["echo"]), two));
    assert_eq!(words, [&["echo", "a", "b"][..], &["echo", "c"]]);
    assert_eq!(error.as_deref(), Some(message));
    // But not a job that lacks a column because of it: nobody meant that one.
    let (words, error) = all(bad().pack(template(&["mv", "{1}", "{2}"]), two));
    assert_eq!(words, [["mv", "a", "b"]]);
    assert_eq!(error.as_deref(), Some(message));
}

// Tests of blocks of lines. The expected blocks are those of `parallel --pipe` (20221122), except where a test says so.

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
fn a_block_grows_to_hold_a_line_up_to_the_longest_record() {
    let limited = |input: &str, bytes, most| blocks(source(input).max_record_bytes(most), bytes);
    let all_of =
        |parts: &[&str]| parts.iter().map(|part| part.as_bytes().to_vec()).collect::<Vec<_>>();
    for (bytes, most) in [(4, 10), (10, 4), (10, 10)] {
        // The line, which has ten bytes, does not count its end.
        for input in ["0123456789\na\n", "0123456789\na", "0123456789"] {
            let (found, error) = limited(input, bytes, most);
            assert_eq!(
                (found.concat(), error),
                (input.as_bytes().to_vec(), None),
                "{bytes} {most}"
            );
        }
        for input in ["a\n0123456789x\na\n", "a\n0123456789x"] {
            let message =
                "record 2 of the input: longer than 10 bytes; is another separator meant?";
            let expected = (all_of(&["a\n"]), Some(message.to_owned()));
            assert_eq!(limited(input, bytes, most), expected, "{bytes} {most}");
        }
    }
    // Each byte is looked at once, however many reads bring the line.
    let long = "x".repeat(32 << 20) + "\n";
    let (found, error) = limited(&long, 1 << 10, 32 << 20);
    assert!(error.is_none() && found == [long.into_bytes()]);
}

#[test]
fn lines_before_an_error_are_a_block_and_then_it_is_told() {
    let (found, error) = blocks(Source::new(Failing(b"a\nb\nc\nd", false)), 100);
    assert_eq!(found, [b"a\nb\nc\n"]);
    assert!(error.unwrap().starts_with("cannot read the input at record 2: "));
    let (found, error) = blocks(Source::new(Failing(b"a\nb", false)), 3);
    assert_eq!(found, [b"a\n"]);
    assert!(error.is_some());
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

#[test]
fn jobs_of_a_log_are_read_a_few_at_a_time_and_fewer_if_their_inputs_are_long() {
    let folder = tempfile::tempdir().unwrap();
    for (name, bytes, expected) in [("long", AT_ONCE_BYTES / 2, 2), ("short", 1, AT_ONCE)] {
        let log = folder.path().join(name);
        let job = move |_| Job::new("/no such program").stdin(JobStdin::bytes(vec![b'x'; bytes]));
        crate::Batch::new().log(&log).run((0..=expected).map(job)).unwrap();
        let mut jobs = LoggedJobs::new(&log);
        assert!(jobs.read().unwrap().is_some());
        assert_eq!(jobs.read.len() + 1, expected, "{name}");
    }
}

// The speed of the sources. Prints times, and asserts none:
// `cargo test --release -p pipewright-batch --lib -- --ignored --nocapture speed`.

const COUNT: usize = 1_000_000;

fn measure(name: &str, input_bytes: usize, jobs: Jobs) {
    let begin = Instant::now();
    let count = jobs.filter(Result::is_ok).count();
    let seconds = begin.elapsed().as_secs_f64();
    assert_eq!(count, COUNT);
    let rate = input_bytes as f64 / seconds / 1e6;
    println!("{name}: {COUNT} jobs of {input_bytes} bytes in {seconds:.3} s, {rate:.0} MB/s");
}

#[test]
#[ignore = "measures"]
fn a_million_jobs() {
    let input = |line: fn(usize) -> String| (0..COUNT).map(line).collect::<String>();
    let lines = input(|n| format!("/data/photos/2024/IMG_{n:07}.jpg\n"));
    let words = ["convert", "{}", "-resize", "50%", "out/{/.}-{#}.png"];
    measure("lines with a template", lines.len(), source(&lines).lines(template(&words)));
    measure("commands", lines.len(), source(&lines).commands());
    measure("shell lines", lines.len(), source(&lines).shell_lines());
    let csv = format!("id,file\n{}", input(|n| format!("{n},\"IMG_{n:07}.jpg\"\n")));
    measure("CSV", csv.len(), source(&csv).csv(["convert", "{file}", "{id}.png"]));
    let json = input(|n| format!("{{\"argv\":[\"convert\",\"IMG_{n:07}.jpg\"],\"cpus\":2}}\n"));
    measure("JSON lines", json.len(), source(&json).json_lines());

    let begin = Instant::now();
    let mut identities = Identities::new();
    for job in source(&lines).lines(template(&words)).flatten() {
        std::hint::black_box(identities.next_id(&job));
    }
    println!("lines and identities: {:.3} s", begin.elapsed().as_secs_f64());
    let begin = Instant::now();
    for job in source(&lines).lines(template(&words)).flatten() {
        std::hint::black_box(job.argv(1).unwrap());
    }
    println!("lines and words: {:.3} s", begin.elapsed().as_secs_f64());
}
