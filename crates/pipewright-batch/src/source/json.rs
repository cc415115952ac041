//! JSON lines: an object a line is a job.

use std::ffi::OsString;
use std::fmt;
use std::time::Duration;

use serde::de::{Deserialize, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::error::Category;

use super::csv::BYTE_ORDER_MARK;
use super::error::InputError;
use super::lines::Delimited;
use super::{InputErrorKind, ReadJobs};
use crate::job::{Job, JobStdin, os_string};
use crate::units::{parse_duration, parse_size, whole};

/// Lines that are JSON objects.
pub(super) struct JsonLines(Delimited);

impl JsonLines {
    pub(super) fn new(records: Delimited) -> JsonLines {
        JsonLines(records)
    }
}

impl ReadJobs for JsonLines {
    fn next_job(&mut self) -> Result<Option<Job>, InputError> {
        let mut is_first = self.0.count() == 0;
        while let Some(line) = self.0.next_record()? {
            let mark = line.strip_prefix(BYTE_ORDER_MARK).filter(|_| is_first);
            is_first = false;
            let line = mark.unwrap_or(line);
            if line.iter().all(u8::is_ascii_whitespace) {
                continue;
            }
            return match parse(line).and_then(job_of) {
                Ok(job) => Ok(Some(job.on_line(self.0.line()))),
                Err(kind) => Err(self.0.error(kind)),
            };
        }
        Ok(None)
    }
}

fn parse(line: &[u8]) -> Result<Value, InputErrorKind> {
    serde_json::from_slice(line).map_err(|error| {
        let text = error.to_string();
        // A line is one line: its number would be 1 in every message.
        let place = format!(" at line {} column {}", error.line(), error.column());
        let message = match error.classify() {
            Category::Eof => "the line ends too early".to_owned(),
            _ => text.strip_suffix(&place).unwrap_or(&text).to_owned(),
        };
        InputErrorKind::Json { message, column: error.column() }
    })
}

// The fields of a job as a JSON object.

/// The fields, in the order of the documentation.
pub(super) const FIELDS: [&str; 14] = [
    "argv",
    "shell",
    "id",
    "cwd",
    "env",
    "stdin",
    "stdin_file",
    "after",
    "cpus",
    "mem",
    "resources",
    "timeout",
    "retries",
    "once",
];

/// Makes a job of an object.
fn job_of(value: Value) -> Result<Job, InputErrorKind> {
    let Value::Object(fields) = value else {
        let found = value.to_string();
        let message = format!("expected an object, found {found}");
        return Err(InputErrorKind::Json { message, column: 1 });
    };
    check_names(&fields)?;
    let is_command = |(name, _): &(String, Value)| ["argv", "shell"].contains(&name.as_str());
    let (mut commands, settings): (Vec<_>, Vec<_>) = fields.into_iter().partition(is_command);
    let Some((name, value)) = commands.pop() else { return Err(InputErrorKind::MissingCommand) };
    let job = command(Field { name: &name, value })?;
    settings.into_iter().try_fold(job, |job, (name, value)| set(job, Field { name: &name, value }))
}

/// Refuses unknown and repeated fields, and those that exclude each other.
fn check_names(fields: &[(String, Value)]) -> Result<(), InputErrorKind> {
    let names: Vec<&str> = fields.iter().map(|(name, _)| name.as_str()).collect();
    for (index, name) in names.iter().enumerate() {
        let field = || (*name).to_owned();
        if !FIELDS.contains(name) {
            return Err(InputErrorKind::UnknownField { field: field() });
        }
        if names.iter().take(index).any(|earlier| earlier == name) {
            return Err(InputErrorKind::RepeatedField { field: field() });
        }
    }
    for pair in [["argv", "shell"], ["stdin", "stdin_file"]] {
        if pair.iter().all(|name| names.contains(name)) {
            return Err(InputErrorKind::ConflictingFields { fields: pair });
        }
    }
    Ok(())
}

/// Makes a job of `argv` or `shell`.
fn command(field: Field<'_>) -> Result<Job, InputErrorKind> {
    if field.name == "shell" {
        return Ok(Job::shell(field.os_string()?));
    }
    let words = field.items("an array of strings", |word| word.os_string())?;
    match words.split_first() {
        None => Err(InputErrorKind::MissingCommand),
        Some((program, _)) if program.is_empty() => Err(InputErrorKind::EmptyProgram),
        Some((program, args)) => Ok(Job::new(program).args(args)),
    }
}

/// Sets what a field says.
fn set(job: Job, field: Field<'_>) -> Result<Job, InputErrorKind> {
    const NAMES: &str = "an array of strings";
    Ok(match field.name {
        "id" => job.name(field.name_text()?),
        "cwd" => job.current_dir(field.path()?),
        "env" => environment(job, field)?,
        "stdin" => job.stdin(JobStdin::bytes(field.bytes()?)),
        "stdin_file" => job.stdin(JobStdin::file(field.path()?)),
        "after" => field.items(NAMES, |name| name.name_text())?.into_iter().fold(job, Job::after),
        "cpus" => job.cpus(field.count(1)?),
        "mem" => {
            let (bytes, most) = field.size_range()?;
            let job = job.mem_bytes(bytes);
            most.into_iter().fold(job, Job::most_mem_bytes)
        }
        "resources" => {
            let tokens = field.fields("an object of integers", |count| count.count(1))?;
            tokens.into_iter().fold(job, |job, (name, count)| job.resource(name, count))
        }
        "timeout" => job.timeout(field.duration()?),
        "retries" => job.retries(field.count(0)?),
        "once" => job.once(field.boolean()?),
        unknown => return Err(InputErrorKind::UnknownField { field: unknown.to_owned() }),
    })
}

fn environment(job: Job, field: Field<'_>) -> Result<Job, InputErrorKind> {
    let variables = field.fields("an object of strings", |variable| match variable.value {
        Value::Null => Ok(None),
        _ => variable.os_string().map(Some),
    })?;
    variables.into_iter().try_fold(job, |job, (name, value): (String, Option<OsString>)| {
        if name.is_empty() || name.contains(['=', '\0']) {
            return Err(InputErrorKind::WrongField {
                field: "env".to_owned(),
                expected: "names that are not empty and have no \"=\"",
                found: format!("\"{name}\""),
            });
        }
        Ok(match value {
            Some(value) => job.env(name, value),
            None => job.env_remove(name),
        })
    })
}

// JSON values as texts, numbers and names.

const A_SIZE: &str = "a number of bytes, or a size such as 512M, 1.5GiB or 2GB";
const A_DURATION: &str = "a duration such as 200ms, 1.5s, 2m, 1h30m or 1d";

/// A value, and the name of the field that it is in.
struct Field<'a> {
    name: &'a str,
    value: Value,
}

type Converted<T> = Result<T, InputErrorKind>;

impl Field<'_> {
    /// Returns an error: the value is not the expected one.
    fn wrong<T>(&self, expected: &'static str) -> Converted<T> {
        Err(InputErrorKind::WrongField {
            field: self.name.to_owned(),
            expected,
            found: self.value.to_string(),
        })
    }

    /// Returns a string that names something: it is not empty.
    fn name_text(self) -> Converted<String> {
        match self.value {
            Value::Text(text) if !text.is_empty() => Ok(text),
            _ => self.wrong("a string that is not empty"),
        }
    }

    /// Returns a text: a string, or bytes that are not Unicode.
    fn bytes(self) -> Converted<Vec<u8>> {
        const EXPECTED: &str = "a string, or bytes as {\"hex\": \"00ff\"}";
        match self.value {
            Value::Text(text) => Ok(text.into_bytes()),
            Value::Object(fields) => {
                let hex = match &fields[..] {
                    [(name, Value::Text(hex))] if name == "hex" => bytes_of_hex(hex),
                    _ => None,
                };
                let value = Value::Object(fields);
                hex.map_or_else(|| Field { value, ..self }.wrong(EXPECTED), Ok)
            }
            _ => self.wrong(EXPECTED),
        }
    }

    /// Returns a text that is passed to a program.
    fn os_string(self) -> Converted<OsString> {
        let bytes = self.bytes()?;
        if bytes.contains(&0) {
            return Err(InputErrorKind::NulByte);
        }
        Ok(os_string(bytes)?)
    }

    /// Returns a text that names a file.
    fn path(self) -> Converted<OsString> {
        match &self.value {
            Value::Text(text) if text.is_empty() => self.wrong("a path"),
            _ => self.os_string(),
        }
    }

    fn boolean(self) -> Converted<bool> {
        match self.value {
            Value::Bool(value) => Ok(value),
            _ => self.wrong("true or false"),
        }
    }

    /// Returns an integer of at least `least`, which is 0 or 1.
    fn count(self, least: u32) -> Converted<u32> {
        let number = match self.value {
            Value::Whole(number) => u32::try_from(number).ok(),
            _ => None,
        };
        match number.filter(|number| *number >= least) {
            Some(number) => Ok(number),
            None if least == 0 => self.wrong("an integer from 0"),
            None => self.wrong("an integer from 1"),
        }
    }

    fn size_bytes(self) -> Converted<u64> {
        let bytes = match &self.value {
            Value::Whole(bytes) => Some(*bytes),
            // Some writers write large integers as `2e9`.
            Value::Number(bytes) => whole(*bytes).filter(|whole| *whole as f64 == *bytes),
            Value::Text(text) => parse_size(text).ok(),
            _ => None,
        };
        bytes.map_or_else(|| self.wrong(A_SIZE), Ok)
    }

    /// Returns a size, or two as in `2G..16G`, of which the second is not less.
    fn size_range(self) -> Converted<(u64, Option<u64>)> {
        let range = match &self.value {
            Value::Text(text) => text.split_once(".."),
            _ => None,
        };
        let Some((from, to)) = range else { return self.size_bytes().map(|bytes| (bytes, None)) };
        match parse_size(from).ok().zip(parse_size(to).ok()) {
            Some((from, to)) if from <= to => Ok((from, Some(to))),
            _ => self.wrong("a size, or two such as 2G..16G"),
        }
    }

    fn duration(self) -> Converted<Duration> {
        let duration = match &self.value {
            Value::Whole(seconds) => Some(Duration::from_secs(*seconds)),
            Value::Number(seconds) => Duration::try_from_secs_f64(*seconds).ok(),
            Value::Text(text) => parse_duration(text).ok(),
            _ => None,
        };
        duration.map_or_else(|| self.wrong(A_DURATION), Ok)
    }

    /// Converts each item of an array.
    fn items<T>(
        self,
        expected: &'static str,
        convert: impl Fn(Field<'_>) -> Converted<T>,
    ) -> Converted<Vec<T>> {
        let Value::Array(items) = self.value else { return self.wrong(expected) };
        let items = items.into_iter().enumerate().map(|(index, value)| {
            let name = format!("{}[{index}]", self.name);
            convert(Field { name: &name, value })
        });
        items.collect()
    }

    /// Converts each field of an object. Its names are not empty, and none occurs twice.
    fn fields<T>(
        self,
        expected: &'static str,
        convert: impl Fn(Field<'_>) -> Converted<T>,
    ) -> Converted<Vec<(String, T)>> {
        let Value::Object(fields) = self.value else { return self.wrong(expected) };
        let mut converted: Vec<(String, T)> = Vec::new();
        for (key, value) in fields {
            let name = format!("{}.{key}", self.name);
            if converted.iter().any(|(earlier, _)| *earlier == key) {
                return Err(InputErrorKind::RepeatedField { field: name });
            }
            let value = convert(Field { name: &name, value })?;
            converted.push((key, value));
        }
        Ok(converted)
    }
}

/// Returns the bytes of pairs of hexadecimal digits.
fn bytes_of_hex(hex: &str) -> Option<Vec<u8>> {
    let digit = |byte: &u8| char::from(*byte).to_digit(16);
    let pairs = hex.as_bytes().chunks(2).map(|pair| match pair {
        [high, low] => u8::try_from(digit(high)? << 4 | digit(low)?).ok(),
        _ => None,
    });
    pairs.collect()
}

// JSON with all its fields, also repeated ones, which other readers drop.

/// A JSON value.
#[derive(Debug, Clone, PartialEq)]
enum Value {
    Null,
    Bool(bool),
    /// An integer that is not negative.
    Whole(u64),
    /// Another number.
    Number(f64),
    Text(String),
    Array(Vec<Value>),
    /// The fields, in their order.
    Object(Vec<(String, Value)>),
}

impl fmt::Display for Value {
    /// Writes the kind of the value, for errors.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Value::Null => f.write_str("null"),
            Value::Bool(value) => write!(f, "{value}"),
            Value::Whole(value) => write!(f, "{value}"),
            Value::Number(value) => write!(f, "{value}"),
            Value::Text(text) => write!(f, "\"{text}\""),
            Value::Array(items) if items.is_empty() => f.write_str("an empty array"),
            Value::Array(_) => f.write_str("an array"),
            Value::Object(_) => f.write_str("an object"),
        }
    }
}

impl<'de> Deserialize<'de> for Value {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(ValueVisitor)
    }
}

struct ValueVisitor;

impl<'de> Visitor<'de> for ValueVisitor {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_unit<E: Error>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<Value, E> {
        Ok(Value::Whole(value))
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<Value, E> {
        Ok(Value::Number(value as f64))
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<Value, E> {
        Ok(Value::Number(value))
    }

    fn visit_str<E: Error>(self, value: &str) -> Result<Value, E> {
        Ok(Value::Text(value.to_owned()))
    }

    fn visit_string<E: Error>(self, value: String) -> Result<Value, E> {
        Ok(Value::Text(value))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let mut array = Vec::new();
        while let Some(item) = items.next_element()? {
            array.push(item);
        }
        Ok(Value::Array(array))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<Value, A::Error> {
        let mut object = Vec::new();
        while let Some(field) = fields.next_entry()? {
            object.push(field);
        }
        Ok(Value::Object(object))
    }
}

#[cfg(test)]
mod tests {
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
        for (timeout, millis) in [
            ("3", 3000),
            ("0.25", 250),
            ("\"1.5s\"", 1500),
            ("\"2m\"", 120_000),
            ("\"1h\"", 3_600_000),
        ] {
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
        let line =
            r#"{"argv":["a",{"hex":"62C3a9"}],"stdin":{"hex":"00ff"},"env":{"A":{"hex":""}}}"#;
        let expected = Job::new("a").arg("b\u{e9}").stdin(JobStdin::bytes([0, 255])).env("A", "");
        assert_eq!(job(line), expected);
        for hex in
            [r#"{"hex":"0"}"#, r#"{"hex":"0g"}"#, r#"{"hex":1}"#, "{}", r#"{"hex":"00","x":""}"#]
        {
            let message = problem(&format!(r#"{{"argv":["a",{hex}]}}"#));
            let expected = r#"field "argv[1]": expected a string, or bytes as {"hex": "00ff"}, found an object"#;
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
            (
                r#""shell":"a","resources":["link=2"]"#,
                "resources",
                "an object of integers",
                "an array",
            ),
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
            (
                "{\"shell\":\"\\ud800\"}",
                "not valid JSON at column 17: unexpected end of hex escape",
            ),
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
}
