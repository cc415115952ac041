//! `bench disk`: reads and writes of a file, by block size and by queue depth.

mod scratch;
mod transfer;
mod verdict;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use pipewright_disk::{BackendKind, Engine, EngineOptions, ErrorKind, UnavailableReason};
use serde_json::json;

use super::block::BlockCell;
use super::sizes::IBM_2001;
use crate::options::DiskPreset;
use crate::plan::{Chart, Curve, Measure, Point};
use crate::report::Axis;
use crate::units::{Unit, bytes};

pub(crate) use verdict::verdict;

use scratch::{Access, Scratch};
use transfer::{Transfer, Work};

/// The block sizes, queue depths and file size.
#[derive(Debug, Clone)]
pub(crate) struct Sweep {
    pub(crate) blocks: Vec<usize>,
    /// The queue depth of the curves by block size.
    pub(crate) depth: usize,
    /// The queue depths of the chart by depth.
    pub(crate) depths: Vec<usize>,
    pub(crate) file_bytes: u64,
}

impl Sweep {
    /// Returns the sweep of a preset.
    pub(crate) fn of(preset: DiskPreset) -> Sweep {
        let quick = Sweep {
            blocks: (12..=22).step_by(2).map(|shift| 1 << shift).collect(),
            depth: 32,
            depths: vec![1, 4, 16, 64],
            file_bytes: 64 << 20,
        };
        match preset {
            DiskPreset::Quick => quick,
            DiskPreset::Ibm2001 => Sweep { blocks: IBM_2001.to_vec(), ..quick },
            DiskPreset::Full => Sweep {
                blocks: (9..=22).map(|shift| 1 << shift).collect(),
                depth: 32,
                depths: (0..=7).map(|shift| 1 << shift).collect(),
                file_bytes: 512 << 20,
            },
        }
    }
}

/// The block size of the chart by depth.
const SMALL_BYTES: usize = 4096;

const CACHED: &str = "through the cache";
const DIRECT: &str = "direct";

/// Returns the charts, with that time for each cell.
pub(crate) fn charts(folder: &Path, sweep: &Sweep, time: Duration) -> Vec<Chart> {
    let scratch = Arc::new(Scratch::new(folder, sweep.file_bytes));
    let one = |writes, access| Work {
        writes,
        access,
        backend: BackendKind::Caller,
        depth: 1,
        random: false,
    };
    let several = |writes| Work {
        backend: BackendKind::Auto,
        depth: sweep.depth,
        ..one(writes, Access::Direct)
    };
    let size = bytes(sweep.file_bytes);
    let over_blocks = |id: &str, title: &str, ways: Vec<(String, Work)>| {
        let curve = |(name, work): (String, Work)| curve(&name, work, &scratch, &sweep.blocks);
        let curves = ways.into_iter().map(curve).collect();
        Chart::over_blocks(
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
        (CACHED.to_owned(), one(false, Access::Cached)),
        (one_direct.clone(), one(false, Access::Direct)),
        (at_once.clone(), several(false)),
    ];
    let writes = vec![
        (CACHED.to_owned(), one(true, Access::Cached)),
        ("each one synced".to_owned(), one(true, Access::Synced)),
        (one_direct, one(true, Access::Direct)),
        (at_once, several(true)),
    ];
    vec![
        over_blocks("disk-read", "Reading", reads),
        over_blocks("disk-write", "Overwriting", writes),
        depths(&scratch, &sweep.depths, time),
    ]
}

/// Returns the chart by queue depth: small random reads past the cache, by each backend.
fn depths(scratch: &Arc<Scratch>, depths: &[usize], time: Duration) -> Chart {
    let curve = |backend: BackendKind| Curve {
        name: backend.name().to_owned(),
        facts: [("backend".to_owned(), json!(backend.name()))].into(),
        points: depths
            .iter()
            .map(|depth| {
                let (writes, access, random) = (false, Access::Direct, true);
                let work = Work { writes, access, backend, depth: *depth, random };
                let label =
                    if *depth == 1 { "1 at a time".to_owned() } else { format!("{depth} at once") };
                Point::new(label, Some(SMALL_BYTES as u64), cell(work, scratch, SMALL_BYTES))
            })
            .collect(),
    };
    let backends =
        [BackendKind::Uring, BackendKind::Aio, BackendKind::Overlapped, BackendKind::Threads];
    Chart {
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
fn curve(name: &str, work: Work, scratch: &Arc<Scratch>, blocks: &[usize]) -> Curve {
    let direct = work.access == Access::Direct;
    let facts = [
        ("direct", json!(direct)),
        ("depth", json!(work.depth)),
        ("backend", json!(work.backend.name())),
        ("file_bytes", json!(scratch.bytes)),
    ];
    Curve::over(name, &facts, blocks, |block| cell(work, scratch, block))
}

fn cell(work: Work, scratch: &Arc<Scratch>, block_bytes: usize) -> impl Measure + use<> {
    let scratch = Arc::clone(scratch);
    BlockCell::new(block_bytes, None, move || Transfer::new(work, &scratch, block_bytes))
}
