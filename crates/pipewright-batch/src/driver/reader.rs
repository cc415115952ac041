//! The thread that reads the input, so that a slow one holds up nothing.

use std::io;
use std::sync::Arc;
use std::thread;

use super::inbox::{Inbox, Input};
use crate::job::Job;
use crate::source::InputError;

/// Starts the thread. It ends with the input, with the first error, or when the driver is gone and an entry arrives: a read
/// that waits for a terminal or a pipe cannot be ended from outside.
pub(super) fn spawn<I>(inbox: Arc<Inbox>, jobs: I) -> io::Result<()>
where
    I: Iterator<Item = Result<Job, InputError>> + Send + 'static,
{
    let read = move || {
        for job in jobs {
            let (input, is_last) = match job {
                Ok(job) => (Input::Job(Box::new(job)), false),
                Err(error) => (Input::Failed(error), true),
            };
            if !inbox.add_input(input) || is_last {
                return;
            }
        }
        inbox.add_input(Input::Ended);
    };
    thread::Builder::new().name("input".to_owned()).stack_size(256 << 10).spawn(read).map(drop)
}
