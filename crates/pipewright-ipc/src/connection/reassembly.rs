//! Whole messages, for a loop over many connections that waits for none of them.

use super::receiving::Body;
use super::{Connection, StepResult};
use crate::error::Error;

/// A whole message.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct RawMessage {
    pub(crate) kind: u8,
    /// The call that it belongs to.
    pub(crate) id: u64,
    pub(crate) bytes: Vec<u8>,
}

/// The part of a message that has arrived.
#[derive(Debug, Default)]
pub(crate) struct Reassembly(Option<Vec<u8>>);

impl Reassembly {
    /// Returns true if part of a message has arrived.
    pub(crate) fn is_partial(&self) -> bool {
        self.0.is_some()
    }

    /// Returns the next message, if all of it has arrived. Nothing of a message is kept before its header has passed the
    /// check.
    pub(crate) fn next(
        &mut self,
        connection: &mut Connection,
        check: impl FnOnce(&Body) -> Result<(), Error>,
    ) -> Result<Option<RawMessage>, Error> {
        if self.0.is_none() {
            if connection.begin()? != StepResult::Done {
                return Ok(None);
            }
            connection.body().map_or(Ok(()), check)?;
            let mut buffer = Vec::new();
            connection.prepare_buffer(&mut buffer)?;
            self.0 = Some(buffer);
        }
        let Some(mut buffer) = self.0.as_mut() else { return Ok(None) };
        let (kind, id) = connection.body().map_or((0, 0), |body| (body.kind, body.id));
        if connection.take_rest(&mut buffer)? != StepResult::Done {
            return Ok(None);
        }
        Ok(self.0.take().map(|bytes| RawMessage { kind, id, bytes }))
    }
}
