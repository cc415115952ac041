//! `bench spawn`: the time to start a process through the library, with each option and from a parent that uses
//! much memory.

use std::hint::black_box;
use std::time::{Duration, Instant};

use pipewright::{Command, Contain, Resource, Scope, null};
use pipewright_os::host::host_info;

use super::{Timing, chart, starting};
use crate::child::ChildTask;
use crate::plan::{CellError, Measure, PlannedChart, Point, Sample};
use crate::report;
use crate::stats::{ComparisonContext, Noise, Ratio};
use crate::units::{self, Unit, bytes};

const PLAIN: &str = "no option";
const ALL: &str = "all of these except the tree";
const AND_WAIT: &str = "start and wait";
const SMALL: &str = "no extra memory";

/// The memory that the parent uses beyond its own.
const SIZES_BYTES: [u64; 3] = [0, 512 << 20, LARGEST_BYTES];
const LARGEST_BYTES: u64 = 2 << 30;

/// Returns the charts, with that time for each cell.
pub(crate) fn charts(time: Duration) -> Vec<PlannedChart> {
    vec![
        chart("spawn", "Starting a process that exits at once", Unit::Seconds, time, starts()),
        chart("spawn-options", "Start and wait, with options", Unit::Seconds, time, options()),
        chart(
            "spawn-size",
            "Start and wait, by memory that the parent uses",
            Unit::Seconds,
            time,
            sizes(),
        ),
    ]
}

fn starts() -> Vec<Point> {
    vec![
        starting("start", || {
            let begin = Instant::now();
            let child = command()?.start()?;
            let time = begin.elapsed();
            child.wait()?;
            Ok(time.into())
        }),
        starting(AND_WAIT, || wait_for(&|_| Ok(()))),
    ]
}

fn command() -> Result<Command, CellError> {
    Ok(ChildTask::Exit.command()?)
}

/// Sets one or more options.
type Setting = fn(&mut Command) -> Result<(), CellError>;

/// Starts a process with those options, and waits for it.
fn wait_for(set: &dyn Fn(&mut Command) -> Result<(), CellError>) -> Result<Timing, CellError> {
    let begin = Instant::now();
    let mut command = command()?;
    set(&mut command)?;
    let status = command.status()?;
    let time = begin.elapsed();
    if status.success() {
        Ok(time.into())
    } else {
        Err(CellError::Skip(format!("the child exited with {status}")))
    }
}

fn options() -> Vec<Point> {
    const SETTINGS: [(&str, Setting); 7] = [
        (PLAIN, |_| Ok(())),
        ("environment and working directory", surroundings),
        ("own process group", |command| {
            command.own_group();
            Ok(())
        }),
        ("an inherited handle", inherit),
        ("a limit on open files", limit),
        ("killed when its parent exits", |command| {
            command.kill_on_parent_exit(Scope::Child);
            Ok(())
        }),
        (ALL, |command| {
            surroundings(command)?;
            inherit(command)?;
            limit(command)?;
            command.own_group().kill_on_parent_exit(Scope::Child);
            Ok(())
        }),
    ];
    let held = starting("held as a tree", || {
        wait_for(&|command| {
            command.contain(Contain::Tree);
            Ok(())
        })
    });
    let each = |(label, setting): (&str, Setting)| starting(label, move || wait_for(&setting));
    SETTINGS.into_iter().map(each).chain([held]).collect()
}

fn surroundings(command: &mut Command) -> Result<(), CellError> {
    command.env("PIPEWRIGHT_BENCH", "1").env_remove("LC_ALL").current_dir(std::env::temp_dir());
    Ok(())
}

fn inherit(command: &mut Command) -> Result<(), CellError> {
    command.inherit(null()?);
    Ok(())
}

fn limit(command: &mut Command) -> Result<(), CellError> {
    // Low, because an unprivileged process may not raise its limit.
    command.rlimit(Resource::OpenFiles, Some(64), Some(64));
    Ok(())
}

fn sizes() -> Vec<Point> {
    SIZES_BYTES
        .into_iter()
        .map(|size| {
            let label = if size == 0 { SMALL.to_owned() } else { bytes(size) };
            Point::new(label, None, Large { size })
        })
        .collect()
}

/// A parent that uses that much memory while it starts children.
#[derive(Debug)]
struct Large {
    size: u64,
}

impl Measure for Large {
    fn measure(&mut self, time: Duration) -> Result<Sample, CellError> {
        let ballast = ballast(self.size)?;
        let mut point = starting("", || wait_for(&|_| Ok(())));
        let sample = point.measure.measure(time);
        drop(black_box(ballast));
        sample
    }
}

/// Allocates memory and writes to all of it.
fn ballast(size: u64) -> Result<Vec<u8>, CellError> {
    // Left free for other processes and for the allocation itself.
    const SPARE_BYTES: u64 = 512 << 20;
    if size == 0 {
        return Ok(Vec::new());
    }
    let free = host_info::free_memory_bytes();
    if free.is_none_or(|free| free < size + SPARE_BYTES) {
        let free = free.map_or("unknown".to_owned(), |free| bytes(free >> 20 << 20));
        return Err(CellError::Skip(format!(
            "takes {} of memory, but {free} is free",
            bytes(size)
        )));
    }
    let count = usize::try_from(size)
        .map_err(|_| CellError::Skip("more than the address space".to_owned()))?;
    let mut ballast = Vec::new();
    // A limit on the address space may be lower than what is free.
    ballast.try_reserve_exact(count).map_err(|error| CellError::Skip(error.to_string()))?;
    // Not zero: allocators return zeroed memory without touching it.
    ballast.resize(count, 1);
    Ok(ballast)
}

/// Sums up the figures in a sentence; `None`: not measured.
pub(crate) fn verdict(charts: &[report::Chart]) -> Option<String> {
    let figures = |id: &str, label: &str| {
        let chart = charts.iter().find(|chart| chart.id == id)?;
        chart.cells().find(|cell| cell.label == label)
    };
    let beside = |before: Option<&report::Cell>, after: Option<&report::Cell>| {
        let (before, after) = report::Cell::comparable(before?, after?);
        let noise = Noise::of([before, after])?;
        let circumstances = ComparisonContext { noise: Some(noise), pairs: 2, drift: 1.0 };
        let ratio = Ratio::of(before, after, &circumstances)?;
        Some(if ratio.is_real { units::change(ratio.ratio) } else { "the same".to_owned() })
    };
    let plain = figures("spawn", AND_WAIT)?.median?;
    let mut summary =
        format!("Starting a process and waiting for it takes {}", Unit::Seconds.show(plain));
    if let Some(change) = beside(figures("spawn-options", PLAIN), figures("spawn-options", ALL)) {
        summary.push_str(&format!("; with options: {change}"));
    }
    let (small, large) =
        (figures("spawn-size", SMALL), figures("spawn-size", &bytes(LARGEST_BYTES)));
    if let Some(change) = beside(small, large) {
        let size = bytes(LARGEST_BYTES);
        summary.push_str(&format!("; from a parent with {size} in use: {change}"));
    }
    summary.push('.');
    Some(summary)
}
