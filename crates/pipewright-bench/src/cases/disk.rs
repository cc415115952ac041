//! `bench disk`: reads and writes of a file, by block size and by queue depth.

use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use std::{fs, io};

use pipewright_disk::{
    AlignedBuf, BackendKind, DiskFile, Engine, EngineOptions, ErrorKind, FileOptions, Operation,
    Result, SyncMode, UnavailableReason,
};
use serde_json::json;

use super::{BlockCell, IBM_2001};
use crate::options::DiskPreset;
use crate::plan::{CellError, Measure, PlannedChart, PlannedCurve, Point};
use crate::report::{Axis, Chart, Curve};
use crate::stats::{Random, ReadSizes};
use crate::transfer::{Round, RoundClock, Rounds};
use crate::units::{Unit, bytes, sentences};

/// The block sizes, queue depths and file size.
#[derive(Debug, Clone)]
pub(crate) struct DiskSweep {
    pub(crate) blocks: Vec<usize>,
    /// The queue depth of the curves by block size.
    pub(crate) depth: usize,
    /// The queue depths of the chart by depth.
    pub(crate) depths: Vec<usize>,
    pub(crate) file_bytes: u64,
}

impl DiskSweep {
    pub(crate) fn of(preset: DiskPreset) -> DiskSweep {
        let quick = DiskSweep {
            blocks: (12..=22).step_by(2).map(|shift| 1 << shift).collect(),
            depth: 32,
            depths: vec![1, 4, 16, 64],
            file_bytes: 64 << 20,
        };
        match preset {
            DiskPreset::Quick => quick,
            DiskPreset::Ibm2001 => DiskSweep { blocks: IBM_2001.to_vec(), ..quick },
            DiskPreset::Full => DiskSweep {
                blocks: (9..=22).map(|shift| 1 << shift).collect(),
                depth: 32,
                depths: (0..=7).map(|shift| 1 << shift).collect(),
                file_bytes: 512 << 20,
            },
        }
    }
}

/// Returns the time for all charts.
pub(crate) fn limit(preset: DiskPreset) -> Duration {
    Duration::from_secs(match preset {
        DiskPreset::Quick => 30,
        DiskPreset::Ibm2001 => 120,
        DiskPreset::Full => 180,
    })
}

/// The block size of the chart by depth.
const SMALL_BYTES: usize = 4096;

const CACHED: &str = "through the cache";
const DIRECT: &str = "direct";

/// Returns the charts, with that time for each cell.
pub(crate) fn charts(folder: &Path, sweep: &DiskSweep, time: Duration) -> Vec<PlannedChart> {
    let scratch = Arc::new(Scratch::new(folder, sweep.file_bytes));
    let one = |writes, access| Workload {
        writes,
        access,
        backend: BackendKind::Caller,
        depth: 1,
        random: false,
    };
    let several = |writes| Workload {
        backend: BackendKind::Auto,
        depth: sweep.depth,
        ..one(writes, OpenMode::Direct)
    };
    let size = bytes(sweep.file_bytes);
    let over_blocks = |id: &str, title: &str, ways: Vec<(String, Workload)>| {
        let curve = |(name, work): (String, Workload)| curve(&name, work, &scratch, &sweep.blocks);
        let curves = ways.into_iter().map(curve).collect();
        PlannedChart::over_blocks(
            id,
            &format!("{title} a file of {size}"),
            Unit::BytesPerSecond,
            time,
            curves,
        )
    };
    let at_once = format!("{DIRECT}, {} at once", sweep.depth);
    let one_direct = format!("{DIRECT}, one at a time");
    let reads = vec![
        (CACHED.to_owned(), one(false, OpenMode::Cached)),
        (one_direct.clone(), one(false, OpenMode::Direct)),
        (at_once.clone(), several(false)),
    ];
    let writes = vec![
        (CACHED.to_owned(), one(true, OpenMode::Cached)),
        ("each one synced".to_owned(), one(true, OpenMode::Synced)),
        (one_direct, one(true, OpenMode::Direct)),
        (at_once, several(true)),
    ];
    vec![
        over_blocks("disk-read", "Reading", reads),
        over_blocks("disk-write", "Overwriting", writes),
        depths(&scratch, &sweep.depths, time),
    ]
}

/// Returns the chart by queue depth: small random reads past the cache, by each backend.
fn depths(scratch: &Arc<Scratch>, depths: &[usize], time: Duration) -> PlannedChart {
    let curve = |backend: BackendKind| PlannedCurve {
        name: backend.name().to_owned(),
        facts: [("backend".to_owned(), json!(backend.name()))].into(),
        points: depths
            .iter()
            .map(|depth| {
                let (writes, access, random) = (false, OpenMode::Direct, true);
                let work = Workload { writes, access, backend, depth: *depth, random };
                let label =
                    if *depth == 1 { "1 at a time".to_owned() } else { format!("{depth} at once") };
                Point::new(label, Some(SMALL_BYTES as u64), cell(work, scratch, SMALL_BYTES))
            })
            .collect(),
    };
    let backends =
        [BackendKind::IoUring, BackendKind::Aio, BackendKind::Overlapped, BackendKind::Threads];
    PlannedChart {
        id: "disk-depth".to_owned(),
        title: format!("Random direct reads of {}", bytes(SMALL_BYTES as u64)),
        unit: Unit::BytesPerSecond,
        axis: Axis::Cases,
        time,
        references: Vec::new(),
        curves: backends
            .into_iter()
            .filter(|backend| is_of_this_system(*backend))
            .map(curve)
            .collect(),
    }
}

/// Returns true if this system has the backend. One that it has but refuses is shown with the reason.
fn is_of_this_system(backend: BackendKind) -> bool {
    let made = Engine::new(EngineOptions { backend, depth: 1, ..EngineOptions::default() });
    let Err(error) = made else { return true };
    !matches!(error.kind(), ErrorKind::NoBackend { reason: UnavailableReason::NotThisSystem })
}

/// Returns the curve of one kind of work.
fn curve(name: &str, work: Workload, scratch: &Arc<Scratch>, blocks: &[usize]) -> PlannedCurve {
    let direct = work.access == OpenMode::Direct;
    let facts = [
        ("direct", json!(direct)),
        ("depth", json!(work.depth)),
        ("backend", json!(work.backend.name())),
        ("file_bytes", json!(scratch.bytes)),
    ];
    PlannedCurve::over(name, &facts, blocks, |block| cell(work, scratch, block))
}

fn cell(work: Workload, scratch: &Arc<Scratch>, block_bytes: usize) -> impl Measure + use<> {
    let scratch = Arc::clone(scratch);
    BlockCell::new(block_bytes, None, move || Transfer::new(work, &scratch, block_bytes))
}

// The file to read and write: created when it is first needed, and unlinked at once.

/// The way to open the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum OpenMode {
    /// Through the page cache.
    Cached,
    /// Past the page cache.
    Direct,
    /// Through the page cache; each write waits for the disk.
    Synced,
}

/// A file that all cells share.
///
/// It is unlinked as soon as it is open, so nothing is left of it however this process ends.
#[derive(Debug)]
struct Scratch {
    folder: PathBuf,
    bytes: u64,
    made: OnceLock<std::result::Result<ScratchFiles, String>>,
}

/// The same file, opened in each way.
#[derive(Debug)]
struct ScratchFiles {
    cached: DiskFile,
    synced: DiskFile,
    /// The file, or the reason why it cannot be opened like this.
    direct: std::result::Result<DiskFile, String>,
    // Dropped last.
    _name: UnlinkOnDrop,
}

/// The name of a file, unlinked on drop.
#[derive(Debug)]
struct UnlinkOnDrop(PathBuf);

impl UnlinkOnDrop {
    fn unlink(&self) {
        // Ignored: it is gone already, or the drop tries again.
        let _ = fs::remove_file(&self.0);
    }
}

impl Drop for UnlinkOnDrop {
    fn drop(&mut self) {
        self.unlink();
    }
}

impl Scratch {
    fn new(folder: &Path, bytes: u64) -> Scratch {
        Scratch { folder: folder.to_owned(), bytes, made: OnceLock::new() }
    }

    /// Returns the file, opened in that way.
    fn file(&self, access: OpenMode) -> std::result::Result<DiskFile, CellError> {
        let made = self.made.get_or_init(|| {
            self.make().map_err(|error| {
                let (size, folder) = (bytes(self.bytes), self.folder.display());
                format!("cannot create a file of {size} in \"{folder}\": {error}")
            })
        });
        let files = made.as_ref().map_err(|reason| CellError::Skip(reason.clone()))?;
        match access {
            OpenMode::Cached => Ok(files.cached.clone()),
            OpenMode::Synced => Ok(files.synced.clone()),
            OpenMode::Direct => files.direct.clone().map_err(CellError::Skip),
        }
    }

    fn make(&self) -> Result<ScratchFiles> {
        let path = self.folder.join(format!(".pipewright-bench-{}", std::process::id()));
        let options = || DiskFile::options().read(true).write(true);
        let cached = options().create_new(true).open(&path)?;
        let name = UnlinkOnDrop(path);
        let again = |options: FileOptions| options.open(&name.0);
        let synced = again(options().sync(SyncMode::Data))?;
        let direct = again(options().direct(true)).map_err(|error| error.to_string());
        // Windows removes it when it is closed.
        name.unlink();
        fill(&cached, self.bytes)?;
        Ok(ScratchFiles { cached, synced, direct, _name: name })
    }
}

/// Writes random data, which filesystems cannot compress, and syncs it to the disk.
fn fill(file: &DiskFile, bytes: u64) -> Result<()> {
    const PIECE_BYTES: usize = 1 << 20;
    let mut engine = Engine::new(EngineOptions { depth: 1, ..EngineOptions::default() })?;
    // Fails early on a full disk. Not every filesystem can preallocate.
    match engine.preallocate(file, 0, bytes).result {
        Err(error) if *error.kind() == ErrorKind::Unsupported => {}
        preallocated => drop(preallocated?),
    }
    let mut buffer = file.buffer(PIECE_BYTES)?;
    let mut random = Random::new(1);
    for word in buffer.chunks_exact_mut(8) {
        word.copy_from_slice(&random.next().to_le_bytes());
    }
    let mut offset = 0;
    while offset < bytes {
        let done = engine.write_all_at(file, buffer, offset);
        done.result?;
        buffer = done.buffer;
        offset += PIECE_BYTES as u64;
    }
    engine.sync_all(file).result?;
    Ok(())
}

// Reads and writes of the file, with a number of operations in flight.

/// The kind of work of a cell.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Workload {
    writes: bool,
    access: OpenMode,
    backend: BackendKind,
    depth: usize,
    /// Blocks at random offsets instead of one after the other.
    random: bool,
}

/// The most memory for buffers, so that a lack of memory is not measured.
const MOST_BUFFER_BYTES: usize = 512 << 20;

/// The engine, its file and its buffers.
#[derive(Debug)]
struct Transfer {
    work: Workload,
    file: DiskFile,
    engine: Engine,
    buffers: Vec<AlignedBuf>,
    block_bytes: usize,
    /// The number of blocks in the file.
    blocks: u64,
    next: u64,
    random: Random,
}

impl Transfer {
    fn new(
        work: Workload,
        scratch: &Arc<Scratch>,
        block_bytes: usize,
    ) -> Result<Transfer, CellError> {
        if block_bytes as u64 > scratch.bytes {
            return Err(CellError::Skip(format!(
                "the block is larger than the file ({})",
                bytes(scratch.bytes)
            )));
        }
        let buffer_bytes = block_bytes.saturating_mul(work.depth);
        if buffer_bytes > MOST_BUFFER_BYTES {
            let words = format!("needs {} for buffers", bytes(buffer_bytes as u64));
            return Err(CellError::Skip(words));
        }
        let file = scratch.file(work.access)?;
        let align = file.alignment().offset;
        if block_bytes % align != 0 {
            let words = format!("direct I/O needs multiples of {}", bytes(align as u64));
            return Err(CellError::Skip(words));
        }
        let options =
            EngineOptions { backend: work.backend, depth: work.depth, ..EngineOptions::default() };
        let engine = Engine::new(options)?;
        // Filled, so that their pages are mapped.
        let buffer = || {
            let mut buffer = file.buffer(block_bytes)?;
            buffer.fill(0x5a);
            Ok(buffer)
        };
        let buffers = (0..work.depth).map(|_| buffer()).collect::<Result<_, CellError>>()?;
        let blocks = scratch.bytes / block_bytes as u64;
        let random = Random::new(block_bytes as u64);
        Ok(Transfer { work, file, engine, buffers, block_bytes, blocks, next: 0, random })
    }

    /// Creates the next operation.
    fn operation(&mut self, buffer: AlignedBuf) -> Operation {
        let block = if self.work.random { self.random.below(self.blocks) } else { self.next };
        self.next = (self.next + 1) % self.blocks;
        let offset = block * self.block_bytes as u64;
        if self.work.writes {
            Operation::write_all_at(&self.file, buffer, offset)
        } else {
            Operation::read_exact_at(&self.file, buffer, offset)
        }
    }

    /// Reads or writes that many blocks.
    fn move_blocks(&mut self, blocks: u64) -> pipewright_disk::Result<()> {
        let (mut started, mut done) = (0, 0);
        while done < blocks {
            while started < blocks {
                let Some(buffer) = self.buffers.pop() else { break };
                let operation = self.operation(buffer);
                if let Err(refused) = self.engine.queue(operation) {
                    // Does not happen: there is room for as many operations as there are buffers.
                    self.buffers.push(refused.into_buffer());
                    break;
                }
                started += 1;
            }
            let Some(finished) = self.engine.next()? else { break };
            self.buffers.push(finished.buffer);
            finished.result?;
            done += 1;
        }
        Ok(())
    }
}

impl Rounds for Transfer {
    fn round(&mut self, blocks: u64) -> io::Result<Round> {
        let clock = RoundClock::start();
        self.move_blocks(blocks).map_err(io::Error::other)?;
        let round = clock.stop();
        let reads = if self.work.writes {
            ReadSizes::default()
        } else {
            ReadSizes::of(blocks, self.block_bytes)
        };
        Ok(Round { reads, ..round })
    }
}

impl Drop for Transfer {
    fn drop(&mut self) {
        if self.work.writes {
            // Otherwise the system would write the data while the next cell is measured. Ignored: the next sync
            // reports the error again.
            let _ = self.engine.sync_data(&self.file);
        }
    }
}

/// Sums up the figures in sentences; `None`: not measured.
pub(crate) fn verdict(charts: &[Chart]) -> Option<String> {
    let unit = Unit::BytesPerSecond;
    let chart = |id: &str| charts.iter().find(|chart| chart.id == id);
    let mut summary = Vec::new();
    for (id, what) in [("disk-read", "reading"), ("disk-write", "overwriting")] {
        let Some(chart) = chart(id) else { continue };
        let best = |curve: &Curve| {
            let (cell, best) = curve.best(unit)?;
            Some(format!("{} {} ({})", unit.show(best.median), curve.name, cell.label))
        };
        let cached = chart.curves.iter().find(|curve| curve.name == CACHED).and_then(best);
        // The curve with many operations at once is the last one.
        let direct = chart.curves.last().filter(|curve| curve.name != CACHED).and_then(best);
        let both: Vec<String> = cached.into_iter().chain(direct).collect();
        if !both.is_empty() {
            summary.push(format!("{what} a file reaches {}", both.join(" and ")));
        }
    }
    let best =
        chart("disk-depth").into_iter().flat_map(|chart| &chart.curves).filter_map(|curve| {
            let alone = curve.cells.first()?.median?;
            let (cell, best) = curve.best(unit)?;
            Some((curve, cell, best.median, alone))
        });
    if let Some((curve, cell, most, alone)) = best.max_by(|a, b| a.2.total_cmp(&b.2)) {
        let times = |speed: f64| format!("{:.0}", speed / SMALL_BYTES as f64);
        summary.push(format!(
            "small reads: {} per second with {} ({}), {} one at a time",
            times(most),
            cell.label,
            curve.name,
            times(alone),
        ));
    }
    sentences(&summary)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::chart;

    #[test]
    fn the_file_has_no_name_while_it_is_used_and_afterwards() {
        let folder = tempfile::tempdir().unwrap();
        let scratch = Scratch::new(folder.path(), 2 << 20);
        let there = || fs::read_dir(folder.path()).unwrap().count();
        let file = scratch.file(OpenMode::Cached).map_err(|error| format!("{error:?}")).unwrap();
        assert_eq!(file.len().unwrap(), 2 << 20);
        // Windows removes names when files are closed.
        if cfg!(unix) {
            assert_eq!(there(), 0);
        }
        drop((file, scratch));
        assert_eq!(there(), 0);
    }

    #[test]
    fn a_missing_folder_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let missing = folder.path().join("missing");
        let found = Scratch::new(&missing, 1 << 20).file(OpenMode::Cached);
        let Err(CellError::Skip(reason)) = found else { panic!("{found:?}") };
        assert!(reason.starts_with("cannot create a file of 1 MiB in "), "{reason}");
        assert!(reason.contains("missing"), "{reason}");
    }

    #[test]
    fn the_cache_and_the_queue_depth_have_sentences() {
        let unit = Unit::BytesPerSecond;
        let reads: [(&str, &[(&str, f64)]); 2] = [
            (CACHED, &[("4 KiB", 6e9), ("64 KiB", 19e9)]),
            ("direct, 32 at once", &[("1 MiB", 1.1e9)]),
        ];
        let depths: [(&str, &[(&str, f64)]); 2] = [
            ("uring", &[("1 at a time", 40.96e6), ("64 at once", 409.6e6)]),
            ("threads", &[("1 at a time", 4.096e6)]),
        ];
        let charts = [chart("disk-read", unit, &reads), chart("disk-depth", unit, &depths)];
        let summary = verdict(&charts).unwrap();
        let lines: Vec<&str> = summary.lines().collect();
        assert_eq!(
            lines,
            [
                "Reading a file reaches 19.0 GB/s through the cache (64 KiB) and 1.10 GB/s direct, 32 at \
                 once (1 MiB).",
                "Small reads: 100000 per second with 64 at once (uring), 10000 one at a time.",
            ]
        );
        // Without direct I/O the sentence leaves it out.
        let cached = chart("disk-read", unit, &reads[..1]);
        let summary = verdict(&[cached]).unwrap();
        assert_eq!(summary, "Reading a file reaches 19.0 GB/s through the cache (64 KiB).");
        assert_eq!(verdict(&[]), None);
    }
}
