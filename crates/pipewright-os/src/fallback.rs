//! Which kernel facilities this build pretends not to have.

/// Pretend that `pidfd_open`, `CLONE_PIDFD` and `pidfd_send_signal` are refused.
pub(crate) const NO_PIDFD: bool =
    cfg!(any(pipewright_force_fallback, pipewright_force_fallback = "pidfd"));

/// Pretend that `close_range` is refused.
pub(crate) const NO_CLOSE_RANGE: bool =
    cfg!(any(pipewright_force_fallback, pipewright_force_fallback = "close_range"));

/// Pretend that `clone3` is refused.
pub(crate) const NO_CLONE3: bool =
    cfg!(any(pipewright_force_fallback, pipewright_force_fallback = "clone3"));

/// Pretend that a vfork is a fork, as some emulators have it. No kernel does, so this one has to be named.
pub(crate) const NO_SHARED_MEMORY: bool = cfg!(pipewright_force_fallback = "vfork");

/// Pretend that no cgroup can be made.
pub(crate) const NO_CGROUP: bool =
    cfg!(any(pipewright_force_fallback, pipewright_force_fallback = "cgroup"));

/// Pretend that memory cannot be executed, and so no supervisor.
pub(crate) const NO_SUPERVISOR: bool =
    cfg!(any(pipewright_force_fallback, pipewright_force_fallback = "supervisor"));

/// Pretend that `io_uring_setup` is refused.
pub(crate) const NO_IO_URING: bool =
    cfg!(any(pipewright_force_fallback, pipewright_force_fallback = "io_uring"));

/// Pretend that `memfd_create` is refused.
pub(crate) const NO_MEMFD: bool =
    cfg!(any(pipewright_force_fallback, pipewright_force_fallback = "memfd"));

/// Pretend that pipes refuse `RWF_NOWAIT`.
pub(crate) const NO_RWF_NOWAIT: bool =
    NO_VMSPLICE || cfg!(any(pipewright_force_fallback, pipewright_force_fallback = "rwf_nowait"));

/// Pretend that pipes refuse `RWF_NOWAIT`, and a sandbox `vmsplice`. Every kernel has it, so this one has to be
/// named.
pub(crate) const NO_VMSPLICE: bool = cfg!(pipewright_force_fallback = "vmsplice");
