//! Jobs that run at most once, on an executor where they may have to wait for a place: they begin when the log has them, and not
//! before they have a place.

use std::collections::VecDeque;
use std::io;
use std::path::PathBuf;

use super::*;
use crate::executor::{Attempt, AttemptEnd, AttemptKey, Executor, ExecutorEvent, MachineMemory};

/// An executor with so many places.
struct Places {
    free: u32,
    waiting: VecDeque<AttemptKey>,
    events: VecDeque<ExecutorEvent>,
    log: PathBuf,
}

impl Places {
    fn new(free: u32, log: &Path) -> Places {
        Places { free, waiting: VecDeque::new(), events: VecDeque::new(), log: log.to_owned() }
    }
}

/// Returns the numbers of the jobs that the log has as running.
fn logged(log: &Path) -> Vec<u32> {
    let connection = rusqlite::Connection::open(log).unwrap();
    let query = "SELECT number FROM running JOIN jobs ON jobs.id = running.job";
    let mut query = connection.prepare(query).unwrap();
    query.query_map([], |row| row.get(0)).unwrap().map(Result::unwrap).collect()
}

impl Executor for Places {
    fn start(&mut self, _: Attempt) {
        unreachable!("it is placed first");
    }

    fn places_first(&self) -> bool {
        true
    }

    fn place(&mut self, attempt: Attempt) {
        assert!(logged(&self.log).is_empty(), "it has not begun");
        match self.free.checked_sub(1) {
            Some(free) => {
                self.free = free;
                self.events.push_back(ExecutorEvent::Placed(attempt.key));
            }
            None => self.waiting.push_back(attempt.key),
        }
    }

    fn begin(&mut self, key: AttemptKey) {
        assert_eq!(logged(&self.log), [1], "it begins before the log has it");
        let end = AttemptEnd::without_run(key, AttemptOutcome::Exited(0));
        self.events.push_back(ExecutorEvent::Ended(Box::new(end)));
    }

    fn stop(&mut self, _: AttemptKey) {}

    fn waiting(&self) -> Vec<AttemptKey> {
        self.waiting.iter().copied().collect()
    }

    fn next_event(&mut self, _: Option<Instant>) -> io::Result<Option<ExecutorEvent>> {
        std::thread::yield_now();
        Ok(self.events.pop_front())
    }

    fn memory(&mut self) -> Option<MachineMemory> {
        None
    }

    fn waker(&mut self) -> io::Result<Box<dyn Fn() + Send + Sync>> {
        Ok(Box::new(|| ()))
    }
}

#[test]
fn a_job_that_only_waited_for_a_place_runs_in_a_resumed_batch() {
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("run.db");
    let batch = || Batch::new().jobs(1).log(&log);
    let jobs = || [exits(0).once(true)];
    let mut run = batch().start_on(Places::new(0, &log), jobs()).unwrap();
    while !matches!(run.next().unwrap().unwrap(), Event::Started { .. }) {}
    // As after a kill: the log gets no end of the run.
    drop(run);
    let states = states(batch().resume(true), Fake::new(), jobs());
    assert_eq!(states[&1], said(JobOutcome::Succeeded));
}

#[test]
fn a_job_with_a_place_begins_when_the_log_has_it() {
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("run.db");
    let run = Batch::new().jobs(1).log(&log).start_on(Places::new(1, &log), [exits(0).once(true)]);
    assert_eq!(run.unwrap().finish().unwrap().succeeded, 1);
}
