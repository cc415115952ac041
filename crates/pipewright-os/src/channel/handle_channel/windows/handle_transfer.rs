//! Who has the other end, and how handles get there and back.
//!
//! A handle is a number of one process. Only whoever has a handle of that process, with the right to copy,
//! can put one in or take one out; and to have that of a process is to have all of it. So the process that
//! has started the other one does both, and nobody else can do anything to it:
//!
//! | who sends | what happens |
//! |---|---|
//! | the parent | puts a copy into its child, and tells the number |
//! | the child | makes a copy of its own, and tells the number: the parent takes it out of the child |
//!
//! So a child names handles of its own and of nobody else, and harms itself if these are none, or others.
//! What it names is looked at only to the extent that it is a number that any process could have.
//!
//! Between the two there may be another process: a shell that has started the child. The numbers would
//! then be those of the shell. So both tell first which process they mean, and only if it is the same one
//! are handles passed.

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

use super::connect::Side;
use crate::base::handle::{Handle, copy_of, number_of};
use crate::base::wake::is_signalled;
use crate::process::child::ChildHandle;

/// Who has the other end.
#[derive(Debug)]
pub(super) enum Peer {
    /// That is not known: no handles can be passed.
    Unknown,
    /// This process, once both ends are there.
    Local(Side),
    /// A child of ours, of which we have the handle and the number.
    Child { process: OwnedHandle, id: u32, confirmed: Confirmed },
    /// The process that has started this one.
    Parent { confirmed: Confirmed },
}

/// Whether both sides mean the same process.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Confirmed {
    /// The other side has said so.
    them: bool,
    /// We have said so.
    us: bool,
}

/// Handles on their way to the other side.
#[derive(Debug, Default)]
pub(super) struct Outgoing {
    /// Their numbers there, or here.
    pub(super) numbers: Vec<u64>,
    /// Those that the other side takes from us.
    pub(super) lent: Vec<OwnedHandle>,
}

impl Peer {
    pub(super) fn child(child: &ChildHandle) -> io::Result<Peer> {
        let process = child.0.process().ok_or(io::ErrorKind::NotFound)?;
        let process = copy_of(process.as_raw_handle(), false)?;
        Ok(Peer::Child { process, id: child.pid(), confirmed: Confirmed::default() })
    }

    pub(super) fn parent() -> Peer {
        Peer::Parent { confirmed: Confirmed::default() }
    }

    pub(super) fn carries_handles(&self) -> bool {
        match self {
            Peer::Unknown => false,
            Peer::Local(side) => side.is_complete(),
            Peer::Child { confirmed, .. } | Peer::Parent { confirmed } => confirmed.them,
        }
    }

    /// The process that the other side has to be told, if it was not.
    pub(super) fn introduction(&mut self) -> Option<u32> {
        match self {
            Peer::Child { id, confirmed, .. } if !confirmed.us => {
                confirmed.us = true;
                Some(*id)
            }
            Peer::Parent { confirmed } if confirmed.them && !confirmed.us => {
                confirmed.us = true;
                Some(process::id())
            }
            _ => None,
        }
    }

    /// Notes which process the other side means.
    pub(super) fn confirm(&mut self, theirs: u32) {
        match self {
            Peer::Child { id, confirmed, .. } => confirmed.them = theirs == *id,
            Peer::Parent { confirmed } => confirmed.them = theirs == process::id(),
            Peer::Unknown | Peer::Local(_) => {}
        }
    }

    /// Prepares handles for the other side.
    pub(super) fn give(&self, handles: &[Handle]) -> io::Result<Outgoing> {
        if handles.is_empty() {
            return Ok(Outgoing::default());
        }
        if !self.carries_handles() {
            let words = "handles cannot be passed to an unknown process: see Channel::start";
            return Err(io::Error::new(io::ErrorKind::Unsupported, words));
        }
        match self {
            Peer::Local(side) => {
                let copies = handles.iter().map(Handle::try_clone).collect::<io::Result<_>>()?;
                side.give(copies);
                Ok(Outgoing { numbers: vec![0; handles.len()], lent: Vec::new() })
            }
            Peer::Child { process, .. } => {
                let mut numbers = Vec::with_capacity(handles.len());
                for handle in handles {
                    match put(process, handle) {
                        Ok(number) => numbers.push(number),
                        Err(error) => {
                            // What was put there before: nobody will tell it.
                            numbers.iter().for_each(|number| drop(take(process, *number)));
                            return Err(error);
                        }
                    }
                }
                Ok(Outgoing { numbers, lent: Vec::new() })
            }
            _ => {
                let copy = |handle: &Handle| copy_of(handle.as_raw_handle(), false);
                let lent = handles.iter().map(copy).collect::<io::Result<Vec<_>>>()?;
                let number = |handle: &OwnedHandle| number_of(handle.as_raw_handle()) as u64;
                Ok(Outgoing { numbers: lent.iter().map(number).collect(), lent })
            }
        }
    }

    /// Takes the handles that the other side has announced.
    pub(super) fn take(&self, numbers: &[u64]) -> io::Result<Vec<Handle>> {
        match self {
            Peer::Local(side) => side.take(numbers.len()),
            Peer::Child { process, confirmed, .. } if confirmed.them => {
                numbers.iter().map(|number| take(process, *number)).collect()
            }
            // Ours already. Who has started us could do worse than to lie about that.
            Peer::Parent { confirmed } if confirmed.them => {
                // SAFETY: no arguments; a pseudo handle, which nobody closes.
                let own = unsafe { GetCurrentProcess() };
                // SAFETY: as above.
                let own = unsafe { BorrowedHandle::borrow_raw(own) };
                numbers.iter().map(|number| take_from(own, *number)).collect()
            }
            _ => Err(wrong("an unknown process announced handles")),
        }
    }
}

/// Puts a copy into that process. Its number there.
fn put(process: &OwnedHandle, handle: &Handle) -> io::Result<u64> {
    let mut number = ptr::null_mut();
    // SAFETY: no arguments; a pseudo handle, which nobody closes.
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

/// Takes a handle out of a child: it is closed there.
fn take(process: &OwnedHandle, number: u64) -> io::Result<Handle> {
    take_from(process.as_handle(), number)
}

fn take_from(process: BorrowedHandle<'_>, number: u64) -> io::Result<Handle> {
    // Beyond these are the numbers that mean whoever asks, which is us: his process, his thread.
    let number = i32::try_from(number).ok().filter(|number| *number > 0 && number % 4 == 0);
    let number = number.ok_or_else(|| wrong("the number is not that of a handle"))?;
    let theirs: HANDLE = ptr::without_provenance_mut(number as usize);
    let copy =
        copied(process, theirs, DUPLICATE_SAME_ACCESS).map_err(|error| of_ended(process, error))?;
    // Closed there by a second call: where there is no such handle Wine never returns from one that closes.
    // Ignored: who has closed it meanwhile, or has ended, has nothing left of it.
    let _ = copied(process, theirs, DUPLICATE_SAME_ACCESS | DUPLICATE_CLOSE_SOURCE);
    Ok(Handle::from(copy))
}

fn copied(process: BorrowedHandle<'_>, theirs: HANDLE, how: u32) -> io::Result<OwnedHandle> {
    let mut copy = ptr::null_mut();
    // SAFETY: no arguments; a pseudo handle, which nobody closes.
    let own = unsafe { GetCurrentProcess() };
    let from = process.as_raw_handle();
    // SAFETY: an open process and a live place. A number that is no handle there is an error of the call.
    if unsafe { DuplicateHandle(from, theirs, own, &raw mut copy, 0, 0, how) } == 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: made by the call above, for nobody else.
    Ok(unsafe { OwnedHandle::from_raw_handle(copy) })
}

/// What an error means: the handles of a process go when it ends, before its end can be seen.
fn of_ended(process: BorrowedHandle<'_>, error: io::Error) -> io::Error {
    let is_ending = error.raw_os_error() == Some(ERROR_ACCESS_DENIED as i32);
    if is_ending || is_signalled(process) {
        return io::ErrorKind::BrokenPipe.into();
    }
    wrong("the announced handle does not exist")
}

fn wrong(words: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, words)
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
    fn a_child_is_given_handles_and_can_name_only_its_own() {
        let mut command = Command::new("cmd");
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        // Until it waits for a command: while it begins it would have handles of those numbers again.
        let mut said = [0];
        while said != *b">" {
            child.stdout.as_mut().unwrap().read_exact(&mut said).unwrap();
        }
        let process = copy_of(child.as_raw_handle(), false).unwrap();
        let mut peer = Peer::Child { process, id: child.id(), confirmed: Confirmed::default() };
        let files = [some_file(), some_file()];
        assert_eq!(peer.give(&files).unwrap_err().kind(), io::ErrorKind::Unsupported);
        assert_eq!(kind_of(peer.take(&[4])), io::ErrorKind::InvalidData);
        // Somebody else has the other end.
        peer.confirm(child.id() + 4);
        assert!(!peer.carries_handles() && peer.give(&files).is_err());
        peer.confirm(child.id());
        let numbers = peer.give(&files).unwrap().numbers;
        assert_eq!(peer.take(&numbers).unwrap().len(), 2);
        // They were taken out of it.
        assert_eq!(kind_of(peer.take(&numbers)), io::ErrorKind::InvalidData);
        // No numbers of handles, and those that mean whoever asks.
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
    fn each_side_says_once_which_process_it_means() {
        let mut parent = Peer::parent();
        assert_eq!(parent.introduction(), None);
        parent.confirm(process::id() + 4);
        assert_eq!((parent.introduction(), parent.carries_handles()), (None, false));
        parent.confirm(process::id());
        assert_eq!((parent.introduction(), parent.carries_handles()), (Some(process::id()), true));
        assert_eq!(parent.introduction(), None);
        // What it gives is there until it is taken.
        let given = parent.give(&[some_file()]).unwrap();
        let number = number_of(given.lent[0].as_raw_handle()) as u64;
        assert_eq!(given.numbers, [number]);
        std::mem::forget(given.lent);
        assert_eq!(parent.take(&[number]).unwrap().len(), 1);
    }
}
