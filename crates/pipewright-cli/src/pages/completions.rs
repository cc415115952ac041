//! Completion scripts.

use clap::CommandFactory as _;
use clap_complete::Shell;

use crate::Failure;
use crate::args::Args;

/// Returns the script for a shell.
pub(super) fn script(shell: Shell) -> Result<String, Failure> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Args::command(), "pipewright", &mut script);
    String::from_utf8(script).map_err(Failure::cannot("make the script"))
}
