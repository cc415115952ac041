//! Unix opens no dialogs.

pub(super) fn disable_dialogs() {
    // There is none.
}
