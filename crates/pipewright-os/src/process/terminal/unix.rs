//! `/dev/tty` and job control.

use std::fs::{File, OpenOptions};
use std::io::{self, IsTerminal as _};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};

use rustix::process::Pid;
use rustix::termios::{
    LocalModes, OptionalActions, Termios, tcdrain, tcgetattr, tcgetpgrp, tcsetattr, tcsetpgrp,
};

use crate::base::generation::Generation;
use crate::base::handle::Handle;
use crate::base::signal::{AllBlocked, Signal};
use crate::process::pty::PtySize;

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

pub(super) fn foreground_group(terminal: impl AsFd) -> Option<u32> {
    tcgetpgrp(terminal).ok().map(|group| group.as_raw_nonzero().get() as u32)
}

pub(super) fn set_foreground_group(terminal: &Handle, group: u32) {
    if let Some(group) = i32::try_from(group).ok().and_then(Pid::from_raw) {
        let _blocked = AllBlocked::new();
        // Ignored: the group has ended, or the terminal has hung up.
        let _ = tcsetpgrp(terminal, group);
    }
}

pub(super) fn wait_for_foreground() {
    // Ignored, except for a handler's signal: no terminal, or an orphaned group, which nothing could continue.
    while tcdrain(io::stdin()) == Err(rustix::io::Errno::INTR) {}
}

pub(super) fn is_shared() -> bool {
    let null = || std::fs::metadata("/dev/null").ok().map(|null| null.rdev());
    let stdin = || {
        let stdin = File::from(io::stdin().as_fd().try_clone_to_owned().ok()?);
        stdin.metadata().ok().map(|stdin| stdin.rdev())
    };
    !io::stdout().is_terminal() || stdin().is_some_and(|stdin| null() == Some(stdin))
}

pub(super) fn stop_this_process() {
    Signal::TSTP.raise();
}

pub(super) fn columns(stream: &impl AsFd) -> Option<usize> {
    rustix::termios::tcgetwinsize(stream).ok().map(|size| size.ws_col.into())
}

pub(super) fn size() -> Option<PtySize> {
    let of = |stream: BorrowedFd<'_>| rustix::termios::tcgetwinsize(stream).ok();
    let size = of(io::stdin().as_fd()).or_else(|| of(io::stdout().as_fd()))?;
    Some(PtySize { rows: size.ws_row, cols: size.ws_col })
}

/// In the background, `stty` would be stopped by SIGTTOU.
pub(super) const RESTORE_SCRIPT: Option<&str> =
    Some("trap '' HUP INT QUIT TERM TSTP TTIN TTOU; read -r _; stty \"$0\" < /dev/tty");

/// Raw mode, until the drop.
#[derive(Debug)]
pub(super) struct RawMode {
    before: Termios,
    /// As the terminal has taken it.
    raw: Termios,
    /// The process that has set it: a fork does not restore it.
    made_in: Generation,
}

impl RawMode {
    pub(super) fn of_stdin() -> io::Result<Option<RawMode>> {
        let Ok(before) = tcgetattr(io::stdin()) else { return Ok(None) };
        let mut raw = before.clone();
        raw.make_raw();
        tcsetattr(io::stdin(), OptionalActions::Drain, &raw)?;
        let raw = tcgetattr(io::stdin())?;
        Ok(Some(RawMode { before, raw, made_in: Generation::current() }))
    }

    pub(super) fn is_set(&self) -> bool {
        // PENDIN: on BSDs a state, not a mode.
        let local = |of: &Termios| of.local_modes - LocalModes::PENDIN;
        let modes = |of: &Termios| (of.input_modes, of.output_modes, of.control_modes, local(of));
        tcgetattr(io::stdin()).is_ok_and(|now| modes(&now) == modes(&self.raw))
    }
}

impl Drop for RawMode {
    fn drop(&mut self) {
        if !self.made_in.is_current() {
            return;
        }
        let foreground = foreground_group(io::stdin());
        if foreground.is_some_and(|group| group != own_group()) && !self.is_set() {
            return;
        }
        let _blocked = AllBlocked::new();
        // Ignored: the terminal has hung up.
        let _ = tcsetattr(io::stdin(), OptionalActions::Now, &self.before);
    }
}

/// Nothing: a terminal obeys sequences.
#[derive(Debug)]
pub(super) struct OutputMode;

impl OutputMode {
    pub(super) fn of_stdout() -> OutputMode {
        OutputMode
    }
}
