//! A log that is resumed without its input: it has all jobs, or the batch does not go on.

use rusqlite::Connection;

use super::*;
use crate::journal::completeness::check;
use crate::journal::schema::{STEPS, migrate};

/// Makes a log of three jobs, whose input ended after that many. `None`: it did not end.
fn sample(input: Option<u64>) -> Folder {
    let folder = Folder::new();
    let mut journal = create(&folder.log());
    (1..=3).for_each(|number| succeed(&mut journal, number));
    if let Some(jobs) = input {
        journal.input_ended(jobs, std::iter::empty());
    }
    journal.close(Some(0), "finished").unwrap();
    folder
}

fn resume_alone(folder: &Folder) -> Result<(Journal, Past), LogErrorKind> {
    let facts = RunFacts { from_log: true, ..facts() };
    Journal::resume(&folder.log(), &facts, no_waker()).map_err(|error| error.kind().clone())
}

#[test]
fn a_whole_log_is_its_own_input_in_each_later_run() {
    let folder = sample(Some(3));
    for _ in 0..2 {
        let (journal, past) = resume_alone(&folder).unwrap();
        assert_eq!(past.len(), 3);
        journal.close(Some(0), "finished").unwrap();
    }
    let log = Connection::open(folder.log()).unwrap();
    let mut query = log.prepare("SELECT jobs FROM runs ORDER BY number").unwrap();
    let jobs: Vec<Option<u32>> =
        query.query_map([], |row| row.get(0)).unwrap().map(Result::unwrap).collect();
    assert_eq!(jobs, [Some(3); 3]);
}

#[test]
fn a_log_without_the_end_of_its_input_or_without_a_job_is_refused() {
    for input in [None, Some(2), Some(4)] {
        let description = "true {}".to_owned();
        let error = resume_alone(&sample(input)).unwrap_err();
        assert_eq!(error, LogErrorKind::LacksInput { description }, "{input:?}");
    }
}

#[test]
fn a_log_whose_jobs_ran_in_another_directory_is_refused() {
    // That comes first: the input, too, may be a file with a relative path.
    for input in [None, Some(3)] {
        let folder = sample(input);
        let log = Connection::open(folder.log()).unwrap();
        log.execute("UPDATE runs SET cwd = '/elsewhere'", []).unwrap();
        drop(log);
        let error = resume_alone(&folder).unwrap_err();
        assert_eq!(error, LogErrorKind::OtherDirectory { dir: "/elsewhere".into() });
    }
}

#[test]
fn a_log_of_the_first_version_lacks_the_settings_of_its_jobs() {
    let mut log = Connection::open_in_memory().unwrap();
    migrate(&mut log, &STEPS[..1]).unwrap();
    log.execute("INSERT INTO batch VALUES ('1', 0, '0.1', 'convert {}')", []).unwrap();
    let error = check(&log, Path::new("run.db")).unwrap_err();
    let description = "convert {}".to_owned();
    assert_eq!(*error.kind(), LogErrorKind::LacksSettings { description });
}
