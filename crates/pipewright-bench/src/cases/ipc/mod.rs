//! `bench ipc`: messages between this process and a worker, by length.

mod build;
mod verdict;

use std::time::Duration;

use serde_json::json;

use super::block::BlockCell;
use crate::child::PacketSizes;
use crate::host::Processors;
use crate::plan::{PlannedChart, PlannedCurve};
use crate::transfer::{ChannelEcho, MessageMethod, OneWay, RoundTrips};
use crate::units::Unit;

pub(crate) use verdict::verdict;

/// The usual lengths of messages.
pub(crate) const LENGTHS: [usize; 9] =
    [100, 1 << 10, 4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20, 4 << 20, 16 << 20];

const SHARED: &str = "shared memory";
const INLINE: &str = "socket";

/// Returns the charts, with that time for each cell.
pub(crate) fn charts(lengths: &[usize], pair: Processors, time: Duration) -> Vec<PlannedChart> {
    let facts =
        [("reader_processor", json!(pair.reader)), ("writer_processor", json!(pair.writer))];
    let one_way = |name, method| {
        PlannedCurve::over(name, &facts, lengths, |length| {
            BlockCell::new(length, pair.reader, move || {
                OneWay::start(method, pair, PacketSizes::all_of(length), false)
            })
        })
    };
    let round_trip = |name, method| {
        PlannedCurve::over(name, &facts, lengths, |length| {
            BlockCell::new(length, pair.reader, move || {
                Ok(RoundTrips::new(ChannelEcho::start(method, pair)?, length))
            })
        })
    };
    vec![
        PlannedChart::over_blocks(
            "ipc-one-way",
            "Messages from a worker",
            Unit::BytesPerSecond,
            time,
            vec![
                one_way(SHARED, MessageMethod::Shared),
                one_way("shared memory, read in place", MessageMethod::InPlace),
                one_way(INLINE, MessageMethod::Inline),
            ],
        ),
        PlannedChart::over_blocks(
            "ipc-round-trip",
            "Round trip of a message to a worker",
            Unit::Seconds,
            time,
            vec![
                round_trip(SHARED, MessageMethod::Shared),
                round_trip("shared memory, without spinning", MessageMethod::Sleeping),
                round_trip(INLINE, MessageMethod::Inline),
            ],
        ),
        build::chart(pair, time),
    ]
}
