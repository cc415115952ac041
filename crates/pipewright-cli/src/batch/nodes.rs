//! The machines that run the jobs.

use std::io::Cursor;

use pipewright_batch::{InputError, Nodes, Source};

use crate::Failure;
use crate::args::BatchOptions;

/// Returns the nodes that the options name. `None`: this machine.
pub(super) fn nodes(options: &BatchOptions) -> Result<Option<Nodes>, Failure> {
    let (mut nodes, mut count) = (Nodes::new(), 0);
    let mut add = |source: Source| -> Result<(), String> {
        for command in source.commands() {
            let words = command.map_err(|error: InputError| error.to_string())?.argv(1);
            nodes = std::mem::take(&mut nodes).via(words.map_err(|error| error.to_string())?);
            count += 1;
        }
        Ok(())
    };
    for command in &options.via {
        let bytes = command.as_encoded_bytes().to_vec();
        add(Source::new(Cursor::new(bytes))).map_err(|error| Failure(format!("--via: {error}")))?;
    }
    if let Some(path) = &options.via_file {
        add(Source::open(path).map_err(Failure::from_error)?).map_err(Failure)?;
    }
    match (count, &options.worker_path) {
        (0, _) if options.via_file.is_some() || !options.via.is_empty() => {
            return Err(Failure("--via and --via-file name no command".to_owned()));
        }
        (0, Some(_)) => return Err(Failure("--worker-path needs --via".to_owned())),
        (0, None) => return Ok(None),
        (_, Some(path)) => nodes = nodes.worker_path(path),
        (_, None) => {}
    }
    if let Some(jobs) = options.jobs {
        nodes = nodes.slots_per_node(jobs.resolve());
    }
    Ok(Some(nodes))
}
