//! The jobs of every kind of input, and bad input: nothing of it is started.

use super::{Place, err, out, refused, sorted};

#[track_caller]
fn prints(place: &Place, input: &str, args: &[&str], expected: &[&str]) {
    let output = place.batch_of(input, args);
    assert_eq!(output.status.code(), Some(0), "{args:?}: {}", err(&output));
    assert_eq!(sorted(out(&output)), expected, "{args:?}");
}

/// Prints each of its arguments in brackets, on one line.
const WORDS: [&str; 4] = ["sh", "-c", "printf '[%s]' \"$@\"; echo", "words"];

#[test]
fn lines_replace_placeholders_or_are_appended_and_meet_no_shell() {
    let place = Place::new();
    let with = |words: &[&'static str]| [&["--"], &WORDS[..], words].concat();
    prints(&place, "a b\n$HOME;\n", &with(&[]), &["[$HOME;]", "[a b]"]);
    prints(&place, "a b\n", &with(&["x{}y", "z"]), &["[xa by][z]"]);
    let parts = with(&["{.}", "{/}", "{//}", "{/.}", "{#}"]);
    prints(&place, "d/e.txt\n", &parts, &["[d/e][e.txt][d][e][1]"]);
    prints(&place, "last line has no end", &with(&[]), &["[last line has no end]"]);
    prints(&place, "", &with(&[]), &[]);
    prints(&place, "a\nb\0c\0", &[&["-0"], &with(&[])[..]].concat(), &["[a", "[c]", "b]"]);
    place.write("file", "from a file\n");
    prints(&place, "", &[&["--from", "file"], &with(&[])[..]].concat(), &["[from a file]"]);
}

#[test]
fn lines_without_a_command_are_commands_and_a_shell_is_asked_for() {
    let place = Place::new();
    let lines = "printf '%s\\n' 'a  b' \"c d\"\necho '$x' '|' cat\n";
    prints(&place, lines, &[], &["$x | cat", "a  b", "c d"]);
    prints(&place, "x=1; echo $x | tr 1 2\n", &["--shell"], &["2"]);
    refused(&place.batch_of("echo 'open\n", &[]), &["line 1 of stdin"]);
}

#[test]
fn json_and_csv_describe_jobs() {
    let place = Place::new();
    let json = r#"{"id":"b","argv":["cat","made"],"after":["a"]}
{"id":"a","shell":"printf \"$X\" > made; cat","env":{"X":"from a\n"},"stdin":"input\n"}
{"shell":"pwd | sed 's|.*/||'","cwd":"sub"}
"#;
    std::fs::create_dir(place.path("sub")).unwrap();
    prints(&place, json, &["--jsonl"], &["from a", "input", "sub"]);
    let csv = "name,size\n\"a, b\",1\nc,2\n";
    prints(&place, csv, &["--csv", "--", "echo", "{size}:{name}:{1}"], &["1:a, b:a, b", "2:c:c"]);
}

#[test]
fn lists_are_combined() {
    let place = Place::new();
    place.write("list", "x\ny\n");
    let words = ["-k", "--", "echo", "{2}-{1}", ":::", "1", "2", "::::", "list"];
    let output = place.batch(&words);
    assert_eq!(out(&output), "x-1\ny-1\nx-2\ny-2\n");
    let appended = place.batch(&["-k", "--", "echo", ":::", "1", "2", ":::", "a"]);
    assert_eq!(out(&appended), "1 a\n2 a\n");
    refused(&place.batch(&["--", "echo", "::::", "none"]), &["none"]);
}

#[test]
fn a_bad_file_is_refused_with_its_line_and_nothing_is_started() {
    let place = Place::new();
    let touch = r#""argv":["touch","started"]"#;
    for (bad, words) in [
        (format!(r#"{{"id":"a",{touch},"after":["b"]}}"#), &["\"a\" after \"b\""][..]),
        (format!(r#"{{"id":"b",{touch}}}"#), &["lines 1 and 2", "\"b\""]),
        (format!(r#"{{{touch},"after":["nobody"]}}"#), &["line 2", "\"nobody\""]),
        (format!(r#"{{{touch},"tiemout":3}}"#), &["line 2", "unknown field \"tiemout\""]),
        (format!(r#"{{{touch},"cpus":100000}}"#), &["line 2", "100000 CPUs"]),
        (format!(r#"{{{touch},"cpus":-1}}"#), &["line 2", "\"cpus\""]),
        (format!(r#"{{{touch},"mem":"lots"}}"#), &["line 2", "\"mem\"", "\"lots\""]),
        (format!(r#"{{{touch},"tokens":{{"link":1}}}}"#), &["line 2", "\"link\""]),
        (format!(r#"{{{touch},"shell":"x"}}"#), &["line 2", "both"]),
        (r#"{"argv":[]}"#.to_owned(), &["line 2"]),
        ("not json".to_owned(), &["line 2", "JSON"]),
    ] {
        let first = format!(r#"{{"id":"b",{touch},"after":["a"]}}"#);
        let plain = format!(r#"{{"id":"b",{touch}}}"#);
        let first = if bad.contains(r#"after":["b"]"#) { first } else { plain };
        place.write("bad.jsonl", &format!("{first}\n{bad}\n"));
        let output = place.batch(&["--jsonl", "--from", "bad.jsonl"]);
        refused(&output, &[words, &["\"bad.jsonl\""]].concat());
        assert!(!place.path("started").exists(), "{bad}");
    }
    place.write("bad.csv", "a,b\n1,2\n3\n");
    let output = place.batch(&["--csv", "--from", "bad.csv", "--", "touch", "started"]);
    refused(&output, &["line 3 of \"bad.csv\""]);
    let output = place.batch(&["--csv", "--from", "bad.csv", "--", "touch", "{nobody}"]);
    refused(&output, &["\"nobody\"", "a, b"]);
    assert!(!place.path("started").exists());
}

#[test]
fn a_stream_is_refused_at_its_bad_line_and_what_runs_ends() {
    let place = Place::new();
    let input = "{\"shell\":\"echo first\"}\n{\"bad\":1}\n{\"shell\":\"echo third\"}\n";
    let output = place.batch_of(input, &["--jsonl"]);
    refused(&output, &["line 2 of stdin", "\"bad\""]);
    assert!(!out(&output).contains("third"), "{}", out(&output));
}

#[test]
fn a_dry_run_prints_commands_that_a_shell_reads_as_the_same_words() {
    let place = Place::new();
    let values =
        ["a'b", "*", "$HOME", "", "`id`", "two  spaces", "-n", "\\", "ü\u{1}\t", "#x", "~", "!"];
    let words = [&["-k", "--"], &WORDS[..], &[":::"], &values[..]].concat();
    let ran = place.batch(&words);
    let dry = place.batch(&[&["--dry-run"], &words[..]].concat());
    assert_eq!(out(&dry).lines().count(), values.len());
    let shell = place.sh(out(&dry));
    assert_eq!(out(&shell), out(&ran));
    let expected: String = values.map(|value| format!("[{value}]\n")).concat();
    assert_eq!(out(&ran), expected);
    let nothing = place.batch(&["--dry-run", "--log", "run.db", "--", "touch", ":::", "started"]);
    assert_eq!(out(&nothing), "touch started\n");
    assert!(!place.path("started").exists() && !place.path("run.db").exists());
}
