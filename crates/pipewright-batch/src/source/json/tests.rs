//! Tests of JSON lines.

use std::time::Duration;

use crate::job::{Job, JobStdin};
use crate::source::tests::{error_of, source};

#[track_caller]
fn job(line: &str) -> Job {
    let mut jobs = source(line).json_lines();
    let job = jobs.next().unwrap().unwrap();
    assert!(jobs.next().is_none());
    job
}

/// Returns the problem of a line, without its number.
#[track_caller]
fn problem(line: &str) -> String {
    let input = format!("{{\"shell\":\"x\"}}\n{line}\n");
    let (count, error) = error_of(source(input).json_lines());
    assert_eq!(count, 1);
    error.strip_prefix("line 2 of the input: ").unwrap().to_owned()
}

#[test]
fn every_field_is_read() {
    let line = r#"{"id":"n","argv":["a","b c",""],"cwd":"/d","env":{"A":"1","B":null},"stdin":"in\u0000",
        "after":["x","y"],"cpus":2,"mem":"2G","resources":{"link":2},"timeout":1.5,"retries":0,"once":true}"#;
    let expected = Job::new("a")
        .args(["b c", ""])
        .name("n")
        .current_dir("/d")
        .env("A", "1")
        .env_remove("B")
        .stdin(JobStdin::bytes("in\0"))
        .after("x")
        .after("y")
        .cpus(2)
        .mem_bytes(2 << 30)
        .resource("link", 2)
        .timeout(Duration::from_millis(1500))
        .retries(0)
        .once(true);
    assert_eq!(job(&line.replace('\n', "")), expected);
    let expected = Job::shell("a | b").stdin(JobStdin::file("f")).once(false);
    assert_eq!(job(r#"{"once":false,"stdin_file":"f","shell":"a | b"}"#), expected);
}

#[test]
fn memory_may_be_a_range() {
    let resources =
        |mem: &str| job(&format!(r#"{{"shell":"x","mem":"{mem}"}}"#)).get_resources().clone();
    let range = resources("2G..16G");
    assert_eq!((range.mem_bytes, range.most_mem_bytes), (Some(2 << 30), Some(16 << 30)));
    assert_eq!(resources("512M").most_mem_bytes, None);
}

#[test]
fn sizes_and_times_may_be_numbers_or_texts() {
    for (mem, bytes) in [
        ("7", 7),
        ("2e9", 2_000_000_000),
        ("\"7\"", 7),
        ("\"512M\"", 512 << 20),
        ("\"1.5KiB\"", 1536),
        ("\"2GB\"", 2_000_000_000),
    ] {
        let line = format!(r#"{{"shell":"x","mem":{mem}}}"#);
        assert_eq!(job(&line).get_resources().mem_bytes, Some(bytes), "{mem}");
    }
    for (timeout, millis) in
        [("3", 3000), ("0.25", 250), ("\"1.5s\"", 1500), ("\"2m\"", 120_000), ("\"1h\"", 3_600_000)]
    {
        let line = format!(r#"{{"shell":"x","timeout":{timeout}}}"#);
        assert_eq!(job(&line).get_timeout(), Some(Duration::from_millis(millis)), "{timeout}");
    }
}

#[test]
fn braces_have_no_meaning() {
    assert_eq!(job(r#"{"argv":["echo","{}","{#}"]}"#).argv(1).unwrap(), ["echo", "{}", "{#}"]);
}

#[test]
fn blank_lines_carriage_returns_and_a_byte_order_mark_are_skipped() {
    let input = "\u{feff}{\"shell\":\"a\"}\r\n\r\n \t\n{\"shell\":\"b\"}";
    let jobs: Vec<Job> = source(input).json_lines().map(Result::unwrap).collect();
    assert_eq!(jobs, [Job::shell("a"), Job::shell("b")]);
    assert_eq!(jobs[1].get_line(), Some(4));
    assert!(problem("\u{feff}{\"shell\":\"a\"}").starts_with("not valid JSON at column 1: "));
}

#[test]
fn hexadecimal_bytes_are_texts() {
    let line = r#"{"argv":["a",{"hex":"62C3a9"}],"stdin":{"hex":"00ff"},"env":{"A":{"hex":""}}}"#;
    let expected = Job::new("a").arg("b\u{e9}").stdin(JobStdin::bytes([0, 255])).env("A", "");
    assert_eq!(job(line), expected);
    for hex in [r#"{"hex":"0"}"#, r#"{"hex":"0g"}"#, r#"{"hex":1}"#, "{}", r#"{"hex":"00","x":""}"#]
    {
        let message = problem(&format!(r#"{{"argv":["a",{hex}]}}"#));
        let expected =
            r#"field "argv[1]": expected a string, or bytes as {"hex": "00ff"}, found an object"#;
        assert_eq!(message, expected);
    }
}

#[test]
fn commands_are_there_once() {
    assert_eq!(problem("{}"), r#"no command: write "argv" or "shell""#);
    assert_eq!(problem(r#"{"argv":[]}"#), r#"no command: write "argv" or "shell""#);
    assert_eq!(problem(r#"{"argv":[""]}"#), "the first word is empty");
    assert_eq!(
        problem(r#"{"argv":["a"],"shell":"a"}"#),
        r#"both "argv" and "shell"; write one of them"#
    );
    assert_eq!(problem(r#"{"shell":"a","shell":"b"}"#), r#"field "shell" occurs twice"#);
    assert_eq!(
        problem(r#"{"shell":"a","stdin":"a","stdin_file":"b"}"#),
        r#"both "stdin" and "stdin_file"; write one of them"#
    );
    assert_eq!(
        problem(r#"{"shell":"a","env":{"A":"1","A":"2"}}"#),
        r#"field "env.A" occurs twice"#
    );
}

#[test]
fn an_unknown_field_is_refused_with_the_known_ones() {
    assert_eq!(
        problem(r#"{"shell":"a","Shell":"b"}"#),
        "unknown field \"Shell\"; the fields are argv, shell, id, cwd, env, stdin, stdin_file, after, cpus, \
         mem, resources, timeout, retries, once"
    );
}

#[test]
fn durations_and_sizes_are_those_of_the_command_line() {
    let job = job(r#"{"shell":"a","timeout":"1h30m","mem":"1kib..1T"}"#);
    let expected = Job::shell("a").timeout(Duration::from_secs(5400)).mem_bytes(1024);
    assert_eq!(job, expected.most_mem_bytes(1 << 40));
}

#[test]
fn a_wrong_type_is_refused_with_the_expected_one() {
    const TEXT: &str = r#"a string, or bytes as {"hex": "00ff"}"#;
    const NAME: &str = "a string that is not empty";
    const RANGE: &str = "a size, or two such as 2G..16G";
    const SIZE: &str = "a number of bytes, or a size such as 512M, 1.5GiB or 2GB";
    const TIME: &str = "a duration such as 200ms, 1.5s, 2m, 1h30m or 1d";
    for (field, name, expected, found) in [
        (r#""argv":"a b""#, "argv", "an array of strings", "\"a b\""),
        (r#""argv":["a",3]"#, "argv[1]", TEXT, "3"),
        (r#""argv":["a",null]"#, "argv[1]", TEXT, "null"),
        (r#""shell":["a"]"#, "shell", TEXT, "an array"),
        (r#""shell":"a","id":1"#, "id", NAME, "1"),
        (r#""shell":"a","id":"""#, "id", NAME, "\"\""),
        (r#""shell":"a","cwd":true"#, "cwd", TEXT, "true"),
        (r#""shell":"a","cwd":"""#, "cwd", "a path", "\"\""),
        (r#""shell":"a","cwd":null"#, "cwd", TEXT, "null"),
        (r#""shell":"a","env":["A=1"]"#, "env", "an object of strings", "an array"),
        (r#""shell":"a","env":{"A":1}"#, "env.A", TEXT, "1"),
        (
            r#""shell":"a","env":{"A=B":"1"}"#,
            "env",
            "names that are not empty and have no \"=\"",
            "\"A=B\"",
        ),
        (
            r#""shell":"a","env":{"":null}"#,
            "env",
            "names that are not empty and have no \"=\"",
            "\"\"",
        ),
        (r#""shell":"a","stdin":[]"#, "stdin", TEXT, "an empty array"),
        (r#""shell":"a","stdin_file":"""#, "stdin_file", "a path", "\"\""),
        (r#""shell":"a","after":"b""#, "after", "an array of strings", "\"b\""),
        (r#""shell":"a","after":["b",""]"#, "after[1]", NAME, "\"\""),
        (r#""shell":"a","cpus":0"#, "cpus", "an integer from 1", "0"),
        (r#""shell":"a","cpus":1.5"#, "cpus", "an integer from 1", "1.5"),
        (r#""shell":"a","cpus":"2""#, "cpus", "an integer from 1", "\"2\""),
        (r#""shell":"a","cpus":4294967296"#, "cpus", "an integer from 1", "4294967296"),
        (r#""shell":"a","mem":-1"#, "mem", SIZE, "-1"),
        (r#""shell":"a","mem":1.5"#, "mem", SIZE, "1.5"),
        (r#""shell":"a","mem":"2 G""#, "mem", SIZE, "\"2 G\""),
        (r#""shell":"a","mem":"2G..1G""#, "mem", RANGE, "\"2G..1G\""),
        (r#""shell":"a","mem":"2G..""#, "mem", RANGE, "\"2G..\""),
        (r#""shell":"a","resources":["link=2"]"#, "resources", "an object of integers", "an array"),
        (r#""shell":"a","resources":{"link":0}"#, "resources.link", "an integer from 1", "0"),
        (r#""shell":"a","timeout":-1"#, "timeout", TIME, "-1"),
        (r#""shell":"a","timeout":"soon""#, "timeout", TIME, "\"soon\""),
        (r#""shell":"a","timeout":1e300"#, "timeout", TIME, "1e300"),
        (r#""shell":"a","retries":-1"#, "retries", "an integer from 0", "-1"),
        (r#""shell":"a","once":1"#, "once", "true or false", "1"),
    ] {
        let message = problem(&format!("{{{field}}}"));
        let shown = format!("field \"{name}\": expected {expected}, found ");
        let rest = message.strip_prefix(&shown);
        assert!(rest.is_some_and(|rest| rest == found || field.contains("1e300")), "{message}");
    }
}

#[test]
fn a_nul_byte_is_refused_where_a_program_would_not_get_it() {
    let nul = "a value has a NUL byte, which no argument can have";
    for field in [
        r#""argv":["a","\u0000"]"#,
        r#""shell":"\u0000""#,
        r#""shell":"a","cwd":"\u0000""#,
        r#""shell":"a","env":{"A":"\u0000"}"#,
        r#""shell":"a","stdin_file":"\u0000""#,
    ] {
        assert_eq!(problem(&format!("{{{field}}}")), nul);
    }
}

#[test]
fn text_that_is_no_object_is_refused() {
    for (line, message) in [
        ("[1]", "not valid JSON at column 1: expected an object, found an array"),
        ("x", "not valid JSON at column 1: expected value"),
        (r#"{"shell":"a""#, "not valid JSON at column 12: the line ends too early"),
        (r#"{"shell":"a"} {}"#, "not valid JSON at column 15: trailing characters"),
        (r#"{"shell":"a",}"#, "not valid JSON at column 14: trailing comma"),
        ("{\"shell\":\"\\ud800\"}", "not valid JSON at column 17: unexpected end of hex escape"),
        ("{\"shell\":1e999}", "not valid JSON at column 14: number out of range"),
    ] {
        assert_eq!(problem(line), message);
    }
    let deep = format!("{{\"argv\":{}", "[".repeat(10_000));
    assert!(problem(&deep).ends_with("recursion limit exceeded"));
    let (_, error) = error_of(source(b"{\"shell\":\"\xff\"}").json_lines());
    assert_eq!(
        error,
        "line 1 of the input: not valid JSON at column 11: invalid unicode code point"
    );
}

#[test]
fn a_long_value_is_cut_in_the_message() {
    let message = problem(&format!(r#"{{"shell":"a","cpus":"{}\n"}}"#, "x".repeat(5000)));
    assert!(message.len() < 700 && message.ends_with("..."), "{message}");
    let message = problem(&format!(r#"{{"shell":"a","{}":1}}"#, "x".repeat(5000)));
    assert!(message.len() < 800, "{message}");
}
