//! Forks of a process that runs a batch: the batch is the parent's.
#![cfg(unix)]

use pipewright_batch::{Batch, BatchError, Event, Job};
use pipewright_test_macros::isolated_test;
use pipewright_tests::watchdog::in_a_fork;

#[isolated_test]
fn a_fork_that_drops_its_copy_of_a_batch_does_not_hang_and_ends_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let wait = "until test -e end; do sleep 0.01; done";
    let jobs = [Job::new("sh").args(["-c", wait]).current_dir(folder.path())];
    let mut run = Batch::new().jobs(1).log(folder.path().join("run.db")).start(jobs).unwrap();
    while !matches!(run.next().unwrap().unwrap(), Event::Started { .. }) {}
    let mut run = Some(run);
    let is_ours = in_a_fork(|| {
        let mut copy = run.take().unwrap();
        copy.note("of no one");
        copy.control().stop();
        assert!(matches!(copy.next(), Some(Err(BatchError::Executor(_)))));
        assert!(copy.next().is_none());
        drop(copy);
    });
    assert!(is_ours, "the fork hangs");
    std::fs::write(folder.path().join("end"), "").unwrap();
    assert_eq!(run.unwrap().finish().unwrap().succeeded, 1);
}
