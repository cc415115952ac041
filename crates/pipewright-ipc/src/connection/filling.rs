//! A message that is made while it is sent: each frame directly where the other side reads it.

use super::sending::FRAME_BYTES;
use super::{Connection, StepResult, Want};
use crate::error::Error;
use crate::wire::{Header, kind};

/// A message on its way out, and the number of its bytes that were made.
#[derive(Debug)]
pub(crate) struct Filling {
    total: usize,
    at: usize,
    frames: usize,
}

impl Filling {
    pub(crate) fn new(total: usize) -> Filling {
        Filling { total, at: 0, frames: 0 }
    }

    /// Makes and sends as many frames as there is room for. Returns `Done` when the system or the ring has all of the
    /// message.
    pub(crate) fn step(
        &mut self,
        connection: &mut Connection,
        fill: &mut impl FnMut(&mut [u8]),
    ) -> Result<StepResult, Error> {
        if self.frames == 0 {
            connection.check_may_send(self.total as u64)?;
        }
        // Stays so if `fill` panics.
        connection.set_cut_off(true);
        let sent = self.send_frames(connection, fill);
        let is_partial = self.frames > 0 && self.at < self.total;
        connection.set_cut_off(sent.is_err() || is_partial);
        sent
    }

    fn send_frames(
        &mut self,
        connection: &mut Connection,
        fill: &mut impl FnMut(&mut [u8]),
    ) -> Result<StepResult, Error> {
        loop {
            if self.frames > 0 {
                if connection.flush_socket()? != StepResult::Done {
                    return Ok(StepResult::Blocked(Want::Room));
                }
                if self.at == self.total {
                    connection.count_message_sent(self.total as u64, self.frames);
                    return Ok(StepResult::Done);
                }
            }
            if connection.outgoing.turn.is_over() {
                return Ok(StepResult::Blocked(Want::Room));
            }
            let length = (self.total - self.at).min(FRAME_BYTES);
            let is_first = self.frames == 0;
            let total = (is_first && length < self.total).then_some(self.total as u64);
            let kind = if is_first { kind::MESSAGE } else { kind::PART };
            let header = Header { total, ..Header::new(kind, length) };
            connection.send_filled_frame(&header, length, &mut *fill)?;
            self.at += length;
            self.frames += 1;
            connection.outgoing.turn.count_frame();
            connection.outgoing.turn.count_bytes(length);
        }
    }

    /// Ends a message that failed between two steps.
    pub(crate) fn abandon(&self, connection: &mut Connection) {
        if self.frames > 0 {
            connection.set_cut_off(true);
        }
    }
}
