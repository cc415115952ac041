//! The panic of a caller's closure, which continues when the state of the run is consistent.

use std::panic;

use super::RunState;
use crate::run::sink::Sink;
use crate::run::tee_with::PanicPayload;

impl RunState {
    /// Continues the panic of a tee's closure, if there was one.
    pub(crate) fn resume_panic(&mut self) {
        if let Some(payload) = self.take_panic() {
            panic::resume_unwind(payload);
        }
    }

    /// Takes the panic of a tee's closure.
    pub(super) fn take_panic(&mut self) -> Option<PanicPayload> {
        let mut sinks = self.streams.iter_mut().filter_map(|stream| stream.sink.as_mut());
        sinks.find_map(Sink::take_panic)
    }
}
