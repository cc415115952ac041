//! A log with a rollback journal, as on a network filesystem.

use rusqlite::Connection;

use super::*;
use crate::journal::changes::Changes;
use crate::journal::ledger::Numbers;
use crate::journal::past::Entries;
use crate::journal::sqlite::Store;
use crate::journal::sqlite::{SqliteStore, open_to_write, set_journal_mode};

fn mode(connection: &Connection) -> String {
    connection.pragma_query_value(None, "journal_mode", |row| row.get(0)).unwrap()
}

#[test]
fn a_log_changes_its_mode_and_keeps_its_jobs() {
    let folder = Folder::new();
    let mut journal = create(&folder.log());
    assert_eq!((journal.mode(), journal.mode().notice()), (JournalMode::WriteAhead, None));
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
    assert_eq!(journal.mode(), JournalMode::WriteAhead);
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
