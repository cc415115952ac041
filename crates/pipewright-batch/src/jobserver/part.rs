//! The part that a batch takes in a jobserver.

use std::ffi::{OsStr, OsString};
use std::io;
use std::num::NonZeroU32;
use std::time::Duration;

use pipewright::{Command, Handle};

use super::{Client, JobserverError, Server, Style, Token};

/// The time that `make --version` may take.
const PATIENCE: Duration = Duration::from_secs(5);

/// The part that a batch takes in GNU make's jobserver protocol.
///
/// # Platform
/// Unix. On Windows [`Off`](Self::Off) is the only one, and the others are noted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum JobserverMode {
    /// The batch takes no tokens. Its jobs take part in the jobserver above, if there is one.
    #[default]
    Off,
    /// The batch and its jobs take part in the jobserver above, if `MAKEFLAGS` or `CARGO_MAKEFLAGS` names one.
    Join,
    /// As [`Join`](Self::Join). Without a jobserver above, the batch is one: make, ninja from 1.13 on and cargo in its
    /// jobs share its slots.
    Share,
}

/// The part that this batch takes.
#[derive(Debug)]
pub(crate) struct Part {
    role: Role,
    /// The reason why there is no jobserver above, where one is named.
    note: Option<String>,
}

#[derive(Debug)]
enum Role {
    Server(Server),
    Client(Client),
    /// The batch takes no tokens. Its jobs inherit the handles of the jobserver above.
    None(Option<Client>),
}

impl Part {
    /// Takes the part.
    ///
    /// # Errors
    /// A server cannot be created.
    pub(crate) fn take(mode: JobserverMode, slots: NonZeroU32) -> Result<Part, JobserverError> {
        let (above, note) = match Client::from_env() {
            Ok(client) => (client, None),
            Err(error) if error.is_warning() => {
                // Its jobs are told by the programs that they are.
                (None, (mode != JobserverMode::Off).then(|| error.to_string()))
            }
            Err(error) => return Err(error),
        };
        let role = match (mode, above) {
            (JobserverMode::Join | JobserverMode::Share, Some(client)) => Role::Client(client),
            (JobserverMode::Share, None) => match Server::new(slots, style()) {
                Ok(server) => Role::Server(server),
                Err(error) if error.is_warning() => {
                    return Ok(Part { role: Role::None(None), note: Some(error.to_string()) });
                }
                Err(error) => return Err(error),
            },
            (_, above) => Role::None(above),
        };
        Ok(Part { role, note })
    }

    /// Returns the message for the user, once.
    pub(crate) fn take_note(&mut self) -> Option<String> {
        self.note.take()
    }

    /// Returns true if each running job needs a token.
    pub(crate) fn has_tokens(&self) -> bool {
        !matches!(self.role, Role::None(_))
    }

    /// Acquires the right to run a job on one CPU, without waiting. `None`: there is none now.
    ///
    /// # Errors
    /// The jobserver cannot be read.
    pub(crate) fn try_acquire(&self) -> io::Result<Option<Token>> {
        match &self.role {
            Role::Server(server) => server.try_acquire(),
            Role::Client(client) => client.try_acquire(),
            Role::None(_) => Ok(None),
        }
    }

    /// Sets the function that is called after [`Self::try_acquire`] returned `None`, once there may be a token.
    pub(crate) fn notify_when_available(&self, waker: Box<dyn Fn() + Send + Sync>) {
        match &self.role {
            Role::Server(server) => server.notify_when_available(waker),
            Role::Client(client) => client.notify_when_available(waker),
            Role::None(_) => {}
        }
    }

    /// Returns true if killed jobs lose tokens that this batch can restore while none of its jobs runs.
    pub(crate) fn can_refill(&self) -> bool {
        matches!(self.role, Role::Server(_))
    }

    /// Restores lost tokens. Call it when no job runs and no [`Token`] is left.
    ///
    /// # Errors
    /// The pipe cannot be read or written.
    pub(crate) fn refill(&self) -> io::Result<()> {
        match &self.role {
            Role::Server(server) => server.refill().map(drop),
            Role::Client(_) | Role::None(_) => Ok(()),
        }
    }

    /// Returns the variables that a job needs, from the `MAKEFLAGS` that it has otherwise.
    pub(crate) fn variables(&self, makeflags: Option<&OsStr>) -> Vec<(&'static str, OsString)> {
        match &self.role {
            Role::Server(server) => server.variables(makeflags).into(),
            Role::Client(_) | Role::None(_) => Vec::new(),
        }
    }

    /// Returns the handles that a job must inherit, each with the number that it must have there.
    ///
    /// # Errors
    /// No more handles are available.
    pub(crate) fn inherited(&self) -> io::Result<Vec<(Handle, i32)>> {
        match &self.role {
            Role::Server(server) => server.inherited(),
            Role::Client(client) | Role::None(Some(client)) => client.inherited(),
            Role::None(None) => Ok(Vec::new()),
        }
    }
}

/// Returns the style that the make of this machine knows.
fn style() -> Style {
    let version = Command::new("make").arg("--version").timeout(PATIENCE).read();
    version.map_or(Style::Fifo, |version| Style::for_make(&version))
}
