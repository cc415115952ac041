//! Messages of a supervisor: the exit status of the command, which is reported from them, and the number of killed
//! processes.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, Shutdown, SocketFlags, SocketType,
};

use crate::base::generation::Generation;
use crate::base::poll::poll_again;
use crate::process::child::linux::ExitReporter;
use crate::process::nolibc::message::{
    CAN_WORK, ENDED, ENDED_LAST, MESSAGE_WORDS, MOST_HANDLES, READY, Request, STARTED, STOPPED,
    TREE_ENDED, of_pid_and_status,
};
use crate::process::status::{Ended, ExitStatus};
use crate::process::usage::Usage;

const WORD_BYTES: usize = 8;
const MESSAGE_BYTES: usize = MESSAGE_WORDS * WORD_BYTES;

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
    pub(crate) fn words(pid: i32, supervisor: i32, errno: i32) -> [i64; MESSAGE_WORDS] {
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
    /// The answer could not be sent or received, or both were killed before it; the command may have run.
    Unknown(io::Error),
}

impl NotStarted {
    pub(crate) fn into_source(self) -> io::Error {
        match self {
            NotStarted::Command(error)
            | NotStarted::Supervisor(error)
            | NotStarted::Unknown(error) => error,
        }
    }

    /// Returns the message that [`Reports::started`] reads, for [`NotStarted::Supervisor`].
    pub(crate) fn words(errno: i32) -> [i64; MESSAGE_WORDS] {
        [STARTED, 0, 0, i64::from(errno), 1, 0]
    }

    /// Returns the message that [`Reports::started`] reads, for [`NotStarted::Unknown`].
    pub(crate) fn words_of_unknown(errno: i32) -> [i64; MESSAGE_WORDS] {
        [STARTED, 0, 0, i64::from(errno), 2, 0]
    }
}

/// The supervisor of a slot, once it can start commands.
pub(crate) struct Ready {
    pub(crate) supervisor: u32,
    /// The address of the plans in the supervisor.
    pub(crate) memory: u64,
}

/// A command that a slot's supervisor has started.
pub(crate) struct StartedJob {
    pub(crate) pid: i32,
    /// The pidfd of the command; `None` if this process has no room for it.
    pub(crate) pidfd: Option<OwnedFd>,
}

/// The reason why a slot's supervisor has not started a command.
#[derive(Debug)]
pub(crate) enum JobNotStarted {
    /// A step of the start failed; the number is one of `start/layout.rs`.
    Failed { errno: i32, step: u32 },
    /// The supervisor has ended before it received the request.
    NotReceived,
    /// The supervisor was killed during the start; the command may have run. No process is left.
    Killed,
    /// The answer could not be received; the command may have run.
    Socket(io::Error),
}

impl JobNotStarted {
    fn of_errno(error: Errno) -> JobNotStarted {
        JobNotStarted::Socket(error.into())
    }
}

/// The text of an error if both processes are gone.
pub(crate) const KILLED: &str = "the supervisor was killed";

impl From<Errno> for NotStarted {
    fn from(error: Errno) -> NotStarted {
        NotStarted::Unknown(error.into())
    }
}

/// The host's end of the socket. The supervisor and the guard hold the other end, so its end is the end of
/// both, and with them of the tree.
#[derive(Debug)]
pub(crate) struct Reports {
    socket: OwnedFd,
    /// The process that has made it. A fork neither reads the messages of this one nor ends its trees.
    made_in: Generation,
}

impl Reports {
    /// Creates the host's end, and the one for the supervisor.
    pub(crate) fn pair() -> io::Result<(Reports, OwnedFd)> {
        // Messages, not a stream: each arrives as a whole or not at all.
        let kind = SocketType::SEQPACKET;
        let (ours, theirs) =
            rustix::net::socketpair(AddressFamily::UNIX, kind, SocketFlags::CLOEXEC, None)?;
        Ok((Reports { socket: ours, made_in: Generation::current() }, theirs))
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

    /// Fails in a fork of the process that has made it.
    pub(crate) fn check_home(&self) -> rustix::io::Result<()> {
        if self.made_in.is_current() { Ok(()) } else { Err(Errno::CHILD) }
    }

    /// Waits for the message with the result of the start.
    pub(crate) fn started(&self) -> Result<StartedCommand, NotStarted> {
        let (message, pidfd) = self.receive_with_handle()?;
        let word = |index| message.word(index);
        if message.kind() != STARTED {
            return Err(NotStarted::Unknown(io::Error::other(KILLED)));
        }
        match (word(3) as i32, word(4)) {
            (0, _) => Ok(StartedCommand { pid: word(1) as i32, supervisor: word(2) as u32, pidfd }),
            (errno, 0) => Err(NotStarted::Command(io::Error::from_raw_os_error(errno))),
            (errno, 1) => Err(NotStarted::Supervisor(io::Error::from_raw_os_error(errno))),
            (errno, _) => Err(NotStarted::Unknown(io::Error::from_raw_os_error(errno))),
        }
    }

    /// Waits until the supervisor of a slot can start commands.
    pub(crate) fn ready(&self) -> Result<Ready, NotStarted> {
        let (message, _) = self.receive_with_handle()?;
        let word = |index| message.word(index);
        match (message.kind(), word(3) as i32) {
            (READY, _) => Ok(Ready { supervisor: word(1) as u32, memory: word(2) as u64 }),
            (STARTED, errno) if errno != 0 => {
                Err(NotStarted::Supervisor(io::Error::from_raw_os_error(errno)))
            }
            _ => Err(NotStarted::Supervisor(io::Error::other(KILLED))),
        }
    }

    /// Sends a request to the supervisor of a slot, with handles. Never waits: `EAGAIN` means that the supervisor does
    /// not read.
    pub(crate) fn request(
        &self,
        request: Request,
        handles: &[BorrowedFd<'_>],
    ) -> rustix::io::Result<()> {
        self.check_home()?;
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST_HANDLES))];
        let mut rights = SendAncillaryBuffer::new(&mut space);
        if !handles.is_empty() {
            rights.push(SendAncillaryMessage::ScmRights(handles));
        }
        let words = request.to_words().map(i64::to_ne_bytes);
        let parts = [IoSlice::new(words.as_flattened())];
        rustix::io::retry_on_intr(|| {
            let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
            rustix::net::sendmsg(&self.socket, &parts, &mut rights, flags)
        })
        .map(drop)
    }

    /// Waits for the result of the start of that job.
    pub(crate) fn job_started(&self, job: i64) -> Result<StartedJob, JobNotStarted> {
        let mut was_left_unread = false;
        loop {
            let (message, pidfd) = match self.receive_with_handle() {
                // The supervisor has ended and left a request unread. The kernel reports that once, before the
                // messages: one of them may say that this command was started, and another request was left.
                Err(Errno::CONNRESET) if !was_left_unread => {
                    was_left_unread = true;
                    continue;
                }
                received => received.map_err(JobNotStarted::of_errno)?,
            };
            let word = |index| message.word(index);
            match message.kind() {
                STARTED if word(2) == job => {
                    return match word(3) as i32 {
                        0 => Ok(StartedJob { pid: word(1) as i32, pidfd }),
                        errno => Err(JobNotStarted::Failed { errno, step: word(5) as u32 }),
                    };
                }
                // The end of all messages.
                0 if was_left_unread => return Err(JobNotStarted::NotReceived),
                0 => return Err(JobNotStarted::Killed),
                // From the guard, about processes of the slot that it had to adopt.
                _ => {}
            }
        }
    }

    /// Waits for the next message, and returns it with its handle. An empty message is the end.
    fn receive_with_handle(&self) -> rustix::io::Result<(Message, Option<OwnedFd>)> {
        self.check_home()?;
        let mut message = [0; MESSAGE_BYTES];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut rights = RecvAncillaryBuffer::new(&mut space);
        let received = rustix::io::retry_on_intr(|| {
            let mut parts = [IoSliceMut::new(&mut message)];
            rustix::net::recvmsg(&self.socket, &mut parts, &mut rights, RecvFlags::CMSG_CLOEXEC)
        })?;
        let handle = rights.drain().find_map(|sent| match sent {
            RecvAncillaryMessage::ScmRights(mut handles) => handles.next(),
            _ => None,
        });
        // An incomplete message is from an unknown sender.
        let is_whole = received.bytes == MESSAGE_BYTES;
        Ok((Message(if is_whole { message } else { [0; MESSAGE_BYTES] }), handle))
    }

    /// Returns the next message and leaves it in the socket, so that it also wakes other waiters.
    pub(crate) fn peek(&self) -> io::Result<Option<SupervisorReport>> {
        self.receive(RecvFlags::PEEK)
    }

    /// Takes the next message.
    pub(crate) fn take(&self) -> io::Result<Option<SupervisorReport>> {
        self.receive(RecvFlags::empty())
    }

    /// Waits until there is a message, or their end, and leaves it in the socket.
    pub(crate) fn wait(&self) -> io::Result<()> {
        self.check_home()?;
        let mut first = [0; WORD_BYTES];
        let waited = rustix::io::retry_on_intr(|| {
            rustix::net::recv(&self.socket, &mut first, RecvFlags::PEEK)
        });
        match waited {
            // As for `receive`.
            Ok(_) | Err(Errno::CONNRESET) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Asks the supervisor to end the tree. It may have done so already.
    pub(crate) fn request_end(&self) {
        // Ignored: no process is left to receive the request.
        let _ = self.try_request_end();
    }

    /// Tells a supervisor whose tree may outlive this process that its end is requested. The message stays unread
    /// there: so the request that follows counts even if this process ends before it is seen. Not for the supervisor of
    /// a slot.
    pub(crate) fn announce_end(&self) {
        if self.check_home().is_err() {
            return;
        }
        let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
        // Ignored: no process is left to receive it.
        let _ = rustix::net::send(&self.socket, &[0; MESSAGE_BYTES], flags);
    }

    /// Does the same as [`request_end`](Self::request_end), and returns an error if this machine refuses it.
    pub(crate) fn try_request_end(&self) -> io::Result<()> {
        self.check_home()?;
        Ok(rustix::net::shutdown(&self.socket, Shutdown::Write)?)
    }

    /// Asks for the end of the tree, and closes the other direction too: the guard then removes the groups of the tree.
    pub(crate) fn release(&self) {
        if self.made_in.is_current() {
            // Ignored: the guard has been killed.
            let _ = rustix::net::shutdown(&self.socket, Shutdown::Both);
        }
    }

    fn receive(&self, flags: RecvFlags) -> io::Result<Option<SupervisorReport>> {
        self.check_home()?;
        let mut message = [0; MESSAGE_BYTES];
        let mut receive = || {
            rustix::io::retry_on_intr(|| {
                rustix::net::recv(&self.socket, &mut message, flags | RecvFlags::DONTWAIT)
            })
        };
        // The supervisor has ended and left a request unread. The kernel reports that once, before the messages.
        let received = match receive() {
            Err(Errno::CONNRESET) => receive(),
            received => received,
        };
        match received {
            Ok((MESSAGE_BYTES, _)) => Ok(Some(read(message))),
            // An empty message is the end; a truncated one is from an unknown sender.
            Ok(_) | Err(Errno::CONNRESET) => Ok(Some(SupervisorReport::Nothing)),
            Err(Errno::AGAIN) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }
}

impl AsFd for Reports {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

struct Message([u8; MESSAGE_BYTES]);

impl Message {
    fn kind(&self) -> i64 {
        self.word(0)
    }

    fn word(&self, index: usize) -> i64 {
        let bytes = self.0.chunks_exact(WORD_BYTES).nth(index);
        i64::from_ne_bytes(bytes.and_then(|bytes| bytes.try_into().ok()).unwrap_or_default())
    }
}

fn read(message: [u8; MESSAGE_BYTES]) -> SupervisorReport {
    let message = Message(message);
    let word = |index| message.word(index);
    match message.kind() {
        kind @ (ENDED | ENDED_LAST) => {
            let usage = Usage {
                user: micros(word(2)),
                system: micros(word(3)),
                counted_peak_rss_bytes: u64::try_from(word(4))
                    .ok()
                    .and_then(|kib| kib.checked_mul(1024)),
                switches: u64::try_from(word(5)).ok(),
                ..Usage::default()
            };
            let (pid, status) = of_pid_and_status(word(1));
            let status = ExitStatus::from_raw(status);
            let report =
                if kind == ENDED { SupervisorReport::Ended } else { SupervisorReport::EndedLast };
            report(pid, Ended { status, usage: Some(usage) })
        }
        STARTED | READY => SupervisorReport::Started,
        STOPPED => SupervisorReport::CommandStopped,
        CAN_WORK => SupervisorReport::CanWork,
        TREE_ENDED => SupervisorReport::TreeEnded(u32::try_from(word(1)).unwrap_or(0)),
        _ => SupervisorReport::Nothing,
    }
}

fn micros(count: i64) -> Duration {
    Duration::from_micros(u64::try_from(count).unwrap_or(0))
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
        self.reports.check_home()?;
        let mut polled = [PollFd::new(&*self.reports, PollFlags::IN)];
        rustix::io::retry_on_intr(|| poll_again(&mut polled, None))?;
        Ok(())
    }

    fn take_stop(&self) -> bool {
        self.has_stopped.swap(false, Ordering::Relaxed)
    }

    fn pollable(&self) -> BorrowedFd<'_> {
        self.reports.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::process::nolibc::message::pid_and_status;

    proptest! {
        #[test]
        fn a_process_and_its_status_come_out_as_they_went_in(pid in 1_i32.., status: i32) {
            prop_assert_eq!(of_pid_and_status(pid_and_status(pid, status)), (pid, status));
        }

        #[test]
        fn any_message_of_a_supervisor_is_read(words: [i64; 6], kind in 0_i64..9, job in 0_i64..3) {
            let (reports, theirs) = Reports::pair().unwrap();
            for words in [words, [kind, words[1], job, words[3], words[4], words[5]]] {
                let bytes = words.map(i64::to_ne_bytes);
                read(*bytes.as_flattened().first_chunk().unwrap());
                rustix::net::send(&theirs, bytes.as_flattened(), SendFlags::empty()).unwrap();
            }
            // Too short.
            rustix::net::send(&theirs, &[1; 7], SendFlags::empty()).unwrap();
            prop_assert!(reports.peek().unwrap().is_some());
            // Returns at the latest at the message that is too short.
            match reports.job_started(1) {
                Ok(started) => prop_assert!(started.pidfd.is_none()),
                Err(error) => {
                    let is_known = matches!(error, JobNotStarted::Failed { .. } | JobNotStarted::Killed);
                    prop_assert!(is_known);
                }
            }
        }
    }

    #[test]
    fn a_request_that_was_left_unread_is_told_apart_from_one_that_was_read() {
        let request = Request::Start { job: 1, bytes: 0 };
        let (reports, theirs) = Reports::pair().unwrap();
        reports.request(request, &[]).unwrap();
        drop(theirs);
        assert!(matches!(reports.job_started(1), Err(JobNotStarted::NotReceived)));
        let (reports, theirs) = Reports::pair().unwrap();
        reports.request(request, &[]).unwrap();
        let mut bytes = [0; 64];
        assert_eq!(rustix::net::recv(&theirs, &mut bytes, RecvFlags::empty()).unwrap().1, 24);
        drop(theirs);
        assert!(matches!(reports.job_started(1), Err(JobNotStarted::Killed)));
        assert_eq!(reports.request(request, &[]), Err(Errno::PIPE));
    }

    #[test]
    fn a_start_that_was_reported_before_another_request_was_left_unread_is_a_start() {
        let (reports, theirs) = Reports::pair().unwrap();
        reports.request(Request::EndTree { job: 1 }, &[]).unwrap();
        let report = [STARTED, 77, 1, 0, 0, 0].map(i64::to_ne_bytes);
        rustix::net::send(&theirs, report.as_flattened(), SendFlags::empty()).unwrap();
        drop(theirs);
        assert_eq!(reports.job_started(1).unwrap().pid, 77);
    }

    #[test]
    fn a_report_after_an_unread_request_is_not_lost() {
        let (reports, theirs) = Reports::pair().unwrap();
        reports.request(Request::EndTree { job: 1 }, &[]).unwrap();
        let report = [TREE_ENDED, 3, 0, 0, 0, 0].map(i64::to_ne_bytes);
        rustix::net::send(&theirs, report.as_flattened(), SendFlags::empty()).unwrap();
        drop(theirs);
        assert_eq!(reports.take().unwrap(), Some(SupervisorReport::TreeEnded(3)));
        // A process that another test has started has a copy of the end until it executes its program.
        reports.wait().unwrap();
        assert_eq!(reports.take().unwrap(), Some(SupervisorReport::Nothing));
    }
}
