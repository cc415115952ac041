//! What shared memory brings: a sentence each.

use super::super::report::{Chart, Curve};
use super::super::units::{Unit, sentences};
use super::{INLINE, SHARED};

/// In sentences; `None`: it was not measured.
pub(in crate::bench) fn verdict(charts: &[Chart]) -> Option<String> {
    let chart = |id: &str| charts.iter().find(|chart| chart.id == id);
    let curve = |id: &str, name: &str| -> Option<&Curve> {
        chart(id)?.curves.iter().find(|curve| curve.name == name)
    };
    let best = |name| curve("ipc-one-way", name)?.best(Unit::BytesPerSecond);
    let mut said = Vec::new();
    if let Some((cell, fastest)) = best(SHARED) {
        let speed = Unit::BytesPerSecond.show(fastest.median);
        let mut words =
            format!("messages of a worker come at {speed} at best ({}, shared memory)", cell.label);
        if let Some((cell, other)) = best(INLINE) {
            let speed = Unit::BytesPerSecond.show(other.median);
            words.push_str(&format!(", at {speed} through a socket ({})", cell.label));
        }
        said.push(words);
    }
    if let Some((cell, fastest)) =
        curve("ipc-round-trip", SHARED).and_then(|it| it.best(Unit::Seconds))
    {
        let mut words = format!("there and back takes {}", Unit::Seconds.show(fastest.median));
        if let Some(each) = cell.percentiles {
            let p99 = Unit::Seconds.show(each.p99);
            words.push_str(&format!(", and {p99} at most for 99 of 100"));
        }
        said.push(words);
    }
    let build = |label: &str| {
        let mut cells = chart("ipc-build")?.curves.first()?.cells.iter();
        cells.find(|cell| cell.label == label)?.median
    };
    if let Some((shared, inline)) = build(SHARED).zip(build(INLINE)) {
        let [shared, inline] = [shared, inline].map(|time| Unit::Seconds.show(time));
        said.push(format!("the packets of a build take {shared} instead of {inline}"));
    }
    sentences(&said)
}
