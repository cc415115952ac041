//! What a puppet can do on Windows only, or does otherwise there.

use std::fs;
use std::io;
use std::os::windows::io::AsHandle as _;

use pipewright_os::signal::{Caught, Signal};

/// What comes before everything else.
pub(crate) fn begin() {
    pipewright_tests::alive::hold_marks();
}

/// Does one thing.
pub(crate) fn perform(name: &str, value: &str) -> io::Result<()> {
    match name {
        "ignore" => ignore(value),
        // There are no sessions: who loses its parent belongs to nobody, and has got away.
        "session" => Ok(()),
        "modes" => modes(),
        other => Err(io::Error::other(format!("no act is called {other}"))),
    }
}

/// Our stdin without the buffer that std puts before it.
pub(crate) fn unbuffered_stdin() -> io::Result<fs::File> {
    io::stdin().as_handle().try_clone_to_owned().map(fs::File::from)
}

/// From here on Ctrl-C and Ctrl-Break are taken by nobody.
fn ignore(name: &str) -> io::Result<()> {
    let signal: Signal = name.parse().map_err(io::Error::other)?;
    Caught::new(&[signal, Signal::INT, Signal::QUIT]).map(std::mem::forget)
}

/// Whether each standard handle blocks, a line each.
fn modes() -> io::Result<()> {
    todo!()
}
