//! Starts a process that outlives this one, and kills a child, or a child's group, when this process has
//! ended.
//!
//! macOS has no parent-death signal. A kqueue with `NOTE_EXIT` for this process would need another process
//! to wait in it: a forked copy of a whole program, whose memory stays as long as the child runs, or a
//! program that is installed along with this one. But every macOS has `/bin/sh`. It waits for the end of a
//! pipe whose other end only this process has: when this process ends, in whatever way, the kernel closes
//! that end.
//!
//! The guard has two limits: if a fork of this program continues to run without executing another program,
//! the pipe is not closed before that fork ends too. And if the guard is killed, the child continues to run.

use std::ffi::{CStr, CString, c_char};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::ptr;

use super::actions::{Actions, SpawnAttributes, all_signals, posix_spawn, signals};
use crate::process::child::guard::{Guard, GuardTarget};
use crate::process::wait4::wait4;

/// The number of the pipe in the shell.
const PIPE_FD: RawFd = 3;

/// The script that kills a group. The shell itself ends at once, and the process that it leaves behind
/// becomes a child of launchd, so this process does not have to reap it. A line in the pipe disarms the
/// guard; the end of the pipe without a line means that this process has ended. `$1` is the process or
/// group to kill; 0 is the group of the shell.
const GROUP_SCRIPT: &CStr = c"(read -r over <&3 || kill -s KILL \"$1\") &";

/// The script that kills a child. When this process ends, the number of the child may have passed to
/// another process, if other code has reaped the child or the pipe's end was leaked. So the start time is
/// compared. If `ps` does not work, both times are empty.
const CHILD_SCRIPT: &CStr = c"(s=$(/bin/ps -o lstart= -p \"$1\"); read -r over <&3 || if [ \"$s\" = \"$(/bin/ps -o lstart= -p \"$1\")\" ]; then kill -s KILL \"$1\"; fi) &";

/// Starts the guard of a child that does not run yet. The guard waits when this returns.
pub(super) fn start_guard(child: i32, target: GuardTarget) -> io::Result<Guard> {
    let (read, write) = crate::base::raw_pipe::pipe()?;
    disable_sigpipe(&write)?;
    let shell = start_shell(child, target, &read)?;
    drop(read);
    match wait4(shell, 0) {
        Ok(Some((status, _))) if status.success() => {}
        // Other code of this program has reaped it; it was started.
        Err(error) if error.raw_os_error() == Some(libc::ECHILD) => {}
        Err(error) => return Err(error),
        Ok(_) => return Err(io::Error::other("the guard of the child could not be started")),
    }
    Ok(Guard::new(write, target))
}

fn start_shell(child: i32, target: GuardTarget, pipe: &OwnedFd) -> io::Result<i32> {
    let mut actions = Actions::new()?;
    // Before the other actions, which could overwrite it.
    match pipe.as_raw_fd() {
        PIPE_FD => actions.inherit(PIPE_FD)?,
        from => actions.dup2(from, PIPE_FD)?,
    }
    for fd in [libc::STDIN_FILENO, libc::STDOUT_FILENO, libc::STDERR_FILENO] {
        actions.open(fd, c"/dev/null", libc::O_RDWR)?;
    }
    // So that the guard keeps no directory from being unmounted.
    actions.change_dir(c"/")?;
    let mut attributes = SpawnAttributes::new()?;
    attributes.close_others()?;
    attributes.default_signals(&signals(&[libc::SIGCHLD, libc::SIGPIPE]))?;
    // Signals for the group, or from the terminal, are not meant for the guard.
    attributes.block(&all_signals())?;
    let (script, target) = match target {
        GuardTarget::Child => {
            attributes.begin_session()?;
            (CHILD_SCRIPT, CString::new(child.to_string())?)
        }
        GuardTarget::Group => {
            attributes.join_group(child)?;
            (GROUP_SCRIPT, c"0".to_owned())
        }
    };
    let arguments = [c"sh", c"-c", script, c"pipewright-guard", &target].map(CStr::as_ptr);
    let [a, b, c, d, e] = arguments;
    let argv: [*const c_char; 6] = [a, b, c, d, e, ptr::null()];
    let envp: [*const c_char; 1] = [ptr::null()];
    let path = c"/bin/sh".as_ptr();
    // SAFETY: a C string, and arrays of C strings that end with NULL.
    let started = unsafe { posix_spawn(path, &actions, &attributes, argv.as_ptr(), envp.as_ptr()) };
    started.map_err(io::Error::from_raw_os_error)
}

/// Disables SIGPIPE for the pipe: a guard that was killed must not end a program that does not ignore
/// SIGPIPE.
fn disable_sigpipe(pipe: &OwnedFd) -> io::Result<()> {
    // SAFETY: an open descriptor and a number.
    match unsafe { libc::fcntl(pipe.as_raw_fd(), libc::F_SETNOSIGPIPE, 1) } {
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(()),
    }
}
