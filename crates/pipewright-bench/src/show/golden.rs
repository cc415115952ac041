//! The formats of fixed reports, compared byte for byte with stored files.
//!
//! After an intended change, `PIPEWRIGHT_BLESS=1 cargo test -p pipewright-bench golden` writes the files in `golden/`
//! again. Check the difference.

use std::fs;
use std::path::Path;

use crate::report::{BenchReport, Cell, Section, compare};
use crate::sample;

#[track_caller]
fn same(name: &str, found: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/show/golden").join(name);
    if std::env::var_os("PIPEWRIGHT_BLESS").is_some() {
        fs::write(&path, found).unwrap();
    }
    let expected = fs::read_to_string(&path).unwrap().replace("\r\n", "\n");
    let found = found.replace("\r\n", "\n");
    let differ = expected.lines().zip(found.lines()).position(|(a, b)| a != b);
    if let Some(line) = differ {
        let of = |text: &str| text.lines().nth(line).unwrap_or_default().to_owned();
        panic!("{name}, line {}:\n{}\nis now\n{}", line + 1, of(&expected), of(&found));
    }
    assert_eq!(expected.lines().count(), found.lines().count(), "{name}");
}

/// A report of pipes compared with an older one: some cells are slower, some faster, and one changed no more than the
/// machine itself.
fn compared() -> BenchReport {
    let (old, mut new) = (sample::pipes(), sample::pipes());
    for (cell, factor) in new.charts[0].curves[0].cells.iter_mut().zip([1.02, 1.3, 1.0, 0.98, 0.7])
    {
        let samples = cell.samples.iter().map(|sample| sample * factor).collect();
        *cell = Cell::new(&cell.label, cell.block_bytes, samples);
    }
    new.machine.yardstick_wake_seconds.iter_mut().for_each(|seconds| *seconds *= 1.2);
    new.started_unix_seconds += 86_400;
    new.comparison = Some(compare::compare(&old, &new));
    new
}

#[test]
fn terminals_of_several_widths() {
    for columns in [40, 80, 120] {
        let text = super::terminal::terminal(&sample::pipes(), columns, false);
        let longest = text.lines().map(|line| line.chars().count()).max();
        assert!(longest <= Some(columns), "{longest:?}");
        same(&format!("pipes-{columns}.txt"), &text);
    }
    same("spawn-80.txt", &super::terminal::terminal(&sample::spawn(), 80, false));
    same("trips-80.txt", &super::terminal::terminal(&sample::trips(), 80, false));
    same("compared-80.txt", &super::terminal::terminal(&compared(), 80, false));
    // Colors change nothing else.
    let painted = super::terminal::terminal(&sample::pipes(), 80, true);
    let mut plain = String::new();
    let mut pieces = painted.split('\x1b');
    plain.push_str(pieces.next().unwrap());
    for piece in pieces {
        plain.push_str(piece.split_once('m').unwrap().1);
    }
    assert_eq!(plain, super::terminal::terminal(&sample::pipes(), 80, false));
}

#[test]
fn pictures() {
    same("pipes.svg", &super::svg(&sample::pipes()));
    same("spawn.svg", &super::svg(&sample::spawn()));
    same("compared.svg", &super::svg(&compared()));
}

#[test]
fn pages() {
    let json = serde_json::to_string(&sample::spawn()).unwrap();
    let page = super::html::html(&sample::spawn(), &json);
    same("spawn.html", &page);
    // Nothing is fetched: the only addresses are XML namespaces.
    let addresses = page.matches("://").count();
    assert_eq!(addresses, page.matches("xmlns=\"http://www.w3.org/2000/svg\"").count());
    // The data can be read back as it is.
    let (_, rest) = page.split_once("id=\"data\">").unwrap();
    let (data, _) = rest.split_once("</script>").unwrap();
    let data: BenchReport = serde_json::from_str(data).unwrap();
    assert_eq!(serde_json::to_string(&data).unwrap(), json);
}

#[test]
fn a_chart_without_figures_has_no_axes() {
    let mut report = sample::pipes();
    for cell in report.charts.iter_mut().flat_map(|it| &mut it.curves).flat_map(|it| &mut it.cells)
    {
        *cell = Cell::new(&cell.label, cell.block_bytes, Vec::new());
    }
    let json = serde_json::to_string(&report).unwrap();
    for text in [
        super::terminal::terminal(&report, 80, false),
        super::html::html(&report, &json),
        super::table::markdown(&report),
    ] {
        assert!(text.contains("Not measured."), "{text}");
        assert!(text.contains(&report.charts[0].title), "{text}");
        assert!(
            !text.contains("<svg ") && !text.contains('┤') && !text.contains("| 4 KiB"),
            "{text}"
        );
    }
    assert!(super::svg(&report).ends_with("</svg>\n"));
}

#[test]
fn lists() {
    same("pipes.csv", &super::table::csv(&sample::pipes()));
    same("pipes.md", &super::table::markdown(&sample::pipes()));
    same("compared.md", &super::table::markdown(&compared()));
    let json = serde_json::to_string_pretty(&sample::spawn()).unwrap();
    same("spawn.json", &(json + "\n"));
}

/// A report of two benchmarks.
fn several() -> BenchReport {
    let mut report = sample::pipes();
    let more = sample::spawn();
    let ids = |report: &BenchReport| -> Vec<String> {
        report.charts.iter().map(|chart| chart.id.clone()).collect()
    };
    for (name, verdict, charts) in [
        ("pipes", "Pipes are fast.\nSockets too.", ids(&report)),
        ("spawn", "This machine is too noisy.", ids(&more)),
    ] {
        let (name, verdict) = (name.to_owned(), verdict.to_owned());
        report.sections.push(Section { name, verdict, charts });
    }
    report.charts.extend(more.charts);
    report
}

#[test]
fn a_report_of_several_benchmarks_starts_with_their_verdicts() {
    let report = several();
    let page = super::html::html(&report, "{}");
    let markdown = super::table::markdown(&report);
    let terminal = super::terminal::terminal(&report, 80, false);
    for text in [&page, &markdown, &terminal] {
        let place = |part: &str| text.find(part).unwrap_or_else(|| panic!("{part}: {text}"));
        let verdicts = ["Pipes are fast.", "Sockets too.", "This machine is too noisy."].map(place);
        assert!(verdicts.is_sorted(), "{verdicts:?}");
        // Before everything about the machine.
        assert!(verdicts[2] < place("Example OS 1"), "{text}");
    }
    // Each is beside a link to its charts.
    let place = |text: &str| page.find(text).unwrap_or_else(|| panic!("{text}"));
    assert!(place("<a href=\"#pipes\">") < place("Pipes are fast."));
    assert!(place("<a href=\"#spawn\">") < place("This machine is too noisy."));
    assert!(place("This machine is too noisy.") < place("id=\"pipes\""));
    assert!(place("id=\"pipes\"") < place("id=\"spawn\""));
    assert_eq!(page.matches("class=\"section\"").count(), 2);
    assert!(!super::html::html(&sample::pipes(), "{}").contains("<dl"));
    let lines: Vec<&str> = terminal.lines().collect();
    assert_eq!(
        lines[1..4],
        ["pipes: Pipes are fast.", "pipes: Sockets too.", "spawn: This machine is too noisy.",]
    );
}

#[test]
fn each_chart_has_its_verdict_in_every_format() {
    let report = sample::pipes();
    let page = super::html::html(&report, "{}");
    let markdown = super::table::markdown(&report);
    let terminal = super::terminal::terminal(&report, 200, false);
    for chart in &report.charts {
        assert!(chart.verdict.ends_with('.'), "{:?}", chart.verdict);
        for text in [&page, &markdown, &terminal] {
            let (_, after) = text.split_once(&chart.title).unwrap();
            assert!(after.contains(&chart.verdict), "{}: {text}", chart.verdict);
        }
    }
}

/// A report whose best figure is noisy.
fn with_a_noisy_best() -> BenchReport {
    let mut report = sample::pipes();
    let cell = &mut report.charts[0].curves[2].cells[8];
    // The best by far, and the worst of its series is below the next best.
    *cell = Cell::new(&cell.label, cell.block_bytes, vec![3.0e9, 9.0e9, 9.9e9, 8.0e9, 3.1e9]);
    assert!(cell.noisy);
    report
}

#[test]
fn the_label_of_the_best_point_names_its_curve_and_no_noisy_point_has_it() {
    for (report, expected) in [
        (sample::pipes(), "two threads, Unix socket: 64 KiB, 5.40 GB/s"),
        (with_a_noisy_best(), "two threads, Unix socket: 256 KiB, 5.20 GB/s"),
    ] {
        let wide = super::svg(&report);
        let (_, label) = wide.split_once("class=\"best\"").unwrap();
        let label = label.lines().nth(1).unwrap();
        assert!(label.contains(&format!(">{expected}<")), "{label}");
        // A narrow chart has two rows.
        let page = super::html::html(&report, "{}");
        let (_, narrow) = page.split_once("class=\"narrow\"").unwrap();
        let (_, label) = narrow.split_once("class=\"best\"").unwrap();
        let rows: Vec<&str> = label.lines().skip(1).take(2).collect();
        let (name, figure) = expected.split_once(": ").unwrap();
        assert!(rows[0].contains(&format!(">{figure}<")), "{rows:?}");
        assert!(rows[1].contains(&format!(">{name}<")), "{rows:?}");
        // The tooltip and its text for screen readers name every curve.
        let (_, spot) = wide.split_once("aria-label=\"4 KiB: ").unwrap();
        let said = spot.lines().next().unwrap();
        for curve in &report.charts[0].curves {
            assert!(said.contains(&format!("{}, ", curve.name)), "{said}");
        }
    }
    // The best of a chart of times is low: the label stays at its point, and does not go above the other curves.
    let trips = super::svg(&sample::trips());
    let (_, label) = trips.split_once("class=\"best\"").unwrap();
    let place = |text: &str, name: &str| -> f64 {
        let (_, rest) = text.split_once(&format!(" {name}=\"")).unwrap();
        rest.split_once('"').unwrap().0.parse().unwrap()
    };
    let up = place(label, "cy") - place(label.lines().nth(1).unwrap(), "y");
    assert!((14.0..=50.0).contains(&up), "{label}");
    // One that is noisy and the best even at its worst leads nothing.
    let mut report = sample::pipes();
    report.charts.truncate(1);
    let cell = &mut report.charts[0].curves[2].cells[8];
    *cell = Cell::new(&cell.label, cell.block_bytes, vec![6.0e9, 9.0e9, 12.0e9]);
    assert!(!super::svg(&report).contains("class=\"best\""));
}
