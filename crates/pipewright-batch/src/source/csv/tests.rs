//! Tests of CSV.

use proptest::prelude::*;

use super::*;
use crate::source::tests::{error_of, source, words_of};

fn rows(input: &str) -> Vec<(u64, Vec<String>)> {
    let mut rows = Rows::new(InputName::Reader, Box::new(io::Cursor::new(input.to_owned())), 1000);
    let mut all = Vec::new();
    while let Some((line, row)) = rows.next_row().unwrap() {
        let text = |value: &[u8]| String::from_utf8(value.to_vec()).unwrap();
        all.push((line, row.columns().map(text).collect()));
    }
    all
}

fn row(line: u64, values: &[&str]) -> (u64, Vec<String>) {
    (line, values.iter().map(|value| (*value).to_owned()).collect())
}

#[test]
fn rows_have_the_form_of_rfc_4180() {
    assert_eq!(rows("a,b\n1, 2 \n"), [row(1, &["a", "b"]), row(2, &["1", " 2 "])]);
    assert_eq!(rows("a,b\r\n1,2"), [row(1, &["a", "b"]), row(2, &["1", "2"])]);
    assert_eq!(rows(",\n\"\"\n,"), [row(1, &["", ""]), row(2, &[""]), row(3, &["", ""])]);
    assert_eq!(
        rows("\"a,\"\"b\"\"\",\"\r\n\"\nx,y"),
        [row(1, &["a,\"b\"", "\r\n"]), row(3, &["x", "y"])]
    );
    assert_eq!(rows(""), []);
    assert_eq!(rows("\u{e9},\"\u{e9}\""), [row(1, &["\u{e9}", "\u{e9}"])]);
}

#[test]
fn lines_are_counted_through_crlf_blank_lines_and_quotes() {
    // The reader that most programs use counts these wrong.
    let input = "a\r\n\r\n\n1\r\n\"2\r\n\n\"\r\n3\n\n\n4";
    assert_eq!(
        rows(input),
        [row(1, &["a"]), row(4, &["1"]), row(5, &["2\r\n\n"]), row(8, &["3"]), row(11, &["4"])]
    );
    let lines = source(input).csv(["x"]).map(|job| job.unwrap().get_line().unwrap());
    assert_eq!(lines.collect::<Vec<_>>(), [4, 5, 8, 11]);
}

#[test]
fn the_first_row_names_the_columns() {
    let input = "\u{feff}file,\"my size\",x\r\na/b.c,10,1\r\n\"d,\ne\",20,2\r\n";
    let jobs = source(input).csv(["cp", "{file}", "{my size}-{/.}", "{1//}", "{#}", "{x}y"]);
    assert_eq!(
        words_of(jobs),
        [
            ["cp", "a/b.c", "10-b 10 1", "a", "1", "1y"],
            ["cp", "d,\ne", "20-d,\ne 20 2", ".", "2", "2y"],
        ]
    );
    let jobs = source("a,b\n1,2\n").csv(["echo"]);
    assert_eq!(words_of(jobs), [["echo", "1", "2"]]);
    assert_eq!(words_of(source("a,b\n").csv(["echo"])).len(), 0);
}

#[test]
fn a_row_that_readers_guess_at_is_refused() {
    let cases = [
        ("", 0, "line 1 of the input: no first row with the names of the columns"),
        ("a\n1\n\"2\n3\n4", 1, "line 3 of the input: a quote is opened and never closed"),
        ("a\n1\n\"2\n\n\"\"3", 1, "line 3 of the input: a quote is opened and never closed"),
        ("a,b\n\"1\n2\",\"3\n", 0, "line 3 of the input: a quote is opened and never closed"),
        (
            "a\n1\nb\"c\"\n",
            1,
            "line 3 of the input: a quote inside a field: put the field in quotes, and double the quote",
        ),
        (
            "a\n1\n\"b\"c\n",
            1,
            "line 3 of the input: text after a closing quote: double a quote that is part of the field",
        ),
        (
            "a\n1\n\"b\n\" \n",
            1,
            "line 4 of the input: text after a closing quote: double a quote that is part of the field",
        ),
        (
            "a\n1\nb\rc\n",
            1,
            "line 3 of the input: a carriage return without a line feed: put the field in quotes",
        ),
        (
            "a\n1\nb\r",
            1,
            "line 3 of the input: a carriage return without a line feed: put the field in quotes",
        ),
        ("a,b\n1,2\n\n3\n", 1, "line 4 of the input: 1 field, and the first row has 2"),
        ("a,b\n1,2\n3,4,5\n", 1, "line 3 of the input: 3 fields, and the first row has 2"),
        (
            "a\n1\n\0\n",
            1,
            "line 3 of the input: a value has a NUL byte, which no argument can have",
        ),
    ];
    for (input, count, message) in cases {
        assert_eq!(error_of(source(input).csv(["x"])), (count, message.to_owned()), "{input:?}");
    }
    let unknown = source("\na,b\n1,2\n").csv(["x", "{c}"]);
    let message = "line 2 of the input: no column is named \"c\"; the columns are a, b";
    assert_eq!(error_of(unknown), (0, message.to_owned()));
    let missing = source("a,b\n1,2\n").csv(["x", "{3}"]);
    let message = "line 2 of the input: the command uses column 3, and the record has 2 columns";
    assert_eq!(error_of(missing), (0, message.to_owned()));
    let message = "line 1 of the input: the command is empty";
    assert_eq!(error_of(source("a\n").csv([""; 0])), (0, message.to_owned()));
}

#[test]
fn a_byte_order_mark_is_skipped_only_at_the_start_and_whole() {
    for (input, first) in [
        (&b"\xef\xbb\xbfa"[..], &b"a"[..]),
        (b"\xef\xbb\xbf\"a\"", b"a"),
        (b"\xef\xbbx", b"\xef\xbbx"),
        (b"\xef", b"\xef"),
        (b"\xef\xbb\xbf\xef\xbb\xbf", b"\xef\xbb\xbf"),
        (b"a\xef\xbb\xbf", b"a\xef\xbb\xbf"),
    ] {
        let mut rows = Rows::new(InputName::Reader, Box::new(io::Cursor::new(input)), 1000);
        let (_, row) = rows.next_row().unwrap().unwrap();
        assert_eq!(row.column(0), Some(first), "{input:?}");
    }
}

/// Returns a row as text, with quotes where they are needed, or everywhere.
fn written(row: &[String], all_quoted: bool, end: &str) -> String {
    let field = |value: &String| match all_quoted || value.contains([',', '"', '\n', '\r']) {
        true => format!("\"{}\"", value.replace('"', "\"\"")),
        false => value.clone(),
    };
    row.iter().map(field).collect::<Vec<_>>().join(",") + end
}

proptest! {
    #[test]
    fn what_is_written_is_read_back(
        table in prop::collection::vec(prop::collection::vec("[a,\"\\n\\r \u{e9}]{0,5}", 2..4), 0..6),
        all_quoted: bool,
        end in "\n|\r\n",
    ) {
        let text: String = table.iter().map(|row| written(row, all_quoted, &end)).collect();
        let read: Vec<_> = rows(&text).into_iter().map(|(_, row)| row).collect();
        prop_assert_eq!(&read, &table);
    }

    /// Any input gives rows or an error, and the lines of rows are where they begin.
    #[test]
    fn no_input_confuses_the_lines(input in "[ab,\"\\n\\r]{0,30}") {
        let mut rows = Rows::new(InputName::Reader, Box::new(io::Cursor::new(input.clone())), 1000);
        let mut last = 0;
        while let Ok(Some((line, row))) = rows.next_row() {
            prop_assert!(line > last);
            last = line;
            let text = input.split('\n').nth(usize::try_from(line).unwrap() - 1).unwrap();
            let first = String::from_utf8(row.column(0).unwrap().to_vec()).unwrap();
            let start = first.split(['\n', '\r', '"']).next().unwrap();
            prop_assert!(text.trim_start_matches('"').starts_with(start), "{:?} {:?}", text, start);
        }
    }
}
