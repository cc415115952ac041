//! Bad input: nothing of it is started, and the error names the line.

use super::{Place, out, refused};

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
