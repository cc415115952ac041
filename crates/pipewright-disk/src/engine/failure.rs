//! The error of an operation that cannot go on.

use crate::operation::verb;
use crate::progress::{Decision, Progress};
use crate::{DiskFile, Error, ErrorKind};

/// Returns the error of an operation that cannot go on, if it failed. A failed sync that `ran` poisons the file: it may
/// have lost data.
pub(super) fn failure(
    next: Decision,
    file: &DiskFile,
    progress: &Progress,
    ran: bool,
) -> Option<Error> {
    let (action, path) = (progress.action, Some(file.path()));
    let error = match next {
        Decision::Done | Decision::Continue { .. } => return None,
        Decision::Failed(error) => Error::system(verb(action), path, error),
        Decision::Incomplete(kind) => Error::new(verb(action), path, kind),
    };
    if action.is_sync() && ran && may_lose_data(error.kind(), file) {
        file.poison();
    }
    Some(error.after(progress.moved))
}

/// Returns true if a sync that fails like this may have lost data. Any failure may, except that of a sync which the file
/// doesn't have (`EINVAL`, `EOPNOTSUPP`, `ENOSYS`), if it has no data to lose either.
fn may_lose_data(kind: &ErrorKind, file: &DiskFile) -> bool {
    let is_missing = matches!(kind, ErrorKind::InvalidInput | ErrorKind::Unsupported);
    !is_missing || file.os().may_have_unwritten_data()
}

#[cfg(all(test, unix))]
mod tests {
    use std::io::{Error, ErrorKind as IoKind};

    use super::*;

    #[test]
    fn a_failed_sync_loses_nothing_only_where_nothing_is_kept() {
        let regular = DiskFile::options().read(true).open(std::env::current_exe().unwrap());
        let device = DiskFile::options().read(true).open("/dev/null");
        for (file, is_regular) in [(regular.unwrap(), true), (device.unwrap(), false)] {
            for (kind, loses) in [
                (IoKind::StorageFull, true),
                (IoKind::Interrupted, true),
                (IoKind::WouldBlock, true),
                (IoKind::Other, true),
                (IoKind::InvalidInput, is_regular),
                (IoKind::Unsupported, is_regular),
            ] {
                let error = crate::Error::system("sync", None, Error::from(kind));
                assert_eq!(may_lose_data(error.kind(), &file), loses, "{kind:?}");
            }
        }
    }

    #[test]
    fn files_that_the_kernel_answers_itself_keep_nothing() {
        for path in ["/proc/self/status", "/sys/kernel/mm/transparent_hugepage/enabled"] {
            if let Ok(file) = DiskFile::options().read(true).open(path) {
                assert!(!file.os().may_have_unwritten_data(), "{path}");
            }
        }
    }
}
