//! The process that has the other end, and the transfer of handles to and from it.
//!
//! A handle is a number that is valid in one process. Only a process with a handle to that process and the
//! right to duplicate can insert or remove one, and such a handle gives full control. For that reason the
//! parent does both, and the child has no access to its parent:
//!
//! | sender | transfer |
//! |---|---|
//! | the parent | duplicates the handle into its child and sends the number |
//! | the child | makes a copy of its own and sends the number; the parent removes it from the child |
//!
//! A child can therefore name only its own handles, and harms only itself with wrong ones. The parent checks
//! only that the number could be that of a handle.
//!
//! Another process may stand between the two, such as a shell that started the child. The numbers would then
//! be valid in the shell. Each side therefore first announces the process ID it means, and handles are passed
//! only if both are the same.

use std::io;
use std::os::windows::io::{
    AsHandle as _, AsRawHandle as _, BorrowedHandle, FromRawHandle, OwnedHandle,
};
use std::process;
use std::ptr;

use windows_sys::Win32::Foundation::{
    DUPLICATE_CLOSE_SOURCE, DUPLICATE_SAME_ACCESS, DuplicateHandle, ERROR_ACCESS_DENIED, HANDLE,
};
use windows_sys::Win32::System::Threading::GetCurrentProcess;

use super::connect::PairEnd;
use crate::base::handle::{Handle, copy_of, number_of};
use crate::base::wake::is_signalled;
use crate::process::child::ChildHandle;

/// The process that has the other end.
#[derive(Debug)]
pub(super) enum PeerProcess {
    /// An unknown process: no handles can be passed.
    Unknown,
    /// This process, if both ends are there.
    Local(PairEnd),
    /// A child of this process.
    Child { process: OwnedHandle, id: u32, confirmed: Confirmed },
    /// The process that started this one.
    Parent { confirmed: Confirmed },
}

/// The confirmations that both sides mean the same process.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Confirmed {
    /// True if the other side has confirmed it.
    by_other_side: bool,
    /// True if this side has confirmed it.
    by_this_side: bool,
}

/// Handles in transit to the other side.
#[derive(Debug, Default)]
pub(super) struct OutgoingHandles {
    /// Their numbers in the other process or, for a child, in this one.
    pub(super) numbers: Vec<u64>,
    /// The handles that the other side takes from this process.
    pub(super) lent: Vec<OwnedHandle>,
}

impl PeerProcess {
    pub(super) fn child(child: &ChildHandle) -> io::Result<PeerProcess> {
        let process = child.0.process().ok_or(io::ErrorKind::NotFound)?;
        let process = copy_of(process.as_raw_handle(), false)?;
        Ok(PeerProcess::Child { process, id: child.pid(), confirmed: Confirmed::default() })
    }

    pub(super) fn parent() -> PeerProcess {
        PeerProcess::Parent { confirmed: Confirmed::default() }
    }

    pub(super) fn carries_handles(&self) -> bool {
        match self {
            PeerProcess::Unknown => false,
            PeerProcess::Local(side) => side.is_complete(),
            PeerProcess::Child { confirmed, .. } | PeerProcess::Parent { confirmed } => {
                confirmed.by_other_side
            }
        }
    }

    /// Returns the process ID to announce to the other side, once.
    pub(super) fn introduction(&mut self) -> Option<u32> {
        match self {
            PeerProcess::Child { id, confirmed, .. } if !confirmed.by_this_side => {
                confirmed.by_this_side = true;
                Some(*id)
            }
            PeerProcess::Parent { confirmed }
                if confirmed.by_other_side && !confirmed.by_this_side =>
            {
                confirmed.by_this_side = true;
                Some(process::id())
            }
            _ => None,
        }
    }

    /// Records the process ID that the other side announced.
    pub(super) fn confirm(&mut self, theirs: u32) {
        match self {
            PeerProcess::Child { id, confirmed, .. } => confirmed.by_other_side = theirs == *id,
            PeerProcess::Parent { confirmed } => confirmed.by_other_side = theirs == process::id(),
            PeerProcess::Unknown | PeerProcess::Local(_) => {}
        }
    }

    /// Prepares handles for the other side.
    pub(super) fn give(&self, handles: &[Handle]) -> io::Result<OutgoingHandles> {
        if handles.is_empty() {
            return Ok(OutgoingHandles::default());
        }
        if !self.carries_handles() {
            let message = "handles cannot be passed to an unknown process: see Channel::start";
            return Err(io::Error::new(io::ErrorKind::Unsupported, message));
        }
        match self {
            PeerProcess::Local(side) => {
                let copies = handles.iter().map(Handle::try_clone).collect::<io::Result<_>>()?;
                side.give(copies);
                Ok(OutgoingHandles { numbers: vec![0; handles.len()], lent: Vec::new() })
            }
            PeerProcess::Child { process, .. } => {
                let mut numbers = Vec::with_capacity(handles.len());
                for handle in handles {
                    match put(process, handle) {
                        Ok(number) => numbers.push(number),
                        Err(error) => {
                            // Removes the handles inserted so far, which are never announced.
                            numbers.iter().for_each(|number| drop(take(process, *number)));
                            return Err(error);
                        }
                    }
                }
                Ok(OutgoingHandles { numbers, lent: Vec::new() })
            }
            _ => {
                let copy = |handle: &Handle| copy_of(handle.as_raw_handle(), false);
                let lent = handles.iter().map(copy).collect::<io::Result<Vec<_>>>()?;
                let number = |handle: &OwnedHandle| number_of(handle.as_raw_handle()) as u64;
                Ok(OutgoingHandles { numbers: lent.iter().map(number).collect(), lent })
            }
        }
    }

    /// Takes the handles that the other side announced.
    pub(super) fn take(&self, numbers: &[u64]) -> io::Result<Vec<Handle>> {
        match self {
            PeerProcess::Local(side) => side.take(numbers.len()),
            PeerProcess::Child { process, confirmed, .. } if confirmed.by_other_side => {
                numbers.iter().map(|number| take(process, *number)).collect()
            }
            // They are in this process already. Wrong numbers from the parent are no new risk: it controls this process.
            PeerProcess::Parent { confirmed } if confirmed.by_other_side => {
                // SAFETY: no arguments; a pseudo handle, which is not closed.
                let own = unsafe { GetCurrentProcess() };
                // SAFETY: as above.
                let own = unsafe { BorrowedHandle::borrow_raw(own) };
                numbers.iter().map(|number| take_from(own, *number)).collect()
            }
            _ => Err(wrong("an unknown process announced handles")),
        }
    }
}

/// Duplicates a handle into the process. Returns its number there.
fn put(process: &OwnedHandle, handle: &Handle) -> io::Result<u64> {
    let mut number = ptr::null_mut();
    // SAFETY: no arguments; a pseudo handle, which is not closed.
    let own = unsafe { GetCurrentProcess() };
    // SAFETY: open handles and a live place.
    let copied = unsafe {
        let (from, to) = (handle.as_raw_handle(), process.as_raw_handle());
        DuplicateHandle(own, from, to, &raw mut number, 0, 0, DUPLICATE_SAME_ACCESS)
    };
    if copied == 0 {
        let error = io::Error::last_os_error();
        return Err(of_ended(process.as_handle(), error));
    }
    Ok(number_of(number) as u64)
}

/// Takes a handle from a child, where it is closed.
fn take(process: &OwnedHandle, number: u64) -> io::Result<Handle> {
    take_from(process.as_handle(), number)
}

fn take_from(process: BorrowedHandle<'_>, number: u64) -> io::Result<Handle> {
    // Larger numbers are pseudo handles, which would mean our own process or thread.
    let number = i32::try_from(number).ok().filter(|number| *number > 0 && number % 4 == 0);
    let number = number.ok_or_else(|| wrong("the number is not that of a handle"))?;
    let theirs: HANDLE = ptr::without_provenance_mut(number as usize);
    let copy =
        copied(process, theirs, DUPLICATE_SAME_ACCESS).map_err(|error| of_ended(process, error))?;
    // Closed there by a second call, because under Wine a closing call never returns if the handle does not
    // exist. Ignored: a child that has closed it or has ended has no such handle any more.
    let _ = copied(process, theirs, DUPLICATE_SAME_ACCESS | DUPLICATE_CLOSE_SOURCE);
    Ok(Handle::from(copy))
}

fn copied(process: BorrowedHandle<'_>, theirs: HANDLE, how: u32) -> io::Result<OwnedHandle> {
    let mut copy = ptr::null_mut();
    // SAFETY: no arguments; a pseudo handle, which is not closed.
    let own = unsafe { GetCurrentProcess() };
    let from = process.as_raw_handle();
    // SAFETY: an open process and a live place. If the number is no handle there, the call fails.
    if unsafe { DuplicateHandle(from, theirs, own, &raw mut copy, 0, 0, how) } == 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: created by the call above, and owned by nobody else.
    Ok(unsafe { OwnedHandle::from_raw_handle(copy) })
}

/// Returns the meaning of an error. A process loses its handles before its end can be seen.
fn of_ended(process: BorrowedHandle<'_>, error: io::Error) -> io::Error {
    let is_ending = error.raw_os_error() == Some(ERROR_ACCESS_DENIED as i32);
    if is_ending || is_signalled(process) {
        return io::ErrorKind::BrokenPipe.into();
    }
    wrong("the announced handle does not exist")
}

fn wrong(message: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, message)
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::Read as _;
    use std::process::{Command, Stdio};

    use super::*;

    fn some_file() -> Handle {
        Handle::from(File::open(std::env::current_exe().unwrap()).unwrap())
    }

    fn kind_of(result: io::Result<Vec<Handle>>) -> io::ErrorKind {
        result.unwrap_err().kind()
    }

    #[test]
    fn child_gets_handles_and_can_name_only_its_own() {
        let mut command = Command::new("cmd");
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        // Wait for its prompt: a starting process would open handles with these numbers again.
        let mut prompt = [0];
        while prompt != *b">" {
            child.stdout.as_mut().unwrap().read_exact(&mut prompt).unwrap();
        }
        let process = copy_of(child.as_raw_handle(), false).unwrap();
        let mut peer =
            PeerProcess::Child { process, id: child.id(), confirmed: Confirmed::default() };
        let files = [some_file(), some_file()];
        assert_eq!(peer.give(&files).unwrap_err().kind(), io::ErrorKind::Unsupported);
        assert_eq!(kind_of(peer.take(&[4])), io::ErrorKind::InvalidData);
        // The other end is in another process.
        peer.confirm(child.id() + 4);
        assert!(!peer.carries_handles() && peer.give(&files).is_err());
        peer.confirm(child.id());
        let numbers = peer.give(&files).unwrap().numbers;
        assert_eq!(peer.take(&numbers).unwrap().len(), 2);
        // They were removed from the child.
        assert_eq!(kind_of(peer.take(&numbers)), io::ErrorKind::InvalidData);
        // Numbers that are no handles, and pseudo handles.
        let own_process = u64::MAX;
        let own_thread = u64::MAX - 1;
        for number in [0, 1, 6, 1 << 31, 1 << 32, own_process, own_thread, u64::MAX - 3] {
            assert_eq!(kind_of(peer.take(&[number])), io::ErrorKind::InvalidData, "{number:#x}");
        }
        let numbers = peer.give(&files).unwrap().numbers;
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(kind_of(peer.take(&numbers)), io::ErrorKind::BrokenPipe);
        assert_eq!(peer.give(&files).unwrap_err().kind(), io::ErrorKind::BrokenPipe);
    }

    #[test]
    fn each_side_announces_its_process_once() {
        let mut parent = PeerProcess::parent();
        assert_eq!(parent.introduction(), None);
        parent.confirm(process::id() + 4);
        assert_eq!((parent.introduction(), parent.carries_handles()), (None, false));
        parent.confirm(process::id());
        assert_eq!((parent.introduction(), parent.carries_handles()), (Some(process::id()), true));
        assert_eq!(parent.introduction(), None);
        // Handles sent by a child exist until the parent takes them.
        let given = parent.give(&[some_file()]).unwrap();
        let number = number_of(given.lent[0].as_raw_handle()) as u64;
        assert_eq!(given.numbers, [number]);
        std::mem::forget(given.lent);
        assert_eq!(parent.take(&[number]).unwrap().len(), 1);
    }
}
