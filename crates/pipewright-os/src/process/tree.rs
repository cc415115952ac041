//! The descendants of a child: finding them, signalling them, and seeing their end.

#[cfg(target_os = "linux")]
pub(crate) use imp::is_child_of;
#[cfg(target_os = "macos")]
use walk as imp;
#[cfg(target_os = "linux")]
pub(crate) use walk::add_children;

use std::io;
use std::time::Duration;

use crate::base::signal::Signal;
use crate::base::wake::WaitEvent as _;
use crate::process::child::ChildHandle;
use crate::process::member::Member;

/// True if processes can be stopped, so that none starts another during a search for descendants. If they
/// cannot, a search after the kill finds the processes started between the first search and the kill.
pub const CAN_STOP: bool = cfg!(unix);

/// The processes found below one process, each found once.
#[derive(Debug, Default)]
pub struct Descendants {
    members: Vec<Member>,
    /// The error of a search that may have missed some.
    missed: Option<io::Error>,
}

impl Descendants {
    /// Adds every descendant of `root` and of the members that is not a member yet. Returns the number of
    /// added processes.
    ///
    /// On Unix a descendant whose parent has ended belongs to init or to a subreaper and is not found. Nor
    /// are the descendants of a root that is reaped, because its number may be another process's.
    ///
    /// # Platform
    /// Linux: `/proc/PID/task/TID/children`, each opened as a pidfd, and its parent checked again
    /// afterwards. Without pidfds or without that file nothing is found. macOS:
    /// `proc_listpids(PROC_PPID_ONLY)`, each registered with a kqueue, and its parent checked again
    /// afterwards. Windows: `CreateToolhelp32Snapshot`, each opened, and queried for its parent
    /// (`NtQueryInformationProcess`) and its start time. A process with an open handle keeps its number
    /// when it has ended, so its children are found then too; the children of a process that ended before
    /// it was found are not.
    pub fn collect(&mut self, root: &ChildHandle) -> usize {
        let before = self.members.len();
        if let Err(error) = imp::collect(root, &mut self.members) {
            self.missed.get_or_insert(error);
        }
        self.members.len() - before
    }

    /// Takes the error of a search since the last call that may have missed descendants, because there was no room to
    /// list or to open them.
    pub fn take_error(&mut self) -> Option<io::Error> {
        self.missed.take()
    }

    /// Returns the members.
    #[must_use]
    pub fn members(&self) -> &[Member] {
        &self.members
    }

    /// Stops the root and its descendants, and searches until a search finds no new one: then no process is
    /// left that could start another. At most `rounds` times.
    ///
    /// # Platform
    /// Windows has no stop and only searches. So a search after the kill finds the processes started in
    /// between.
    pub fn stop_and_collect(&mut self, root: &ChildHandle, rounds: usize) {
        // Ignored here and below: gone, or another user's; the caller checks afterwards which are left.
        if root.signal(Signal::STOP).is_ok() {
            wait_briefly(|| imp::is_stopped_or_ended(root));
        }
        for _ in 0..rounds {
            let from = self.members.len();
            if self.collect(root) == 0 {
                return;
            }
            // One that may not be signalled does not stop, however long the wait.
            let stopped = self.members[from..].iter().filter(|it| it.signal(Signal::STOP).is_ok());
            for member in stopped.collect::<Vec<_>>() {
                wait_briefly(|| member.is_stopped_or_ended());
            }
        }
    }

    /// Returns a member that has not ended.
    #[must_use]
    pub fn any_alive(&self) -> Option<&Member> {
        self.members.iter().find(|member| member.is_alive())
    }
}

/// Returns the numbers of the processes of a tree that have not ended: the root, and those that
/// [`Descendants::collect`] finds. They are for people to read, and for tools: a number may pass to another process.
///
/// # Errors
/// There is no room to list or to open all of them. `Unsupported`: this system or this container shows none.
pub fn processes_of(root: &ChildHandle) -> io::Result<Vec<u32>> {
    imp::check_can_find()?;
    let mut found = Descendants::default();
    found.collect(root);
    if let Some(error) = found.take_error() {
        return Err(error);
    }
    let others = found.members().iter().filter(|member| member.is_alive()).map(Member::pid);
    Ok((!root.has_happened()).then(|| root.pid()).into_iter().chain(others).collect())
}

/// Kills the processes below this one that have no child: a start that waits for a file is among them, and ends. Those
/// above it sleep until then, however this process ends.
///
/// # Platform
/// Unix: those that [`Descendants::collect`] finds. Errors are ignored: what cannot be found or killed is left.
/// Windows: does nothing.
pub fn kill_last_descendants() {
    imp::kill(Found::Last);
}

/// Kills the processes below this one, for an end that a stuck thread may hold up: no supervisor sees it before.
///
/// # Platform
/// As [`kill_last_descendants`].
pub fn kill_descendants() {
    imp::kill(Found::All);
}

/// Processes below this one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Found {
    All,
    /// Those that have no child.
    Last,
}

/// Waits until a stop has taken effect, for a limited time. A process receives a stop when it next leaves
/// the kernel, and a fork in progress by then has created a child that no search saw. That takes
/// microseconds; a process that is stuck in the kernel is not waited for.
fn wait_briefly(fact: impl Fn() -> bool) {
    const PAUSE: Duration = Duration::from_micros(50);
    const PAUSES: u32 = 100;
    for _ in 0..PAUSES {
        if fact() {
            return;
        }
        std::thread::park_timeout(PAUSE);
    }
}

// Descendants found through `/proc`, held by pidfds.
#[cfg(target_os = "linux")]
mod imp {
    use std::io;

    pub(super) use super::walk::is_stopped_or_ended;
    use crate::process::child::ChildHandle;
    use crate::process::member::Member;
    use crate::process::pidfd::pidfds_are_refused;
    use crate::process::procfs::{Stat, proc_is_ours};

    pub(super) fn collect(root: &ChildHandle, members: &mut Vec<Member>) -> io::Result<()> {
        if proc_is_ours()? { super::walk::collect(root, members) } else { Ok(()) }
    }

    /// Fails if a search finds nothing, whatever there is.
    pub(super) fn check_can_find() -> io::Result<()> {
        let missing = match () {
            () if !proc_is_ours()? => "/proc of this pid namespace is not mounted",
            () if pidfds_are_refused() => "the kernel or a filter refuses pidfds",
            () => return Ok(()),
        };
        Err(io::Error::new(io::ErrorKind::Unsupported, missing))
    }

    pub(super) fn kill(which: super::Found) {
        if proc_is_ours().unwrap_or(false) {
            super::walk::kill(which);
        }
    }

    /// Returns true if the process with that number is a child of the other.
    pub(crate) fn is_child_of(pid: u32, parent: &Member) -> io::Result<bool> {
        Ok(Stat::of(pid)?.is_some_and(|stat| stat.parent == parent.pid()) && parent.owns_pid()?)
    }
}

// The walk from a root to all its descendants, on systems that list children by the parent's number.
#[cfg(unix)]
mod walk {
    use std::io;

    use crate::base::signal::Signal;
    use crate::process::child::ChildHandle;
    #[cfg(target_os = "macos")]
    use crate::process::libproc::{ProcessInfo, children_of};
    use crate::process::member::Member;
    #[cfg(target_os = "linux")]
    use crate::process::procfs::{Stat as ProcessInfo, children_of};

    /// Adds all descendants that can be opened.
    ///
    /// # Errors
    /// The first error of one that was not found or opened for lack of room.
    pub(super) fn collect(root: &ChildHandle, members: &mut Vec<Member>) -> io::Result<()> {
        let mut result = add_children(root.pid(), || Ok(root.owns_pid()), members);
        if let Some(tree) = root.tree() {
            result = result.and(tree.collect(members));
        }
        // The list grows while it is walked: a member's children come after it.
        let mut next = 0;
        while let Some(member) = members.get(next).cloned() {
            result = result.and(add_children(member.pid(), || member.owns_pid(), members));
            next += 1;
        }
        result
    }

    /// Fails if a search finds nothing, whatever there is.
    #[cfg(target_os = "macos")]
    pub(super) fn check_can_find() -> io::Result<()> {
        Ok(())
    }

    /// Kills processes below this one.
    pub(super) fn kill(which: super::Found) {
        let mut members = Vec::new();
        let _ = add_children(std::process::id(), || Ok(true), &mut members);
        let mut next = 0;
        while let Some(member) = members.get(next).cloned() {
            let before = members.len();
            let listed = add_children(member.pid(), || member.owns_pid(), &mut members);
            if which == super::Found::Last && listed.is_ok() && members.len() == before {
                let _ = member.signal(Signal::KILL);
            }
            next += 1;
        }
        if which == super::Found::All {
            // From the end: a supervisor would do something about the end of its child.
            members.iter().rev().for_each(|member| drop(member.signal(Signal::KILL)));
        }
    }

    /// Returns true if the root cannot start a process now: it is stopped or has ended.
    pub(super) fn is_stopped_or_ended(root: &ChildHandle) -> bool {
        let is_so = |info: Option<ProcessInfo>| info.is_none_or(|info| info.is_stopped_or_ended());
        !root.owns_pid() || find(root.pid()).is_ok_and(is_so)
    }

    /// Adds the children of one process as members. The system lists them by number only, so a result counts
    /// only if the parent has kept its number throughout.
    pub(crate) fn add_children(
        parent: u32,
        owns_pid: impl Fn() -> io::Result<bool>,
        members: &mut Vec<Member>,
    ) -> io::Result<()> {
        let mut result = Ok(());
        for pid in children_of(parent)? {
            let is_child = || {
                let info = find(pid)?;
                Ok(info.is_some_and(|info| info.parent == parent && !info.has_ended())
                    && owns_pid()?)
            };
            match Member::open(pid, members, is_child) {
                Ok(member) => members.extend(member),
                Err(error) => result = result.and(Err(error)),
            }
        }
        result
    }

    fn find(pid: u32) -> io::Result<Option<ProcessInfo>> {
        #[cfg(target_os = "macos")]
        return Ok(ProcessInfo::of(pid));
        #[cfg(target_os = "linux")]
        Ok(ProcessInfo::of(pid)?)
    }
}

// Descendants found through a list of all processes, held by HANDLEs.
#[cfg(windows)]
mod imp {
    use std::io;
    use std::os::windows::io::{AsRawHandle, FromRawHandle, OwnedHandle};

    use windows_sys::Win32::Foundation::INVALID_HANDLE_VALUE;
    use windows_sys::Win32::System::Diagnostics::ToolHelp::{
        CreateToolhelp32Snapshot, PROCESSENTRY32W, Process32FirstW, Process32NextW,
        TH32CS_SNAPPROCESS,
    };

    use crate::base::handle::size_of_u32;
    use crate::process::child::ChildHandle;
    use crate::process::member::Member;
    use crate::process::process_object::ProcessObject;

    pub(super) fn kill(_: super::Found) {}

    pub(super) fn check_can_find() -> io::Result<()> {
        Ok(())
    }

    pub(super) fn collect(root: &ChildHandle, members: &mut Vec<Member>) -> io::Result<()> {
        if let Some(tree) = root.tree() {
            tree.collect(members)?;
        }
        let Some(process) = root.0.as_process() else { return Ok(()) };
        let all = all_processes()?;
        add_children(root.pid(), process, &all, members);
        // The list grows while it is walked: a member's children come after it.
        let mut next = 0;
        while let Some(member) = members.get(next).cloned() {
            add_children(member.pid(), member.process(), &all, members);
            next += 1;
        }
        Ok(())
    }

    pub(super) fn is_stopped_or_ended(_: &ChildHandle) -> bool {
        // As for a member.
        true
    }

    /// Adds the children of one process as members. Its handle is open, so it keeps its number even after it
    /// has ended.
    fn add_children(
        number: u32,
        parent: &ProcessObject,
        all: &[ProcessEntry],
        members: &mut Vec<Member>,
    ) {
        let Some(parent_start) = parent.created() else { return };
        for listed in all.iter().filter(|listed| listed.parent == number && listed.pid != number) {
            // The list has numbers, which may have passed to other processes since it was made. And an orphan's
            // parent may have had the number before this one. But the answers of a process with an open handle
            // are true: if it names that number as its parent and is younger than the owner of the number, it
            // is its child.
            let is_child = |process: &ProcessObject| {
                process.parent() == Some(number)
                    && process.created().is_some_and(|it| it >= parent_start)
            };
            if let Some(member) = Member::open(listed.pid, members, is_child) {
                members.push(member);
            }
        }
    }

    /// An entry of the list.
    struct ProcessEntry {
        pid: u32,
        parent: u32,
    }

    fn all_processes() -> io::Result<Vec<ProcessEntry>> {
        // SAFETY: numbers.
        let list = unsafe { CreateToolhelp32Snapshot(TH32CS_SNAPPROCESS, 0) };
        if list == INVALID_HANDLE_VALUE {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: made by the call above, and owned nowhere else.
        let list = unsafe { OwnedHandle::from_raw_handle(list) };
        let mut entry =
            PROCESSENTRY32W { dwSize: size_of_u32::<PROCESSENTRY32W>(), ..Default::default() };
        let mut all = Vec::new();
        // SAFETY: the list is open; a live struct with its size set.
        let mut more = unsafe { Process32FirstW(list.as_raw_handle(), &raw mut entry) };
        while more != 0 {
            all.push(ProcessEntry { pid: entry.th32ProcessID, parent: entry.th32ParentProcessID });
            // SAFETY: as above.
            more = unsafe { Process32NextW(list.as_raw_handle(), &raw mut entry) };
        }
        Ok(all)
    }
}
