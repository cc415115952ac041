//! The cost of classes: reporting the class of each operation.
//!
//! Two engines of one thread on one file, one with classes and one without, alternate in slices of some milliseconds.
//! A disturbance of the machine or its disk therefore affects both. Each pair of slices gives a ratio. The same is
//! measured for the system calls alone, and for the engine beside `pread`.

use std::fs::File;
use std::io::IoSliceMut;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::time::{Duration, Instant};

use pipewright_bench::stats::{median, quantile, ratios};
use pipewright_disk::{BackendKind, DiskFile, Engine, EngineOptions, Operation};
use rustix::io::{ReadWriteFlags, preadv2};
use rustix::time::{ClockId, clock_gettime};

use crate::Result;
use crate::peers::{BLOCK, Places};

const DEPTH: usize = 32;
const OPERATIONS: usize = 1000;

/// The time of one operation and its CPU time, in nanoseconds.
struct Slice {
    wall: f64,
    cpu: f64,
}

impl Slice {
    fn since(began: Instant, cpu: f64) -> Slice {
        let (wall, cpu) = (began.elapsed().as_nanos() as f64, cpu_nanos() - cpu);
        Slice { wall: wall / OPERATIONS as f64, cpu: cpu / OPERATIONS as f64 }
    }
}

/// Compares reads past the cache and reads that wait for no disk, each for that time.
pub(crate) fn compare(path: &Path, time: Duration) -> Result<()> {
    println!(
        "\n## classes\n\n| 4 KiB reads, 32 at once unless one caller; without and with classes unless named \
         | ns, first | \
         ns, second | ratio (95 % interval of the median; quartiles) | pairs |\n|---|--:|--:|--:|--:|"
    );
    for (label, direct, alone) in [
        ("past the cache", true, false),
        ("in memory, through the ring", false, false),
        ("in memory, one caller", false, true),
    ] {
        let file = DiskFile::options().read(true).direct(direct).open(path)?;
        let engine = |classes| {
            Engine::new(EngineOptions {
                backend: BackendKind::IoUring,
                depth: DEPTH,
                classes,
                cached_first: alone,
                ..EngineOptions::default()
            })
        };
        let mut engines = [engine(false)?, engine(true)?];
        let (mut places, slice) =
            (Places::default(), if alone { one_by_one } else { many_at_once });
        let pairs = alternate(time, |which| slice(&mut engines[which], &file, &mut places))?;
        print(&format!("{label}, time"), &pairs, |slice| slice.wall)?;
        print(&format!("{label}, processor time of the thread"), &pairs, |slice| slice.cpu)?;
    }
    let (std_file, mut places) = (File::open(path)?, Places::default());
    let calls = [by_pread, by_preadv2];
    let pairs = alternate(time, |which| calls[which](&std_file, &mut places))?;
    print("the calls of one caller: `pread`, and `preadv2`", &pairs, |slice| slice.wall)?;

    let file = DiskFile::options().read(true).open(path)?;
    let mut engine = Engine::new(EngineOptions::default())?;
    let pairs = alternate(time, |which| match which {
        0 => by_pread(&std_file, &mut places),
        _ => one_by_one(&mut engine, &file, &mut places),
    })?;
    print("one caller: `pread`, and the engine without classes", &pairs, |slice| slice.wall)?;
    Ok(())
}

/// Runs slices of two variants in pairs, for that time.
fn alternate(
    time: Duration,
    mut slice: impl FnMut(usize) -> Result<Slice>,
) -> Result<Vec<[Slice; 2]>> {
    let (mut pairs, began) = (Vec::new(), Instant::now());
    while began.elapsed() < time {
        // Each variant is first in every other pair.
        let order = [[0, 1], [1, 0]][pairs.len() % 2];
        let mut pair = [None, None];
        for which in order {
            pair[which] = Some(slice(which)?);
        }
        if let [Some(without), Some(with)] = pair {
            pairs.push([without, with]);
        }
    }
    Ok(pairs)
}

fn by_pread(file: &File, places: &mut Places) -> Result<Slice> {
    one_call_each(places, |buffer, place| Ok(file.read_at(buffer, place)?))
}

/// Reads by `preadv2` with `RWF_NOWAIT`, and without the flag if the block is not in memory any more.
fn by_preadv2(file: &File, places: &mut Places) -> Result<Slice> {
    one_call_each(places, |buffer, place| {
        let mut to = [IoSliceMut::new(buffer)];
        let cached = preadv2(file, &mut to, place, ReadWriteFlags::NOWAIT);
        Ok(cached.or_else(|_| preadv2(file, &mut to, place, ReadWriteFlags::empty()))?)
    })
}

fn one_call_each(
    places: &mut Places,
    call: impl Fn(&mut [u8], u64) -> Result<usize>,
) -> Result<Slice> {
    let mut buffer = vec![0; BLOCK];
    let (began, cpu) = (Instant::now(), cpu_nanos());
    for _ in 0..OPERATIONS {
        assert_eq!(call(&mut buffer, places.next_place())?, BLOCK);
    }
    Ok(Slice::since(began, cpu))
}

/// Reads blocks one by one: each waits for the last to complete.
fn one_by_one(engine: &mut Engine, file: &DiskFile, places: &mut Places) -> Result<Slice> {
    let mut buffer = file.buffer(BLOCK)?;
    let (began, cpu) = (Instant::now(), cpu_nanos());
    for _ in 0..OPERATIONS {
        let done = engine.read_at(file, buffer, places.next_place());
        assert_eq!(done.result?.bytes, BLOCK);
        buffer = done.buffer;
    }
    Ok(Slice::since(began, cpu))
}

fn many_at_once(engine: &mut Engine, file: &DiskFile, places: &mut Places) -> Result<Slice> {
    let (began, cpu) = (Instant::now(), cpu_nanos());
    let mut queued = 0;
    while queued < DEPTH {
        let read = Operation::read_at(file, file.buffer(BLOCK)?, places.next_place());
        engine.queue(read).map_err(|_| "the queue is full")?;
        queued += 1;
    }
    while let Some(done) = engine.next()? {
        assert_eq!(done.result?.bytes, BLOCK);
        if queued < OPERATIONS {
            let next = Operation::read_at(file, done.buffer, places.next_place());
            engine.queue(next).map_err(|_| "the queue is full")?;
            queued += 1;
        }
    }
    Ok(Slice::since(began, cpu))
}

fn cpu_nanos() -> f64 {
    let now = clock_gettime(ClockId::ThreadCPUTime);
    now.tv_sec as f64 * 1e9 + now.tv_nsec as f64
}

fn print(label: &str, pairs: &[[Slice; 2]], figure: impl Fn(&Slice) -> f64) -> Result<()> {
    let of = |which: usize| pairs.iter().map(|pair| figure(&pair[which])).collect::<Vec<f64>>();
    let (without, with) = (of(0), of(1));
    let ratios = ratios(&with, &without);
    let at = |share: f64| quantile(&ratios, share).ok_or("nothing was measured");
    // The true median lies between these quantiles in 95 % of such runs, for any distribution.
    let off = 0.98 / (ratios.len().max(1) as f64).sqrt();
    println!(
        "| {label} | {:.0} | {:.0} | {:.3} ({:.3}..{:.3}; {:.2}..{:.2}) | {} |",
        median(&without).ok_or("nothing was measured")?,
        median(&with).ok_or("nothing was measured")?,
        at(0.5)?,
        at(0.5 - off)?,
        at(0.5 + off)?,
        at(0.25)?,
        at(0.75)?,
        ratios.len()
    );
    Ok(())
}
