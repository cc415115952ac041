//! The two objects that `posix_spawn(2)` takes, and the call.

use std::ffi::{CStr, c_char};
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::RawFd;

use crate::process::spawn::UnixOptions;

/// The flag for a new session: sys/spawn.h, macOS 10.15.
const POSIX_SPAWN_SETSID: libc::c_int = 0x0400;

unsafe extern "C" {
    /// Adds an action that keeps a handle: spawn.h, macOS 10.7.
    fn posix_spawn_file_actions_addinherit_np(
        actions: *mut libc::posix_spawn_file_actions_t,
        fd: libc::c_int,
    ) -> libc::c_int;
}

/// The actions of the new process on its handles and its working directory before it executes the program.
#[derive(Debug)]
pub(super) struct Actions(libc::posix_spawn_file_actions_t);

impl Actions {
    pub(super) fn new() -> io::Result<Actions> {
        let mut actions = std::ptr::null_mut();
        // SAFETY: room for the pointer that the call writes.
        check(unsafe { libc::posix_spawn_file_actions_init(&raw mut actions) })?;
        Ok(Actions(actions))
    }

    /// Makes `to` a copy of `from`.
    pub(super) fn dup2(&mut self, from: RawFd, to: RawFd) -> io::Result<()> {
        // SAFETY: a live object and numbers.
        check(unsafe { libc::posix_spawn_file_actions_adddup2(&raw mut self.0, from, to) })
    }

    /// Keeps a handle, marked close-on-exec or not.
    pub(super) fn inherit(&mut self, fd: RawFd) -> io::Result<()> {
        // SAFETY: a live object and a number.
        check(unsafe { posix_spawn_file_actions_addinherit_np(&raw mut self.0, fd) })
    }

    pub(super) fn open(&mut self, fd: RawFd, path: &CStr, flags: libc::c_int) -> io::Result<()> {
        // SAFETY: a live object, a C string that is copied, and numbers.
        check(unsafe {
            libc::posix_spawn_file_actions_addopen(&raw mut self.0, fd, path.as_ptr(), flags, 0)
        })
    }

    /// Changes the working directory (macOS 10.15). Not for a relative program: that starts, and the call
    /// still returns ENOENT (rust-lang/rust#37868).
    pub(super) fn change_dir(&mut self, dir: &CStr) -> io::Result<()> {
        // SAFETY: a live object, and a C string that is copied.
        check(unsafe { libc::posix_spawn_file_actions_addchdir_np(&raw mut self.0, dir.as_ptr()) })
    }
}

impl Drop for Actions {
    fn drop(&mut self) {
        // SAFETY: made by init, and never used again.
        unsafe { libc::posix_spawn_file_actions_destroy(&raw mut self.0) };
    }
}

/// The other attributes of the new process.
#[derive(Debug)]
pub(super) struct SpawnAttributes {
    object: libc::posix_spawnattr_t,
    flags: libc::c_int,
}

impl SpawnAttributes {
    /// Creates the default attributes: no handler of the parent, which exec resets, and SIGPIPE and the
    /// others at their defaults. Rust programs ignore SIGPIPE from the start, and a child that inherits that does not stop
    /// when its reader is gone (rust-lang/rust#62569).
    pub(super) fn with_defaults(options: &UnixOptions) -> io::Result<SpawnAttributes> {
        let mut attributes = SpawnAttributes::new()?;
        let others = options.default_signals.iter().map(|signal| signal.number());
        let pipe = (!options.keeps_ignored_pipe).then_some(libc::SIGPIPE);
        let numbers: Vec<_> = pipe.into_iter().chain(others).collect();
        attributes.default_signals(&signals(&numbers))?;
        Ok(attributes)
    }

    pub(super) fn new() -> io::Result<SpawnAttributes> {
        let mut object = std::ptr::null_mut();
        // SAFETY: room for the pointer that the call writes.
        check(unsafe { libc::posix_spawnattr_init(&raw mut object) })?;
        Ok(SpawnAttributes { object, flags: 0 })
    }

    pub(super) fn default_signals(&mut self, set: &libc::sigset_t) -> io::Result<()> {
        // SAFETY: a live object and a live set.
        check(unsafe { libc::posix_spawnattr_setsigdefault(&raw mut self.object, set) })?;
        self.add(libc::POSIX_SPAWN_SETSIGDEF)
    }

    pub(super) fn block(&mut self, set: &libc::sigset_t) -> io::Result<()> {
        // SAFETY: a live object and a live set.
        check(unsafe { libc::posix_spawnattr_setsigmask(&raw mut self.object, set) })?;
        self.add(libc::POSIX_SPAWN_SETSIGMASK)
    }

    /// Closes every handle that no action names.
    pub(super) fn close_others(&mut self) -> io::Result<()> {
        self.add(libc::POSIX_SPAWN_CLOEXEC_DEFAULT)
    }

    /// Puts it into a process group; 0 is a group of its own.
    pub(super) fn join_group(&mut self, group: libc::pid_t) -> io::Result<()> {
        // SAFETY: a live object and a number.
        check(unsafe { libc::posix_spawnattr_setpgroup(&raw mut self.object, group) })?;
        self.add(libc::POSIX_SPAWN_SETPGROUP)
    }

    pub(super) fn begin_session(&mut self) -> io::Result<()> {
        self.add(POSIX_SPAWN_SETSID)
    }

    /// Starts it suspended: none of it runs before SIGCONT.
    pub(super) fn start_suspended(&mut self) -> io::Result<()> {
        self.add(libc::POSIX_SPAWN_START_SUSPENDED)
    }

    /// Creates no process: this one executes the program.
    pub(super) fn replace_this_process(&mut self) -> io::Result<()> {
        self.add(libc::POSIX_SPAWN_SETEXEC)
    }

    fn add(&mut self, flag: libc::c_int) -> io::Result<()> {
        self.flags |= flag;
        // SAFETY: a live object; the flags are those of a short.
        check(unsafe {
            libc::posix_spawnattr_setflags(&raw mut self.object, self.flags as libc::c_short)
        })
    }
}

impl Drop for SpawnAttributes {
    fn drop(&mut self) {
        // SAFETY: made by init, and never used again.
        unsafe { libc::posix_spawnattr_destroy(&raw mut self.object) };
    }
}

/// Calls `posix_spawn`. It allocates nothing, so that with `POSIX_SPAWN_SETEXEC` a forked child can call it
/// as well; then it returns only if something failed.
///
/// # Safety
/// `path` is a C string; `argv` and `envp` are arrays of C strings, each ended by NULL.
pub(super) unsafe fn posix_spawn(
    path: *const c_char,
    actions: &Actions,
    attributes: &SpawnAttributes,
    argv: *const *const c_char,
    envp: *const *const c_char,
) -> Result<i32, i32> {
    let mut pid = 0;
    // SAFETY: as this function's; the objects are live, and the call changes none of the strings.
    let errno = unsafe {
        libc::posix_spawn(
            &raw mut pid,
            path,
            &raw const actions.0,
            &raw const attributes.object,
            argv.cast::<*mut c_char>(),
            envp.cast::<*mut c_char>(),
        )
    };
    if errno == 0 { Ok(pid) } else { Err(errno) }
}

pub(super) fn signals(numbers: &[libc::c_int]) -> libc::sigset_t {
    let mut set = MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: sigemptyset fills the set.
    unsafe { libc::sigemptyset(set.as_mut_ptr()) };
    for number in numbers {
        // SAFETY: filled by the call above; each is a signal.
        unsafe { libc::sigaddset(set.as_mut_ptr(), *number) };
    }
    // SAFETY: filled by the first call.
    unsafe { set.assume_init() }
}

pub(super) fn all_signals() -> libc::sigset_t {
    let mut set = MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: sigfillset fills the set.
    unsafe { libc::sigfillset(set.as_mut_ptr()) };
    // SAFETY: as above.
    unsafe { set.assume_init() }
}

/// Turns the returned error into a result: these calls do not set errno.
fn check(errno: libc::c_int) -> io::Result<()> {
    if errno == 0 { Ok(()) } else { Err(io::Error::from_raw_os_error(errno)) }
}
