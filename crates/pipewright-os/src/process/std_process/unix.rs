//! `CommandExt` of `std::os::unix::process`, in std's shape.

use std::ffi::OsStr;
use std::io;

use super::CommandOptions;

/// The Unix extensions of a command: the stable methods of
/// [`std::os::unix::process::CommandExt`], with their names and rules.
pub trait CommandExt: CommandOptions {
    /// Sets the child's user id. Without other groups, a child of root has no supplementary groups.
    fn uid(&mut self, id: u32) -> &mut Self {
        self.unix_options().identity.user = Some(id);
        self
    }

    /// Sets the child's group id.
    fn gid(&mut self, id: u32) -> &mut Self {
        self.unix_options().identity.group = Some(id);
        self
    }

    /// Schedules a closure to run in the child just before its program is loaded.
    ///
    /// Several closures run in the order in which they were added; stdio, user, groups, working
    /// directory and process group are set by then. An error stops the start, and `spawn` returns
    /// its `raw_os_error` (`EINVAL` for an error without one).
    ///
    /// # Cost
    /// The child is created by `fork` instead of as a process that shares this process's memory. The time
    /// of a fork grows with the memory of this process (tens of milliseconds from a few GiB on), and the
    /// handlers of `pthread_atfork` run. For the usual purposes of closures there are options that need no
    /// fork: `own_session`, `rlimit`, `umask`, `nice`, `chroot`, `groups`, `inherit_fd_as` and
    /// `kill_on_parent_exit` of `pipewright::Command`.
    ///
    /// # Panics
    /// A panic in the closure aborts the child.
    ///
    /// # Safety
    /// The closure runs in a forked child of a process that may have other threads: it may call only
    /// async-signal-safe functions. It must not rely on locks, and should not allocate. File descriptors
    /// and values that it owns are copies, which both processes would clean up. See
    /// [`std::os::unix::process::CommandExt::pre_exec`].
    unsafe fn pre_exec<F>(&mut self, f: F) -> &mut Self
    where
        F: FnMut() -> io::Result<()> + Send + Sync + 'static,
    {
        // SAFETY: as this method's.
        unsafe { self.unix_options().pre_exec.push(Box::new(f)) };
        self
    }

    /// Schedules a closure like [`pre_exec`](Self::pre_exec), which replaced this method.
    ///
    /// It is `unsafe` in every edition; std's is `unsafe` from edition 2024 on.
    ///
    /// # Safety
    /// As for [`pre_exec`](Self::pre_exec).
    #[deprecated(note = "use `pre_exec` instead")]
    unsafe fn before_exec<F>(&mut self, f: F) -> &mut Self
    where
        F: FnMut() -> io::Result<()> + Send + Sync + 'static,
    {
        // SAFETY: as this method's.
        unsafe { self.pre_exec(f) }
    }

    /// Replaces this process by the command. Returns only with the error that prevented it.
    ///
    /// Destructors do not run, and changes that the options have made to this process by then stay.
    #[must_use]
    fn exec(&mut self) -> io::Error {
        self.replace_process()
    }

    /// Sets the zeroth argument, which programs take as their name.
    fn arg0<S>(&mut self, arg: S) -> &mut Self
    where
        S: AsRef<OsStr>,
    {
        self.set_arg0(arg.as_ref());
        self
    }

    /// Sets the child's process group; 0 is a group of its own.
    fn process_group(&mut self, pgroup: i32) -> &mut Self {
        self.unix_options().set_process_group(pgroup);
        self
    }
}

impl<C: CommandOptions> CommandExt for C {}
