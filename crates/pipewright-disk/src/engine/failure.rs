//! The error of an operation that cannot go on.

use pipewright_os::disk::file::Action;

use crate::operation::verb;
use crate::progress::{Decision, Progress};
use crate::{DiskFile, Error, ErrorKind};

/// Returns the error of an operation that cannot go on, if it failed. A failed sync poisons the file.
pub(super) fn failure(next: Decision, file: &DiskFile, progress: &Progress) -> Option<Error> {
    let (action, path) = (progress.action, Some(file.path()));
    let error = match next {
        Decision::Done | Decision::Continue { .. } => return None,
        Decision::Failed(error) => Error::system(verb(action), path, error),
        Decision::Incomplete(kind) => Error::new(verb(action), path, kind),
    };
    let is_sync = matches!(action, Action::SyncAll | Action::SyncData);
    if is_sync && *error.kind() != ErrorKind::Cancelled {
        file.poison();
    }
    Some(error.after(progress.moved))
}
