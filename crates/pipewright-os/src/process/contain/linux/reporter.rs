//! The exit status of a command, as its supervisor reports it.

use std::io;
use std::os::fd::{AsFd as _, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::event::{PollFd, PollFlags};

use super::report::{Reports, SupervisorReport};
use crate::process::child::linux::ExitReporter;
use crate::process::status::Ended;

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
