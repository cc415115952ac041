//! Builds in which verbs go through their twins, so that the suites prove those too.
//!
//! With `--cfg pipewright_force_async` a verb that waits is its twin with `_async`, on a runtime of its
//! own that has no thread but the caller's. Inside of a runtime, where that would be an error, and where
//! none can be made (a test has left no room for its handles) it is what it always is.

/// Ends the verb by what its twin gives, in such a build.
macro_rules! run_async_for_test {
    ($twin:expr) => {
        #[cfg(all(pipewright_force_async, feature = "tokio"))]
        if let Some(runtime) = pipewright_os::base::forced::runtime() {
            return runtime.block_on($twin);
        }
    };
}
