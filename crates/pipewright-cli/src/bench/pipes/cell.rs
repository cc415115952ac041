//! One cell: one way, one size of block.

use std::io;

use pipewright_os::host::test_pipe;

use super::super::cell::BlockCell;
use super::super::ipc::{self, OneWay, Packets};
use super::super::place::Place;
use super::super::plan::{Failed, Measure};
use super::super::rounds::Rounds;
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
    let open = || test_pipe::open(way.kind(), way.holds_bytes);
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
