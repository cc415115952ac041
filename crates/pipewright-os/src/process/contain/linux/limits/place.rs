//! The cgroup of version 2 in which limited ones can be made: that of this process, or one around it.
//!
//! A cgroup with processes cannot give controllers to the cgroups in it (cgroups(7), "no internal processes"). So a
//! process that makes limited cgroups either is in a leaf, beside which it makes them, or moves to a leaf first.

use std::io;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::Controllers;
use super::delegated::{Level, Refusal, is_under_systemd};
use super::scope::{self, NoScope};
use super::{NotLimited, files};
use crate::base::error::is_lack;
use crate::base::generation::PerProcess;
use crate::process::contain::linux::place::{OwnCgroups, own_cgroups};
use crate::process::limits::LimitUnavailable;

/// A cgroup around the tree that limits the memory.
#[derive(Debug)]
pub(super) struct Ancestor {
    pub(super) dir: OwnedFd,
    pub(super) limit_bytes: u64,
}

impl Ancestor {
    /// Returns how often its own limit was reached so far.
    pub(super) fn ooms(&self) -> u64 {
        own_ooms(self.dir.as_fd())
    }
}

/// Returns how often the limit of that cgroup was reached, without the limits of those in it.
pub(super) fn own_ooms(dir: BorrowedFd<'_>) -> u64 {
    let events = files::read(dir, "memory.events.local");
    events.ok().and_then(|text| files::value(&text, "oom")).unwrap_or(0)
}

/// The cgroup in which limited ones are made.
#[derive(Debug)]
pub(super) struct LimitedPlace {
    pub(super) dir: Arc<OwnedFd>,
    /// It and the cgroups around it that limit the memory.
    pub(super) ancestors: Vec<Ancestor>,
}

/// The findings of the last calls.
static KNOWN: PerProcess<Mutex<Option<Known>>> = PerProcess::new(|| Mutex::new(None));

struct Known {
    /// The text of `/proc/self/cgroup`: if it differs, this process has been moved since.
    cgroups: Vec<u8>,
    /// The controllers that are in version 2 on this machine.
    visible: Controllers,
    /// The place for cgroups with these controllers.
    found: Option<(Controllers, Arc<LimitedPlace>)>,
    /// The controllers for which there was no place, unless this process moves.
    missing: Controllers,
}

/// Returns the facts about the cgroup that this process is in now. Kept locked: two threads must not move this process
/// at the same time.
///
/// # Errors
/// There is no room to look them up.
fn known(own: &OwnCgroups) -> io::Result<MutexGuard<'static, Option<Known>>> {
    let mut known = locked();
    if known.as_ref().is_none_or(|known| known.cgroups != own.text()) {
        let controllers =
            |top: &Path| Level { path: top.to_owned() }.controllers_in("cgroup.controllers");
        let visible = match own.of(None)? {
            Some(own) => controllers(&own.top)?,
            None => Controllers::NONE,
        };
        let (cgroups, missing) = (own.text().to_owned(), Controllers::NONE);
        *known = Some(Known { cgroups, visible, found: None, missing });
    }
    Ok(known)
}

fn locked() -> MutexGuard<'static, Option<Known>> {
    KNOWN.get().lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns the controllers that are in version 2 on this machine.
///
/// # Errors
/// There is no room to look them up.
pub(super) fn visible(own: &OwnCgroups) -> io::Result<Controllers> {
    Ok(known(own)?.as_ref().map_or(Controllers::NONE, |known| known.visible))
}

/// Forgets all facts, after a cgroup could not be made in a place that was found before.
pub(super) fn forget() {
    *locked() = None;
}

/// Returns the cgroup in which cgroups with these controllers can be made. With `moves`, moves this process to a leaf
/// if that is the only way.
///
/// # Errors
/// There is none: the error names the first limit that needs it. Or there is no room to find out.
pub(super) fn find(
    own: &OwnCgroups,
    wanted: Controllers,
    moves: bool,
) -> Result<Arc<LimitedPlace>, NotLimited> {
    let unavailable =
        |reason: &str| NotLimited::Unavailable(unavailable(wanted, reason.to_owned()));
    let mut known = known(own)?;
    let missing = match known.as_ref() {
        Some(Known { found: Some((controllers, place)), .. }) if *controllers == wanted => {
            return Ok(Arc::clone(place));
        }
        Some(known) => known.missing,
        None => Controllers::NONE,
    };
    if !moves && missing == wanted {
        return Err(unavailable("there was no such cgroup before"));
    }
    let own = own.of(None)?.ok_or_else(|| unavailable("cgroup v2 is not mounted"))?;
    let level = match find_level(&own.top, &own.below, wanted, moves) {
        Ok(level) => level,
        Err(error) => {
            if let (Some(known), NotLimited::Unavailable(_)) = (known.as_mut(), &error) {
                known.missing = wanted;
            }
            return Err(error);
        }
    };
    level.enable_if_possible(Controllers::named("memory pids"));
    let dir = level.open().map_err(|error| match is_lack(&error) {
        true => NotLimited::System(error),
        false => unavailable(&error.to_string()),
    })?;
    let ancestors = ancestors(&own.top, &level.path);
    let place = Arc::new(LimitedPlace { dir: Arc::new(dir), ancestors });
    if let Some(known) = known.as_mut() {
        // This process may have moved.
        let now = own_cgroups().ok().flatten();
        known.cgroups = now.map(|own| own.text().to_owned()).unwrap_or_default();
        known.found = Some((wanted, Arc::clone(&place)));
    }
    Ok(place)
}

/// Returns true if this process has to move to a leaf to make limited cgroups, and can.
pub(super) fn would_move(own: &OwnCgroups, wanted: Controllers) -> bool {
    let Ok(Some(cgroup)) = own.of(None) else { return false };
    let own = Level { path: cgroup.path() };
    matches!(own.prepare(wanted), Err(Refusal::HasProcesses))
        && find_above(&cgroup.top, &own, wanted).is_none()
        && own.has_only_own_processes()
}

/// Returns true if this process has to be moved to a scope of its own to make limited cgroups, and systemd answers.
pub(super) fn would_enter_scope(own: &OwnCgroups, wanted: Controllers) -> bool {
    let Ok(Some(cgroup)) = own.of(None) else { return false };
    let own = Level { path: cgroup.path() };
    let Err(refusal) = own.prepare(wanted) else { return false };
    find_above(&cgroup.top, &own, wanted).is_none()
        && needs_scope(&own, &refusal)
        && scope::would_enter(&own, &cgroup.top, wanted)
}

/// Returns true if a scope of its own is better for this process than the cgroup that it is in. systemd may take the
/// controllers from a cgroup that it has not delegated, and stops a scope in which a process was killed for lack of
/// memory.
fn needs_scope(own: &Level, refusal: &Refusal) -> bool {
    match refusal {
        Refusal::HasProcesses => !own.is_delegated() || !own.has_only_own_processes(),
        Refusal::Denied(error) => error.kind() != std::io::ErrorKind::ReadOnlyFilesystem,
        Refusal::NoController(_) => true,
        Refusal::NotEnabled(_) | Refusal::NoRoom(_) => false,
    }
}

fn find_level(
    top: &Path,
    below: &Path,
    wanted: Controllers,
    moves: bool,
) -> Result<Level, NotLimited> {
    let mut own = Level { path: top.join(below) };
    let mut own_refusal = match own.prepare(wanted) {
        Ok(()) => return Ok(own),
        Err(refusal) => refusal,
    };
    if let Some(level) = find_above(top, &own, wanted) {
        return Ok(level);
    }
    let mut no_scope = NoScope::default();
    if moves && needs_scope(&own, &own_refusal) {
        match scope::enter(&own, top, wanted) {
            Ok(scope) => {
                own_refusal = match scope.prepare(wanted) {
                    Ok(()) => return Ok(scope),
                    Err(refusal) => refusal,
                };
                own = scope;
            }
            Err(reason) => no_scope = reason,
        }
    }
    if moves && matches!(own_refusal, Refusal::HasProcesses) && own.make_room() {
        match own.prepare(wanted) {
            Ok(()) => return Ok(own),
            Err(refusal) => return Err(explain(top, &own, wanted, refusal, no_scope)),
        }
    }
    Err(explain(top, &own, wanted, own_refusal, no_scope))
}

/// Returns a cgroup around this process's own. It must not free the tree from a limit, or take it from its holder.
fn find_above(top: &Path, own: &Level, wanted: Controllers) -> Option<Level> {
    let mut level = Level { path: own.path.clone() };
    while level.path != top && !level.is_limited() && !level.holds_tree() {
        let was_leaf = level.is_leaf();
        level = Level { path: level.path.parent()?.to_owned() };
        if !was_leaf && !level.is_delegated() {
            return None;
        }
        if level.prepare(wanted).is_ok() {
            return Some(level);
        }
    }
    None
}

/// Returns the cgroups with a limit on their memory, from that one on outwards.
fn ancestors(top: &Path, from: &Path) -> Vec<Ancestor> {
    let mut found = Vec::new();
    for path in from.ancestors().take_while(|path| path.starts_with(top)) {
        let level = Level { path: path.to_owned() };
        if let (Some(limit_bytes), Ok(dir)) = (level.memory_max_bytes(), level.open()) {
            found.push(Ancestor { dir, limit_bytes });
        }
    }
    found
}

/// Creates an error about the first limit that needs the controllers.
fn unavailable(wanted: Controllers, reason: String) -> LimitUnavailable {
    let kind = wanted.iter().next().unwrap_or(super::Controller::Memory).kind();
    LimitUnavailable::new(kind, reason)
}

/// The remedy for cgroups that are mounted read-only, as in most containers.
pub(super) const WRITABLE_MOUNT: &str =
    "starting the container with its cgroup writable (privileged)";

/// Returns the commands of root that let this user make groups in a group. The root of a hierarchy stays root's:
/// a user who may write there may move and limit every process of the machine. A group is made in it instead.
pub(super) fn delegation(top: &Path, path: &Path, files: &[&str]) -> String {
    let user = rustix::process::geteuid().as_raw();
    let chown = |path: &Path| {
        let files = files.iter().map(|file| format!(" {}", path.join(file).display()));
        format!("chown {user} {}{}", path.display(), files.collect::<String>())
    };
    // Compared as paths: one may end with a slash.
    if path.components().ne(top.components()) {
        return format!("as root: {}", chown(path));
    }
    let group = top.join(format!("pipewright-user-{user}"));
    let name = group.display();
    format!(
        "as root: mkdir {name}; {}; then start this program from a shell whose number (echo $$) root has written to \
         {name}/cgroup.procs",
        chown(&group)
    )
}

fn explain(
    top: &Path,
    own: &Level,
    wanted: Controllers,
    refusal: Refusal,
    no_scope: NoScope,
) -> NotLimited {
    let path = own.path.display();
    let scope = || is_under_systemd().then(|| scope::remedy(own));
    let (reason, remedy) = match refusal {
        Refusal::Denied(error) if error.kind() == std::io::ErrorKind::ReadOnlyFilesystem => {
            (format!("the cgroup {path} is mounted read-only"), Some(WRITABLE_MOUNT.to_owned()))
        }
        Refusal::Denied(error) => {
            let files = ["cgroup.procs", "cgroup.subtree_control"];
            let delegate = || delegation(top, &own.path, &files);
            let reason = format!("the cgroup {path} is not delegated to this user ({error})");
            (reason, scope().or_else(|| Some(delegate())))
        }
        Refusal::NoController(missing) => {
            let names: Vec<_> = missing.iter().map(|it| it.name()).collect();
            let names = names.join(" ");
            (
                format!("the cgroup {path} does not have the controllers: {names}"),
                Some(match scope() {
                    // The manager of the user may itself not have them.
                    Some(_)
                        if !own.is_unit(".service") && !rustix::process::geteuid().is_root() =>
                    {
                        scope::delegate_to_user(&names)
                    }
                    Some(remedy) => remedy,
                    None => format!(
                        "writing \"+{names}\" to cgroup.subtree_control of the cgroup around it"
                    ),
                }),
            )
        }
        Refusal::HasProcesses => {
            let others = own.other_processes();
            let leaf = || {
                format!(
                    "mkdir {path}/leaf; \
                     for p in $(cat {path}/cgroup.procs); do echo $p > {path}/leaf/cgroup.procs; done"
                )
            };
            (
                format!(
                    "the cgroup {path} has {others} other processes, so it cannot limit cgroups in it"
                ),
                scope().or_else(|| Some(leaf())),
            )
        }
        Refusal::NotEnabled(error) => {
            (format!("the controllers of the cgroup {path} cannot be enabled: {error}"), None)
        }
        Refusal::NoRoom(error) => return NotLimited::System(error),
    };
    let reason = match no_scope.reason {
        Some(why) => format!("{reason}; {why}"),
        None => reason,
    };
    let remedy = no_scope.remedy.or(remedy);
    NotLimited::Unavailable(LimitUnavailable { remedy, ..unavailable(wanted, reason) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_remedy_gives_the_root_of_a_hierarchy_away() {
        let remedy =
            |top: &str, path: &str| delegation(Path::new(top), Path::new(path), &["cgroup.procs"]);
        let user = rustix::process::geteuid().as_raw();
        for path in ["/sys/fs/cgroup/cpu", "/sys/fs/cgroup/cpu/"] {
            let words = remedy("/sys/fs/cgroup/cpu", path);
            let group = format!("/sys/fs/cgroup/cpu/pipewright-user-{user}");
            let begin =
                format!("as root: mkdir {group}; chown {user} {group} {group}/cgroup.procs;");
            assert!(words.starts_with(&begin), "{words}");
        }
        assert_eq!(
            remedy("/sys/fs/cgroup/cpu", "/sys/fs/cgroup/cpu/mine"),
            format!(
                "as root: chown {user} /sys/fs/cgroup/cpu/mine /sys/fs/cgroup/cpu/mine/cgroup.procs"
            )
        );
    }
}
