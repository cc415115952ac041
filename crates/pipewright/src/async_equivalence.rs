//! Builds in which each verb that waits calls its `_async` counterpart, so that the suites test both.
//!
//! With `--cfg pipewright_test_hooks` and `PIPEWRIGHT_FORCE=async` such a verb runs its counterpart on a runtime of its own, on the caller's thread
//! alone. It does its usual work inside a runtime, where a second one would be an error, and if no runtime can be
//! created (a test has left no room for its handles).

/// In such a build, returns the counterpart's result from the calling verb.
macro_rules! run_async_for_test {
    ($async_verb:expr) => {
        #[cfg(all(pipewright_test_hooks, feature = "tokio"))]
        if let Some(runtime) = pipewright_os::base::test_hooks::runtime() {
            return runtime.block_on($async_verb);
        }
    };
}
