//! A slot that holds the tree of one command after another.

use pipewright_os::process::child::Containment;
use pipewright_os::process::start;

use crate::error::{Error, could_not_create_slot};
use crate::reaper;

/// A holder of process trees, for many commands one after another: see
/// [`Command::contain_in`](crate::Command::contain_in).
///
/// [`Contain::Tree`](crate::Contain::Tree) makes what holds the tree for every command; on Linux that costs more than
/// a short command. A slot makes it once. A batch that runs 8 commands at a time needs 8 slots.
///
/// The trees end with this process, as with [`Scope::Tree`](crate::Scope::Tree): however it ends, no process of a tree
/// is left. Nothing of one command is left when the next one starts.
///
/// A slot is in use until the verb that ran the command has returned. For a [`Child`](crate::Child) or a
/// [`ProcessHandle`](crate::ProcessHandle), it is in use until that is dropped. A clone is the same slot.
///
/// # Platform
/// Linux: a supervisor and a second process that takes over if the first is killed, of a few pages each. They run as
/// long as the slot. The supervisor starts the commands, at this process's request, and is their parent. So the
/// commands get this process's environment, working directory and handles as they are at their start, but the file
/// mode mask, the limits, the priority, the affinity, the namespaces, the cgroup, the session and the ignored signals as
/// they were when the slot was made. If the users, the groups, the capabilities, `no_new_privs`, the mode of seccomp, the
/// secure bits, the session keyring or the root directory of the calling thread differ, the next start makes new processes for the
/// slot. A further seccomp filter, a Landlock domain or another label is not noticed: make a new slot. If one of the two
/// processes is killed, the running
/// command's tree is killed, and the next start makes new ones. A slot whose commands have
/// [`limits`](crate::Command::limits) keeps up to 30 handles, if less than a quarter of their numbers are in use.
///
/// macOS: `Unsupported`.
///
/// Windows: a job object, which the commands are in from their start.
///
/// # Drop
/// Ends the processes that hold the trees, and waits for them for at most 1 s. If a command runs in the slot, that
/// happens when the command's handle is dropped. A fork of this process that has not called exec cannot use the slot,
/// and its drop of the slot ends nothing.
///
/// ```
/// use pipewright::{Command, TreeSlot};
/// # if cfg!(not(target_os = "macos")) {
/// let slot = TreeSlot::new()?;
/// for _ in 0..3 {
///     let capture = Command::new("sh")
///         .args(["-c", "(sleep 600 > /dev/null 2>&1 &); echo started"])
///         .contain_in(&slot)
///         .capture()?;
///     assert_eq!((capture.stdout.as_str(), capture.leftovers_killed), ("started\n", 1));
/// }
/// # }
/// # Ok::<(), pipewright::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct TreeSlot(start::TreeSlot);

impl TreeSlot {
    /// Makes a slot.
    ///
    /// # Errors
    /// [`Unsupported`](crate::ErrorKind::Unsupported): this machine cannot end a tree with this process, as for
    /// [`Scope::Tree`](crate::Scope::Tree). [`Limit`](crate::ErrorKind::Limit): there is no room for another process or
    /// handle.
    pub fn new() -> Result<TreeSlot, Error> {
        start::TreeSlot::new(reaper::reap).map(TreeSlot).map_err(could_not_create_slot)
    }

    /// Returns true if another command can start in the slot. False: it is in use, or a process of its last command does not end,
    /// such as one that is stuck in the kernel, or that has become another user's. Never waits.
    ///
    /// ```
    /// use pipewright::{Command, TreeSlot};
    /// # if cfg!(not(target_os = "macos")) {
    /// let slot = TreeSlot::new()?;
    /// let child = Command::new("sleep").arg("600").contain_in(&slot).spawn()?;
    /// assert!(!slot.is_free());
    /// child.kill()?;
    /// child.wait()?;
    /// drop(child);
    /// # while !slot.is_free() { std::thread::yield_now() }
    /// assert!(slot.is_free());
    /// # }
    /// # Ok::<(), pipewright::Error>(())
    /// ```
    #[must_use]
    pub fn is_free(&self) -> bool {
        self.0.is_free()
    }

    /// Returns the mechanism that contains the commands.
    #[must_use]
    pub fn containment(&self) -> Containment {
        self.0.containment()
    }

    pub(crate) fn as_os(&self) -> &start::TreeSlot {
        &self.0
    }
}
