//! [`std::process`] in std's exact shape.
//!
//! Change `use std::process` to `use pipewright::process`, and `std::os::unix::process` to
//! `pipewright::process::unix`, and a program compiles as before: names, signatures, fields and traits are std's.
//! The types that other crates exchange are std's own: [`ExitStatus`], [`Output`], [`ChildStdin`], [`ChildStdout`],
//! [`ChildStderr`], [`ExitCode`].
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
//! # Features that std lacks
//! [`Command::extended`] borrows the underlying [`pipewright::Command`](crate::Command), with timeouts, trees and
//! limits. `status`, `output` and `spawn` then apply the settings made there. `From` converts commands and children
//! both ways.
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
//! Every call returns [`std::io::Error`], with the [`kind`](std::io::Error::kind) that std's error would have. It
//! contains a [`pipewright::Error`](crate::Error), which has the directories searched and the missing file:
//!
//! ```
//! use pipewright::process::Command;
//! let error = Command::new("no-such-program").spawn().unwrap_err();
//! assert_eq!(error.kind(), std::io::ErrorKind::NotFound);
//! let inside = error.get_ref().and_then(|inside| inside.downcast_ref::<pipewright::Error>());
//! assert!(inside.unwrap().raw_os_error().is_some());
//! ```
//!
//! An [`std::io::Error`] holds either an error or an OS error number, never both. So its
//! [`raw_os_error`](std::io::Error::raw_os_error) is `None` here, and the number is in the error inside. The
//! exception is a failed `pre_exec` closure: its error is the number that the closure returned, and nothing else.
//!
//! # Differences from std
//! * An error contains a [`pipewright::Error`](crate::Error), so its text differs and it has no `raw_os_error` of
//!   its own.
//! * A [`Child`] dropped without a wait does not become a zombie: a background thread reaps it. Other code must not
//!   wait for its pid.
//! * If another process still writes to the program file (`ETXTBSY`), the start is retried for 127 ms.
//! * A script without `#!` is never run by `/bin/sh`. Std does that only where it forks (a user, a group or a
//!   closure is set, or `PATH` is changed).
//! * [`Command::status`] drains and discards piped streams; with std, the child blocks forever once the pipe is
//!   full.
//! * `exec` with a piped stream is an error; std drops the other end of the pipe.
//! * A [`Child`] holds one more handle, a pidfd, until it is dropped (Linux).
//! * `before_exec` is `unsafe` in every edition.
//! * Windows: a program is also found by the extensions in `PATHEXT`. A cleared environment keeps `SystemRoot`.
//!   [`Child`] does not convert to an `OwnedHandle` (it has `AsHandle` and `AsRawHandle`).
//! * The unstable methods of std are missing; [`Command::extended`] has most of them.
//!
//! Crates that take a `&mut std::process::Command`, or implement a trait of their own for it, have to be ported
//! too.
//!
//! # Platform
//! Linux: a user or groups need no fork, unlike in std; a `pre_exec` closure does. macOS: any of these needs a
//! fork, as in std. Windows: the module `unix` is missing, and `windows` has the traits of
//! `std::os::windows::process`.

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
