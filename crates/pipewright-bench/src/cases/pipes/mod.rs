//! `bench pipes`: the throughput from a writer to a reader, by block size.
//!
//! After Edward Bradford's article "Pipes in Linux, Windows 2000, and Windows XP" (IBM developerWorks, 2001). The
//! preset `ibm2001` has its block sizes.

mod cell;
mod round_trips;
mod sweep;
mod verdict;

use std::collections::BTreeMap;
use std::time::Duration;

use pipewright_os::host::test_pipe;
use serde_json::{Value, json};

use crate::Error;
use crate::host::{Processors, default_processors, processors};
use crate::options::{PipesOptions, PipesPreset, Placement, Topology, Via};
use crate::plan::{PlannedChart, PlannedCurve, Point};
use crate::report::{Axis, Reference};
use crate::units::{self, Unit};

pub(crate) use sweep::{is_chosen, limit, rules};
pub(crate) use verdict::verdict;

use cell::cell;
use sweep::{PipesSweep, Route};

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
        charts.push(round_trips::chart(&sweep.blocks, default_processors(), time));
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
