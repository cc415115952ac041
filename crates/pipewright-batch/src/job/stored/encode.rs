//! The settings of a job as JSON.

use serde_json::{Map, Value, json};

use super::text::{hex, seconds, value_of};
use crate::job::settings::Settings;
use crate::job::template::Piece;
use crate::job::{Job, JobCommand, JobStdin};

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
    if !resources.tokens.is_empty() {
        let tokens = resources.tokens.iter();
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
