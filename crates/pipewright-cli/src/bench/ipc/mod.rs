//! `bench ipc`: messages between this process and a worker, over their length.

mod build;
mod host;
mod packets;
mod verdict;
mod worker;

use std::time::Duration;

use serde_json::json;

use super::cell::BlockCell;
use super::place::Place;
use super::plan::{Chart, Curve};
use super::trips::RoundTrips;
use super::units::Unit;

pub(super) use host::{Channelled, OneWay, Way};
pub(super) use packets::Packets;
pub(super) use verdict::verdict;
pub(super) use worker::{echo, send};

use host::options;

/// How long messages are where nobody says otherwise.
pub(super) const LENGTHS: [usize; 9] =
    [100, 1 << 10, 4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20, 4 << 20, 16 << 20];

const SHARED: &str = "shared memory";
const INLINE: &str = "socket";

/// The charts, each cell for that long.
pub(super) fn charts(lengths: &[usize], place: Place, time: Duration) -> Vec<Chart> {
    let facts =
        [("reader_processor", json!(place.reader)), ("writer_processor", json!(place.writer))];
    let one_way = |name, way| {
        Curve::over(name, &facts, lengths, |length| {
            BlockCell::new(length, place.reader, move || {
                OneWay::start(way, place, Packets::all_of(length), false)
            })
        })
    };
    let there_and_back = |name, way| {
        Curve::over(name, &facts, lengths, |length| {
            BlockCell::new(length, place.reader, move || {
                Ok(RoundTrips::new(Channelled::start(way, place)?, length))
            })
        })
    };
    vec![
        Chart::over_blocks(
            "ipc-one-way",
            "Messages from a worker",
            Unit::BytesPerSecond,
            time,
            vec![
                one_way(SHARED, Way::Shared),
                one_way("shared memory, read in place", Way::InPlace),
                one_way(INLINE, Way::Inline),
            ],
        ),
        Chart::over_blocks(
            "ipc-round-trip",
            "A message to a worker and back",
            Unit::Seconds,
            time,
            vec![
                there_and_back(SHARED, Way::Shared),
                there_and_back("shared memory, without spinning", Way::Sleeping),
                there_and_back(INLINE, Way::Inline),
            ],
        ),
        build::chart(place, time),
    ]
}
