//! One careful call for each facility.

use std::io;
use std::mem;
use std::os::windows::io::{FromRawHandle, OwnedHandle};
use std::ptr;

use windows_sys::Win32::System::Console::GetConsoleProcessList;
use windows_sys::Win32::System::JobObjects::{CreateJobObjectW, IsProcessInJob};
use windows_sys::Win32::System::Threading::{
    CREATE_WAITABLE_TIMER_HIGH_RESOLUTION, CreateWaitableTimerExW, DeleteProcThreadAttributeList,
    GetCurrentProcess, InitializeProcThreadAttributeList, PROC_THREAD_ATTRIBUTE_HANDLE_LIST,
    PROC_THREAD_ATTRIBUTE_JOB_LIST, TIMER_ALL_ACCESS, UpdateProcThreadAttribute,
};

use super::{Facility, State};
use crate::base::pipe::{self, Mode, PipeOptions};
use crate::base::windows_version::system_version;

pub(super) fn facilities() -> Vec<Facility> {
    vec![
        facility(
            "handle list",
            attribute(PROC_THREAD_ATTRIBUTE_HANDLE_LIST),
            "a child inherits what is listed and nothing else: without it nothing is started",
        ),
        facility(
            "job object",
            job().map(|_| String::new()),
            "holding a whole tree, killing it at once, and ending it with its program",
        ),
        facility(
            "job list",
            attribute(PROC_THREAD_ATTRIBUTE_JOB_LIST),
            "children that are in their job from birth: without it no tree is held",
        ),
        facility(
            "overlapped pipe",
            overlapped_pipe(),
            "reading both streams of a child on one thread: without it nothing is captured",
        ),
        facility(
            "precise timer",
            precise_timer(),
            "waits of less than a tick of the clock: without it they take up to 16 ms",
        ),
        facility(
            "console",
            console(),
            "asking a child to end, with Ctrl-Break: without it a stop is a kill",
        ),
        value("inside a job", inside_a_job(), "a job around this process holds its children too"),
        value("open handles", count_text(), "how many handles this process has open"),
        value("system", system_version(), "10 is the oldest Windows that is supported"),
    ]
}

fn facility(name: &'static str, found: io::Result<String>, used_for: &'static str) -> Facility {
    let state = match found {
        Ok(detail) => State::Available(detail),
        Err(error) => State::Missing(error.to_string()),
    };
    Facility { name, state, used_for }
}

fn value(name: &'static str, text: String, used_for: &'static str) -> Facility {
    Facility { name, state: State::Value(text), used_for }
}

/// Whether a process can be created with that attribute. The list is made, and not used.
fn attribute(which: u32) -> io::Result<String> {
    // Enough for a list with one attribute, and aligned as it has to be.
    let mut list = [0_usize; 32];
    let mut size = mem::size_of_val(&list);
    let raw = list.as_mut_ptr().cast();
    // SAFETY: memory of that size.
    if unsafe { InitializeProcThreadAttributeList(raw, 1, 0, &raw mut size) } == 0 {
        return Err(io::Error::last_os_error());
    }
    let handle = job()?;
    // SAFETY: a list with room for one, and one handle, which both outlive the use that is made of
    // them, which is none.
    let known = unsafe {
        let (value, size) = ((&raw const handle).cast(), mem::size_of::<OwnedHandle>());
        let no_old = ptr::null_mut();
        UpdateProcThreadAttribute(raw, 0, which as usize, value, size, no_old, ptr::null())
    };
    let error = io::Error::last_os_error();
    // SAFETY: a list that was initialised.
    unsafe { DeleteProcThreadAttributeList(raw) };
    if known == 0 { Err(error) } else { Ok(String::new()) }
}

fn job() -> io::Result<OwnedHandle> {
    // SAFETY: no attributes and no name.
    let job = unsafe { CreateJobObjectW(ptr::null(), ptr::null()) };
    if job.is_null() {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: made by the call above, for nobody else.
    Ok(unsafe { OwnedHandle::from_raw_handle(job) })
}

fn overlapped_pipe() -> io::Result<String> {
    pipe::pair(PipeOptions { read: Mode::Async, ..PipeOptions::default() })?;
    Ok(String::new())
}

fn precise_timer() -> io::Result<String> {
    let how = CREATE_WAITABLE_TIMER_HIGH_RESOLUTION;
    // SAFETY: no attributes and no name.
    let timer = unsafe { CreateWaitableTimerExW(ptr::null(), ptr::null(), how, TIMER_ALL_ACCESS) };
    if timer.is_null() {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: made by the call above, for nobody else.
    drop(unsafe { OwnedHandle::from_raw_handle(timer) });
    Ok(String::new())
}

fn console() -> io::Result<String> {
    let mut one = 0;
    // SAFETY: room for one, of which there may be more.
    match unsafe { GetConsoleProcessList(&raw mut one, 1) } {
        0 => Err(io::Error::last_os_error()),
        count => Ok(format!("shared by {count}")),
    }
}

fn inside_a_job() -> String {
    let mut inside = 0;
    // SAFETY: no arguments; a pseudo handle, which nobody closes.
    let own = unsafe { GetCurrentProcess() };
    // SAFETY: any job, and a live number.
    match unsafe { IsProcessInJob(own, ptr::null_mut(), &raw mut inside) } {
        0 => io::Error::last_os_error().to_string(),
        _ if inside == 0 => "no".to_owned(),
        _ => "yes".to_owned(),
    }
}

fn count_text() -> String {
    crate::base::handle::own_handle_count()
        .map_or_else(|error| error.to_string(), |count| count.to_string())
}
