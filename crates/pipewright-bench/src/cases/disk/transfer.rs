//! Reads and writes of a file, with a number of operations in flight.

use std::io;
use std::sync::Arc;
use std::time::Instant;

use pipewright_disk::{AlignedBuf, BackendKind, DiskFile, Engine, EngineOptions, Operation};
use pipewright_os::process::usage;

use super::scratch::{OpenMode, Scratch};
use crate::plan::CellError;
use crate::stats::{Random, ReadSizes};
use crate::transfer::{Round, Rounds};
use crate::units::bytes;

/// The kind of work of a cell.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Workload {
    pub(super) writes: bool,
    pub(super) access: OpenMode,
    pub(super) backend: BackendKind,
    pub(super) depth: usize,
    /// Blocks at random offsets instead of one after the other.
    pub(super) random: bool,
}

/// The most memory for buffers, so that a lack of memory is not measured.
const MOST_BUFFER_BYTES: usize = 512 << 20;

/// The engine, its file and its buffers.
#[derive(Debug)]
pub(super) struct Transfer {
    work: Workload,
    file: DiskFile,
    engine: Engine,
    buffers: Vec<AlignedBuf>,
    block_bytes: usize,
    /// The number of blocks in the file.
    blocks: u64,
    next: u64,
    random: Random,
}

impl Transfer {
    pub(super) fn new(
        work: Workload,
        scratch: &Arc<Scratch>,
        block_bytes: usize,
    ) -> Result<Transfer, CellError> {
        if block_bytes as u64 > scratch.bytes {
            return Err(CellError::Skip(format!(
                "the block is larger than the file ({})",
                bytes(scratch.bytes)
            )));
        }
        let buffer_bytes = block_bytes.saturating_mul(work.depth);
        if buffer_bytes > MOST_BUFFER_BYTES {
            let words = format!("needs {} for buffers", bytes(buffer_bytes as u64));
            return Err(CellError::Skip(words));
        }
        let file = scratch.file(work.access)?;
        let align = file.alignment().offset;
        if block_bytes % align != 0 {
            let words = format!("direct I/O needs multiples of {}", bytes(align as u64));
            return Err(CellError::Skip(words));
        }
        let options =
            EngineOptions { backend: work.backend, depth: work.depth, ..EngineOptions::default() };
        let engine = Engine::new(options)?;
        // Filled, so that their pages are mapped.
        let buffer = || {
            let mut buffer = file.buffer(block_bytes)?;
            buffer.fill(0x5a);
            Ok(buffer)
        };
        let buffers = (0..work.depth).map(|_| buffer()).collect::<Result<_, CellError>>()?;
        let blocks = scratch.bytes / block_bytes as u64;
        let random = Random::new(block_bytes as u64);
        Ok(Transfer { work, file, engine, buffers, block_bytes, blocks, next: 0, random })
    }

    /// Creates the next operation.
    fn operation(&mut self, buffer: AlignedBuf) -> Operation {
        let block = if self.work.random { self.random.below(self.blocks) } else { self.next };
        self.next = (self.next + 1) % self.blocks;
        let offset = block * self.block_bytes as u64;
        if self.work.writes {
            Operation::write_all_at(&self.file, buffer, offset)
        } else {
            Operation::read_exact_at(&self.file, buffer, offset)
        }
    }

    /// Reads or writes that many blocks.
    fn move_blocks(&mut self, blocks: u64) -> pipewright_disk::Result<()> {
        let (mut started, mut done) = (0, 0);
        while done < blocks {
            while started < blocks {
                let Some(buffer) = self.buffers.pop() else { break };
                let operation = self.operation(buffer);
                if let Err(refused) = self.engine.queue(operation) {
                    // Does not happen: there is room for as many operations as there are buffers.
                    self.buffers.push(refused.into_buffer());
                    break;
                }
                started += 1;
            }
            let Some(finished) = self.engine.next()? else { break };
            self.buffers.push(finished.buffer);
            finished.result?;
            done += 1;
        }
        Ok(())
    }
}

impl Rounds for Transfer {
    fn round(&mut self, blocks: u64) -> io::Result<Round> {
        let before = usage::of_this_process().ok();
        let start = Instant::now();
        self.move_blocks(blocks).map_err(io::Error::other)?;
        let elapsed = start.elapsed();
        let after = usage::of_this_process().ok();
        let spent = after.zip(before).map(|(after, before)| after - before);
        let reads = if self.work.writes {
            ReadSizes::default()
        } else {
            ReadSizes::of(blocks, self.block_bytes)
        };
        Ok(Round { elapsed, reads, each: None, spent })
    }
}

impl Drop for Transfer {
    fn drop(&mut self) {
        if self.work.writes {
            // Otherwise the system would write the data while the next cell is measured. Ignored: the next sync
            // reports the error again.
            let _ = self.engine.sync_data(&self.file);
        }
    }
}
