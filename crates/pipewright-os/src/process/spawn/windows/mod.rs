//! Starts a child by `CreateProcessW`.
//!
//! | file | contents |
//! |---|---|
//! | `program.rs` | the file of the program, and its command line |
//! | `directories.rs` | the directories of this machine |
//! | `text.rs` | conversions between std's strings and UTF-16 |
//! | `options.rs` | flags, and the options that Windows lacks |
//! | `stdio.rs` | copies of the standard handles, for one child |
//! | `inherit.rs` | other handles, inheritable only during one start |
//! | `slot.rs` | a job that holds one tree after another |
//! | `attributes.rs` | the inherited handles and the job of a new child |

use std::convert::Infallible;
use std::ffi::c_void;
use std::io;
use std::os::windows::io::{
    AsHandle as _, AsRawHandle, BorrowedHandle, FromRawHandle, OwnedHandle,
};
use std::ptr;
use std::sync::Arc;

use windows_sys::Win32::Foundation::{
    ERROR_ACCESS_DENIED, ERROR_BAD_PATHNAME, ERROR_DIRECTORY, ERROR_FILE_NOT_FOUND,
    ERROR_INVALID_NAME, ERROR_INVALID_PARAMETER, HANDLE,
};
use windows_sys::Win32::System::Console::HPCON;
use windows_sys::Win32::System::Threading::{
    CreateProcessW, EXTENDED_STARTUPINFO_PRESENT, PROCESS_INFORMATION, STARTF_USESHOWWINDOW,
    STARTF_USESTDHANDLES, STARTUPINFOEXW, STARTUPINFOW,
};

use super::check::check;
use super::wide::environment::block;
use super::{BadInput, Env, Group, Inherit, ParentExit, Plan, SpawnError, Step};
use crate::base::handle::size_of_u32;
use crate::process::child::{ChildHandle, windows as exit};
use crate::process::contain::windows::{Job, JobTree, is_in_job, kill_on_close_job, limit};
use crate::process::limits::HeldLimits;
use crate::process::process_object::ProcessObject;
use crate::process::pty::ChildTerminal;

mod attributes;
mod directories;
mod inherit;
mod options;
mod program;
mod slot;
mod stdio;
mod text;

#[cfg(test)]
mod tests;

use attributes::AttributeList;
use inherit::{InheritList, InheritLock};
use options::StartFlags;
use program::ProgramAndLine;
pub(super) use program::{is_path, search_dirs};
pub(super) use slot::new_slot;
use stdio::ChildStdioHandles;
pub(super) use text::compare_names;

pub(super) fn spawn(plan: &Plan<'_>) -> Result<ChildHandle, SpawnError> {
    if let Some(contain) = plan.contain {
        return (contain.start)(plan, contain.ends_with_parent);
    }
    let Some(exit) = plan.unix.kill_on_parent_exit else {
        return start(plan, None).map(ChildHandle);
    };
    let start_in = |replace| {
        let job = (exit.job)(replace).map_err(|error| SpawnError::new(Step::ParentDeath, error))?;
        start(plan, Some(job)).map(ChildHandle)
    };
    match start_in(false) {
        Err(refused) if refused.step == Step::Contain => start_in(true),
        started => started,
    }
}

/// Starts a child in a job of its own, which always ends with this process.
pub(crate) fn start_contained(plan: &Plan<'_>, _: bool) -> Result<ChildHandle, SpawnError> {
    let allow_breakaway = plan.windows.is_some_and(|windows| windows.allow_breakaway);
    let job =
        Job::for_tree(allow_breakaway).map_err(|error| SpawnError::new(Step::Contain, error))?;
    let exit = start(plan, Some(job.as_handle()))?;
    let tree = JobTree::new(Arc::new(job), exit.pid());
    Ok(ChildHandle(exit.with_tree(Box::new(tree))))
}

/// Starts a child in a job with the limits of the plan.
pub(crate) fn start_limited(plan: &Plan<'_>, _: bool) -> Result<ChildHandle, SpawnError> {
    let (job, held) = limited_job(plan)?;
    let exit = start(plan, Some(job.as_handle()))?;
    let tree = JobTree::new(Arc::new(job), exit.pid()).with_limits(held);
    Ok(ChildHandle(exit.with_tree(Box::new(tree))))
}

/// A function that makes a job with the limits of a plan.
pub(crate) type SlotLimits = fn(&Plan<'_>) -> Result<(Job, HeldLimits), SpawnError>;

pub(crate) const SLOT_LIMITS: Option<SlotLimits> = Some(limited_job);

fn limited_job(plan: &Plan<'_>) -> Result<(Job, HeldLimits), SpawnError> {
    let limits = plan.limits.copied().unwrap_or_default();
    if let Some(mistake) = limits.mistake() {
        return Err(SpawnError::bad(BadInput::TreeLimits(mistake)));
    }
    let allow_breakaway = plan.windows.is_some_and(|windows| windows.allow_breakaway);
    let job =
        Job::for_tree(allow_breakaway).map_err(|error| SpawnError::new(Step::Contain, error))?;
    let held = limit(&job, limits).map_err(|unavailable| {
        let error = io::Error::new(io::ErrorKind::Unsupported, unavailable);
        SpawnError::new(Step::TreeLimits, error)
    })?;
    Ok((job, held))
}

/// False: what holds a tree here ends it.
pub(super) const GUARDS_GROUPS: bool = false;

/// None: the system starts a child in one call.
pub(super) fn leaving() -> Vec<i32> {
    Vec::new()
}

pub(super) fn parent_exit() -> ParentExit {
    ParentExit { job: kill_on_close_job }
}

pub(super) fn exec(_: &Plan<'_>) -> Result<Infallible, SpawnError> {
    let message = "Windows cannot replace a process by another program";
    let error = io::Error::new(io::ErrorKind::Unsupported, message);
    Err(SpawnError::new(Step::Create, error))
}

/// Starts a child. Steps that need no undo if a later one fails come first.
fn start(
    plan: &Plan<'_>,
    job: Option<BorrowedHandle<'_>>,
) -> Result<exit::ChildHandle, SpawnError> {
    check(plan)?;
    options::check(plan)?;
    let started = ProgramAndLine::find(plan).and_then(|program| {
        // Before the first inheritable copy exists, and until the last one is closed.
        let _lock = InheritLock::of(plan);
        let stdio = ChildStdioHandles::new(plan)?;
        let listed = InheritList::new(plan)?;
        let exit = create(plan, program, &stdio, &listed, job)?;
        stdio.start_relays();
        Ok(exit)
    });
    // The system has the same error for a missing program and a missing directory.
    started.map_err(|failed| match (failed.step, plan.current_dir) {
        (Step::Exec, Some(dir)) => match directories::working_dir_error(dir) {
            Some(error) => SpawnError::new(Step::CurrentDir, error),
            // The directory exists, but is longer than the limit of 260 units for a working directory.
            None if failed.source.raw_os_error() == Some(ERROR_DIRECTORY as i32) => {
                SpawnError::new(Step::CurrentDir, failed.source)
            }
            None => failed,
        },
        _ => failed,
    })
}

fn create(
    plan: &Plan<'_>,
    mut program: ProgramAndLine,
    stdio: &ChildStdioHandles,
    listed: &InheritList<'_>,
    job: Option<BorrowedHandle<'_>>,
) -> Result<exit::ChildHandle, SpawnError> {
    let flags = StartFlags::of(plan);
    let environment = match plan.env {
        // The system copies it, under the lock that `SetEnvironmentVariableW` takes too.
        Env::Inherit(_) => None,
        Env::Exactly(variables) => Some(block(text::variables(variables), text::compare)),
    };
    let dir = plan.current_dir.map(directories::as_working_directory);

    let handles: Vec<HANDLE> = stdio.raw().into_iter().flatten().chain(listed.raw()).collect();
    let jobs: Vec<HANDLE> = job.iter().map(AsRawHandle::as_raw_handle).collect();
    let only_listed = matches!(plan.inherit, Inherit::List(_));
    let lists_handles = only_listed && !handles.is_empty();
    let console = plan.terminal.map(console_of).transpose()?;
    let count =
        u32::from(lists_handles) + u32::from(!jobs.is_empty()) + u32::from(console.is_some());
    let mut attributes = AttributeList::with_room_for(count).map_err(cannot_create)?;
    if lists_handles {
        attributes.set_handles(&handles).map_err(cannot_create)?;
    }
    if !jobs.is_empty() {
        attributes.set_jobs(&jobs).map_err(|error| SpawnError::new(Step::Contain, error))?;
    }
    if let Some(console) = console {
        attributes.set_console(console).map_err(cannot_take_terminal)?;
    }
    let startup = startup_info(plan, stdio, &mut attributes);
    let extended = if count > 0 { EXTENDED_STARTUPINFO_PRESENT } else { 0 };
    let mut made = PROCESS_INFORMATION::default();
    let inheritable = listed.make_inheritable()?;
    // SAFETY: strings that end with NUL, the line writable; a block that ends with two; attributes that
    // outlive the call; a live struct for the result. The size at the start of `startup`, and a flag, say
    // which of the two structs it is.
    let created = unsafe {
        CreateProcessW(
            program.file.as_ptr(),
            program.line.as_mut_ptr(),
            ptr::null(),
            ptr::null(),
            // A process that may not inherit anything (a protected one) can still start others this way.
            i32::from(!handles.is_empty() || !only_listed),
            flags.creation | extended,
            environment.as_ref().map_or(ptr::null(), |block| block.as_ptr().cast::<c_void>()),
            dir.as_ref().map_or(ptr::null(), |dir| dir.as_ptr()),
            (&raw const startup).cast::<STARTUPINFOW>(),
            &raw mut made,
        )
    };
    let failed = (created == 0).then(io::Error::last_os_error);
    drop(inheritable);
    if let Some(error) = failed {
        return Err(failed_step(plan, &program, job.is_some(), error));
    }
    // SAFETY: made by the call above, and owned nowhere else.
    let process = unsafe { OwnedHandle::from_raw_handle(made.hProcess) };
    // SAFETY: as above. The handle is not used.
    drop(unsafe { OwnedHandle::from_raw_handle(made.hThread) });
    let exit = exit::ChildHandle::new(made.dwProcessId, ProcessObject::new(process));
    Ok(match plan.unix.group {
        Group::Own | Group::Session => exit.with_own_group(flags.shares_console),
        Group::Same | Group::Join(_) => exit,
    })
}

fn startup_info(
    plan: &Plan<'_>,
    stdio: &ChildStdioHandles,
    attributes: &mut AttributeList<'_>,
) -> STARTUPINFOEXW {
    let list = attributes.as_ptr();
    let mut startup = STARTUPINFOEXW { lpAttributeList: list, ..Default::default() };
    startup.StartupInfo.cb = match list.is_null() {
        true => size_of_u32::<STARTUPINFOW>(),
        false => size_of_u32::<STARTUPINFOEXW>(),
    };
    let [stdin, stdout, stderr] = stdio.raw();
    // With a console of its own and without the flag, a child would get this process's handles if those are redirected.
    if plan.terminal.is_some() || stdin.is_some() || stdout.is_some() || stderr.is_some() {
        let or_none = |handle: Option<HANDLE>| handle.unwrap_or(ptr::null_mut());
        startup.StartupInfo.dwFlags |= STARTF_USESTDHANDLES;
        startup.StartupInfo.hStdInput = or_none(stdin);
        startup.StartupInfo.hStdOutput = or_none(stdout);
        startup.StartupInfo.hStdError = or_none(stderr);
    }
    if let Some(show) = plan.windows.and_then(|windows| windows.show_window) {
        startup.StartupInfo.dwFlags |= STARTF_USESHOWWINDOW;
        startup.StartupInfo.wShowWindow = show;
    }
    startup
}

/// Returns the console for a new child.
fn console_of(terminal: &ChildTerminal) -> Result<HPCON, SpawnError> {
    let closed = || cannot_take_terminal(io::ErrorKind::BrokenPipe.into());
    terminal.0.console().number().ok_or_else(closed)
}

fn cannot_take_terminal(error: io::Error) -> SpawnError {
    SpawnError::new(Step::Terminal, error)
}

fn cannot_create(error: io::Error) -> SpawnError {
    SpawnError::new(Step::Create, error)
}

/// Finds the step that failed.
fn failed_step(
    plan: &Plan<'_>,
    program: &ProgramAndLine,
    has_job: bool,
    error: io::Error,
) -> SpawnError {
    let code = error.raw_os_error().unwrap_or_default() as u32;
    let breakaway_from_job = plan.windows.is_some_and(|windows| windows.breakaway_from_job);
    let step = match code {
        // Usually flags that exclude each other.
        ERROR_INVALID_PARAMETER => Step::Create,
        ERROR_ACCESS_DENIED if breakaway_from_job && directories::is_file(&program.file) => {
            Step::Breakaway
        }
        // The job is not compatible with the jobs that this process is in.
        ERROR_ACCESS_DENIED
            if has_job
                && is_in_job().unwrap_or(false)
                && directories::may_be_executed(&program.file) =>
        {
            Step::Contain
        }
        _ => Step::Exec,
    };
    if matches!(code, ERROR_INVALID_NAME | ERROR_BAD_PATHNAME) {
        // No file has such a name.
        return SpawnError::new(step, io::Error::from_raw_os_error(ERROR_FILE_NOT_FOUND as i32));
    }
    if step == Step::Exec && directories::is_directory(&program.file) {
        // Windows returns this error itself; Wine returns one about a handle.
        return SpawnError::new(step, io::Error::from_raw_os_error(ERROR_ACCESS_DENIED as i32));
    }
    SpawnError::new(step, error)
}
