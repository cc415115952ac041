//! A cell: one way and one block size.

use std::io;

use pipewright_os::host::test_pipe;

use super::sweep::Route;
use crate::cases::BlockCell;
use crate::child::PacketSizes;
use crate::host::Processors;
use crate::options::{PipesOptions, Topology, Via};
use crate::plan::{CellError, Measure};
use crate::transfer::{self, OneThread, OneWay, Rounds, TwoProcesses, TwoThreads};

/// Creates the cell for a way and a block size.
pub(super) fn cell(
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
        return Ok(Box::new(memory(pair, block_bytes, verify)?));
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
fn memory(pair: Processors, block_bytes: usize, verify: bool) -> Result<OneWay, CellError> {
    OneWay::start(transfer::MessageMethod::Shared, pair, PacketSizes::all_of(block_bytes), verify)
}
