//! The work that one side does for the other before it looks at its deadlines and at its other connections.
//!
//! Everything that a turn counts costs the other side less than this side: a record whose body it never wrote, a part of one
//! byte, a WAKE. Without a bound, a side that sends them without a pause would hold this one for as long as it likes.

/// The most bytes of bodies in each direction: about a millisecond.
const TURN_BYTES: u64 = 4 << 20;

/// The most frames in each direction, including WAKE.
pub(super) const TURN_FRAMES: u32 = 4096;

/// The most spins for the rest of a message: as many as a turn of long frames needs.
const TURN_SPINS: u32 = 64;

/// The rest of a turn in one direction.
#[derive(Debug)]
pub(super) struct Turn {
    frames: u32,
    bytes: u64,
    spins: u32,
}

impl Default for Turn {
    fn default() -> Turn {
        Turn { frames: TURN_FRAMES, bytes: TURN_BYTES, spins: TURN_SPINS }
    }
}

impl Turn {
    #[inline]
    pub(super) fn is_over(&self) -> bool {
        self.frames == 0 || self.bytes == 0
    }

    #[inline]
    pub(super) fn count_frame(&mut self) {
        self.frames = self.frames.saturating_sub(1);
    }

    #[inline]
    pub(super) fn count_bytes(&mut self, bytes: usize) {
        self.bytes = self.bytes.saturating_sub(bytes as u64);
    }

    /// Returns the number of bytes that may still be taken, at most this one.
    #[inline]
    pub(super) fn limit(&self, bytes: usize) -> usize {
        usize::try_from(self.bytes).map_or(bytes, |left| left.min(bytes))
    }

    /// Returns true if there may be one more spin.
    pub(super) fn may_spin(&mut self) -> bool {
        self.spins = self.spins.saturating_sub(1);
        self.spins > 0 && !self.is_over()
    }
}
