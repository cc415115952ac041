//! `bench ipc`: messages between this process and a worker, by length.

use std::time::Duration;

use serde_json::json;

use super::{BlockCell, Timing, case, chart};
use crate::child::PacketSizes;
use crate::host::{Processors, pin};
use crate::plan::{CellError, PlannedChart, PlannedCurve};
use crate::report::{Chart, Curve};
use crate::transfer::{ChannelEcho, MessageMethod, OneWay, RoundTrips, Rounds as _, on_own_thread};
use crate::units::{Unit, sentences};

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
        build_chart(pair, time),
    ]
}

/// The number and the average length of the packets that a large build sent to its log.
const PACKETS: u64 = 5000;
const AVERAGE_BYTES: usize = 86_784;

/// Returns the chart of the messages of a build: thousands of packets, most of them small, with most bytes in large
/// ones.
fn build_chart(pair: Processors, time: Duration) -> PlannedChart {
    let method = |name: &str, method| {
        case(name, Unit::Seconds, move || on_own_thread(|| send_build(method, pair)))
    };
    let title = format!("{PACKETS} packets of a build, 434 MB");
    let points = vec![method(SHARED, MessageMethod::Shared), method(INLINE, MessageMethod::Inline)];
    chart("ipc-build", &title, Unit::Seconds, time, points)
}

fn send_build(method: MessageMethod, pair: Processors) -> Result<Timing, CellError> {
    let packets = PacketSizes { bytes: AVERAGE_BYTES, mixed: true };
    let mut worker = OneWay::start(method, pair, packets, false)?;
    pin(pair.reader)?;
    let took = worker.round(PACKETS)?;
    let bytes = (0..PACKETS).map(|number| packets.length(number) as u64).sum();
    Ok(Timing { time: took.elapsed, bytes })
}

/// Sums up the figures in sentences; `None`: not measured.
pub(crate) fn verdict(charts: &[Chart]) -> Option<String> {
    let chart = |id: &str| charts.iter().find(|chart| chart.id == id);
    let curve = |id: &str, name: &str| -> Option<&Curve> {
        chart(id)?.curves.iter().find(|curve| curve.name == name)
    };
    let best = |name| curve("ipc-one-way", name)?.best(Unit::BytesPerSecond);
    let mut summary = Vec::new();
    if let Some((cell, fastest)) = best(SHARED) {
        let speed = Unit::BytesPerSecond.show(fastest.median);
        let mut words =
            format!("messages from a worker reach {speed} at best ({}, shared memory)", cell.label);
        if let Some((cell, other)) = best(INLINE) {
            let speed = Unit::BytesPerSecond.show(other.median);
            words.push_str(&format!(", and {speed} through a socket ({})", cell.label));
        }
        summary.push(words);
    }
    if let Some((cell, fastest)) =
        curve("ipc-round-trip", SHARED).and_then(|it| it.best(Unit::Seconds))
    {
        let mut words = format!("a round trip takes {}", Unit::Seconds.show(fastest.median));
        if let Some(each) = cell.percentiles {
            let p99 = Unit::Seconds.show(each.p99);
            words.push_str(&format!(", and 99 of 100 take at most {p99}"));
        }
        summary.push(words);
    }
    let build = |label: &str| {
        let mut cells = chart("ipc-build")?.curves.first()?.cells.iter();
        cells.find(|cell| cell.label == label)?.median
    };
    if let Some((shared, inline)) = build(SHARED).zip(build(INLINE)) {
        let [shared, inline] = [shared, inline].map(|time| Unit::Seconds.show(time));
        summary.push(format!("the packets of a build take {shared} instead of {inline}"));
    }
    sentences(&summary)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::chart;

    #[test]
    fn every_measured_chart_has_a_sentence() {
        let one_way: [(&str, &[(&str, f64)]); 2] =
            [(SHARED, &[("100 B", 0.5e9), ("64 KiB", 9.0e9)]), (INLINE, &[("1 MiB", 3.0e9)])];
        let trips: [(&str, &[(&str, f64)]); 1] = [(SHARED, &[("100 B", 0.6e-6), ("1 MiB", 1e-4)])];
        let build: [(&str, &[(&str, f64)]); 1] =
            [("pipewright", &[(SHARED, 0.018), (INLINE, 0.13)])];
        let charts = [
            chart("ipc-one-way", Unit::BytesPerSecond, &one_way),
            chart("ipc-round-trip", Unit::Seconds, &trips),
            chart("ipc-build", Unit::Seconds, &build),
        ];
        let summary = verdict(&charts).unwrap();
        let lines: Vec<&str> = summary.lines().collect();
        assert_eq!(
            lines,
            [
                "Messages from a worker reach 9.00 GB/s at best (64 KiB, shared memory), and 3.00 GB/s \
                 through a socket (1 MiB).",
                "A round trip takes 600 ns, and 99 of 100 take at most 1.20 µs.",
                "The packets of a build take 18.0 ms instead of 130 ms.",
            ]
        );
        assert_eq!(verdict(&charts[2..]).unwrap(), lines[2]);
        assert_eq!(verdict(&[]), None);
    }
}
