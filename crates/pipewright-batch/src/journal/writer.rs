//! The thread that writes the log.

use std::io;
use std::sync::Arc;
use std::thread::{Builder, JoinHandle};

use super::committer::{Committer, Step};
use super::error::LogError;
use super::queue::Queue;
use super::store::Store;

/// The name of the thread, for people who look at threads.
const NAME: &str = "pipewright-log";

/// Starts the thread. It ends after [`Queue::close`], and returns the error of what it could not write.
pub(super) fn start<S: Store + Send + 'static>(
    store: S,
    queue: Arc<Queue>,
) -> io::Result<JoinHandle<Result<(), LogError>>> {
    Builder::new().name(NAME.to_owned()).spawn(move || {
        let _ended = Ended(&queue);
        write(Committer::new(store), &queue)
    })
}

/// Wakes those who wait for the writer, even if it panics.
struct Ended<'a>(&'a Queue);

impl Drop for Ended<'_> {
    fn drop(&mut self) {
        self.0.end_writer();
    }
}

fn write<S: Store>(mut committer: Committer<S>, queue: &Queue) -> Result<(), LogError> {
    while let Some(changes) = queue.take() {
        committer.add(changes);
        queue.outputs_to_disk();
        loop {
            match committer.step() {
                Step::Idle => break,
                Step::Committed(reports) => queue.report(reports, committer.owes()),
                Step::Failed { reports, wait } => {
                    queue.report(reports, true);
                    committer.add(queue.take_after(wait));
                    if queue.is_closing() {
                        let (reports, result) = committer.finish();
                        queue.report(reports, result.is_err());
                        result?;
                    }
                }
            }
        }
    }
    Ok(())
}
