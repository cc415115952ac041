//! One driver that feeds all reports.

use std::io::Cursor;
use std::time::{Duration, Instant};

use super::testing::{at, every_update, facts};
use super::*;

#[test]
fn every_report_takes_every_update() {
    every_update(|updates| {
        let start = Instant::now();
        let mut shown = Vec::new();
        let screen = Screen { columns: || 80, is_ansi: true, colors: true };
        let mut progress = Progress::new(&mut shown, ProgressKind::Bar, screen, start);
        let (mut events, mut trace) =
            (EventWriter::new(Vec::new()), TraceWriter::new(Cursor::new(Vec::new())));
        let mut page = PageModel::new(facts());
        let mut now = start;
        for update in updates {
            now += Duration::from_secs(1);
            progress.update(update, now);
            events.update(update, at(1.0));
            trace.update(update);
            page.update(update, at(1.0));
            progress.tick(now);
        }
        progress.finish();
        events.finish().unwrap();
        trace.finish().unwrap();
        assert!(String::from_utf8(shown).unwrap().ends_with("\x1b[J"), "the bar is erased");
        assert!(page.html().ends_with("</html>\n"));
    });
}

#[test]
fn rows_of_a_log_are_a_table_or_json() {
    let row = JobRow {
        job: 1,
        name: None,
        state: "running".to_owned(),
        attempts: 1,
        elapsed: None,
        exit: None,
        reason: None,
        command: "true".to_owned(),
    };
    let (mut table, mut json) = (Vec::new(), Vec::new());
    write_table(std::slice::from_ref(&row), Some(80), false, &mut table).unwrap();
    write_json(&[row], &mut json).unwrap();
    assert!(String::from_utf8(table).unwrap().starts_with("running "));
    assert!(json.ends_with(b"}\n"));
}

#[test]
fn stderr_has_a_width_and_a_kind_of_progress() {
    use std::io::IsTerminal;
    assert!((Screen::stderr().columns)() > 0);
    let is_bar = ProgressKind::for_stderr() == ProgressKind::Bar;
    assert_eq!(is_bar, std::io::stderr().is_terminal());
}
