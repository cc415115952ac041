//! The peers of each case.

pub(crate) const SPAWN_PEERS: &[&str] = &[
    "std",
    "c_vfork",
    "c_posix_spawn",
    "tokio_ct",
    "duct",
    "subprocess",
    "processkit",
    "python",
    "pipewright",
];
pub(crate) const OPTION_PEERS: &[&str] = &[
    "std",
    "std_pre_exec",
    "subprocess",
    "pipewright",
    "pipewright_options_same_thread",
    "pipewright_options",
];
/// Peers that fork: with a large parent, a fork takes tens of milliseconds.
pub(crate) const FORKING_PEERS: &[&str] = &["std_pre_exec", "subprocess"];
pub(crate) const CAPTURE_PEERS: &[&str] = &[
    "std",
    "tokio_ct",
    "duct",
    "subprocess",
    "processkit",
    "python",
    "pipewright",
    "pipewright_async",
];
pub(crate) const ASYNC_PEERS: &[&str] =
    &["tokio_ct", "processkit", "c_epoll", "pipewright_async", "pipewright"];
pub(crate) const MANY_PEERS: &[&str] =
    &["std", "tokio_ct", "tokio_mt", "pipewright", "pipewright_async"];
pub(crate) const STREAM_PEERS: &[&str] =
    &["std", "c_posix_spawn", "tokio_ct", "duct", "subprocess", "pipewright"];
pub(crate) const TEXT_PEERS: &[&str] = &["std", "tokio_ct", "pipewright"];
pub(crate) const COLLECT_PEERS: &[&str] = &[
    "std",
    "c_posix_spawn",
    "tokio_ct",
    "duct",
    "subprocess",
    "processkit",
    "python",
    "pipewright",
];
