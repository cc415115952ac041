//! Copies of the standard handles that one child can inherit.
//!
//! The originals are not made inheritable: they may be given to several children at once, and what is
//! undone for one would be undone for the others.
//!
//! A program expects its standard handles to be synchronous, and what a read of one that is not brings
//! may come after its buffer has gone. The mode of a handle cannot be changed, so between an overlapped
//! pipe and a child stands a pipe of the other kind, and a thread that copies until the end. It begins
//! when there is a child: what it takes from the pipe nobody else gets.

use std::io;
use std::os::windows::io::{AsRawHandle as _, OwnedHandle};
use std::sync::mpsc::{Sender, channel};

use windows_sys::Win32::Foundation::{ERROR_INVALID_HANDLE, HANDLE};

use crate::base::handle::{Handle, copy_of};
use crate::base::pipe::{PipeOptions, PipeReader, PipeWriter, pair};
use crate::base::service_thread;
use crate::base::stdio::standard;
use crate::process::spawn::{ChildStdio, Plan, SpawnError, Step};

#[derive(Debug)]
pub(super) struct Stdio {
    /// stdin, stdout, stderr; `None` is none.
    copies: [Option<OwnedHandle>; 3],
    relays: Vec<Relay>,
}

/// A thread that waits for the word to copy. It ends when this is dropped instead.
type Relay = Sender<()>;

impl Stdio {
    pub(super) fn new(plan: &Plan<'_>) -> Result<Stdio, SpawnError> {
        let (mut copies, mut relays) = ([None, None, None], Vec::new());
        for (index, (copy, stdio)) in (0..).zip(copies.iter_mut().zip(&plan.stdio)) {
            *copy = match stdio {
                ChildStdio::Inherit => copy_of_ours(index),
                ChildStdio::Handle(handle) => {
                    synchronous(handle, index == 0, &mut relays).map(Some)
                }
            }
            .map_err(|error| SpawnError::new(Step::Stdio(index as u8), error))?;
        }
        Ok(Stdio { copies, relays })
    }

    /// There is a child that has its copies.
    pub(super) fn hand_over(self) {
        for relay in self.relays {
            // Ignored: it waits for this.
            let _ = relay.send(());
        }
    }

    pub(super) fn raw(&self) -> [Option<HANDLE>; 3] {
        self.copies.each_ref().map(|copy| copy.as_ref().map(|copy| copy.as_raw_handle()))
    }
}

fn synchronous(handle: &Handle, is_read: bool, relays: &mut Vec<Relay>) -> io::Result<OwnedHandle> {
    if !handle.is_overlapped() {
        return copy_of(handle.as_raw_handle(), true);
    }
    let ours = copy_of(handle.as_raw_handle(), false)?;
    let (reader, writer) = pair(PipeOptions::default())?;
    let theirs = if is_read {
        let theirs = copy_of(reader.as_raw_handle(), true)?;
        relays.push(relay(PipeReader::from(ours), writer)?);
        theirs
    } else {
        let theirs = copy_of(writer.as_raw_handle(), true)?;
        relays.push(relay(reader, PipeWriter::from(ours))?);
        theirs
    };
    Ok(theirs)
}

/// Copies until one side ends, and closes both then.
fn relay(mut from: PipeReader, mut to: PipeWriter) -> io::Result<Relay> {
    let (begin, begins) = channel();
    service_thread::start(c"pipewright-relay", move || {
        if begins.recv().is_ok() {
            // Ignored: whoever reads has had enough, and the writer is told so by the end of its pipe.
            let _ = io::copy(&mut from, &mut to);
        }
    })?;
    Ok(begin)
}

fn copy_of_ours(number: i32) -> io::Result<Option<OwnedHandle>> {
    let Some(ours) = standard(number) else { return Ok(None) };
    match copy_of(ours, true) {
        // A program with windows, or one whose parent left the number of a handle and no handle: it
        // has none, and so has the child.
        Err(error) if error.raw_os_error() == Some(ERROR_INVALID_HANDLE as i32) => Ok(None),
        copy => copy.map(Some),
    }
}
