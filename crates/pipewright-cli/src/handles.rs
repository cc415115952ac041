//! `pipewright handles`: the handles that this process inherited.

use pipewright_os::base::stdio;
use serde::Serialize;

use crate::Failure;
use crate::args::HandlesOptions;
use crate::print::{print, print_json};

#[derive(Debug, Serialize)]
struct List {
    schema: &'static str,
    handles: Vec<HandleEntry>,
}

#[derive(Debug, Serialize)]
struct HandleEntry {
    number: i64,
    kind: String,
    target: Option<String>,
}

/// Lists the handles.
pub(crate) fn run(options: &HandlesOptions) -> Result<i32, Failure> {
    let handles = pipewright::open_handles()
        .map_err(Failure::cannot("list the handles"))?
        .into_iter()
        // Placeholders for streams that were closed: they were not inherited.
        .filter(|handle| !u8::try_from(handle.number).is_ok_and(stdio::was_closed))
        .map(|handle| HandleEntry {
            number: handle.number,
            kind: handle.kind.to_string(),
            target: handle.target,
        })
        .collect();
    let list = List { schema: "pipewright.handles/1", handles };
    if options.json {
        print_json(&list)?;
        return Ok(crate::exit_code::SUCCESS);
    }
    let line = |handle: &HandleEntry| {
        let target = handle.target.as_deref().unwrap_or("");
        format!("{:>5}  {:<12} {}\n", handle.number, handle.kind, target.escape_debug())
    };
    print(list.handles.iter().map(line).collect::<String>())?;
    Ok(crate::exit_code::SUCCESS)
}
