//! Round trips of a block between two processes: the time of a request that waits for its reply.

use std::time::Duration;

use pipewright_os::host::test_pipe::TestPipeKind;

use crate::cases::BlockCell;
use crate::host::Processors;
use crate::plan::{PlannedChart, PlannedCurve};
use crate::transfer::{ChannelEcho, MessageMethod, RoundTrips, StreamEcho};
use crate::units::Unit;

/// Larger blocks are unusual requests, and would make the other points flat.
const MOST_BYTES: usize = 64 << 10;

/// Returns the chart: pipes, a socket and shared memory.
pub(super) fn chart(blocks: &[usize], pair: Processors, time: Duration) -> PlannedChart {
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
