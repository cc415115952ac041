//! A control group of its own for one tree (cgroups(7), version 2).

use std::ffi::{CString, OsStr};
use std::fs;
use std::io;
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use rustix::fs::{AtFlags, Mode, OFlags};

use crate::exit::linux::{open_pidfd, send};
use crate::tree::proc;

const PREFIX: &str = "pipewright-";

/// The directory of a cgroup, made for one tree and removed with it.
#[derive(Debug)]
pub(crate) struct Cgroup {
    parent: BorrowedFd<'static>,
    name: CString,
    dir: OwnedFd,
    /// `cgroup.kill`; `None` before Linux 5.14.
    kill: Option<OwnedFd>,
}

impl Cgroup {
    /// A new one below that of this process; `None` where that cannot be had.
    pub(crate) fn new() -> Option<Cgroup> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let parent = parent()?;
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("{PREFIX}{}-{number}", std::process::id());
        let name = CString::new(name).ok()?;
        let made = rustix::fs::mkdirat(parent, &name, Mode::from_raw_mode(0o755));
        if let Err(error) = made {
            // EEXIST: left by a process that had this number; the next name is free.
            if error != rustix::io::Errno::EXIST {
                refuse();
            }
            return None;
        }
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        match rustix::fs::openat(parent, &name, flags, Mode::empty()) {
            Ok(dir) => {
                let kill = open(&dir, "cgroup.kill", OFlags::WRONLY).ok();
                Some(Cgroup { parent, name, dir, kill })
            }
            Err(_) => {
                // Ignored: no room for a handle, and an empty directory that is left.
                let _ = rustix::fs::unlinkat(parent, &name, AtFlags::REMOVEDIR);
                None
            }
        }
    }

    /// What `clone3(CLONE_INTO_CGROUP)` takes.
    pub(crate) fn dir(&self) -> BorrowedFd<'_> {
        self.dir.as_fd()
    }

    /// What a child that was not born inside writes `0` to.
    pub(crate) fn procs(&self) -> io::Result<OwnedFd> {
        open(&self.dir, "cgroup.procs", OFlags::WRONLY)
    }

    pub(crate) fn name(&self) -> &CString {
        &self.name
    }

    pub(crate) fn parent(&self) -> BorrowedFd<'_> {
        self.parent
    }

    pub(crate) fn kill_file(&self) -> Option<BorrowedFd<'_>> {
        self.kill.as_ref().map(AsFd::as_fd)
    }

    /// Who is in it and has not ended, in cgroups below it included.
    pub(crate) fn pids(&self) -> Vec<u32> {
        let mut pids = Vec::new();
        let text = self.read("cgroup.procs").unwrap_or_default();
        add_pids(&text, &mut pids);
        // One read tells nearly every tree that it has made none.
        let stat = self.read("cgroup.stat").unwrap_or_default();
        if !stat.lines().any(|line| line == "nr_descendants 0") {
            add_pids_below(&path_of(self.dir()), &mut pids);
        }
        pids
    }

    /// Whether anybody is in it, in cgroups below it included.
    pub(crate) fn is_populated(&self) -> bool {
        match self.read("cgroup.events") {
            Ok(events) => !says_deserted(&events),
            // Removed by somebody else, which takes that nobody was in it.
            Err(_) => false,
        }
    }

    pub(crate) fn kill(&self) {
        if let Some(kill) = &self.kill {
            if rustix::io::write(kill, b"1").is_ok() {
                return;
            }
        }
        self.kill_one_by_one();
    }

    /// Without `cgroup.kill`: frozen, nobody starts another while the list is gone through.
    fn kill_one_by_one(&self) {
        self.freeze("1");
        for pid in self.pids() {
            let Some(pidfd) = i32::try_from(pid).ok().and_then(open_pidfd) else { continue };
            // Believed once it is held: a number that had passed on would not be in here.
            if self.pids().contains(&pid) {
                // Ignored: gone.
                let _ = send(pidfd.as_fd(), libc::SIGKILL, 0);
            }
        }
        self.freeze("0");
    }

    fn freeze(&self, word: &str) {
        // Ignored: without the freezer it takes another pass or two.
        if let Ok(file) = open(&self.dir, "cgroup.freeze", OFlags::WRONLY) {
            let _ = rustix::io::write(file, word.as_bytes());
        }
    }

    /// Removes it. `false`: somebody is in it, or in one that the tree made for itself.
    pub(crate) fn remove_if_empty(&self) -> bool {
        // Somebody else may have removed it, which takes that nobody was in it.
        matches!(self.remove(), Ok(()) | Err(rustix::io::Errno::NOENT))
    }

    fn remove(&self) -> rustix::io::Result<()> {
        rustix::fs::unlinkat(self.parent, &self.name, AtFlags::REMOVEDIR)
    }

    fn read(&self, file: &str) -> io::Result<String> {
        let file = fs::File::from(open(&self.dir, file, OFlags::RDONLY)?);
        io::read_to_string(file)
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        // What cannot be removed has somebody in it, or a cgroup that the tree made for itself.
        if matches!(self.remove(), Err(rustix::io::Errno::BUSY | rustix::io::Errno::NOTEMPTY)) {
            remove_below(&path_of(self.dir()));
            // Ignored: somebody is still in it, and the next process that starts here removes it.
            let _ = self.remove();
        }
    }
}

/// No child could be put into a cgroup: nobody tries again.
pub(crate) fn refuse() {
    REFUSED.store(true, Ordering::Relaxed);
}

static REFUSED: AtomicBool = AtomicBool::new(crate::fallback::NO_CGROUP);

fn open(dir: &OwnedFd, file: &str, flags: OFlags) -> io::Result<OwnedFd> {
    Ok(rustix::fs::openat(dir, file, flags | OFlags::CLOEXEC, Mode::empty())?)
}

/// Where a directory is, for this process only.
fn path_of(dir: BorrowedFd<'_>) -> PathBuf {
    format!("/proc/self/fd/{}", dir.as_raw_fd()).into()
}

/// Whether `cgroup.events` says that nobody is in it, nor in one below.
fn says_deserted(events: &str) -> bool {
    events.lines().any(|line| line == "populated 0")
}

fn add_pids(procs: &str, pids: &mut Vec<u32>) {
    pids.extend(procs.lines().filter_map(|line| line.parse::<u32>().ok()));
}

fn add_pids_below(dir: &Path, pids: &mut Vec<u32>) {
    for below in dirs_in(dir) {
        add_pids(&fs::read_to_string(below.join("cgroup.procs")).unwrap_or_default(), pids);
        add_pids_below(&below, pids);
    }
}

fn remove_below(dir: &Path) {
    for below in dirs_in(dir) {
        remove_below(&below);
        // Ignored: somebody is in it.
        let _ = fs::remove_dir(below);
    }
}

fn dirs_in(dir: &Path) -> impl Iterator<Item = PathBuf> {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    let dirs = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
    dirs.map(|dir| dir.path())
}

/// The cgroup of this process, as a directory; `None` where it cannot be used.
fn parent() -> Option<BorrowedFd<'static>> {
    static PARENT: OnceLock<Option<OwnedFd>> = OnceLock::new();
    if REFUSED.load(Ordering::Relaxed) {
        return None;
    }
    let parent = PARENT.get_or_init(|| {
        let path = own_cgroup()?;
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        rustix::fs::open(path, flags, Mode::empty()).ok()
    });
    parent.as_ref().map(AsFd::as_fd)
}

/// Where the cgroup that this process is in is mounted: not always at `/sys/fs/cgroup`.
fn own_cgroup() -> Option<PathBuf> {
    let cgroups = proc::read("/proc/self/cgroup")?;
    let own = cgroups.split(|byte| *byte == b'\n').find_map(|line| line.strip_prefix(b"0::"))?;
    let mounts = proc::read("/proc/self/mountinfo")?;
    mounts.split(|byte| *byte == b'\n').find_map(|mount| below_mount(mount, own))
}

/// The directory of that cgroup, if the line of mountinfo (proc(5)) is about a mount that shows it.
fn below_mount(line: &[u8], cgroup: &[u8]) -> Option<PathBuf> {
    let mut fields = line.split(|byte| *byte == b' ');
    let root = unescape(fields.nth(3)?);
    let mount = unescape(fields.next()?);
    // Optional fields end with a hyphen.
    let kind = fields.skip_while(|field| *field != b"-").nth(1)?;
    if kind != b"cgroup2" {
        return None;
    }
    let cgroup = Path::new(OsStr::from_bytes(cgroup));
    let below = cgroup.strip_prefix(OsStr::from_bytes(&root)).ok()?;
    Some(Path::new(OsStr::from_bytes(&mount)).join(below))
}

/// Space, tab, line feed and backslash are written as three octal digits.
fn unescape(field: &[u8]) -> Vec<u8> {
    let mut plain = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((&first, after)) = rest.split_first() {
        let digits = after.get(..3).and_then(|digits| std::str::from_utf8(digits).ok());
        let code = digits.and_then(|digits| u8::from_str_radix(digits, 8).ok());
        match code {
            Some(code) if first == b'\\' => {
                plain.push(code);
                rest = &after[3..];
            }
            _ => {
                plain.push(first);
                rest = after;
            }
        }
    }
    plain
}

/// Removes what processes that were killed have left behind, once they are empty; once in the life of
/// this process.
pub(crate) fn remove_stale() {
    /// Not those that are just being made by a process that we cannot see from here.
    const OLD: Duration = Duration::from_secs(60);
    static DONE: AtomicBool = AtomicBool::new(false);
    let Some(parent) = parent().filter(|_| !DONE.swap(true, Ordering::Relaxed)) else { return };
    for entry in fs::read_dir(path_of(parent)).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let owner = name.to_str().and_then(|name| name.strip_prefix(PREFIX)?.split('-').next());
        let Some(owner) = owner.and_then(|owner| owner.parse::<u32>().ok()) else { continue };
        let made = entry.metadata().and_then(|it| it.modified()).ok();
        let age = made.and_then(|made| SystemTime::now().duration_since(made).ok());
        let gone = !Path::new(&format!("/proc/{owner}")).exists();
        let events = || fs::read_to_string(entry.path().join("cgroup.events")).unwrap_or_default();
        // Its owner may live in a pid namespace that we cannot see, and those below be in use.
        if gone && age.is_some_and(|age| age > OLD) && says_deserted(&events()) {
            // A command that held a tree itself, and was killed with it, has left its own in there.
            remove_below(&entry.path());
            // Ignored: somebody else was faster.
            let _ = fs::remove_dir(entry.path());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mount_that_shows_a_cgroup_is_found() {
        let below = |line: &str, cgroup: &str| below_mount(line.as_bytes(), cgroup.as_bytes());
        let line = "41 31 0:38 / /sys/fs/cgroup/unified rw,relatime shared:9 - cgroup2 cgroup2 rw";
        assert_eq!(below(line, "/a b/c").unwrap(), Path::new("/sys/fs/cgroup/unified/a b/c"));
        assert_eq!(below(line, "/").unwrap(), Path::new("/sys/fs/cgroup/unified/"));
        let line = r"41 31 0:38 /docker/1 /my\040mount rw - cgroup2 none rw";
        assert_eq!(below(line, "/docker/1/x").unwrap(), Path::new("/my mount/x"));
        assert_eq!(below(line, "/docker/2"), None, "the mount does not show it");
        assert_eq!(below("41 31 0:38 / /proc rw - proc proc rw", "/"), None);
        assert_eq!(below("", "/"), None);
    }
}
