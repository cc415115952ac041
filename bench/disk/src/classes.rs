//! What it costs to be told the class of each operation.
//!
//! Two engines of one thread on one file, one that tells and one that does not, take turns in slices of some
//! milliseconds: what the machine and its disk do meanwhile meets both. Each pair of slices gives a ratio. The
//! calls alone are beside them, as is the engine beside `pread`.

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

/// How long an operation took, and how much of a processor, in nanoseconds.
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

/// For so long each: past the cache, and where nothing waits for a disk.
pub(crate) fn compare(path: &Path, time: Duration) -> Result<()> {
    println!(
        "\n## classes\n\n| reads of 4 KiB, 32 at once but for one caller: without classes, and with | ns | ns | ratio (95 % of its \
         median; quartiles) | pairs |\n|---|--:|--:|--:|--:|"
    );
    for (way, direct, alone) in [
        ("past the cache", true, false),
        ("in memory, through the ring", false, false),
        ("in memory, one caller", false, true),
    ] {
        let file = DiskFile::options().read(true).direct(direct).open(path)?;
        let engine = |classes| {
            Engine::new(EngineOptions {
                backend: BackendKind::Uring,
                depth: DEPTH,
                classes,
                cached_first: alone,
                ..EngineOptions::default()
            })
        };
        let mut engines = [engine(false)?, engine(true)?];
        let (mut places, slice) =
            (Places::default(), if alone { one_by_one } else { many_at_once });
        let pairs = take_turns(time, |which| slice(&mut engines[which], &file, &mut places))?;
        print(&format!("{way}, time"), &pairs, |slice| slice.wall)?;
        print(&format!("{way}, processor time of the thread"), &pairs, |slice| slice.cpu)?;
    }
    let (std_file, mut places) = (File::open(path)?, Places::default());
    let calls = [by_pread, by_preadv2];
    let pairs = take_turns(time, |which| calls[which](&std_file, &mut places))?;
    print("the calls of one caller: `pread`, and `preadv2`", &pairs, |slice| slice.wall)?;

    let file = DiskFile::options().read(true).open(path)?;
    let mut engine = Engine::new(EngineOptions::default())?;
    let pairs = take_turns(time, |which| match which {
        0 => by_pread(&std_file, &mut places),
        _ => one_by_one(&mut engine, &file, &mut places),
    })?;
    print("one caller: `pread`, and the engine without classes", &pairs, |slice| slice.wall)?;
    Ok(())
}

/// Two that do the same in two ways, in pairs of slices.
fn take_turns(
    time: Duration,
    mut slice: impl FnMut(usize) -> Result<Slice>,
) -> Result<Vec<[Slice; 2]>> {
    let (mut pairs, began) = (Vec::new(), Instant::now());
    while began.elapsed() < time {
        // Neither is always the first.
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

/// What is not in memory any more is read all the same.
fn by_preadv2(file: &File, places: &mut Places) -> Result<Slice> {
    one_call_each(places, |buffer, place| {
        let mut to = [IoSliceMut::new(buffer)];
        let found = preadv2(file, &mut to, place, ReadWriteFlags::NOWAIT);
        Ok(found.or_else(|_| preadv2(file, &mut to, place, ReadWriteFlags::empty()))?)
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

/// Each is waited for before the next.
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
        engine.queue(read).map_err(|_| "there is room")?;
        queued += 1;
    }
    while let Some(done) = engine.next()? {
        assert_eq!(done.result?.bytes, BLOCK);
        if queued < OPERATIONS {
            let next = Operation::read_at(file, done.buffer, places.next_place());
            engine.queue(next).map_err(|_| "there is room")?;
            queued += 1;
        }
    }
    Ok(Slice::since(began, cpu))
}

fn cpu_nanos() -> f64 {
    let now = clock_gettime(ClockId::ThreadCPUTime);
    now.tv_sec as f64 * 1e9 + now.tv_nsec as f64
}

fn print(what: &str, pairs: &[[Slice; 2]], figure: impl Fn(&Slice) -> f64) -> Result<()> {
    let of = |which: usize| pairs.iter().map(|pair| figure(&pair[which])).collect::<Vec<f64>>();
    let (without, with) = (of(0), of(1));
    let ratios = ratios(&with, &without);
    let at = |share: f64| quantile(&ratios, share).ok_or("nothing was measured");
    // The median lies between these quantiles in 95 % of all such runs, whatever the distribution.
    let off = 0.98 / (ratios.len().max(1) as f64).sqrt();
    println!(
        "| {what} | {:.0} | {:.0} | {:.3} ({:.3}..{:.3}; {:.2}..{:.2}) | {} |",
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
