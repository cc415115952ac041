//! Logs that somebody has made to harm their reader.

use rusqlite::Connection;

use super::*;
use crate::view::{JobFilter, LogView};

/// Makes a log, and runs statements on its file.
fn crafted(folder: &Folder, statements: &str) {
    let mut journal = create(&folder.log());
    (1..=3).for_each(|number| succeed(&mut journal, number));
    journal.close(Some(0), "finished").unwrap();
    let connection = Connection::open(folder.log()).unwrap();
    connection.pragma_update(None, "foreign_keys", false).unwrap();
    connection.execute_batch(statements).unwrap();
}

/// Reads everything that `pipewright jobs` reads.
fn read_all(path: &Path) -> Result<(), Box<dyn std::error::Error>> {
    let view = LogView::open(path)?;
    let filters = [JobFilter::default(), JobFilter { slowest: Some(3), ..JobFilter::default() }];
    for filter in filters {
        view.write_json(&filter, &mut std::io::sink())?;
        view.write_table(&filter, Some(80), &mut std::io::sink())?;
    }
    view.summary()?;
    view.page()?;
    view.write_new(0, None, &mut std::io::sink())?;
    Ok(())
}

#[test]
fn a_table_that_is_a_view_is_refused() {
    const ENDLESS: &str = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n)";
    for statements in [
        format!(
            "ALTER TABLE jobs RENAME TO old; CREATE VIEW jobs AS {ENDLESS} SELECT old.* FROM old, n"
        ),
        format!(
            "ALTER TABLE runs RENAME TO old; CREATE VIEW runs AS {ENDLESS} SELECT old.* FROM old, n"
        ),
        "ALTER TABLE attempts ADD COLUMN computed AS (hex(zeroblob(500000000)))".to_owned(),
        "DROP TABLE running".to_owned(),
    ] {
        let folder = Folder::new();
        crafted(&folder, &statements);
        let error = Log::open(&folder.log()).unwrap_err();
        assert_eq!(*error.kind(), LogErrorKind::Corrupt, "{statements}: {error}");
    }
}

#[test]
fn a_value_without_a_measure_is_refused() {
    let folder = Folder::new();
    crafted(&folder, "UPDATE jobs SET command = zeroblob(200000000) WHERE id = 2");
    let error = read_all(&folder.log()).unwrap_err();
    assert!(error.to_string().contains("is damaged"), "{error}");
}

/// A page that many others refer to makes a small file of rows without an end.
#[test]
fn a_tree_of_pages_that_repeats_itself_ends() {
    let folder = Folder::new();
    let mut journal = create(&folder.log());
    (1..=60_000).for_each(|number| succeed(&mut journal, number));
    journal.close(Some(0), "finished").unwrap();
    let mut bytes = std::fs::read(folder.log()).unwrap();
    let connection = Connection::open(folder.log()).unwrap();
    let root: u32 = connection
        .query_row("SELECT rootpage FROM sqlite_schema WHERE name = 'attempts'", [], |row| {
            row.get(0)
        })
        .unwrap();
    drop(connection);
    // Each interior page leads to one child only: its cells, and its last pointer.
    let number =
        |bytes: &[u8], at: usize| u32::from_be_bytes(bytes[at..at + 4].try_into().unwrap());
    let mut page = root as usize;
    let mut levels = 0;
    loop {
        let start = (page - 1) * 4096;
        if bytes[start] != 5 {
            break;
        }
        levels += 1;
        let cells = usize::from(u16::from_be_bytes([bytes[start + 3], bytes[start + 4]]));
        let child = number(&bytes, start + 8);
        for cell in 0..cells {
            let at = start + 12 + 2 * cell;
            let at = start + usize::from(u16::from_be_bytes([bytes[at], bytes[at + 1]]));
            bytes[at..at + 4].copy_from_slice(&child.to_be_bytes());
        }
        page = child as usize;
    }
    assert!(levels >= 2, "{levels}");
    std::fs::write(folder.log(), bytes).unwrap();
    // The result does not matter, only that there is one.
    let _ = read_all(&folder.log());
}

#[test]
fn numbers_that_no_clock_has_are_no_panic() {
    for seconds in ["9.3e18", "1e308", "-9.3e18", "9e999", "-1", "1e-320"] {
        let folder = Folder::new();
        crafted(
            &folder,
            &format!(
                "UPDATE attempts SET elapsed_seconds = {seconds}; UPDATE attempts SET started = {seconds} WHERE id = 2; \
                 UPDATE runs SET started = {seconds}; UPDATE batch SET created = {seconds}; \
                 UPDATE jobs SET number = 9223372036854775807 WHERE id = 3; \
                 INSERT INTO running VALUES (3, 1, 4294967295, 4294967295, {seconds}, 0, -1, 9223372036854775807)"
            ),
        );
        read_all(&folder.log()).unwrap();
        let log = Log::open(&folder.log()).unwrap();
        assert_eq!(log.counts().unwrap().jobs, 3);
    }
    let folder = Folder::new();
    crafted(&folder, "UPDATE runs SET number = 4294967295");
    let error = Journal::resume(&folder.log(), &facts(), no_waker()).map(drop).unwrap_err();
    assert_eq!(*error.kind(), LogErrorKind::Corrupt);
}
