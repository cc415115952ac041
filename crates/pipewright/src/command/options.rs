//! Setters for what std's `Command` does not have, and for its Unix extensions.

use std::path::Path;

use pipewright_os::base::handle::Handle;
use pipewright_os::process::spawn::{Group, Resource, ResourceLimit};

use super::Command;
use crate::run::option_setters;

option_setters!(Command);

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
