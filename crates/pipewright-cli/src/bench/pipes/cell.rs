//! One cell: one way, one size of block; and the yardstick.

use std::io;
use std::time::Duration;

use pipewright::os::conduit::{self, Kind};
use pipewright::os::cpu;

use super::super::cell::{BlockCell, alone, pin};
use super::super::ipc::{self, OneWay, Packets};
use super::super::place::Place;
use super::super::plan::{Failed, Measure};
use super::super::rounds::{self, Rounds};
use super::process::TwoProcesses;
use super::sweep::Way;
use super::threads::{OneThread, TwoThreads};
use crate::args::{SweepOptions, Topology, Via};

/// The cell of that way and that size.
pub(super) fn cell(
    way: Way,
    place: Place,
    block_bytes: usize,
    options: &SweepOptions,
) -> impl Measure + 'static {
    let (verify, count) = (options.verify, options.count);
    let set_up = move || set_up(way, place, block_bytes, verify);
    BlockCell::new(block_bytes, place.reader, set_up).with_count(count)
}

/// Both sides, ready.
fn set_up(
    way: Way,
    place: Place,
    block_bytes: usize,
    verify: bool,
) -> Result<Box<dyn Rounds>, Failed> {
    if way.via == Via::Memory {
        return Ok(Box::new(memory(place, block_bytes, verify)?));
    }
    let open = || conduit::open(way.kind(), way.holds_bytes);
    let process = |conduit| -> io::Result<Box<dyn Rounds>> {
        Ok(Box::new(TwoProcesses::start(conduit, place, block_bytes, verify)?))
    };
    Ok(match way.topology {
        Topology::Thread => Box::new(OneThread::new(open()?, block_bytes, verify)),
        Topology::Threads => Box::new(TwoThreads::new(open()?, place, block_bytes, verify)),
        Topology::Processes => process(Some(open()?))?,
        Topology::Library => process(None)?,
    })
}

/// A worker that sends messages through shared memory.
fn memory(place: Place, block_bytes: usize, verify: bool) -> Result<OneWay, Failed> {
    OneWay::start(ipc::Way::Shared, place, Packets::all_of(block_bytes), verify)
}

/// The speed of the machine at this moment: system calls and copies, with one thread and a small pipe.
/// Measured again and again it tells how much of a difference is the machine's own.
pub(in crate::bench) fn yardstick(time: Duration) -> Option<f64> {
    const BLOCK_BYTES: usize = 4096;
    let processor = cpu::allowed().ok().and_then(|allowed| allowed.first().copied());
    let sample = alone(|| {
        // Where it may not be pinned it is a yardstick all the same.
        let _ = pin(processor);
        let conduit = conduit::open(Kind::Pipe, None)?;
        let mut rounds = OneThread::new(conduit, BLOCK_BYTES, false);
        rounds::timed(&mut rounds, BLOCK_BYTES as u64, time, None, &mut None)
    });
    sample.ok().map(|sample| sample.value)
}
