//! One harmless call for each facility.

use std::io;
use std::mem;
use std::os::windows::io::{FromRawHandle, OwnedHandle};
use std::ptr;

use windows_sys::Win32::System::Console::GetConsoleProcessList;
use windows_sys::Win32::System::JobObjects::CreateJobObjectW;
use windows_sys::Win32::System::Threading::{
    CREATE_WAITABLE_TIMER_HIGH_RESOLUTION, CreateWaitableTimerExW, DeleteProcThreadAttributeList,
    InitializeProcThreadAttributeList, PROC_THREAD_ATTRIBUTE_HANDLE_LIST,
    PROC_THREAD_ATTRIBUTE_JOB_LIST, TIMER_ALL_ACCESS, UpdateProcThreadAttribute,
};

use super::Facility;
use super::entry::{About, facility, value};
use crate::base::pipe::{self, Mode, PipeOptions};
use crate::base::this_process::system_version;
use crate::process::contain::windows::{Job, is_in_job, limit as limit_job};
use crate::process::limits::TreeLimits;

/// Makes a job with the limit.
fn limit(name: &'static str, limits: TreeLimits) -> Facility {
    let found = Job::for_tree(false).and_then(|job| {
        limit_job(&job, limits).map(|_| "job".to_owned()).map_err(io::Error::other)
    });
    let about = About {
        used_for: "limiting the resources of a tree",
        without: "a command with this limit does not start, unless it may run without",
        needs: "a job that keeps the limit (Wine does not)",
    };
    facility(name, found, about)
}

pub(super) fn facilities() -> Vec<Facility> {
    vec![
        facility(
            "handle list",
            attribute(PROC_THREAD_ATTRIBUTE_HANDLE_LIST),
            About {
                used_for: "starting children that inherit only the listed handles",
                without: "no child can be started",
                needs: "PROC_THREAD_ATTRIBUTE_HANDLE_LIST (Windows Vista)",
            },
        ),
        facility(
            "job object",
            job().map(|_| String::new()),
            About {
                used_for: "containing a whole tree, killing it at once, and ending it with its program",
                without: "no tree is contained",
                needs: "CreateJobObject",
            },
        ),
        facility(
            "job list",
            attribute(PROC_THREAD_ATTRIBUTE_JOB_LIST),
            About {
                used_for: "starting children inside their job",
                without: "no tree is contained",
                needs: "PROC_THREAD_ATTRIBUTE_JOB_LIST (Windows 10)",
            },
        ),
        limit("memory limit", TreeLimits::new().memory_max(1 << 40)),
        limit("cpu limit", TreeLimits::new().cpu_max(0.5)),
        limit("pids limit", TreeLimits::new().pids_max(1 << 20)),
        facility(
            "overlapped pipe",
            overlapped_pipe(),
            About {
                used_for: "reading both streams of a child on one thread",
                without: "nothing is captured",
                needs: "CreateNamedPipe with FILE_FLAG_OVERLAPPED",
            },
        ),
        facility(
            "precise timer",
            precise_timer(),
            About {
                used_for: "waits of less than a clock tick",
                without: "they take up to 16 ms",
                needs: "CREATE_WAITABLE_TIMER_HIGH_RESOLUTION (Windows 10 1803)",
            },
        ),
        facility(
            "console",
            console(),
            About {
                used_for: "asking a child to end, with Ctrl-Break",
                without: "a stop is a kill",
                needs: "a console",
            },
        ),
        value("inside a job", inside_a_job(), "a job around this process holds its children too"),
        value("open handles", count_text(), "the number of handles that this process has open"),
        value("system", system_version(), "10 is the oldest supported Windows"),
    ]
}

/// Checks that a process can be created with that attribute. Makes the list and does not use it.
fn attribute(which: u32) -> io::Result<String> {
    // Enough for a list with one attribute, with the required alignment.
    let mut list = [0_usize; 32];
    let mut size = mem::size_of_val(&list);
    let raw = list.as_mut_ptr().cast();
    // SAFETY: memory of that size.
    if unsafe { InitializeProcThreadAttributeList(raw, 1, 0, &raw mut size) } == 0 {
        return Err(io::Error::last_os_error());
    }
    let handle = job()?;
    // SAFETY: an initialised list with room for one attribute, and a live value. No call uses the list
    // afterwards.
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
    // SAFETY: made by the call above, and owned nowhere else.
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
    // SAFETY: made by the call above, and owned nowhere else.
    drop(unsafe { OwnedHandle::from_raw_handle(timer) });
    Ok(String::new())
}

fn console() -> io::Result<String> {
    let mut one = 0;
    // SAFETY: room for one; the call fills in nothing if there are more.
    match unsafe { GetConsoleProcessList(&raw mut one, 1) } {
        0 => Err(io::Error::last_os_error()),
        count => Ok(format!("shared by {count}")),
    }
}

fn inside_a_job() -> String {
    match is_in_job() {
        Ok(true) => "yes".to_owned(),
        Ok(false) => "no".to_owned(),
        Err(error) => error.to_string(),
    }
}

fn count_text() -> String {
    crate::base::handle::own_handle_count()
        .map_or_else(|error| error.to_string(), |count| count.to_string())
}
