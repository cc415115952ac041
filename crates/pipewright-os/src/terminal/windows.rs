//! Windows has no job control: no terminal is ever ours to give.

use crate::handle::Handle;

pub(super) fn terminal() -> Option<Handle> {
    None
}

pub(super) fn own_group() -> u32 {
    // That of nobody.
    0
}

pub(super) fn group_in_front(_: &Handle) -> Option<u32> {
    None
}

pub(super) fn put_in_front(_: &Handle, _: u32) {
    // There is nothing to put in front.
}

pub(super) fn stop_this_process() {
    // Nobody could continue it.
}
