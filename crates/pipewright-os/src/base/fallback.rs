//! The kernel facilities that this build pretends are missing.

/// Pretends that `pidfd_open`, `CLONE_PIDFD` and `pidfd_send_signal` are refused.
#[cfg(feature = "process")]
pub(crate) const NO_PIDFD: bool =
    cfg!(any(pipewright_force_fallback, pipewright_force_fallback = "pidfd"));

/// Pretends that `close_range` is refused.
#[cfg(feature = "process")]
pub(crate) const NO_CLOSE_RANGE: bool =
    cfg!(any(pipewright_force_fallback, pipewright_force_fallback = "close_range"));

/// Pretends that `clone3` is refused.
#[cfg(feature = "process")]
pub(crate) const NO_CLONE3: bool =
    cfg!(any(pipewright_force_fallback, pipewright_force_fallback = "clone3"));

/// Pretends that vfork is fork, as on some emulators. No kernel does that, so only its own name
/// turns it on.
#[cfg(feature = "process")]
pub(crate) const NO_SHARED_MEMORY: bool = cfg!(pipewright_force_fallback = "vfork");

/// Pretends that no cgroup can be made.
#[cfg(feature = "process")]
pub(crate) const NO_CGROUP: bool =
    cfg!(any(pipewright_force_fallback, pipewright_force_fallback = "cgroup"));

/// Pretends that memory cannot be executed, so that there is no supervisor.
#[cfg(feature = "process")]
pub(crate) const NO_SUPERVISOR: bool =
    cfg!(any(pipewright_force_fallback, pipewright_force_fallback = "supervisor"));

/// Pretends that `io_uring_setup` is refused.
#[cfg(feature = "disk")]
pub(crate) const NO_IO_URING: bool =
    cfg!(any(pipewright_force_fallback, pipewright_force_fallback = "io_uring"));

/// Pretends that `memfd_create` is refused.
#[cfg(feature = "ipc")]
pub(crate) const NO_MEMFD: bool =
    cfg!(any(pipewright_force_fallback, pipewright_force_fallback = "memfd"));

/// Pretends that pipes refuse `RWF_NOWAIT`.
pub(crate) const NO_RWF_NOWAIT: bool =
    NO_VMSPLICE || cfg!(any(pipewright_force_fallback, pipewright_force_fallback = "rwf_nowait"));

/// Pretends that pipes refuse `RWF_NOWAIT` and that a sandbox refuses `vmsplice`. Every kernel has
/// `vmsplice`, so only its own name leaves it out.
pub(crate) const NO_VMSPLICE: bool = cfg!(pipewright_force_fallback = "vmsplice");
