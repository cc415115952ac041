//! The name that this tool was called by: `timeout` is a command of its own.

use std::ffi::OsString;
use std::path::Path;

const TIMEOUT: &str = "timeout";

/// Returns the name for messages.
pub(crate) fn own_name() -> &'static str {
    if is_timeout(std::env::args_os().next()) { TIMEOUT } else { "pipewright" }
}

/// Returns the arguments of this process, with the command that its name stands for.
pub(super) fn own_args() -> Vec<OsString> {
    let mut args: Vec<OsString> = std::env::args_os().collect();
    if is_timeout(args.first().cloned()) {
        args.insert(1, TIMEOUT.into());
    }
    args
}

/// Returns true if an option stands where the command should be.
pub(crate) fn begin_with_option() -> bool {
    own_args().get(1).is_some_and(|first| first.as_encoded_bytes().starts_with(b"-"))
}

fn is_timeout(name: Option<OsString>) -> bool {
    name.is_some_and(|name| Path::new(&name).file_stem().is_some_and(|stem| stem == TIMEOUT))
}
