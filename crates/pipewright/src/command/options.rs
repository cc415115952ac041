//! Setters that std's `Command` lacks, and setters for its Unix extensions.

use std::path::Path;

use pipewright_os::base::handle::Handle;
use pipewright_os::base::signal::Signal;
use pipewright_os::process::start::{Group, Resource, ResourceLimit};

use super::Command;
use crate::run::option_setters;

option_setters!(Command);

/// Handles that the child inherits besides stdio.
impl Command {
    /// Lets the child inherit this handle, under the same number. The command keeps it open.
    ///
    /// Unless [`inherit_all`](Self::inherit_all) is set, the child inherits no handle that is not listed, even if it
    /// is not close-on-exec or is marked inheritable.
    ///
    /// # Platform
    /// Unix: the handle is not marked inheritable in this process, so no other child gets it. Windows: the handle
    /// is marked inheritable during the start, because a copy would have another number. Other children that this
    /// crate starts meanwhile do not get it; children that std starts may.
    pub fn inherit(&mut self, handle: impl Into<Handle>) -> &mut Command {
        self.inherit.push((handle.into(), None));
        self
    }

    /// Lets the child inherit this handle as fd `number`, 3 or more. Unix only.
    pub fn inherit_fd_as(&mut self, handle: impl Into<Handle>, number: i32) -> &mut Command {
        self.inherit.push((handle.into(), Some(number)));
        self
    }

    /// Restores std's rule: the child inherits every handle that is not close-on-exec (Windows: every handle that
    /// is marked inheritable).
    pub fn inherit_all(&mut self) -> &mut Command {
        self.inherit_all = true;
        self
    }
}

/// Unix options. On Windows the verb fails with [`Unsupported`](crate::ErrorKind::Unsupported), except for
/// [`own_group`](Self::own_group), [`own_session`](Self::own_session) and
/// [`process_group(0)`](Self::process_group).
impl Command {
    /// Makes the child the leader of its own process group. A stop then reaches the whole group; Ctrl-C at the
    /// terminal does not.
    ///
    /// # Platform
    /// Unix: `setpgid`. Windows: `CREATE_NEW_PROCESS_GROUP`. A stop is then a Ctrl-Break if the child shares this
    /// process's console; without its own group, a child can only be killed.
    #[doc(alias = "new_group")]
    #[doc(alias = "setpgid")]
    #[doc(alias = "CREATE_NEW_PROCESS_GROUP")]
    pub fn own_group(&mut self) -> &mut Command {
        self.process_group(0)
    }

    /// Puts the child in the process group with this id; 0 makes a new group. The name is std's.
    pub fn process_group(&mut self, group: i32) -> &mut Command {
        self.unix.set_process_group(group);
        self
    }

    /// Starts the child in its own session, without a terminal.
    ///
    /// # Platform
    /// Unix: `setsid`. Windows: `CREATE_NO_WINDOW | CREATE_NEW_PROCESS_GROUP`.
    pub fn own_session(&mut self) -> &mut Command {
        self.unix.group = Group::Session;
        self
    }

    /// Sets the child's user id. If root sets it without [`groups`](Self::groups), the child has no supplementary
    /// groups.
    pub fn uid(&mut self, user: u32) -> &mut Command {
        self.unix.identity.user = Some(user);
        self
    }

    /// Sets the child's group id.
    pub fn gid(&mut self, group: u32) -> &mut Command {
        self.unix.identity.group = Some(group);
        self
    }

    /// Sets the child's supplementary groups.
    pub fn groups(&mut self, groups: &[u32]) -> &mut Command {
        self.unix.identity.groups = Some(groups.to_owned());
        self
    }

    /// Sets the child's umask.
    pub fn umask(&mut self, mask: u32) -> &mut Command {
        self.unix.umask = Some(mask);
        self
    }

    /// Adds to the child's niceness. A higher value is less urgent; lowering it needs a privilege.
    pub fn nice(&mut self, add: i32) -> &mut Command {
        self.unix.nice = Some(add);
        self
    }

    /// Gives the child the default action of a signal that this process ignores. Children always have that of `PIPE`; other
    /// signals that this process ignores stay ignored without this. Not for a command in a
    /// [slot](Self::contain_in).
    pub fn default_signal(&mut self, signal: Signal) -> &mut Command {
        self.unix.default_signals.push(signal);
        self
    }

    /// Leaves `PIPE` ignored in the child if this process ignores it. Rust programs do so from the start, so this is for a tool
    /// that knows what it was started with.
    #[doc(hidden)]
    pub fn keep_ignored_pipe(&mut self) -> &mut Command {
        self.unix.keeps_ignored_pipe = true;
        self
    }

    /// Limits one resource of the child; `None` means no limit.
    pub fn rlimit(
        &mut self,
        resource: Resource,
        soft: Option<u64>,
        hard: Option<u64>,
    ) -> &mut Command {
        self.unix.limits.push(ResourceLimit { resource, soft, hard });
        self
    }

    /// Sets the child's root directory. The default working directory is then `/` inside it.
    pub fn chroot(&mut self, root: impl AsRef<Path>) -> &mut Command {
        self.unix.chroot = Some(root.as_ref().to_owned());
        self
    }
}
