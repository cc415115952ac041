//! Containment of a whole tree: everything that a child ever starts, whatever it does to escape.

#[cfg(any(target_os = "linux", windows))]
mod end_wait;
#[cfg(target_os = "linux")]
pub(crate) mod linux;
#[cfg(windows)]
pub(crate) mod windows;
