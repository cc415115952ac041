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

#[cfg(test)]
mod tests {
    use super::super::super::sample::chart;
    use super::*;

    #[test]
    fn each_way_has_its_sentence_where_it_was_measured() {
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
        let said = verdict(&charts).unwrap();
        let lines: Vec<&str> = said.lines().collect();
        assert_eq!(
            lines,
            [
                "Messages of a worker come at 9.00 GB/s at best (64 KiB, shared memory), at 3.00 GB/s \
                 through a socket (1 MiB).",
                "There and back takes 600 ns, and 1.20 µs at most for 99 of 100.",
                "The packets of a build take 18.0 ms instead of 130 ms.",
            ]
        );
        assert_eq!(verdict(&charts[2..]).unwrap(), lines[2]);
        assert_eq!(verdict(&[]), None);
    }
}
