//! The runtime of builds in which blocking verbs run their async version (`--cfg
//! pipewright_force_async`).

use tokio::runtime::{Builder, Handle, Runtime};

/// Returns a runtime without threads of its own. `None` inside a runtime, and if none can be made.
#[must_use]
pub fn runtime() -> Option<Runtime> {
    if Handle::try_current().is_ok() {
        return None;
    }
    Builder::new_current_thread().enable_all().build().ok()
}
