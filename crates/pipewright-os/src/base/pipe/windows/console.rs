//! Reads of a console that do not block.
//!
//! The handle of a console is signalled while there are records of input, and most of them are no text: keys that go
//! up, the focus, the size of the window. `ReadFile` waits for text whatever the handle says, and then no deadline
//! holds. So the records are taken one by one (`ReadConsoleInputW`), as a terminal sends them: in raw mode every key is
//! text (`ENABLE_VIRTUAL_TERMINAL_INPUT`).
//!
//! While the console edits lines, the text exists once Enter is typed; until then it is left there.

use std::io;
use std::os::windows::io::{AsRawHandle as _, BorrowedHandle};
use std::ptr;
use std::sync::{Mutex, PoisonError};

use windows_sys::Win32::System::Console::{
    ENABLE_LINE_INPUT, GetConsoleMode, GetNumberOfConsoleInputEvents, INPUT_RECORD, KEY_EVENT,
    KEY_EVENT_RECORD, PeekConsoleInputW, ReadConsoleInputW, ReadConsoleW,
};

use crate::base::pipe::console_text::Keys;

/// The records that are looked at in one call.
const RECORDS: usize = 128;

/// The key that gives a character which was typed by its number, when it goes up (`VK_MENU`).
const ALT: u16 = 0x12;
const ENTER: u16 = 0x0d;
/// The character that ends the input at the beginning of a line (Ctrl-Z).
const END_OF_INPUT: u8 = 0x1a;

/// The text that was taken and is not read yet.
#[derive(Debug, Default)]
pub(super) struct ConsoleInput(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    keys: Keys,
    text: Vec<u8>,
}

/// Returns true if the handle is that of a console's input.
pub(super) fn is_console(handle: BorrowedHandle<'_>) -> bool {
    let mut count = 0;
    // SAFETY: an open handle and a live number.
    unsafe { GetNumberOfConsoleInputEvents(handle.as_raw_handle(), &raw mut count) != 0 }
}

impl ConsoleInput {
    /// Reads what was typed. `None`: there is nothing yet, and the call does not wait.
    ///
    /// # Safety
    /// `to` points to that many bytes of live memory that nothing else uses.
    pub(super) unsafe fn read(
        &self,
        console: BorrowedHandle<'_>,
        to: *mut u8,
        room: usize,
        waits: bool,
    ) -> Option<io::Result<usize>> {
        // Text, which is consistent at any time.
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        while state.text.is_empty() {
            let is_line = edits_lines(console);
            let taken = match is_line {
                true => state.take_line(console, waits),
                false => state.take_keys(console, waits),
            };
            match taken {
                Ok(true) if is_line && state.text.first() == Some(&END_OF_INPUT) => {
                    state.text.clear();
                    return Some(Ok(0));
                }
                Ok(true) => {}
                Ok(false) => return None,
                Err(error) => return Some(Err(error)),
            }
        }
        let count = room.min(state.text.len());
        // SAFETY: promised by the caller; so much text is there.
        unsafe { ptr::copy_nonoverlapping(state.text.as_ptr(), to, count) };
        state.text.drain(..count);
        Some(Ok(count))
    }
}

impl State {
    /// Takes the records that are there. Returns false if there are none, and the call does not wait.
    fn take_keys(&mut self, console: BorrowedHandle<'_>, waits: bool) -> io::Result<bool> {
        if !waits && events(console)? == 0 {
            return Ok(false);
        }
        let mut records = [INPUT_RECORD::default(); RECORDS];
        let mut count = 0;
        // SAFETY: an open handle, room for that many records, and a live number. It waits if there is no record.
        let read = unsafe {
            let to = records.as_mut_ptr();
            ReadConsoleInputW(console.as_raw_handle(), to, RECORDS as u32, &raw mut count)
        };
        if read == 0 {
            return Err(io::Error::last_os_error());
        }
        for key in records.iter().take(count as usize).filter_map(key) {
            // SAFETY: plain numbers, whichever member was written.
            let unit = unsafe { key.uChar.UnicodeChar };
            let is_text = key.bKeyDown != 0 || key.wVirtualKeyCode == ALT;
            for _ in 0..if is_text && unit != 0 { key.wRepeatCount.max(1) } else { 0 } {
                self.keys.push(unit, &mut self.text);
            }
        }
        Ok(true)
    }

    /// Takes a line. Returns false if its Enter was not typed, and the call does not wait.
    fn take_line(&mut self, console: BorrowedHandle<'_>, waits: bool) -> io::Result<bool> {
        if !waits && !has_line(console)? {
            return Ok(false);
        }
        let mut units = [0_u16; 4096];
        let mut count = 0;
        // SAFETY: an open handle, room for that many units, a live number, and no control.
        let read = unsafe {
            let to = units.as_mut_ptr().cast();
            ReadConsoleW(
                console.as_raw_handle(),
                to,
                units.len() as u32,
                &raw mut count,
                ptr::null(),
            )
        };
        if read == 0 {
            return Err(io::Error::last_os_error());
        }
        for unit in units.iter().take(count as usize) {
            self.keys.push(*unit, &mut self.text);
        }
        Ok(true)
    }
}

/// Returns the key of a record, if it is about a key.
fn key(record: &INPUT_RECORD) -> Option<KEY_EVENT_RECORD> {
    match u32::from(record.EventType) {
        // SAFETY: the kind says which member was written.
        KEY_EVENT => Some(unsafe { record.Event.KeyEvent }),
        _ => None,
    }
}

/// Returns true if a read finds a whole line. One look takes a limited number of records: there may be no Enter among
/// them, and then the read waits for it.
fn has_line(console: BorrowedHandle<'_>) -> io::Result<bool> {
    let mut records = [INPUT_RECORD::default(); RECORDS];
    let mut count = 0;
    // SAFETY: an open handle, room for that many records, and a live number.
    let peeked = unsafe {
        let to = records.as_mut_ptr();
        PeekConsoleInputW(console.as_raw_handle(), to, RECORDS as u32, &raw mut count)
    };
    if peeked == 0 {
        return Err(io::Error::last_os_error());
    }
    let is_enter = |key: KEY_EVENT_RECORD| key.bKeyDown != 0 && key.wVirtualKeyCode == ENTER;
    let typed = records.iter().take(count as usize).filter_map(key).any(is_enter);
    Ok(typed || count as usize == RECORDS)
}

fn events(console: BorrowedHandle<'_>) -> io::Result<u32> {
    let mut count = 0;
    // SAFETY: an open handle and a live number.
    let ok = unsafe { GetNumberOfConsoleInputEvents(console.as_raw_handle(), &raw mut count) };
    if ok == 0 { Err(io::Error::last_os_error()) } else { Ok(count) }
}

/// Returns true while the console edits lines: text is there after Enter only.
pub(super) fn edits_lines(console: BorrowedHandle<'_>) -> bool {
    let mut mode = 0;
    // SAFETY: an open handle and a live number.
    let ok = unsafe { GetConsoleMode(console.as_raw_handle(), &raw mut mode) };
    ok != 0 && mode & ENABLE_LINE_INPUT != 0
}

#[cfg(test)]
mod tests {
    use std::fs::OpenOptions;
    use std::os::windows::io::{AsHandle as _, OwnedHandle};
    use std::time::{Duration, Instant};

    use windows_sys::Win32::System::Console::{
        AllocConsole, FOCUS_EVENT, SetConsoleMode, WriteConsoleInputW,
    };

    use super::*;
    use crate::base::pipe::PipeReader;
    use crate::base::skipped::{Need, skipped};
    use crate::base::wait::{self, Slot};

    fn key_of(unit: u16, code: u16, is_down: bool) -> INPUT_RECORD {
        let mut record = INPUT_RECORD { EventType: KEY_EVENT as u16, ..Default::default() };
        let mut key = KEY_EVENT_RECORD {
            bKeyDown: i32::from(is_down),
            wRepeatCount: 1,
            wVirtualKeyCode: code,
            ..Default::default()
        };
        key.uChar.UnicodeChar = unit;
        record.Event.KeyEvent = key;
        record
    }

    fn give(console: BorrowedHandle<'_>, records: &[INPUT_RECORD]) {
        let mut count = 0;
        // SAFETY: an open handle, and live records.
        let given = unsafe {
            let (from, length) = (records.as_ptr(), records.len() as u32);
            WriteConsoleInputW(console.as_raw_handle(), from, length, &raw mut count)
        };
        assert!(given != 0, "{}", io::Error::last_os_error());
    }

    fn wait_for(reader: PipeReader, ms: u64) -> Slot<'static> {
        let mut slots = [Slot::Read(reader, Vec::with_capacity(64))];
        let until = Instant::now() + Duration::from_millis(ms);
        wait::any(&mut slots, Some(until)).unwrap();
        let [slot] = slots;
        slot
    }

    #[test]
    fn a_wait_for_a_console_holds_its_deadline_and_finds_each_key() {
        // SAFETY: no arguments. Ignored: there is one already.
        unsafe { AllocConsole() };
        let opened = OpenOptions::new().read(true).write(true).open("CONIN$");
        let console = match opened {
            Ok(console) => OwnedHandle::from(console),
            Err(error) => return skipped(Need::Windows, format!("there is no console: {error}")),
        };
        assert!(is_console(console.as_handle()));
        // SAFETY: an open handle and a number: raw.
        assert!(unsafe { SetConsoleMode(console.as_raw_handle(), 0) } != 0);
        let mut reader = PipeReader::from(console.try_clone().unwrap());
        // Keys that go up, and the focus, are no text: the wait goes on to its deadline.
        let focus = INPUT_RECORD { EventType: FOCUS_EVENT as u16, ..Default::default() };
        give(console.as_handle(), &[focus, key_of(0x61, 0x41, false)]);
        reader = match wait_for(reader, 20) {
            Slot::Read(reader, _) => reader,
            other => panic!("{other:?}"),
        };
        let text: Vec<u16> = "x\u{1f600}\u{e9}".encode_utf16().collect();
        let typed: Vec<_> = text.iter().map(|unit| key_of(*unit, 0, true)).collect();
        give(console.as_handle(), &typed);
        match wait_for(reader, 60_000) {
            Slot::ReadDone(_, bytes, result) => {
                assert_eq!(result.unwrap(), bytes.len());
                assert_eq!(String::from_utf8(bytes).unwrap(), "x\u{1f600}\u{e9}");
            }
            other => panic!("{other:?}"),
        }
    }
}
