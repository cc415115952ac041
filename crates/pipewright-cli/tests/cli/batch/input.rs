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
