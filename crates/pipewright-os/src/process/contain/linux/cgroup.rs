//! A control group for one tree (cgroups(7), version 2).

use std::ffi::{CString, OsStr};
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, SystemTime};
use std::{fmt, fs, io};

use rustix::fs::{AtFlags, Mode, OFlags};
use rustix::io::Errno;
use rustix::process::{Pid, test_kill_process};

use super::limits::files;
use super::place::{self, OwnCgroups, own_cgroups};
use crate::base::error::is_lack_of_room;
use crate::base::generation::Generation;
use crate::process::pidfd::{can_signal, open_pidfd, send};

pub(super) const PREFIX: &str = "pipewright-";

/// The directory of a cgroup, made for one tree and removed with it.
#[derive(Debug)]
pub(crate) struct Cgroup {
    /// The process that has made it. A fork of it leaves it alone.
    made_in: Generation,
    parent: Arc<OwnedFd>,
    name: CString,
    /// The directory, as long as something may still be set or read in it.
    dir: Option<OwnedFd>,
    /// `cgroup.kill`; `None` before Linux 5.14.
    kill: Option<OwnedFd>,
    /// `cgroup.events`. Open from the start on, as the file above: to end a tree takes no further handle.
    events: OwnedFd,
    /// True once it has been removed. Its name may belong to another one by then.
    is_removed: AtomicBool,
    /// True once its tree has ended: no process is left that could start another in it.
    has_emptied: AtomicBool,
}

impl Cgroup {
    /// Creates one below the cgroup of this process; `None` if that is not possible.
    ///
    /// # Errors
    /// There is no room for it now.
    pub(crate) fn new() -> io::Result<Option<Cgroup>> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let Some(own) = own_cgroups()? else { return Ok(None) };
        Cgroup::named(&own, &name_of(format_args!("{number}")))
    }

    /// Creates one with that name, below the cgroup of this process.
    pub(super) fn named(own: &OwnCgroups, name: &str) -> io::Result<Option<Cgroup>> {
        let Some(parent) = own.parent()? else { return Ok(None) };
        match Cgroup::create(parent, name) {
            Ok(cgroup) => Ok(Some(cgroup)),
            Err(Some(error)) => {
                if is_permanent(error) {
                    disable();
                }
                // The other ways to hold a tree take as many handles. No room for another cgroup leaves room for them.
                let is_about_this_process =
                    matches!(error, Errno::MFILE | Errno::NFILE | Errno::NOMEM);
                if is_about_this_process { Err(error.into()) } else { Ok(None) }
            }
            Err(None) => Ok(None),
        }
    }

    /// Creates one with that name. The error is `None` if nothing could kill its processes.
    pub(crate) fn create(parent: Arc<OwnedFd>, name: &str) -> Result<Cgroup, Option<Errno>> {
        let name = CString::new(name).map_err(|_| Errno::INVAL)?;
        rustix::fs::mkdirat(&parent, &name, Mode::from_raw_mode(0o755))?;
        Cgroup::open_new(Arc::clone(&parent), name.clone()).inspect_err(|_| {
            // Ignored: an empty directory may stay behind.
            let _ = rustix::fs::unlinkat(&parent, &name, AtFlags::REMOVEDIR);
        })
    }

    fn open_new(parent: Arc<OwnedFd>, name: CString) -> Result<Cgroup, Option<Errno>> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let dir = rustix::fs::openat(&parent, &name, flags, Mode::empty())?;
        let events = open(&dir, "cgroup.events", OFlags::RDONLY)?;
        let kill = match open(&dir, "cgroup.kill", OFlags::WRONLY) {
            Ok(kill) => Some(kill),
            Err(error) if is_lack_of_room(error) => return Err(Some(error)),
            // Nothing else kills its processes: it would hold a tree that nobody can end.
            Err(_) if !can_signal()? => return Err(None),
            Err(_) => None,
        };
        let is_removed = AtomicBool::new(false);
        let has_emptied = AtomicBool::new(false);
        let made_in = Generation::current();
        Ok(Cgroup { made_in, parent, name, dir: Some(dir), kill, events, is_removed, has_emptied })
    }

    /// Returns the directory, which `clone3(CLONE_INTO_CGROUP)` takes. After [`close_dir`](Self::close_dir) a file in
    /// its place, in which nothing can be opened.
    pub(crate) fn dir(&self) -> BorrowedFd<'_> {
        self.dir.as_ref().unwrap_or(&self.events).as_fd()
    }

    /// Closes the directory: the child has been started, and nothing will be read in it.
    pub(crate) fn close_dir(&mut self) {
        self.dir = None;
    }

    /// Opens the file to which a child that was not born in the cgroup writes `0`.
    pub(crate) fn procs(&self) -> io::Result<OwnedFd> {
        Ok(self.open("cgroup.procs", OFlags::WRONLY)?)
    }

    pub(crate) fn name(&self) -> &CString {
        &self.name
    }

    pub(crate) fn parent(&self) -> BorrowedFd<'_> {
        self.parent.as_fd()
    }

    pub(crate) fn kill_file(&self) -> Option<BorrowedFd<'_>> {
        self.kill.as_ref().map(AsFd::as_fd)
    }

    /// Returns the processes in it that have not ended, including those in cgroups below it.
    ///
    /// # Errors
    /// There is no room to list them.
    pub(crate) fn pids(&self) -> io::Result<Vec<u32>> {
        let mut pids = Vec::new();
        match self.read("cgroup.procs") {
            Ok(text) => add_pids(&text, &mut pids),
            Err(error) if has_gone(&error) => return Ok(pids),
            Err(error) => return Err(error),
        }
        // For nearly every tree one read shows that it has made no cgroups.
        let stat = self.read("cgroup.stat")?;
        if !stat.lines().any(|line| line == "nr_descendants 0") {
            add_pids_below(&self.path(), &mut pids)?;
        }
        Ok(pids)
    }

    /// Returns true if a process of its tree, which has been started, may be in it or in a cgroup below it.
    pub(crate) fn is_populated(&self) -> bool {
        if self.is_removed.load(Ordering::Relaxed) || self.has_emptied.load(Ordering::Relaxed) {
            return false;
        }
        let is_empty = match files::read_open(self.events.as_fd()) {
            Ok(events) => is_unpopulated(&events),
            // Another process has removed it, which was possible only while it was empty. No other error is an answer.
            Err(error) => has_gone(&error),
        };
        if is_empty {
            self.has_emptied.store(true, Ordering::Relaxed);
        }
        !is_empty
    }

    pub(crate) fn kill(&self) {
        if let Some(kill) = &self.kill {
            if rustix::io::write(kill, b"1").is_ok() {
                return;
            }
        }
        self.kill_one_by_one();
    }

    /// Kills without `cgroup.kill`: while the cgroup is frozen, no process in it can start another.
    fn kill_one_by_one(&self) {
        self.freeze("1");
        // Ignored: without room for a handle nothing is killed now, and the tree stays populated.
        for pid in self.pids().unwrap_or_default() {
            let Ok(Some(pidfd)) = open_pidfd(pid as i32) else { continue };
            // Check again once the pidfd is open: a number that had passed to another process would not be
            // in here.
            if self.pids().is_ok_and(|pids| pids.contains(&pid)) {
                // Ignored: it is gone.
                let _ = send(pidfd.as_fd(), libc::SIGKILL, 0);
            }
        }
        self.freeze("0");
    }

    fn freeze(&self, word: &str) {
        // Ignored: without the freezer, killing takes another pass or two.
        if let Ok(file) = self.open("cgroup.freeze", OFlags::WRONLY) {
            let _ = rustix::io::write(file, word.as_bytes());
        }
    }

    /// Removes it. Returns false if a process is in it, or in a cgroup that the tree made for itself.
    pub(crate) fn remove_if_empty(&self) -> bool {
        // Another process may have removed it, which was possible only while it was empty.
        matches!(self.remove(), Ok(()) | Err(Errno::NOENT))
    }

    fn remove(&self) -> rustix::io::Result<()> {
        if !self.is_removed.load(Ordering::Relaxed) {
            rustix::fs::unlinkat(&self.parent, &self.name, AtFlags::REMOVEDIR)?;
            self.is_removed.store(true, Ordering::Relaxed);
        }
        Ok(())
    }

    pub(super) fn read(&self, file: &str) -> io::Result<String> {
        io::read_to_string(fs::File::from(self.open(file, OFlags::RDONLY)?))
    }

    fn open(&self, file: &str, flags: OFlags) -> rustix::io::Result<OwnedFd> {
        let name = self.name.to_string_lossy();
        open(&self.parent, &format!("{name}/{file}"), flags)
    }

    fn path(&self) -> PathBuf {
        path_of(self.parent()).join(OsStr::from_bytes(self.name.to_bytes()))
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        if !self.made_in.is_current() {
            return;
        }
        // If it cannot be removed, a process is in it, or a cgroup that the tree made for itself.
        if matches!(self.remove(), Err(Errno::BUSY | Errno::NOTEMPTY)) {
            remove_below(&self.path());
            // Ignored: a process is still in it; the next process that makes cgroups here removes it.
            let _ = self.remove();
        }
    }
}

/// Records that no child can be put into a cgroup here: this process does not try again until it is moved
/// to another cgroup.
pub(crate) fn disable() {
    place::disable();
}

/// Returns true if the same error would come again next time. A lack of room is temporary (`EAGAIN` is
/// `cgroup.max.descendants`, `ENOSPC` too many cgroups on the machine), and so is a directory left behind
/// by an earlier process with this number: the next name is free.
pub(crate) fn is_permanent(error: Errno) -> bool {
    let temporary = [Errno::EXIST, Errno::INTR, Errno::BUSY, Errno::NODEV, Errno::IO];
    !temporary.contains(&error) && !is_lack_of_room(error)
}

fn open(dir: &OwnedFd, file: &str, flags: OFlags) -> rustix::io::Result<OwnedFd> {
    rustix::fs::openat(dir, file, flags | OFlags::CLOEXEC, Mode::empty())
}

/// Returns true if the error means that the cgroup of a file has been removed.
fn has_gone(error: &io::Error) -> bool {
    matches!(Errno::from_io_error(error), Some(Errno::NOENT | Errno::NODEV))
}

/// Returns the path of a directory, for this process only.
pub(super) fn path_of(dir: BorrowedFd<'_>) -> PathBuf {
    format!("/proc/self/fd/{}", dir.as_raw_fd()).into()
}

/// Returns true if `cgroup.events` says that no process is in it or in a cgroup below it.
fn is_unpopulated(events: &str) -> bool {
    events.lines().any(|line| line == "populated 0")
}

fn add_pids(procs: &str, pids: &mut Vec<u32>) {
    pids.extend(procs.lines().filter_map(|line| line.parse::<u32>().ok()));
}

fn add_pids_below(dir: &Path, pids: &mut Vec<u32>) -> io::Result<()> {
    let entries = match fs::read_dir(dir) {
        Err(error) if has_gone(&error) => return Ok(()),
        entries => entries?,
    };
    for entry in entries {
        let entry = entry?;
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            match fs::read_to_string(entry.path().join("cgroup.procs")) {
                Ok(text) => add_pids(&text, pids),
                Err(error) if has_gone(&error) => continue,
                Err(error) => return Err(error),
            }
            add_pids_below(&entry.path(), pids)?;
        }
    }
    Ok(())
}

fn remove_below(dir: &Path) {
    for below in dirs_in(dir) {
        remove_below(&below);
        // Ignored: a process is in it.
        let _ = fs::remove_dir(below);
    }
}

fn dirs_in(dir: &Path) -> impl Iterator<Item = PathBuf> {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    let dirs = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
    dirs.map(|dir| dir.path())
}

/// Removes the empty cgroups that killed processes have left behind; once in the life of this process.
pub(crate) fn remove_stale() {
    static DONE: AtomicBool = AtomicBool::new(false);
    if DONE.load(Ordering::Relaxed) {
        return;
    }
    // Ignored, both: the next start looks again.
    let own = own_cgroups().ok().flatten();
    let parent = own.and_then(|own| own.parent().ok().flatten());
    let Some(parent) = parent.filter(|_| !DONE.swap(true, Ordering::Relaxed)) else { return };
    for dir in stale_in(parent.as_fd()) {
        let events = fs::read_to_string(dir.join("cgroup.events"));
        // The cgroups below may be in use.
        if events.is_ok_and(|events| is_unpopulated(&events)) {
            // A command that held a tree itself, and was killed with it, has left its own cgroup in there.
            remove_below(&dir);
            // Ignored: another process was faster.
            let _ = fs::remove_dir(dir);
        }
    }
}

/// Returns the directories in there that were made by a process of this crate which is gone.
pub(super) fn stale_in(parent: BorrowedFd<'_>) -> Vec<PathBuf> {
    /// The minimum age, which spares cgroups being made now by a process that is invisible from here.
    const OLD: Duration = Duration::from_secs(60);
    let here = namespace().map(|it| format!("-{it:x}"));
    let is_stale = |entry: &fs::DirEntry| {
        let name = entry.file_name();
        let name = name.to_str()?;
        // First, as most of them live: the file is not looked at then.
        if !is_gone(owner_of(name)?) {
            return None;
        }
        // Otherwise its owner may live in a pid namespace that is invisible from here.
        let is_known = here.as_ref().is_some_and(|here| name.ends_with(here.as_str()));
        let is_old = || {
            let made = entry.metadata().and_then(|it| it.modified()).ok()?;
            Some(SystemTime::now().duration_since(made).ok()? > OLD)
        };
        (is_known || is_old()?).then_some(())
    };
    let entries = fs::read_dir(path_of(parent)).into_iter().flatten().flatten();
    entries.filter(|entry| is_stale(entry).is_some()).map(|entry| entry.path()).collect()
}

/// Returns true if there is surely no such process in the pid namespace of this one.
fn is_gone(pid: u32) -> bool {
    match i32::try_from(pid) {
        Ok(pid) => Pid::from_raw(pid).is_some_and(|it| test_kill_process(it) == Err(Errno::SRCH)),
        // No process has such a number.
        Err(_) => true,
    }
}

/// Returns the name of a group: with the number of this process, which is in force in the pid namespace at its end.
pub(super) fn name_of(rest: fmt::Arguments<'_>) -> String {
    let name = format!("{PREFIX}{}-{rest}", std::process::id());
    match namespace() {
        Some(here) => format!("{name}-{here:x}"),
        None => name,
    }
}

/// Returns the number of the pid namespace of this process.
fn namespace() -> Option<u32> {
    /// Beside the number of the process: a fork may have another one.
    static KNOWN: AtomicU64 = AtomicU64::new(0);
    let process = u64::from(std::process::id()) << 32;
    let known = KNOWN.load(Ordering::Relaxed);
    if known & !u64::from(u32::MAX) == process {
        return u32::try_from(known ^ process).ok();
    }
    let number =
        fs::metadata("/proc/self/ns/pid").ok().and_then(|it| u32::try_from(it.ino()).ok())?;
    KNOWN.store(process | u64::from(number), Ordering::Relaxed);
    Some(number)
}

/// Returns the number of the process that made the cgroup of a tree with that name.
pub(super) fn owner_of(name: &str) -> Option<u32> {
    // That of a process which makes trees (`limits/scope.rs`).
    if name.ends_with(".scope") {
        return None;
    }
    name.strip_prefix(PREFIX)?.split('-').next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_dead_owners_have_left_is_found_at_once() {
        let dir = std::env::temp_dir().join(format!("pipewright-stale-{}", std::process::id()));
        fs::create_dir(&dir).unwrap();
        let mut child = std::process::Command::new("true").spawn().unwrap();
        let (dead, alive) = (child.id(), std::process::id());
        child.wait().unwrap();
        let here = namespace().unwrap();
        let name = name_of(format_args!("7"));
        assert_eq!(
            (name, owner_of(&format!("{PREFIX}9-1-ab"))),
            (format!("{PREFIX}{alive}-7-{here:x}"), Some(9))
        );
        // Made now by somebody who may be invisible, or alive.
        let stay = [
            format!("{PREFIX}{dead}-1"),
            format!("{PREFIX}{dead}-1-1"),
            format!("{PREFIX}{alive}-1-{here:x}"),
        ];
        let go = [format!("{PREFIX}{dead}-1-{here:x}"), format!("{PREFIX}{dead}-l2-abc-{here:x}")];
        for name in stay.iter().chain(&go) {
            fs::create_dir(dir.join(name)).unwrap();
        }
        let found = stale_in(fs::File::open(&dir).unwrap().as_fd());
        let name = |path: &PathBuf| path.file_name().unwrap().to_string_lossy().into_owned();
        let mut found: Vec<String> = found.iter().map(name).collect();
        found.sort();
        fs::remove_dir_all(&dir).unwrap();
        assert_eq!(found, go);
    }

    #[test]
    fn lack_of_room_does_not_disable_cgroups() {
        for temporary in [Errno::NOSPC, Errno::NOMEM, Errno::AGAIN, Errno::MFILE, Errno::EXIST] {
            assert!(!is_permanent(temporary), "{temporary}");
        }
        for permanent in [Errno::ACCESS, Errno::PERM, Errno::ROFS, Errno::OPNOTSUPP, Errno::NOSYS] {
            assert!(is_permanent(permanent), "{permanent}");
        }
    }
}
