//! The cgroups of this process, below which it makes others.

use std::ffi::OsStr;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

use crate::base::error::is_lack_of_room;
use crate::base::generation::PerProcess;
use crate::base::test_hooks::{Forced, is_forced};
use crate::process::procfs;

/// The result of the last lookup.
static KNOWN: PerProcess<Mutex<Option<Arc<OwnCgroups>>>> = PerProcess::new(|| Mutex::new(None));

/// The hierarchies, by controller: version 2, and those of version 1.
const HIERARCHIES: [Option<&str>; 4] = [None, Some("memory"), Some("cpu"), Some("pids")];

/// The cgroups that this process was in at one time. Their paths are looked up once: the list of mounts is slow to
/// read.
#[derive(Debug, Default)]
pub(super) struct OwnCgroups {
    /// The text of `/proc/self/cgroup`.
    text: Vec<u8>,
    found: [OnceLock<Option<OwnCgroup>>; HIERARCHIES.len()],
    /// True if no child can be put into a cgroup made there.
    is_disabled: AtomicBool,
}

/// The cgroup of this process in one hierarchy.
#[derive(Debug)]
pub(super) struct OwnCgroup {
    /// The mount.
    pub(super) top: PathBuf,
    /// The path below the mount.
    pub(super) below: PathBuf,
    dir: OnceLock<Arc<OwnedFd>>,
}

/// Returns the cgroups that this process is in now; `None` if this system has none. A service manager may have moved it
/// since the last call.
///
/// # Errors
/// They cannot be looked up now.
pub(super) fn own_cgroups() -> io::Result<Option<Arc<OwnCgroups>>> {
    if is_forced(Forced::NoCgroup) {
        return Ok(None);
    }
    let Some(text) = cgroup_text()? else { return Ok(None) };
    let mut last = locked();
    if let Some(known) = last.as_ref().filter(|known| known.text == text) {
        return Ok(Some(Arc::clone(known)));
    }
    let own = Arc::new(OwnCgroups { text, ..OwnCgroups::default() });
    *last = Some(Arc::clone(&own));
    Ok(Some(own))
}

/// Returns the text of `/proc/self/cgroup`. Each start reads it, so it stays open.
fn cgroup_text() -> io::Result<Option<Vec<u8>>> {
    static FILE: PerProcess<OnceLock<OwnedFd>> = PerProcess::new(OnceLock::new);
    const PATH: &str = "/proc/self/cgroup";
    let file = match FILE.get().get() {
        Some(file) => file,
        None => match procfs::open(PATH, OFlags::RDONLY) {
            Ok(file) => FILE.get().get_or_init(|| file),
            Err(error) => return unless_lack(error),
        },
    };
    let mut text = vec![0; 4096];
    match rustix::io::pread(file, &mut text, 0) {
        Ok(count) if 0 < count && count < text.len() => {
            text.truncate(count);
            Ok(Some(text))
        }
        _ => procfs::read(PATH).map_or_else(unless_lack, |text| Ok(Some(text))),
    }
}

/// Returns `None` for something that this system does not have. A lack of room does not mean that.
fn unless_lack<T>(error: Errno) -> io::Result<Option<T>> {
    if is_lack_of_room(error) { Err(error.into()) } else { Ok(None) }
}

/// Forgets all paths, after a cgroup could not be made in one of them.
pub(super) fn forget() {
    *locked() = None;
}

/// Records that no child can be put into a cgroup of this process's own: no call tries again until this process is
/// moved.
pub(super) fn disable() {
    if let Some(known) = &*locked() {
        known.is_disabled.store(true, Ordering::Relaxed);
    }
}

fn locked() -> MutexGuard<'static, Option<Arc<OwnCgroups>>> {
    // Each change is one assignment.
    KNOWN.get().lock().unwrap_or_else(PoisonError::into_inner)
}

impl OwnCgroups {
    /// Returns the cgroup in a hierarchy: that of version 2, or the one of version 1 with that controller. `None` if
    /// there is none, or if no mount shows it.
    ///
    /// # Errors
    /// It cannot be looked up now.
    pub(super) fn of(&self, controller: Option<&str>) -> io::Result<Option<&OwnCgroup>> {
        let at = HIERARCHIES.iter().position(|known| *known == controller);
        let Some(place) = at.and_then(|at| self.found.get(at)) else { return Ok(None) };
        if let Some(known) = place.get() {
            return Ok(known.as_ref());
        }
        let found = own_in_hierarchy(&self.text, controller)?;
        let found = found.map(|(top, below)| OwnCgroup { top, below, dir: OnceLock::new() });
        Ok(place.get_or_init(|| found).as_ref())
    }

    /// Returns the directory in which cgroups of version 2 are made; `None` if there is none, or if it was refused.
    ///
    /// # Errors
    /// It cannot be opened now.
    pub(super) fn parent(&self) -> io::Result<Option<Arc<OwnedFd>>> {
        if self.is_disabled.load(Ordering::Relaxed) {
            return Ok(None);
        }
        match self.of(None)? {
            Some(own) => own.dir().map_or_else(unless_lack, |dir| Ok(Some(dir))),
            None => Ok(None),
        }
    }

    /// Returns the text of `/proc/self/cgroup`, which differs once this process has been moved.
    pub(super) fn text(&self) -> &[u8] {
        &self.text
    }
}

impl OwnCgroup {
    pub(super) fn path(&self) -> PathBuf {
        self.top.join(&self.below)
    }

    /// Returns the directory, which stays open.
    pub(super) fn dir(&self) -> rustix::io::Result<Arc<OwnedFd>> {
        if let Some(dir) = self.dir.get() {
            return Ok(Arc::clone(dir));
        }
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let dir = rustix::fs::open(self.path(), flags, Mode::empty())?;
        Ok(Arc::clone(self.dir.get_or_init(|| Arc::new(dir))))
    }
}

/// Returns the path of the cgroup of version 2 that this process is in now; `None` if no mount shows it.
pub(crate) fn own_cgroup_path() -> Option<PathBuf> {
    let (top, below) = own_in_hierarchy(&procfs::read("/proc/self/cgroup").ok()?, None).ok()??;
    Some(top.join(below))
}

/// Returns the mount of a hierarchy, and the path of this process's cgroup below it. The hierarchy is that of version
/// 2, or the one of version 1 with that controller.
fn own_in_hierarchy(
    cgroups: &[u8],
    controller: Option<&str>,
) -> io::Result<Option<(PathBuf, PathBuf)>> {
    let mut lines = cgroups.split(|byte| *byte == b'\n');
    let Some(own) = lines.find_map(|line| of_hierarchy(line, controller)) else { return Ok(None) };
    let mounts = match procfs::read("/proc/self/mountinfo") {
        Ok(mounts) => mounts,
        Err(error) => return unless_lack(error),
    };
    let mut mounts = mounts.split(|byte| *byte == b'\n');
    Ok(mounts.find_map(|mount| below_mount(mount, own, controller)))
}

/// Returns the path in a line of `/proc/self/cgroup` (cgroups(7)), if it is about the hierarchy.
fn of_hierarchy<'a>(line: &'a [u8], controller: Option<&str>) -> Option<&'a [u8]> {
    let Some(controller) = controller else { return line.strip_prefix(b"0::") };
    let mut fields = line.splitn(3, |byte| *byte == b':');
    let mut controllers = fields.nth(1)?.split(|byte| *byte == b',');
    controllers.find(|it| *it == controller.as_bytes())?;
    fields.next()
}

/// Returns the mount and the path below it, if the line of mountinfo (proc(5)) is about a mount that shows the cgroup.
fn below_mount(line: &[u8], cgroup: &[u8], controller: Option<&str>) -> Option<(PathBuf, PathBuf)> {
    let mut fields = line.split(|byte| *byte == b' ');
    let root = unescape(fields.nth(3)?);
    let mount = unescape(fields.next()?);
    // Optional fields end with a hyphen.
    let mut after = fields.skip_while(|field| *field != b"-");
    let kind = after.nth(1)?;
    match controller {
        None if kind == b"cgroup2" => {}
        Some(controller) if kind == b"cgroup" => {
            let mut options = after.nth(1)?.split(|byte| *byte == b',');
            options.find(|option| *option == controller.as_bytes())?;
        }
        _ => return None,
    }
    let cgroup = Path::new(OsStr::from_bytes(cgroup));
    let below = cgroup.strip_prefix(OsStr::from_bytes(&root)).ok()?;
    Some((Path::new(OsStr::from_bytes(&mount)).to_owned(), below.to_owned()))
}

/// Decodes the octal escapes that stand for space, tab, line feed and backslash.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mount_that_shows_a_cgroup_is_found() {
        let below = |line: &str, cgroup: &str| {
            let (top, below) = below_mount(line.as_bytes(), cgroup.as_bytes(), None)?;
            Some(top.join(below))
        };
        let line = "41 31 0:38 / /sys/fs/cgroup/unified rw,relatime shared:9 - cgroup2 cgroup2 rw";
        assert_eq!(below(line, "/a b/c").unwrap(), Path::new("/sys/fs/cgroup/unified/a b/c"));
        assert_eq!(below(line, "/").unwrap(), Path::new("/sys/fs/cgroup/unified/"));
        let line = r"41 31 0:38 /docker/1 /my\040mount rw - cgroup2 none rw";
        assert_eq!(below(line, "/docker/1/x").unwrap(), Path::new("/my mount/x"));
        assert_eq!(below(line, "/docker/2"), None, "the mount does not show it");
        assert_eq!(below("41 31 0:38 / /proc rw - proc proc rw", "/"), None);
        assert_eq!(below("", "/"), None);
    }

    #[test]
    fn a_hierarchy_of_version_1_is_found_by_its_controller() {
        let below = |line: &str, controller| below_mount(line.as_bytes(), b"/a", Some(controller));
        let line = "33 31 0:30 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct";
        let place = (PathBuf::from("/sys/fs/cgroup/cpu,cpuacct"), PathBuf::from("a"));
        assert_eq!(below(line, "cpu"), Some(place));
        assert_eq!(below(line, "memory"), None);
        assert_eq!(below("33 31 0:30 / /x rw - cgroup2 cpu rw,cpu", "cpu"), None);
        assert_eq!(of_hierarchy(b"4:cpu,cpuacct:/a:b", Some("cpuacct")), Some(&b"/a:b"[..]));
        assert_eq!(of_hierarchy(b"4:cpu,cpuacct:/a", Some("memory")), None);
        assert_eq!(of_hierarchy(b"0::/a", None), Some(&b"/a"[..]));
    }
}
