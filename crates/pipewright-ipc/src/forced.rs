//! Builds in which verbs go through their twins, so that the suites prove those too: with
//! `--cfg pipewright_force_async` a verb that waits is its twin with `_async`, on a runtime of its own.

/// Ends the verb by what its twin gives, in such a build; of a channel's core what it was registered with ends with
/// that runtime.
macro_rules! by_its_twin {
    ($core:ident, $twin:expr) => {
        #[cfg(all(pipewright_force_async, feature = "tokio"))]
        if let Some(runtime) = pipewright_os::base::force_async::runtime() {
            let done = runtime.block_on($twin);
            $core.watch = Default::default();
            return done;
        }
    };
    ($twin:expr) => {
        #[cfg(all(pipewright_force_async, feature = "tokio"))]
        if let Some(runtime) = pipewright_os::base::force_async::runtime() {
            return runtime.block_on($twin);
        }
    };
}
