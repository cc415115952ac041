//! The server: a pool of tokens for the programs that the jobs of a batch start; and the part that a batch takes: that
//! of a server, a client, or none.

use std::ffi::{OsStr, OsString};
use std::io;
use std::num::NonZeroU32;
use std::path::PathBuf;
use std::time::Duration;

use pipewright::{Command, Handle};
use pipewright_os::base::token_pipe::{NamedFifo, TokenPipe};

use super::tokens::Tokens;
use super::{Client, JobserverError, JobserverErrorKind, Token, client};

/// The byte of a token, as make writes it.
const TOKEN: u8 = b'+';

/// The start of the names of our folders. A server removes those that a killed one left.
const FOLDER_PREFIX: &str = "pipewright-jobserver-";

/// The way in which children find the pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Style {
    /// By the path of a FIFO: for GNU make from 4.4 on, ninja from 1.13 on, cargo.
    Fifo,
    /// By two handles that they inherit: for any GNU make, ninja from 1.13 on, cargo.
    Pipe,
}

impl Style {
    /// Returns the style for the make that printed this for `--version`.
    pub(crate) fn for_make(version: &str) -> Style {
        let number = version.lines().next().and_then(|line| line.strip_prefix("GNU Make "));
        let mut parts = number.unwrap_or_default().split(|part: char| !part.is_ascii_digit());
        let mut part = || parts.next().and_then(|part| part.parse::<u32>().ok()).unwrap_or(0);
        if (part(), part()) >= (4, 4) { Style::Fifo } else { Style::Pipe }
    }
}

/// A jobserver for the jobs of a batch.
///
/// # Drop
/// Removes the FIFO and its folder. After a SIGKILL they stay, until the next server of the same user removes them.
#[derive(Debug)]
pub(crate) struct Server {
    pub(super) tokens: Tokens,
    slots: NonZeroU32,
    pub(super) pool: Pool,
}

#[derive(Debug)]
pub(super) enum Pool {
    Fifo(NamedFifo),
    /// The ends that children inherit, under the numbers that they have here.
    Pipe {
        reader: Handle,
        writer: Handle,
    },
}

/// A correction of the number of tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Correction {
    /// Tokens that were missing: killed programs had them.
    pub(crate) lost: u32,
    /// Tokens that were too many: a program put back what it had not taken.
    pub(crate) surplus: u32,
}

impl Server {
    /// Creates a jobserver with that many slots.
    ///
    /// # Errors
    /// The FIFO cannot be created, or is too small for the tokens. Windows: unsupported.
    pub(crate) fn new(slots: NonZeroU32, style: Style) -> Result<Server, JobserverError> {
        let (pipe, pool) = create(style).map_err(|error| {
            let kind = match error.kind() {
                io::ErrorKind::Unsupported => JobserverErrorKind::Unsupported,
                _ => JobserverErrorKind::Create,
            };
            JobserverError::new(kind, Some(error))
        })?;
        for put in 1..slots.get() {
            pipe.put(TOKEN).map_err(|error| {
                let kind = match error.kind() {
                    io::ErrorKind::WouldBlock => {
                        JobserverErrorKind::TooManySlots { slots: slots.get(), most: put }
                    }
                    _ => JobserverErrorKind::Create,
                };
                JobserverError::new(kind, Some(error))
            })?;
        }
        Ok(Server { tokens: Tokens::new(pipe), slots, pool })
    }

    /// Makes the number of tokens right again, if no job runs: call it when the last running job has ended, with
    /// everything that it had started. While a [`Token`](super::Token) is in use nothing is corrected.
    ///
    /// # Errors
    /// The pipe cannot be read or written.
    pub(crate) fn refill(&self) -> io::Result<Correction> {
        let extra = self.slots.get() - 1;
        let refilled = self.tokens.while_idle(|pipe| {
            let mut correction = Correction::default();
            let count = u32::try_from(pipe.count()?).unwrap_or(u32::MAX);
            for _ in count..extra {
                pipe.put(TOKEN)?;
                correction.lost += 1;
            }
            for _ in extra..count {
                correction.surplus += u32::from(pipe.try_take()?.is_some());
            }
            Ok(correction)
        });
        refilled.unwrap_or_else(|| Ok(Correction::default()))
    }

    /// Returns `MAKEFLAGS` for a child, from the value that it would inherit: its flags and variables stay, its number
    /// of jobs and its jobserver do not.
    pub(super) fn makeflags(&self, existing: Option<&OsStr>) -> OsString {
        client::with_options(existing, &self.options())
    }

    /// Returns the variables of a child, from the `MAKEFLAGS` that it would inherit. `CARGO_MAKEFLAGS` is for cargo and
    /// rustc, which prefer it.
    pub(crate) fn variables(&self, makeflags: Option<&OsStr>) -> [(&'static str, OsString); 2] {
        [("MAKEFLAGS", self.makeflags(makeflags)), ("CARGO_MAKEFLAGS", self.makeflags(None))]
    }

    fn options(&self) -> Vec<u8> {
        match &self.pool {
            Pool::Fifo(fifo) => {
                let path = fifo.path().as_os_str().as_encoded_bytes();
                [b"-j --jobserver-auth=fifo:", path].concat()
            }
            Pool::Pipe { reader, writer } => {
                let numbers = format!("{},{}", reader.number(), writer.number());
                // The first one is for make before 4.2. Others use the last one that they know.
                format!("-j --jobserver-fds={numbers} --jobserver-auth={numbers}").into_bytes()
            }
        }
    }

    /// Returns copies of the handles that a child must inherit, each with the number that it must have there: for
    /// [`pipewright::Command::inherit_fd_as`]. Empty for [`Style::Fifo`].
    ///
    /// # Errors
    /// No more handles are available.
    pub(crate) fn inherited(&self) -> io::Result<Vec<(Handle, i32)>> {
        let Pool::Pipe { reader, writer } = &self.pool else { return Ok(Vec::new()) };
        let copy = |end: &Handle| -> io::Result<(Handle, i32)> {
            let number = i32::try_from(end.number()).map_err(io::Error::other)?;
            Ok((end.try_clone()?, number))
        };
        Ok(vec![copy(reader)?, copy(writer)?])
    }
}

fn create(style: Style) -> io::Result<(TokenPipe, Pool)> {
    let fifo = NamedFifo::create(&folder(), FOLDER_PREFIX)?;
    let pipe = TokenPipe::open(fifo.path())?;
    let pool = match style {
        Style::Fifo => Pool::Fifo(fifo),
        // A FIFO here too: we take tokens through an open file of our own. make changes the blocking mode of the one
        // that children inherit. Its name is gone as soon as the ends are open.
        Style::Pipe => {
            let (reader, writer) = fifo.ends()?;
            Pool::Pipe { reader, writer }
        }
    };
    Ok((pipe, pool))
}

/// Returns the folder for temporary files, if every program can read its name in `MAKEFLAGS`: they split at blanks, and
/// not all know how make escapes these.
fn folder() -> PathBuf {
    let folder = std::env::temp_dir();
    let is_plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"/._-+@".contains(byte);
    match folder.as_os_str().as_encoded_bytes().iter().all(is_plain) && folder.is_absolute() {
        true => folder,
        false => PathBuf::from("/tmp"),
    }
}

// The part that a batch takes in a jobserver.

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
                // Its jobs are recognized by their programs.
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
        self.tokens().is_some()
    }

    fn tokens(&self) -> Option<&Tokens> {
        match &self.role {
            Role::Server(server) => Some(&server.tokens),
            Role::Client(client) => Some(&client.tokens),
            Role::None(_) => None,
        }
    }

    /// Acquires the right to run a job on one CPU, without waiting. `None`: there is none now.
    ///
    /// # Errors
    /// The jobserver cannot be read, or the thread for the notification cannot be started.
    pub(crate) fn try_acquire(&self) -> io::Result<Option<Token>> {
        self.tokens().map_or(Ok(None), Tokens::try_acquire)
    }

    /// Sets the function that is called once after each [`try_acquire`](Self::try_acquire) that returned `None`, as
    /// soon as there may be a token. Another program may take it first. Set it once, before the first call.
    pub(crate) fn notify_when_available(&self, waker: Box<dyn Fn() + Send + Sync>) {
        if let Some(tokens) = self.tokens() {
            tokens.notify_when_available(waker);
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
