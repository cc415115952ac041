//! Commits that wait for more changes, and those that do not.
//!
//! The interval is an hour, so a commit that waits for it does not come.

use std::sync::Arc;
use std::thread;
use std::time::Instant;

use super::*;
use crate::journal::changes::Changes;
use crate::journal::queue::Queue;

const HOUR: Duration = Duration::from_secs(3600);

/// Returns the end of the input after that many jobs, as a change, or as an intent that is awaited.
fn change(jobs: u64, is_awaited: bool) -> Changes {
    let mut changes = Changes::default();
    changes.end_input(1, jobs);
    if is_awaited {
        changes.await_intent(AttemptKey { job: jobs, attempt: 1 });
    }
    changes
}

/// Returns a queue whose last commit has just begun.
fn queue(interval: Duration) -> Arc<Queue> {
    let queue = Queue::with_interval(no_waker(), interval);
    queue.put(change(1, false));
    // Nothing was committed yet, so the first commit does not wait.
    assert_eq!(queue.take().and_then(|it| it.input_end()), Some((1, 1)));
    queue.report(Vec::new(), false);
    Arc::new(queue)
}

#[test]
fn changes_within_the_interval_share_a_commit() {
    let began = Instant::now();
    let interval = Duration::from_millis(20);
    let queue = queue(interval);
    queue.put(change(2, false));
    queue.put(change(3, false));
    assert_eq!(queue.take().and_then(|it| it.input_end()), Some((1, 3)));
    assert!(began.elapsed() >= interval);
}

#[test]
fn an_awaited_intent_is_committed_at_once_with_what_waits() {
    let queue = queue(HOUR);
    queue.put(change(2, false));
    let writer = Arc::clone(&queue);
    let taken = thread::spawn(move || writer.take());
    queue.put(change(3, true));
    let mut taken = taken.join().unwrap().unwrap();
    assert_eq!((taken.input_end(), taken.take_awaited().len()), (Some((1, 3)), 1));
}

#[test]
fn a_large_group_is_committed_at_once() {
    let queue = queue(HOUR);
    let writer = Arc::clone(&queue);
    let taken = thread::spawn(move || writer.take());
    let mut jobs = 1;
    while !taken.is_finished() {
        jobs += 1;
        queue.put(change(jobs, false));
    }
    assert!(taken.join().unwrap().unwrap().bytes() >= 1 << 20);
}

#[test]
fn the_end_of_the_log_is_committed_at_once() {
    let queue = queue(HOUR);
    let writer = Arc::clone(&queue);
    let taken = thread::spawn(move || (writer.take().is_some(), writer.take().is_none()));
    queue.put(change(2, false));
    queue.close();
    assert_eq!(taken.join().unwrap(), (true, true));
}
