//! A log that cannot be written for a time: nothing is lost, nothing is reordered, nobody waits.

use std::sync::{Arc, mpsc};

use rusqlite::Connection;

use super::*;
use crate::journal::changes::Changes;
use crate::journal::ledger::Numbers;
use crate::journal::past::Entries;
use crate::journal::queue;
use crate::journal::queue::{Flushed, Queue};
use crate::journal::sqlite::Store;

pub(super) fn waker() -> (Waker, mpsc::Receiver<()>) {
    let (wake, woken) = mpsc::channel();
    let waker = Box::new(move || {
        // Ignored: the test has ended.
        let _ = wake.send(());
    });
    (waker, woken)
}

/// Waits for the next report.
fn report(journal: &mut Journal, woken: &mpsc::Receiver<()>) -> Report {
    loop {
        if let Some(report) = journal.next_report() {
            return report;
        }
        woken.recv().unwrap();
    }
}

#[test]
fn a_log_that_another_program_locks_is_written_afterwards() {
    let folder = Folder::new();
    let (waker, woken) = waker();
    let mut journal = Journal::create(&folder.log(), &facts(), waker).unwrap();
    let other = Connection::open(folder.log()).unwrap();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    for number in 1..=10 {
        succeed(&mut journal, number);
        journal.submit();
    }
    let Report::Failed(error) = report(&mut journal, &woken) else { panic!("no failure") };
    assert_eq!(*error.kind(), LogErrorKind::Locked, "{error}");
    assert_eq!(*journal.flush().unwrap_err().kind(), LogErrorKind::Failing);
    // The ends of running jobs are kept meanwhile.
    for number in 11..=20 {
        succeed(&mut journal, number);
        journal.submit();
    }
    other.execute_batch("ROLLBACK").unwrap();
    assert!(matches!(report(&mut journal, &woken), Report::Works));
    journal.flush().unwrap();
    let log = Log::open(&folder.log()).unwrap();
    let numbers: Vec<_> =
        attempts(&log, &AttemptFilter::default()).iter().map(|it| it.job.number).collect();
    assert_eq!(numbers, (1..=20).collect::<Vec<_>>());
}

#[test]
fn close_returns_the_error_of_what_it_could_not_write() {
    let folder = Folder::new();
    let mut journal = create(&folder.log());
    succeed(&mut journal, 1);
    journal.flush().unwrap();
    let other = Connection::open(folder.log()).unwrap();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    succeed(&mut journal, 2);
    let error = journal.close(Some(0), "finished").unwrap_err();
    assert_eq!(*error.kind(), LogErrorKind::Locked);
    other.execute_batch("ROLLBACK").unwrap();
    drop(other);
    // The log is as before, so its batch can be resumed.
    let (_journal, mut past) = resume(&folder.log());
    let mut ends =
        [1, 2].map(|number| past.look_up(JobId::new(&job(number), 0)).is_some()).into_iter();
    assert_eq!((ends.next(), ends.next()), (Some(true), Some(false)));
}

/// A store whose commits wait for the test.
struct Gate {
    commits: mpsc::Receiver<Result<(), LogErrorKind>>,
    sizes: mpsc::Sender<usize>,
}

impl Store for Gate {
    fn commit(&mut self, changes: &Changes) -> Result<(), LogError> {
        let path = Path::new("run.db");
        let answer = self.commits.recv().map_err(|_| LogError::new(path, LogErrorKind::Io))?;
        answer.map_err(|kind| LogError::new(path, kind))?;
        self.sizes.send(changes.jobs().len()).unwrap();
        Ok(())
    }
}

/// The driver's half, a writer with a store that waits, and the ends of its channels.
struct Gated {
    ledger: Ledger,
    queue: Arc<Queue>,
    writer: JoinHandle<Result<(), LogError>>,
    allow: mpsc::Sender<Result<(), LogErrorKind>>,
    sizes: mpsc::Receiver<usize>,
}

fn gated() -> Gated {
    let (allow, commits) = mpsc::channel();
    let (sent, sizes) = mpsc::channel();
    let queue = Arc::new(Queue::new(no_waker()));
    let writer = queue::start_writer(Gate { commits, sizes: sent }, Arc::clone(&queue)).unwrap();
    let ledger = Ledger::new(Numbers { run: 1, next_job: 1, next_attempt: 1 }, Entries::default());
    Gated { ledger, queue, writer, allow, sizes }
}

impl Gated {
    fn put(&mut self, number: u64) {
        self.ledger.intend(&intent(logged(number, &job(number)), 1));
        self.queue.put(self.ledger.take());
    }
}

#[test]
fn changes_that_come_during_a_commit_share_the_next_one() {
    let mut gated = gated();
    (1..=100).for_each(|number| gated.put(number));
    gated.allow.send(Ok(())).unwrap();
    let first = gated.sizes.recv().unwrap();
    gated.allow.send(Ok(())).unwrap();
    let second = if first < 100 { gated.sizes.recv().unwrap() } else { 0 };
    assert_eq!(first + second, 100);
    assert_eq!(gated.queue.flush(), Flushed::Durable);
    gated.queue.close();
    gated.writer.join().unwrap().unwrap();
}

#[test]
fn the_driver_waits_for_a_slow_disk_and_not_for_a_failed_one() {
    let mut gated = gated();
    let long = "x".repeat(1 << 20);
    let queue = Arc::clone(&gated.queue);
    let allow = gated.allow.clone();
    let put = |gated: &mut Gated, number| {
        let job = Job::new("echo").arg(&long);
        gated.ledger.intend(&intent(logged(number, &job), 1));
        gated.queue.put(gated.ledger.take());
    };
    // One group is being written, and eight MiB wait: the next one waits for room, until the disk has failed.
    std::thread::scope(|scope| {
        let driver = scope.spawn(|| (1..=40).for_each(|number| put(&mut gated, number)));
        while !driver.is_finished() && !queue.is_full() {
            std::thread::yield_now();
        }
        assert!(!driver.is_finished(), "the queue has no bound");
        allow.send(Err(LogErrorKind::Full)).unwrap();
        driver.join().unwrap();
    });
    assert_eq!(gated.queue.flush(), Flushed::Failing);
    assert!(gated.queue.is_overdue());
    assert!(matches!(gated.queue.next_report(), Some(Report::Failed(_))));
    (0..3).for_each(|_| gated.allow.send(Ok(())).unwrap());
    gated.queue.close();
    gated.writer.join().unwrap().unwrap();
    assert_eq!(gated.sizes.iter().sum::<usize>(), 40);
}

#[test]
fn a_writer_that_panics_keeps_nobody_waiting() {
    struct Panics;
    impl Store for Panics {
        fn commit(&mut self, _: &Changes) -> Result<(), LogError> {
            panic!("a bug")
        }
    }
    let queue = Arc::new(Queue::new(no_waker()));
    let writer = queue::start_writer(Panics, Arc::clone(&queue)).unwrap();
    let mut ledger =
        Ledger::new(Numbers { run: 1, next_job: 1, next_attempt: 1 }, Entries::default());
    ledger.intend(&intent(logged(1, &job(1)), 1));
    queue.put(ledger.take());
    assert_eq!(queue.flush(), Flushed::WriterEnded);
    assert!(writer.join().is_err());
}
