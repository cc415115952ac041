//! Operations that need no queue: plain calls on the calling thread. The caller assigns the completion order.

use std::time::Instant;

use pipewright_os::disk::file::Action;

use super::failure::failure;
use super::options::EngineOptions;
use crate::progress::{Decision, Progress};
use crate::{Class, Completion, DiskFile, Operation, Result, Times};

/// Performs the operation to its end. A failure is not retried with another mechanism: a synchronous write
/// would then succeed without its data.
pub(super) fn perform(operation: &mut Operation) -> Result<Completion> {
    if let Some(rejection) = operation.rejection() {
        return Err(rejection);
    }
    let mut progress = Progress::of(operation);
    let Operation { file, action, buffer, .. } = operation;
    let next = loop {
        let rest = buffer.get_mut(progress.moved..).unwrap_or_default();
        match progress.after(file.os().perform(*action, rest, progress.next_offset())) {
            Decision::Continue { .. } => {}
            next => break next,
        }
    };
    match failure(next, file, &progress, true) {
        Some(error) => Err(error),
        None => Ok(Completion { bytes: progress.moved, order: 0, class: None, times: None }),
    }
}

/// Returns true if the operation is first tried on the calling thread.
pub(super) fn is_cached_first(options: &EngineOptions, action: Action, file: &DiskFile) -> bool {
    options.cached_first && action == Action::Read && file.may_be_cached()
}

/// Reads data that are in memory. `None` if the operation is no read, if the data are not in memory, or if the
/// offset is invalid, which the other paths report.
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
