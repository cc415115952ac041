//! Windows has no job control: no terminal has a foreground job.

use std::os::windows::io::AsRawHandle;

use windows_sys::Win32::System::Console::{CONSOLE_SCREEN_BUFFER_INFO, GetConsoleScreenBufferInfo};

use crate::base::handle::Handle;

pub(super) fn terminal() -> Option<Handle> {
    None
}

pub(super) fn is_controlling() -> bool {
    false
}

pub(super) fn own_group() -> u32 {
    // No group has this number.
    0
}

pub(super) fn foreground_group(_: &Handle) -> Option<u32> {
    None
}

pub(super) fn set_foreground_group(_: &Handle, _: u32) {
    // Windows has no foreground job.
}

pub(super) fn stop_this_process() {
    // No process could continue it.
}

pub(super) fn columns(stream: &impl AsRawHandle) -> Option<usize> {
    let mut screen = CONSOLE_SCREEN_BUFFER_INFO::default();
    let stream = stream.as_raw_handle();
    // SAFETY: a live struct; a stream that is not a console, or does not exist, is an error of the call.
    let ok = unsafe { GetConsoleScreenBufferInfo(stream, &raw mut screen) };
    let columns = i32::from(screen.srWindow.Right) - i32::from(screen.srWindow.Left) + 1;
    (ok != 0).then(|| usize::try_from(columns).ok()).flatten()
}
