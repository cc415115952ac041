//! What a supervisor tells: how the command ended, and how many had to be killed.

use std::io::{self, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, Shutdown, SocketFlags,
    SocketType,
};

use crate::process::child::linux::Tells;
use crate::process::status::{Ended, ExitStatus};
use crate::process::usage::Usage;

const WORD_BYTES: usize = 8;
/// Six words, as `supervisor/main.rs` sends them: the kind, then what it says.
const MESSAGE_BYTES: usize = 6 * WORD_BYTES;

const ENDED: i64 = 1;
const ENDED_LAST: i64 = 6;
const TREE_ENDED: i64 = 2;
/// Sent before the supervisor has become the program.
const STARTED: i64 = 3;
const STOPPED: i64 = 4;
const CAN_WORK: i64 = 5;

/// A message from the supervisor or the guard.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Report {
    /// A process of that number: the command, or one that the guard had to adopt.
    Ended(i32, Ended),
    /// The command, and nobody is left. Nothing more is coming.
    EndedLast(i32, Ended),
    /// By Ctrl-Z, or another signal that stops.
    CommandStopped,
    /// How many were killed.
    TreeEnded(u32),
    /// How the start went: for [`Reports::started`].
    Started,
    /// This machine does not refuse what it takes to supervise.
    CanWork,
    /// Nothing more is coming: neither the supervisor nor the guard runs any more.
    Nothing,
}

/// A command that has been started below a supervisor.
#[derive(Debug)]
pub(crate) struct Started {
    pub(crate) pid: i32,
    pub(crate) supervisor: u32,
    /// `None`: no room for it here.
    pub(crate) pidfd: Option<OwnedFd>,
}

impl Started {
    /// The message that [`Reports::started`] reads.
    pub(crate) fn words(pid: i32, supervisor: i32, errno: i32) -> [i64; 6] {
        [STARTED, i64::from(pid), i64::from(supervisor), i64::from(errno), 0, 0]
    }
}

/// The reason for which no command runs below a supervisor.
#[derive(Debug)]
pub(crate) enum NotStarted {
    /// The command could not be started.
    Command(io::Error),
    /// The guard or the supervisor could not do its part.
    Held(io::Error),
}

impl NotStarted {
    /// The message that [`Reports::started`] reads, for [`NotStarted::Held`].
    pub(crate) fn words(errno: i32) -> [i64; 6] {
        [STARTED, 0, 0, i64::from(errno), 1, 0]
    }
}

impl From<Errno> for NotStarted {
    fn from(error: Errno) -> NotStarted {
        NotStarted::Command(error.into())
    }
}

/// Our end of the socket. The other one is held by the supervisor and the guard, so that its end
/// is the end of both, and with them of the tree.
#[derive(Debug)]
pub(crate) struct Reports(OwnedFd);

impl Reports {
    /// Our end, and the one for the supervisor.
    pub(crate) fn pair() -> io::Result<(Reports, OwnedFd)> {
        // Messages, not a stream: each is there as a whole or not at all.
        let kind = SocketType::SEQPACKET;
        let (ours, theirs) =
            rustix::net::socketpair(AddressFamily::UNIX, kind, SocketFlags::CLOEXEC, None)?;
        Ok((Reports(ours), theirs))
    }

    /// Whether a sandbox would refuse one of the calls below: it answers before anybody finds out that
    /// this is no socket.
    pub(crate) fn can_be_used(no_socket: BorrowedFd<'_>) -> io::Result<()> {
        let mut space = RecvAncillaryBuffer::default();
        let none = RecvFlags::DONTWAIT;
        let answers = [
            rustix::net::shutdown(no_socket, Shutdown::Write),
            rustix::net::recv(no_socket, &mut [0; 1], none).map(drop),
            rustix::net::recvmsg(no_socket, &mut [], &mut space, none).map(drop),
        ];
        match answers.into_iter().find(|answer| *answer != Err(Errno::NOTSOCK)) {
            Some(refused) => Ok(refused?),
            None => Ok(()),
        }
    }

    /// Waits for the word on how the start went.
    pub(crate) fn started(&self) -> Result<Started, NotStarted> {
        let mut message = [0; MESSAGE_BYTES];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut rights = RecvAncillaryBuffer::new(&mut space);
        let received = rustix::io::retry_on_intr(|| {
            let mut parts = [IoSliceMut::new(&mut message)];
            rustix::net::recvmsg(&self.0, &mut parts, &mut rights, RecvFlags::CMSG_CLOEXEC)
        })?;
        let pidfd = rights.drain().find_map(|sent| match sent {
            RecvAncillaryMessage::ScmRights(mut handles) => handles.next(),
            _ => None,
        });
        let errno = word(&message, 3) as i32;
        if received.bytes != MESSAGE_BYTES || word(&message, 0) != STARTED {
            return Err(NotStarted::Command(io::Error::other("the supervisor was killed")));
        }
        if errno != 0 {
            let error = io::Error::from_raw_os_error(errno);
            let is_about_the_command = word(&message, 4) == 0;
            return Err(if is_about_the_command {
                NotStarted::Command(error)
            } else {
                NotStarted::Held(error)
            });
        }
        Ok(Started { pid: word(&message, 1) as i32, supervisor: word(&message, 2) as u32, pidfd })
    }

    /// The next message, left where it is: whoever else waits for it is woken by it too.
    pub(crate) fn peek(&self) -> io::Result<Option<Report>> {
        self.receive(RecvFlags::PEEK)
    }

    /// The next message.
    pub(crate) fn take(&self) -> io::Result<Option<Report>> {
        self.receive(RecvFlags::empty())
    }

    /// Tells the supervisor to end the tree. It may have done so already.
    pub(crate) fn let_go(&self) {
        // Ignored: nobody is there to be told.
        let _ = self.try_to_let_go();
    }

    /// The same, where it is of interest whether this machine lets us.
    pub(crate) fn try_to_let_go(&self) -> io::Result<()> {
        Ok(rustix::net::shutdown(&self.0, Shutdown::Write)?)
    }

    fn receive(&self, flags: RecvFlags) -> io::Result<Option<Report>> {
        let mut message = [0; MESSAGE_BYTES];
        let received = rustix::io::retry_on_intr(|| {
            rustix::net::recv(&self.0, &mut message, flags | RecvFlags::DONTWAIT)
        });
        match received {
            Ok((MESSAGE_BYTES, _)) => Ok(Some(read(message))),
            // Nothing is the end; what is cut short is from nobody that we know.
            Ok(_) | Err(Errno::CONNRESET) => Ok(Some(Report::Nothing)),
            Err(Errno::AGAIN) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }
}

/// What the reports say of one command, for the handle on its end.
#[derive(Debug)]
pub(crate) struct Teller {
    pub(crate) reports: Arc<Reports>,
    pub(crate) command: i32,
    pub(crate) has_stopped: AtomicBool,
}

impl Teller {
    pub(crate) fn new(reports: Arc<Reports>, command: i32) -> Teller {
        Teller { reports, command, has_stopped: AtomicBool::new(false) }
    }
}

impl Tells for Teller {
    fn end(&self) -> io::Result<Option<Ended>> {
        loop {
            match self.reports.peek()? {
                None => return Ok(None),
                Some(Report::Ended(pid, ended) | Report::EndedLast(pid, ended))
                    if pid == self.command =>
                {
                    return Ok(Some(ended));
                }
                Some(Report::CommandStopped) => {
                    self.has_stopped.store(true, Ordering::Relaxed);
                    self.reports.take().map(drop)?;
                }
                // Somebody else of the tree, whose supervisor was killed. Or what never comes now.
                Some(
                    Report::Ended(..) | Report::EndedLast(..) | Report::Started | Report::CanWork,
                ) => {
                    self.reports.take().map(drop)?;
                }
                // Both who could have told have been killed, and it with them.
                Some(Report::TreeEnded(_) | Report::Nothing) => {
                    return Err(io::Error::from_raw_os_error(libc::ECHILD));
                }
            }
        }
    }

    fn wait_for_more(&self) -> io::Result<()> {
        let mut polled = [PollFd::new(&*self.reports, PollFlags::IN)];
        rustix::io::retry_on_intr(|| rustix::event::poll(&mut polled, None))?;
        Ok(())
    }

    fn take_stop(&self) -> bool {
        self.has_stopped.swap(false, Ordering::Relaxed)
    }

    fn pollable(&self) -> BorrowedFd<'_> {
        self.reports.as_fd()
    }
}

impl AsFd for Reports {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

fn read(message: [u8; MESSAGE_BYTES]) -> Report {
    let word = |index| word(&message, index);
    match word(0) {
        kind @ (ENDED | ENDED_LAST) => {
            let usage = Usage {
                user: micros(word(3)),
                system: micros(word(4)),
                counted_peak_rss_bytes: u64::try_from(word(5)).ok().map(|kib| kib * 1024),
                peak_rss_bytes: None,
            };
            let status = ExitStatus::from_raw(word(2) as i32);
            let report = if kind == ENDED { Report::Ended } else { Report::EndedLast };
            report(word(1) as i32, Ended { status, usage: Some(usage) })
        }
        STARTED => Report::Started,
        STOPPED => Report::CommandStopped,
        CAN_WORK => Report::CanWork,
        TREE_ENDED => Report::TreeEnded(u32::try_from(word(1)).unwrap_or(0)),
        _ => Report::Nothing,
    }
}

fn word(message: &[u8; MESSAGE_BYTES], index: usize) -> i64 {
    let bytes = message.chunks_exact(WORD_BYTES).nth(index);
    i64::from_ne_bytes(bytes.and_then(|bytes| bytes.try_into().ok()).unwrap_or_default())
}

fn micros(count: i64) -> Duration {
    Duration::from_micros(u64::try_from(count).unwrap_or(0))
}
