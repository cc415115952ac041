//! Affinity masks of the processor group of this process.

use std::io;

use windows_sys::Win32::System::Threading::{
    GetCurrentProcess, GetCurrentThread, GetProcessAffinityMask, SetThreadAffinityMask,
};

pub(super) fn allowed() -> io::Result<Vec<usize>> {
    let (mut own, mut system) = (0, 0);
    // SAFETY: no arguments; a pseudo handle, which is never closed.
    let process = unsafe { GetCurrentProcess() };
    // SAFETY: two live integers.
    if unsafe { GetProcessAffinityMask(process, &raw mut own, &raw mut system) } == 0 {
        return Err(io::Error::last_os_error());
    }
    Ok((0..usize::BITS as usize).filter(|processor| own >> processor & 1 == 1).collect())
}

pub(super) fn pin_this_thread(processor: usize) -> io::Result<()> {
    let shift = u32::try_from(processor).map_err(|_| io::ErrorKind::InvalidInput)?;
    let mask = 1_usize.checked_shl(shift).ok_or(io::ErrorKind::InvalidInput)?;
    // SAFETY: no arguments; a pseudo handle, which is never closed.
    let thread = unsafe { GetCurrentThread() };
    // SAFETY: an open handle and an integer.
    match unsafe { SetThreadAffinityMask(thread, mask) } {
        0 => Err(io::Error::last_os_error()),
        _ => Ok(()),
    }
}

pub(super) fn same_core(_: usize) -> Option<Vec<usize>> {
    // GetLogicalProcessorInformation could report it; no caller has needed it so far.
    None
}

pub(super) fn online() -> usize {
    std::thread::available_parallelism().map_or(1, std::num::NonZero::get)
}
