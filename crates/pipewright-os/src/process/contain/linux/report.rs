//! Messages of a supervisor: the exit status of the command, and the number of killed processes.

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

use crate::process::child::linux::ExitReporter;
use crate::process::status::{Ended, ExitStatus};
use crate::process::usage::Usage;

const WORD_BYTES: usize = 8;
/// The size of a message: six words, as `supervisor/main.rs` sends them. The first is the kind.
const MESSAGE_BYTES: usize = 6 * WORD_BYTES;

const ENDED: i64 = 1;
const ENDED_LAST: i64 = 6;
const TREE_ENDED: i64 = 2;
/// Sent before the new process executes the supervisor's program.
const STARTED: i64 = 3;
const STOPPED: i64 = 4;
const CAN_WORK: i64 = 5;

/// A message from the supervisor or the guard.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SupervisorReport {
    /// The end of the process with that number: the command, or a process that the guard had to adopt.
    Ended(i32, Ended),
    /// The end of the command, with no process left. No more messages follow.
    EndedLast(i32, Ended),
    /// A stop of the command by Ctrl-Z, or by another signal that stops.
    CommandStopped,
    /// The end of the tree, with the number of killed processes.
    TreeEnded(u32),
    /// The result of the start: for [`Reports::started`].
    Started,
    /// The machine allows every call that supervising takes.
    CanWork,
    /// The end of the messages: neither the supervisor nor the guard runs any more.
    Nothing,
}

/// A command that has been started below a supervisor.
#[derive(Debug)]
pub(crate) struct StartedCommand {
    pub(crate) pid: i32,
    pub(crate) supervisor: u32,
    /// The pidfd of the command; `None` if this process has no room for it.
    pub(crate) pidfd: Option<OwnedFd>,
}

impl StartedCommand {
    /// Returns the message that [`Reports::started`] reads.
    pub(crate) fn words(pid: i32, supervisor: i32, errno: i32) -> [i64; 6] {
        [STARTED, i64::from(pid), i64::from(supervisor), i64::from(errno), 0, 0]
    }
}

/// The reason why no command runs below a supervisor.
#[derive(Debug)]
pub(crate) enum NotStarted {
    /// The command failed to start.
    Command(io::Error),
    /// The guard or the supervisor failed.
    Supervisor(io::Error),
}

impl NotStarted {
    /// Returns the message that [`Reports::started`] reads, for [`NotStarted::Supervisor`].
    pub(crate) fn words(errno: i32) -> [i64; 6] {
        [STARTED, 0, 0, i64::from(errno), 1, 0]
    }
}

impl From<Errno> for NotStarted {
    fn from(error: Errno) -> NotStarted {
        NotStarted::Command(error.into())
    }
}

/// The host's end of the socket. The supervisor and the guard hold the other end, so its end is the end of
/// both, and with them of the tree.
#[derive(Debug)]
pub(crate) struct Reports(OwnedFd);

impl Reports {
    /// Creates the host's end, and the one for the supervisor.
    pub(crate) fn pair() -> io::Result<(Reports, OwnedFd)> {
        // Messages, not a stream: each arrives as a whole or not at all.
        let kind = SocketType::SEQPACKET;
        let (ours, theirs) =
            rustix::net::socketpair(AddressFamily::UNIX, kind, SocketFlags::CLOEXEC, None)?;
        Ok((Reports(ours), theirs))
    }

    /// Fails if a sandbox would refuse one of the calls below: it refuses before the kernel finds out that
    /// the descriptor is not a socket.
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

    /// Waits for the message with the result of the start.
    pub(crate) fn started(&self) -> Result<StartedCommand, NotStarted> {
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
                NotStarted::Supervisor(error)
            });
        }
        Ok(StartedCommand {
            pid: word(&message, 1) as i32,
            supervisor: word(&message, 2) as u32,
            pidfd,
        })
    }

    /// Returns the next message and leaves it in the socket, so that it also wakes other waiters.
    pub(crate) fn peek(&self) -> io::Result<Option<SupervisorReport>> {
        self.receive(RecvFlags::PEEK)
    }

    /// Takes the next message.
    pub(crate) fn take(&self) -> io::Result<Option<SupervisorReport>> {
        self.receive(RecvFlags::empty())
    }

    /// Asks the supervisor to end the tree. It may have done so already.
    pub(crate) fn request_end(&self) {
        // Ignored: no process is left to receive the request.
        let _ = self.try_request_end();
    }

    /// Does the same, and returns an error if this machine refuses it.
    pub(crate) fn try_request_end(&self) -> io::Result<()> {
        Ok(rustix::net::shutdown(&self.0, Shutdown::Write)?)
    }

    fn receive(&self, flags: RecvFlags) -> io::Result<Option<SupervisorReport>> {
        let mut message = [0; MESSAGE_BYTES];
        let received = rustix::io::retry_on_intr(|| {
            rustix::net::recv(&self.0, &mut message, flags | RecvFlags::DONTWAIT)
        });
        match received {
            Ok((MESSAGE_BYTES, _)) => Ok(Some(read(message))),
            // An empty message is the end; a truncated one is from an unknown sender.
            Ok(_) | Err(Errno::CONNRESET) => Ok(Some(SupervisorReport::Nothing)),
            Err(Errno::AGAIN) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }
}

/// The exit reports of one command, for the handle on its end.
#[derive(Debug)]
pub(crate) struct CommandReporter {
    pub(crate) reports: Arc<Reports>,
    pub(crate) command: i32,
    pub(crate) has_stopped: AtomicBool,
}

impl CommandReporter {
    pub(crate) fn new(reports: Arc<Reports>, command: i32) -> CommandReporter {
        CommandReporter { reports, command, has_stopped: AtomicBool::new(false) }
    }
}

impl ExitReporter for CommandReporter {
    fn end(&self) -> io::Result<Option<Ended>> {
        loop {
            match self.reports.peek()? {
                None => return Ok(None),
                Some(
                    SupervisorReport::Ended(pid, ended) | SupervisorReport::EndedLast(pid, ended),
                ) if pid == self.command => {
                    return Ok(Some(ended));
                }
                Some(SupervisorReport::CommandStopped) => {
                    self.has_stopped.store(true, Ordering::Relaxed);
                    self.reports.take().map(drop)?;
                }
                // The end of another process of the tree, whose supervisor was killed. Or a message that
                // never comes at this point.
                Some(
                    SupervisorReport::Ended(..)
                    | SupervisorReport::EndedLast(..)
                    | SupervisorReport::Started
                    | SupervisorReport::CanWork,
                ) => {
                    self.reports.take().map(drop)?;
                }
                // Both processes that could have reported have been killed, and the command with them.
                Some(SupervisorReport::TreeEnded(_) | SupervisorReport::Nothing) => {
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

fn read(message: [u8; MESSAGE_BYTES]) -> SupervisorReport {
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
            let report =
                if kind == ENDED { SupervisorReport::Ended } else { SupervisorReport::EndedLast };
            report(word(1) as i32, Ended { status, usage: Some(usage) })
        }
        STARTED => SupervisorReport::Started,
        STOPPED => SupervisorReport::CommandStopped,
        CAN_WORK => SupervisorReport::CanWork,
        TREE_ENDED => SupervisorReport::TreeEnded(u32::try_from(word(1)).unwrap_or(0)),
        _ => SupervisorReport::Nothing,
    }
}

fn word(message: &[u8; MESSAGE_BYTES], index: usize) -> i64 {
    let bytes = message.chunks_exact(WORD_BYTES).nth(index);
    i64::from_ne_bytes(bytes.and_then(|bytes| bytes.try_into().ok()).unwrap_or_default())
}

fn micros(count: i64) -> Duration {
    Duration::from_micros(u64::try_from(count).unwrap_or(0))
}
