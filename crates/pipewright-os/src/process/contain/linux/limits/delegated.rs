//! One cgroup of version 2: the questions whether limited ones can be made in it, and the change that allows it.

use std::os::fd::{AsFd as _, OwnedFd};
use std::path::{Path, PathBuf};
use std::{fs, io};

use rustix::fs::{Access, Mode, OFlags};
use rustix::io::Errno;

use super::{Controllers, files};
use crate::base::error::{is_lack, is_lack_of_room};
use crate::process::contain::linux::cgroup::owner_of;
use crate::process::procfs::Stat;

/// The name of the cgroup that this process moves to if it is in the way of the controllers.
const LEAF: &str = "pipewright-hosts";

/// A cgroup that may become the parent of limited ones.
pub(super) struct Level {
    pub(super) path: PathBuf,
}

/// The reason why limited cgroups cannot be made in a cgroup.
pub(super) enum Refusal {
    /// This process may not make cgroups in it.
    Denied(io::Error),
    /// Its parent does not give it these controllers.
    NoController(Controllers),
    /// Processes in it keep its controllers from its own cgroups.
    HasProcesses,
    /// The kernel refused the controllers for another reason.
    NotEnabled(io::Error),
    /// There is no room to find out.
    NoRoom(io::Error),
}

impl Level {
    /// Makes sure that cgroups with these controllers can be made in it.
    pub(super) fn prepare(&self, wanted: Controllers) -> Result<(), Refusal> {
        for place in [self.path.clone(), self.path.join("cgroup.procs")] {
            rustix::fs::access(&place, Access::WRITE_OK)
                .map_err(|error| Refusal::Denied(error.into()))?;
        }
        let controllers_in = |file| self.controllers_in(file).map_err(Refusal::NoRoom);
        let missing = wanted.without(controllers_in("cgroup.controllers")?);
        if missing != Controllers::NONE {
            return Err(Refusal::NoController(missing));
        }
        let missing = wanted.without(controllers_in("cgroup.subtree_control")?);
        if missing == Controllers::NONE {
            return Ok(());
        }
        if !self.may_give_controllers().map_err(Refusal::NoRoom)? {
            return Err(Refusal::HasProcesses);
        }
        let words: Vec<_> = missing.iter().map(|it| format!("+{}", it.name())).collect();
        match self.write("cgroup.subtree_control", &words.join(" ")) {
            Ok(()) => Ok(()),
            Err(error) => Err(match Errno::from_io_error(&error) {
                Some(Errno::BUSY) => Refusal::HasProcesses,
                Some(Errno::ACCESS | Errno::PERM | Errno::ROFS) => Refusal::Denied(error),
                Some(errno) if is_lack_of_room(errno) => Refusal::NoRoom(error),
                _ => Refusal::NotEnabled(error),
            }),
        }
    }

    /// Lets the cgroups in it have further controllers, if that is possible.
    pub(super) fn enable_if_possible(&self, wanted: Controllers) {
        // Ignored, all errors: without the controllers, only their figures are missing.
        if !self.may_give_controllers().unwrap_or(false) {
            return;
        }
        let Ok(enabled) = self.controllers_in("cgroup.subtree_control") else { return };
        for controller in wanted.without(enabled).iter() {
            let _ = self.write("cgroup.subtree_control", &format!("+{}", controller.name()));
        }
    }

    /// Returns true if no process in it keeps the controllers from the cgroups in it. The kernel itself refuses that
    /// for some controllers only; for `cpu` and `pids` it makes the cgroup a threaded one, in which no other can hold a
    /// process.
    fn may_give_controllers(&self) -> io::Result<bool> {
        let is_top = !self.path.join("cgroup.type").exists();
        Ok(is_top || self.pids()?.is_empty())
    }

    /// Returns the controllers that are named in one of its files.
    ///
    /// # Errors
    /// There is no room to read it.
    pub(super) fn controllers_in(&self, file: &str) -> io::Result<Controllers> {
        Ok(Controllers::named(&self.read(file)?))
    }

    /// Returns true if a limit may hold its processes, from which a cgroup outside of it would be free.
    pub(super) fn is_limited(&self) -> bool {
        self.is_limited_beyond_pids() || self.pids_max().is_some()
    }

    /// Does the same for all limits but that on the number of processes.
    pub(super) fn is_limited_beyond_pids(&self) -> bool {
        let files = ["memory.max", "memory.high", "memory.swap.max", "cpu.max"];
        let is_limit = |text: String| !matches!(text.split_whitespace().next(), None | Some("max"));
        files.iter().any(|file| self.read(file).map_or(true, is_limit))
    }

    /// Returns the limit on its memory.
    pub(super) fn memory_max_bytes(&self) -> Option<u64> {
        self.read("memory.max").ok()?.trim_ascii().parse().ok()
    }

    /// Returns the limit on the number of its processes.
    pub(super) fn pids_max(&self) -> Option<u64> {
        self.read("pids.max").ok()?.trim_ascii().parse().ok()
    }

    /// Returns true if it is named as the cgroup of a unit of systemd, of the kind with that suffix.
    pub(super) fn is_unit(&self, suffix: &str) -> bool {
        self.path.file_name().and_then(|name| name.to_str()).is_some_and(|it| it.ends_with(suffix))
    }

    /// Returns true if it is the leaf that a process moves to, so that the one around it is known to be delegated.
    pub(super) fn is_leaf(&self) -> bool {
        self.path.ends_with(LEAF)
    }

    /// Returns true if it holds a tree, which must not lose a process to a cgroup outside of it.
    pub(super) fn holds_tree(&self) -> bool {
        self.path.file_name().and_then(|name| owner_of(name.to_str()?)).is_some()
    }

    /// Returns true if this process may make cgroups in it by the rules of the service manager, if there is one.
    pub(super) fn is_delegated(&self) -> bool {
        // Without systemd, every user who may write to it may use it.
        if !is_under_systemd() {
            return true;
        }
        let has = |name| {
            let mut value = [0_u8; 8];
            rustix::fs::getxattr(&self.path, name, &mut value).is_ok_and(|bytes| bytes > 0)
        };
        has("trusted.delegate") || has("user.delegate")
    }

    /// Moves this process, and those that it has started, to a cgroup in it, if no other process is in it.
    pub(super) fn make_room(&self) -> bool {
        const MOST_PASSES: usize = 20;
        let leaf = self.path.join(LEAF);
        if !self.has_only_own_processes()
            || fs::create_dir(&leaf).is_err_and(|it| it.kind() != io::ErrorKind::AlreadyExists)
        {
            return false;
        }
        // A process may start another while it is moved.
        for _ in 0..MOST_PASSES {
            let Ok(pids) = self.pids() else { return false };
            if pids.is_empty() {
                return true;
            }
            for pid in pids {
                // Ignored: it has ended; or it could not be moved, and then the next pass finds it again.
                let _ = fs::write(leaf.join("cgroup.procs"), pid.to_string());
            }
        }
        false
    }

    /// Opens the directory.
    pub(super) fn open(&self) -> io::Result<OwnedFd> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        Ok(rustix::fs::open(&self.path, flags, Mode::empty())?)
    }

    /// Returns the number of processes in it that this process has not started.
    pub(super) fn other_processes(&self) -> usize {
        self.pids().unwrap_or_default().into_iter().filter(|pid| !is_own(*pid)).count()
    }

    pub(super) fn has_only_own_processes(&self) -> bool {
        let Ok(pids) = self.pids() else { return false };
        pids.contains(&std::process::id()) && pids.into_iter().all(is_own)
    }

    fn pids(&self) -> io::Result<Vec<u32>> {
        Ok(self.read("cgroup.procs")?.lines().filter_map(|line| line.parse().ok()).collect())
    }

    /// Reads one of its files; an empty text if it has none that this process may read.
    ///
    /// # Errors
    /// There is no room to read it.
    fn read(&self, file: &str) -> io::Result<String> {
        match fs::read_to_string(self.path.join(file)) {
            Err(error) if !is_lack(&error) => Ok(String::new()),
            text => text,
        }
    }

    fn write(&self, file: &str, text: &str) -> io::Result<()> {
        files::write(self.open()?.as_fd(), file, text)
    }
}

/// Returns true if systemd manages the cgroups of this machine (sd_booted(3)).
pub(super) fn is_under_systemd() -> bool {
    Path::new("/run/systemd/system").exists()
}

/// Returns true if a process is this one, or descends from it.
fn is_own(pid: u32) -> bool {
    const MOST_GENERATIONS: usize = 1000;
    let own = std::process::id();
    let mut pid = pid;
    for _ in 0..MOST_GENERATIONS {
        if pid == own {
            return true;
        }
        match Stat::of(pid) {
            // 1 has no parent. This process may be it, and is then looked at in the next round.
            Ok(Some(stat)) if stat.parent > 0 => pid = stat.parent,
            _ => return false,
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cgroup_of_a_tree_is_known_by_its_name() {
        let holds = |name: &str| Level { path: Path::new("/sys").join(name) }.holds_tree();
        assert!(holds("pipewright-12-0") && holds("pipewright-12-3-00ff"));
        assert!(!holds(LEAF) && !holds("user.slice") && !holds("pipewright-x-1"));
    }

    #[test]
    fn this_process_is_its_own() {
        assert!(is_own(std::process::id()));
        assert!(!is_own(1) || std::process::id() == 1);
    }

    #[test]
    fn a_child_of_process_1_is_its_own() {
        use std::process::Command;
        const AS_INIT: &str = "PIPEWRIGHT_TEST_AS_INIT";
        if std::env::var_os(AS_INIT).is_some() {
            assert_eq!(std::process::id(), 1);
            let mut child = Command::new("sleep").arg("600").spawn().unwrap();
            let is_own = is_own(child.id());
            child.kill().unwrap();
            child.wait().unwrap();
            return assert!(is_own);
        }
        let mut init = Command::new("unshare");
        init.args(["--pid", "--fork", "--mount-proc"]).arg(std::env::current_exe().unwrap());
        let name = std::thread::current().name().unwrap_or_default().to_owned();
        let output = init.args([name.as_str(), "--exact"]).env(AS_INIT, "1").output();
        match output {
            Ok(output) if String::from_utf8_lossy(&output.stdout).contains("running 1 test") => {
                assert!(output.status.success(), "{output:?}");
            }
            other => crate::base::skipped::skipped(
                crate::base::skipped::Need::PidNamespace,
                format_args!("{other:?}"),
            ),
        }
    }
}
