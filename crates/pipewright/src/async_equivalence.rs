//! Builds in which each verb that waits calls its counterpart with `_async`, so that the suites test both.
//!
//! With `--cfg pipewright_force_async` a verb that waits runs its counterpart on a runtime of its own, which has no
//! thread but the caller's. A verb does its usual work inside of a runtime, where that would be an error, and when no
//! runtime can be made (a test has left no room for its handles).

/// Returns the result of the counterpart from the verb, in such a build.
macro_rules! run_async_for_test {
    ($async_verb:expr) => {
        #[cfg(all(pipewright_force_async, feature = "tokio"))]
        if let Some(runtime) = pipewright_os::base::force_async::runtime() {
            return runtime.block_on($async_verb);
        }
    };
}
