//! Fixed reports for tests, which do not depend on a machine.

use std::collections::BTreeMap;

use serde_json::json;

use crate::host::HostReport;
use crate::report::{Axis, BenchReport, Cell, Chart, Curve, Reference, SCHEMA, Settings, Warning};
use crate::stats::{Percentiles, SizeClass};
use crate::units::{Unit, bytes};

const SIZES: [u64; 12] =
    [64, 256, 1024, 2048, 4096, 8192, 16_384, 32_768, 65_536, 131_072, 262_144, 1_048_576];

/// A curve with these medians (in MB/s) and this spread of the series.
fn curve(name: &str, medians: &[f64], spread: f64, holds: u64) -> Curve {
    let cell = |(index, median): (usize, &f64)| {
        // A different series is the smallest and the largest in each cell.
        let share = spread * (1.0 + (index % 3) as f64 / 2.0);
        let samples = [1.0 - share, 1.0, 1.0 + share].map(|factor| median * 1e6 * factor);
        let mut samples = samples.to_vec();
        samples.rotate_left(index % 3);
        Cell {
            operations: 1000 + index as u64,
            cpu_seconds_per_mib: Some(4e-4),
            switches_per_mib: Some(12.5),
            bytes_per_read: Some(SIZES[index] as f64),
            reads: vec![
                SizeClass { from_bytes: SIZES[index] / 2, reads: 1 },
                SizeClass { from_bytes: SIZES[index], reads: 7 },
            ],
            ..Cell::new(&bytes(SIZES[index]), Some(SIZES[index]), samples)
        }
    };
    let facts =
        [("holds_bytes", json!(holds)), ("holds_bytes_asked", json!(null)), ("via", json!("pipe"))];
    Curve {
        name: name.to_owned(),
        facts: facts.map(|(name, value)| (name.to_owned(), value)).into(),
        cells: medians.iter().enumerate().map(cell).collect(),
    }
}

fn machine() -> HostReport {
    HostReport {
        system: Some("Example OS 1".to_owned()),
        kernel: Some("6.18.0".to_owned()),
        processor: Some("Example <CPU> & Co".to_owned()),
        processors: 2,
        virtual_machine: Some("yes".to_owned()),
        memory_bytes: Some(8 << 30),
        load_before: Some(0.25),
        load_after: Some(1.5),
        yardstick_bytes_per_second: vec![8.0e9, 8.1e9, 7.9e9],
        yardstick_wake_seconds: vec![4.0e-5, 4.1e-5, 4.05e-5],
        ..HostReport::default()
    }
}

fn report(benchmark: &str, charts: Vec<Chart>) -> BenchReport {
    BenchReport {
        schema: SCHEMA.to_owned(),
        tool_version: "0.0.0".to_owned(),
        benchmark: benchmark.to_owned(),
        preset: "quick".to_owned(),
        complete: true,
        started_unix_seconds: 1_795_325_400,
        elapsed_seconds: 17.5,
        settings: Settings {
            series: 3,
            count: None,
            seed: 7,
            verify: false,
            time_limit_seconds: None,
            measured_series: Some(3),
            shortest_share: 1.0,
        },
        machine: machine(),
        verdict: String::new(),
        warnings: Vec::new(),
        charts,
        sections: Vec::new(),
        comparison: None,
    }
}

/// Adds warnings and the verdicts of charts.
fn judged(mut report: BenchReport) -> BenchReport {
    report.warnings = crate::report::warnings(&report);
    crate::report::verdict::judge(&mut report.charts);
    report
}

/// `bench pipes`.
pub(crate) fn pipes() -> BenchReport {
    let small = curve(
        "two threads, pipe 64 KiB",
        &[
            104.0, 310.0, 733.0, 1300.0, 2161.0, 2310.0, 2023.0, 1500.0, 1233.0, 1050.0, 945.0,
            813.0,
        ],
        0.01,
        65_536,
    );
    let large = curve(
        "two threads, pipe 1 MiB",
        &[
            113.0, 390.0, 1043.0, 1800.0, 2866.0, 2882.0, 2110.0, 1950.0, 1860.0, 1300.0, 1056.0,
            1094.0,
        ],
        0.02,
        1 << 20,
    );
    let mut socket = curve(
        "two threads, Unix socket",
        &[
            60.0, 230.0, 820.0, 1500.0, 2500.0, 3400.0, 4300.0, 5000.0, 5400.0, 5600.0, 5200.0,
            5100.0,
        ],
        0.04,
        212_992,
    );
    socket.cells[9] = Cell::new("128 KiB", Some(131_072), vec![4.5e9, 5.6e9, 6.5e9]);
    let one = curve(
        "one thread, pipe 64 KiB",
        &[107.0, 400.0, 1604.0, 3900.0, 7791.0, 9857.0, 5514.0, 5100.0, 4897.0],
        0.01,
        65_536,
    );
    let chart = |id: &str, title: &str, curves| Chart {
        id: id.to_owned(),
        title: title.to_owned(),
        verdict: String::new(),
        unit: Unit::BytesPerSecond,
        axis: Axis::BlockBytes,
        cell_seconds: 0.05,
        references: Vec::new(),
        curves,
    };
    let mut article = chart("one-thread", "One thread writes a block and reads it back", vec![one]);
    article.references = [("2001: Linux 2.4, peak", 700e6), ("2001: Linux 2.4, plateau", 100e6)]
        .map(|(label, value)| Reference { label: label.to_owned(), value })
        .to_vec();
    let between =
        chart("between-other", "Writer and reader on different cores", vec![small, large, socket]);
    let mut report = judged(report("pipes", vec![between, article]));
    report.verdict = crate::cases::pipes::verdict(&report.charts).unwrap_or_default();
    report
}

/// Round trips: times over the size of a block.
pub(crate) fn trips() -> BenchReport {
    let curve = |name: &str, micros: [f64; 4]| {
        let cell = |(index, micros): (usize, f64)| {
            let size = SIZES[index * 3];
            let p50 = micros * 1e-6;
            let samples = [1.0, 0.97, 1.02].map(|factor| factor * p50).to_vec();
            let [p90, p99, p99_9, most] = [1.2, 2.0, 6.0, 40.0].map(|factor| factor * p50);
            let percentiles = Some(Percentiles { p50, p90, p99, p99_9, most });
            Cell { percentiles, ..Cell::new(&bytes(size), Some(size), samples) }
        };
        let cells = micros.into_iter().enumerate().map(cell).collect();
        Curve { name: name.to_owned(), facts: BTreeMap::new(), cells }
    };
    let chart = Chart {
        id: "round-trip".to_owned(),
        title: "A block to another process and back".to_owned(),
        verdict: String::new(),
        unit: Unit::Seconds,
        axis: Axis::BlockBytes,
        cell_seconds: 0.05,
        references: Vec::new(),
        curves: vec![
            curve("pipes", [9.0, 10.5, 24.0, 190.0]),
            curve("shared memory", [0.6, 1.1, 7.0, 60.0]),
        ],
    };
    judged(report("pipes", vec![chart]))
}

/// A chart of curves with names, whose cells have labels and medians.
pub(crate) fn chart(id: &str, unit: Unit, curves: &[(&str, &[(&str, f64)])]) -> Chart {
    let cell = |(label, median): &(&str, f64)| {
        let p50 = *median;
        let percentiles = Percentiles { p50, p90: p50, p99: 2.0 * p50, p99_9: p50, most: p50 };
        Cell { percentiles: Some(percentiles), ..Cell::new(label, None, vec![*median; 3]) }
    };
    let curve = |(name, cells): &(&str, &[(&str, f64)])| Curve {
        name: (*name).to_owned(),
        facts: BTreeMap::new(),
        cells: cells.iter().map(cell).collect(),
    };
    Chart {
        id: id.to_owned(),
        title: id.to_owned(),
        verdict: String::new(),
        unit,
        axis: Axis::Cases,
        cell_seconds: 0.05,
        references: Vec::new(),
        curves: curves.iter().map(curve).collect(),
    }
}

/// A list of cases.
pub(crate) fn spawn() -> BenchReport {
    // Most of the spread is drift of the machine: a bare start took about 400 µs.
    let cell = |label: &str, micros: f64| Cell {
        in_bare_starts: [1.0, 0.99, 1.01].map(|factor| factor * micros / 400.0).to_vec(),
        ..Cell::new(label, None, [1.0, 0.93, 1.08].map(|factor| factor * micros * 1e-6).to_vec())
    };
    let curve = Curve {
        name: "start and wait".to_owned(),
        facts: BTreeMap::new(),
        cells: vec![
            cell("no option", 457.0),
            cell("a group of its own", 461.0),
            cell("held as a tree", 812.0),
            Cell {
                skipped: Some("not here".to_owned()),
                ..Cell::new("another user", None, Vec::new())
            },
        ],
    };
    let chart = Chart {
        id: "spawn-options".to_owned(),
        title: "Starting a process and waiting for its end, with options <and> without".to_owned(),
        verdict: String::new(),
        unit: Unit::Seconds,
        axis: Axis::Cases,
        cell_seconds: 0.15,
        references: Vec::new(),
        curves: vec![curve],
    };
    let mut report = report("spawn", vec![chart]);
    report.complete = false;
    let mut report = judged(report);
    report
        .warnings
        .push(Warning { kind: "test".to_owned(), message: "a <note> & more".to_owned() });
    report.verdict = "Starting and waiting takes 457 µs.".to_owned();
    report
}
