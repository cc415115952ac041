//! The error of an operation that cannot go on.

use pipewright_os::disk::file::Action;

use crate::operation::verb;
use crate::progress::{Next, Progress};
use crate::{DiskFile, Error, ErrorKind};

/// Returns the error of an operation that cannot go on, if it failed. A failed sync poisons the file.
pub(super) fn failure(next: Next, file: &DiskFile, progress: &Progress) -> Option<Error> {
    let (action, path) = (progress.action, Some(file.path()));
    let error = match next {
        Next::Done | Next::Continue { .. } => return None,
        Next::Failed(error) => Error::system(verb(action), path, error),
        Next::Incomplete(kind) => Error::new(verb(action), path, kind),
    };
    let is_sync = matches!(action, Action::SyncAll | Action::SyncData);
    if is_sync && *error.kind() != ErrorKind::Cancelled {
        file.poison();
    }
    Some(error.after(progress.moved))
}
