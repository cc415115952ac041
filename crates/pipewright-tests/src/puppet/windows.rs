//! The acts of a puppet that only Windows has, or that work differently there.

use std::fs;
use std::io::{self, Write as _};
use std::os::windows::io::{AsHandle as _, AsRawHandle as _};

use pipewright_os::base::caught_signals::CaughtSignals;
use pipewright_os::base::signal::Signal;
use windows_sys::Wdk::Storage::FileSystem::{
    FILE_SYNCHRONOUS_IO_NONALERT, FileModeInformation, NtQueryInformationFile,
};
use windows_sys::Win32::System::IO::IO_STATUS_BLOCK;

/// Prepares the process before the first act.
pub(crate) fn begin() {
    pipewright_tests::alive::hold_marks();
}

/// Performs one act.
pub(crate) fn perform(name: &str, value: &str) -> io::Result<()> {
    match name {
        "ignore" => ignore(value),
        // There are no sessions: an orphan belongs to no process, and has escaped.
        "session" => Ok(()),
        "modes" => modes(),
        other => Err(io::Error::other(format!("unknown act: {other}"))),
    }
}

/// Returns stdin without the buffer of std.
pub(crate) fn unbuffered_stdin() -> io::Result<fs::File> {
    io::stdin().as_handle().try_clone_to_owned().map(fs::File::from)
}

/// Ignores Ctrl-C and Ctrl-Break from here on.
fn ignore(name: &str) -> io::Result<()> {
    let signal: Signal = name.parse().map_err(io::Error::other)?;
    CaughtSignals::new(&[signal, Signal::INT, Signal::QUIT]).map(std::mem::forget)
}

/// Prints whether each standard handle blocks, a line each.
fn modes() -> io::Result<()> {
    let handles =
        [io::stdin().as_raw_handle(), io::stdout().as_raw_handle(), io::stderr().as_raw_handle()];
    let mut text = String::new();
    for handle in handles {
        let (mut block, mut mode) = (IO_STATUS_BLOCK::default(), 0_u32);
        let (to, size) = ((&raw mut mode).cast(), 4);
        // SAFETY: the handle stays open as long as std uses it, the block is live, and this class
        // writes one number.
        let status = unsafe {
            NtQueryInformationFile(handle, &raw mut block, to, size, FileModeInformation)
        };
        let blocks = status >= 0 && mode & FILE_SYNCHRONOUS_IO_NONALERT != 0;
        text += if blocks { "blocking\n" } else { "overlapped\n" };
    }
    io::stdout().write_all(text.as_bytes())?;
    io::stdout().flush()
}
