//! `bench disk`: reads and writes of a file, by block size and by queue depth.

mod scratch;
mod transfer;
mod verdict;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use pipewright_disk::{BackendKind, Engine, EngineOptions, ErrorKind, UnavailableReason};
use serde_json::json;

use super::{BlockCell, IBM_2001};
use crate::options::DiskPreset;
use crate::plan::{Measure, PlannedChart, PlannedCurve, Point};
use crate::report::Axis;
use crate::units::{Unit, bytes};

pub(crate) use verdict::verdict;

use scratch::{OpenMode, Scratch};
use transfer::{Transfer, Workload};

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
    /// Returns the sweep of a preset.
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
        [BackendKind::Uring, BackendKind::Aio, BackendKind::Overlapped, BackendKind::Threads];
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
