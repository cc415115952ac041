//! The facts about a run that no step changes.

use std::ffi::OsString;
use std::sync::Arc;
use std::time::Instant;

use pipewright_os::base::generation::Generation;

use super::foreground::ForegroundJob;
use super::terminal::HeldTerminal;
use crate::input::FedInput;
use crate::trace::Trace;

/// The facts about a run apart from its children, its rules and its streams.
#[derive(Debug)]
pub(crate) struct RunInfo {
    /// The program, for the result.
    pub(crate) program: OsString,
    pub(crate) started: Instant,
    /// The process that has started the children: not a fork of it.
    pub(crate) made_in: Generation,
    /// Input that is fed in the background.
    pub(crate) background_feed: Option<Box<dyn FedInput>>,
    pub(crate) foreground: Option<Arc<dyn ForegroundJob>>,
    pub(crate) stderr_merged: bool,
    pub(crate) terminal: HeldTerminal,
    pub(crate) trace: Trace,
}
