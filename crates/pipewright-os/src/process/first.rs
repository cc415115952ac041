//! The first process of a pid namespace, as a program in a container is.

use std::io;

/// Splits this process in two if it is the first one of its pid namespace, and returns in the second one, which does
/// the work of the program. The first one passes signals on to it, reaps what the namespace leaves behind, and exits
/// with its exit code (128 and the number of the signal that killed it). Any other process returns at once.
///
/// A first process gets every orphan for a child, and orphans that nobody reaps stay as zombies until no pid is free. A
/// signal that it does not handle has no effect. A program that waits for its own children alone would fail at both.
///
/// The second process leads a group of its own, which gets the terminal if that of the first one had it. Then a signal
/// that is typed, or sent to the group of either, arrives once. Not so if the first process has its terminal from a
/// session outside of the namespace, as below `unshare` in a shell: nobody in the namespace could give the terminal
/// back to that shell, so both stay in their group. There a signal that another process sends to the group arrives
/// twice, as one does everywhere that is sent to each process of a cgroup: nothing tells it from two signals.
///
/// Ctrl-Z has no effect, as for any first process: there is no shell to continue what it would stop.
///
/// For a program, at the start of `main`: no other thread goes along.
///
/// # Platform
/// Linux: `fork`, `setpgid`, `tcsetpgrp`, `sigwaitinfo`, `wait4`. Elsewhere: nothing; such a process is the system's
/// own.
///
/// # Errors
/// The error of `fork`.
#[doc(alias("init", "tini", "PID 1"))]
pub fn split_first_process() -> io::Result<()> {
    #[cfg(target_os = "linux")]
    if std::process::id() == 1 {
        return imp::split();
    }
    Ok(())
}

#[cfg(target_os = "linux")]
mod imp {
    use std::io;
    use std::mem::MaybeUninit;

    use rustix::process::{WaitOptions, WaitStatus, setpgid, wait};

    use crate::base::signal::{AllBlocked, Signal, stop_ignoring};
    use crate::process::terminal::Foreground;

    pub(super) fn split() -> io::Result<()> {
        // The kernel would reap the second process, and forget its exit code.
        Signal::from_number(libc::SIGCHLD).iter().for_each(|ended| stop_ignoring(&[*ended]));
        // Before the fork: no signal is lost, and none reaches this process between two waits.
        let blocked = AllBlocked::new();
        let terminal = Foreground::controlling();
        // A session that was made outside of the namespace has the number 0, which rustix does not expect.
        // SAFETY: getsid takes no pointer.
        let leads_session = unsafe { libc::getsid(0) } == 1;
        let shares_group = terminal.is_some() && !leads_session;
        #[expect(clippy::disallowed_methods, reason = "a program that has just begun is small")]
        // SAFETY: the child goes on as this thread, and the C library leaves the allocator usable.
        let child = match unsafe { libc::fork() } {
            -1 => return Err(io::Error::last_os_error()),
            0 => {
                if !shares_group {
                    lead_group(terminal);
                }
                return Ok(());
            }
            child => child,
        };
        // The kernel then kills what is left in the namespace.
        // SAFETY: ends the process; nothing of the program has run here.
        unsafe { libc::_exit(serve(&blocked, child, shares_group)) }
    }

    /// Makes the second process the leader of a group, in the foreground if its group was.
    fn lead_group(terminal: Option<Foreground>) {
        let terminal = terminal.filter(Foreground::is_ours);
        // Ignored: it cannot fail for a process that leads nothing.
        let _ = setpgid(None, None);
        terminal.iter().for_each(Foreground::take_back);
    }

    /// Serves the namespace until the second process has ended, and returns its exit code.
    fn serve(_all: &AllBlocked, child: libc::pid_t, shares_group: bool) -> i32 {
        loop {
            let (signal, is_of_kernel) = wait_for_signal();
            if signal == libc::SIGCHLD {
                if let Some(code) = reap_all(child, shares_group) {
                    return code;
                }
            } else if !(is_of_kernel && shares_group) {
                // The terminal reaches the whole group, and so the second process. SAFETY: kill takes no pointer. The
                // child has not been reaped: the number is its own.
                unsafe { libc::kill(child, signal) };
            }
        }
    }

    /// Waits for any signal. Returns its number, and true if the kernel has sent it.
    fn wait_for_signal() -> (i32, bool) {
        let mut all = MaybeUninit::<libc::sigset_t>::uninit();
        // SAFETY: sigfillset initializes the whole set.
        unsafe { libc::sigfillset(all.as_mut_ptr()) };
        let mut info = MaybeUninit::<libc::siginfo_t>::zeroed();
        loop {
            // SAFETY: an initialized set, and room for the result.
            let signal = unsafe { libc::sigwaitinfo(all.as_ptr(), info.as_mut_ptr()) };
            // Otherwise it was interrupted, as by a debugger.
            if signal > 0 {
                // SAFETY: initialized by the call; and all zeroes was a valid value before.
                let info = unsafe { info.assume_init() };
                return (signal, info.si_code == libc::SI_KERNEL);
            }
        }
    }

    /// Reaps every process that has ended. Returns the exit code of the child if it is one of them.
    fn reap_all(child: libc::pid_t, shares_group: bool) -> Option<i32> {
        let mut code = None;
        // An error: there is no child, and this one was reaped before.
        while let Ok(Some((pid, status))) = wait(WaitOptions::NOHANG | WaitOptions::UNTRACED) {
            if pid.as_raw_pid() != child {
                continue;
            }
            match status.stopping_signal() {
                // A stop that was typed. Nobody would continue the group, as a shell does.
                Some(libc::SIGTSTP) if !shares_group => {
                    // SAFETY: kill takes no pointer. The group has the number of its leader, which was not reaped.
                    unsafe { libc::kill(-child, libc::SIGCONT) };
                }
                Some(_) => {}
                None => code = Some(exit_code(status)),
            }
        }
        code
    }

    fn exit_code(status: WaitStatus) -> i32 {
        status
            .exit_status()
            .or(status.terminating_signal().map(|number| 128 + number))
            .unwrap_or(125)
    }
}
