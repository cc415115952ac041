//! Pointers to code that a program contains only if it asks for it.
//!
//! A setter stores one of these function pointers, and nothing else names the function behind it. So a program that
//! never calls the setter is linked without the function. Such a pointer hides the function from a reader of the
//! caller, so all pointers are here, with the size that each saves a minimal program (`size` of `bench/`; a pointer
//! that saves less than 1 kB is not worth it):
//!
//! | pointer | setter | kB |
//! |---|---|--:|
//! | [`HOLD_TREE`] | `contain`, `kill_on_parent_exit` | 79 |
//! | [`HOLD_LIMITED_TREE`] | `limits` | not measured |
//! | [`FINISH_STATUS`] | `stdin`, `stdout`, `stderr`, `timeout` and what else a run sees to | 106 |
//! | [`OPEN_TEE`] | `Stdio::tee`, `run` | 11.5 |
//! | [`OPEN_TEE_TO`] | `Stdio::tee_to`, which also finds its target through a pointer | 12.5, with the tee |
//! | [`OPEN_ENDS`] | `limit` | not measured |
//! | [`OPEN_FOREGROUND`] | `foreground` | 6.7 |
//! | [`ENFORCER`] | `enforce_in_background` | 6.1 |
//! | [`DRAIN`] | `linger_drain` | 2.0 |
//! | [`KILL_ON_DROP`] | `kill_on_drop` | 1.0 |
//!
//! `pty` opens its terminal through a pointer too, which is stored by its setter.
//!
//! A trait object does the same for input that is fed in the background (`FedInput`): about 2.8 kB, by difference, not
//! measured alone; and for the closure of `Stdio::tee_with`. In `pipewright-os` a pointer does it for the thread that
//! starts children which end with this process (`parent_exit`): 11 kB in addition to [`HOLD_TREE`], which its setter
//! names as well.

use pipewright_os::base::pipe::PipeReader;
use pipewright_os::process::child::ChildHandle;
use pipewright_os::process::start::Contain;

use super::background::{self, Enforcer};
use super::ends::{self, OpenEnds};
use super::process::{self, OpenForeground};
use super::run::{self, FinishStatus};
use super::tee::{self, OpenTee, OpenTeeTo};
use crate::reaper;

/// Sees to the child of `status` until it ends. Without it, its wait is all there is to do.
pub(crate) const FINISH_STATUS: FinishStatus = run::finish_status;

/// Enforces rules in the background, on a separate thread.
pub(crate) const ENFORCER: Enforcer = background::ENFORCER;

/// Drains a stream that the run has given up.
pub(crate) const DRAIN: fn(PipeReader) = reaper::drain;

/// Gives a child the terminal, and stops this process when the child is stopped.
pub(crate) const OPEN_FOREGROUND: OpenForeground = process::open_foreground;

/// Kills a child and the descendants that a kill reaches, when its handle is dropped.
pub(crate) const KILL_ON_DROP: fn(&ChildHandle) = run::kill;

/// Holds the tree of a child, which may be set to end with this process.
pub(crate) const HOLD_TREE: HoldTree = Contain::tree;

/// Holds the tree of a child, with limits.
pub(crate) const HOLD_LIMITED_TREE: HoldTree = Contain::limited_tree;

/// The type of [`HOLD_TREE`]. The argument is true if the tree must end with this process.
pub(crate) type HoldTree = fn(bool) -> Contain;

/// Keeps both ends of a stream.
pub(crate) const OPEN_ENDS: OpenEnds = ends::open_ends;

/// Copies a stream to the same stream of this process.
pub(crate) const OPEN_TEE: OpenTee = tee::open_tee;

/// Copies a stream to a file or another handle.
pub(crate) const OPEN_TEE_TO: OpenTeeTo = tee::open_tee_to;
