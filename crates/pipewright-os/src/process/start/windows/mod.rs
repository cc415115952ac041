//! Starts a child by `CreateProcessW`.

mod program;
mod slot;
mod text;

use std::convert::Infallible;
use std::ffi::c_void;
use std::marker::PhantomData;
use std::os::windows::io::{
    AsHandle as _, AsRawHandle, BorrowedHandle, FromRawHandle, OwnedHandle,
};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::{io, mem, ptr};

use windows_sys::Win32::Foundation::{
    ERROR_ACCESS_DENIED, ERROR_BAD_PATHNAME, ERROR_DIRECTORY, ERROR_FILE_NOT_FOUND,
    ERROR_INVALID_HANDLE, ERROR_INVALID_NAME, ERROR_INVALID_PARAMETER, HANDLE, HANDLE_FLAG_INHERIT,
    SetHandleInformation,
};
use windows_sys::Win32::System::Console::{GetConsoleCP, HPCON};
use windows_sys::Win32::System::Threading::{
    CREATE_BREAKAWAY_FROM_JOB, CREATE_NEW_CONSOLE, CREATE_NEW_PROCESS_GROUP, CREATE_NO_WINDOW,
    CREATE_SUSPENDED, CREATE_UNICODE_ENVIRONMENT, CreateProcessW, DETACHED_PROCESS,
    DeleteProcThreadAttributeList, EXTENDED_STARTUPINFO_PRESENT, InitializeProcThreadAttributeList,
    LPPROC_THREAD_ATTRIBUTE_LIST, PROC_THREAD_ATTRIBUTE_HANDLE_LIST,
    PROC_THREAD_ATTRIBUTE_JOB_LIST, PROC_THREAD_ATTRIBUTE_PSEUDOCONSOLE, PROCESS_INFORMATION,
    STARTF_USESHOWWINDOW, STARTF_USESTDHANDLES, STARTUPINFOEXW, STARTUPINFOW,
    UpdateProcThreadAttribute,
};

use super::check_values;
use super::plan::{self, Way};
use super::wide::block;
use super::{BadInput, ChildStdio, Env, Group, Inherit, ParentExit, Plan, SpawnError, Step};
use crate::base::handle::{Handle, copy_of, inheritable, size_of_u32};
use crate::base::pipe::{PipeOptions, PipeReader, PipeWriter, pair};
use crate::base::service_thread;
use crate::base::stdio::standard;
use crate::process::child::{ChildHandle, windows as exit};
use crate::process::contain::windows::{Job, JobTree, is_in_job, kill_on_close_job, limit};
use crate::process::limits::HeldLimits;
use crate::process::process_object::ProcessObject;
use crate::process::pty::ChildTerminal;
use program::ProgramAndLine;

pub(super) use program::{is_path, search_dirs};
pub(super) use slot::new_slot;
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
    check_values(plan)?;
    check_windows(plan)?;
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
        (Step::Exec, Some(dir)) => match program::working_dir_error(dir) {
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
    let dir = plan.current_dir.map(program::as_working_directory);

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
        ERROR_ACCESS_DENIED if breakaway_from_job && program::is_file(&program.file) => {
            Step::Breakaway
        }
        // The job is not compatible with the jobs that this process is in.
        ERROR_ACCESS_DENIED
            if has_job
                && is_in_job().unwrap_or(false)
                && program::may_be_executed(&program.file) =>
        {
            Step::Contain
        }
        _ => Step::Exec,
    };
    if matches!(code, ERROR_INVALID_NAME | ERROR_BAD_PATHNAME) {
        // No file has such a name.
        return SpawnError::new(step, io::Error::from_raw_os_error(ERROR_FILE_NOT_FOUND as i32));
    }
    if step == Step::Exec && program::is_directory(&program.file) {
        // Windows returns this error itself; Wine returns one about a handle.
        return SpawnError::new(step, io::Error::from_raw_os_error(ERROR_ACCESS_DENIED as i32));
    }
    SpawnError::new(step, error)
}

/// The flags that give a child a console of its own, or none.
const OTHER_CONSOLE: u32 = CREATE_NO_WINDOW | CREATE_NEW_CONSOLE | DETACHED_PROCESS;

/// The flags and the console for the start of a child.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct StartFlags {
    creation: u32,
    /// True if the child has this process's console.
    shares_console: bool,
}

impl StartFlags {
    fn of(plan: &Plan<'_>) -> StartFlags {
        // SAFETY: no arguments. 0: there is no console.
        let have_console = unsafe { GetConsoleCP() } != 0;
        StartFlags::with(plan, have_console)
    }

    fn with(plan: &Plan<'_>, have_console: bool) -> StartFlags {
        let has_own_console = plan.terminal.is_some();
        let mut flags = CREATE_UNICODE_ENVIRONMENT;
        let mut no_window = false;
        if let Some(windows) = plan.windows {
            // This library decides if there are attributes.
            flags |= windows.creation_flags & !EXTENDED_STARTUPINFO_PRESENT;
            no_window = windows.no_window;
            if windows.breakaway_from_job {
                flags |= CREATE_BREAKAWAY_FROM_JOB;
            }
        }
        match plan.unix.group {
            Group::Same | Group::Join(_) => {}
            // On a console of its own, Ctrl-C has to reach it, and a new group would ignore that.
            _ if has_own_console => {}
            Group::Own => flags |= CREATE_NEW_PROCESS_GROUP,
            // Not without a console: the system would open a window for each console program that the child
            // starts.
            Group::Session => {
                flags |= CREATE_NEW_PROCESS_GROUP;
                no_window = true;
            }
        }
        let redirected = |stdio: &ChildStdio<'_>| matches!(stdio, ChildStdio::Handle(_));
        // The system would open a window for a console program, and it would stay empty.
        let is_empty = !have_console && !has_own_console && plan.stdio.iter().all(redirected);
        if no_window || (is_empty && flags & OTHER_CONSOLE == 0) {
            flags |= CREATE_NO_WINDOW;
        }
        let shares_console = have_console && !has_own_console && flags & OTHER_CONSOLE == 0;
        StartFlags { creation: flags, shares_console }
    }
}

/// Refuses the options that Windows lacks.
fn check_windows(plan: &Plan<'_>) -> Result<(), SpawnError> {
    if plan.windows.is_some_and(|windows| windows.creation_flags & CREATE_SUSPENDED != 0) {
        // The handle of its first thread is closed, so the child would never run.
        return Err(SpawnError::bad(BadInput::Suspended));
    }
    plan::check_options(plan, Way::Windows)
}

// Copies of the standard handles that one child can inherit.
//
// The originals are not made inheritable: several children may get them at once, and a change for one
// would affect the others.
//
// A program expects its standard handles to be synchronous. A read of an overlapped handle may complete
// after its buffer has gone. The mode of a handle cannot be changed, so a synchronous pipe goes between an
// overlapped pipe and a child, with a thread that copies until the end. The thread begins when the child
// exists, because no other process gets what the thread reads from the pipe.

#[derive(Debug)]
struct ChildStdioHandles {
    /// The handles for stdin, stdout and stderr; `None` for none.
    copies: [Option<OwnedHandle>; 3],
    relays: Vec<Relay>,
}

/// The start signal of a copying thread. If it is dropped instead, the thread ends.
type Relay = Sender<()>;

impl ChildStdioHandles {
    fn new(plan: &Plan<'_>) -> Result<ChildStdioHandles, SpawnError> {
        let (mut copies, mut relays) = ([None, None, None], Vec::new());
        for (index, (copy, stdio)) in (0..).zip(copies.iter_mut().zip(&plan.stdio)) {
            *copy = match stdio {
                // The child opens its console itself.
                ChildStdio::Inherit if plan.terminal.is_some() => Ok(None),
                ChildStdio::Inherit => copy_of_standard(index),
                ChildStdio::Handle(handle) => {
                    synchronous(handle, index == 0, &mut relays).map(Some)
                }
            }
            .map_err(|error| SpawnError::new(Step::Stdio(index as u8), error))?;
        }
        Ok(ChildStdioHandles { copies, relays })
    }

    /// Starts the copying: a child has its copies.
    fn start_relays(self) {
        for relay in self.relays {
            // Ignored: the thread is waiting for this.
            let _ = relay.send(());
        }
    }

    fn raw(&self) -> [Option<HANDLE>; 3] {
        self.copies.each_ref().map(|copy| copy.as_ref().map(|copy| copy.as_raw_handle()))
    }
}

fn synchronous(handle: &Handle, is_read: bool, relays: &mut Vec<Relay>) -> io::Result<OwnedHandle> {
    if !handle.is_overlapped() {
        return copy_of(handle.as_raw_handle(), true);
    }
    let ours = copy_of(handle.as_raw_handle(), false)?;
    let (reader, writer) = pair(PipeOptions::default())?;
    let theirs = if is_read {
        let theirs = copy_of(reader.as_raw_handle(), true)?;
        relays.push(relay(PipeReader::from(ours), writer)?);
        theirs
    } else {
        let theirs = copy_of(writer.as_raw_handle(), true)?;
        relays.push(relay(reader, PipeWriter::from(ours))?);
        theirs
    };
    Ok(theirs)
}

/// Starts a thread that copies until one side ends, and then closes both.
fn relay(mut from: PipeReader, mut to: PipeWriter) -> io::Result<Relay> {
    let (begin, begins) = channel();
    service_thread::start(c"pipewright-relay", move || {
        if begins.recv().is_ok() {
            // Ignored: the reader has closed its end, and the writer sees that at the end of its pipe.
            let _ = io::copy(&mut from, &mut to);
        }
    })?;
    Ok(begin)
}

fn copy_of_standard(number: i32) -> io::Result<Option<OwnedHandle>> {
    let Some(ours) = standard(number) else { return Ok(None) };
    match copy_of(ours, true) {
        // A program with windows, or one whose parent has passed a number without a handle: it has no such
        // stream, so neither does the child.
        Err(error) if error.raw_os_error() == Some(ERROR_INVALID_HANDLE as i32) => Ok(None),
        copy => copy.map(Some),
    }
}

// Handles beside stdio: inheritable only during one start.
//
// A child identifies an inherited handle by its number, and a copy would have another one. So the handle
// itself is made inheritable while the child is created. The handle belongs to the command, and a command
// starts one child at a time, so nothing else changes its inheritance meanwhile. A start whose child
// inherits every inheritable handle waits until no other start has marked handles ([`InheritLock`]). Only a
// start by other code of this program, such as std's, can still pass the handle to its child.

/// The right to have inheritable handles, for the time of one start.
///
/// Starts that list the handles of their child share it: no list includes another start's handles. A start
/// that passes every inheritable handle has it alone, because its child would keep the pipes of other starts
/// open.
#[derive(Debug)]
enum InheritLock {
    Shared(#[expect(dead_code, reason = "held")] RwLockReadGuard<'static, ()>),
    Exclusive(#[expect(dead_code, reason = "held")] RwLockWriteGuard<'static, ()>),
}

impl InheritLock {
    /// Waits for the right.
    fn of(plan: &Plan<'_>) -> InheritLock {
        static STARTS: RwLock<()> = RwLock::new(());
        match plan.inherit {
            Inherit::List(_) => {
                InheritLock::Shared(STARTS.read().unwrap_or_else(PoisonError::into_inner))
            }
            _ => InheritLock::Exclusive(STARTS.write().unwrap_or_else(PoisonError::into_inner)),
        }
    }
}

/// The handles of a plan.
#[derive(Debug)]
struct InheritList<'a>(&'a [(Handle, Option<i32>)]);

impl<'a> InheritList<'a> {
    fn new(plan: &Plan<'a>) -> Result<InheritList<'a>, SpawnError> {
        let list = plan.inherit.list();
        for (index, (handle, _)) in list.iter().enumerate() {
            let number = handle.number();
            // The system would refuse the whole list, without naming the entry.
            if list.iter().take(index).any(|(earlier, _)| earlier.number() == number) {
                return Err(SpawnError::bad(BadInput::InheritTwice(index)));
            }
        }
        Ok(InheritList(list))
    }

    fn raw(&self) -> impl Iterator<Item = HANDLE> {
        self.0.iter().map(|(handle, _)| handle.as_raw_handle())
    }

    /// Makes them inheritable, until the result is dropped.
    fn make_inheritable(&self) -> Result<Inheritable<'a>, SpawnError> {
        let mut marked = Inheritable(Vec::new());
        for (index, (handle, _)) in self.0.iter().enumerate() {
            let made = inheritable(handle.as_handle())
                .and_then(|already| if already { Ok(false) } else { mark(handle, true) });
            match made {
                Ok(true) => marked.0.push(handle),
                Ok(false) => {}
                Err(error) => return Err(SpawnError::new(Step::Inherit(index), error)),
            }
        }
        Ok(marked)
    }
}

/// The handles that were not inheritable before.
#[derive(Debug)]
struct Inheritable<'a>(Vec<&'a Handle>);

impl Drop for Inheritable<'_> {
    fn drop(&mut self) {
        for handle in &self.0 {
            // Ignored: setting the flag worked, so clearing it does too.
            let _ = mark(handle, false);
        }
    }
}

fn mark(handle: &Handle, inherit: bool) -> io::Result<bool> {
    let flag = if inherit { HANDLE_FLAG_INHERIT } else { 0 };
    // SAFETY: an open handle and two numbers.
    match unsafe { SetHandleInformation(handle.as_raw_handle(), HANDLE_FLAG_INHERIT, flag) } {
        0 => Err(io::Error::last_os_error()),
        _ => Ok(true),
    }
}

/// A list of attributes. It refers to their values, which therefore outlive it.
#[derive(Debug)]
struct AttributeList<'a> {
    /// Words, so that it is aligned for any attribute.
    list: Vec<u64>,
    values: PhantomData<&'a [HANDLE]>,
}

impl<'a> AttributeList<'a> {
    /// Creates a list with that much room. For no attributes there is no list, because the system's
    /// treatment of an empty one is not documented.
    fn with_room_for(count: u32) -> io::Result<AttributeList<'a>> {
        if count == 0 {
            return Ok(AttributeList { list: Vec::new(), values: PhantomData });
        }
        let mut bytes = 0;
        // SAFETY: without a list the call returns the required size. It is expected to fail.
        let _ =
            unsafe { InitializeProcThreadAttributeList(ptr::null_mut(), count, 0, &raw mut bytes) };
        let mut list = vec![0_u64; bytes.div_ceil(mem::size_of::<u64>())];
        // SAFETY: a live buffer of the size that was returned.
        let made = unsafe {
            InitializeProcThreadAttributeList(list.as_mut_ptr().cast(), count, 0, &raw mut bytes)
        };
        if made == 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(AttributeList { list, values: PhantomData })
    }

    /// Sets the only handles that the child inherits. Each must be inheritable, and none listed twice.
    fn set_handles(&mut self, handles: &'a [HANDLE]) -> io::Result<()> {
        self.set(
            PROC_THREAD_ATTRIBUTE_HANDLE_LIST,
            handles.as_ptr().cast(),
            mem::size_of_val(handles),
        )
    }

    /// Sets the jobs that the child is in before it runs.
    fn set_jobs(&mut self, jobs: &'a [HANDLE]) -> io::Result<()> {
        self.set(PROC_THREAD_ATTRIBUTE_JOB_LIST, jobs.as_ptr().cast(), mem::size_of_val(jobs))
    }

    /// Sets the console of the child. It must be open until the child has been started.
    fn set_console(&mut self, console: HPCON) -> io::Result<()> {
        // The value is the console itself, not a pointer to it.
        let value = ptr::without_provenance(console as usize);
        self.set(PROC_THREAD_ATTRIBUTE_PSEUDOCONSOLE, value, mem::size_of::<HPCON>())
    }

    fn set(&mut self, attribute: u32, value: *const c_void, bytes: usize) -> io::Result<()> {
        // SAFETY: a list that was initialised with room for it; a value that outlives the list: the callers borrow it
        // for that long, or keep the console open.
        let set = unsafe {
            UpdateProcThreadAttribute(
                self.as_ptr(),
                0,
                attribute as usize,
                value,
                bytes,
                ptr::null_mut(),
                ptr::null(),
            )
        };
        if set == 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }

    /// Returns the list; NULL if there is none.
    fn as_ptr(&mut self) -> LPPROC_THREAD_ATTRIBUTE_LIST {
        if self.list.is_empty() { ptr::null_mut() } else { self.list.as_mut_ptr().cast() }
    }
}

impl Drop for AttributeList<'_> {
    fn drop(&mut self) {
        let list = self.as_ptr();
        if !list.is_null() {
            // SAFETY: a list that was initialised, and that is not used any more.
            unsafe { DeleteProcThreadAttributeList(list) };
        }
    }
}

#[cfg(test)]
mod tests;

#[cfg(test)]
mod flag_tests {
    use super::tests::plan;
    use super::*;
    use crate::process::start::{UnixOptions, WindowsOptions};

    #[test]
    fn a_console_window_that_would_be_empty_is_not_opened() {
        let defaults = UnixOptions::default();
        let null: Handle = crate::base::stdio::null().unwrap();
        let null = ChildStdio::Handle(&null);
        let some = Plan { stdio: [null, null, ChildStdio::Inherit], ..plan("x", &[], &defaults) };
        let all = Plan { stdio: [null; 3], ..some };
        let flag =
            |plan: &Plan<'_>, have| StartFlags::with(plan, have).creation & CREATE_NO_WINDOW != 0;
        assert!(flag(&all, false));
        assert!(!flag(&all, true), "it shares the console");
        assert!(!flag(&some, false), "something would be seen in it");
        let own = WindowsOptions { creation_flags: CREATE_NEW_CONSOLE, ..Default::default() };
        assert!(!flag(&Plan { windows: Some(&own), ..all }, false), "it was asked for");
        let none = WindowsOptions { no_window: true, ..Default::default() };
        assert!(flag(&Plan { windows: Some(&none), ..some }, true));
    }

    #[test]
    fn a_detached_child_has_a_console_without_a_window() {
        let session = UnixOptions { group: Group::Session, ..UnixOptions::default() };
        let flags = StartFlags::with(&plan("x", &[], &session), true).creation;
        let wanted = CREATE_NO_WINDOW | CREATE_NEW_PROCESS_GROUP;
        assert_eq!(flags & (wanted | DETACHED_PROCESS), wanted);
    }

    #[test]
    fn only_children_on_this_console_can_be_asked_to_end() {
        let own = UnixOptions { group: Group::Own, ..UnixOptions::default() };
        let session = UnixOptions { group: Group::Session, ..UnixOptions::default() };
        let shares = |unix, have| StartFlags::with(&plan("x", &[], unix), have).shares_console;
        assert!(shares(&own, true));
        assert!(!shares(&own, false));
        assert!(!shares(&session, true));
    }

    #[test]
    fn create_suspended_is_refused() {
        let defaults = UnixOptions::default();
        let suspended = WindowsOptions { creation_flags: CREATE_SUSPENDED, ..Default::default() };
        let plan = Plan { windows: Some(&suspended), ..plan("x", &[], &defaults) };
        assert_eq!(check_windows(&plan).unwrap_err().step, Step::Check(BadInput::Suspended));
    }

    #[test]
    fn unix_options_are_refused_by_the_name_of_the_setter() {
        let refused = |unix: &UnixOptions| {
            let error = check_windows(&plan("x", &[], unix)).unwrap_err();
            assert_eq!(error.source.kind(), std::io::ErrorKind::Unsupported);
            error.source.to_string()
        };
        let defaults = UnixOptions::default();
        assert!(check_windows(&plan("x", &[], &defaults)).is_ok());
        let umask = UnixOptions { umask: Some(0), ..defaults.clone() };
        assert_eq!(refused(&umask), "`umask` is for Unix only");
        let join = UnixOptions { group: Group::Join(1), ..defaults };
        assert_eq!(refused(&join), "`process_group` is for Unix only");
    }
}
