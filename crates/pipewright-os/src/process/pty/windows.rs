//! A pseudo-console: two pipes, and the process of the system between them and the child.
//!
//! Written against the documentation. Wine's `CreatePseudoConsole` succeeds and the child runs, but no byte reaches the
//! pipes, so only the start and the end of a child have run.

use std::io;
use std::mem;
use std::os::windows::io::AsRawHandle as _;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use windows_sys::Win32::Foundation::HANDLE;
use windows_sys::Win32::System::Console::{COORD, HPCON};
use windows_sys::Win32::System::LibraryLoader::{GetModuleHandleW, GetProcAddress};
use windows_sys::core::HRESULT;
use windows_sys::w;

use super::{OpenError, OpenProblem, PtySize};
use crate::base::handle::Handle;
use crate::base::pipe::{Mode, PipeOptions, PipeReader, PipeWriter, pair};
use crate::base::service_thread;

/// The keys that end the input of a program which reads lines from a console.
const END_OF_INPUT: &[u8] = b"\x1a\r";
const CTRL_C: &[u8] = b"\x03";

type Create = unsafe extern "system" fn(COORD, HANDLE, HANDLE, u32, *mut HPCON) -> HRESULT;
type Resize = unsafe extern "system" fn(HPCON, COORD) -> HRESULT;
type Close = unsafe extern "system" fn(HPCON);
type Release = unsafe extern "system" fn(HPCON) -> HRESULT;

/// This process's side.
///
/// # Drop
/// Closes the console before the pipes: until Windows 11 24H2 the call waits for the output to be read, or its pipe to
/// be closed, so it runs on a thread of its own.
pub(super) struct Pty {
    console: Arc<PseudoConsole>,
    reader: PipeReader,
    writer: PipeWriter,
}

/// A pseudo-console. Nothing tells whether a released one has ended, so it is closed by its owner in any case.
pub(crate) struct PseudoConsole {
    state: Mutex<State>,
    resize: Resize,
    close: Close,
    /// Windows 11 24H2 and later.
    release: Option<Release>,
}

struct State {
    /// `None` once it has been closed.
    console: Option<HPCON>,
    size: PtySize,
}

/// The owner of the console while the child runs.
///
/// # Drop
/// Closes the console: the reader finds the end after the last byte.
pub(crate) struct ChildTerminal {
    console: Arc<PseudoConsole>,
    closes: bool,
    /// Dropped after the console has been closed.
    input: Option<PipeWriter>,
}

pub(super) fn open(size: PtySize) -> Result<(Pty, ChildTerminal), OpenError> {
    let missing =
        || OpenError::new(OpenProblem::Missing, io::Error::from(io::ErrorKind::Unsupported));
    let other = |error| OpenError::new(OpenProblem::Other, error);
    let create = find(c"CreatePseudoConsole").ok_or_else(missing)?;
    let resize = find(c"ResizePseudoConsole").ok_or_else(missing)?;
    let close = find(c"ClosePseudoConsole").ok_or_else(missing)?;
    // SAFETY: the types of these functions, wherever they exist.
    let create: Create = unsafe { mem::transmute(create) };
    // SAFETY: as above.
    let resize: Resize = unsafe { mem::transmute(resize) };
    // SAFETY: as above.
    let close: Close = unsafe { mem::transmute(close) };
    let release = find(c"ReleasePseudoConsole").map(|found| {
        // SAFETY: as above.
        unsafe { mem::transmute::<Found, Release>(found) }
    });
    // The console's ends have to be synchronous.
    let (input, writer) =
        pair(PipeOptions { write: Mode::Async, ..Default::default() }).map_err(other)?;
    let (reader, output) =
        pair(PipeOptions { read: Mode::Async, ..Default::default() }).map_err(other)?;
    let (input, output) = (Handle::from(input), Handle::from(output));
    let mut console: HPCON = 0;
    // SAFETY: open handles, which the call duplicates, and a live place for the result.
    let made = unsafe {
        create(
            coordinates(size),
            input.as_raw_handle(),
            output.as_raw_handle(),
            0,
            &raw mut console,
        )
    };
    check(made).map_err(other)?;
    let state = Mutex::new(State { console: Some(console), size });
    let console = Arc::new(PseudoConsole { state, resize, close, release });
    let child = ChildTerminal { console: Arc::clone(&console), closes: true, input: None };
    let reader = reader.answering(writer.try_clone().map_err(other)?);
    Ok((Pty { console, reader, writer }, child))
}

type Found = unsafe extern "system" fn() -> isize;

/// Looks up a function of the system: not linked, because an older Windows lacks it.
fn find(name: &std::ffi::CStr) -> Option<Found> {
    // SAFETY: a name that ends with a zero.
    let kernel = unsafe { GetModuleHandleW(w!("kernel32.dll")) };
    // SAFETY: a module that stays loaded, and a name that ends with a zero.
    unsafe { GetProcAddress(kernel, name.as_ptr().cast()) }
}

fn coordinates(size: PtySize) -> COORD {
    let most = |value: u16| i16::try_from(value).unwrap_or(i16::MAX);
    COORD { X: most(size.cols), Y: most(size.rows) }
}

fn check(result: HRESULT) -> io::Result<()> {
    /// The facility of results that have a system error in their lower half (winerror.h).
    const FACILITY_WIN32: u32 = 7;
    if result >= 0 {
        return Ok(());
    }
    let bits = result as u32;
    let is_system_error = (bits >> 16) & 0x1fff == FACILITY_WIN32;
    let number = if is_system_error { (bits & 0xffff) as i32 } else { result };
    Err(io::Error::from_raw_os_error(number))
}

impl PseudoConsole {
    fn state(&self) -> MutexGuard<'_, State> {
        // Numbers, which are consistent at any time.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the console for the attributes of a child; `None` if it has been closed.
    pub(crate) fn number(&self) -> Option<HPCON> {
        self.state().console
    }

    fn close(&self) {
        let Some(console) = self.state().console.take() else { return };
        let close = self.close;
        // The call may wait for the reader, which may be this thread. Ignored: without a thread the console stays open
        // until this process ends, which is better than a hang.
        let _ = service_thread::start(c"pipewright-conpty", move || {
            // SAFETY: taken out above, so nothing else uses or closes it.
            unsafe { close(console) };
        });
    }
}

impl Drop for PseudoConsole {
    fn drop(&mut self) {
        self.close();
    }
}

impl ChildTerminal {
    pub(crate) fn console(&self) -> &PseudoConsole {
        &self.console
    }
}

impl Drop for ChildTerminal {
    fn drop(&mut self) {
        if self.closes {
            self.console.close();
        }
    }
}

pub(super) fn try_clone(pty: &Pty) -> io::Result<Pty> {
    let (reader, writer) = (pty.reader.try_clone()?, pty.writer.try_clone()?);
    Ok(Pty { console: Arc::clone(&pty.console), reader, writer })
}

pub(super) fn reader(pty: &Pty) -> io::Result<PipeReader> {
    pty.reader.try_clone()
}

pub(super) fn writer(pty: &Pty) -> io::Result<PipeWriter> {
    pty.writer.try_clone()
}

pub(super) fn resize(pty: &Pty, size: PtySize) -> io::Result<()> {
    let mut state = pty.console.state();
    let Some(console) = state.console else { return Err(io::ErrorKind::BrokenPipe.into()) };
    // SAFETY: an open console, which is not closed while the lock is held.
    check(unsafe { (pty.console.resize)(console, coordinates(size)) })?;
    state.size = size;
    Ok(())
}

pub(super) fn window_size(pty: &Pty) -> io::Result<PtySize> {
    Ok(pty.console.state().size)
}

pub(super) fn make_nonblocking(_: &Pty) -> io::Result<()> {
    Ok(())
}

pub(super) fn set_echo(_: &Pty, _: bool) -> io::Result<()> {
    Err(echo_is_the_programs())
}

pub(super) fn echoes(_: &Pty) -> io::Result<bool> {
    Err(echo_is_the_programs())
}

fn echo_is_the_programs() -> io::Error {
    let words = "on Windows only the program at a console controls its echo";
    io::Error::new(io::ErrorKind::Unsupported, words)
}

pub(super) fn send_eof(pty: &Pty) -> io::Result<()> {
    send(pty, END_OF_INPUT)
}

pub(super) fn send_eof_unseen(pty: &Pty) -> io::Result<()> {
    send_eof(pty)
}

pub(super) fn send_interrupt(pty: &Pty) -> io::Result<()> {
    send(pty, CTRL_C)
}

fn send(pty: &Pty, keys: &[u8]) -> io::Result<()> {
    match pty.writer.try_write(keys)? {
        count if count == keys.len() => Ok(()),
        _ => Err(io::ErrorKind::WouldBlock.into()),
    }
}

pub(super) fn number(pty: &Pty) -> isize {
    pty.console.number().unwrap_or_default()
}

pub(super) fn give_to_user(_: &ChildTerminal, _: u32) -> io::Result<()> {
    Ok(())
}

pub(super) fn handle(_: &ChildTerminal) -> Option<&Handle> {
    None
}

pub(super) fn hold(mut terminal: ChildTerminal, pty: Pty) -> ChildTerminal {
    terminal.input = Some(pty.writer);
    terminal
}

pub(super) fn release(mut terminal: ChildTerminal) -> Option<ChildTerminal> {
    let released = match (terminal.console.release, terminal.console.number()) {
        // SAFETY: an open console, which only this owner and the drop of its `Pty` close.
        (Some(release), Some(console)) => check(unsafe { release(console) }).is_ok(),
        _ => false,
    };
    if !released {
        return Some(terminal);
    }
    // It ends with its last process; its memory is freed with the `Pty`.
    terminal.closes = false;
    None
}
