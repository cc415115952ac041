//! The options that commands and pipelines have in common.

use std::ffi::OsStr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use pipewright_os::base::signal::Signal;

use super::background::{EnforcedRun, Enforcement, Enforcer};
use super::on_demand;
use super::process::Children;
use super::suspended::SuspendedRun;
use crate::cancel::CancelToken;
use crate::error::{Error, could_not_prepare};
use crate::rules::{Limit, Linger, Rules};
use crate::text::Decoding;

/// The settings of a whole run: its rules, and the part of its output that is kept. The setters of
/// [`Command`](crate::Command) and [`Pipeline`](crate::Pipeline) call the setters of this type.
#[derive(Debug, Clone, Default)]
pub(crate) struct RunSettings {
    pub(crate) rules: Rules,
    /// Enforces the rules in the background; `None` if that is not set.
    enforcer: Option<Enforcer>,
    pub(crate) limit: Option<Limit>,
    pub(crate) max_line_bytes: Option<usize>,
    pub(crate) decoding: Decoding,
}

impl RunSettings {
    pub(crate) fn set_timeout(&mut self, timeout: Duration) {
        self.rules.timeout = Some(timeout);
    }

    pub(crate) fn set_deadline(&mut self, deadline: Instant) {
        self.rules.deadline = Some(deadline);
    }

    pub(crate) fn set_idle_timeout(&mut self, timeout: Duration) {
        self.rules.idle_timeout = Some(timeout);
    }

    pub(crate) fn set_cancel(&mut self, token: &CancelToken) {
        self.rules.cancel = Some(token.clone());
    }

    pub(crate) fn set_enforce_in_background(&mut self) {
        self.enforcer = Some(on_demand::ENFORCER);
    }

    pub(crate) fn set_kill_grace(&mut self, grace: Duration) {
        self.rules.kill_grace = grace;
    }

    pub(crate) fn set_stop_signal(&mut self, signal: Signal) {
        self.rules.stop_signal = signal;
    }

    pub(crate) fn set_limit(&mut self, limit: Limit) {
        self.limit = Some(limit);
    }

    pub(crate) fn set_max_line(&mut self, bytes: usize) {
        self.max_line_bytes = Some(bytes);
    }

    pub(crate) fn set_linger(&mut self, linger: Linger) {
        self.rules.linger = linger;
    }

    pub(crate) fn set_linger_drain(&mut self) {
        self.rules.linger_drain = Some(on_demand::DRAIN);
    }

    pub(crate) fn set_coalesce_reads(&mut self) {
        self.rules.coalesce_reads = true;
    }

    pub(crate) fn set_strict_utf8(&mut self) {
        self.decoding.make_strict();
    }

    #[cfg(feature = "encoding")]
    pub(crate) fn set_encoding(&mut self, encoding: &'static encoding_rs::Encoding) {
        self.decoding.use_encoding(encoding);
    }

    /// Returns the name of the first option that is set.
    pub(crate) fn first_set(&self) -> Option<&'static str> {
        let default = Rules::default();
        let rules = &self.rules;
        let settings = [
            ("timeout", rules.timeout.is_some()),
            ("deadline", rules.deadline.is_some()),
            ("idle_timeout", rules.idle_timeout.is_some()),
            ("cancel", rules.cancel.is_some()),
            ("kill_grace", rules.kill_grace != default.kill_grace),
            ("stop_signal", rules.stop_signal != default.stop_signal),
            ("linger", rules.linger != default.linger),
            ("linger_drain", rules.linger_drain.is_some()),
            ("enforce_in_background", self.enforcer.is_some()),
            ("limit", self.limit.is_some()),
            ("max_line", self.max_line_bytes.is_some()),
            ("strict_utf8", self.decoding.is_set()),
        ];
        settings.into_iter().find(|(_, is_set)| *is_set).map(|(name, _)| name)
    }

    /// Enforces the rules in the background while the run is suspended, if that is set.
    pub(crate) fn enforce(
        &self,
        children: &Arc<impl Children + 'static>,
        suspended: &Arc<SuspendedRun>,
    ) -> Option<Enforcement> {
        let enforcer = self.enforcer?;
        let (children, suspended) = (Arc::clone(children), Arc::clone(suspended));
        Some((enforcer.enforce)(EnforcedRun { children, suspended, rules: self.rules.clone() }))
    }

    /// Starts the background thread, if it is needed. Fails if it cannot be started.
    pub(crate) fn prepare_enforcement(&self, program: &OsStr) -> Result<(), Error> {
        let prepared = match self.enforcer {
            Some(enforcer) => (enforcer.prepare)(),
            None => return Ok(()),
        };
        let step = || "cannot start the thread that enforces its limits".to_owned();
        prepared.map_err(|error| could_not_prepare(program, step(), error))
    }
}
