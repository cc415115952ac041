//! Code that a program contains only if it asks for it.
//!
//! The setter that asks stores one of these values, which are function pointers, and nothing else names the functions
//! behind them. So a program that never calls the setter is linked without them. Such a pointer hides the way from the
//! caller to the function; here all of them stand in one place, with the bytes that each saves.

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
