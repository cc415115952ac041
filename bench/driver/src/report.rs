//! The report in Markdown: the machine, a measured table, and the case `size`, which compares two programs that differ
//! in one `use` line.

use std::fs;

use pipewright_bench::host;
use pipewright_bench::stats::{Summary, ratios};

use crate::Result;
use crate::cases::{Show, Table};
use crate::prepare::{Tools, first_line};
use crate::rounds::{Round, is_quiet};

/// Returns the table and the notes about its rounds.
pub(crate) fn table(table: &Table, rounds: &[Round]) -> String {
    let mut heads = vec!["peer".to_owned()];
    match table.show {
        Show::Time => heads.extend(["median µs (min..max)".to_owned(), "p10 µs".to_owned()]),
        Show::Speed => heads.push("MB/s (min..max)".to_owned()),
        Show::ExtrasOnly => {}
    }
    if table.show != Show::ExtrasOnly {
        heads.extend(table.baselines.iter().map(|name| format!("time ÷ {name} (min..max)")));
    }
    heads.extend(table.extras.iter().map(|extra| extra_head(extra)));

    let mut text = format!("\n**{}**\n\n| {} |\n|---|", table.title, heads.join(" | "));
    text += &"--:|".repeat(heads.len() - 1);
    text.push('\n');
    for (index, row) in table.rows.iter().enumerate() {
        text += &format!("| {} | {} |\n", row.label, figures(table, rounds, index).join(" | "));
    }
    text.push('\n');
    text += &about_rounds(table, rounds);
    text
}

/// Returns the cells of a row: the figures of one peer over all rounds.
fn figures(table: &Table, rounds: &[Round], index: usize) -> Vec<String> {
    let over_rounds = |figure: &dyn Fn(&Round) -> f64| -> Vec<f64> {
        rounds.iter().map(figure).collect::<Vec<f64>>()
    };
    let mut figures = Vec::new();
    match table.show {
        Show::Time => {
            let time = summary(&over_rounds(&|round| round[index].median / 1000.0));
            figures.push(format!("{:.1} ({:.1}..{:.1})", time.median, time.least, time.most));
            figures.push(format!(
                "{:.1}",
                summary(&over_rounds(&|round| round[index].tenth)).median / 1000.0
            ));
        }
        Show::Speed => {
            // One byte per nanosecond is 1000 MB/s.
            let speed = |round: &Round| table.expected_bytes as f64 / round[index].median * 1000.0;
            let speed = summary(&over_rounds(&speed));
            figures.push(format!("{:.0} ({:.0}..{:.0})", speed.median, speed.least, speed.most));
        }
        Show::ExtrasOnly => {}
    }
    if table.show != Show::ExtrasOnly {
        for baseline in table.baselines {
            let Some(other) = table.rows.iter().position(|row| row.label == *baseline) else {
                continue;
            };
            let medians = |row: usize| over_rounds(&|round| round[row].median);
            let ratio = summary(&ratios(&medians(index), &medians(other)));
            figures.push(if other == index {
                "1".to_owned()
            } else {
                format!("{:.3} ({:.3}..{:.3})", ratio.median, ratio.least, ratio.most)
            });
        }
    }
    for extra in table.extras {
        let values: Vec<f64> =
            rounds.iter().filter_map(|round| round[index].extras.get(*extra).copied()).collect();
        figures.push(if values.is_empty() {
            String::new()
        } else {
            extra_figure(extra, summary(&values).median)
        });
    }
    figures
}

/// Returns the median and the range; zeros if there are no figures.
fn summary(figures: &[f64]) -> Summary {
    Summary::of(figures).unwrap_or_default()
}

fn extra_head(extra: &str) -> String {
    match extra {
        "peak_rss_bytes" => "peak RSS of the peer, MB",
        "child_peak_rss_bytes" => "peak RSS of the program, kB",
        "allocations" => "allocations",
        "threads" => "threads at most",
        "allocated_bytes" => "bytes allocated",
        other => other,
    }
    .to_owned()
}

fn extra_figure(extra: &str, value: f64) -> String {
    match extra {
        "peak_rss_bytes" => format!("{:.1}", value / 1e6),
        "child_peak_rss_bytes" => format!("{:.0}", value / 1e3),
        "allocations" => format!("{value:.1}"),
        _ => format!("{value:.0}"),
    }
}

fn about_rounds(table: &Table, rounds: &[Round]) -> String {
    let quiet = rounds.iter().filter(|round| is_quiet(round)).count();
    let loads: Vec<f64> = rounds.iter().flatten().map(|cell| cell.foreign_cores).collect();
    let load = summary(&loads);
    let fewer: String = table
        .rows
        .iter()
        .filter_map(|row| row.count.map(|count| format!("{}: {count}, ", row.label)))
        .collect();
    let mut text = format!(
        "{} operations a cell, {fewer}after {} to warm up; {quiet} of {} rounds quiet, foreign load \
         {:.2} (at most {:.2}) processors.\n",
        table.count,
        table.warm_up,
        rounds.len(),
        load.median,
        load.most,
    );
    let mut notes: Vec<&String> = rounds.iter().flatten().flat_map(|cell| &cell.notes).collect();
    notes.sort();
    notes.dedup();
    for note in notes {
        text += &format!("\n**Note:** {note}.\n");
    }
    text
}

/// The crates whose versions the report names.
const CRATES: [&str; 6] = ["pipewright", "tokio", "duct", "subprocess", "processkit", "libc"];

/// Returns a list in Markdown.
pub(crate) fn description(tools: &Tools) -> String {
    let workspace = &tools.workspace;
    let version = |program, arguments: &[&str]| first_line(program, arguments, workspace);
    let lines = [
        format!("- date: {}", version("date", &["-u", "+%Y-%m-%d"])),
        format!("- commit: {}", version("git", &["describe", "--always", "--dirty"])),
        format!("- machine: {}", host::look().line()),
        format!("- huge pages: {}", whole("/sys/kernel/mm/transparent_hugepage/enabled")),
        format!("- Rust: {}", version("rustc", &["--version"])),
        format!("- crates: {}", crates(tools)),
        format!("- Python: {}", version("python3", &["--version"])),
        format!("- C: {}", version("cc", &["--version"])),
        format!("- coreutils: {}", version("timeout", &["--version"])),
    ];
    lines.join("\n")
}

fn whole(path: &str) -> String {
    fs::read_to_string(path).map_or_else(|_| "unknown".to_owned(), |text| text.trim().to_owned())
}

/// Returns the versions of the crates in the lock file.
fn crates(tools: &Tools) -> String {
    let lock = fs::read_to_string(tools.workspace.join("Cargo.lock")).unwrap_or_default();
    let version = |name: &str| {
        let (_, rest) = lock.split_once(&format!("name = \"{name}\"\nversion = \""))?;
        rest.split('"').next()
    };
    CRATES.map(|name| format!("{name} {}", version(name).unwrap_or("unknown"))).join(", ")
}

pub(crate) fn sizes(tools: &Tools) -> Result<String> {
    let bytes = |name| std::fs::metadata(tools.binaries.join(name)).map(|file| file.len());
    let (std, pipewright) = (bytes("size-std")?, bytes("size-pipewright")?);
    let more = (pipewright as f64 - std as f64) / 1000.0;
    Ok(format!(
        "\n| program | bytes | kB more than std |\n|---|--:|--:|\n\
         | std | {std} | |\n| pipewright | {pipewright} | {more:.1} |\n"
    ))
}
