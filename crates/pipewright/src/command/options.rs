//! Setters for what std's `Command` does not have, and for its Unix extensions.

use std::ffi::OsStr;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use pipewright_os::base::handle::Handle;
use pipewright_os::base::signal::Signal;
use pipewright_os::process::spawn::{Group, Resource, ResourceLimit};

use super::{Command, Limit, Linger};
use crate::cancel::CancelToken;
use crate::drive::{BACKGROUND, Background, Exits, Keeping, Kept, Parked};
use crate::error::{Error, could_not_prepare};

/// When and how a run is stopped.
#[derive(Debug, Clone)]
pub(crate) struct Rules {
    pub(crate) timeout: Option<Duration>,
    pub(crate) deadline: Option<Instant>,
    pub(crate) idle_timeout: Option<Duration>,
    pub(crate) cancel: Option<CancelToken>,
    pub(crate) kill_grace: Duration,
    pub(crate) stop_signal: Signal,
    pub(crate) linger: Linger,
    pub(crate) linger_drain: bool,
    pub(crate) background: Option<Background>,
}

impl Default for Rules {
    fn default() -> Rules {
        Rules {
            timeout: None,
            deadline: None,
            idle_timeout: None,
            cancel: None,
            kill_grace: Duration::from_secs(5),
            stop_signal: Signal::TERM,
            linger: Linger::default(),
            linger_drain: false,
            background: None,
        }
    }
}

impl Rules {
    /// The stop signal: that of the cancel, where it came with one.
    pub(crate) fn signal_that_stops(&self) -> Signal {
        self.cancel.as_ref().and_then(CancelToken::signal).unwrap_or(self.stop_signal)
    }

    /// Has the time of a run kept in the background, where the command asks for that.
    pub(crate) fn keep(
        &self,
        exits: &Arc<impl Exits + 'static>,
        parked: &Arc<Parked>,
    ) -> Option<Keeping> {
        let background = self.background?;
        let (exits, parked) = (Arc::clone(exits), Arc::clone(parked));
        Some((background.keep)(Kept { exits, parked, rules: self.clone() }))
    }

    /// Fails where the time could not be kept in the background.
    pub(crate) fn prepare_to_keep(&self, program: &OsStr) -> Result<(), Error> {
        let prepared = match self.background {
            Some(background) => (background.prepare)(),
            None => return Ok(()),
        };
        let words = || "cannot start the thread that keeps its time".to_owned();
        prepared.map_err(|error| could_not_prepare(program, words(), error))
    }

    /// Whether anything but the child itself can end the run.
    pub(crate) fn can_stop(&self) -> bool {
        self.timeout.is_some()
            || self.deadline.is_some()
            || self.idle_timeout.is_some()
            || self.cancel.is_some()
    }
}

/// When a run is stopped: at the first of these, the child and the descendants that can be found
/// are sent the stop signal, and what is left of them after the grace is killed. What the child
/// wrote until then is in the result.
impl Command {
    /// Stops the child when it has run for that long. Zero stops it at once.
    ///
    /// Calls that wait enforce it, and what follows it: the kill after the grace. While a caller does something else
    /// between two calls of `next` of [`lines`](Self::lines) or [`events`](Self::events), or has not yet called a verb that
    /// waits for a [`spawn`](Self::spawn)ed child, nobody does, unless
    /// [`enforce_in_background`](Self::enforce_in_background) is set.
    pub fn timeout(&mut self, timeout: Duration) -> &mut Command {
        self.rules.timeout = Some(timeout);
        self
    }

    /// Stops the child at that time. With [`timeout`](Self::timeout) too, the earlier one counts.
    pub fn deadline(&mut self, deadline: Instant) -> &mut Command {
        self.rules.deadline = Some(deadline);
        self
    }

    /// Stops the child when neither stream has brought anything for that long. Only streams that
    /// pass through us count; where none does, this is a timeout from the start.
    pub fn idle_timeout(&mut self, timeout: Duration) -> &mut Command {
        self.rules.idle_timeout = Some(timeout);
        self
    }

    /// Stops the child when the token is cancelled, also [by a signal](CancelToken::cancel_on). Where
    /// the child has ended and something else holds its streams, they are given up.
    pub fn cancel(&mut self, token: &CancelToken) -> &mut Command {
        self.rules.cancel = Some(token.clone());
        self
    }

    /// Has the command's [`timeout`](Self::timeout), [`deadline`](Self::deadline),
    /// [`idle_timeout`](Self::idle_timeout) and [`cancel`](Self::cancel), and the kill after the grace, enforced also
    /// while nobody waits for the child: by one background thread for the whole process.
    ///
    /// Without it, these are enforced by the calls that wait and by nobody else. A caller who works for a minute
    /// between two calls of `next` of [`lines`](Self::lines) or [`events`](Self::events), or who reads the streams of a
    /// [`spawn`](Self::spawn)ed child himself, has a timeout come a minute late, or with the next wait. With it, they
    /// come in time, and the next call tells of them. So does the kill of a [`stop_async`](crate::Child::stop_async) whose
    /// future was dropped. The verbs that run the command to its end wait all the time, and
    /// need nothing of it.
    ///
    /// A child that has ended in time has not timed out, whenever somebody takes notice. Output that has not been read
    /// is no silence. It also holds for a command that [`run_all`](crate::run_all) or a
    /// [`Runner`](crate::Runner) runs, between two calls of `next`; the token of the whole is looked at by `next` alone.
    ///
    /// # Errors
    /// Of the verb: the thread cannot be started. There is no child then.
    ///
    /// ```
    /// use pipewright::{Command, Stdio};
    /// use std::{io::Read, time::Duration};
    /// let mut command = Command::new("sh");
    /// command.args(["-c", "echo said; exec sleep 600"]).stdout(Stdio::piped());
    /// let mut child = command.timeout(Duration::from_millis(200)).enforce_in_background().spawn()?;
    /// let mut text = String::new();
    /// // Nobody waits for the child, and yet this ends.
    /// child.stdout.take().unwrap().read_to_string(&mut text).unwrap();
    /// assert_eq!(text, "said\n");
    /// assert!(!child.wait()?.success());
    /// # Ok::<(), pipewright::Error>(())
    /// ```
    pub fn enforce_in_background(&mut self) -> &mut Command {
        self.rules.background = Some(BACKGROUND);
        self
    }

    /// How long the child and its descendants have between the stop signal and the kill; 5 s where
    /// it is not set. Zero kills at once, without a stop signal.
    #[doc(alias = "grace")]
    pub fn kill_grace(&mut self, grace: Duration) -> &mut Command {
        self.rules.kill_grace = grace;
        self
    }

    /// The stop signal; `TERM` where it is not set.
    pub fn stop_signal(&mut self, signal: Signal) -> &mut Command {
        self.rules.stop_signal = signal;
        self
    }

    /// How much of each stream is kept; everything where it is not set. A [`Limit::fail`] counts also
    /// what passes through the verbs that keep nothing.
    pub fn limit(&mut self, limit: Limit) -> &mut Command {
        self.limit = Some(limit);
        self
    }

    /// How long a line of [`lines`](Self::lines) may be, in bytes: of a longer one the start is
    /// given and the rest skipped. Without it a line may take all the memory there is.
    pub fn max_line(&mut self, bytes: usize) -> &mut Command {
        self.max_line_bytes = Some(bytes);
        self
    }

    /// What happens when the child has ended and something else holds its streams open.
    pub fn linger(&mut self, linger: Linger) -> &mut Command {
        self.rules.linger = linger;
        self
    }

    /// Reads on in the background, and throws away, what still comes through a stream that was
    /// given up. Without it the stream is closed, and who writes to it next gets SIGPIPE.
    pub fn linger_drain(&mut self) -> &mut Command {
        self.rules.linger_drain = true;
        self
    }

    /// Makes text that is not UTF-8 an error that tells where, instead of a replacement character. What a limit
    /// has left of a character is neither: it is left out.
    pub fn strict_utf8(&mut self) -> &mut Command {
        self.decoding.make_strict();
        self
    }

    /// Decodes text from that encoding instead of UTF-8.
    #[cfg(feature = "encoding")]
    pub fn encoding(&mut self, encoding: &'static encoding_rs::Encoding) -> &mut Command {
        self.decoding.use_encoding(encoding);
        self
    }
}

/// Which handles the child gets beside stdio.
impl Command {
    /// Lets the child have this handle, under the same number. The command keeps it open.
    ///
    /// No other handle is ever inherited, whether or not it is marked close-on-exec or inheritable.
    ///
    /// # Platform
    /// Unix: the handle is not marked inheritable in this process, so that no other child gets it.
    /// Windows: it is, for the moment of the start: a copy would have another number. Children that
    /// this crate starts at that moment do not get it; those that std starts may.
    pub fn inherit(&mut self, handle: impl Into<Handle>) -> &mut Command {
        self.inherit.push((handle.into(), None));
        self
    }

    /// Lets the child have this handle under that number, 3 or more. Unix only.
    pub fn inherit_fd_as(&mut self, handle: impl Into<Handle>, number: i32) -> &mut Command {
        self.inherit.push((handle.into(), Some(number)));
        self
    }

    /// Restores std's rule: the child has every handle that is not marked close-on-exec (Windows:
    /// that is marked inheritable).
    pub fn inherit_all(&mut self) -> &mut Command {
        self.inherit_all = true;
        self
    }
}

/// What only Unix has, but for [`own_group`](Self::own_group), [`own_session`](Self::own_session) and
/// [`process_group(0)`](Self::process_group); elsewhere the run is refused as unsupported.
impl Command {
    /// Makes the child the leader of a process group of its own. A stop then reaches the whole
    /// group; Ctrl-C at the terminal no longer does.
    ///
    /// # Platform
    /// Unix: `setpgid`. Windows: `CREATE_NEW_PROCESS_GROUP`: a stop is a Ctrl-Break then, where the
    /// child has our console, and without a group it can only be killed.
    #[doc(alias = "new_group")]
    #[doc(alias = "setpgid")]
    #[doc(alias = "CREATE_NEW_PROCESS_GROUP")]
    pub fn own_group(&mut self) -> &mut Command {
        self.process_group(0)
    }

    /// Puts the child in the process group of that number; 0 is one of its own. The name is std's.
    pub fn process_group(&mut self, group: i32) -> &mut Command {
        self.unix.set_process_group(group);
        self
    }

    /// Starts a session of its own for the child, without a terminal.
    ///
    /// # Platform
    /// Unix: `setsid`. Windows: `CREATE_NO_WINDOW | CREATE_NEW_PROCESS_GROUP`.
    pub fn own_session(&mut self) -> &mut Command {
        self.unix.group = Group::Session;
        self
    }

    /// The child's user id. Where root sets it and [`groups`](Self::groups) is not set, the child
    /// has no supplementary groups.
    pub fn uid(&mut self, user: u32) -> &mut Command {
        self.unix.identity.user = Some(user);
        self
    }

    /// The child's group id.
    pub fn gid(&mut self, group: u32) -> &mut Command {
        self.unix.identity.group = Some(group);
        self
    }

    /// The child's supplementary groups.
    pub fn groups(&mut self, groups: &[u32]) -> &mut Command {
        self.unix.identity.groups = Some(groups.to_owned());
        self
    }

    /// The child's file mode mask.
    pub fn umask(&mut self, mask: u32) -> &mut Command {
        self.unix.umask = Some(mask);
        self
    }

    /// Adds to the child's niceness: higher is less urgent, and lower needs a right.
    pub fn nice(&mut self, add: i32) -> &mut Command {
        self.unix.nice = Some(add);
        self
    }

    /// Limits one resource of the child; `None` is no limit.
    pub fn rlimit(
        &mut self,
        resource: Resource,
        soft: Option<u64>,
        hard: Option<u64>,
    ) -> &mut Command {
        self.unix.limits.push(ResourceLimit { resource, soft, hard });
        self
    }

    /// The child's root directory. Its working directory is `/` in there where none is set.
    pub fn chroot(&mut self, root: impl AsRef<Path>) -> &mut Command {
        self.unix.chroot = Some(root.as_ref().to_owned());
        self
    }
}
