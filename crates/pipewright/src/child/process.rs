//! A child that is never left to become a zombie, and its tree, which is never left at all.

use std::io;
use std::mem;
use std::ops::Deref;

use pipewright_os::exit::{Ended, Exit};

use super::reaper;

/// Owns the handle on a child's end; on drop, a tree that is held ends, and a child that still runs
/// goes to the reaper.
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
        if let Some(tree) = self.0.tree() {
            // What holds the tree goes with this, and nobody in it is to outlive that.
            tree.end();
        }
        if let Some(guard) = self.0.leave_tree() {
            reap_in_time(guard);
        }
        reap_in_time(mem::take(&mut self.0));
    }
}

fn reap_in_time(exit: Exit) {
    if let Ok(None) = exit.try_wait() {
        reaper::adopt(exit);
    }
}
