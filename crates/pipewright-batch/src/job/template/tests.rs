//! Tests of placeholders. The expected results are GNU parallel's (20221122, `--dry-run`), except where a test says so.

use std::ffi::OsString;
use std::sync::Arc;

use super::*;

fn record(values: &[&str]) -> Record {
    let (first, others) = values.split_first().unwrap();
    others.iter().fold(Record::new(*first), |record, value| record.and(value))
}

fn filled(words: &[&str], values: &[&str]) -> Vec<OsString> {
    let template = Arc::new(Template::parse(words).unwrap());
    template.job(7, record(values)).unwrap().argv(3).unwrap()
}

fn error(words: &[&str], names: &[&str], values: &[&str]) -> String {
    let template = Template::parse_with_names(words, &record(names)).map(Arc::new);
    let job = template.and_then(|template| template.job(1, record(values)));
    job.unwrap_err().to_string()
}

#[test]
fn placeholders_of_paths_have_the_results_of_gnu_parallel() {
    // The value, then `{.}`, `{/}`, `{//}` and `{/.}`.
    for (value, results) in [
        ("a/b.c", ["a/b", "b.c", "a", "b"]),
        ("a.b/c", ["a.b/c", "c", "a.b", "c"]),
        ("foo", ["foo", "foo", ".", "foo"]),
        (".bashrc", ["", ".bashrc", ".", ""]),
        ("a/.bashrc", ["a/", ".bashrc", "a", ""]),
        ("a.tar.gz", ["a.tar", "a.tar.gz", ".", "a.tar"]),
        ("/a", ["/a", "a", "/", "a"]),
        ("/", ["/", "", "/", ""]),
        ("a/", ["a/", "", ".", ""]),
        ("a/b/", ["a/b/", "", "a", ""]),
        ("", ["", "", ".", ""]),
        ("a.", ["a", "a.", ".", "a"]),
        ("dir.x/.hid", ["dir.x/", ".hid", "dir.x", ""]),
        ("./a.b", ["./a", "a.b", ".", "a"]),
        ("..", [".", "..", ".", "."]),
        (".", ["", ".", ".", ""]),
        ("a//b.c", ["a//b", "b.c", "a", "b"]),
        ("//b", ["//b", "b", "/", "b"]),
        ("a.b.", ["a.b", "a.b.", ".", "a.b"]),
        ("a/b.c/", ["a/b.c/", "", "a", ""]),
        (" x y.z ", [" x y", " x y.z ", ".", " x y"]),
        ("a///", ["a///", "", ".", ""]),
        ("a/./b", ["a/./b", "b", "a/.", "b"]),
        ("../x", ["../x", "x", "..", "x"]),
        ("///", ["///", "", "/", ""]),
        ("//a/", ["//a/", "", "/", ""]),
    ] {
        let mut expected = vec!["cmd", value];
        expected.extend(results);
        assert_eq!(filled(&["cmd", "{}", "{.}", "{/}", "{//}", "{/.}"], &[value]), expected);
        // The same of a column.
        assert_eq!(filled(&["cmd", "{1}", "{1.}", "{1/}", "{1//}", "{1/.}"], &[value]), expected);
    }
}

#[test]
#[cfg(windows)]
fn paths_have_both_separators_and_drives() {
    for (value, results) in [
        (r"a\b.c", [r"a\b", "b.c", "a", "b"]),
        (r"C:\a/b.c", [r"C:\a/b", "b.c", r"C:\a", "b"]),
        (r"C:\a", [r"C:\a", "a", r"C:\", "a"]),
    ] {
        assert_eq!(filled(&["{.}", "{/}", "{//}", "{/.}"], &[value]), results);
    }
}

#[test]
fn number_and_slot_are_replaced() {
    assert_eq!(filled(&["echo", "{#}", "{%}", "n{#}-{%}"], &["a"]), ["echo", "7", "3", "n7-3"]);
}

#[test]
fn without_a_placeholder_the_values_are_the_last_arguments() {
    assert_eq!(filled(&["echo"], &["a b"]), ["echo", "a b"]);
    assert_eq!(filled(&["echo", "-n"], &["a", "x"]), ["echo", "-n", "a", "x"]);
    assert_eq!(filled(&["echo"], &[""]), ["echo", ""]);
    // A number is a placeholder too.
    assert_eq!(filled(&["echo", "{#}"], &["a"]), ["echo", "7"]);
}

#[test]
fn columns_are_replaced_by_number() {
    let values = ["a/1.c", "x/y.d"];
    assert_eq!(
        filled(&["echo", "{2.}", "{1/}", "{2//}", "{1/.}"], &values),
        ["echo", "x/y", "1.c", "x", "1"]
    );
    assert_eq!(filled(&["{1}{2}", "{02}"], &["v", "w"]), ["vw", "w"]);
}

#[test]
fn a_whole_word_becomes_a_word_for_each_column() {
    let values = ["a/1.c", "x/y.d"];
    assert_eq!(
        filled(&["echo", "{.}", "-", "{/}"], &values),
        ["echo", "a/1", "x/y", "-", "1.c", "y.d"]
    );
}

#[test]
fn inside_a_word_the_columns_are_joined_by_spaces() {
    // The same text as in GNU parallel, whose shell then splits it.
    assert_eq!(filled(&["pre{}post", "{}{}"], &["v", "w"]), ["prev wpost", "v wv w"]);
}

#[test]
fn a_value_is_never_split_or_replaced_again() {
    let value = "{#} a 'b' $(c) \n{}";
    assert_eq!(filled(&["echo", "{}", "<{}>"], &[value])[1..], [value, &format!("<{value}>")]);
}

#[test]
fn other_braces_stay() {
    for word in [
        "{ }",
        "{x}",
        "{...}",
        "{1x}",
        "{",
        "}",
        "}{",
        "{}}"[..1].as_ref(),
        "{a,b}",
        "${x}",
        "{-1}",
    ] {
        assert_eq!(filled(&["echo", word, "{}"], &["v"]), ["echo", word, "v"]);
    }
    for (word, result) in [
        ("{{}}", "{v}"),
        ("{}}", "v}"),
        ("{{.}", "{v"),
        ("x{{}}y", "x{v}y"),
        ("{{{}}}", "{{v}}"),
        ("{ {} }", "{ v }"),
        ("{{", "{{"),
        ("a{}b{c", "avb{c"),
        ("{\u{e9}}{}{\u{e9}", "{\u{e9}}v{\u{e9}"),
    ] {
        assert_eq!(filled(&["echo", word, "{}"], &["v"]), ["echo", result, "v"], "{word}");
    }
}

#[test]
fn columns_are_replaced_by_name() {
    let names = record(&["file", "my size", "file.", "3", "a/"]);
    let words =
        ["{file}", "{my size}", "{file.}", "{file/.}", "{3}", "{4}", "{a/}", "{a//}", "{ x }"];
    let template = Arc::new(Template::parse_with_names(words, &names).unwrap());
    let job = template.job(1, record(&["d/f.c", "s", "dot", "three", "p/q"])).unwrap();
    // A column has precedence over a part of another one, and digits are always a number.
    let expected = ["d/f.c", "s", "dot", "f", "dot", "three", "p/q", "q", "{ x }"];
    assert_eq!(job.argv(1).unwrap(), expected);
}

#[test]
fn a_wrong_placeholder_is_refused() {
    // GNU parallel takes a missing column for an empty value, and leaves an unknown name.
    for (words, names, values, message) in [
        (
            &["echo", "{3}"],
            &[""][..],
            &["a", "b"][..],
            "the command uses column 3, and the record has 2 columns",
        ),
        (
            &["echo", "x{2.}"],
            &[""],
            &["a"],
            "the command uses column 2, and the record has 1 column",
        ),
        (&["echo", "{0}"], &[""], &["a"], "columns are numbered from 1: there is no {0}"),
        (
            &["echo", "{b}"],
            &["a", "c"],
            &["1", "2"],
            "no column is named \"b\"; the columns are a, c",
        ),
        (
            &["echo", "{b/.}"],
            &["a", "c"],
            &["1", "2"],
            "no column is named \"b\"; the columns are a, c",
        ),
        (
            &["echo", "{a}"],
            &["a", "a"],
            &["1", "2"],
            "several columns are named \"a\": use the number of the column",
        ),
        (&["echo", "{}"], &[""], &["a\0"], "a value has a NUL byte, which no argument can have"),
    ] {
        assert_eq!(error(words, names, values), message);
    }
    let huge = ["{99999999999999999999999}"];
    assert!(error(&huge, &[""], &["a"]).starts_with("the command uses column 1844674"));
    assert_eq!(error(&[], &[""], &["a"]), "the command is empty");
}

#[test]
fn an_unused_column_may_have_any_name() {
    let names = record(&["a", "a", "", ""]);
    let template = Arc::new(Template::parse_with_names(["{3}"], &names).unwrap());
    let job = template.job(1, record(&["1", "2", "3", "4"])).unwrap();
    assert_eq!(job.argv(1).unwrap(), ["3"]);
}

#[test]
fn a_value_that_is_no_word_is_refused_before_the_job_starts() {
    // Half a character at the end of one column and the start of the next.
    let record = Record::new(b"a\xc3".to_vec()).and(b"\xa9");
    let template = Arc::new(Template::parse(["echo"]).unwrap());
    match template.job(1, record) {
        Ok(job) => assert_eq!(job.argv(1).unwrap()[1].as_encoded_bytes(), b"a\xc3"),
        Err(error) => assert!(error.to_string().starts_with("not valid UTF-8"), "{error}"),
    }
}

#[test]
fn another_text_can_stand_for_the_value() {
    for (text, words, result) in [
        ("%", &["mv", "%", "{}/%x%", "{.}", "{#}"][..], &["mv", "a.b", "{}/a.bxa.b", "a", "7"][..]),
        ("@@", &["@@@", "@"], &["a.b@", "@"]),
        ("{}", &["{}"], &["a.b"]),
        ("{x", &["{x}", "{}"], &["a.b}", "{}"]),
        // Without the text, the value is appended.
        ("%", &["echo", "{}"], &["echo", "{}", "a.b"]),
    ] {
        let template = Arc::new(Template::parse_replacing(words, text).unwrap());
        let job = template.job(7, record(&["a.b"])).unwrap();
        assert_eq!(job.argv(1).unwrap(), result, "{text} {words:?}");
    }
}
