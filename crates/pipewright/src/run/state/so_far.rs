//! The output so far of a run that goes on.

use pipewright_os::base::wait::Slot;

use super::RunState;
use crate::outcome::Source;

impl RunState {
    /// Returns true once all children are known to have ended.
    pub(crate) fn have_children_ended(&self) -> bool {
        self.ended.is_some()
    }

    /// Returns the kept bytes of a stream.
    pub(crate) fn so_far(&self, source: Source) -> &[u8] {
        let index = source as usize;
        match (&self.slots[index], &self.streams[index].sink) {
            (Slot::Read(_, buffer) | Slot::ReadDone(_, buffer, _), _) => buffer,
            (_, Some(sink)) => sink.so_far(),
            (_, None) => &[],
        }
    }

    /// Moves the kept bytes of a stream into an empty buffer, whose memory is used for the next ones. Does nothing while a
    /// read has them, or if a limit decides which of them are kept.
    pub(crate) fn take_so_far(&mut self, source: Source, buffer: &mut Vec<u8>) {
        let index = source as usize;
        if let (Slot::Off, Some(sink)) = (&self.slots[index], &mut self.streams[index].sink) {
            sink.swap_kept(buffer);
        }
    }
}
