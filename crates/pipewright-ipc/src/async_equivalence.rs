//! Test builds (`PIPEWRIGHT_FORCE=async`) in which each call that waits runs its `_async` counterpart on a runtime of
//! its own, so that the suites test those too. Alone in its file, as in `pipewright`: a macro comes before all modules that
//! use it.

/// Returns the result of the `_async` counterpart in such a build. The registrations of a channel's core end with the
/// runtime.
macro_rules! run_async_for_test {
    ($core:ident, $counterpart:expr) => {
        #[cfg(all(pipewright_test_hooks, feature = "tokio"))]
        if let Some(runtime) = pipewright_os::base::test_hooks::runtime() {
            let done = runtime.block_on($counterpart);
            $core.watch = Default::default();
            return done;
        }
    };
    ($counterpart:expr) => {
        #[cfg(all(pipewright_test_hooks, feature = "tokio"))]
        if let Some(runtime) = pipewright_os::base::test_hooks::runtime() {
            return runtime.block_on($counterpart);
        }
    };
}
