//! The messages of a build: thousands of packets, most of them small, with most bytes in large ones.

use std::time::Duration;

use super::{INLINE, SHARED};
use crate::cases::timed::{Timing, case};
use crate::child::PacketSizes;
use crate::host::{Processors, pin};
use crate::plan::{CellError, PlannedChart, PlannedCurve};
use crate::report::Axis;
use crate::transfer::{MessageMethod, OneWay, Rounds as _, on_own_thread};
use crate::units::Unit;

/// The number and the average length of the packets that a large build sent to its log.
const PACKETS: u64 = 5000;
const AVERAGE_BYTES: usize = 86_784;

/// Returns the chart, with both ways.
pub(super) fn chart(pair: Processors, time: Duration) -> PlannedChart {
    let method = |name: &str, method| {
        case(name, Unit::Seconds, move || on_own_thread(|| take(method, pair)))
    };
    PlannedChart {
        id: "ipc-build".to_owned(),
        title: format!("{PACKETS} packets of a build, 434 MB"),
        unit: Unit::Seconds,
        axis: Axis::Cases,
        time,
        references: Vec::new(),
        curves: vec![PlannedCurve {
            name: "pipewright".to_owned(),
            facts: [].into(),
            points: vec![
                method(SHARED, MessageMethod::Shared),
                method(INLINE, MessageMethod::Inline),
            ],
        }],
    }
}

fn take(method: MessageMethod, pair: Processors) -> Result<Timing, CellError> {
    let packets = PacketSizes { bytes: AVERAGE_BYTES, mixed: true };
    let mut worker = OneWay::start(method, pair, packets, false)?;
    pin(pair.reader)?;
    let took = worker.round(PACKETS)?;
    let bytes = (0..PACKETS).map(|number| packets.length(number) as u64).sum();
    Ok(Timing { time: took.elapsed, bytes })
}
