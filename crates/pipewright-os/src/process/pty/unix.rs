//! A pseudo-terminal as two open files.

use std::io;
use std::os::fd::{AsFd as _, AsRawFd as _, OwnedFd, RawFd};

use rustix::fs::OFlags;
use rustix::termios::{
    LocalModes, OptionalActions, SpecialCodeIndex, Winsize, tcgetattr, tcgetwinsize, tcsetattr,
    tcsetwinsize,
};

#[cfg(target_os = "linux")]
use super::linux as system;
#[cfg(target_os = "macos")]
use super::macos as system;
use super::{OpenError, OpenProblem, PtySize};
use crate::base::handle::Handle;
use crate::base::pipe::{NonblockMethod, PipeReader, PipeWriter};

pub(super) type Pty = OwnedFd;
pub(crate) type ChildTerminal = Handle;

/// The characters of a terminal whose program has switched them off.
const CTRL_C: u8 = 3;
const CTRL_D: u8 = 4;

pub(super) fn open(size: PtySize) -> Result<(Pty, ChildTerminal), OpenError> {
    let (ours, theirs) = system::open()?;
    let other = |error| OpenError::new(OpenProblem::Other, error);
    system::set_nonblocking(ours.as_fd()).map_err(other)?;
    resize(&ours, size).map_err(other)?;
    Ok((ours, Handle::from(theirs)))
}

pub(super) fn try_clone(pty: &Pty) -> io::Result<Pty> {
    pty.try_clone()
}

pub(super) fn reader(pty: &Pty) -> io::Result<PipeReader> {
    Ok(PipeReader::with_method(pty.try_clone()?, NonblockMethod::Terminal))
}

pub(super) fn writer(pty: &Pty) -> io::Result<PipeWriter> {
    Ok(PipeWriter::with_method(pty.try_clone()?, NonblockMethod::Terminal))
}

pub(super) fn make_nonblocking(pty: &Pty) -> io::Result<()> {
    let flags = rustix::fs::fcntl_getfl(pty)?;
    Ok(rustix::fs::fcntl_setfl(pty, flags | OFlags::NONBLOCK)?)
}

pub(super) fn resize(pty: &Pty, size: PtySize) -> io::Result<()> {
    let size = Winsize { ws_row: size.rows, ws_col: size.cols, ws_xpixel: 0, ws_ypixel: 0 };
    Ok(tcsetwinsize(pty, size)?)
}

pub(super) fn window_size(pty: &Pty) -> io::Result<PtySize> {
    let size = tcgetwinsize(pty)?;
    Ok(PtySize { rows: size.ws_row, cols: size.ws_col })
}

pub(super) fn set_echo(pty: &Pty, enabled: bool) -> io::Result<()> {
    let mut settings = tcgetattr(pty)?;
    settings.local_modes.set(LocalModes::ECHO, enabled);
    Ok(tcsetattr(pty, OptionalActions::Now, &settings)?)
}

pub(super) fn echoes(pty: &Pty) -> io::Result<bool> {
    Ok(tcgetattr(pty)?.local_modes.contains(LocalModes::ECHO))
}

pub(super) fn send_eof(pty: &Pty) -> io::Result<()> {
    send_special(pty, SpecialCodeIndex::VEOF, CTRL_D)
}

/// Only the terminals of the BSDs show the character.
pub(super) fn send_eof_unseen(pty: &Pty) -> io::Result<()> {
    if cfg!(target_os = "linux") { send_eof(pty) } else { without_echo(pty, send_eof) }
}

/// Sends without an echo, for a terminal that echoes in the call that writes.
fn without_echo(pty: &Pty, send: fn(&Pty) -> io::Result<()>) -> io::Result<()> {
    let echoed = echoes(pty)?;
    set_echo(pty, false)?;
    let sent = send(pty);
    set_echo(pty, echoed)?;
    sent
}

pub(super) fn send_interrupt(pty: &Pty) -> io::Result<()> {
    send_special(pty, SpecialCodeIndex::VINTR, CTRL_C)
}

/// Types a character that has a meaning for the terminal.
fn send_special(pty: &Pty, index: SpecialCodeIndex, usual: u8) -> io::Result<()> {
    // 0 is a character that is switched off (_POSIX_VDISABLE).
    let code = match tcgetattr(pty)?.special_codes[index] {
        0 => usual,
        code => code,
    };
    match PipeWriter::with_method(pty.try_clone()?, NonblockMethod::Terminal).try_write(&[code])? {
        0 => Err(io::ErrorKind::WriteZero.into()),
        _ => Ok(()),
    }
}

pub(super) fn number(pty: &Pty) -> RawFd {
    pty.as_raw_fd()
}

pub(super) fn give_to_user(terminal: &ChildTerminal, user: u32) -> io::Result<()> {
    Ok(rustix::fs::fchown(terminal, Some(rustix::fs::Uid::from_raw(user)), None)?)
}

pub(super) fn handle(terminal: &ChildTerminal) -> Option<&Handle> {
    Some(terminal)
}

pub(super) fn hold(terminal: ChildTerminal, pty: Pty) -> ChildTerminal {
    drop(pty);
    terminal
}

pub(super) fn release(terminal: ChildTerminal) -> Option<ChildTerminal> {
    drop(terminal);
    None
}

#[cfg(all(test, target_os = "macos"))]
mod tests {
    use super::*;

    /// Not on Linux, where the terminal echoes some time after the write, with the modes of that moment.
    #[test]
    fn what_is_sent_without_echo_is_not_shown_and_the_echo_is_back_afterwards() {
        let (pty, theirs) = open(PtySize::default()).unwrap();
        let send = |pty: &Pty| writer(pty)?.try_write(b"typed").map(drop);
        without_echo(&pty, send).unwrap();
        send_eof_unseen(&pty).unwrap();
        assert!(echoes(&pty).unwrap());
        // The first bytes that the terminal shows, the echo of ours among them, if there was one.
        rustix::io::write(&theirs, b"shown").unwrap();
        let mut shown = Vec::with_capacity(64);
        reader(&pty).unwrap().read_spare(&mut shown).unwrap();
        assert_eq!(shown, b"shown");
    }
}
