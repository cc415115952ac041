//! What a build sends: thousands of packets, most of them small, and most bytes in large ones.

use std::time::Duration;

use super::super::cases::{Took, case};
use super::super::cell::{alone, pin};
use super::super::place::Place;
use super::super::plan::{Chart, Curve, Failed};
use super::super::report::Axis;
use super::super::rounds::Rounds as _;
use super::super::units::Unit;
use super::host::{OneWay, Way};
use super::packets::Packets;
use super::{INLINE, SHARED};

/// As many packets, and as long on average, as a large build sent to its log.
const PACKETS: u64 = 5000;
const AVERAGE_BYTES: usize = 86_784;

/// Both ways, one after the other.
pub(super) fn chart(place: Place, time: Duration) -> Chart {
    let way = |name: &str, way| case(name, Unit::Seconds, move || alone(|| take(way, place)));
    Chart {
        id: "ipc-build".to_owned(),
        title: format!("{PACKETS} packets of a build, 434 MB"),
        unit: Unit::Seconds,
        axis: Axis::Cases,
        time,
        references: Vec::new(),
        curves: vec![Curve {
            name: "pipewright".to_owned(),
            facts: [].into(),
            points: vec![way(SHARED, Way::Shared), way(INLINE, Way::Inline)],
        }],
    }
}

fn take(way: Way, place: Place) -> Result<Took, Failed> {
    let packets = Packets { bytes: AVERAGE_BYTES, mixed: true };
    let mut worker = OneWay::start(way, place, packets, false)?;
    pin(place.reader)?;
    let took = worker.round(PACKETS)?;
    let bytes = (0..PACKETS).map(|number| packets.length(number) as u64).sum();
    Ok(Took { time: took.elapsed, bytes })
}
