//! The verdict on a test, derived from evidence alone: were its requests asynchronous?

use std::fmt;

use super::evidence::Evidence;
use crate::{BackendKind, Class, Unjudged};

/// The verdict on the requests of a test: were they asynchronous?
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Verdict {
    /// The disk worked while the caller went on.
    Asynchronous,
    /// Some requests were asynchronous, some were not.
    Partly,
    /// Threads waited for the disk.
    Workers,
    /// The data were in memory, and the calls performed the requests.
    Cached,
    /// The caller waited, although it asked for asynchronous I/O.
    Blocked,
    /// The caller waited, as requested.
    Synchronous,
    /// No verdict is possible here.
    Unknown,
}

impl Verdict {
    /// Returns the verdict on a test.
    #[must_use]
    pub fn of(evidence: &Evidence) -> Verdict {
        const MIN_PERCENT: usize = 95;
        const DEFERRED: [Class; 3] = [Class::AsyncDevice, Class::InlineCached, Class::Worker];
        let asynchronous = [Class::AsyncDevice, Class::AsyncPageWait];
        if !evidence.test.asynchronous {
            Verdict::Synchronous
        } else if evidence.known() == 0 || is_imitated(evidence) {
            Verdict::Unknown
        } else if evidence.tick().is_some() && evidence.is_mostly(&DEFERRED, 50) {
            // The exact share varies between runs.
            Verdict::Partly
        } else if evidence.is_mostly(&asynchronous, MIN_PERCENT) {
            Verdict::Asynchronous
        } else if evidence.is_mostly(&[Class::Worker], MIN_PERCENT) {
            Verdict::Workers
        } else if evidence.is_mostly(&[Class::InlineCached], MIN_PERCENT) {
            Verdict::Cached
        } else if evidence.is_mostly(&[Class::InlineBlocked, Class::PendingButDone], MIN_PERCENT) {
            Verdict::Blocked
        } else {
            Verdict::Partly
        }
    }

    /// Returns a stable, machine-readable name such as `asynchronous` or `workers`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Verdict::Asynchronous => "asynchronous",
            Verdict::Partly => "partly",
            Verdict::Workers => "workers",
            Verdict::Cached => "cached",
            Verdict::Blocked => "blocked",
            Verdict::Synchronous => "synchronous",
            Verdict::Unknown => "unknown",
        }
    }
}

/// Returns true if the results come from an emulator's calls. Engine threads are not emulated.
fn is_imitated(evidence: &Evidence) -> bool {
    evidence.unjudged == Some(Unjudged::Imitation) && evidence.backend == BackendKind::Overlapped
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Verdict::Asynchronous => "truly asynchronous",
            Verdict::Partly => "partly asynchronous",
            Verdict::Workers => "not asynchronous: threads waited",
            Verdict::Cached => "synchronous: the data were in memory",
            Verdict::Blocked => "not asynchronous: the caller waited",
            Verdict::Synchronous => "synchronous, as requested",
            Verdict::Unknown => "cannot be determined here",
        })
    }
}
