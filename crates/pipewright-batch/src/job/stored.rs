//! Jobs as the log keeps them: the command as one line, and the settings as JSON.
//!
//! A job without settings, the usual one, has no JSON at all. The fields are those of JSON lines, where those have one.
//!
//! | field | value |
//! |---|---|
//! | `shell` | true if the command is a line for the shell |
//! | `words` | the words, if `{#}` or `{%}` are in them: an array of pieces for each word |
//! | `number` | the number that replaces `{#}` |
//! | `values` | the values of the record, for the tag |
//! | `env`, `stdin`, `stdin_file`, `after`, `cpus`, `mem`, `tokens`, `timeout`, `retries`, `once` | as in JSON lines |
//! | `env_hex` | variables whose names are not Unicode, by their bytes in hexadecimal |

use std::ffi::OsString;
use std::sync::Arc;
use std::time::Duration;

use pipewright_os::base::os_text::from_encoded_bytes;
use serde_json::{Map, Value, json};

use super::template::{OwnedPiece, Piece};
use super::{Job, JobCommand, JobStdin, Record, Settings, Template, words_of_quoted};

// The settings of a job as JSON.

/// Returns what the log needs besides the words, the name and the directory of a job. `None`: nothing.
///
/// `keep_values`: the values of the record are kept, too, because lines of output are tagged with them.
pub(crate) fn settings(job: &Job, keep_values: bool) -> Option<String> {
    let mut fields = Map::new();
    command(job, keep_values, &mut fields);
    if let Some(settings) = job.settings.as_deref() {
        add(settings, &mut fields);
    }
    (!fields.is_empty()).then(|| Value::Object(fields).to_string())
}

fn command(job: &Job, keep_values: bool, fields: &mut Map<String, Value>) {
    let (template, number, record) = match &job.command {
        JobCommand::Program(_) => return,
        JobCommand::Shell(_) => {
            fields.insert("shell".to_owned(), true.into());
            return;
        }
        JobCommand::Template { template, number, record } => (template, number, record),
    };
    let mut has_markers = false;
    template.pieces(record, &mut |piece| {
        has_markers |= matches!(piece, Piece::Number | Piece::Slot);
    });
    if has_markers {
        let (mut words, mut word) = (Vec::new(), Vec::new());
        template.pieces(record, &mut |piece| match piece {
            Piece::Bytes(bytes) => word.push(value_of(bytes)),
            Piece::Number => word.push(json!({"put": "number"})),
            Piece::Slot => word.push(json!({"put": "slot"})),
            Piece::EndOfWord => words.push(Value::Array(std::mem::take(&mut word))),
        });
        words.extend(job.args.iter().map(|arg| json!([value_of(arg.as_encoded_bytes())])));
        fields.insert("words".to_owned(), words.into());
        fields.insert("number".to_owned(), (*number).into());
    }
    if keep_values {
        let values: Vec<Value> = record.columns().map(value_of).collect();
        fields.insert("values".to_owned(), values.into());
    }
}

fn add(settings: &Settings, fields: &mut Map<String, Value>) {
    let mut put = |name: &str, value: Value| {
        fields.insert(name.to_owned(), value);
    };
    let (mut env, mut env_hex) = (Map::new(), Map::new());
    for (name, value) in &settings.env {
        let value = value.as_ref().map_or(Value::Null, |value| value_of(value.as_encoded_bytes()));
        match name.to_str() {
            Some(name) => env.insert(name.to_owned(), value),
            None => env_hex.insert(hex(name.as_encoded_bytes()), value),
        };
    }
    for (name, variables) in [("env", env), ("env_hex", env_hex)] {
        if !variables.is_empty() {
            put(name, variables.into());
        }
    }
    match &settings.stdin {
        JobStdin::Null => {}
        JobStdin::Bytes(bytes) => put("stdin", value_of(bytes)),
        JobStdin::File(path) => put("stdin_file", value_of(path.as_os_str().as_encoded_bytes())),
    }
    if !settings.after.is_empty() {
        put("after", settings.after.clone().into());
    }
    let resources = &settings.resources;
    if resources.cpus != 1 {
        put("cpus", resources.cpus.into());
    }
    if let Some(bytes) = resources.mem_bytes {
        put("mem", bytes.into());
    }
    if let Some(bytes) = resources.most_mem_bytes {
        put("most_mem", bytes.into());
    }
    if !resources.named.is_empty() {
        let tokens = resources.named.iter();
        put("tokens", tokens.map(|(name, count)| (name.clone(), *count)).collect());
    }
    if let Some(timeout) = settings.timeout {
        put("timeout", seconds(timeout).into());
    }
    if let Some(retries) = settings.retries {
        put("retries", retries.into());
    }
    if let Some(once) = settings.once {
        put("once", once.into());
    }
}

// A job, made again of what the log has.

/// The columns of the log that describe a job.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct StoredJob {
    pub(crate) name: Option<String>,
    /// The words, quoted for a shell.
    pub(crate) command: Vec<u8>,
    pub(crate) current_dir: Option<Vec<u8>>,
    /// JSON.
    pub(crate) settings: Option<String>,
}

impl StoredJob {
    /// Returns the job. `None`: no version of this crate has written that.
    pub(crate) fn job(self) -> Option<Job> {
        let mut fields = match self.settings.as_deref().map(serde_json::from_str) {
            None => Map::new(),
            Some(Ok(Value::Object(fields))) => fields,
            Some(_) => return None,
        };
        let mut job = job_of(&self.command, &mut fields)?;
        if let Some(name) = self.name {
            job = job.name(name);
        }
        if let Some(dir) = self.current_dir {
            job = job.current_dir(os(dir)?);
        }
        fields.into_iter().try_fold(job, |job, (name, value)| set(job, &name, value))
    }
}

fn job_of(line: &[u8], fields: &mut Map<String, Value>) -> Option<Job> {
    let is_shell = fields.remove("shell").map_or(Some(false), |value| value.as_bool())?;
    let number = fields.remove("number").map_or(Some(0), |value| value.as_u64())?;
    let values = fields.remove("values").map(|values| record(array(values)?));
    let template = match fields.remove("words") {
        Some(words) => {
            let words = array(words)?.into_iter().map(|word| {
                let pieces = array(word)?.into_iter().map(piece);
                pieces.collect::<Option<Vec<OwnedPiece>>>()
            });
            Template::of_pieces(words.collect::<Option<Vec<_>>>()?)?
        }
        None => {
            let words = words_of_quoted(line)?.into_iter().map(os);
            let words = words.collect::<Option<Vec<OsString>>>()?;
            if is_shell {
                return shell(words);
            }
            if values.is_none() {
                let (program, args) = words.split_first()?;
                return Some(Job::new(program).args(args));
            }
            Template::of_literals(words)
        }
    };
    let record = values.unwrap_or_else(|| Some(Record::default()))?;
    let template = Arc::new(template);
    Some(Job::from_command(JobCommand::Template { template, number, record }))
}

/// Undoes [`Job::argv`] of a line for the shell.
fn shell(words: Vec<OsString>) -> Option<Job> {
    let mut words = words.into_iter().skip(2);
    let job = Job::shell(words.next()?);
    Some(job.args(words.skip(1)))
}

fn set(job: Job, name: &str, value: Value) -> Option<Job> {
    let count = |value: &Value| value.as_u64().and_then(|count| u32::try_from(count).ok());
    Some(match name {
        "env" | "env_hex" => object(value)?.into_iter().try_fold(job, |job, (key, value)| {
            let name = if name == "env" { key.into_bytes() } else { unhex(&key)? };
            let name = os(name)?;
            Some(match value {
                Value::Null => job.env_remove(name),
                value => job.env(name, os(bytes_of(value)?)?),
            })
        })?,
        "stdin" => job.stdin(JobStdin::Bytes(bytes_of(value)?)),
        "stdin_file" => job.stdin(JobStdin::file(os(bytes_of(value)?)?)),
        "after" => {
            array(value)?.into_iter().try_fold(job, |job, name| Some(job.after(name.as_str()?)))?
        }
        "cpus" => job.cpus(count(&value)?),
        "mem" => job.mem_bytes(value.as_u64()?),
        "most_mem" => job.most_mem_bytes(value.as_u64()?),
        "tokens" => object(value)?
            .into_iter()
            .try_fold(job, |job, (name, value)| Some(job.resource(name, count(&value)?)))?,
        "timeout" => job.timeout(duration(value.as_str()?)?),
        "retries" => job.retries(count(&value)?),
        "once" => job.once(value.as_bool()?),
        _ => return None,
    })
}

fn record(values: Vec<Value>) -> Option<Record> {
    let mut values = values.into_iter().map(bytes_of);
    let first = Record::new(values.next()??);
    values.try_fold(first, |record, value| Some(record.and(value?)))
}

fn piece(value: Value) -> Option<OwnedPiece> {
    match value.get("put").and_then(Value::as_str) {
        Some("number") => Some(OwnedPiece::Number),
        Some("slot") => Some(OwnedPiece::Slot),
        Some(_) => None,
        None => bytes_of(value).map(OwnedPiece::Bytes),
    }
}

fn os(bytes: Vec<u8>) -> Option<OsString> {
    from_encoded_bytes(bytes).ok()
}

fn array(value: Value) -> Option<Vec<Value>> {
    match value {
        Value::Array(items) => Some(items),
        _ => None,
    }
}

fn object(value: Value) -> Option<Map<String, Value>> {
    match value {
        Value::Object(fields) => Some(fields),
        _ => None,
    }
}

// Bytes that are mostly text, and times, in JSON.

/// Returns a string, or an object with the bytes in hexadecimal if they are not UTF-8.
pub(super) fn value_of(bytes: &[u8]) -> Value {
    match std::str::from_utf8(bytes) {
        Ok(text) => text.into(),
        Err(_) => Value::Object(Map::from_iter([("hex".to_owned(), hex(bytes).into())])),
    }
}

pub(super) fn bytes_of(value: Value) -> Option<Vec<u8>> {
    match value {
        Value::String(text) => Some(text.into_bytes()),
        Value::Object(mut fields) if fields.len() == 1 => {
            unhex(fields.remove("hex")?.as_str().unwrap_or("?"))
        }
        _ => None,
    }
}

pub(super) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

pub(super) fn unhex(hex: &str) -> Option<Vec<u8>> {
    let digit = |byte: &u8| char::from(*byte).to_digit(16);
    let pairs = hex.as_bytes().chunks(2).map(|pair| match pair {
        [high, low] => u8::try_from(digit(high)? << 4 | digit(low)?).ok(),
        _ => None,
    });
    pairs.collect()
}

/// Returns a time as text, because a JSON number would round it.
pub(super) fn seconds(time: Duration) -> String {
    match time.subsec_nanos() {
        0 => format!("{}s", time.as_secs()),
        nanos => {
            let fraction = format!("{nanos:09}");
            format!("{}.{}s", time.as_secs(), fraction.trim_end_matches('0'))
        }
    }
}

pub(super) fn duration(text: &str) -> Option<Duration> {
    let number = text.strip_suffix('s')?;
    let (whole, fraction) = number.split_once('.').unwrap_or((number, "0"));
    let is_number = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    if !is_number(whole) || !is_number(fraction) || fraction.len() > 9 {
        return None;
    }
    Some(Duration::new(whole.parse().ok()?, format!("{fraction:0<9}").parse().ok()?))
}

#[cfg(test)]
mod tests {
    use std::ffi::OsString;
    use std::time::Duration;

    use proptest::collection::{btree_map, vec};
    use proptest::option;
    use proptest::prelude::*;

    use super::StoredJob;
    use crate::job::{Job, JobId, JobStdin, Record, Template, shell_quoted};

    /// Returns the job as a log keeps it. `tagged`: with the values of its record.
    fn stored(job: &Job, tagged: bool) -> StoredJob {
        StoredJob {
            name: job.get_name().map(ToOwned::to_owned),
            command: shell_quoted(&job.argv(3).unwrap()),
            current_dir: job
                .get_current_dir()
                .map(|dir| dir.as_os_str().as_encoded_bytes().to_vec()),
            settings: super::settings(job, tagged),
        }
    }

    #[track_caller]
    fn check(job: &Job) {
        for tagged in [true, false] {
            let back = stored(job, tagged).job().unwrap();
            assert_eq!(JobId::new(&back, 0), JobId::new(job, 0));
            assert_eq!(back.is_shell(), job.is_shell());
            for slot in [1, 3, 40] {
                assert_eq!(back.argv(slot), job.argv(slot));
            }
            assert_eq!(back.settings(), job.settings());
            if tagged {
                assert_eq!(back.record_text(), job.record_text());
            }
        }
    }

    #[test]
    fn a_job_without_settings_stores_nothing_more() {
        let template = std::sync::Arc::new(Template::parse(["gzip", "-k"]).unwrap());
        let from_line = template.job(1, Record::new("it's")).unwrap();
        for job in [Job::new("true"), Job::new("a b").args(["", "c"]), from_line] {
            assert_eq!(super::settings(&job, false), None);
            check(&job);
        }
    }

    #[test]
    fn texts_that_no_job_has_are_refused() {
        let refused = |command: &[u8], settings: Option<&str>| {
            let settings = settings.map(ToOwned::to_owned);
            let job = StoredJob { command: command.to_vec(), settings, ..StoredJob::default() };
            assert_eq!(job.job(), None);
        };
        refused(b"'open", None);
        refused(br"a\b", None);
        refused(b"sh -c", Some(r#"{"shell":true}"#));
        for settings in ["?", "[]", r#"{"other":1}"#, r#"{"cpus":-1}"#, r#"{"timeout":"1"}"#] {
            refused(b"true", Some(settings));
        }
        for settings in
            [r#"{"words":[]}"#, r#"{"words":[[{"put":"x"}]]}"#, r#"{"stdin":{"hex":"0"}}"#]
        {
            refused(b"true", Some(settings));
        }
    }

    #[cfg(not(windows))]
    fn bytes() -> impl Strategy<Value = Vec<u8>> {
        prop_oneof![
            3 => "[a-z{}#%' \n\"\\\\\u{e9}$]{0,6}".prop_map(String::into_bytes),
            1 => vec(1_u8..=255, 0..5),
        ]
    }

    #[cfg(not(windows))]
    fn word() -> impl Strategy<Value = OsString> {
        bytes().prop_map(|bytes| crate::job::os_string(bytes).unwrap())
    }

    /// Texts with surrogates that have no pair.
    #[cfg(windows)]
    fn word() -> impl Strategy<Value = OsString> {
        use std::os::windows::ffi::OsStringExt;
        let unit = prop_oneof![4 => 1_u16..0x80, 1 => 0xd7f0_u16..0xe010];
        vec(unit, 0..5).prop_map(|units| OsString::from_wide(&units))
    }

    fn value() -> impl Strategy<Value = Vec<u8>> {
        word().prop_filter_map("not Unicode", |word| {
            let bytes = word.as_encoded_bytes().to_vec();
            crate::job::os_string(bytes.clone()).is_ok().then_some(bytes)
        })
    }

    fn command() -> impl Strategy<Value = Job> {
        let template_word = prop_oneof![
            2 => word(),
            1 => Just("{}".into()), 1 => Just("{#}".into()), 1 => Just("-{%}x{/}".into()), 1 => Just("{#}{2.}".into()),
        ];
        let from_template = (vec(template_word, 1..4), vec(value(), 2..4), 1_u64..u64::MAX);
        let from_template =
            from_template.prop_filter_map("no template", |(words, values, number)| {
                let template = std::sync::Arc::new(Template::parse(words).ok()?);
                let mut values = values.into_iter();
                let record = Record::new(values.next()?);
                template.job(number, values.fold(record, Record::and)).ok()
            });
        prop_oneof![word().prop_map(Job::new), word().prop_map(Job::shell), from_template]
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2000))]

        #[test]
        fn any_job_is_read_back(
            (job, args, dir, env) in (
                command(), vec(word(), 0..3), option::of(word()), btree_map(word(), option::of(word()), 0..3),
            ),
            (stdin, after, name) in (0..4, vec(".{0,4}", 0..3), option::of(".{0,4}")),
            input in vec(any::<u8>(), 0..9),
            (cpus, mem, tokens) in (
                option::of(any::<u32>()), option::of(any::<u64>()), btree_map(".{0,3}", any::<u32>(), 0..2),
            ),
            (timeout, retries, once) in (
                option::of((any::<u64>(), 0..1_000_000_000_u32)), option::of(any::<u32>()), option::of(any::<bool>()),
            ),
        ) {
            let mut job = job.args(args);
            job = env.into_iter().fold(job, |job, (name, value)| match value {
                Some(value) => job.env(name, value),
                None => job.env_remove(name),
            });
            job = after.into_iter().fold(job, Job::after);
            job = tokens.into_iter().fold(job, |job, (name, count)| job.resource(name, count));
            job = match stdin {
                1 => job.stdin(JobStdin::bytes(input)),
                2 => job.stdin(JobStdin::file("in put")),
                _ => job,
            };
            if let Some(dir) = dir { job = job.current_dir(dir); }
            if let Some(name) = name { job = job.name(name); }
            if let Some(cpus) = cpus { job = job.cpus(cpus); }
            if let Some(mem) = mem { job = job.mem_bytes(mem); }
            if let Some((secs, nanos)) = timeout { job = job.timeout(Duration::new(secs, nanos)); }
            if let Some(retries) = retries { job = job.retries(retries); }
            if let Some(once) = once { job = job.once(once); }
            check(&job);
        }
    }
}
