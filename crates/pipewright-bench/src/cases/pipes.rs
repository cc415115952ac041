//! `bench pipes`: the throughput from a writer to a reader, by block size.
//!
//! After Edward Bradford's article "Pipes in Linux, Windows 2000, and Windows XP" (IBM developerWorks, 2001). The
//! preset `ibm2001` has its block sizes.

use std::collections::BTreeMap;
use std::io;
use std::time::Duration;

use pipewright_os::host::test_pipe::{self, TestPipeKind};
use serde_json::{Value, json};

use super::{BlockCell, IBM_2001, checked};
use crate::Error;
use crate::child::PacketSizes;
use crate::host::{Processors, default_placement, default_processors, processors};
use crate::options::{PipesOptions, PipesPreset, Placement, Topology, Via};
use crate::plan::{CellError, Measure, PlannedChart, PlannedCurve, Point};
use crate::report::{Axis, Chart, Curve, Reference};
use crate::stats::Summary;
use crate::transfer::{
    ChannelEcho, MessageMethod, OneThread, OneWay, RoundTrips, Rounds, StreamEcho, TwoProcesses,
    TwoThreads,
};
use crate::units::{self, Unit, bytes};

/// Returns the charts for these options, with that time for each cell.
pub(crate) fn charts(options: &PipesOptions, time: Duration) -> Result<Vec<PlannedChart>, Error> {
    let sweep = PipesSweep::of(options)?;
    // An impossible placement is an error only if no other one was asked for.
    if sweep.routes.iter().all(|route| processors(route.placement).is_err()) {
        sweep.routes.iter().try_for_each(|route| pinned(route.placement).map(drop))?;
    }
    let mut charts: Vec<PlannedChart> = Vec::new();
    for route in &sweep.routes {
        let (id, title) = heading(route);
        let curve = curve(route, &sweep.blocks, options);
        match charts.iter_mut().find(|chart| chart.id == id) {
            Some(chart) => chart.curves.push(curve),
            None => charts.push(PlannedChart {
                id,
                title,
                unit: Unit::BytesPerSecond,
                axis: Axis::BlockBytes,
                time,
                references: references(options.preset, route),
                curves: vec![curve],
            }),
        }
    }
    if !sweep.is_chosen && options.preset != PipesPreset::Ibm2001 {
        charts.push(round_trips(&sweep.blocks, default_processors(), time));
    }
    Ok(charts)
}

/// Returns the id and title of the chart for a way. One thread has its own: it is so much faster that the other curves
/// would be flat.
fn heading(route: &Route) -> (String, String) {
    if route.topology == Topology::Thread {
        return ("one-thread".to_owned(), "One thread writes a block and reads it back".to_owned());
    }
    let (id, words) = match route.placement {
        Placement::Other => ("other", "on different cores"),
        Placement::Same => ("same", "on the same processor"),
        Placement::Sibling => ("sibling", "on two processors of one core"),
        Placement::None => ("unpinned", "not pinned"),
    };
    (format!("between-{id}"), format!("Writer and reader {words}"))
}

/// Returns the figures that the text of the article of 2001 states.
fn references(preset: PipesPreset, route: &Route) -> Vec<Reference> {
    if preset != PipesPreset::Ibm2001 || route.topology != Topology::Thread {
        return Vec::new();
    }
    let reference = |label: &str, value| Reference { label: format!("2001: {label}"), value };
    vec![
        reference("Linux 2.4, peak", 700e6),
        reference("Windows 2000, peak", 500e6),
        reference("Windows XP, peak", 120e6),
        reference("Linux 2.4, plateau", 100e6),
        reference("Windows 2000, plateau", 80e6),
    ]
}

/// Returns the curve of a way. One that is impossible here has the reason in every point.
fn curve(route: &Route, blocks: &[usize], options: &PipesOptions) -> PlannedCurve {
    let (pair, not_placed) = match processors(route.placement) {
        Ok(pair) => (pair, None),
        Err(reason) => (Processors::default(), Some(reason)),
    };
    let opened = match route.topology {
        Topology::Library => None,
        _ if route.via == Via::Memory => None,
        _ => Some(test_pipe::open(route.kind(), route.holds_bytes)),
    };
    let (holds_bytes, fits_bytes, not_opened) = match opened {
        None => (None, None, None),
        Some(Ok(conduit)) => (conduit.holds_bytes, Some(conduit.fits_bytes), None),
        Some(Err(error)) => (None, None, Some(error.to_string())),
    };
    let fits = |block: &usize| {
        route.topology != Topology::Thread || fits_bytes.is_none_or(|most| *block <= most)
    };
    let points = blocks.iter().copied().filter(fits).map(|block_bytes| {
        let cell = cell(*route, pair, block_bytes, options);
        let mut point =
            Point::new(units::bytes(block_bytes as u64), Some(block_bytes as u64), cell);
        point.skipped = not_placed.clone().or_else(|| not_opened.clone());
        point
    });
    let points = points.collect();
    PlannedCurve { name: name(route, holds_bytes), facts: facts(route, pair, holds_bytes), points }
}

/// Returns the processors of a placement that was asked for with `--pin`.
pub(crate) fn pinned(placement: Placement) -> Result<Processors, Error> {
    let refuse = |problem| Error::Option { option: format!("--pin {}", placement.name()), problem };
    processors(placement).map_err(refuse)
}

fn name(route: &Route, holds_bytes: Option<usize>) -> String {
    let sides = match route.topology {
        Topology::Thread => "one thread",
        Topology::Threads => "two threads",
        Topology::Processes => "two processes",
        Topology::Library => return "child through the library".to_owned(),
    };
    let channel = match route.via {
        Via::Pipe => "pipe",
        Via::Fifo => "FIFO",
        Via::Socket => "Unix socket",
        Via::Memory => "shared memory",
    };
    let held = holds_bytes.or(route.holds_bytes).filter(|_| route.via != Via::Socket);
    let held = held.map(|held| format!(" {}", units::bytes(held as u64))).unwrap_or_default();
    format!("{sides}, {channel}{held}")
}

fn facts(route: &Route, pair: Processors, holds_bytes: Option<usize>) -> BTreeMap<String, Value> {
    let facts = [
        ("topology", json!(route.topology.name())),
        ("via", json!(route.via.name())),
        ("holds_bytes_asked", json!(route.holds_bytes)),
        ("holds_bytes", json!(holds_bytes)),
        ("pin", json!(route.placement.name())),
        ("reader_processor", json!(pair.reader)),
        ("writer_processor", json!(pair.writer)),
    ];
    facts.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
}

const QUICK: [usize; 12] = [
    64,
    256,
    1 << 10,
    2 << 10,
    4 << 10,
    8 << 10,
    16 << 10,
    32 << 10,
    64 << 10,
    128 << 10,
    256 << 10,
    1 << 20,
];

// The sweep: the block sizes and ways of a preset, or every combination of the given options.

/// The block sizes and ways.
#[derive(Debug)]
struct PipesSweep {
    blocks: Vec<usize>,
    routes: Vec<Route>,
    /// The options name ways, so nothing else is measured.
    is_chosen: bool,
}

/// One way from a writer to a reader.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Route {
    topology: Topology,
    via: Via,
    /// The capacity to ask for; `None`: the system's default.
    holds_bytes: Option<usize>,
    placement: Placement,
}

impl Route {
    fn new(
        topology: Topology,
        via: Via,
        holds_bytes: Option<usize>,
        placement: Placement,
    ) -> Route {
        let route = Route { topology, via, holds_bytes, placement };
        match topology {
            // The library makes its own pipe.
            Topology::Library => Route { via: Via::Pipe, holds_bytes: None, ..route },
            // A worker is a process, and its ring has a fixed size.
            _ if via == Via::Memory => {
                Route { topology: Topology::Processes, holds_bytes: None, ..route }
            }
            // One thread is on one processor, or not pinned.
            Topology::Thread if placement != Placement::None => {
                Route { placement: Placement::Same, ..route }
            }
            _ => route,
        }
    }

    fn kind(&self) -> TestPipeKind {
        match self.via {
            Via::Pipe => TestPipeKind::Pipe,
            Via::Fifo => TestPipeKind::Fifo,
            Via::Socket => TestPipeKind::Socket,
            // Not opened: the worker has its own memory.
            Via::Memory => TestPipeKind::Pipe,
        }
    }
}

/// Returns the number of series and the time for each cell.
pub(crate) fn rules(preset: PipesPreset) -> (u16, Duration) {
    match preset {
        PipesPreset::Quick => (3, Duration::from_millis(50)),
        PipesPreset::Ibm2001 => (3, Duration::from_millis(80)),
        PipesPreset::Full => (5, Duration::from_millis(100)),
    }
}

/// Returns the time for all of it.
pub(crate) fn limit(preset: PipesPreset) -> Duration {
    Duration::from_secs(match preset {
        PipesPreset::Quick => 30,
        PipesPreset::Ibm2001 => 60,
        PipesPreset::Full => 480,
    })
}

/// Returns true if the options name ways, so nothing else is measured.
pub(crate) fn is_chosen(options: &PipesOptions) -> bool {
    !(options.topology.is_empty()
        && options.via.is_empty()
        && options.capacity.is_empty()
        && options.pin.is_empty())
}

impl PipesSweep {
    fn of(options: &PipesOptions) -> Result<PipesSweep, Error> {
        let blocks = match options.preset {
            _ if !options.blocks.is_empty() => options.blocks.clone(),
            PipesPreset::Quick => QUICK.to_vec(),
            PipesPreset::Ibm2001 => IBM_2001.to_vec(),
            PipesPreset::Full => (0..=22).map(|shift| 1 << shift).collect(),
        };
        let blocks = checked(blocks)?;
        let is_chosen = is_chosen(options);
        let routes = if is_chosen { combinations(options) } else { preset(options.preset) };
        Ok(PipesSweep { blocks, routes, is_chosen })
    }
}

/// Returns every combination of the given options.
fn combinations(options: &PipesOptions) -> Vec<Route> {
    fn or<T: Copy>(given: &[T], default: T) -> Vec<T> {
        if given.is_empty() { vec![default] } else { given.to_vec() }
    }
    let mut routes = Vec::new();
    for placement in or(&options.pin, default_placement()) {
        for topology in or(&options.topology, Topology::Threads) {
            for via in or(&options.via, Via::Pipe) {
                for holds_bytes in or(&options.capacity, None) {
                    let route = Route::new(topology, via, holds_bytes, placement);
                    if !routes.contains(&route) {
                        routes.push(route);
                    }
                }
            }
        }
    }
    routes
}

fn preset(preset: PipesPreset) -> Vec<Route> {
    const LARGE_BYTES: Option<usize> = Some(1 << 20);
    let default = default_placement();
    let route = |topology, via, holds_bytes| Route::new(topology, via, holds_bytes, default);
    let one = route(Topology::Thread, Via::Pipe, None);
    let two = route(Topology::Threads, Via::Pipe, None);
    match preset {
        PipesPreset::Ibm2001 => vec![one, two],
        PipesPreset::Quick => vec![
            two,
            Route { holds_bytes: LARGE_BYTES, ..two },
            route(Topology::Processes, Via::Pipe, None),
            route(Topology::Library, Via::Pipe, None),
            route(Topology::Threads, Via::Socket, None),
            route(Topology::Processes, Via::Memory, None),
            one,
            Route { holds_bytes: LARGE_BYTES, ..one },
        ],
        PipesPreset::Full => {
            let mut routes = Vec::new();
            let mut placements = vec![default, Placement::Same, Placement::None];
            placements.dedup();
            placements.retain(|placement| processors(*placement).is_ok());
            for placement in placements {
                let at = |route: Route| Route { placement, ..route };
                routes.extend([at(two), at(Route { holds_bytes: LARGE_BYTES, ..two })]);
                routes.push(at(route(Topology::Threads, Via::Fifo, None)));
                routes.push(at(route(Topology::Threads, Via::Socket, None)));
                routes.push(at(route(Topology::Processes, Via::Pipe, None)));
                routes.push(at(route(Topology::Processes, Via::Memory, None)));
                routes.push(at(route(Topology::Library, Via::Pipe, None)));
            }
            routes.extend([one, Route { holds_bytes: LARGE_BYTES, ..one }]);
            routes
        }
    }
}

// The cell of a way and a block size: both sides are set up for each series.

/// Creates the cell for a way and a block size.
fn cell(
    route: Route,
    pair: Processors,
    block_bytes: usize,
    options: &PipesOptions,
) -> impl Measure + 'static {
    let (verify, count) = (options.verify, options.count);
    let set_up = move || set_up(route, pair, block_bytes, verify);
    BlockCell::new(block_bytes, pair.reader, set_up).with_count(count)
}

/// Sets up both sides.
fn set_up(
    route: Route,
    pair: Processors,
    block_bytes: usize,
    verify: bool,
) -> Result<Box<dyn Rounds>, CellError> {
    if route.via == Via::Memory {
        return Ok(Box::new(start_worker(pair, block_bytes, verify)?));
    }
    let open = || test_pipe::open(route.kind(), route.holds_bytes);
    let process = |conduit| -> io::Result<Box<dyn Rounds>> {
        Ok(Box::new(TwoProcesses::start(conduit, pair, block_bytes, verify)?))
    };
    Ok(match route.topology {
        Topology::Thread => Box::new(OneThread::new(open()?, block_bytes, verify)),
        Topology::Threads => Box::new(TwoThreads::new(open()?, pair, block_bytes, verify)),
        Topology::Processes => process(Some(open()?))?,
        Topology::Library => process(None)?,
    })
}

/// Starts a worker that sends messages through shared memory.
fn start_worker(pair: Processors, block_bytes: usize, verify: bool) -> Result<OneWay, CellError> {
    OneWay::start(MessageMethod::Shared, pair, PacketSizes::all_of(block_bytes), verify)
}

/// Larger blocks are unusual requests, and would make the other points flat.
const MOST_BYTES: usize = 64 << 10;

/// Returns the chart: pipes, a socket and shared memory.
fn round_trips(blocks: &[usize], pair: Processors, time: Duration) -> PlannedChart {
    let blocks: Vec<usize> = blocks.iter().copied().filter(|block| *block <= MOST_BYTES).collect();
    let streams = |name: &str, kind| {
        PlannedCurve::over(name, &[], &blocks, |block| {
            BlockCell::new(block, pair.reader, move || {
                Ok(RoundTrips::new(StreamEcho::start(kind, pair, block)?, block))
            })
        })
    };
    let memory = PlannedCurve::over("shared memory", &[], &blocks, |block| {
        BlockCell::new(block, pair.reader, move || {
            Ok(RoundTrips::new(ChannelEcho::start(MessageMethod::Shared, pair)?, block))
        })
    });
    let curves = vec![
        streams("pipes", TestPipeKind::Pipe),
        streams("Unix socket", TestPipeKind::Socket),
        memory,
    ];
    let title = "Round trip of a block to another process";
    PlannedChart::over_blocks("round-trip", title, Unit::Seconds, time, curves)
}

/// Sums up the figures in sentences; `None`: not measured.
pub(crate) fn verdict(charts: &[Chart]) -> Option<String> {
    // Nobody uses a pipe within one thread, so that chart counts only if it is the only one.
    let between = charts.iter().find(|chart| chart.id.starts_with("between-"));
    let chart = between.or_else(|| charts.iter().find(|chart| chart.id == "one-thread"))?;
    let curve = chart.curves.iter().find(|curve| curve.best(chart.unit).is_some())?;
    let mut summary = of_curve(chart, curve)?;
    if let Some(fastest) = fastest(chart, curve) {
        summary.push('\n');
        summary.push_str(&fastest);
    }
    Some(summary)
}

/// Returns a sentence like `Best block size: 8 KiB, 2.31 GB/s (two threads, pipe 64 KiB); 64 KiB is 47 % slower.`
fn of_curve(chart: &Chart, curve: &Curve) -> Option<String> {
    let (_, best) = curve.best(chart.unit)?;
    let measured: Vec<(u64, Summary)> =
        curve.cells.iter().filter_map(|cell| Some((cell.block_bytes?, cell.summary()?))).collect();
    let good: Vec<u64> =
        measured.iter().filter(|(_, it)| is_as_good(it, &best)).map(|(bytes, _)| *bytes).collect();
    let (least, most) = (*good.first()?, *good.last()?);
    let sizes =
        if least == most { bytes(least) } else { format!("{} to {}", bytes(least), bytes(most)) };
    let speed = chart.unit.show(best.median);
    let mut summary = format!("Best block size: {sizes}, {speed} ({})", curve.name);
    // The usual size of buffers; if it was not measured, the largest.
    const USUAL_BYTES: u64 = 64 << 10;
    let beyond = measured.iter().filter(|(bytes, _)| *bytes > most);
    let other =
        beyond.clone().find(|(bytes, _)| *bytes == USUAL_BYTES).or(beyond.clone().next_back());
    if let Some((size, other)) = other {
        let loss = (1.0 - other.median / best.median) * 100.0;
        summary.push_str(&format!("; {} is {loss:.0} % slower", bytes(*size)));
    }
    summary.push('.');
    Some(summary)
}

/// Returns true if another run could reverse the order of this cell and the best.
fn is_as_good(cell: &Summary, best: &Summary) -> bool {
    const SAME_SHARE: f64 = 0.03;
    cell.most >= best.least && cell.median >= best.median * (1.0 - SAME_SHARE)
}

/// Names another curve that is clearly faster.
fn fastest(chart: &Chart, curve: &Curve) -> Option<String> {
    let (_, own) = curve.best(chart.unit)?;
    let (other, cell, best) = chart.best()?;
    if best.least <= own.most || best.median < own.median * 1.1 {
        return None;
    }
    let speed = chart.unit.show(best.median);
    Some(format!("Fastest: {} at {}, {speed}.", other.name, cell.label))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::Cell;
    use crate::sample;

    fn sweep(options: &PipesOptions) -> Result<PipesSweep, String> {
        PipesSweep::of(options).map_err(|error| error.to_string())
    }

    #[test]
    fn the_sizes_of_the_article_are_complete_and_in_order() {
        let options = PipesOptions { preset: PipesPreset::Ibm2001, ..PipesOptions::default() };
        let blocks = sweep(&options).unwrap().blocks;
        assert_eq!((blocks.len(), blocks[0], blocks[61]), (62, 1, 4096));
        assert_eq!(blocks, IBM_2001);
    }

    #[test]
    fn every_combination_of_the_options_is_measured_once() {
        let routes = sweep(&PipesOptions {
            topology: vec![Topology::Threads, Topology::Library],
            capacity: vec![None, Some(1 << 20)],
            pin: vec![Placement::None],
            ..PipesOptions::default()
        });
        let routes = routes.unwrap().routes;
        let route =
            |topology, holds_bytes| Route::new(topology, Via::Pipe, holds_bytes, Placement::None);
        // The library has its own pipe, whatever the other options are.
        let expected = [
            route(Topology::Threads, None),
            route(Topology::Threads, Some(1 << 20)),
            route(Topology::Library, None),
        ];
        assert_eq!(routes, expected);
        let routes = sweep(&PipesOptions {
            topology: vec![Topology::Thread],
            pin: vec![Placement::Same, Placement::Other],
            ..PipesOptions::default()
        });
        let routes = routes.unwrap().routes;
        assert_eq!(routes.len(), 1, "one thread has one placement: {routes:?}");
        let routes = sweep(&PipesOptions {
            topology: vec![Topology::Thread, Topology::Library],
            via: vec![Via::Memory],
            capacity: vec![Some(1 << 20)],
            pin: vec![Placement::None],
            ..PipesOptions::default()
        });
        let library = route(Topology::Library, None);
        let memory = Route::new(Topology::Processes, Via::Memory, None, Placement::None);
        assert_eq!(routes.unwrap().routes, [memory, library]);
    }

    #[test]
    fn sizes_are_sorted_and_impossible_ones_refused() {
        let sized = |blocks: &[usize]| {
            sweep(&PipesOptions { blocks: blocks.to_vec(), ..PipesOptions::default() })
        };
        assert_eq!(sized(&[4096, 1, 4096]).unwrap().blocks, [1, 4096]);
        for (block, words) in [
            (0, "--bs: a block must have at least 1 byte"),
            (1 << 30, "--bs: a block must have at most 256 MiB"),
        ] {
            assert_eq!(sized(&[block]).unwrap_err(), words);
        }
    }

    #[test]
    fn the_best_size_and_the_loss_with_the_usual_one() {
        let summary = verdict(&sample::pipes().charts).unwrap();
        let lines: Vec<&str> = summary.lines().collect();
        assert_eq!(
            lines,
            [
                "Best block size: 8 KiB, 2.31 GB/s (two threads, pipe 64 KiB); 64 KiB is 47 % slower.",
                "Fastest: two threads, Unix socket at 64 KiB, 5.40 GB/s.",
            ]
        );
    }

    #[test]
    fn sizes_that_cannot_be_told_apart_are_a_range() {
        let mut charts = sample::pipes().charts;
        charts[0].curves.truncate(1);
        let cells = &mut charts[0].curves[0].cells;
        cells[6] = Cell::new("16 KiB", Some(16 << 10), vec![2.28e9, 2.33e9, 2.27e9]);
        cells.truncate(7);
        let summary = verdict(&charts).unwrap();
        assert_eq!(
            summary,
            "Best block size: 8 KiB to 16 KiB, 2.31 GB/s (two threads, pipe 64 KiB)."
        );
    }

    #[test]
    fn nothing_measured_is_no_verdict() {
        let mut charts = sample::pipes().charts;
        charts.iter_mut().for_each(|chart| chart.curves.clear());
        assert_eq!(verdict(&charts), None);
        assert_eq!(verdict(&[]), None);
    }
}
