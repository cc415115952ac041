//! Jobs as a table for a terminal, or as JSON lines: `pipewright.jobs/1`.

use std::io::{self, Write};
use std::time::Duration;

use serde::Serialize;

use super::text::{columns, duration, line};

const SCHEMA: &str = "pipewright.jobs/1";

/// The widths of the columns before the command, in this order: state, number, tries, time, exit.
const WIDTHS: [usize; 5] = [9, 7, 5, 10, 10];

/// The narrowest terminal for which a table is made.
const LEAST_COLUMNS: usize = 60;

/// The facts of a job that tables show.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct JobRow {
    /// The number in its run, from 1.
    pub(crate) job: u64,
    /// The name that the input gives it.
    pub(crate) name: Option<String>,
    /// The word of its state: `succeeded`, `failed`, `running`, ...
    pub(crate) state: String,
    /// The number of its attempts.
    pub(crate) attempts: u32,
    /// The time that its last attempt took.
    #[serde(rename = "elapsed_seconds", serialize_with = "seconds")]
    pub(crate) elapsed: Option<Duration>,
    /// The end of its last attempt in words: `exit 1`, `SIGKILL`, `timed out`.
    pub(crate) exit: Option<String>,
    /// One line, if there is more to say.
    pub(crate) reason: Option<String>,
    pub(crate) command: String,
}

fn seconds<S: serde::Serializer>(
    time: &Option<Duration>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    time.map(|time| time.as_secs_f64()).serialize(serializer)
}

/// Writes the jobs as JSON lines.
///
/// # Errors
/// Those of the writer.
pub(crate) fn write_json<W: Write>(rows: &[JobRow], writer: &mut W) -> io::Result<()> {
    #[derive(Serialize)]
    struct Line<'a> {
        schema: &'static str,
        #[serde(flatten)]
        row: &'a JobRow,
    }
    for row in rows {
        let mut bytes = serde_json::to_vec(&Line { schema: SCHEMA, row })?;
        bytes.push(b'\n');
        writer.write_all(&bytes)?;
    }
    Ok(())
}

/// Writes the jobs as a table of that width, `None`: as wide as the commands are. Call it with `heading` for the first
/// rows and without for the next ones.
///
/// # Errors
/// Those of the writer.
pub(crate) fn write_table<W: Write>(
    rows: &[JobRow],
    width: Option<usize>,
    heading: bool,
    writer: &mut W,
) -> io::Result<()> {
    let width = width.map_or(usize::MAX, |width| width.max(LEAST_COLUMNS));
    if heading {
        let words = ["state", "job", "tries", "time", "exit"].map(str::to_owned);
        write_row(&words, "command", width, writer)?;
    }
    for row in rows {
        let cells = [
            row.state.replace('_', " "),
            row.job.to_string(),
            row.attempts.to_string(),
            row.elapsed.map_or_else(String::new, duration),
            row.exit.clone().unwrap_or_default(),
        ];
        let name = row.name.as_ref().map(|name| format!("[{name}] ")).unwrap_or_default();
        let reason = row.reason.as_ref().map(|reason| format!("  ({reason})")).unwrap_or_default();
        write_row(&cells, &format!("{name}{}{reason}", row.command), width, writer)?;
    }
    Ok(())
}

fn write_row<W: Write>(
    cells: &[String; 5],
    last: &str,
    most: usize,
    writer: &mut W,
) -> io::Result<()> {
    let mut text = String::new();
    for (place, (cell, width)) in cells.iter().zip(WIDTHS).enumerate() {
        // A number is shown whole, and the command gets less space.
        let cell = if (1..3).contains(&place) { cell.clone() } else { line(cell, width) };
        let blanks = " ".repeat(width.saturating_sub(columns(&cell)));
        // Numbers are aligned to the right.
        match place {
            1..4 => text.extend([blanks, cell]),
            _ => text.extend([cell, blanks]),
        }
        text.push_str("  ");
    }
    text.push_str(last);
    writeln!(writer, "{}", line(&text, most))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn row(job: u64, seconds: f64) -> JobRow {
        JobRow {
            job,
            name: None,
            state: "succeeded".to_owned(),
            attempts: 1,
            elapsed: Some(Duration::from_secs_f64(seconds)),
            exit: Some("exit 0".to_owned()),
            reason: None,
            command: format!("./convert {job}"),
        }
    }

    fn table(rows: &[JobRow], width: Option<usize>) -> String {
        let mut text = Vec::new();
        write_table(rows, width, true, &mut text).unwrap();
        String::from_utf8(text).unwrap()
    }

    #[test]
    fn a_table_has_a_line_for_each_job() {
        let failed = JobRow {
            state: "failed".to_owned(),
            attempts: 3,
            exit: Some("timed out".to_owned()),
            name: Some("b".to_owned()),
            reason: Some("gave up".to_owned()),
            ..row(2, 75.0)
        };
        let waiting = JobRow { state: "not_run".into(), elapsed: None, exit: None, ..row(3, 0.0) };
        assert_eq!(
            table(&[row(1, 0.25), failed, waiting], None),
            "\
state          job  tries        time  exit        command
succeeded        1      1      250 ms  exit 0      ./convert 1
failed           2      3  1 min 15 s  timed out   [b] ./convert 2  (gave up)
not run          3      1                          ./convert 3
"
        );
    }

    #[test]
    fn json_has_one_object_a_line() {
        let mut text = Vec::new();
        write_json(&[row(1, 0.5), JobRow { command: "a\nb".into(), ..row(2, 1.0) }], &mut text)
            .unwrap();
        let text = String::from_utf8(text).unwrap();
        let lines: Vec<serde_json::Value> =
            text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!(lines.len(), 2);
        assert_eq!(
            (&lines[0]["schema"], &lines[0]["elapsed_seconds"]),
            (&SCHEMA.into(), &0.5.into())
        );
        assert_eq!(lines[1]["command"], "a\nb");
        let docs =
            std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/json.md"));
        let docs = docs.unwrap();
        let section = docs.split("## ").find(|it| it.contains("pipewright.jobs/1`\n")).unwrap();
        for field in lines[0].as_object().unwrap().keys() {
            assert!(section.contains(&format!("`{field}`")), "{field} is not documented");
        }
    }

    proptest! {
        #[test]
        fn no_line_is_wider_than_the_terminal(
            command in ".{0,200}|[\u{0}-\u{1f}日]{0,80}", name in prop::option::of(".{0,30}"),
            state in ".{0,20}", exit in prop::option::of(".{0,30}"), job in any::<u64>(), attempts in any::<u32>(),
            width in 60_usize..200,
        ) {
            let row = JobRow { command, name, state, exit, attempts, ..row(job, 1e9) };
            for line in table(&[row], Some(width)).lines() {
                prop_assert!(columns(line) <= width, "{line:?}");
            }
        }
    }
}
