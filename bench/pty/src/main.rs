//! Terminals for children: starts, bytes a second, and bytes that are lost, beside a C reader, portable-pty and Python.
//!
//! `cargo run --release -p pty -- [--rounds N] [CASE...]`. Each figure is the ratio to the C reader, or to pipes, of
//! runs that take

use std::env;
use std::error::Error;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::time::Instant;

use pipewright::{Command, Limit, PtySize};
use portable_pty::{CommandBuilder, NativePtySystem, PtySystem as _};

type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// A reader of terminals.
const READERS: [&str; 6] = ["c", "pipewright", "spawned", "portable-pty", "python", "pipes"];

/// A case: its name, the number of children, and the bytes that each writes (`loss`: the most).
const CASES: [(&str, usize, usize); 3] =
    [("start", 300, 0), ("stream", 1, 64 << 20), ("loss", 10_000, 256 << 10)];

fn main() -> Result<()> {
    let words: Vec<String> = env::args().skip(1).collect();
    match words.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["read", reader, case, program, count, bytes] => {
            let (count, bytes) = (count.parse()?, bytes.parse()?);
            let before = open_handles();
            println!("{}", read(reader, case, program, count, bytes)?);
            match open_handles() {
                after if after == before => Ok(()),
                after => Err(format!("{before} handles before, {after} after").into()),
            }
        }
        ["--rounds", rounds, ref cases @ ..] => measure(rounds.parse()?, cases),
        ref cases => measure(7, cases),
    }
}

fn open_handles() -> usize {
    std::fs::read_dir("/proc/self/fd").map_or(0, Iterator::count)
}

fn measure(rounds: usize, cases: &[&str]) -> Result<()> {
    let folder = env::temp_dir().join(format!("pipewright-pty-{}", std::process::id()));
    std::fs::create_dir_all(&folder)?;
    let program = folder.join("pty");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../c/pty.c");
    Command::new("cc").args(["-O2", "-static", "-o"]).arg(&program).arg(source).run()?;
    let is_wanted = |case: &str| cases.is_empty() || cases.contains(&case);
    for (case, count, bytes) in CASES.into_iter().filter(|(case, ..)| is_wanted(case)) {
        // One round of 10,000 children is a minute for each reader.
        let rounds = if case == "loss" { 1 } else { rounds };
        let mut seconds = vec![Vec::new(); READERS.len()];
        let mut totals = vec![0; READERS.len()];
        for _ in 0..rounds {
            for (place, reader) in READERS.iter().enumerate() {
                let begun = Instant::now();
                totals[place] = start(reader, case, &program, count, bytes)?;
                seconds[place].push(begun.elapsed().as_secs_f64());
            }
        }
        report(case, count, bytes, &seconds, &totals);
    }
    Ok(std::fs::remove_dir_all(folder)?)
}

/// Runs a reader in a process of its own, and returns the bytes that it has read.
fn start(reader: &str, case: &str, program: &Path, count: usize, bytes: usize) -> Result<u64> {
    let program_text = program.to_str().unwrap_or_default();
    let (count, bytes) = (count.to_string(), bytes.to_string());
    let mut command = match reader {
        "c" => Command::new(program),
        "python" => {
            let script: PathBuf =
                Path::new(env!("CARGO_MANIFEST_DIR")).join("../python/pty_reader.py");
            Command::new("python3").arg(script).owned()
        }
        _ => Command::new(env::current_exe()?).args(["read", reader]).owned(),
    };
    Ok(command.args([case, program_text, &count, &bytes]).read()?.parse()?)
}

fn size_of(case: &str, round: usize, most: usize) -> usize {
    if case == "loss" { round * 7919 % most + 1 } else { most }
}

fn read(reader: &str, case: &str, program: &str, count: usize, most: usize) -> Result<u64> {
    let mut all = 0;
    for round in 0..count {
        let bytes = size_of(case, round, most).to_string();
        all += match reader {
            "portable-pty" => with_portable_pty(program, &bytes)?,
            "spawned" => with_a_spawned_child(program, &bytes)?,
            reader => with_pipewright(reader, program, &bytes)?,
        };
    }
    Ok(all)
}

fn with_pipewright(reader: &str, program: &str, bytes: &str) -> Result<u64> {
    let mut command = Command::new(program);
    command.args(["child", bytes]).limit(Limit::keep_head(0));
    if reader == "pipewright" {
        command.pty(PtySize::default());
    }
    let output = command.output()?;
    if !output.success() || output.held_open {
        return Err(format!("{}, held open: {}", output.status, output.held_open).into());
    }
    Ok(output.stdout_bytes.unwrap_or_default())
}

/// Reads the terminal of a child as the other peers do: without a run that holds the child's side.
fn with_a_spawned_child(program: &str, bytes: &str) -> Result<u64> {
    let mut command = Command::new(program);
    let mut child = command.args(["child", bytes]).pty(PtySize::default()).spawn()?;
    let mut reader = child.stdout.take().ok_or("no terminal")?;
    let (mut buffer, mut all) = (vec![0; 1 << 16], 0);
    loop {
        match reader.read(&mut buffer)? {
            0 => break,
            count => all += count as u64,
        }
    }
    if !child.wait()?.success() {
        return Err("the child failed".into());
    }
    Ok(all)
}

fn with_portable_pty(program: &str, bytes: &str) -> Result<u64> {
    let pair = NativePtySystem::default().openpty(portable_pty::PtySize::default())?;
    let mut command = CommandBuilder::new(program);
    command.args(["child", bytes]);
    let mut child = pair.slave.spawn_command(command)?;
    drop(pair.slave);
    let mut reader = pair.master.try_clone_reader()?;
    let (mut buffer, mut all) = (vec![0; 1 << 16], 0);
    while let Ok(count @ 1..) = reader.read(&mut buffer) {
        all += count as u64;
    }
    if !child.wait()?.success() {
        return Err("the child failed".into());
    }
    Ok(all)
}

/// Returns the bytes that a terminal makes of those of the children: a line feed is two.
fn expected(case: &str, count: usize, most: usize, is_terminal: bool) -> u64 {
    let of = |bytes: usize| bytes as u64 + if is_terminal { bytes as u64 / 80 } else { 0 };
    // The child's block has whole lines.
    (0..count).map(|round| of(size_of(case, round, most))).sum()
}

fn report(case: &str, count: usize, bytes: usize, seconds: &[Vec<f64>], totals: &[u64]) {
    println!("\n### {case}: {count} children, {bytes} bytes\n");
    println!("| reader | median | of the pairs: ratio to C | ratio to pipes | bytes lost |");
    println!("|---|--:|--:|--:|--:|");
    for (place, reader) in READERS.iter().enumerate() {
        let Some(own) = seconds.get(place) else { continue };
        let ratio_to = |other: Option<&Vec<f64>>| {
            median(
                own.iter()
                    .zip(other.into_iter().flatten())
                    .map(|(own, other)| own / other)
                    .collect(),
            )
        };
        let lost = expected(case, count, bytes, *reader != "pipes") as i64
            - totals.get(place).copied().unwrap_or_default() as i64;
        let (to_c, to_pipes) = (ratio_to(seconds.first()), ratio_to(seconds.last()));
        let time = median(own.clone()) * 1e3;
        println!("| {reader} | {time:.1} ms | {to_c:.2} | {to_pipes:.2} | {lost} |");
    }
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or_default()
}
