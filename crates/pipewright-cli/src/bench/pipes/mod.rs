//! `bench pipes`: how fast bytes go from a writer to a reader, over the size of the blocks.
//!
//! After Edward Bradford's article "Pipes in Linux, Windows 2000, and Windows XP" (IBM developerWorks,
//! 2001), whose sizes are the preset `ibm2001`.

mod cell;
mod process;
mod sweep;
mod threads;
mod trips;
mod verdict;

use std::collections::BTreeMap;
use std::time::Duration;

use pipewright_os::host::test_pipe;
use serde_json::{Value, json};

use super::place::{Place, Placement};
use super::plan::{Chart, Curve, Point};
use super::report::{Axis, Reference};
use super::units::{self, Unit};
use crate::Failure;
use crate::args::{PipesPreset, SweepOptions, Topology, Via};

pub(super) use threads::OneThread;
pub(super) use verdict::verdict;

use cell::cell;
use sweep::{Sweep, Way};

/// How often and for how long each cell is measured where nobody says otherwise.
pub(super) use sweep::{IBM_2001, checked, rules};

/// The charts that are asked for, each cell for that long.
pub(super) fn charts(options: &SweepOptions, time: Duration) -> Result<Vec<Chart>, Failure> {
    let sweep = Sweep::of(options)?;
    // One that cannot be had is said, and the others are measured.
    if sweep.ways.iter().all(|way| sweep::tried(way.placement).is_err()) {
        sweep.ways.iter().try_for_each(|way| place(way.placement).map(drop))?;
    }
    let mut charts: Vec<Chart> = Vec::new();
    for way in &sweep.ways {
        let (id, title) = heading(way);
        let curve = curve(way, &sweep.blocks, options);
        match charts.iter_mut().find(|chart| chart.id == id) {
            Some(chart) => chart.curves.push(curve),
            None => charts.push(Chart {
                id,
                title,
                unit: Unit::BytesPerSecond,
                axis: Axis::BlockBytes,
                time,
                references: references(options.preset, way),
                curves: vec![curve],
            }),
        }
    }
    if !sweep.is_chosen && options.preset != PipesPreset::Ibm2001 {
        charts.push(trips::chart(&sweep.blocks, usual_place(), time));
    }
    Ok(charts)
}

/// The chart of a way: one thread is so much faster that it would flatten the others.
fn heading(way: &Way) -> (String, String) {
    if way.topology == Topology::Thread {
        return ("one-thread".to_owned(), "One thread writes a block and reads it back".to_owned());
    }
    let (id, words) = match way.placement {
        Placement::Other => ("other", "on different cores"),
        Placement::Same => ("same", "on the same processor"),
        Placement::Sibling => ("sibling", "on two processors of one core"),
        Placement::None => ("unpinned", "wherever the system puts them"),
    };
    (format!("between-{id}"), format!("Writer and reader {words}"))
}

/// What the article of 2001 measured, as far as it says it in words.
fn references(preset: PipesPreset, way: &Way) -> Vec<Reference> {
    if preset != PipesPreset::Ibm2001 || way.topology != Topology::Thread {
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

/// The curve of a way. One that cannot be had here says why in every point.
fn curve(way: &Way, blocks: &[usize], options: &SweepOptions) -> Curve {
    let (place, unplaced) = match sweep::tried(way.placement) {
        Ok(place) => (place, None),
        Err(why) => (Place::default(), Some(why)),
    };
    let opened = match way.topology {
        Topology::Library => None,
        _ if way.via == Via::Memory => None,
        _ => Some(test_pipe::open(way.kind(), way.holds_bytes)),
    };
    let (holds_bytes, fits_bytes, why) = match opened {
        None => (None, None, None),
        Some(Ok(conduit)) => (conduit.holds_bytes, Some(conduit.fits_bytes), None),
        Some(Err(error)) => (None, None, Some(error.to_string())),
    };
    let fits = |block: &usize| {
        way.topology != Topology::Thread || fits_bytes.is_none_or(|most| *block <= most)
    };
    let points = blocks.iter().copied().filter(fits).map(|block_bytes| {
        let cell = cell(*way, place, block_bytes, options);
        let mut point =
            Point::new(units::bytes(block_bytes as u64), Some(block_bytes as u64), cell);
        point.skipped = unplaced.clone().or_else(|| why.clone());
        point
    });
    let points = points.collect();
    Curve { name: name(way, holds_bytes), facts: facts(way, place, holds_bytes), points }
}

/// Where two that are measured together run, where nobody says otherwise.
pub(super) fn usual_place() -> Place {
    sweep::tried(sweep::usual_placement()).unwrap_or_default()
}

/// The processors of that placement.
pub(super) fn place(placement: Placement) -> Result<Place, Failure> {
    sweep::tried(placement).map_err(|why| Failure(format!("--pin {}: {why}", flag(placement))))
}

/// Why writer and reader are not on different cores where nobody says otherwise.
pub(super) fn why_not_pinned() -> Option<String> {
    sweep::tried(Placement::Other).err()
}

fn flag(placement: Placement) -> &'static str {
    match placement {
        Placement::Other => "other",
        Placement::Same => "same",
        Placement::Sibling => "sibling",
        Placement::None => "none",
    }
}

fn name(way: &Way, holds_bytes: Option<usize>) -> String {
    let who = match way.topology {
        Topology::Thread => "one thread",
        Topology::Threads => "two threads",
        Topology::Processes => "two processes",
        Topology::Library => return "child through the library".to_owned(),
    };
    let what = match way.via {
        Via::Pipe => "pipe",
        Via::Fifo => "FIFO",
        Via::Socket => "Unix socket",
        Via::Memory => "shared memory",
    };
    let held = holds_bytes.or(way.holds_bytes).filter(|_| way.via != Via::Socket);
    let held = held.map(|held| format!(" {}", units::bytes(held as u64))).unwrap_or_default();
    format!("{who}, {what}{held}")
}

fn facts(way: &Way, place: Place, holds_bytes: Option<usize>) -> BTreeMap<String, Value> {
    let topology = match way.topology {
        Topology::Thread => "thread",
        Topology::Threads => "threads",
        Topology::Processes => "processes",
        Topology::Library => "library",
    };
    let via = match way.via {
        Via::Pipe => "pipe",
        Via::Fifo => "fifo",
        Via::Socket => "socket",
        Via::Memory => "memory",
    };
    let facts = [
        ("topology", json!(topology)),
        ("via", json!(via)),
        ("holds_bytes_asked", json!(way.holds_bytes)),
        ("holds_bytes", json!(holds_bytes)),
        ("pin", json!(flag(way.placement))),
        ("reader_processor", json!(place.reader)),
        ("writer_processor", json!(place.writer)),
    ];
    facts.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
}
