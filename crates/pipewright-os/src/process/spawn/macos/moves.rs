//! The handles that a child gets, and their numbers.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

use super::actions::Actions;
use crate::process::spawn::{ChildStdio, Inherit, Plan, Resource, SpawnError, Step, listed};

/// The limit for file actions, which take only smaller numbers (posix_spawn_file_actions_adddup2(3)).
const OPEN_MAX: RawFd = 10240;

/// The handles to place. No source is a target. So the order does not matter, and the placing may be
/// repeated for the next candidate of a search.
#[derive(Debug)]
pub(super) struct HandleMoves {
    list: Vec<HandleMove>,
    /// The copies that replace sources which were targets, until the child has been started.
    copies: Vec<OwnedFd>,
    close_others: bool,
}

#[derive(Debug)]
struct HandleMove {
    from: RawFd,
    to: RawFd,
    step: Step,
}

impl HandleMoves {
    pub(super) fn new(plan: &Plan<'_>) -> Result<HandleMoves, SpawnError> {
        let listed = plan.inherit.list();
        listed::check(listed)?;
        let close_others = matches!(plan.inherit, Inherit::List(_));
        let mut list = Vec::with_capacity(plan.stdio.len() + listed.len());
        for (to, stdio) in (0..).zip(plan.stdio) {
            let from = match stdio {
                ChildStdio::Handle(handle) => handle.as_raw_fd(),
                // Closed by default like every other handle; a parent may have closed its own.
                ChildStdio::Inherit if close_others && is_open(to) => to,
                ChildStdio::Inherit => continue,
            };
            list.push(HandleMove { from, to, step: Step::Stdio(to as u8) });
        }
        let most = handle_limit(plan);
        for (index, entry) in listed.iter().enumerate() {
            let (from, to, step) =
                (entry.0.as_raw_fd(), listed::number(entry), Step::Inherit(index));
            if from != to && to >= most {
                // The child would notice that, but could not report which handle it was.
                return Err(SpawnError::new(step, io::Error::from_raw_os_error(libc::EBADF)));
            }
            list.push(HandleMove { from, to, step });
        }
        let mut moves = HandleMoves { list, copies: Vec::new(), close_others };
        moves.move_sources_away()?;
        Ok(moves)
    }

    /// Returns true if a handle with that number would be overwritten.
    pub(super) fn is_target(&self, fd: RawFd) -> bool {
        fd <= libc::STDERR_FILENO || self.list.iter().any(|place| place.to == fd)
    }

    /// Copies a handle to a number that is not a target.
    pub(super) fn copy_off_targets(&self, fd: &OwnedFd) -> io::Result<OwnedFd> {
        let mut unused_copies = Vec::new();
        self.copy(fd.as_raw_fd(), &mut unused_copies)
    }

    /// Replaces the sources that are targets: a parent with closed standard handles gets pipes numbered 0
    /// to 2, and dup2 in order would overwrite one before it is used (oven-sh/bun#41751).
    fn move_sources_away(&mut self) -> Result<(), SpawnError> {
        for index in 0..self.list.len() {
            let Some(HandleMove { from, to, step }) = self.list.get(index) else { continue };
            let (from, step) = (*from, *step);
            if from == *to || (!self.is_target(from) && from < OPEN_MAX) {
                continue;
            }
            let mut copies = std::mem::take(&mut self.copies);
            let copy = self.copy(from, &mut copies).map_err(|e| SpawnError::new(step, e))?;
            if let Some(place) = self.list.get_mut(index) {
                place.from = copy.as_raw_fd();
            }
            copies.push(copy);
            self.copies = copies;
        }
        Ok(())
    }

    /// Copies a handle to the lowest free number from 3 on that is not a target. Keeps the copies in
    /// between, so that no number is offered twice.
    fn copy(&self, fd: RawFd, unused_copies: &mut Vec<OwnedFd>) -> io::Result<OwnedFd> {
        loop {
            // SAFETY: numbers; one that is not open is an error of the call.
            let copy = unsafe { libc::fcntl(fd, libc::F_DUPFD_CLOEXEC, libc::STDERR_FILENO + 1) };
            if copy < 0 {
                return Err(io::Error::last_os_error());
            }
            // SAFETY: made by the call above, and owned nowhere else.
            let copy = unsafe { OwnedFd::from_raw_fd(copy) };
            if !self.is_target(copy.as_raw_fd()) {
                return Ok(copy);
            }
            unused_copies.push(copy);
        }
    }

    pub(super) fn closes_others(&self) -> bool {
        self.close_others
    }

    /// Returns the placing as file actions. Stdio that is inherited needs none if no handle is closed.
    /// Handles that the child has placed itself only stay open.
    pub(super) fn actions(&self, are_placed: bool) -> Result<Actions, SpawnError> {
        let mut actions = Actions::new().map_err(|error| SpawnError::new(Step::Create, error))?;
        for HandleMove { from, to, step } in &self.list {
            // dup2 of a descriptor onto itself would leave it close-on-exec.
            let added = match from == to || are_placed {
                true => actions.inherit(*to),
                false => actions.dup2(*from, *to),
            };
            added.map_err(|error| SpawnError::new(*step, error))?;
        }
        Ok(actions)
    }

    /// Places the handles in this process, which is a forked child or is about to be replaced. Allocates
    /// nothing.
    pub(super) fn place(&self) -> Result<(), (Step, i32)> {
        for HandleMove { from, to, step } in &self.list {
            let result = if from == to {
                // SAFETY: numbers.
                unsafe { libc::fcntl(*to, libc::F_SETFD, 0) }
            } else {
                // SAFETY: numbers; the earlier file under `to` is this process's own copy.
                unsafe { libc::dup2(*from, *to) }
            };
            if result < 0 {
                return Err((*step, super::search::errno()));
            }
        }
        Ok(())
    }
}

fn is_open(fd: RawFd) -> bool {
    // SAFETY: reads only; a number that is not open is an error of the call.
    unsafe { libc::fcntl(fd, libc::F_GETFD) >= 0 }
}

/// Returns the first number that no handle in the child can have. The child's limit may differ from this
/// process's.
fn handle_limit(plan: &Plan<'_>) -> RawFd {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: a live struct.
    let known = unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) } == 0;
    let own = known.then_some(limit.rlim_cur);
    let of_child = plan.unix.limits.iter().rev().find(|it| it.resource == Resource::OpenFiles);
    let most = of_child.map_or(own, |limit| limit.soft);
    most.and_then(|most| RawFd::try_from(most).ok()).unwrap_or(OPEN_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::handle::Handle;
    use crate::process::spawn::{Env, Search, UnixOptions};
    use std::ffi::OsStr;

    fn null() -> Handle {
        crate::base::stdio::null().unwrap()
    }

    #[test]
    fn no_source_is_a_target() {
        let (a, b, c) = (null(), null(), null());
        let (first, second) = (a.as_raw_fd(), b.as_raw_fd());
        // Two that exchange their numbers, and one for stdin that has the number of another's target.
        let list = [(a, Some(second)), (b, Some(first)), (null(), Some(c.as_raw_fd()))];
        let unix = UnixOptions::default();
        let plan = Plan {
            program: OsStr::new("true"),
            search: Search::Default,
            arg0: None,
            args: &[],
            env: Env::Exactly(&[]),
            current_dir: None,
            stdio: [ChildStdio::Handle(&c), ChildStdio::Inherit, ChildStdio::Inherit],
            inherit: Inherit::List(&list),
            contain: None,
            limits: None,
            slot: None,
            foreground: None,
            terminal: None,
            unix: &unix,
            windows: None,
        };
        let moves = HandleMoves::new(&plan).unwrap();
        for place in moves.list.iter().filter(|place| place.from != place.to) {
            assert!(!moves.is_target(place.from), "{place:?} of {moves:?}");
        }
        assert_eq!(moves.copies.len(), 3, "{moves:?}");
        moves.actions(false).unwrap();
    }
}
