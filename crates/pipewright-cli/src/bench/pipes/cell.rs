//! One cell: one way, one size of block.

use std::io;
use std::thread;
use std::time::Duration;

use pipewright::os::conduit::{self, Kind};
use pipewright::os::cpu;

use super::super::plan::{Failed, Measure, Sample};
use super::place::Place;
use super::process::TwoProcesses;
use super::rounds::{self, Rounds};
use super::sweep::Way;
use super::threads::{OneThread, TwoThreads, pin};
use crate::args::{SweepOptions, Topology};

#[derive(Debug)]
pub(super) struct BlockCell {
    way: Way,
    place: Place,
    block_bytes: usize,
    verify: bool,
    count: Option<u64>,
    /// How many blocks a second it made last time.
    rate: Option<f64>,
}

impl BlockCell {
    pub(super) fn new(
        way: Way,
        place: Place,
        block_bytes: usize,
        options: &SweepOptions,
    ) -> BlockCell {
        let (verify, count) = (options.verify, options.count);
        BlockCell { way, place, block_bytes, verify, count, rate: None }
    }

    /// Both sides, ready.
    fn set_up(&self) -> io::Result<Box<dyn Rounds>> {
        let open = || conduit::open(self.way.kind(), self.way.holds_bytes);
        let (block, verify) = (self.block_bytes, self.verify);
        Ok(match self.way.topology {
            Topology::Thread => Box::new(OneThread::new(open()?, block, verify)),
            Topology::Threads => Box::new(TwoThreads::new(open()?, self.place, block, verify)),
            Topology::Processes => {
                Box::new(TwoProcesses::start(Some(open()?), self.place, block, verify)?)
            }
            Topology::Library => Box::new(TwoProcesses::start(None, self.place, block, verify)?),
        })
    }
}

impl Measure for BlockCell {
    fn measure(&mut self, time: Duration) -> Result<Sample, Failed> {
        let mut rate = self.rate;
        // A thread of its own, which takes its processor with it when it ends.
        let sample = alone(|| {
            let mut rounds = self.set_up()?;
            pin(self.place.reader)?;
            rounds::timed(&mut *rounds, self.block_bytes as u64, time, self.count, &mut rate)
        })?;
        self.rate = rate;
        Ok(sample)
    }
}

/// Runs that on a thread of its own.
fn alone<T: Send>(work: impl FnOnce() -> Result<T, Failed> + Send) -> Result<T, Failed> {
    thread::scope(|scope| {
        let worker = thread::Builder::new().spawn_scoped(scope, work)?;
        worker.join().unwrap_or_else(|_| Err(Failed::Skip("the measurement panicked".to_owned())))
    })
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
