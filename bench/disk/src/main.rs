//! File I/O by pipewright-disk beside std, tokio, the io-uring crate and fio.
//!
//! `disk FOLDER [CASE...]` creates a file of 1 GiB in the folder, measures the peers of each case in interleaved rounds
//! (A B C A B C ...), and prints medians with the minimum and the maximum. `--seconds S` is the time of a cell,
//! `--rounds N` the number of rounds.

mod cells;
mod classes;
mod peers;

use std::error::Error;
use std::path::{Path, PathBuf};
use std::time::Duration;

use pipewright_bench::interleaved;
use pipewright_bench::stats::{Summary, ratios};

type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// A function that measures one cell and returns operations per second, or MiB per second.
type MeasureFn<'a> = Box<dyn Fn() -> Result<f64> + 'a>;

struct Settings {
    folder: PathBuf,
    cases: Vec<String>,
    time: Duration,
    rounds: usize,
}

const CASES: [&str; 7] =
    ["cached", "alone", "direct32", "direct128", "classes", "write", "diagnosis"];

fn main() -> Result<()> {
    let settings = settings()?;
    let file = settings.folder.join("pipewright-bench-disk");
    let made = make(&file).and_then(|()| cases(&settings, &file));
    // Ignored: an earlier error is more useful.
    let _ = std::fs::remove_file(&file);
    made
}

fn settings() -> Result<Settings> {
    let mut words = std::env::args().skip(1);
    let folder = words.next().ok_or("usage: disk FOLDER [CASE...] [--seconds S] [--rounds N]")?;
    let (mut cases, mut seconds, mut rounds) = (Vec::new(), 1.0, 5);
    while let Some(word) = words.next() {
        match word.as_str() {
            "--seconds" => seconds = words.next().ok_or("--seconds S")?.parse()?,
            "--rounds" => rounds = words.next().ok_or("--rounds N")?.parse()?,
            case if CASES.contains(&case) => cases.push(word),
            _ => return Err(format!("unknown case {word}; the cases are {CASES:?}").into()),
        }
    }
    if cases.is_empty() {
        cases = CASES.map(str::to_owned).to_vec();
    }
    let time = Duration::from_secs_f64(seconds);
    Ok(Settings { folder: folder.into(), cases, time, rounds })
}

/// Creates a file of 1 GiB that is on the disk and in the cache.
fn make(path: &Path) -> Result<()> {
    let mut file = std::fs::File::create(path)?;
    let block: Vec<u8> =
        (0..1 << 20).map(|place: u32| (place.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
    for _ in 0..1 << 10 {
        std::io::Write::write_all(&mut file, &block)?;
    }
    Ok(file.sync_all()?)
}

fn cases(settings: &Settings, file: &Path) -> Result<()> {
    for case in &settings.cases {
        if case == "diagnosis" {
            cells::diagnosis(file)?;
            continue;
        }
        if case == "classes" {
            classes::compare(file, settings.time * settings.rounds as u32)?;
            continue;
        }
        let time = settings.time;
        let cells: Vec<(&str, MeasureFn<'_>)> = match case.as_str() {
            "cached" => vec![
                ("std pread", Box::new(move || peers::std_cached(file, time))),
                ("preadv2", Box::new(move || peers::preadv2(file, time))),
                ("pipewright Engine", Box::new(move || cells::cached(file, time))),
                ("pipewright SharedEngine", Box::new(move || cells::cached_shared(file, time))),
                ("tokio::fs", Box::new(move || peers::tokio_cached(file, time))),
            ],
            "direct32" => vec![
                ("fio io_uring", Box::new(move || peers::fio_read(file, time, 32))),
                ("pipewright Engine", Box::new(move || cells::direct(file, time, 32))),
                ("io-uring crate", Box::new(move || peers::ring_direct(file, time, 32))),
                ("tokio spawn_blocking", Box::new(move || peers::tokio_direct(file, time, 32))),
            ],
            "direct128" => vec![
                ("io-uring crate", Box::new(move || peers::ring_direct(file, time, 128))),
                ("pipewright Engine", Box::new(move || cells::direct(file, time, 128))),
            ],
            "alone" => vec![
                ("std pwrite", Box::new(move || peers::std_pwrite(file, time))),
                ("pipewright Engine", Box::new(move || cells::alone(file, time, true))),
                (
                    "pipewright Engine, backend only",
                    Box::new(move || cells::alone(file, time, false)),
                ),
            ],
            _ => {
                let folder = &settings.folder;
                vec![
                    ("fio io_uring", Box::new(move || peers::fio_write(folder))),
                    ("pipewright Engine", Box::new(move || cells::write(folder))),
                ]
            }
        };
        measure(case, settings.rounds, &cells)?;
    }
    Ok(())
}

/// Measures interleaved rounds of every peer, and prints them as a table.
fn measure(case: &str, rounds: usize, cells: &[(&str, MeasureFn<'_>)]) -> Result<()> {
    let figures = interleaved(rounds, cells, |round, (name, cell)| {
        let figure = cell().map_err(|error| format!("{case}: {name}: {error}"))?;
        eprintln!("{case} {round} {name}: {figure:.0}");
        Ok::<_, String>(figure)
    })?;
    let of_peer = |peer: usize| figures.iter().map(|round| round[peer]).collect::<Vec<f64>>();
    let unit = if case == "write" { "MiB/s" } else { "operations/s" };
    println!(
        "\n## {case}\n\n| peer | {unit} (min..max) \
         | ratio to the first row, of the same round (min..max) |\n|---|--:|--:|"
    );
    for (index, (name, _)) in cells.iter().enumerate() {
        let own = of_peer(index);
        let ratio = Summary::of(&ratios(&own, &of_peer(0))).ok_or("nothing was measured")?;
        let own = Summary::of(&own).ok_or("nothing was measured")?;
        println!(
            "| {name} | {:.0} ({:.0}..{:.0}) | {:.2} ({:.2}..{:.2}) |",
            own.median, own.least, own.most, ratio.median, ratio.least, ratio.most
        );
    }
    Ok(())
}
