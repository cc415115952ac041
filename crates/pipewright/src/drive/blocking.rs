//! A whole run on the calling thread.

use pipewright_os::exit::Exit;

use super::run::{Failed, Run};
use crate::command::Rules;
use crate::output::Output;

/// Waits until there is nothing left to wait for. After an error the children are as they were, unless
/// what they were given of their input could be taken for the whole.
pub(crate) fn wait_through(mut run: Run, exits: &[Exit], rules: &Rules) -> Result<Output, Failed> {
    let feeds = run.feeds();
    loop {
        match run.step(exits, rules) {
            Ok(true) => {}
            Ok(false) => return run.finish(exits),
            Err(failed) => {
                if feeds {
                    run.abandon(exits);
                }
                return Err(failed);
            }
        }
    }
}

/// Sees all children of a run through to their ends. After an error there is none.
pub(crate) fn see_through(mut run: Run, exits: &[Exit], rules: &Rules) -> Result<Output, Failed> {
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
