//! The charts of a report as an SVG file.

use crate::draw::charts;
use crate::draw::charts::{Format, Subject};
use crate::draw::svg::{Attributes, Svg, class, picture, style};
use crate::report::{Axis, BenchReport, Chart};

const MARGIN: f64 = 20.0;
const APART: f64 = 30.0;

/// Returns all charts below each other, with background and style.
pub(crate) fn svg(report: &BenchReport) -> String {
    let format = Format::Wide;
    let subjects: Vec<Subject<'_>> = report
        .charts
        .iter()
        .filter(|chart| chart.is_measured())
        .map(|chart| Subject { chart, comparison: report.comparison.as_ref() })
        .collect();
    let heights: f64 = subjects.iter().map(|subject| height(subject, format) + APART).sum();
    let size = (format.width() + 2.0 * MARGIN, (heights - APART).max(0.0) + 2.0 * MARGIN + 18.0);
    picture(size, &super::heading(report), |svg| {
        svg.group("style", &Attributes::default(), |svg| svg.raw(&style()));
        let all = [("width", size.0), ("height", size.1)];
        svg.empty("rect", &Attributes::default().px(all).with("style", "fill:var(--bg)"));
        let mut top = MARGIN;
        for subject in subjects {
            let place = format!("translate({MARGIN} {top})");
            let group = Attributes::default().with("transform", place);
            svg.group("g", &group, |svg| draw(svg, subject, format));
            top += height(&subject, format) + APART;
        }
        let foot = [("x", MARGIN), ("y", size.1 - 12.0)];
        svg.text("text", &class("tick").px(foot), &report.machine.line());
    })
}

/// Returns a single chart, for a page that has the style.
pub(super) fn chart(chart: &Chart, report: &BenchReport, format: Format) -> String {
    let subject = Subject { chart, comparison: report.comparison.as_ref() };
    let size = (format.width(), height(&subject, format));
    picture(size, &chart.title, |svg| draw(svg, subject, format))
}

fn height(subject: &Subject<'_>, format: Format) -> f64 {
    match subject.chart.axis {
        Axis::BlockBytes => charts::lines_height(subject, format),
        Axis::Cases => charts::bars_height(subject, format),
    }
}

fn draw(svg: &mut Svg, subject: Subject<'_>, format: Format) {
    match subject.chart.axis {
        Axis::BlockBytes => charts::draw_lines(svg, subject, format),
        Axis::Cases => charts::draw_bars(svg, subject, format),
    }
}
