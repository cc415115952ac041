//! [`std::process`] in std's exact shape.
//!
//! Change `use std::process` to `use pipewright::process`, and `std::os::unix::process` to
//! `pipewright::process::unix`, and a program compiles as before: names, signatures, fields and traits
//! are std's. The types that others exchange are std's own: [`ExitStatus`], [`Output`],
//! [`ChildStdin`], [`ChildStdout`], [`ChildStderr`], [`ExitCode`].
//!
//! ```
//! use pipewright::process::{Command, Output, Stdio};
//! use std::io;
//!
//! fn version(program: &str) -> io::Result<String> {
//!     let Output { status, stdout, .. } = Command::new(program)
//!         .arg("--version")
//!         .stderr(Stdio::inherit())
//!         .output()?;
//!     if !status.success() {
//!         return Err(io::Error::other(status.to_string()));
//!     }
//!     Ok(String::from_utf8_lossy(&stdout).into_owned())
//! }
//! # version("rustc").or_else(|_| version("ls"))?;
//! # Ok::<(), io::Error>(())
//! ```
//!
//! # Everything else
//! [`Command::extended`] borrows the [`pipewright::Command`](crate::Command) inside, with timeouts, trees and
//! limits; `status`, `output` and `spawn` then honour what was set there. `From` converts
//! commands and children both ways.
//!
//! ```
//! use pipewright::process::Command;
//! use std::time::Duration;
//!
//! let mut command = Command::new("sleep");
//! command.arg("60").extended().timeout(Duration::from_millis(50));
//! assert!(!command.status()?.success());
//! # Ok::<(), std::io::Error>(())
//! ```
//!
//! # Errors
//! Every call returns [`std::io::Error`], with the [`kind`](std::io::Error::kind) that std's would have. Inside
//! is a [`pipewright::Error`](crate::Error), which prints what was searched and what was missing:
//!
//! ```
//! use pipewright::process::Command;
//! let error = Command::new("no-such-program").spawn().unwrap_err();
//! assert_eq!(error.kind(), std::io::ErrorKind::NotFound);
//! let inside = error.get_ref().and_then(|inside| inside.downcast_ref::<pipewright::Error>());
//! assert!(inside.unwrap().raw_os_error().is_some());
//! ```
//!
//! An [`std::io::Error`] either contains an error or is a number of the system; none is both. So its
//! [`raw_os_error`](std::io::Error::raw_os_error) is `None` here, and the number is that of
//! the error inside. The error of a `pre_exec` closure is the exception: it is the number that
//! the closure returned, and nothing else.
//!
//! # Differences from std
//! * An error contains a [`pipewright::Error`](crate::Error), and so has other words and no
//!   `raw_os_error` of its own.
//! * A [`Child`] that is dropped without a wait does not become a zombie: a background thread
//!   reaps it. Other code must not wait for its number.
//! * A program file that another process still writes to (`ETXTBSY`) is tried again for 127 ms.
//! * A script without `#!` is never given to `/bin/sh`. Std does so where it forks (a user, a group or a closure is set, or
//!   `PATH` is changed), and else does not.
//! * [`Command::status`] drains and discards streams that are piped, where std's child waits for ever once
//!   the pipe is full.
//! * `exec` with a piped stream is an error; std drops the other end of the pipe.
//! * [`Child`] takes one more handle, a pidfd, while it is not dropped (Linux).
//! * `before_exec` is `unsafe` in every edition.
//! * Windows: a program is also found by the extensions in `PATHEXT`, a cleared environment keeps `SystemRoot`, and
//!   [`Child`] does not convert to an `OwnedHandle` (it has `AsHandle` and `AsRawHandle`).
//! * The unstable methods of std are missing; most are methods of [`Command::extended`].
//!
//! What another crate takes by `&mut std::process::Command`, or by a trait of its own for that type, has to be ported as
//! well.
//!
//! # Platform
//! Linux: a command with a user or groups is not forked, as it is by std; one with a `pre_exec` closure is.
//! macOS: as std, a command with any of these is forked. Windows: `unix` is not there, and
//! `windows` has the traits of `std::os::windows::process`.

mod child;
mod command;

pub use child::Child;
pub use command::Command;

pub use crate::command::{CommandArgs, CommandEnvs};
pub use pipewright_os::process::std_process::Stdio;
pub use pipewright_os::process::std_process::platform::*;
pub use std::process::{
    ChildStderr, ChildStdin, ChildStdout, ExitCode, ExitStatus, Output, Termination, abort, exit,
    id,
};
