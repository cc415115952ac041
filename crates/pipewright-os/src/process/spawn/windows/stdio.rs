//! Copies of the standard handles that one child can inherit.
//!
//! The originals are not made inheritable: several children may get them at once, and a change for one
//! would affect the others.
//!
//! A program expects its standard handles to be synchronous. A read of an overlapped handle may complete
//! after its buffer has gone. The mode of a handle cannot be changed, so a synchronous pipe goes between an
//! overlapped pipe and a child, with a thread that copies until the end. The thread begins when the child
//! exists, because no other process gets what the thread reads from the pipe.

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
pub(super) struct ChildStdioHandles {
    /// The handles for stdin, stdout and stderr; `None` for none.
    copies: [Option<OwnedHandle>; 3],
    relays: Vec<Relay>,
}

/// The start signal of a copying thread. If it is dropped instead, the thread ends.
type Relay = Sender<()>;

impl ChildStdioHandles {
    pub(super) fn new(plan: &Plan<'_>) -> Result<ChildStdioHandles, SpawnError> {
        let (mut copies, mut relays) = ([None, None, None], Vec::new());
        for (index, (copy, stdio)) in (0..).zip(copies.iter_mut().zip(&plan.stdio)) {
            *copy = match stdio {
                // The child opens its console itself.
                ChildStdio::Inherit if plan.terminal.is_some() => Ok(None),
                ChildStdio::Inherit => copy_of_standard(index),
                ChildStdio::Handle(handle) => {
                    synchronous(handle, index == 0, &mut relays).map(Some)
                }
            }
            .map_err(|error| SpawnError::new(Step::Stdio(index as u8), error))?;
        }
        Ok(ChildStdioHandles { copies, relays })
    }

    /// Starts the copying: a child has its copies.
    pub(super) fn start_relays(self) {
        for relay in self.relays {
            // Ignored: the thread is waiting for this.
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

/// Starts a thread that copies until one side ends, and then closes both.
fn relay(mut from: PipeReader, mut to: PipeWriter) -> io::Result<Relay> {
    let (begin, begins) = channel();
    service_thread::start(c"pipewright-relay", move || {
        if begins.recv().is_ok() {
            // Ignored: the reader has closed its end, and the writer sees that at the end of its pipe.
            let _ = io::copy(&mut from, &mut to);
        }
    })?;
    Ok(begin)
}

fn copy_of_standard(number: i32) -> io::Result<Option<OwnedHandle>> {
    let Some(ours) = standard(number) else { return Ok(None) };
    match copy_of(ours, true) {
        // A program with windows, or one whose parent has passed a number without a handle: it has no such
        // stream, so neither does the child.
        Err(error) if error.raw_os_error() == Some(ERROR_INVALID_HANDLE as i32) => Ok(None),
        copy => copy.map(Some),
    }
}
