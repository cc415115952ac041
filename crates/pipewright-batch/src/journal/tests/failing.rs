//! A log that cannot be written for a time: nothing is lost, nothing is reordered, nobody waits.

use std::io::Write as _;
use std::sync::{Arc, mpsc};
use std::time::Instant;
use std::{fs, thread};

use rusqlite::Connection;

use super::act::{say, wait_for_test};
use super::*;
use crate::journal::changes::Changes;
use crate::journal::files::{LOCK, beside};
use crate::journal::ledger::Numbers;
use crate::journal::past::Entries;
use crate::journal::sqlite::{SqliteStore, Store, open_to_write, set_journal_mode};
use crate::journal::tests::watched::Flushed;
use crate::journal::writer::{self, Queue};

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
    begun: mpsc::Sender<()>,
    commits: mpsc::Receiver<Result<(), LogErrorKind>>,
    sizes: mpsc::Sender<usize>,
}

impl Store for Gate {
    fn commit(&mut self, changes: &Changes) -> Result<(), LogError> {
        let path = Path::new("run.db");
        // Ignored: the test may not look at it.
        let _ = self.begun.send(());
        let answer = self.commits.recv().map_err(|_| LogError::new(path, LogErrorKind::Io))?;
        answer.map_err(|kind| LogError::new(path, kind))?;
        self.sizes.send(changes.jobs.len()).unwrap();
        Ok(())
    }
}

/// The driver's half, a writer with a store that waits, and the ends of its channels.
struct Gated {
    ledger: Ledger,
    queue: Arc<Queue>,
    writer: JoinHandle<Result<(), LogError>>,
    /// A message for each commit that has begun.
    begun: mpsc::Receiver<()>,
    allow: mpsc::Sender<Result<(), LogErrorKind>>,
    sizes: mpsc::Receiver<usize>,
}

fn gated() -> Gated {
    let (allow, commits) = mpsc::channel();
    let (sent, sizes) = mpsc::channel();
    let (begins, begun) = mpsc::channel();
    let queue = Arc::new(Queue::new(no_waker()));
    let gate = Gate { begun: begins, commits, sizes: sent };
    let writer = writer::start_writer(gate, Arc::clone(&queue)).unwrap();
    let ledger = Ledger::new(Numbers { run: 1, next_job: 1, next_attempt: 1 }, Entries::default());
    Gated { ledger, queue, writer, begun, allow, sizes }
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
    // A while after its failure the writer takes what waits, and repeats the commit, which waits for the test. What is
    // put in from then on stays.
    (0..2).for_each(|_| gated.begun.recv().unwrap());
    (41..=50).for_each(|number| put(&mut gated, number));
    assert_eq!(gated.queue.flush(), Flushed::Failing);
    assert!(gated.queue.is_overdue());
    assert!(matches!(gated.queue.next_report(), Some(Report::Failed(_))));
    (0..3).for_each(|_| gated.allow.send(Ok(())).unwrap());
    gated.queue.close();
    gated.writer.join().unwrap().unwrap();
    assert_eq!(gated.sizes.iter().sum::<usize>(), 50);
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
    let writer = writer::start_writer(Panics, Arc::clone(&queue)).unwrap();
    let mut ledger =
        Ledger::new(Numbers { run: 1, next_job: 1, next_attempt: 1 }, Entries::default());
    ledger.intend(&intent(logged(1, &job(1)), 1));
    queue.put(ledger.take());
    assert_eq!(queue.flush(), Flushed::WriterEnded);
    assert!(writer.join().is_err());
}

// A full disk: the log fails, keeps everything, and goes on when there is room.

/// Creates logs where there is no room, with a page more each time. A failure leaves nothing but the file of the lock,
/// whichever write it was: a `-wal` alone was in the way of every later creation.
fn create_in_vain(log: &Path) {
    let filler = log.with_file_name("filler");
    let mut file = fs::File::create(&filler).unwrap();
    while file.write_all(&[1; 4096]).is_ok() {}
    let mut length = file.metadata().unwrap().len();
    let mut failures = 0;
    let journal = loop {
        match Journal::create(log, &facts(), no_waker()) {
            Ok(journal) => break journal,
            Err(_) => failures += 1,
        }
        let entries = fs::read_dir(log.parent().unwrap()).unwrap().flatten();
        let mut left: Vec<PathBuf> = entries.map(|entry| entry.path()).collect();
        left.retain(|path| *path != filler && *path != beside(log, LOCK));
        assert_eq!(left, [] as [PathBuf; 0], "after {failures} failures");
        length -= 4096;
        file.set_len(length).unwrap();
    };
    assert!(failures > 2, "{failures}");
    file.set_len(0).unwrap();
    journal.close(Some(0), "finished").unwrap();
    for path in [log, &filler] {
        fs::remove_file(path).unwrap();
    }
}

/// Fills the disk through the log, makes room, and closes the log.
pub(super) fn fill(log: &Path) {
    say(format_args!("mounted"));
    create_in_vain(log);
    let filler = log.with_file_name("filler");
    fs::write(&filler, vec![1; 400 << 10]).unwrap();
    let (waker, woken) = waker();
    let mut journal = Journal::create(log, &facts(), waker).unwrap();
    let mut number = 0;
    let failure = loop {
        number += 1;
        succeed(&mut journal, number);
        if journal.flush().is_err() {
            break loop {
                match journal.next_report() {
                    Some(Report::Failed(error)) => break error,
                    Some(other) => panic!("{other:?}"),
                    None => woken.recv().unwrap(),
                }
            };
        }
    };
    say(format_args!("failed {:?}", failure.kind()));
    // The ends of the jobs that run, after the failure.
    for _ in 0..50 {
        number += 1;
        succeed(&mut journal, number);
        journal.submit();
    }
    fs::remove_file(&filler).unwrap();
    while !matches!(journal.next_report(), Some(Report::Works)) {
        woken.recv().unwrap();
    }
    journal.flush().unwrap();
    journal.close(Some(0), "finished").unwrap();
    check_whole(log);
    let log = Log::open(log).unwrap();
    let numbers: Vec<_> =
        attempts(&log, &AttemptFilter::default()).iter().map(|it| it.job.number).collect();
    assert_eq!(numbers, (1..=number).collect::<Vec<_>>());
    assert_eq!(log.counts().unwrap().of(JobState::SUCCEEDED), number);
    say(format_args!("kept {number}"));
    wait_for_test();
}

#[cfg(target_os = "linux")]
#[test]
fn nothing_is_lost_on_a_full_disk() {
    use crate::journal::tests::act;
    let folder = Folder::new();
    // A small disk of its own, which goes with the process.
    let script = format!(
        "mount -t tmpfs -o size=1m none '{0}' || exit 77; exec \"$0\" \"$@\"",
        folder.0.path().display()
    );
    if std::process::Command::new("unshare").arg("--version").output().is_err() {
        return skipped(Need::Program("unshare"), "there is no unshare here");
    }
    // Root needs no namespace of users, which some machines refuse.
    for options in [&["--user", "--map-root-user", "--mount"][..], &["--mount"]] {
        let words = [&["unshare"], options, &["sh", "-c", &script]].concat();
        let mut actor = act::start(&words, "fill", &folder.log());
        if actor.line().is_none() {
            continue;
        }
        assert_eq!(actor.line().as_deref(), Some("failed Full"));
        let kept = actor.line().expect("the log was not whole");
        assert!(kept.starts_with("kept "), "{kept}");
        return;
    }
    skipped(Need::Mount, "no filesystem can be mounted here");
}

// Commits that wait for more changes, and those that do not.
//
// The interval is an hour, so a commit that waits for it does not come.

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
    let mut queue = Queue::new(no_waker());
    queue.interval = interval;
    queue.put(change(1, false));
    // Nothing was committed yet, so the first commit does not wait.
    assert_eq!(queue.take().and_then(|it| it.input_end), Some((1, 1)));
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
    assert_eq!(queue.take().and_then(|it| it.input_end), Some((1, 3)));
    assert!(began.elapsed() >= interval);
}

#[test]
fn an_awaited_intent_is_committed_at_once_with_what_waits() {
    let queue = queue(HOUR);
    queue.put(change(2, false));
    let writer = Arc::clone(&queue);
    let taken = thread::spawn(move || writer.take());
    queue.put(change(3, true));
    let taken = taken.join().unwrap().unwrap();
    assert_eq!((taken.input_end, taken.awaited.len()), (Some((1, 3)), 1));
}

#[test]
fn a_large_group_is_committed_at_once() {
    let queue = queue(HOUR);
    let writer = Arc::clone(&queue);
    let taken = thread::spawn(move || writer.take());
    // No more than that: nobody reports a commit here, for which a full queue waits.
    let changes = (1 << 20) / change(1, false).bytes() as u64;
    (2..2 + changes).for_each(|jobs| queue.put(change(jobs, false)));
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

// A log with a rollback journal, as on a network filesystem.

fn mode(connection: &Connection) -> String {
    connection.pragma_query_value(None, "journal_mode", |row| row.get(0)).unwrap()
}

#[test]
fn a_log_changes_its_mode_and_keeps_its_jobs() {
    let folder = Folder::new();
    let mut journal = create(&folder.log());
    assert_eq!((journal.mode, journal.mode.notice()), (JournalMode::WriteAhead, None));
    succeed(&mut journal, 1);
    journal.flush().unwrap();
    drop(journal);

    let connection = open_to_write(&folder.log()).unwrap();
    let found = set_journal_mode(&connection, true).unwrap();
    assert_eq!((found, &*mode(&connection)), (JournalMode::RollbackOnNetwork, "truncate"));
    assert!(found.notice().is_some_and(|notice| notice.contains("network")));
    let mut ledger =
        Ledger::new(Numbers { run: 1, next_job: 2, next_attempt: 2 }, Entries::default());
    ledger.intend(&intent(logged(2, &job(2)), 1));
    let changes: Changes = ledger.take();
    let mut store = SqliteStore::new(connection, &folder.log());
    store.commit(&changes).unwrap();
    assert!(!folder.0.path().join("run.db-wal").exists());
    // A reader beside it.
    assert_eq!(Log::open(&folder.log()).unwrap().counts().unwrap().jobs, 2);
    drop(store);

    let (journal, mut past) = resume(&folder.log());
    assert_eq!(journal.mode, JournalMode::WriteAhead);
    let states = [1, 2].map(|number| past.look_up(JobId::new(&job(number), 0)).unwrap().state);
    assert_eq!(states, [JobState::SUCCEEDED, JobState::Interrupted]);
}

#[test]
fn every_commit_is_synchronized() {
    let folder = Folder::new();
    create(&folder.log()).close(None, "finished").unwrap();
    for is_remote in [false, true] {
        let connection = open_to_write(&folder.log()).unwrap();
        set_journal_mode(&connection, is_remote).unwrap();
        for (name, expected) in [("synchronous", 2), ("fullfsync", 1), ("checkpoint_fullfsync", 1)]
        {
            let found = connection.pragma_query_value(None, name, |row| row.get::<_, i64>(0));
            assert_eq!(found, Ok(expected), "{name}");
        }
    }
}
