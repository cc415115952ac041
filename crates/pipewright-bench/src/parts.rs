//! The parts of each benchmark that depend on what is measured: charts, series and verdicts.

use std::time::Duration;

use crate::Error;
use crate::cases::{capture, checked, disk, ipc, pipes, spawn};
use crate::host::default_processors;
use crate::options::{
    CasesOptions, CasesPreset, CommonBenchOptions, DiskBenchOptions, DiskPreset, IpcOptions,
    PipesOptions, PipesPreset,
};
use crate::plan::PlannedChart;
use crate::report;

/// Sums up the figures in sentences.
pub(super) type SummaryFn = fn(&[report::Chart]) -> Option<String>;

/// The thoroughness of a preset.
struct Effort {
    series: u16,
    time: Duration,
    /// The time for cells of charts by block size, which have many cells.
    block_time: Duration,
    amount: capture::Amount,
    /// The time for one benchmark, and for all.
    limits: [Duration; 2],
}

impl Effort {
    fn of(preset: CasesPreset) -> Effort {
        match preset {
            CasesPreset::Quick => Effort {
                series: 3,
                time: Duration::from_millis(150),
                block_time: Duration::from_millis(50),
                amount: capture::Amount { stream_bytes: 256 << 20, children: 200 },
                limits: [Duration::from_secs(30), Duration::from_secs(120)],
            },
            CasesPreset::Full => Effort {
                series: 5,
                time: Duration::from_millis(500),
                block_time: Duration::from_millis(100),
                amount: capture::Amount { stream_bytes: 1 << 30, children: 1000 },
                limits: [Duration::from_secs(120), Duration::from_secs(900)],
            },
        }
    }
}

/// The parts of a benchmark that depend on what is measured.
pub(super) struct Parts {
    pub(super) name: &'static str,
    pub(super) preset: &'static str,
    pub(super) series: u16,
    pub(super) charts: Vec<PlannedChart>,
    pub(super) verdict: SummaryFn,
    /// The benchmarks that it consists of; none, if it is one.
    pub(super) sections: Vec<PlannedSection>,
    /// The time for all charts; `None`: as long as it takes, because the options say what to measure.
    pub(super) limit: Option<Duration>,
}

/// A benchmark as a part of another one.
#[derive(Debug)]
pub(super) struct PlannedSection {
    pub(super) name: &'static str,
    pub(super) verdict: SummaryFn,
    /// The ids of its charts.
    pub(super) charts: Vec<String>,
}

pub(super) fn pipes_parts(options: &PipesOptions) -> Result<Parts, Error> {
    let (series, time) = pipes::rules(options.preset);
    let charts = pipes::charts(options, options.common.time.unwrap_or(time))?;
    let preset = options.preset.name();
    let is_preset =
        options.blocks.is_empty() && options.count.is_none() && !pipes::is_chosen(options);
    Ok(Parts {
        name: "pipes",
        preset,
        series,
        charts,
        verdict: pipes::verdict,
        sections: Vec::new(),
        limit: is_preset.then(|| pipes::limit(options.preset)),
    })
}

pub(super) fn ipc_parts(options: &IpcOptions) -> Result<Parts, Error> {
    let effort = Effort::of(options.preset);
    let lengths = sizes(&options.blocks, &ipc::LENGTHS)?;
    let pair = match options.pin {
        Some(placement) => pipes::pinned(placement)?,
        None => default_processors(),
    };
    let time = options.common.time.unwrap_or(effort.block_time);
    let charts = ipc::charts(&lengths, pair, time);
    let preset = options.preset.name();
    Ok(Parts {
        name: "ipc",
        preset,
        series: effort.series,
        charts,
        verdict: ipc::verdict,
        sections: Vec::new(),
        limit: options.blocks.is_empty().then_some(effort.limits[0]),
    })
}

pub(super) fn disk_parts(options: &DiskBenchOptions) -> Result<Parts, Error> {
    let effort = Effort::of(match options.preset {
        DiskPreset::Quick | DiskPreset::Ibm2001 => CasesPreset::Quick,
        DiskPreset::Full => CasesPreset::Full,
    });
    let mut sweep = disk::DiskSweep::of(options.preset);
    sweep.blocks = sizes(&options.blocks, &sweep.blocks)?;
    if let Some(most) = options.depth.iter().max() {
        sweep.depth = usize::from(*most);
        sweep.depths = options.depth.iter().copied().map(usize::from).collect();
    }
    sweep.file_bytes = options.file_bytes.unwrap_or(sweep.file_bytes);
    let time = options.common.time.unwrap_or(effort.block_time);
    let charts = disk::charts(&options.folder, &sweep, time);
    let preset = options.preset.name();
    let is_preset =
        options.blocks.is_empty() && options.depth.is_empty() && options.file_bytes.is_none();
    Ok(Parts {
        name: "disk",
        preset,
        series: effort.series,
        charts,
        verdict: disk::verdict,
        sections: Vec::new(),
        limit: is_preset.then(|| disk::limit(options.preset)),
    })
}

pub(super) fn spawn_parts(options: &CasesOptions) -> Parts {
    let effort = Effort::of(options.preset);
    let charts = spawn::charts(options.common.time.unwrap_or(effort.time));
    let preset = options.preset.name();
    Parts {
        name: "spawn",
        preset,
        series: effort.series,
        charts,
        verdict: spawn::verdict,
        sections: Vec::new(),
        limit: Some(effort.limits[0]),
    }
}

pub(super) fn capture_parts(options: &CasesOptions) -> Parts {
    let effort = Effort::of(options.preset);
    let time = options.common.time.unwrap_or(effort.time);
    let charts = capture::charts(effort.amount, time);
    let preset = options.preset.name();
    Parts {
        name: "capture",
        preset,
        series: effort.series,
        charts,
        verdict: capture::verdict,
        sections: Vec::new(),
        limit: Some(effort.limits[0]),
    }
}

pub(super) fn all_parts(options: &CasesOptions) -> Result<Parts, Error> {
    let (pipes_preset, disk_preset) = match options.preset {
        CasesPreset::Quick => (PipesPreset::Quick, DiskPreset::Quick),
        CasesPreset::Full => (PipesPreset::Full, DiskPreset::Full),
    };
    let common = CommonBenchOptions { time: options.common.time, ..CommonBenchOptions::default() };
    let pipes =
        PipesOptions { preset: pipes_preset, common: common.clone(), ..PipesOptions::default() };
    let ipc =
        IpcOptions { preset: options.preset, common: common.clone(), ..IpcOptions::default() };
    let disk = DiskBenchOptions { preset: disk_preset, common, ..DiskBenchOptions::default() };
    let parts = [
        pipes_parts(&pipes)?,
        ipc_parts(&ipc)?,
        disk_parts(&disk)?,
        spawn_parts(options),
        capture_parts(options),
    ];
    let (mut charts, mut sections) = (Vec::new(), Vec::new());
    for part in parts {
        let ids = part.charts.iter().map(|chart| chart.id.clone()).collect();
        sections.push(PlannedSection { name: part.name, verdict: part.verdict, charts: ids });
        charts.extend(part.charts);
    }
    let Effort { series, limits: [_, limit], .. } = Effort::of(options.preset);
    let preset = options.preset.name();
    // The sections have theirs.
    let verdict: SummaryFn = |_| None;
    Ok(Parts { name: "all", preset, series, charts, verdict, sections, limit: Some(limit) })
}

/// Keeps only the charts with these ids; all, if there is none.
pub(super) fn choose(charts: &mut Vec<PlannedChart>, only: &[String]) -> Result<(), Error> {
    let known: Vec<&str> = charts.iter().map(|chart| chart.id.as_str()).collect();
    if let Some(unknown) = only.iter().find(|name| !known.contains(&name.as_str())) {
        let known = known.join(", ");
        let problem = format!("there is no chart \"{unknown}\"; the charts are {known}");
        return Err(Error::Option { option: "--only".to_owned(), problem });
    }
    charts.retain(|chart| only.is_empty() || only.contains(&chart.id));
    Ok(())
}

/// Returns the given sizes, or the usual ones.
fn sizes(given: &[usize], default: &[usize]) -> Result<Vec<usize>, Error> {
    if given.is_empty() { Ok(default.to_vec()) } else { checked(given.to_vec()) }
}
