//! The log in a simulation: a fault or a crash at any step, thousands of cases, the same in every process.
//!
//! The store is a real SQLite file in memory, with faults around its commits. The driver and the writer are the real
//! ones, without the thread: the seed decides when the writer takes a step.

use std::collections::HashMap;

use pipewright_tests::random::Random;

use super::*;
use crate::journal::changes::Changes;
use crate::journal::ledger::{Ledger, Numbers};
use crate::journal::open::Earlier;
use crate::journal::sqlite::{STEPS, SqliteStore, Store, migrate, prepare};
use crate::journal::writer::{Committer, Step};
use crate::vocabulary::Failure;

/// A store whose commits fail on command.
struct Faulty {
    store: SqliteStore,
    next: Fault,
    commits: u64,
}

#[derive(Clone, Copy, PartialEq)]
enum Fault {
    None,
    /// Nothing is written.
    Before,
    /// Everything is written, and reported as an error.
    After,
}

impl Store for Faulty {
    fn commit(&mut self, changes: &Changes) -> Result<(), LogError> {
        if self.next != Fault::Before {
            self.store.commit(changes)?;
            self.commits += 1;
        }
        match self.next {
            Fault::None => Ok(()),
            _ => Err(LogError::new(Path::new("run.db"), LogErrorKind::Io)),
        }
    }
}

/// The knowledge of the driver about a job.
#[derive(Debug, Clone, Default)]
struct Known {
    once: bool,
    /// The attempts of all runs, in order: the run, the number, and the code it exited with.
    attempts: Vec<(u32, u32, Option<i32>)>,
    /// The final state of this run, or of an earlier one.
    settled: Option<JobState>,
    running: bool,
    /// Its last intent was reported durable.
    durable: bool,
}

/// The end of an attempt: the job, the run, the number, and the code.
type End = (u64, u32, u32, i32);

/// A batch over several runs, each of which ends in a crash or in a close.
struct Batch {
    random: Random,
    jobs: HashMap<u64, Known>,
    run: u32,
    ends: Vec<End>,
    /// The jobs, and the number of ends, at the last moment at which everything was durable.
    certain: HashMap<u64, Known>,
    certain_ends: usize,
}

const JOBS: u64 = 12;

fn play(seed: u64) -> (u64, u64) {
    let mut connection = rusqlite::Connection::open_in_memory().unwrap();
    prepare(&connection).unwrap();
    migrate(&mut connection, &STEPS).unwrap();
    connection.set_prepared_statement_cache_capacity(32);
    let mut store = Faulty {
        store: SqliteStore::new(connection, Path::new("run.db")),
        next: Fault::None,
        commits: 0,
    };
    let mut batch = Batch {
        random: Random::new(seed),
        jobs: HashMap::new(),
        run: 0,
        ends: Vec::new(),
        certain: HashMap::new(),
        certain_ends: 0,
    };
    let runs = 1 + batch.random.below(3);
    let mut faults = 0;
    for _ in 0..runs {
        store = batch.run(store, &mut faults);
        batch.check(&store.store);
    }
    (store.commits, faults)
}

impl Batch {
    /// Runs jobs until a crash, which forgets everything that is not committed, or a close.
    fn run(&mut self, mut store: Faulty, faults: &mut u64) -> Faulty {
        store.next = Fault::None;
        let earlier = Earlier::read(&store.store.connection, Path::new("run.db")).unwrap();
        // What `begin` writes in one transaction.
        store.store.commit(&earlier.interruptions).unwrap();
        self.run += 1;
        let insert = "INSERT INTO runs (number, started, slots, pid) VALUES (?1, 0, 1, 1)";
        store.store.connection.execute(insert, [self.run]).unwrap();
        self.adopt(&earlier);
        let numbers = Numbers { run: self.run, ..earlier.numbers };
        let mut ledger = Ledger::new(numbers, earlier.entries);
        let mut committer = Committer::new(store);
        let steps = 1 + self.random.below(60);
        let mut failing = false;
        for _ in 0..steps {
            if self.random.percent(60) {
                self.act(&mut ledger);
            }
            if self.random.percent(50) {
                committer.add(ledger.take());
            }
            if self.random.percent(40) {
                let fault = match self.random.below(10) {
                    0 => Fault::Before,
                    1 => Fault::After,
                    _ => Fault::None,
                };
                committer.store.next = fault;
                match committer.step() {
                    Step::Idle => {}
                    Step::Committed(reports) => self.note(reports, &mut failing),
                    Step::Failed { reports, wait } => {
                        let is_meant = fault != Fault::None && wait >= Duration::from_millis(100);
                        assert!(is_meant, "{reports:?}, {wait:?}");
                        *faults += 1;
                        self.note(reports, &mut failing);
                        assert!(failing, "a failure was not reported");
                    }
                }
                if !committer.owes() {
                    assert!(!failing, "it works again, and did not say so");
                    if ledger.changes.is_empty() {
                        self.now_certain();
                    }
                }
            }
        }
        if self.random.percent(30) {
            committer.add(ledger.take());
            committer.store.next = Fault::None;
            let (reports, result) = committer.finish();
            result.unwrap();
            self.note(reports, &mut failing);
            self.now_certain();
        }
        committer.store
    }

    fn now_certain(&mut self) {
        self.certain = self.jobs.clone();
        self.certain_ends = self.ends.len();
    }

    fn note(&mut self, reports: Vec<Report>, failing: &mut bool) {
        for report in reports {
            match report {
                Report::Durable(key) => {
                    let known = self.jobs.get_mut(&key.job).unwrap();
                    known.durable |=
                        known.running && known.attempts.last().unwrap().1 == key.attempt;
                }
                Report::LostOutput(lost) => panic!("{lost:?}"),
                Report::Failed(_) => assert!(!std::mem::replace(failing, true)),
                Report::Works => assert!(std::mem::replace(failing, false)),
            }
        }
    }

    /// Lets something happen to a job.
    fn act(&mut self, ledger: &mut Ledger) {
        let number = 1 + self.random.below(JOBS as usize) as u64;
        let job = job(number);
        let known = self
            .jobs
            .entry(number)
            .or_insert_with(|| Known { once: number % 3 == 0, ..Known::default() });
        let logged = LoggedJob { once: known.once, ..logged(number, &job) };
        if known.settled.is_some() {
            return;
        }
        if !known.running {
            let of_run = known.attempts.iter().filter(|(run, ..)| *run == self.run).count();
            if of_run > 0 && self.random.percent(50) || self.random.percent(5) {
                let state = match of_run {
                    0 => JobState::ended(JobOutcome::NotRun),
                    _ => JobState::failed(Failure::ExitCode),
                };
                ledger.settled(&logged, state, Some("a reason"));
                known.settled = Some(state);
                return;
            }
            let attempt = of_run as u32 + 1;
            ledger.intend(&Intent { job: logged, attempt, slot: None, durable: true });
            known.attempts.push((self.run, attempt, None));
            (known.running, known.durable) = (true, false);
            return;
        }
        known.running = false;
        let last = known.attempts.last_mut().unwrap();
        let key = AttemptKey { job: number, attempt: last.1 };
        if self.random.percent(10) {
            known.attempts.pop();
            ledger.void(key);
            ledger.settled(&logged, JobState::ended(JobOutcome::NotRun), None);
            known.settled = Some(JobState::ended(JobOutcome::NotRun));
            return;
        }
        let code = self.random.below(2) as i32;
        last.2 = Some(code);
        let mut end = end(number, key.attempt, AttemptOutcome::Exited(code));
        end.stdout_bytes = number;
        ledger.ended(&end, LoggedOutput::default());
        self.ends.push((number, self.run, key.attempt, code));
        if code == 0 {
            known.settled = Some(JobState::SUCCEEDED);
            if self.random.percent(80) {
                ledger.settled(&logged, JobState::SUCCEEDED, None);
            }
        }
    }

    /// Takes over what the log says after a crash, as a resumed batch does, and checks it against what was known.
    fn adopt(&mut self, earlier: &Earlier) {
        let mut past = Past::new(earlier.entries.clone());
        for number in 1..=JOBS {
            let found = past.look_up(JobId::new(&job(number), 0));
            let Some(known) = self.jobs.get_mut(&number) else {
                assert_eq!(found, None, "nobody has mentioned job {number}");
                continue;
            };
            let Some(found) = found else {
                assert!(!known.durable, "the durable intent of job {number} is missing");
                assert!(!self.certain.contains_key(&number), "job {number} is missing");
                self.jobs.remove(&number);
                continue;
            };
            if known.durable && known.running {
                let expected = if known.once { JobState::UNKNOWN } else { JobState::Interrupted };
                assert_eq!(found.state, expected, "job {number}");
            }
            if found.state == JobState::UNKNOWN {
                assert!(known.once, "job {number} may run twice");
            }
            if let Some(certain) = self.certain.get(&number).and_then(|it| it.settled) {
                assert_eq!(found.state, certain, "job {number}");
            }
            known.settled = Some(found.state).filter(|state| {
                let is_failed = state.outcome() == Some(JobOutcome::Failed);
                is_failed || matches!(*state, JobState::SUCCEEDED | JobState::UNKNOWN)
            });
            (known.running, known.durable) = (false, false);
        }
        self.now_certain();
    }

    /// Checks the rows after a crash or a close, and forgets the ends that are lost.
    fn check(&mut self, store: &SqliteStore) {
        let connection = &store.connection;
        let mut check = connection.prepare_cached("PRAGMA foreign_key_check").unwrap();
        assert!(check.query([]).unwrap().next().unwrap().is_none(), "a row without its job");
        let query = "SELECT jobs.number, run, attempt, code, stdout_bytes FROM attempts \
                     JOIN jobs ON jobs.id = attempts.job WHERE outcome = 'exited' ORDER BY attempts.id";
        let mut query = connection.prepare_cached(query).unwrap();
        let ends = query.query_map([], |row| {
            let (number, written) = (row.get::<_, u32>(0)?, row.get::<_, u32>(4)?);
            assert_eq!(number, written, "an end of another job");
            Ok((u64::from(number), row.get(1)?, row.get(2)?, row.get(3)?))
        });
        let ends: Vec<End> = ends.unwrap().map(Result::unwrap).collect();
        assert!(self.ends.starts_with(&ends), "{ends:?} is no beginning of {:?}", self.ends);
        assert!(ends.len() >= self.certain_ends, "only {} of {}", ends.len(), self.certain_ends);
        self.ends = ends;
        let query = "SELECT count(*) FROM jobs JOIN attempts ON attempts.id = last_attempt \
                     WHERE outcome = 'exited' AND code = 0 AND state <> 'succeeded'";
        let lost: i64 = connection.query_row(query, [], |row| row.get(0)).unwrap();
        assert_eq!(lost, 0, "a success would run again");
    }
}

#[test]
fn nothing_reported_is_lost_and_nothing_else_is_there() {
    let (mut commits, mut faults) = (0, 0);
    for seed in 0..2000 {
        let played = std::panic::catch_unwind(|| play(seed));
        let (more_commits, more_faults) = played.unwrap_or_else(|_| panic!("the seed is {seed}"));
        commits += more_commits;
        faults += more_faults;
    }
    // The cases are what they are meant to be.
    assert!(commits > 10_000 && faults > 1000, "{commits} commits, {faults} faults");
}
