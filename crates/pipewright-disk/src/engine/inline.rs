//! Operations that need no queue: carried out by plain calls, where they are asked for. Whoever asks gives them
//! their place in the order.

use std::time::Instant;

use pipewright_os::disk::file::Action;

use super::failure::failure;
use super::options::EngineOptions;
use crate::progress::{Next, Progress};
use crate::{Class, Completion, DiskFile, Operation, Result, Times};

/// To its end. What has failed is not tried again in another way: a write that waits for the disk would then
/// succeed without its data.
pub(super) fn perform(operation: &mut Operation) -> Result<Completion> {
    if let Some(rejection) = operation.rejection() {
        return Err(rejection);
    }
    let mut progress = Progress::of(operation);
    let Operation { file, action, buffer, .. } = operation;
    let next = loop {
        let rest = buffer.get_mut(progress.moved..).unwrap_or_default();
        match progress.after(file.os().perform(*action, rest, progress.next_offset())) {
            Next::Continue { .. } => {}
            next => break next,
        }
    };
    match failure(next, file, &progress) {
        Some(error) => Err(error),
        None => Ok(Completion { bytes: progress.moved, order: 0, class: None, times: None }),
    }
}

/// Whether an operation is first tried on the caller.
pub(super) fn is_cached_first(options: &EngineOptions, action: Action, file: &DiskFile) -> bool {
    options.cached_first && action == Action::Read && file.may_be_cached()
}

/// A read of what is in memory. `None`: it is another operation, or not in memory, or makes no sense, which
/// the other ways tell.
pub(crate) fn read_cached(
    options: &EngineOptions,
    operation: &mut Operation,
) -> Option<Completion> {
    let Operation { file, action, buffer, offset, .. } = operation;
    if !is_cached_first(options, *action, file) || i64::try_from(*offset).is_err() {
        return None;
    }
    let queued_at = options.times.then(Instant::now);
    let bytes = file.os().read_cached_at(buffer, *offset).ok().flatten()?;
    if bytes != buffer.len() {
        return None;
    }
    let times = queued_at.map(|queued_at| Times {
        queued_at,
        submitted_at: queued_at,
        started_at: None,
        in_call: None,
        completed_at: Instant::now(),
    });
    let class = options.classes.then_some(Class::InlineCached);
    Some(Completion { bytes, order: 0, class, times })
}
