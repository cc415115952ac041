//! Switches of test builds (`--cfg pipewright_test_hooks`): facilities to do without, and blocking verbs that run as
//! tasks.
//!
//! Such a build reads the variable `PIPEWRIGHT_FORCE` once: the names below, separated by commas. Every other build
//! ignores it, and [`is_forced`] is a constant there.

/// A switch, and its name in `PIPEWRIGHT_FORCE`. `fallback` stands for all facilities that a kernel may lack.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Forced {
    /// `pidfd`: pretends that `pidfd_open`, `CLONE_PIDFD` and `pidfd_send_signal` are refused.
    NoPidfd,
    /// `close_range`: pretends that `close_range` is refused.
    NoCloseRange,
    /// `clone3`: pretends that `clone3` is refused.
    NoClone3,
    /// `cgroup`: pretends that no cgroup can be made.
    NoCgroup,
    /// `supervisor`: pretends that memory cannot be executed, so that there is no supervisor.
    NoSupervisor,
    /// `io_uring`: pretends that `io_uring_setup` is refused.
    NoIoUring,
    /// `memfd`: pretends that `memfd_create` is refused for shared memory.
    NoMemfd,
    /// `rwf_nowait`: pretends that pipes refuse `RWF_NOWAIT`.
    NoRwfNowait,
    /// `vmsplice`: pretends that pipes refuse `RWF_NOWAIT` and that a sandbox refuses `vmsplice`. No kernel lacks it,
    /// so `fallback` does not contain it.
    NoVmsplice,
    /// `vfork`: pretends that `vfork` is `fork`, as on some emulators. No kernel does that, so `fallback` does not
    /// contain it.
    NoSharedMemory,
    /// `async`: each verb that waits runs its `_async` counterpart, on a runtime of its own.
    Async,
}

/// Each switch by its name.
pub const NAMES: [(&str, Forced); 11] = [
    ("pidfd", Forced::NoPidfd),
    ("close_range", Forced::NoCloseRange),
    ("clone3", Forced::NoClone3),
    ("cgroup", Forced::NoCgroup),
    ("supervisor", Forced::NoSupervisor),
    ("io_uring", Forced::NoIoUring),
    ("memfd", Forced::NoMemfd),
    ("rwf_nowait", Forced::NoRwfNowait),
    ("vmsplice", Forced::NoVmsplice),
    ("vfork", Forced::NoSharedMemory),
    ("async", Forced::Async),
];

/// Returns true if a test asks for it. In a process between clone and exec too: the parent has asked before.
#[cfg(not(pipewright_test_hooks))]
#[must_use]
pub const fn is_forced(_: Forced) -> bool {
    false
}

/// Returns the factor of `PIPEWRIGHT_TEST_SCALE`, by which the machine is slower than a usual one: 1 except in a build
/// with test hooks. For a limit that has to hold on an emulated processor as well, such as that of a handshake.
#[cfg(not(pipewright_test_hooks))]
#[must_use]
pub const fn slowness() -> u32 {
    1
}

/// Begins each verb that waits: if a test asks for it (`PIPEWRIGHT_FORCE=async`), the verb returns the result of its
/// `_async` counterpart, on a runtime of its own, on the caller's thread alone. So one suite holds both to the same
/// promises, and no test is written twice. Not a function, since the verb itself has to return. Inside a runtime, where
/// a second one would be an error, and without room for one, the verb does its usual work.
///
/// With a channel's core before the counterpart, the registrations of that core end with the runtime.
#[doc(hidden)]
#[macro_export]
macro_rules! run_async_for_test {
    ($counterpart:expr) => {
        #[cfg(all(pipewright_test_hooks, feature = "tokio"))]
        if let Some(runtime) = $crate::base::test_hooks::runtime() {
            return runtime.block_on($counterpart);
        }
    };
    ($core:ident, $counterpart:expr) => {
        #[cfg(all(pipewright_test_hooks, feature = "tokio"))]
        if let Some(runtime) = $crate::base::test_hooks::runtime() {
            let done = runtime.block_on($counterpart);
            $core.watch = Default::default();
            return done;
        }
    };
}

#[cfg(all(pipewright_test_hooks, feature = "tokio"))]
pub use hooks::runtime;
#[cfg(pipewright_test_hooks)]
pub use hooks::{is_forced, slowness};

#[cfg(pipewright_test_hooks)]
mod hooks {
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::{Forced, NAMES};

    /// The first eight: what a kernel may lack.
    const FALLBACK: u32 = 0xff;
    /// Set once the variable has been read.
    const KNOWN: u32 = 1 << 31;

    static SWITCHES: AtomicU32 = AtomicU32::new(0);

    /// Returns true if `PIPEWRIGHT_FORCE` has its name. A plain load once the variable has been read, so that a process
    /// between clone and exec may ask.
    #[must_use]
    pub fn is_forced(switch: Forced) -> bool {
        let mut switches = SWITCHES.load(Ordering::Relaxed);
        if switches == 0 {
            switches = read() | KNOWN;
            SWITCHES.store(switches, Ordering::Relaxed);
        }
        switches & 1 << switch as u32 != 0
    }

    /// Returns the factor, or 1 if the variable is no number.
    #[must_use]
    pub fn slowness() -> u32 {
        let factor = std::env::var("PIPEWRIGHT_TEST_SCALE").ok();
        factor.and_then(|factor| factor.parse().ok()).unwrap_or(1)
    }

    fn read() -> u32 {
        let names = std::env::var("PIPEWRIGHT_FORCE").unwrap_or_default();
        names.split(',').filter(|name| !name.is_empty()).fold(0, |all, name| {
            let known = NAMES.iter().find(|known| known.0 == name).map(|known| 1 << known.1 as u32);
            let known = known.or((name == "fallback").then_some(FALLBACK));
            assert!(known.is_some(), "PIPEWRIGHT_FORCE names no switch of the tests: {name:?}");
            // `vmsplice` replaces the reads that `RWF_NOWAIT` does.
            let implied = if name == "vmsplice" { 1 << Forced::NoRwfNowait as u32 } else { 0 };
            all | implied | known.unwrap_or_default()
        })
    }

    /// Returns a runtime without threads of its own. `None` unless verbs run as tasks, inside a runtime, and if none
    /// can be made.
    #[cfg(feature = "tokio")]
    #[must_use]
    pub fn runtime() -> Option<tokio::runtime::Runtime> {
        if !is_forced(Forced::Async) || tokio::runtime::Handle::try_current().is_ok() {
            return None;
        }
        tokio::runtime::Builder::new_current_thread().enable_all().build().ok()
    }
}
