//! `pipewright handles`: what this process inherited.

use std::io::Write as _;

use serde::Serialize;

use crate::Failure;
use crate::args::HandlesOptions;

#[derive(Debug, Serialize)]
struct List {
    schema: &'static str,
    handles: Vec<Entry>,
}

#[derive(Debug, Serialize)]
struct Entry {
    number: i64,
    kind: String,
    target: Option<String>,
}

/// Lists the handles.
pub(crate) fn run(options: &HandlesOptions) -> Result<i32, Failure> {
    let handles = pipewright::open_handles()?
        .into_iter()
        .map(|handle| Entry {
            number: handle.number,
            kind: handle.kind.to_string(),
            target: handle.target,
        })
        .collect();
    let list = List { schema: "pipewright.handles/1", handles };
    let mut out = std::io::stdout().lock();
    if options.json {
        writeln!(out, "{}", serde_json::to_string(&list)?)?;
        return Ok(crate::exit_code::SUCCESS);
    }
    for handle in &list.handles {
        let target = handle.target.as_deref().unwrap_or("");
        writeln!(out, "{:>5}  {:<12} {}", handle.number, handle.kind, target.escape_debug())?;
    }
    Ok(crate::exit_code::SUCCESS)
}
