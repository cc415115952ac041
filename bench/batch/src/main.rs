//! The rate of `pipewright batch` beside `xargs -P`, GNU parallel, ninja and make.
//!
//! `batch PIPEWRIGHT CHILD WRITER [CASE]...`: PIPEWRIGHT is the tool, CHILD a static program that does nothing, WRITER
//! one that writes 1 MiB (`bench/c`). Prints the report in Markdown. Peers that are not installed are left out, and the
//! report says so. Run it as an ordinary user too: without a cgroup, trees are held by a supervisor.
//!
//! | case | measurement |
//! |---|---|
//! | `rate` | jobs that do nothing, 2 and 32 at once |
//! | `log` | the same without a log, and without containment |
//! | `graph` | 10,000 jobs with `after`: one after all others, and each after the one before |
//! | `output` | 1,000 jobs that each write 1 MiB, printed in order |
//! | `million` | 1,000,000 lines: memory, and the time until the first job starts |
//! | `resume` | the time until the first new job starts after 100,000 that are done |

mod cases;
mod peers;

use std::error::Error;
use std::path::PathBuf;

use pipewright_bench::stats::Summary;

type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// Measures a case, and prints its part of the report.
type Case = fn(&Setup) -> Result<()>;

/// The programs, and a folder for inputs and logs.
struct Setup {
    tool: PathBuf,
    child: PathBuf,
    /// Writes 1 MiB.
    writer: PathBuf,
    folder: PathBuf,
    rounds: usize,
}

fn main() -> Result<()> {
    let usage = "usage: batch PIPEWRIGHT CHILD WRITER [--rounds N] [CASE]...";
    let mut args = std::env::args_os().skip(1);
    let tool = std::fs::canonicalize(args.next().ok_or(usage)?)?;
    let child = std::fs::canonicalize(args.next().ok_or(usage)?)?;
    let writer = std::fs::canonicalize(args.next().ok_or(usage)?)?;
    let mut rounds = 5;
    let mut chosen = Vec::new();
    while let Some(word) = args.next() {
        match word.to_str() {
            Some("--rounds") => {
                rounds = args.next().and_then(|count| count.to_str()?.parse().ok()).ok_or(usage)?;
            }
            Some(name) => chosen.push(name.to_owned()),
            None => return Err(usage.into()),
        }
    }
    let folder =
        std::env::temp_dir().join(format!("pipewright-bench-batch-{}", std::process::id()));
    std::fs::create_dir(&folder)?;
    let setup = Setup { tool, child, writer, folder, rounds };
    let all: [(&str, Case); 6] = [
        ("rate", cases::rate),
        ("log", cases::log),
        ("graph", cases::graph),
        ("output", cases::output),
        ("million", cases::million),
        ("resume", cases::resume),
    ];
    let mut failed = None;
    for (name, case) in all {
        if chosen.is_empty() || chosen.iter().any(|it| it == name) {
            println!("\n## {name}\n");
            if let Err(error) = case(&setup) {
                println!("{name} could not be measured: {error}");
                failed = Some(error);
            }
        }
    }
    std::fs::remove_dir_all(&setup.folder)?;
    failed.map_or(Ok(()), Err)
}

fn summary(samples: &[f64]) -> Result<Summary> {
    Ok(Summary::of(samples).ok_or("nothing was measured")?)
}
