//! `/dev/tty` and job control.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::OpenOptionsExt as _;

use rustix::process::Pid;
use rustix::termios::{tcgetpgrp, tcsetpgrp};

use crate::base::handle::Handle;
use crate::base::signal::{AllBlocked, Signal};

pub(super) fn terminal() -> Option<Handle> {
    open_terminal().ok().map(Handle::from)
}

pub(super) fn is_controlling() -> bool {
    open_terminal().err().and_then(|error| error.raw_os_error()) != Some(libc::ENXIO)
}

fn open_terminal() -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).custom_flags(libc::O_NOCTTY);
    options.open("/dev/tty")
}

pub(super) fn own_group() -> u32 {
    rustix::process::getpgrp().as_raw_nonzero().get() as u32
}

pub(super) fn foreground_group(terminal: &Handle) -> Option<u32> {
    tcgetpgrp(terminal).ok().map(|group| group.as_raw_nonzero().get() as u32)
}

pub(super) fn set_foreground_group(terminal: &Handle, group: u32) {
    if let Some(group) = i32::try_from(group).ok().and_then(Pid::from_raw) {
        let _blocked = AllBlocked::new();
        // Ignored: the group has ended, or the terminal has hung up.
        let _ = tcsetpgrp(terminal, group);
    }
}

pub(super) fn stop_this_process() {
    Signal::TSTP.raise();
}

pub(super) fn columns(stream: &impl AsFd) -> Option<usize> {
    rustix::termios::tcgetwinsize(stream).ok().map(|size| size.ws_col.into())
}
