//! Code that a program contains only if it asks for it.
//!
//! The setter that asks stores one of these values, which are function pointers, and nothing else names the functions
//! behind them. So a program that never calls the setter is linked without them. Such a pointer hides the way from the
//! caller to the function, so all of them stand here, with what each saves a minimal program (`size` of `bench/`; a
//! pointer that saves less than 1 kB is not worth it):
//!
//! | pointer | setter | kB |
//! |---|---|--:|
//! | [`HOLD_TREE`] | `contain`, `kill_on_parent_exit` | 79 |
//! | [`OPEN_TEE`] | `Stdio::tee`, `run` | 11.5 |
//! | [`OPEN_TEE_TO`] | `Stdio::tee_to`, which also finds its target by a pointer | 12.5, with the tee |
//! | [`OPEN_FOREGROUND`] | `foreground` | 6.7 |
//! | [`ENFORCER`] | `enforce_in_background` | 6.1 |
//! | [`DRAIN`] | `linger_drain` | 2.0 |
//! | [`KILL_ON_DROP`] | `kill_on_drop` | 1.0 |
//!
//! A trait object does the same for input that is fed in the background (`FedInput`): some 2.8 kB, by difference, not
//! measured alone. In `pipewright-os` a pointer does it for the thread that starts children which end with this process
//! (`parent_exit`): 11 kB beside those of [`HOLD_TREE`], which its setter names as well.

use pipewright_os::base::pipe::PipeReader;
use pipewright_os::process::child::ChildHandle;
use pipewright_os::process::spawn::Contain;

use super::background::{self, Enforcer};
use super::foreground::{self, OpenForeground};
use super::process;
use super::tee::{self, OpenTee, OpenTeeTo};
use crate::reaper;

/// Enforces rules in the background, on a thread of its own.
pub(crate) const ENFORCER: Enforcer = background::ENFORCER;

/// Reads on a stream that was given up.
pub(crate) const DRAIN: fn(PipeReader) = reaper::drain;

/// Gives a child the terminal and follows its stops.
pub(crate) const OPEN_FOREGROUND: OpenForeground = foreground::open_foreground;

/// Kills a child, and the processes that a kill of it reaches, when its handle is dropped.
pub(crate) const KILL_ON_DROP: fn(&ChildHandle) = process::kill;

/// Holds the tree of a child, which may have to end with this process.
pub(crate) const HOLD_TREE: HoldTree = Contain::tree;

/// The type of [`HOLD_TREE`]: true if the tree is to end with this process.
pub(crate) type HoldTree = fn(bool) -> Contain;

/// Passes a stream on to that of this process.
pub(crate) const OPEN_TEE: OpenTee = tee::open_tee;

/// Passes a stream on to a file or another handle.
pub(crate) const OPEN_TEE_TO: OpenTeeTo = tee::open_tee_to;
