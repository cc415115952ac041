//! Calls that do not wait, or keep small messages together.

use std::time::Instant;

use pipewright::Handle;

use super::core::Core;
use super::incoming::Progress;
use super::outgoing::FRAME_BYTES;
use super::sink::Nowhere;
use crate::error::Error;
use crate::wire::{Header, kind};

/// So much is kept of small messages before they are handed over together.
const MOST_KEPT_BYTES: usize = 64 << 10;

impl Core {
    /// Sends a message that may be kept for a while.
    #[inline]
    pub(super) fn queue(&mut self, bytes: &[u8]) -> Result<(), Error> {
        let first = Header::new(kind::MESSAGE, bytes.len());
        if bytes.len() > FRAME_BYTES {
            let until = self.until();
            return self.send(first, bytes, until);
        }
        self.line.may_send(bytes.len() as u64)?;
        self.line.put_later(&first, bytes)?;
        self.line.note_sent(bytes.len() as u64, 1);
        if self.line.unsent() < MOST_KEPT_BYTES {
            return Ok(());
        }
        let until = self.until();
        let sent = self.hand_over(until);
        sent.map_err(|error| self.cut_off(error, until))
    }

    /// Sends a message without waiting. `false`: something is still kept.
    pub(super) fn try_send(&mut self, body: &[u8]) -> Result<bool, Error> {
        let bytes = body.len() as u64;
        self.line.may_send(bytes)?;
        match self.line.end.flush() {
            Ok(0) => {}
            Ok(_) => return Ok(false),
            Err(error) => return Err(self.explain(error.into(), Some(Instant::now()))),
        }
        let mut frames = 0;
        for frame in body.chunks(FRAME_BYTES).chain(body.is_empty().then_some(body)) {
            let header = if frames == 0 {
                let total = (frame.len() < body.len()).then_some(bytes);
                Header { total, ..Header::new(kind::MESSAGE, frame.len()) }
            } else {
                Header::new(kind::PART, frame.len())
            };
            if let Err(error) = self.line.put(&header, frame) {
                return Err(self.cut_off(error, Some(Instant::now())));
            }
            frames += 1;
        }
        self.line.note_sent(bytes, frames);
        Ok(true)
    }

    /// Sends a message with handles, all of it through the socket.
    pub(super) fn send_with_handles(
        &mut self,
        body: &[u8],
        handles: &[Handle],
        until: Option<Instant>,
    ) -> Result<(), Error> {
        by_its_twin!(self, self.send_with_handles_async(body, handles, until));
        let bytes = body.len() as u64;
        self.line.may_send(bytes)?;
        let (frame, rest) = body.split_at(body.len().min(FRAME_BYTES));
        let total = (!rest.is_empty()).then_some(bytes);
        let header = Header { total, ..Header::new(kind::MESSAGE, frame.len()) };
        let begun = self.begin_with_handles(&header, frame, handles, until);
        begun.map_err(|error| self.explain(error, until))?;
        let mut frames = 1;
        for frame in rest.chunks(FRAME_BYTES) {
            let put = self.line.put(&Header::new(kind::PART, frame.len()), frame);
            put.and_then(|()| self.hand_over(until)).map_err(|error| self.cut_off(error, until))?;
            frames += 1;
        }
        self.hand_over(until).map_err(|error| self.cut_off(error, until))?;
        self.line.note_sent(bytes, frames);
        Ok(())
    }

    fn begin_with_handles(
        &mut self,
        header: &Header,
        frame: &[u8],
        handles: &[Handle],
        until: Option<Instant>,
    ) -> Result<(), Error> {
        self.hand_over(until)?;
        while !self.line.put_with_handles(header, frame, handles)? {
            self.wait_for_room(until)?;
        }
        Ok(())
    }

    /// As [`explain`](Self::explain), of a message of which a part has gone.
    fn cut_off(&mut self, error: Error, until: Option<Instant>) -> Error {
        self.line.outgoing.cut_off = true;
        self.explain(error, until)
    }

    /// Begins the next message, if that needs no waiting.
    pub(super) fn try_begin(&mut self) -> Result<Progress, Error> {
        let begun = self.try_begin_any()?;
        self.line.has_begun(kind::MESSAGE).map(|()| begun)
    }

    /// The same, of whatever kind it is.
    pub(crate) fn try_begin_any(&mut self) -> Result<Progress, Error> {
        let now = Some(Instant::now());
        let _ = self.line.be_eager();
        let begun = self.line.publish().and_then(|()| {
            self.line.end.flush()?;
            if self.line.body().is_some() {
                if self.line.take(usize::MAX, &mut Nowhere)? == Progress::Nothing {
                    return Ok(Progress::Nothing);
                }
                self.line.end_of_body();
            }
            self.line.begin()
        });
        begun.map_err(|error| self.explain(error, now))
    }
}
