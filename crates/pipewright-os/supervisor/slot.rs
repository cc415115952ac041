//! The supervisor of a slot: it starts one command after another, and leaves nothing of one before the next.
//!
//! The host asks for a start by a message (`nolibc/message.rs`), and gets the result, then the messages that every
//! supervisor sends. When the command and all its descendants have ended, or have been killed at the host's
//! request, this process has no child, and waits for the next request.

use crate::WatchedTree;
use crate::nolibc::message::{READY, Request, TREE_ENDED};
use crate::nolibc::steps::own_pid;
use crate::request::{Handles, Received};
use crate::start::Starter;
use crate::system::{self, PollSet};

/// The number of no process.
const NONE: i32 = 0;

/// Serves the host until it closes its end, or ends.
pub fn serve() -> ! {
    // A failure shows as the end of this process.
    let Some(exits) = system::child_exit_signalfd() else { system::exit(1) };
    let Some(starter) = Starter::new() else { system::exit(1) };
    system::send(&[READY, i64::from(own_pid()), starter.memory() as i64, 0, 0, 0]);
    let mut poll_set = PollSet::new(exits, system::READABLE | system::AT_END);
    let mut slot = Slot { tree: WatchedTree::supervised(NONE), job: 0, is_last: false };
    loop {
        let has_children = slot.tree.reap();
        if !has_children {
            slot.note_end();
            if slot.is_last {
                system::exit(0)
            }
        }
        if slot.tree.finishing {
            system::kill_children();
            system::pause(crate::PASS_NANOS);
            system::wait_for_children(exits, crate::KILL_AGAIN_NANOS);
            continue;
        }
        let woken = poll_set.wait_for_requests();
        if woken.must_end {
            // Before a request is read: the command would start only to be killed.
            slot.end_now();
            slot.is_last = true;
        } else if woken.by_host {
            slot.answer(&starter);
        }
    }
}

struct Slot {
    /// The tree of the job; its subject is [`NONE`] between two jobs.
    tree: WatchedTree,
    job: i64,
    /// No job follows this one.
    is_last: bool,
}

impl Slot {
    fn answer(&mut self, starter: &Starter) {
        const EBUSY: i32 = 16;
        let mut handles = Handles::none();
        match handles.receive() {
            Received::Nothing => {}
            Received::End => {
                self.end_now();
                self.is_last = true;
            }
            Received::Request(Request::EndTree { job }) => {
                // The request may have crossed the report of the end.
                if job == self.job && self.tree.subject != NONE {
                    self.end_now();
                }
            }
            Received::Request(Request::Start { job, .. }) if self.tree.subject != NONE => {
                starter.report_failure(job, EBUSY);
            }
            Received::Request(Request::Start { job, bytes }) => {
                if let Some(pid) = starter.start(job, bytes, &handles) {
                    self.tree = WatchedTree::supervised(pid);
                    self.job = job;
                }
            }
        }
        handles.close();
    }

    /// Kills the tree from now on.
    fn end_now(&mut self) {
        // A process that had ended before was not killed.
        if self.tree.reap() {
            self.tree.finishing = true;
        } else {
            self.note_end();
        }
    }

    /// Reports the end of the tree, unless the end of the command already was.
    fn note_end(&mut self) {
        if self.tree.subject != NONE && !self.tree.end_reported {
            system::send(&[TREE_ENDED, self.tree.killed, 0, 0, 0, 0]);
        }
        self.tree = WatchedTree::supervised(NONE);
    }
}
