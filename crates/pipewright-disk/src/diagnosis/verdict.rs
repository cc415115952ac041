//! The verdict on a test: whether its requests were asynchronous. Drawn from evidence alone.

use std::fmt;

use super::evidence::Evidence;
use crate::{BackendKind, Class, Unjudged};

/// Whether the requests of a test were asynchronous.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Verdict {
    /// The disk worked while the caller went on.
    Asynchronous,
    /// Some were, some were not.
    Partly,
    /// Threads waited in the caller's place.
    Workers,
    /// Done inside the call, from memory.
    Cached,
    /// The caller waited, though it had asked not to.
    Blocked,
    /// The caller waited, as it had asked for.
    Synchronous,
    /// It cannot be told here.
    Unknown,
}

impl Verdict {
    /// The verdict on a test.
    #[must_use]
    pub fn of(evidence: &Evidence) -> Verdict {
        const MIN_PERCENT: usize = 95;
        const PUT_OFF: [Class; 3] = [Class::AsyncDevice, Class::InlineCached, Class::Worker];
        let asynchronous = [Class::AsyncDevice, Class::AsyncPageWait];
        if !evidence.test.asynchronous {
            Verdict::Synchronous
        } else if evidence.known() == 0 || is_imitated(evidence) {
            Verdict::Unknown
        } else if evidence.tick().is_some() && evidence.is_mostly(&PUT_OFF, 50) {
            // Which share it was is the luck of this run.
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

    /// A name for machines, which stays as it is: `asynchronous`, `workers`.
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

/// What the system said is not what the real one says. Threads of the engine are its own.
fn is_imitated(evidence: &Evidence) -> bool {
    evidence.unjudged == Some(Unjudged::Imitation) && evidence.backend == BackendKind::Overlapped
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Verdict::Asynchronous => "truly asynchronous",
            Verdict::Partly => "partly asynchronous",
            Verdict::Workers => "not asynchronous: threads waited",
            Verdict::Cached => "synchronous: from memory",
            Verdict::Blocked => "not asynchronous: the caller waited",
            Verdict::Synchronous => "synchronous, as asked",
            Verdict::Unknown => "cannot be told here",
        })
    }
}
