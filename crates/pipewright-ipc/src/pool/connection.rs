//! The connection to a worker: what calls go over, whoever waits for their answers.

use std::collections::VecDeque;
use std::time::Duration;

use crate::channel::{Line, Piece, Pieces, Sending, Spin};
use crate::error::Error;

/// The connection to a worker.
#[derive(Debug)]
pub(super) struct Connection {
    pub(super) line: Line,
    pieces: Pieces,
    spin: Spin,
}

impl Connection {
    pub(super) fn new(line: Line, most: Duration) -> Connection {
        Connection { line, pieces: Pieces::default(), spin: Spin::new(most) }
    }

    /// Sends as much of that as there is room for, one after the other. Whether all has gone.
    pub(super) fn send(&mut self, outgoing: &mut VecDeque<Sending>) -> Result<bool, Error> {
        let mut has_room = self.line.has_room()?;
        while let (true, Some(first)) = (has_room, outgoing.front_mut()) {
            has_room = first.go_on(&mut self.line)?;
            if has_room {
                outgoing.pop_front();
            }
        }
        Ok(has_room && self.line.end.unsent() == 0)
    }

    /// The next message, if all of it is here.
    pub(super) fn next(&mut self) -> Result<Option<Piece>, Error> {
        loop {
            let piece = self.pieces.next(&mut self.line)?;
            // The rest of one that has begun is being written, most likely: to sleep for each part of it would
            // take longer than the part.
            if piece.is_some() || !self.pieces.has_begun() || !self.look() {
                return Ok(piece);
            }
        }
    }

    /// Looks for a while whether something comes. Whether it has.
    pub(super) fn look(&mut self) -> bool {
        // What stands in the ring may have to wait for something that only a wait brings.
        self.spin.until(|| self.line.has_news());
        self.line.has_next()
    }

    /// Whether nothing is on its way in either direction, as far as is known here.
    pub(super) fn is_quiet(&self) -> bool {
        self.line.end.unsent() == 0 && !self.pieces.has_begun()
    }

    /// To be called after a wait: whether it ended for an arrival, and how long it took; and whether that was looked
    /// for before.
    pub(super) fn wake_up(&mut self, arrived: bool, slept: Duration, has_looked: bool) {
        self.line.wake_up(if arrived { slept } else { Duration::ZERO });
        if arrived && (has_looked || self.pieces.has_begun()) {
            self.spin.note_sleep(slept);
        }
    }
}
