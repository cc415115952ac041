//! A whole run on the calling thread.

use pipewright_os::process::child::ChildHandle;

use super::run::{Failed, Run};
use crate::command::Rules;
use crate::output::Output;

/// Sees all children of a run through to their ends. After an error there is none.
pub(crate) fn see_through(
    mut run: Run,
    exits: &[ChildHandle],
    rules: &Rules,
) -> Result<Output, Failed> {
    loop {
        match run.step(exits, rules) {
            Ok(true) => {}
            Ok(false) => return run.finish(exits),
            Err(failed) => {
                run.abandon(exits);
                return Err(failed);
            }
        }
    }
}
