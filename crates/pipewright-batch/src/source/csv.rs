//! Rows of comma-separated values (RFC 4180).

use std::ffi::OsString;
use std::io::{self, BufRead, BufReader, Read};
use std::sync::Arc;

use super::error::{InputError, InputErrorKind, Position};
use super::lines::BUFFER_BYTES;
use super::{InputName, ReadJobs};
use crate::job::{Job, Record, Template};

/// A reader of rows. Stricter than published ones: they take an unclosed quote for a field with the rest of the file.
pub(super) struct Rows {
    name: InputName,
    reader: BufReader<WithoutBom<Box<dyn Read + Send>>>,
    max_bytes: usize,
    /// The number of the line that the next byte is on.
    line: u64,
}

/// A place in a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// Before the first byte of a row.
    RowStart,
    /// Before the first byte of another field.
    FieldStart,
    Plain,
    /// Inside quotes.
    Quoted,
    /// After a quote inside quotes: the closing one, or the first of two.
    Quote,
    /// After a carriage return, before the line feed that belongs to it.
    Return {
        is_blank: bool,
    },
}

/// The effect of a byte on a row.
enum Step {
    Go(State),
    /// Adds the byte to the field.
    Add(State),
    NextField,
    /// Skips a blank line.
    Blank,
    EndOfRow,
}

impl State {
    fn step(self, byte: u8) -> Result<Step, InputErrorKind> {
        Ok(match (self, byte) {
            (State::Quoted, b'"') => Step::Go(State::Quote),
            (State::Quoted, _) => Step::Add(State::Quoted),
            (State::Quote, b'"') => Step::Add(State::Quoted),
            (State::Return { is_blank: true }, b'\n') => Step::Blank,
            (State::Return { is_blank: false }, b'\n') => Step::EndOfRow,
            (State::Return { .. }, _) => return Err(InputErrorKind::LoneCarriageReturn),
            (_, b',') => Step::NextField,
            (State::RowStart, b'\n') => Step::Blank,
            (_, b'\n') => Step::EndOfRow,
            (_, b'\r') => Step::Go(State::Return { is_blank: self == State::RowStart }),
            (State::Quote, _) => return Err(InputErrorKind::TextAfterQuote),
            (State::Plain, b'"') => return Err(InputErrorKind::QuoteInField),
            (_, b'"') => Step::Go(State::Quoted),
            (State::RowStart | State::FieldStart | State::Plain, _) => Step::Add(State::Plain),
        })
    }
}

impl Rows {
    pub(super) fn new(name: InputName, reader: Box<dyn Read + Send>, max_bytes: usize) -> Rows {
        let reader = BufReader::with_capacity(BUFFER_BYTES, WithoutBom::new(reader));
        Rows { name, reader, max_bytes, line: 1 }
    }

    /// Reads the next row, and returns the line that it begins on.
    pub(super) fn next_row(&mut self) -> Result<Option<(u64, Record)>, InputError> {
        let mut row = PartialRow::new(self.line);
        loop {
            let buffer = match self.reader.fill_buf() {
                Ok(buffer) => buffer,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => {
                    let position = Position::Line(self.line);
                    return Err(InputError::io(&self.name, InputErrorKind::Read, position, error));
                }
            };
            let is_end = buffer.is_empty();
            let mut used = 0;
            let mut result = if is_end { row.end().map(Some) } else { Ok(None) };
            for byte in buffer {
                used += 1;
                result = row.take(*byte, self.max_bytes);
                if !matches!(result, Ok(None)) {
                    break;
                }
            }
            self.reader.consume(used);
            match result {
                Ok(None) => {}
                Ok(Some(has_row)) => {
                    self.line = row.line;
                    return Ok(has_row.then_some((row.first_line, row.record)));
                }
                Err((line, kind)) => return Err(self.error(line, kind)),
            }
        }
    }

    fn error(&self, line: u64, kind: impl Into<InputErrorKind>) -> InputError {
        InputError::new(&self.name, Position::Line(line), kind.into())
    }
}

/// A row that is being read.
struct PartialRow {
    record: Record,
    state: State,
    bytes: usize,
    first_line: u64,
    /// The line of the current byte.
    line: u64,
    /// The line of the last opening quote.
    quote_line: u64,
}

/// A problem, and the line that it is on.
type Problem = (u64, InputErrorKind);

impl PartialRow {
    fn new(line: u64) -> PartialRow {
        PartialRow {
            record: Record::default(),
            state: State::RowStart,
            bytes: 0,
            first_line: line,
            line,
            quote_line: line,
        }
    }

    /// Takes the next byte. Returns `Some(true)` at the end of the row.
    fn take(&mut self, byte: u8, max_bytes: usize) -> Result<Option<bool>, Problem> {
        let step = self.state.step(byte).map_err(|kind| (self.line, kind))?;
        if byte == b'\n' {
            self.line += 1;
        }
        self.bytes += 1;
        match step {
            Step::Go(state) => {
                if state == State::Quoted {
                    self.quote_line = self.line;
                }
                self.state = state;
            }
            Step::Add(state) => {
                if self.bytes > max_bytes {
                    return Err((self.first_line, InputErrorKind::TooLong { max_bytes }));
                }
                self.record.extend(&[byte]);
                self.state = state;
            }
            Step::NextField => {
                if self.bytes > max_bytes {
                    return Err((self.first_line, InputErrorKind::TooLong { max_bytes }));
                }
                self.record.begin_column();
                self.state = State::FieldStart;
            }
            Step::Blank => *self = PartialRow::new(self.line),
            Step::EndOfRow => return Ok(Some(true)),
        }
        Ok(None)
    }

    /// Takes the end of the input. Returns true if there is a row.
    fn end(&self) -> Result<bool, Problem> {
        match self.state {
            State::RowStart => Ok(false),
            State::Quoted => Err((self.quote_line, InputErrorKind::UnclosedField)),
            State::Return { .. } => Err((self.line, InputErrorKind::LoneCarriageReturn)),
            State::FieldStart | State::Plain | State::Quote => Ok(true),
        }
    }
}

/// The rows after the first one, as jobs.
pub(super) struct CsvJobs {
    rows: Rows,
    words: Vec<OsString>,
    /// Made of the first row.
    header: Option<Header>,
    number: u64,
}

struct Header {
    template: Arc<Template>,
    column_count: usize,
}

impl CsvJobs {
    pub(super) fn new(rows: Rows, words: Vec<OsString>) -> CsvJobs {
        CsvJobs { rows, words, header: None, number: 0 }
    }

    fn read_header(&mut self) -> Result<Header, InputError> {
        let Some((line, names)) = self.rows.next_row()? else {
            return Err(self.rows.error(1, InputErrorKind::NoHeader));
        };
        let words = std::mem::take(&mut self.words);
        let template = Template::parse_with_names(words, &names);
        let template = template.map_err(|error| self.rows.error(line, error))?;
        Ok(Header { template: Arc::new(template), column_count: names.column_count() })
    }
}

impl ReadJobs for CsvJobs {
    fn next_job(&mut self) -> Result<Option<Job>, InputError> {
        let header = match self.header.take() {
            Some(header) => header,
            None => self.read_header()?,
        };
        let Header { template, column_count } = self.header.insert(header);
        let Some((line, record)) = self.rows.next_row()? else { return Ok(None) };
        let (count, expected) = (record.column_count(), *column_count);
        if count != expected {
            let kind = InputErrorKind::FieldCount { count, expected };
            return Err(self.rows.error(line, kind));
        }
        self.number += 1;
        match template.job(self.number, record) {
            Ok(job) => Ok(Some(job.on_line(line))),
            Err(error) => Err(self.rows.error(line, error)),
        }
    }
}

// Skips a byte order mark, which spreadsheets write at the start of a file.

pub(super) const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// A reader without the byte order mark at its start.
pub(super) struct WithoutBom<R> {
    reader: R,
    /// The bytes that were read to look for the mark, and not yet returned.
    start: Vec<u8>,
    has_looked: bool,
}

impl<R: Read> WithoutBom<R> {
    pub(super) fn new(reader: R) -> WithoutBom<R> {
        WithoutBom { reader, start: Vec::new(), has_looked: false }
    }

    fn look(&mut self) -> io::Result<()> {
        // One byte at a time, and only while they are the mark's: a terminal or a pipe may have nothing else yet.
        while self.start != BYTE_ORDER_MARK {
            let read = (&mut self.reader).take(1).read_to_end(&mut self.start)?;
            if read == 0 || !BYTE_ORDER_MARK.starts_with(&self.start) {
                return Ok(());
            }
        }
        self.start.clear();
        Ok(())
    }
}

impl<R: Read> Read for WithoutBom<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if !self.has_looked {
            self.look()?;
            self.has_looked = true;
        }
        if self.start.is_empty() {
            return self.reader.read(buffer);
        }
        let count = self.start.as_slice().read(buffer)?;
        self.start.drain(..count);
        Ok(count)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::source::tests::{error_of, source, words_of};

    fn rows(input: &str) -> Vec<(u64, Vec<String>)> {
        let mut rows =
            Rows::new(InputName::Reader, Box::new(io::Cursor::new(input.to_owned())), 1000);
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
            assert_eq!(
                error_of(source(input).csv(["x"])),
                (count, message.to_owned()),
                "{input:?}"
            );
        }
        let unknown = source("\na,b\n1,2\n").csv(["x", "{c}"]);
        let message = "line 2 of the input: no column is named \"c\"; the columns are a, b";
        assert_eq!(error_of(unknown), (0, message.to_owned()));
        let missing = source("a,b\n1,2\n").csv(["x", "{3}"]);
        let message =
            "line 2 of the input: the command uses column 3, and the record has 2 columns";
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
}
