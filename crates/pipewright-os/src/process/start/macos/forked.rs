//! A child between fork and exec: its handles, limits and search for its program.

use std::ffi::{CStr, CString, OsStr, c_char};
use std::fs::File;
use std::io::{self, Read as _};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::Path;
use std::{mem, ptr};

use rustix::fs::{Access, AtFlags, CWD, FileType};

use super::{Actions, Layout, SpawnAttributes, is_path, posix_spawn};
use crate::base::signal::AllBlocked;
use crate::process::start::layout::{self, AbortOnPanic, Closure, with_effective_first};
use crate::process::start::{
    ChildStdio, Credentials, Group, Inherit, Plan, Resource, ResourceLimit, SpawnError, Step,
    UnsetGroups,
};
use crate::process::status::wait4;

/// Everything that the child needs, made before the child exists.
pub(super) struct ChildSetup<'a> {
    plan: &'a Plan<'a>,
    unset_groups: UnsetGroups,
    /// The groups to set, the effective one first.
    groups: Option<Vec<u32>>,
    chroot: *const c_char,
    current_dir: *const c_char,
    candidates: *const *const c_char,
    searches: bool,
    argv: *const *const c_char,
    envp: *const *const c_char,
    moves: &'a HandleMoves,
    actions: &'a Actions,
    /// The signal mask to set before closures run.
    mask: libc::sigset_t,
    /// The attributes, with `POSIX_SPAWN_SETEXEC`.
    attributes: &'a SpawnAttributes,
}

impl<'a> ChildSetup<'a> {
    pub(super) fn new(
        plan: &'a Plan<'a>,
        layout: &'a Layout,
        moves: &'a HandleMoves,
        actions: &'a Actions,
        attributes: &'a SpawnAttributes,
    ) -> ChildSetup<'a> {
        ChildSetup {
            plan,
            unset_groups: plan.unix.unset_groups(),
            groups: plan.unix.identity.groups.as_ref().map(|groups| {
                let own = || rustix::process::getegid().as_raw();
                with_effective_first(plan.unix.identity.group.unwrap_or_else(own), groups)
            }),
            chroot: layout.chroot(),
            current_dir: layout.current_dir(),
            candidates: layout.candidates(),
            searches: !is_path(plan.program),
            argv: layout.argv(),
            envp: layout.envp(),
            moves,
            actions,
            mask: super::mask(plan),
            attributes,
        }
    }
}

/// Nothing: the code that forks is always present, for options that `posix_spawn` lacks.
pub(in crate::process::start) type Fork = ();

pub(in crate::process::start) const FORK: Fork = ();

/// A step that failed, and its errno.
type FailedStep = (Step, i32);

/// The size of a child's report of a failure: the step and the errno.
const REPORT_BYTES: usize = 8;

/// Forks a child, and returns when it has loaded its program, or has ended without.
#[expect(
    clippy::disallowed_methods,
    reason = "only fork leaves a process that can change its user and its limits before exec"
)]
pub(super) fn start(setup: &ChildSetup<'_>) -> Result<i32, SpawnError> {
    let create_error = |error| SpawnError::new(Step::Create, error);
    let (read, made) = crate::base::pipe::new_pipe().map_err(create_error)?;
    // The file actions run before the last step that can fail, and must not overwrite the pipe.
    let write = setup.moves.copy_off_targets(&made).map_err(create_error)?;
    drop(made);
    let mut locked = setup.plan.unix.pre_exec.lock();
    let closures = locked.as_mut().map_or(&mut [][..], |locked| &mut locked.closures);
    let pid = {
        // Without this, a signal that arrived in the child before exec would run a handler of this program
        // there.
        let _blocked = AllBlocked::new();
        // SAFETY: the child runs only the code of this module, and never returns from here.
        match unsafe { libc::fork() } {
            -1 => return Err(create_error(io::Error::last_os_error())),
            // SAFETY: this is the child.
            0 => unsafe { run(setup, closures, write.as_raw_fd()) },
            pid => pid,
        }
    };
    // The child has the last copy now, which exec closes.
    drop(write);
    let mut report = [0; REPORT_BYTES];
    // An end before a whole report is an exec, or a child that was killed earlier; its status shows that.
    if File::from(read).read_exact(&mut report).is_err() {
        return Ok(pid);
    }
    // It has exited; leave no zombie. Ignored: it has been reaped elsewhere.
    let _ = wait4(pid, 0);
    let [a, b, c, d, e, f, g, h] = report;
    let (step, errno) = (u32::from_ne_bytes([a, b, c, d]), i32::from_ne_bytes([e, f, g, h]));
    Err(SpawnError::new(layout::step_of(step), io::Error::from_raw_os_error(errno)))
}

/// Runs in the child and never returns.
///
/// # Safety
/// Call this only in a forked process of one thread.
unsafe fn run(setup: &ChildSetup<'_>, closures: &mut [Closure], report_to: RawFd) -> ! {
    let no_unwinding = AbortOnPanic;
    // SAFETY: a forked process of one thread, which exists only to become the program.
    let (step, errno) = unsafe { become_program(setup, closures) };
    mem::forget(no_unwinding);
    let [a, b, c, d] = layout::number_of(step).to_ne_bytes();
    let [e, f, g, h] = errno.to_ne_bytes();
    let report: [u8; REPORT_BYTES] = [a, b, c, d, e, f, g, h];
    // Ignored: without the report the parent still gets the exit code. At most PIPE_BUF: all or nothing.
    // SAFETY: an open pipe, and that many bytes.
    unsafe { libc::write(report_to, report.as_ptr().cast(), REPORT_BYTES) };
    // SAFETY: ends this process without touching the parent's resources (no atexit, no flush).
    unsafe { libc::_exit(127) }
}

/// Applies the plan to this process and executes the program. Returns the failure.
///
/// # Safety
/// This changes the calling process. The setup's pointers must be valid.
pub(super) unsafe fn become_program(
    setup: &ChildSetup<'_>,
    closures: &mut [Closure],
) -> FailedStep {
    // SAFETY: as this function's.
    let prepared = unsafe { prepare(setup) }.and_then(|()| run_closures(setup, closures));
    match prepared {
        Err(failed) => failed,
        // SAFETY: as this function's.
        Ok(()) => unsafe { load(setup) },
    }
}

/// Applies the plan, up to the closures.
///
/// # Safety
/// As for [`become_program`].
unsafe fn prepare(setup: &ChildSetup<'_>) -> Result<(), FailedStep> {
    let options = setup.plan.unix;
    // Here, and not by an attribute: those are applied when it is too late to report an error.
    join_group(options.group)?;
    if options.group == Group::Session {
        take_terminal(setup.plan)?;
    }
    set_limits(&options.limits)?;
    if let Some(mask) = options.umask {
        // SAFETY: a number; umask has no error.
        unsafe { libc::umask(mask as libc::mode_t) };
    }
    if let Some(add) = options.nice {
        add_nice(add)?;
    }
    if !setup.chroot.is_null() {
        // SAFETY: a C string.
        check(unsafe { libc::chroot(setup.chroot) }, Step::Chroot)?;
        // A working directory outside the new root is a way out of it, and a relative one that follows is
        // meant to be inside.
        // SAFETY: a C string.
        check(unsafe { libc::chdir(c"/".as_ptr()) }, Step::Chroot)?;
    }
    change_identity(&options.identity, setup.groups.as_deref(), setup.unset_groups)?;
    if !setup.current_dir.is_null() {
        // After the change of user, as in std: that user must be allowed to enter the directory. By a call
        // of its own, so that it happens once for any number of candidates.
        // SAFETY: a C string.
        check(unsafe { libc::chdir(setup.current_dir) }, Step::CurrentDir)?;
    }
    Ok(())
}

/// Places the handles and runs the closures. The closures may use and change the handles, so those come
/// first; the file actions, which run when the program is loaded, then only keep them open.
fn run_closures(setup: &ChildSetup<'_>, closures: &mut [Closure]) -> Result<(), FailedStep> {
    if closures.is_empty() {
        return Ok(());
    }
    setup.moves.place()?;
    // SAFETY: a live set; SIG_SETMASK with it has no error.
    unsafe { libc::sigprocmask(libc::SIG_SETMASK, &raw const setup.mask, ptr::null_mut()) };
    layout::run_closures(closures).map_err(|errno| (Step::PreExec, errno))
}

/// Executes the program.
///
/// # Safety
/// As for [`become_program`].
unsafe fn load(setup: &ChildSetup<'_>) -> FailedStep {
    let exec = |path| {
        // SAFETY: a candidate, and arrays that the layout owns, each ended by NULL.
        unsafe { posix_spawn(path, setup.actions, setup.attributes, setup.argv, setup.envp) }
    };
    // SAFETY: an array that the layout owns, ended by NULL.
    match unsafe { first(setup.candidates, setup.searches, exec) } {
        // Cannot happen: the process would execute another program.
        Ok(_) => (Step::Exec, libc::EIO),
        Err(errno) => (Step::Exec, errno),
    }
}

fn join_group(group: Group) -> Result<(), FailedStep> {
    let result = match group {
        Group::Same => 0,
        // SAFETY: numbers; 0 is this process.
        Group::Own => unsafe { libc::setpgid(0, 0) },
        // SAFETY: as above.
        Group::Join(group) => unsafe { libc::setpgid(0, group) },
        // SAFETY: no argument.
        Group::Session => unsafe { libc::setsid() },
    };
    check(result, Step::Group)
}

/// Makes the plan's terminal the controlling one of the session that this process leads.
fn take_terminal(plan: &Plan<'_>) -> Result<(), FailedStep> {
    let Some(terminal) = plan.terminal.and_then(|terminal| terminal.handle()) else {
        return Ok(());
    };
    let terminal = terminal.as_raw_fd();
    // SAFETY: numbers.
    check(unsafe { libc::ioctl(terminal, libc::TIOCSCTTY as libc::c_ulong, 0) }, Step::Terminal)
}

fn set_limits(limits: &[ResourceLimit]) -> Result<(), FailedStep> {
    for (index, limit) in limits.iter().enumerate() {
        let hard = limit.hard.unwrap_or(libc::RLIM_INFINITY);
        let mut soft = limit.soft.unwrap_or(libc::RLIM_INFINITY);
        if limit.resource == Resource::OpenFiles {
            /// The kernel accepts no higher value, nor "no limit" (setrlimit(2), COMPATIBILITY).
            const OPEN_MAX: u64 = 10240;
            if limit.soft.is_none() {
                soft = hard.min(OPEN_MAX);
            }
        }
        let value = libc::rlimit { rlim_cur: soft, rlim_max: hard };
        let number = limit.resource.number() as libc::c_int;
        // SAFETY: a live value.
        let result = unsafe { libc::setrlimit(number, &raw const value) };
        check(result, Step::Limit(index))?;
    }
    Ok(())
}

fn add_nice(add: i32) -> Result<(), FailedStep> {
    /// The number that stands for this process.
    const SELF: libc::id_t = 0;
    // It cannot fail for this process. -1 is a valid result (getpriority(2)).
    // SAFETY: numbers.
    let now = unsafe { libc::getpriority(libc::PRIO_PROCESS, SELF) };
    let nice = now.saturating_add(add).clamp(-20, 20);
    // SAFETY: numbers.
    check(unsafe { libc::setpriority(libc::PRIO_PROCESS, SELF, nice) }, Step::Nice)
}

fn change_identity(
    identity: &Credentials,
    groups: Option<&[u32]>,
    unset: UnsetGroups,
) -> Result<(), FailedStep> {
    if let Some(groups) = groups {
        let count = groups.len() as libc::c_int;
        // SAFETY: an array of that length.
        check(unsafe { libc::setgroups(count, groups.as_ptr()) }, Step::Identity)?;
    } else if unset != UnsetGroups::Kept {
        // SAFETY: an empty array.
        let dropped = check(unsafe { libc::setgroups(0, ptr::null()) }, Step::Identity);
        if unset == UnsetGroups::Dropped || dropped != Err((Step::Identity, libc::EPERM)) {
            dropped?;
        }
    }
    if let Some(group) = identity.group {
        // SAFETY: numbers.
        check(unsafe { libc::setgid(group) }, Step::Identity)?;
    }
    if let Some(user) = identity.user {
        // SAFETY: numbers.
        check(unsafe { libc::setuid(user) }, Step::Identity)?;
    }
    Ok(())
}

fn check(result: libc::c_int, step: Step) -> Result<(), FailedStep> {
    if result < 0 { Err((step, errno())) } else { Ok(()) }
}

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
        layout::check_numbers(listed)?;
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
                (entry.0.as_raw_fd(), layout::number_in_child(entry), Step::Inherit(index));
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
    fn is_target(&self, fd: RawFd) -> bool {
        fd <= libc::STDERR_FILENO || self.list.iter().any(|place| place.to == fd)
    }

    /// Copies a handle to a number that is not a target.
    fn copy_off_targets(&self, fd: &OwnedFd) -> io::Result<OwnedFd> {
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
                return Err((*step, errno()));
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

/// Tries the candidates in the way execvp(3) goes through PATH, and `load`s. Allocates nothing, so that a
/// forked child can call it too.
///
/// # Safety
/// `candidates` is an array of C strings that ends with NULL.
pub(super) unsafe fn first<T>(
    candidates: *const *const c_char,
    searches: bool,
    load: impl Fn(*const c_char) -> Result<T, i32>,
) -> Result<T, i32> {
    let mut forbidden = false;
    let mut next = candidates;
    loop {
        // SAFETY: not past the NULL at the end.
        let path = unsafe { *next };
        if path.is_null() {
            return Err(if forbidden { libc::EACCES } else { libc::ENOENT });
        }
        // SAFETY: the NULL at the end is still ahead, or is next.
        next = unsafe { next.add(1) };
        // SAFETY: a C string.
        if searches && unsafe { libc::access(path, libc::X_OK) } != 0 {
            // access(2) answers for the real user; only the exec shows what the effective user may do.
            if errno() != libc::EACCES {
                continue;
            }
        }
        match load(path) {
            Ok(loaded) => return Ok(loaded),
            Err(errno) if !searches => return Err(errno),
            Err(libc::ENOENT | libc::ENOTDIR | libc::ESTALE | libc::ENODEV | libc::ETIMEDOUT) => {}
            // A later candidate may be allowed; if none is, this is the error to report.
            Err(libc::EACCES) => forbidden = true,
            Err(errno) => return Err(errno),
        }
    }
}

pub(super) fn errno() -> i32 {
    // SAFETY: no argument; the location is this thread's.
    let location = unsafe { libc::__error() };
    // SAFETY: a live int of this thread's.
    unsafe { *location }
}

/// The candidates as absolute paths, resolved from the child's working directory.
#[derive(Debug)]
pub(super) struct Absolute {
    /// The paths that some of the pointers refer to; never changed once the pointers exist.
    _paths: Vec<CString>,
    pointers: Vec<*const c_char>,
}

impl Absolute {
    /// Resolves the candidates, which must stay as long as the result does.
    pub(super) fn new(dir: &Path, candidates: *const *const c_char) -> io::Result<Absolute> {
        let mut paths = Vec::new();
        let mut pointers = Vec::new();
        let mut next = candidates;
        loop {
            // SAFETY: an array of C strings that ends with NULL, and not past that.
            let candidate = unsafe { *next };
            if candidate.is_null() {
                break;
            }
            // SAFETY: the NULL at the end is still ahead, or is next.
            next = unsafe { next.add(1) };
            // SAFETY: as above.
            let bytes = unsafe { CStr::from_ptr(candidate) }.to_bytes();
            if bytes.first() == Some(&b'/') {
                pointers.push(candidate);
                continue;
            }
            let path = std::path::absolute(dir)?.join(OsStr::from_bytes(bytes));
            let path = CString::new(path.into_os_string().into_vec())?;
            pointers.push(path.as_ptr());
            paths.push(path);
        }
        pointers.push(ptr::null());
        Ok(Absolute { _paths: paths, pointers })
    }

    pub(super) fn candidates(&self) -> *const *const c_char {
        self.pointers.as_ptr()
    }
}

/// Finds the step that failed: the call has one error number for all of them.
pub(super) fn failed_step(plan: &Plan<'_>, errno: i32) -> SpawnError {
    let error = io::Error::from_raw_os_error(errno);
    if let Some(error) = plan.current_dir.and_then(working_dir_error) {
        return SpawnError::new(Step::CurrentDir, error);
    }
    let step = match errno {
        // The limit on processes (fork(2)).
        libc::EAGAIN => Step::Create,
        // From setpgid(2).
        libc::EPERM | libc::EINVAL | libc::ESRCH if matches!(plan.unix.group, Group::Join(_)) => {
            Step::Group
        }
        _ => Step::Exec,
    };
    SpawnError::new(step, error)
}

/// Returns the error that a change to that directory gives, if it gives one.
fn working_dir_error(dir: &Path) -> Option<io::Error> {
    match rustix::fs::stat(dir) {
        Err(error) => return Some(error.into()),
        Ok(stat) if FileType::from_raw_mode(stat.st_mode) != FileType::Directory => {
            return Some(io::Error::from_raw_os_error(libc::ENOTDIR));
        }
        Ok(_) => {}
    }
    let may_enter = rustix::fs::accessat(CWD, dir, Access::EXEC_OK, AtFlags::EACCESS);
    may_enter.err().map(io::Error::from)
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;
    use crate::base::handle::Handle;
    use crate::process::start::{Env, Search, UnixOptions};

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

    #[test]
    fn relative_candidates_are_resolved_from_the_childs_directory() {
        let strings = [c"/bin/cc", c"./cc", c"../x/cc"];
        let mut array: Vec<*const c_char> = strings.iter().map(|it| it.as_ptr()).collect();
        array.push(ptr::null());
        let made = Absolute::new(Path::new("/some where"), array.as_ptr()).unwrap();
        let mut found = Vec::new();
        for pointer in made.pointers.iter().take(strings.len()) {
            // SAFETY: C strings; the NULL at the end is not among them.
            found.push(PathBuf::from(unsafe { CStr::from_ptr(*pointer) }.to_str().unwrap()));
        }
        assert_eq!(found, ["/bin/cc", "/some where/cc", "/some where/../x/cc"].map(PathBuf::from));
    }
}
