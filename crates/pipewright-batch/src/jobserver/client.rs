//! The client of a jobserver above: a batch in a recipe of `make -jN`.

use std::ffi::OsStr;
use std::io;

use pipewright::Handle;
use pipewright_os::base::token_pipe::TokenPipe;

use super::makeflags::{self, Auth};
use super::tokens::{Token, Tokens};
use super::{JobserverError, JobserverErrorKind};

/// A client of the jobserver that `MAKEFLAGS` names.
///
/// # Drop
/// Tokens stay valid; each is put back when it is dropped, also during a panic that unwinds.
#[derive(Debug)]
pub(crate) struct Client {
    tokens: Tokens,
    /// The handles that `MAKEFLAGS` names, with their numbers there.
    handles: Vec<(Handle, i32)>,
}

impl Client {
    /// Connects to the jobserver that `MAKEFLAGS` names, or else `CARGO_MAKEFLAGS`. `None`: neither names one.
    ///
    /// A number in `MAKEFLAGS` that make has not passed on may be that of a handle which this process has opened. Such
    /// a handle is not taken for one of make's, because exec closes it.
    ///
    /// # Errors
    /// A jobserver is named and cannot be used: see [`JobserverError::is_warning`].
    pub(crate) fn from_env() -> Result<Option<Client>, JobserverError> {
        let flags = ["MAKEFLAGS", "CARGO_MAKEFLAGS"].map(std::env::var_os);
        for flags in flags.iter().flatten() {
            if let Some(client) = Client::from_makeflags_if(flags, TokenPipe::are_inherited)? {
                return Ok(Some(client));
            }
        }
        Ok(None)
    }

    /// Connects to the jobserver that these flags name. `None`: they name none.
    #[cfg(test)]
    pub(super) fn from_makeflags(flags: &OsStr) -> Result<Option<Client>, JobserverError> {
        Client::from_makeflags_if(flags, |_, _| Ok(true))
    }

    fn from_makeflags_if(
        flags: &OsStr,
        are_inherited: impl Fn(i32, i32) -> io::Result<bool>,
    ) -> Result<Option<Client>, JobserverError> {
        let Some((option, auth)) = makeflags::find(flags) else { return Ok(None) };
        let opened = match &auth {
            Auth::Fifo(path) => TokenPipe::open(path).map(|pipe| (pipe, Vec::new())),
            // The standard streams carry data, even if they are pipes. Numbers that are not open fail below.
            Auth::Pipe { read, write }
                if *read > 2 && *write > 2 && are_inherited(*read, *write).unwrap_or(true) =>
            {
                TokenPipe::from_numbers(*read, *write).and_then(|pipe| {
                    let [reader, writer] = [read, write].map(|end| Handle::copy_of_number(*end));
                    Ok((pipe, vec![(reader?, *read), (writer?, *write)]))
                })
            }
            Auth::Pipe { .. } => {
                let kind = JobserverErrorKind::NotPassedOn { option };
                return Err(JobserverError::new(kind, None));
            }
            Auth::Unknown => {
                let kind = JobserverErrorKind::Malformed { option };
                return Err(JobserverError::new(kind, None));
            }
        };
        match opened {
            Ok((pipe, handles)) => Ok(Some(Client { tokens: Tokens::new(pipe), handles })),
            Err(error) if error.kind() == io::ErrorKind::Unsupported => {
                Err(JobserverError::new(JobserverErrorKind::Unsupported, Some(error)))
            }
            Err(error) => {
                let kind = match auth {
                    Auth::Fifo(path) => JobserverErrorKind::OpenFifo { path },
                    _ => JobserverErrorKind::NotPassedOn { option },
                };
                Err(JobserverError::new(kind, Some(error)))
            }
        }
    }

    /// Acquires the right to run a job, without waiting. `None`: there is no token now.
    ///
    /// # Errors
    /// The jobserver cannot be read, or the thread for the notification cannot be started.
    pub(crate) fn try_acquire(&self) -> io::Result<Option<Token>> {
        self.tokens.try_acquire()
    }

    /// Sets the function that is called once after each [`try_acquire`](Self::try_acquire) that returned `None`, as
    /// soon as there is a token. Another program may take it first. Set it once, before the first call.
    pub(crate) fn notify_when_available(&self, waker: Box<dyn Fn() + Send + Sync>) {
        self.tokens.notify_when_available(waker);
    }

    /// Returns copies of the handles that a child must inherit, each with the number that it must have there, so that the
    /// child can take part as well: for [`pipewright::Command::inherit_fd_as`]. Its `MAKEFLAGS` stays as it is.
    ///
    /// # Errors
    /// No more handles are available.
    pub(crate) fn inherited(&self) -> io::Result<Vec<(Handle, i32)>> {
        self.handles.iter().map(|(end, number)| Ok((end.try_clone()?, *number))).collect()
    }
}
