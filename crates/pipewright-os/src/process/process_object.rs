//! A HANDLE on a process, and queries through it.
//!
//! While a handle is open its process keeps its number, ended or not. So an operation through the handle,
//! or by the number meanwhile, never affects another process.

use std::ffi::c_void;
use std::io;
use std::os::windows::io::{AsHandle, AsRawHandle, BorrowedHandle, FromRawHandle, OwnedHandle};

use windows_sys::Wdk::System::Threading::{NtQueryInformationProcess, ProcessBasicInformation};
use windows_sys::Win32::Foundation::{
    ERROR_ACCESS_DENIED, ERROR_INVALID_PARAMETER, MAX_PATH, WAIT_FAILED,
};
use windows_sys::Win32::System::ProcessStatus::{K32GetProcessMemoryInfo, PROCESS_MEMORY_COUNTERS};
use windows_sys::Win32::System::Threading::{
    GetExitCodeProcess, GetProcessId, INFINITE, OpenProcess, PROCESS_BASIC_INFORMATION,
    PROCESS_NAME_WIN32, PROCESS_QUERY_LIMITED_INFORMATION, PROCESS_SYNCHRONIZE, PROCESS_TERMINATE,
    QueryFullProcessImageNameW, TerminateProcess, WaitForSingleObject,
};

use crate::base::handle::size_of_u32;
use crate::base::os_text::ends_with;
use crate::base::signal::Signal;
use crate::base::wake::is_signalled;
use crate::process::status::{Ended, ExitStatus, KILLED};
use crate::process::usage::{Usage, times_of};

/// A process, which keeps its number as long as this value lives.
#[derive(Debug)]
pub(crate) struct ProcessObject {
    handle: OwnedHandle,
    /// True if the handle has the right to kill it.
    may_kill: bool,
}

impl ProcessObject {
    /// Takes the handle of a child from the call that created it, which has every right.
    pub(crate) fn new(handle: OwnedHandle) -> ProcessObject {
        ProcessObject { handle, may_kill: true }
    }

    /// Opens the process that has that number now; `None` if no process has it.
    pub(crate) fn open(pid: u32) -> io::Result<Option<ProcessObject>> {
        let access = PROCESS_QUERY_LIMITED_INFORMATION | PROCESS_SYNCHRONIZE;
        let mut opened = open(pid, access | PROCESS_TERMINATE);
        if is_error(&opened, ERROR_ACCESS_DENIED) {
            // A wait and a query need fewer rights; a later kill reports the missing one.
            opened = open(pid, access);
        }
        if is_error(&opened, ERROR_INVALID_PARAMETER) {
            return Ok(None);
        }
        let process = opened?;
        // Process ids are multiples of four, and the call takes a number in between for the one below it.
        Ok(Some(process).filter(|process| process.id() == pid))
    }

    fn id(&self) -> u32 {
        // SAFETY: the handle is open.
        unsafe { GetProcessId(self.handle.as_raw_handle()) }
    }

    pub(crate) fn has_ended(&self) -> bool {
        // Not by its exit code: 259 means "still running", but a process can exit with it as well.
        is_signalled(self.handle.as_handle())
    }

    /// Blocks until it has ended.
    pub(crate) fn wait(&self) -> io::Result<()> {
        // SAFETY: the handle is open.
        match unsafe { WaitForSingleObject(self.handle.as_raw_handle(), INFINITE) } {
            WAIT_FAILED => Err(io::Error::last_os_error()),
            _ => Ok(()),
        }
    }

    /// Returns its exit status and usage; `None` while it runs.
    pub(crate) fn end(&self) -> io::Result<Option<Ended>> {
        if !self.has_ended() {
            return Ok(None);
        }
        let mut code = 0;
        // SAFETY: the handle is open, the number is live.
        if unsafe { GetExitCodeProcess(self.handle.as_raw_handle(), &raw mut code) } == 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(Some(Ended { status: ExitStatus::from_raw(code as i32), usage: self.usage() }))
    }

    fn usage(&self) -> Option<Usage> {
        let times = times_of(self.as_handle())?;
        let peak = self.peak_rss_bytes();
        Some(Usage {
            user: times.user,
            system: times.kernel,
            peak_rss_bytes: peak,
            switches: None,
            counted_peak_rss_bytes: peak,
        })
    }

    fn peak_rss_bytes(&self) -> Option<u64> {
        // No process runs without memory: 0 means unknown.
        self.memory().map(|it| it.PeakWorkingSetSize as u64).filter(|bytes| *bytes > 0)
    }

    /// Returns the memory that it uses now.
    pub(crate) fn rss_bytes(&self) -> Option<u64> {
        self.memory().map(|it| it.WorkingSetSize as u64).filter(|bytes| *bytes > 0)
    }

    fn memory(&self) -> Option<PROCESS_MEMORY_COUNTERS> {
        let mut counters = PROCESS_MEMORY_COUNTERS::default();
        let bytes = size_of_u32::<PROCESS_MEMORY_COUNTERS>();
        // SAFETY: the handle is open; a live struct and its size.
        let ok = unsafe {
            K32GetProcessMemoryInfo(self.handle.as_raw_handle(), &raw mut counters, bytes)
        };
        (ok != 0).then_some(counters)
    }

    /// Returns its start time. `None` if the handle does not allow the query.
    pub(crate) fn created(&self) -> Option<u64> {
        times_of(self.as_handle()).map(|times| times.created)
    }

    /// Returns the number of the process that started it; another process may have that number now. `None`
    /// if the handle does not allow the query.
    pub(crate) fn parent(&self) -> Option<u32> {
        let mut basic = PROCESS_BASIC_INFORMATION::default();
        let bytes = size_of_u32::<PROCESS_BASIC_INFORMATION>();
        // SAFETY: the handle is open; a live struct, of the class that is named, and its size.
        let status = unsafe {
            NtQueryInformationProcess(
                self.handle.as_raw_handle(),
                ProcessBasicInformation,
                (&raw mut basic).cast::<c_void>(),
                bytes,
                std::ptr::null_mut(),
            )
        };
        let parent = u32::try_from(basic.InheritedFromUniqueProcessId).ok();
        parent.filter(|_| status >= 0)
    }

    /// Returns true if it is the host of a console: the system starts one for a program that gets a console
    /// of its own, as a child of that program, and ends it with the program.
    pub(crate) fn is_console_host(&self) -> bool {
        let mut name = [0; MAX_PATH as usize];
        let mut units = MAX_PATH;
        let process = self.handle.as_raw_handle();
        // SAFETY: the handle is open; a live buffer and its size.
        let ok = unsafe {
            QueryFullProcessImageNameW(
                process,
                PROCESS_NAME_WIN32,
                name.as_mut_ptr(),
                &raw mut units,
            )
        };
        let name = name.get(..units as usize).unwrap_or_default();
        ok != 0 && ends_with(name, r"\conhost.exe")
    }

    /// Kills the process. Returns false if it has ended already, or is about to.
    pub(crate) fn kill(&self) -> io::Result<bool> {
        if self.has_ended() {
            return Ok(false);
        }
        // SAFETY: the handle is open.
        if unsafe { TerminateProcess(self.handle.as_raw_handle(), KILLED) } != 0 {
            return Ok(true);
        }
        let error = io::Error::last_os_error();
        let mut code = 0;
        // SAFETY: the handle is open, the number is live.
        let ok = unsafe { GetExitCodeProcess(self.handle.as_raw_handle(), &raw mut code) } != 0;
        if self.has_ended() || is_about_to_end(&error, self.may_kill, ok.then_some(code)) {
            return Ok(false);
        }
        Err(error)
    }
}

impl AsHandle for ProcessObject {
    fn as_handle(&self) -> BorrowedHandle<'_> {
        self.handle.as_handle()
    }
}

/// Creates the error for a signal that cannot be sent.
pub(crate) fn unsupported(signal: Signal, reason: &str) -> io::Error {
    let message = format!("{signal} cannot be sent to this process: {reason}");
    io::Error::new(io::ErrorKind::Unsupported, message)
}

fn open(pid: u32, access: u32) -> io::Result<ProcessObject> {
    // SAFETY: numbers.
    let handle = unsafe { OpenProcess(access, 0, pid) };
    if handle.is_null() {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: made by the call above, and owned nowhere else.
    let handle = unsafe { OwnedHandle::from_raw_handle(handle) };
    Ok(ProcessObject { handle, may_kill: access & PROCESS_TERMINATE != 0 })
}

/// Returns true if the error of a kill means that the process is being torn down, which takes long for a
/// process with much memory or with a stuck write. A missing right gives the same error.
fn is_about_to_end(error: &io::Error, may_kill: bool, code: Option<u32>) -> bool {
    const STILL_ACTIVE: u32 = 259;
    let is_denied = error.raw_os_error() == Some(ERROR_ACCESS_DENIED as i32);
    is_denied && (may_kill || code.is_some_and(|code| code != STILL_ACTIVE))
}

fn is_error<T>(result: &io::Result<T>, code: u32) -> bool {
    result.as_ref().is_err_and(|error| error.raw_os_error() == Some(code as i32))
}

#[cfg(test)]
mod tests {
    use super::*;
    use windows_sys::Win32::Foundation::ERROR_INVALID_HANDLE;

    #[test]
    fn a_denied_kill_means_ending_unless_the_right_is_missing() {
        let denied = io::Error::from_raw_os_error(ERROR_ACCESS_DENIED as i32);
        // A child, whatever its code is by then.
        assert!(is_about_to_end(&denied, true, Some(259)));
        assert!(is_about_to_end(&denied, true, None));
        // Another program's process, which has its code as soon as it is being torn down.
        assert!(is_about_to_end(&denied, false, Some(1)));
        assert!(!is_about_to_end(&denied, false, Some(259)));
        assert!(!is_about_to_end(&denied, false, None));
        let other = io::Error::from_raw_os_error(ERROR_INVALID_HANDLE as i32);
        assert!(!is_about_to_end(&other, true, Some(1)));
    }

    #[test]
    fn a_child_is_killed_again_and_again() {
        let mut child = std::process::Command::new("cmd").args(["/c", "pause"]).spawn().unwrap();
        let opened = ProcessObject::open(child.id()).unwrap().unwrap();
        assert!(opened.may_kill && opened.kill().unwrap());
        for _ in 0..100 {
            // An error here would lose the output of a run.
            opened.kill().unwrap();
        }
        child.wait().unwrap();
        assert!(!opened.kill().unwrap());
    }
}
