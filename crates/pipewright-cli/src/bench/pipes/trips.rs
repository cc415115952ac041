//! A block there and back between two processes: what a question costs whose answer is waited for.

use std::time::Duration;

use pipewright_os::host::test_pipe::Kind;

use super::super::cell::BlockCell;
use super::super::ipc::{self, Channelled};
use super::super::place::Place;
use super::super::plan::{Chart, Curve};
use super::super::trips::{Files, RoundTrips};
use super::super::units::Unit;

/// Larger ones are no questions, and would flatten the others.
const MOST_BYTES: usize = 64 << 10;

/// Through each kind of conduit, and through shared memory.
pub(super) fn chart(blocks: &[usize], place: Place, time: Duration) -> Chart {
    let blocks: Vec<usize> = blocks.iter().copied().filter(|block| *block <= MOST_BYTES).collect();
    let files = |name: &str, kind| {
        Curve::over(name, &[], &blocks, |block| {
            BlockCell::new(block, place.reader, move || {
                Ok(RoundTrips::new(Files::start(kind, place, block)?, block))
            })
        })
    };
    let memory = Curve::over("shared memory", &[], &blocks, |block| {
        BlockCell::new(block, place.reader, move || {
            Ok(RoundTrips::new(Channelled::start(ipc::Way::Shared, place)?, block))
        })
    });
    let curves = vec![files("pipes", Kind::Pipe), files("Unix socket", Kind::Socket), memory];
    let title = "A block to another process and back";
    Chart::over_blocks("round-trip", title, Unit::Seconds, time, curves)
}
