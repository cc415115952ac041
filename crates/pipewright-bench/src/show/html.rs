//! A report as a self-contained page (no network, and no script except for the download), and its charts as an SVG
//! file.

use std::fmt::Write as _;

use super::table::{self, TextTable};
use crate::draw::charts::{self, Format, Subject};
use crate::draw::{Attributes, CURVES, Svg, class, escape, picture, style};
use crate::report::{Axis, BenchReport, Chart, Section};
use crate::units;

/// Returns the page, with the report as JSON embedded in it.
pub(crate) fn html(report: &BenchReport, json: &str) -> String {
    let title = escape(&super::heading(report));
    let mut page = String::new();
    // Writing to a String does not fail.
    let _ = write!(
        page,
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">\n\
         <title>{title}</title>\n<style>\n{}{PAGE_CSS}</style>\n</head>\n<body>\n<main>\n",
        style(),
    );
    head(&mut page, report);
    for chart in &report.charts {
        if let Some(section) = section_at(report, chart) {
            let name = escape(&section.name);
            let _ = writeln!(page, "<h2 class=\"section\" id=\"{name}\">{name}</h2>");
        }
        figure(&mut page, chart, report);
    }
    foot(&mut page, report, json);
    page.push_str("</main>\n</body>\n</html>\n");
    page
}

fn head(page: &mut String, report: &BenchReport) {
    let BenchReport { benchmark, preset, .. } = report;
    let when = units::date(report.started_unix_seconds);
    let _ = writeln!(
        page,
        "<header>\n<p class=\"what\">pipewright bench <b>{}</b>, preset {} · {when}</p>",
        escape(benchmark),
        escape(preset),
    );
    let verdict = if report.sections.is_empty() { &report.verdict } else { "All benchmarks" };
    let mut verdicts: Vec<&str> = verdict.lines().collect();
    verdicts.extend(report.comparison.as_ref().map(|it| it.verdict.as_str()));
    for (index, verdict) in verdicts.iter().enumerate() {
        let tag = if index == 0 { "h1" } else { "p class=\"verdict\"" };
        let end = if index == 0 { "h1" } else { "p" };
        let _ = writeln!(page, "<{tag}>{}</{end}>", escape(verdict));
        if index == 0 {
            contents(page, report);
        }
    }
    let _ = writeln!(page, "<p class=\"machine\">{}</p>", escape(&report.machine.line()));
    if !report.warnings.is_empty() {
        page.push_str("<ul class=\"notes\">\n");
        for warning in &report.warnings {
            let _ = writeln!(page, "<li>{}</li>", escape(&warning.message));
        }
        page.push_str("</ul>\n");
    }
    page.push_str("</header>\n");
}

/// Writes the verdict of each section, with a link to it.
fn contents(page: &mut String, report: &BenchReport) {
    if report.sections.is_empty() {
        return;
    }
    page.push_str("<dl class=\"verdicts\">\n");
    for section in &report.sections {
        let name = escape(&section.name);
        let _ = write!(page, "<dt><a href=\"#{name}\">{name}</a></dt>");
        for verdict in section.verdict.lines() {
            let _ = write!(page, "<dd>{}</dd>", escape(verdict));
        }
        page.push('\n');
    }
    page.push_str("</dl>\n");
}

/// Returns the section that begins with this chart.
fn section_at<'a>(report: &'a BenchReport, chart: &Chart) -> Option<&'a Section> {
    report.sections.iter().find(|section| section.charts.first() == Some(&chart.id))
}

/// Returns the style of a page, for other pages of the tool.
#[must_use]
pub fn page_style() -> String {
    style() + PAGE_CSS
}

/// Writes a chart twice, for wide and for narrow screens: text in a picture shrinks with it.
fn figure(page: &mut String, chart: &Chart, report: &BenchReport) {
    if !chart.is_measured() {
        let title = escape(&chart.title);
        let _ =
            writeln!(page, "<figure>\n<h2>{title}</h2>\n<p>{}</p>\n</figure>", super::NOT_MEASURED);
        return;
    }
    page.push_str("<figure>\n");
    for (format, class) in [(Format::Wide, "wide"), (Format::Narrow, "narrow")] {
        let picture = single_chart(chart, report, format);
        let _ = writeln!(page, "<div class=\"{class}\">\n{picture}</div>");
    }
    if !chart.verdict.is_empty() {
        let _ = writeln!(page, "<p class=\"found\">{}</p>", escape(&chart.verdict));
    }
    if chart.axis == Axis::BlockBytes {
        table(page, &table::curves(chart), Rows::Curves);
    }
    let figures = table::figures(chart, report.comparison.as_ref(), true);
    page.push_str("<details><summary>All figures</summary>\n");
    table(page, &figures, Rows::Figures);
    if let Some(reads) = table::reads(chart) {
        table(page, &reads, Rows::Figures);
    }
    page.push_str("</details>\n</figure>\n");
}

/// The kind of the rows of a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Rows {
    /// One for each curve, whose letter has its color.
    Curves,
    Figures,
}

fn table(page: &mut String, table: &TextTable, rows: Rows) {
    let class = if rows == Rows::Curves { " class=\"curves\"" } else { "" };
    // A part that scrolls has to be reached by the keyboard.
    let scroll = "<div class=\"scroll\" tabindex=\"0\" role=\"group\" aria-label=\"figures\">";
    let _ = write!(page, "{scroll}<table{class}>\n<thead><tr>");
    for entry in &table.heading {
        let tag = if entry.is_empty() { "td" } else { "th" };
        // Breaks after a slash where the screen is narrow.
        let _ = write!(page, "<{tag}>{}</{tag}>", escape(entry).replace('/', "/<wbr>"));
    }
    page.push_str("</tr></thead>\n<tbody>\n");
    for (curve, row) in table.rows.iter().enumerate() {
        page.push_str("<tr>");
        for (column, entry) in row.iter().enumerate() {
            let class = match (rows, column) {
                (Rows::Curves, 0) => format!(" class=\"letter c{}\"", curve % CURVES),
                _ => String::new(),
            };
            let _ = write!(page, "<td{class}>{}</td>", escape(entry.trim()));
        }
        page.push_str("</tr>\n");
    }
    page.push_str("</tbody></table></div>\n");
}

fn foot(page: &mut String, report: &BenchReport, json: &str) {
    let method = escape(&super::method(report));
    let heading = escape(&super::heading(report));
    // "<" would start markup in a script element. In JSON the escape means the same.
    let json = json.trim_end().replace('<', "\\u003c");
    let _ = write!(
        page,
        "<footer>\n<p>{method}. ~ marks a spread above 10 %. {heading}.</p>\n\
         <p><a id=\"download\" download=\"pipewright-bench.json\" href=\"#data\">Download the data (JSON)</a></p>\n\
         </footer>\n<script type=\"application/json\" id=\"data\">{json}</script>\n<script>{SCRIPT}</script>\n",
    );
}

/// Without the script only the download is missing.
const SCRIPT: &str = "document.getElementById('download').href=URL.createObjectURL(new Blob(\
[document.getElementById('data').textContent],{type:'application/json'}))";

const PAGE_CSS: &str = "\
*{box-sizing:border-box}
body{margin:0;background:var(--bg);color:var(--fg);font:16px/1.5 system-ui,-apple-system,'Segoe UI',Roboto,sans-serif}
main{max-width:944px;margin:0 auto;padding:32px}
h1{font-size:26px;line-height:1.3;font-weight:650;margin:8px 0 12px;text-wrap:balance}
h2{font-size:16px;font-weight:600;margin:0}
p{margin:8px 0}
.what,.machine,footer{color:var(--faint);font-size:14px}
.what b{color:var(--fg)}
.verdict{font-size:17px}
.verdicts{margin:12px 0;display:grid;grid-template-columns:max-content 1fr;gap:0 16px}
.verdicts dt{grid-column:1;font-weight:600}
.verdicts dd{grid-column:2;margin:0 0 2px}
.found{font-weight:600}
.section{font-size:22px;margin:56px 0 0;padding-top:16px;border-top:1px solid var(--grid)}
.notes{margin:16px 0 0;padding:12px 16px 12px 34px;background:var(--raised);border-radius:8px;font-size:14px}
figure{margin:40px 0 0}
svg{display:block;width:100%;height:auto;overflow:visible}
.narrow{display:none}
.scroll{overflow-x:auto;margin-top:12px}
table{border-collapse:collapse;font-size:14px;font-variant-numeric:tabular-nums;width:100%}
th,td{padding:5px 10px;text-align:right;white-space:nowrap;border-bottom:1px solid var(--grid)}
th{color:var(--faint);font-weight:500}
th:first-child,td:first-child{text-align:left;padding-left:0}
.curves th:nth-child(2),.curves td:nth-child(2){text-align:left}
.letter{color:var(--c);font-weight:650}
th:last-child,td:last-child{padding-right:0}
details{margin-top:12px;font-size:14px}
summary{cursor:pointer;color:var(--faint);padding:4px 0}
a{color:var(--c0)}
footer{margin-top:48px;border-top:1px solid var(--grid);padding-top:12px}
@media(max-width:640px){main{padding:20px 16px}h1{font-size:21px}.wide{display:none}.narrow{display:block}
table{font-size:13px}th,td{padding:5px 4px}\
.curves th{white-space:normal;vertical-align:bottom}\
.curves th:nth-child(2),.curves td:nth-child(2){white-space:normal;min-width:84px}}
@media print{main{padding:0}figure{break-inside:avoid;margin-top:24px}.wide{display:block}\
.narrow{display:none}details,#download{display:none}}
";

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
    let heights: f64 = subjects.iter().map(|subject| chart_height(subject, format) + APART).sum();
    let size = (format.width() + 2.0 * MARGIN, (heights - APART).max(0.0) + 2.0 * MARGIN + 18.0);
    picture(size, &super::heading(report), |svg| {
        svg.group("style", &Attributes::default(), |svg| svg.raw(&style()));
        let all = [("width", size.0), ("height", size.1)];
        svg.empty("rect", &Attributes::default().px(all).with("style", "fill:var(--bg)"));
        let mut top = MARGIN;
        for subject in subjects {
            let place = format!("translate({MARGIN} {top})");
            let group = Attributes::default().with("transform", place);
            svg.group("g", &group, |svg| draw_chart(svg, subject, format));
            top += chart_height(&subject, format) + APART;
        }
        let foot = [("x", MARGIN), ("y", size.1 - 12.0)];
        svg.text("text", &class("tick").px(foot), &report.machine.line());
    })
}

/// Returns a single chart, for a page that has the style.
fn single_chart(chart: &Chart, report: &BenchReport, format: Format) -> String {
    let subject = Subject { chart, comparison: report.comparison.as_ref() };
    let size = (format.width(), chart_height(&subject, format));
    picture(size, &chart.title, |svg| draw_chart(svg, subject, format))
}

fn chart_height(subject: &Subject<'_>, format: Format) -> f64 {
    match subject.chart.axis {
        Axis::BlockBytes => charts::lines_height(subject, format),
        Axis::Cases => charts::bars_height(subject, format),
    }
}

fn draw_chart(svg: &mut Svg, subject: Subject<'_>, format: Format) {
    match subject.chart.axis {
        Axis::BlockBytes => charts::draw_lines(svg, subject, format),
        Axis::Cases => charts::draw_bars(svg, subject, format),
    }
}
