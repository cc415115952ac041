//! Windows has no job control: no terminal has a foreground job.

use std::io;
use std::os::windows::io::AsRawHandle;

use windows_sys::Win32::Globalization::CP_UTF8;
use windows_sys::Win32::System::Console::{
    CONSOLE_MODE, CONSOLE_SCREEN_BUFFER_INFO, ENABLE_ECHO_INPUT, ENABLE_LINE_INPUT,
    ENABLE_PROCESSED_INPUT, ENABLE_VIRTUAL_TERMINAL_INPUT, ENABLE_VIRTUAL_TERMINAL_PROCESSING,
    GetConsoleMode, GetConsoleOutputCP, GetConsoleScreenBufferInfo, SetConsoleMode,
    SetConsoleOutputCP,
};

use crate::base::handle::Handle;
use crate::process::pty::PtySize;

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

pub(super) fn wait_for_foreground() {
    // Windows has no foreground job.
}

pub(super) fn is_shared() -> bool {
    false
}

pub(super) fn stop_this_process() {
    // No process could continue it.
}

pub(super) fn columns(stream: &impl AsRawHandle) -> Option<usize> {
    window(stream).and_then(|(columns, _)| usize::try_from(columns).ok())
}

pub(super) fn size() -> Option<PtySize> {
    let (columns, rows) = window(&io::stdout())?;
    Some(PtySize { rows: u16::try_from(rows).ok()?, cols: u16::try_from(columns).ok()? })
}

/// Returns the columns and rows of the window.
fn window(stream: &impl AsRawHandle) -> Option<(i32, i32)> {
    let mut screen = CONSOLE_SCREEN_BUFFER_INFO::default();
    let stream = stream.as_raw_handle();
    // SAFETY: a live struct; a stream that is not a console, or does not exist, is an error of the call.
    let ok = unsafe { GetConsoleScreenBufferInfo(stream, &raw mut screen) };
    let length = |from: i16, to: i16| i32::from(to) - i32::from(from) + 1;
    let window = screen.srWindow;
    (ok != 0).then(|| (length(window.Left, window.Right), length(window.Top, window.Bottom)))
}

pub(super) const RESTORE_SCRIPT: Option<&str> = None;

/// The modes of stdin and stdout before.
#[derive(Debug)]
pub(super) struct RawMode {
    input: CONSOLE_MODE,
    output: Option<CONSOLE_MODE>,
}

impl RawMode {
    pub(super) fn of_stdin() -> io::Result<Option<RawMode>> {
        let Some(input) = mode(&io::stdin()) else { return Ok(None) };
        let output = mode(&io::stdout());
        let cooked = ENABLE_ECHO_INPUT | ENABLE_LINE_INPUT | ENABLE_PROCESSED_INPUT;
        set_mode(&io::stdin(), (input & !cooked) | ENABLE_VIRTUAL_TERMINAL_INPUT)?;
        let before = RawMode { input, output };
        if let Some(output) = output {
            set_mode(&io::stdout(), output | ENABLE_VIRTUAL_TERMINAL_PROCESSING)?;
        }
        Ok(Some(before))
    }

    pub(super) fn is_set(&self) -> bool {
        // Nothing stops this process while another one sets its modes.
        true
    }
}

impl Drop for RawMode {
    fn drop(&mut self) {
        // Ignored: the console has gone.
        let _ = set_mode(&io::stdin(), self.input);
        if let Some(output) = self.output {
            let _ = set_mode(&io::stdout(), output);
        }
    }
}

/// The mode and the code page of stdout before.
#[derive(Debug)]
pub(super) struct OutputMode {
    /// `None`: stdout is no console.
    before: Option<(CONSOLE_MODE, u32)>,
}

impl OutputMode {
    pub(super) fn of_stdout() -> OutputMode {
        let before = mode(&io::stdout()).map(|mode| {
            // SAFETY: no arguments.
            let code_page = unsafe { GetConsoleOutputCP() };
            // Ignored, here and below: an old console has no such mode, and shows the sequences.
            let _ = set_mode(&io::stdout(), mode | ENABLE_VIRTUAL_TERMINAL_PROCESSING);
            // SAFETY: a number.
            let _ = unsafe { SetConsoleOutputCP(CP_UTF8) };
            (mode, code_page)
        });
        OutputMode { before }
    }
}

impl Drop for OutputMode {
    fn drop(&mut self) {
        if let Some((mode, code_page)) = self.before {
            let _ = set_mode(&io::stdout(), mode);
            // SAFETY: a number.
            let _ = unsafe { SetConsoleOutputCP(code_page) };
        }
    }
}

fn mode(stream: &impl AsRawHandle) -> Option<CONSOLE_MODE> {
    let mut mode = 0;
    // SAFETY: a live number; a stream that is not a console, or does not exist, is an error of the call.
    let ok = unsafe { GetConsoleMode(stream.as_raw_handle(), &raw mut mode) };
    (ok != 0).then_some(mode)
}

fn set_mode(stream: &impl AsRawHandle, mode: CONSOLE_MODE) -> io::Result<()> {
    // SAFETY: takes a handle and a number; a stream that is not a console is an error of the call.
    match unsafe { SetConsoleMode(stream.as_raw_handle(), mode) } {
        0 => Err(io::Error::last_os_error()),
        _ => Ok(()),
    }
}
