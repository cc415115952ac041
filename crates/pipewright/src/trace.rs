//! Starts, stops and ends of processes as spans and events of `tracing`: feature `tracing`. Without the feature, none
//! of this has a cost.
//!
//! Each process has a span `process`, from its start until its handle is dropped. The events are inside the span.
//! Arguments and environment variables are never recorded: they may be secret.
//!
//! | level | span or event | fields |
//! |---|---|---|
//! | debug | span `process` | `pid`, `program` |
//! | debug | `started` | `containment` |
//! | debug | `not started` | `program`, `error` |
//! | info | `stopping` | `signal`, `reason` |
//! | info | `killing` | `reason` |
//! | debug | `ended` | `status` |
//! | debug | `run ended` | `outcome`, `elapsed_ms`, `held_open`, `truncated` |
//! | warn | `leftovers killed` | `count` |
//! | debug | `dropped while running` | |

#[cfg(feature = "tracing")]
pub(crate) use on::*;

#[cfg(not(feature = "tracing"))]
pub(crate) use off::*;

#[cfg(feature = "tracing")]
mod on {
    use std::ffi::OsStr;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};

    use pipewright_os::base::signal::Signal;
    use pipewright_os::process::child::ChildHandle;
    use pipewright_os::process::status::ExitStatus;
    use tracing::{Span, debug, debug_span, info, warn};

    use crate::error::Error;
    use crate::outcome::Outcome;
    use crate::output::Output;

    /// The spans of the processes of one handle or one run.
    #[derive(Debug, Clone, Default)]
    pub(crate) struct Trace(Vec<Arc<TracedProcess>>);

    #[derive(Debug)]
    struct TracedProcess {
        span: Span,
        /// True once the end has been recorded: a child can be waited for again and again.
        has_ended: AtomicBool,
    }

    impl Trace {
        pub(crate) fn started(program: &OsStr, child: &ChildHandle) -> Trace {
            let span = debug_span!("process", pid = child.pid(), program = ?program);
            debug!(parent: &span, containment = %child.containment(), "started");
            Trace(vec![Arc::new(TracedProcess { span, has_ended: AtomicBool::new(false) })])
        }

        /// Adds the spans of other processes, after these.
        pub(crate) fn extend(&mut self, others: Trace) {
            self.0.extend(others.0);
        }

        pub(crate) fn stopping(&self, signal: Signal, outcome: Option<Outcome>) {
            let reason = outcome.map(tracing::field::display);
            for process in &self.0 {
                info!(parent: &process.span, %signal, reason, "stopping");
            }
        }

        pub(crate) fn killing(&self, outcome: Option<Outcome>) {
            let reason = outcome.map(tracing::field::display);
            for process in &self.0 {
                info!(parent: &process.span, reason, "killing");
            }
        }

        /// Records the end of the only process.
        pub(crate) fn ended(&self, status: ExitStatus) {
            self.0.iter().for_each(|process| process.ended(status));
        }

        /// Records the end of a run and of its processes.
        pub(crate) fn run_ended(&self, children: &[ChildHandle], output: &Output) {
            for (process, child) in self.0.iter().zip(children) {
                if let Ok(Some(ended)) = child.try_wait() {
                    process.ended(ended.status);
                }
            }
            let Some(last) = self.0.last() else { return };
            let elapsed_ms = u64::try_from(output.elapsed.as_millis()).unwrap_or(u64::MAX);
            let Output { outcome, held_open, truncated, .. } = output;
            debug!(parent: &last.span, %outcome, elapsed_ms, held_open, truncated, "run ended");
            self.leftovers_killed(output.leftovers_killed);
        }

        pub(crate) fn leftovers_killed(&self, count: u32) {
            if let (Some(last), true) = (self.0.last(), count > 0) {
                warn!(parent: &last.span, count, "leftovers killed");
            }
        }

        /// Records the drop of a handle. If its process has ended and nothing has waited for it, records that end
        /// instead.
        pub(crate) fn dropped(&self, child: &ChildHandle) {
            for process in &self.0 {
                match child.try_wait() {
                    Ok(Some(ended)) => process.ended(ended.status),
                    Ok(None) => debug!(parent: &process.span, "dropped while running"),
                    // Other code has reaped it.
                    Err(_) => {}
                }
            }
        }

        /// Removes the first span, which belongs to the first process, and returns it.
        pub(crate) fn take_first(&mut self) -> Trace {
            Trace(self.0.drain(..self.0.len().min(1)).collect())
        }
    }

    impl TracedProcess {
        fn ended(&self, status: ExitStatus) {
            if !self.has_ended.swap(true, Ordering::Relaxed) {
                debug!(parent: &self.span, %status, "ended");
            }
        }
    }

    pub(crate) fn not_started(error: &Error) {
        debug!(program = ?error.program(), %error, "not started");
    }
}

#[cfg(not(feature = "tracing"))]
mod off {
    use std::ffi::OsStr;

    use pipewright_os::base::signal::Signal;
    use pipewright_os::process::child::ChildHandle;
    use pipewright_os::process::status::ExitStatus;

    use crate::error::Error;
    use crate::outcome::Outcome;
    use crate::output::Output;

    /// A stand-in that records nothing. Callers clone and create it like the real one, so it is neither `Copy` nor a
    /// unit.
    #[derive(Debug, Clone, Default)]
    pub(crate) struct Trace(());

    impl Trace {
        pub(crate) fn started(_: &OsStr, _: &ChildHandle) -> Trace {
            Trace(())
        }
        pub(crate) fn extend(&mut self, _: Trace) {}
        pub(crate) fn stopping(&self, _: Signal, _: Option<Outcome>) {}
        pub(crate) fn killing(&self, _: Option<Outcome>) {}
        pub(crate) fn ended(&self, _: ExitStatus) {}
        pub(crate) fn run_ended(&self, _: &[ChildHandle], _: &Output) {}
        pub(crate) fn leftovers_killed(&self, _: u32) {}
        pub(crate) fn dropped(&self, _: &ChildHandle) {}
        pub(crate) fn take_first(&mut self) -> Trace {
            Trace(())
        }
    }

    pub(crate) fn not_started(_: &Error) {}
}
