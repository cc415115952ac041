//! A child that is never left to become a zombie.

use std::io;
use std::mem;
use std::ops::Deref;

use pipewright_os::exit::{Ended, Exit};

use super::reaper;

/// Owns the handle on a child's end; on drop, a child that still runs goes to the reaper.
#[derive(Debug)]
pub(crate) struct Process(Exit);

impl Process {
    pub(crate) fn new(exit: Exit) -> Process {
        Process(exit)
    }
}

impl Process {
    /// Waits for the end, where nobody else has this process.
    pub(crate) fn wait_alone(&mut self) -> io::Result<Ended> {
        self.0.wait_alone()
    }
}

impl Deref for Process {
    type Target = Exit;

    fn deref(&self) -> &Exit {
        &self.0
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if let Ok(None) = self.0.try_wait() {
            reaper::adopt(mem::take(&mut self.0));
        }
    }
}
