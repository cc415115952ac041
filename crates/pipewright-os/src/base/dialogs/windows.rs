//! The error mode of the process.

use windows_sys::Win32::System::Diagnostics::Debug::{
    GetErrorMode, SEM_FAILCRITICALERRORS, SEM_NOGPFAULTERRORBOX, SEM_NOOPENFILEERRORBOX,
    SetErrorMode,
};

const NO_DIALOGS: u32 = SEM_FAILCRITICALERRORS | SEM_NOGPFAULTERRORBOX | SEM_NOOPENFILEERRORBOX;

pub(super) fn disable_dialogs() {
    // SAFETY: no arguments.
    let mode = unsafe { GetErrorMode() };
    // SAFETY: a number.
    unsafe { SetErrorMode(mode | NO_DIALOGS) };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_dialog_opens_afterwards() {
        super::super::disable_dialogs();
        // SAFETY: no arguments.
        assert_eq!(unsafe { GetErrorMode() } & NO_DIALOGS, NO_DIALOGS);
    }
}
