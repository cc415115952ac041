//! The runtime of builds in which verbs that wait go through their twins for tasks (`--cfg pipewright_force_async`).

use tokio::runtime::{Builder, Handle, Runtime};

/// A runtime that has no thread but the caller's. `None` inside of one, and where none can be made.
#[must_use]
pub fn runtime() -> Option<Runtime> {
    if Handle::try_current().is_ok() {
        return None;
    }
    Builder::new_current_thread().enable_all().build().ok()
}
