//! The items that follow the request of the call that is being answered.

use std::collections::VecDeque;

use crate::error::Error;

/// The number of items that may be on their way.
const WINDOW: u32 = 16;

/// The items of one call.
#[derive(Debug)]
pub(super) struct CallInput {
    pub(super) call: u64,
    arrived: VecDeque<Vec<u8>>,
    /// The host has sent the last one.
    pub(super) has_ended: bool,
    /// The number that the host may still send.
    credit: u32,
}

impl CallInput {
    pub(super) fn new(call: u64, has_ended: bool) -> CallInput {
        CallInput { call, arrived: VecDeque::new(), has_ended, credit: 0 }
    }

    /// Adds an item that has arrived.
    pub(super) fn add(&mut self, bytes: Vec<u8>) -> Result<(), Error> {
        let left = self.credit.checked_sub(1).filter(|_| !self.has_ended);
        self.credit = left.ok_or_else(without_credit)?;
        self.arrived.push_back(bytes);
        Ok(())
    }

    pub(super) fn take(&mut self) -> Option<Vec<u8>> {
        self.arrived.pop_front()
    }

    /// Returns the credit that the host gets now, half a window at a time: each costs a message.
    pub(super) fn new_credit(&mut self) -> Option<u32> {
        let open = self.credit + u32::try_from(self.arrived.len()).unwrap_or(u32::MAX);
        let more = WINDOW.saturating_sub(open);
        if self.has_ended || more < WINDOW / 2 {
            return None;
        }
        self.credit += more;
        Some(more)
    }
}

pub(super) fn without_credit() -> Error {
    Error::protocol("an item without credit")
}
