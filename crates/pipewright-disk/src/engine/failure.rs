//! The error of an operation that cannot go on.

use pipewright_os::disk::file::Action;

use crate::operation::verb;
use crate::progress::{Decision, Progress};
use crate::{DiskFile, Error, ErrorKind};

/// Returns the error of an operation that cannot go on, if it failed. A sync that may have lost data
/// poisons the file.
pub(super) fn failure(next: Decision, file: &DiskFile, progress: &Progress) -> Option<Error> {
    let (action, path) = (progress.action, Some(file.path()));
    let error = match next {
        Decision::Done | Decision::Continue { .. } => return None,
        Decision::Failed(error) => Error::system(verb(action), path, error),
        Decision::Incomplete(kind) => Error::new(verb(action), path, kind),
    };
    let is_sync = matches!(action, Action::SyncAll | Action::SyncData);
    if is_sync && may_lose_data(error.kind()) {
        file.poison();
    }
    Some(error.after(progress.moved))
}

/// Returns true if a sync that fails like this may have lost data. Any failure may, except one that the system reports
/// before it writes anything: the sync was cancelled, or the file has no sync (`EINVAL`, `EOPNOTSUPP`).
fn may_lose_data(kind: &ErrorKind) -> bool {
    !matches!(kind, ErrorKind::Cancelled | ErrorKind::InvalidInput | ErrorKind::Unsupported)
}

#[cfg(test)]
mod tests {
    use std::io::{Error, ErrorKind as IoKind};

    use super::*;

    #[test]
    fn only_failures_of_writing_back_lose_data() {
        for (kind, loses) in [
            (IoKind::StorageFull, true),
            (IoKind::QuotaExceeded, true),
            (IoKind::ReadOnlyFilesystem, true),
            (IoKind::Other, true),
            (IoKind::InvalidInput, false),
            (IoKind::Unsupported, false),
        ] {
            let error = crate::Error::system("sync", None, Error::from(kind));
            assert_eq!(may_lose_data(error.kind()), loses, "{kind:?}");
        }
        assert!(!may_lose_data(&ErrorKind::Cancelled));
        assert!(may_lose_data(&ErrorKind::Device));
    }
}
