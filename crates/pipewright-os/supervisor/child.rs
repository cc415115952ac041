//! The code of a new command between clone and exec, in the order and with the errors of `spawn/linux/child/mod.rs`.

use crate::call::call;
use crate::message::{
    CGROUP_PROCS_HANDLE, CURRENT_DIR_HANDLE, GROUP_HANDLE, Plan, STOP_PENDING, TERMINAL_HANDLE,
    field, flag, group, step,
};
use crate::number;
use crate::start::NewCommand;

/// The failed step, and the error.
type Failed = (u32, i32);

const AT_FDCWD: usize = -100_isize as usize;
/// The lowest number that no standard handle has.
const FIRST_OTHER: u64 = 3;

const ENOENT: i32 = 2;
const EACCES: i32 = 13;
const ENODEV: i32 = 19;
const ENOTDIR: i32 = 20;
const EINVAL: i32 = 22;
const ETIMEDOUT: i32 = 110;
const ESTALE: i32 = 116;

/// Makes this process the command. Returns only if something failed.
pub fn become_program(command: &NewCommand<'_>) -> Result<(), Failed> {
    const SIGPIPE: usize = 13;
    const SIGCHLD: usize = 17;
    let plan = &command.plan;
    set_action(SIGPIPE, &DEFAULT);
    if plan.has(flag::IGNORES_SIGCHLD) {
        set_action(SIGCHLD, &IGNORED);
    }
    join_limits(command)?;
    join_group(plan)?;
    take_terminal(command)?;
    enter_host_directory(command)?;
    close_missing_stdio(plan);
    move_handles_away(command)?;
    place_handles(command)?;
    set_limits(plan)?;
    if plan.has(flag::HAS_UMASK) {
        call(number::UMASK, [plan.word(field::UMASK) as usize, 0, 0, 0, 0, 0]);
    }
    if plan.has(flag::HAS_NICE) {
        add_nice(plan.word(field::NICE) as i64 as i32)?;
    }
    let current_dir = plan.word(field::CURRENT_DIR) as usize;
    if current_dir != 0 {
        check(call(number::CHDIR, [current_dir, 0, 0, 0, 0, 0]), step::CURRENT_DIR)?;
    }
    Err((step::EXEC, exec_first(plan)))
}

/// The kernel's struct sigaction, which begins with the handler.
type KernelAction = [usize; 8];

static DEFAULT: KernelAction = [0; 8];
static IGNORED: KernelAction = [1, 0, 0, 0, 0, 0, 0, 0];

fn set_action(signal: usize, action: &'static KernelAction) {
    call(number::RT_SIGACTION, [signal, action.as_ptr() as usize, 0, 8, 0, 0]);
}

/// Joins the control groups that hold the limits of the tree.
fn join_limits(command: &NewCommand<'_>) -> Result<(), Failed> {
    each_handle(command, |_, fd, target| {
        let is_procs = target == CGROUP_PROCS_HANDLE && !command.is_in_cgroup.get();
        if target != GROUP_HANDLE && !is_procs {
            return Ok(());
        }
        let result = call(number::WRITE, [fd as usize, b"0".as_ptr() as usize, 1, 0, 0, 0]);
        check(result, step::TREE_LIMITS)
    })
}

fn join_group(plan: &Plan<'_>) -> Result<(), Failed> {
    let id = plan.word(field::GROUP_ID) as usize;
    let result = match plan.word(field::GROUP) {
        group::SAME => 0,
        group::OWN => call(number::SETPGID, [0; 6]),
        group::JOIN => call(number::SETPGID, [0, id, 0, 0, 0, 0]),
        group::SESSION => call(number::SETSID, [0; 6]),
        _ => -(EINVAL as isize),
    };
    check(result, step::GROUP)
}

/// Returns true if a handle with that target gets a number in the command.
fn gets_number(target: u64) -> bool {
    target < CGROUP_PROCS_HANDLE
}

/// Makes the terminal the controlling one of the session that this process leads, if a handle of it has been passed.
fn take_terminal(command: &NewCommand<'_>) -> Result<(), Failed> {
    const TIOCSCTTY: usize = 0x540e;
    each_handle(command, |_, fd, target| match target {
        TERMINAL_HANDLE => {
            // 0 does not take the terminal from another session.
            check(call(number::IOCTL, [fd as usize, TIOCSCTTY, 0, 0, 0, 0]), step::TERMINAL)
        }
        _ => Ok(()),
    })
}

/// Calls the function with the index, the handle and the target of each handle.
fn each_handle(
    command: &NewCommand<'_>,
    mut found: impl FnMut(usize, i32, u64) -> Result<(), Failed>,
) -> Result<(), Failed> {
    let mut index = 0;
    while let (Some(fd), Some(target)) = (command.handles.get(index), command.plan.target(index)) {
        found(index, fd, target)?;
        index += 1;
    }
    Ok(())
}

/// Enters the working directory of the host, if a handle of it has been passed.
fn enter_host_directory(command: &NewCommand<'_>) -> Result<(), Failed> {
    each_handle(command, |_, fd, target| {
        if target != CURRENT_DIR_HANDLE {
            return Ok(());
        }
        check(call(number::FCHDIR, [fd as usize, 0, 0, 0, 0, 0]), step::CURRENT_DIR)
    })
}

/// Closes the standard handles that the host does not have either.
fn close_missing_stdio(plan: &Plan<'_>) {
    let mut number = 0;
    while number < FIRST_OTHER {
        if plan.has(flag::CLOSES_STDIN << number) {
            call(number::CLOSE, [number as usize, 0, 0, 0, 0, 0]);
        }
        number += 1;
    }
}

/// Moves handles away from each other's targets. The received handles have no number of a standard handle.
fn move_handles_away(command: &NewCommand<'_>) -> Result<(), Failed> {
    each_handle(command, |index, fd, target| {
        let mut moved = fd;
        if fd as u64 != target {
            // The copies in between stay open until the exec, so that no number is offered twice.
            while is_target(&command.plan, moved) {
                moved = duplicate(moved).map_err(|errno| (step_of(command, index), errno))?;
            }
        }
        // SAFETY: there is room for as many numbers as there can be handles.
        unsafe { command.moved.wrapping_add(index).write(moved) };
        Ok(())
    })
}

fn place_handles(command: &NewCommand<'_>) -> Result<(), Failed> {
    each_handle(command, |index, _, target| {
        if !gets_number(target) {
            return Ok(());
        }
        // SAFETY: written for every index by `move_handles_away`.
        let moved = unsafe { command.moved.wrapping_add(index).read() };
        let result = if moved as u64 == target {
            const F_SETFD: usize = 2;
            call(number::FCNTL, [moved as usize, F_SETFD, 0, 0, 0, 0])
        } else {
            call(number::DUP3, [moved as usize, target as usize, 0, 0, 0, 0])
        };
        check(result, step_of(command, index))
    })
}

fn is_target(plan: &Plan<'_>, fd: i32) -> bool {
    let mut index = 0;
    while let Some(target) = plan.target(index) {
        if target == fd as u64 {
            return true;
        }
        index += 1;
    }
    false
}

fn duplicate(fd: i32) -> Result<i32, i32> {
    const F_DUPFD_CLOEXEC: usize = 1030;
    let lowest = FIRST_OTHER as usize;
    let copy = call(number::FCNTL, [fd as usize, F_DUPFD_CLOEXEC, lowest, 0, 0, 0]);
    if copy < 0 { Err(-copy as i32) } else { Ok(copy as i32) }
}

/// Returns the step that places a handle.
fn step_of(command: &NewCommand<'_>, index: usize) -> u32 {
    match command.plan.target(index) {
        Some(target) if target < FIRST_OTHER => step::with_index(step::STDIO, target as usize),
        _ => {
            let mut earlier = 0;
            let mut inherited = 0;
            while earlier < index {
                let target = command.plan.target(earlier);
                let is_other = target.is_some_and(|it| it >= FIRST_OTHER && gets_number(it));
                inherited += usize::from(is_other);
                earlier += 1;
            }
            step::with_index(step::INHERIT, inherited)
        }
    }
}

fn set_limits(plan: &Plan<'_>) -> Result<(), Failed> {
    let mut index = 0;
    while let Some([resource, soft, hard]) = plan.limit(index) {
        let limit = [soft, hard];
        let place = limit.as_ptr() as usize;
        let result = call(number::PRLIMIT64, [0, resource as usize, place, 0, 0, 0]);
        check(result, step::with_index(step::LIMIT, index))?;
        index += 1;
    }
    Ok(())
}

fn add_nice(add: i32) -> Result<(), Failed> {
    // The call returns 20 minus the niceness, so that no result looks like an error (getpriority(2)).
    let raw = call(number::GETPRIORITY, [0; 6]) as i32;
    let nice = (20 - raw).saturating_add(add);
    // The kernel limits it to -20..19.
    check(call(number::SETPRIORITY, [0, 0, nice as isize as usize, 0, 0, 0]), step::NICE)
}

/// Executes the first candidate that can be executed, in the way execvp(3) goes through PATH. Returns the most
/// informative error, or [`STOP_PENDING`] if the attempt has to be repeated.
fn exec_first(plan: &Plan<'_>) -> i32 {
    const X_OK: usize = 1;
    let [argv, envp] = [field::ARGV, field::ENVP].map(|field| plan.word(field) as usize);
    let searches = plan.has(flag::SEARCHES);
    let mut forbidden = false;
    let mut index = 0;
    while let Some(path) = plan.candidate(index) {
        index += 1;
        let path = path as usize;
        if searches {
            let result = call(number::FACCESSAT, [AT_FDCWD, path, X_OK, 0, 0, 0]);
            // It answers for the real user; only the exec shows what the effective user may do.
            if result != 0 && result != -(EACCES as isize) {
                continue;
            }
        }
        let pending = pending();
        if plan.has(flag::MAY_RETRY) && pending & (STOPS | DUMPS) != 0 {
            return STOP_PENDING;
        }
        if would_dump(pending & DUMPS) {
            // It would dump the supervisor's memory.
            crate::system::kill(crate::system::own_pid() as i32);
        }
        set_mask(0);
        let error = -call(number::EXECVE, [path, argv, envp, 0, 0, 0]) as i32;
        set_mask(u64::MAX);
        match error {
            ENOENT | ENOTDIR | ESTALE | ENODEV | ETIMEDOUT => {}
            // A later candidate may be allowed; if none is, this is the error to report.
            EACCES => forbidden = true,
            _ => return error,
        }
        if !searches {
            return error;
        }
    }
    if forbidden { EACCES } else { ENOENT }
}

/// The signals that stop: SIGTSTP, SIGTTIN, SIGTTOU.
const STOPS: u64 = 0b111 << (20 - 1);
/// The signals that dump core: SIGQUIT to SIGFPE, SIGSEGV, SIGXCPU and SIGXFSZ, SIGSYS.
const DUMPS: u64 = 0b11_1111 << (3 - 1) | 1 << (11 - 1) | 0b11 << (24 - 1) | 1 << (31 - 1);

/// Returns the pending signals.
fn pending() -> u64 {
    let mut pending = 0_u64;
    // Ignored: then none is known to be pending.
    call(number::RT_SIGPENDING, [&raw mut pending as usize, 8, 0, 0, 0, 0]);
    pending
}

/// Returns true if one of the signals has its default action.
fn would_dump(signals: u64) -> bool {
    let mut signal = 1_usize;
    while signal <= 64 {
        let mut action: KernelAction = [1, 0, 0, 0, 0, 0, 0, 0];
        if signals & (1 << (signal - 1)) != 0 {
            call(number::RT_SIGACTION, [signal, 0, action.as_mut_ptr() as usize, 8, 0, 0]);
            if action[0] == DEFAULT[0] {
                return true;
            }
        }
        signal += 1;
    }
    false
}

fn set_mask(mask: u64) {
    const SIG_SETMASK: usize = 2;
    call(number::RT_SIGPROCMASK, [SIG_SETMASK, &raw const mask as usize, 0, 8, 0, 0]);
}

fn check(result: isize, failed_step: u32) -> Result<(), Failed> {
    if result < 0 { Err((failed_step, -result as i32)) } else { Ok(()) }
}
