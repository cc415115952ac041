//! `pipewright disk`: tests if disk I/O is asynchronous, and explains why it is not: in words, as JSON, and as one
//! self-contained HTML page, without network or script.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use html_escape::encode_quoted_attribute as escape;
use pipewright_bench::three_digits;
use pipewright_disk::diagnosis::{
    Finding, Measured, Reason, Report, Test, TestOutcome, TestReport, Verdict, diagnose,
};
use pipewright_disk::{BackendKind, Class};
use pipewright_os::base::private_file;
use pipewright_os::disk::file;
use serde::Serialize;

use crate::args::DiskOptions;
use crate::print::print;
use crate::{Failure, exit_code, print_error};

/// Diagnoses each path and prints the result. An error for one path does not stop the others.
pub(crate) fn run(options: &DiskOptions) -> Result<i32, Failure> {
    let page = options.html.as_ref().map(|path| Page::new(path, &options.paths)).transpose()?;
    let (mut reports, mut code) = (Vec::new(), exit_code::SUCCESS);
    for path in &options.paths {
        match diagnose(path, &options.diagnose()) {
            Err(error) => {
                print_error(&error.to_string());
                code = exit_code::OWN_FAILURE;
            }
            Ok(report) => {
                let text = text_of(options.json, reports.is_empty(), &report);
                print(text.map_err(Failure::cannot("print the diagnosis"))?)?;
                reports.push(report);
            }
        }
    }
    if let Some(page) = page {
        page.write(&reports)?;
    }
    Ok(code)
}

/// The HTML page.
#[derive(Debug)]
struct Page {
    path: PathBuf,
    /// The file did not exist before.
    is_new: bool,
}

impl Page {
    /// Opens the file before the first test, so that an error is known at once. Its content stays until the page is
    /// written.
    fn new(path: &Path, read: &[PathBuf]) -> Result<Page, Failure> {
        // A page that does not exist yet is none of the tested files.
        let is_same = |other: &&PathBuf| file::is_same(path, other).unwrap_or(false);
        if let Some(same) = read.iter().find(is_same) {
            return Err(Failure(format!(
                "--html would overwrite {same:?}, a file to test; choose another file"
            )));
        }
        let is_new = fs::symlink_metadata(path).is_err();
        private_file::open(path, File::options().create(true).append(true))
            .map_err(|error| Failure(format!("cannot write the HTML page to {path:?}: {error}")))?;
        Ok(Page { path: path.to_owned(), is_new })
    }

    fn write(self, reports: &[Report]) -> Result<(), Failure> {
        if reports.is_empty() {
            if self.is_new {
                // Ignored: an empty file does no harm.
                let _ = fs::remove_file(&self.path);
            }
            return Ok(());
        }
        let path = self.path;
        private_file::create(&path, false)
            .and_then(|mut file| file.write_all(html_page(reports).as_bytes()))
            .map_err(|error| Failure(format!("cannot write the HTML page to {path:?}: {error}")))
    }
}

/// Returns the text to print for a diagnosis.
fn text_of(as_json: bool, is_first: bool, report: &Report) -> io::Result<Vec<u8>> {
    let mut text = Vec::new();
    if as_json {
        writeln!(text, "{}", json_of(report)?)?;
    } else {
        if !is_first {
            writeln!(text)?;
        }
        write_report(&mut text, report)?;
    }
    Ok(text)
}

/// The JSON object of a diagnosis, described in `docs/json.md`. Fields are only ever added.
#[derive(Debug, Serialize)]
struct DiskReport<'a> {
    schema: &'static str,
    path: String,
    filesystem: Option<&'a str>,
    backend: Option<&'static str>,
    refused: Vec<RefusedReport>,
    unjudged: Option<UnjudgedReport>,
    requests: usize,
    block_bytes: usize,
    sentence: String,
    tests: Vec<TestSummary>,
}

#[derive(Debug, Serialize)]
struct RefusedReport {
    backend: &'static str,
    reason: &'static str,
    message: String,
}

/// The reason for tests without a verdict.
#[derive(Debug, Serialize)]
struct UnjudgedReport {
    reason: &'static str,
    message: String,
}

#[derive(Debug, Serialize)]
struct TestSummary {
    test: String,
    asynchronous: bool,
    direct: bool,
    work: &'static str,
    /// `measured`, `not_possible` or `failed`.
    outcome: &'static str,
    message: Option<String>,
    #[serde(flatten)]
    measured: Option<Numbers>,
}

#[derive(Debug, Serialize)]
struct Numbers {
    requests: usize,
    bytes: u64,
    queued_seconds: f64,
    completed_seconds: f64,
    free_share: f64,
    out_of_order: usize,
    classes: BTreeMap<&'static str, usize>,
    verdict: &'static str,
    kernel_workers: Option<usize>,
    reasons: Vec<ReasonReport>,
}

#[derive(Debug, Serialize)]
struct ReasonReport {
    reason: &'static str,
    message: String,
    evidence: String,
    remedy: &'static str,
    remedy_message: String,
    /// Seconds until all were done, with the remedy.
    remedy_completed_seconds: Option<f64>,
    remedy_free_share: Option<f64>,
    remedy_verdict: Option<&'static str>,
}

/// Returns the report on one line.
fn json_of(report: &Report) -> serde_json::Result<String> {
    let refused = report.unavailable_backends.iter().map(|step| RefusedReport {
        backend: step.backend.name(),
        reason: step.reason.name(),
        message: step.reason.to_string(),
    });
    serde_json::to_string(&DiskReport {
        schema: "pipewright.disk/1",
        path: report.path.to_string_lossy().into_owned(),
        filesystem: report.filesystem.as_deref(),
        backend: report.backend.map(|backend| backend.name()),
        refused: refused.collect(),
        unjudged: report
            .unjudged
            .map(|reason| UnjudgedReport { reason: reason.name(), message: reason.to_string() }),
        requests: report.options.requests,
        block_bytes: report.options.block_bytes,
        sentence: lead(report),
        tests: report.tests.iter().map(test_of).collect(),
    })
}

fn test_of(found: &TestReport) -> TestSummary {
    let (outcome, message, measured) = match &found.outcome {
        TestOutcome::Measured(measured) => ("measured", None, Some(numbers(measured))),
        TestOutcome::NotPossible(reason) => ("not_possible", Some(reason.clone()), None),
        TestOutcome::Failed(reason) => ("failed", Some(reason.clone()), None),
    };
    TestSummary {
        test: found.test.to_string(),
        asynchronous: found.test.asynchronous,
        direct: found.test.direct,
        work: found.test.work.name(),
        outcome,
        message,
        measured,
    }
}

fn numbers(measured: &Measured) -> Numbers {
    let evidence = &measured.evidence;
    let reasons = measured.findings.iter().map(|finding| ReasonReport {
        reason: finding.reason.name(),
        message: finding.reason.to_string(),
        evidence: finding.evidence.clone(),
        remedy: finding.remedy.name(),
        remedy_message: finding.remedy.to_string(),
        remedy_completed_seconds: finding.effect.map(|it| it.completed.as_secs_f64()),
        remedy_free_share: finding.effect.map(|it| it.free_share),
        remedy_verdict: finding.effect.map(|it| it.verdict.name()),
    });
    Numbers {
        requests: evidence.requests,
        bytes: measured.bytes,
        queued_seconds: measured.queued.as_secs_f64(),
        completed_seconds: measured.completed.as_secs_f64(),
        free_share: measured.free_share(),
        out_of_order: measured.out_of_order,
        classes: Class::ALL.iter().map(|class| (class.name(), evidence.count(*class))).collect(),
        verdict: measured.verdict.name(),
        kernel_workers: evidence.kernel_workers,
        reasons: reasons.collect(),
    }
}

/// The words of the tests, for a reader who meets them for the first time.
const HOW_TO_READ: &str = "\
Direct requests go to the disk; buffered ones go through the system's cache. Queued: the time in the
calls that hand the requests over. Completed: the time until all are done. Free: the share of it in
which the program can do other work.";

/// Writes the summary, the tests, the reasons and the remedies.
fn write_report(out: &mut impl Write, report: &Report) -> io::Result<()> {
    writeln!(out, "{}", lead(report))?;
    let filesystem = report.filesystem.as_deref().unwrap_or("unknown filesystem");
    let backend = report.backend.map_or("none", |backend| backend.name());
    let (block, requests) = (report.options.block_bytes, report.options.requests);
    writeln!(out, "{filesystem}, backend {backend}, {requests} requests of {block} bytes")?;
    writeln!(out, "{HOW_TO_READ}")?;
    for step in &report.unavailable_backends {
        writeln!(out, "{step}")?;
    }
    if let Some(unjudged) = report.unjudged {
        writeln!(out, "Not judged: {unjudged}")?;
    }
    for (number, test) in report.tests.iter().enumerate() {
        writeln!(out, "\nTest {:<3} {}", number + 1, headline(test.test))?;
        match &test.outcome {
            TestOutcome::Measured(measured) => write_measured(out, measured)?,
            TestOutcome::NotPossible(reason) => writeln!(out, "  not possible here: {reason}")?,
            TestOutcome::Failed(reason) => writeln!(out, "  failed: {reason}")?,
        }
    }
    Ok(())
}

fn write_measured(out: &mut impl Write, measured: &Measured) -> io::Result<()> {
    writeln!(out, "  {}", times(measured))?;
    writeln!(out, "  {}", order(measured))?;
    let counts = Class::ALL.iter().filter_map(|class| {
        let count = measured.evidence.count(*class);
        (count > 0).then(|| format!("{count} {class}"))
    });
    let counts = counts.collect::<Vec<_>>().join("   ");
    let verdict = measured.verdict.to_string().to_uppercase();
    writeln!(out, "  {}", [counts, verdict].join("   ").trim_start())?;
    for finding in &measured.findings {
        writeln!(out, "  Reason:  {}", finding.reason)?;
        writeln!(out, "           {}", finding.evidence)?;
        writeln!(out, "  Remedy:  {}{}", finding.remedy, effect(finding))?;
    }
    Ok(())
}

/// Returns the measured effect of a remedy.
fn effect(finding: &Finding) -> String {
    let Some(effect) = finding.effect else { return String::new() };
    let (completed, free) = (time(effect.completed), effect.free_share * 100.0);
    format!(" (measured: {completed}, {free:.0} % free, {})", effect.verdict)
}

/// Returns the summary in one sentence.
fn lead(report: &Report) -> String {
    format!("{}: {}.", shown(&report.path), statements(report).join("; "))
}

/// Returns the parts of the summary, in words for a reader who does not know any others: the requests that are
/// asynchronous, those that are not, and the reasons.
fn statements(report: &Report) -> Vec<String> {
    let judged = report.tests.iter().filter_map(|test| match &test.outcome {
        TestOutcome::Measured(measured) if test.test.asynchronous => Some((test.test, &**measured)),
        _ => None,
    });
    let judged: Vec<_> = judged.collect();
    let mut parts = Vec::new();
    for (verdict, what) in [
        (Verdict::Asynchronous, "are asynchronous: the program went on while the disk worked"),
        (Verdict::Cached, "did not wait for a disk: the data were in memory"),
        (
            Verdict::Partly,
            "are asynchronous only in part: for some, a thread or the program waited",
        ),
        (Verdict::Workers, "are not asynchronous: threads waited for the disk"),
        (Verdict::Blocked, "are not asynchronous: the program waited for the disk"),
        (Verdict::Unknown, "cannot be judged here"),
    ] {
        let these = judged.iter().filter(|(_, it)| it.verdict == verdict);
        let subjects = subjects(these.clone().map(|(test, _)| *test));
        if !subjects.is_empty() {
            let why = match verdict {
                Verdict::Asynchronous | Verdict::Cached => String::new(),
                _ => reason_text(report, these.map(|(_, it)| *it)),
            };
            parts.push(format!("{} {what}{why}", list(&subjects)));
        }
    }
    let failed = |test: &TestReport| match &test.outcome {
        TestOutcome::Failed(why) => Some(why.clone()),
        _ => None,
    };
    let failures: Vec<String> = report.tests.iter().filter_map(failed).collect();
    if let Some(first) = failures.first() {
        parts.push(format!("{} of {} tests failed: {first}", failures.len(), report.tests.len()));
    }
    if parts.is_empty() {
        parts.push("no asynchronous test could be measured".to_owned());
    }
    parts
}

/// Shows a path on one line: control characters are escaped.
fn shown(path: &Path) -> String {
    let escaped = |character: char| match character.is_control() {
        true => character.escape_debug().to_string(),
        false => character.to_string(),
    };
    path.to_string_lossy().chars().map(escaped).collect()
}

/// Returns the subjects of a sentence about tests. A test that runs both with and without the cache is named once.
fn subjects(tests: impl Iterator<Item = Test>) -> Vec<String> {
    let mut tests: Vec<Test> = tests.collect();
    let mut subjects = Vec::new();
    while let Some(test) = (!tests.is_empty()).then(|| tests.remove(0)) {
        let words = test.to_string();
        let words = words.trim_start_matches("asynchronous").trim_start_matches([',', ' ']);
        let counterpart = Test { direct: !test.direct, ..test };
        match tests.iter().position(|other| *other == counterpart) {
            Some(place) => {
                tests.remove(place);
                let both = words.split_once(' ').map_or(words, |(_, work)| work);
                subjects.push(both.to_owned());
            }
            None => subjects.push(words.to_owned()),
        }
    }
    subjects
}

/// Returns the most important reasons, each once.
fn reason_text<'a>(report: &Report, measured: impl Iterator<Item = &'a Measured>) -> String {
    let mut why: Vec<String> = Vec::new();
    for reason in measured.filter_map(|it| it.findings.first()).map(|it| it.reason) {
        let words = reason.to_string();
        if reason != Reason::Unexplained && !why.contains(&words) {
            why.push(words);
        }
    }
    let has_threads = matches!(report.backend, Some(BackendKind::Threads | BackendKind::Aio));
    if why.is_empty() && has_threads {
        why.push("the engine uses blocking threads".to_owned());
    }
    if why.is_empty() { String::new() } else { format!(" ({})", why.join("; ")) }
}

/// Joins names: `a`, `a and b`, `a, b and c`.
fn list(names: &[String]) -> String {
    match names {
        [] => String::new(),
        [one] => one.clone(),
        [first @ .., last] => format!("{} and {last}", first.join(", ")),
    }
}

/// Returns the summary as a heading and further lines.
fn headings(report: &Report) -> String {
    let element = |(index, statement): (usize, &String)| {
        let (tag, end) = if index == 0 { ("h1", "h1") } else { ("p class=\"verdict\"", "p") };
        format!("<{tag}>{}.</{end}>\n", escape(&capitalized(statement)))
    };
    statements(report).iter().enumerate().map(element).collect()
}

/// Returns text that starts with a capital letter.
fn capitalized(text: &str) -> String {
    let mut characters = text.chars();
    let first = characters.next().into_iter().flat_map(char::to_uppercase);
    first.chain(characters).collect()
}

/// Returns the name of a test in words that say what the program does.
fn headline(test: Test) -> String {
    let words = test.to_string();
    let work = words.split_once([',', ' ']).map_or(words.as_str(), |(_, work)| work.trim());
    let way = if test.asynchronous { "all requested at once" } else { "one after the other" };
    format!("{}, {way}", capitalized(work))
}

/// Returns true if the program asked for something that it did not get.
fn is_missed(report: &Report, test: Test, verdict: Verdict) -> bool {
    let has_asked_for_threads = report.options.backend == BackendKind::Threads;
    test.asynchronous
        && match verdict {
            Verdict::Partly | Verdict::Blocked => true,
            Verdict::Workers => !has_asked_for_threads,
            _ => false,
        }
}

/// Formats a time: in milliseconds below 0.1 s.
fn time(time: Duration) -> String {
    let seconds = time.as_secs_f64();
    match seconds < 0.1 {
        true => format!("{} ms", three_digits(seconds * 1e3)),
        false => format!("{} s", three_digits(seconds)),
    }
}

/// Returns the times of a test, in the words of the code sample that the tool goes back to.
fn times(measured: &Measured) -> String {
    let requests = measured.evidence.requests;
    let (queued, completed) = (time(measured.queued), time(measured.completed));
    if measured.verdict == Verdict::Synchronous || measured.verdict == Verdict::Cached {
        return format!("{requests} requests issued and completed in {completed}");
    }
    let free = measured.free_share() * 100.0;
    format!("{requests} requests queued in {queued}, completed in {completed} ({free:.0} % free)")
}

/// Returns a sentence about the order of completion.
fn order(measured: &Measured) -> String {
    match measured.out_of_order {
        0 => "Operations completed in the order issued.".to_owned(),
        count => format!(
            "Operations completed out of the order in which they were requested ({count} of {}).",
            measured.evidence.requests
        ),
    }
}

fn html_page(reports: &[Report]) -> String {
    let mut page = String::new();
    // Writing to a String does not fail.
    let _ = write!(
        page,
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">\n\
         <title>Is disk I/O asynchronous here?</title>\n<style>\n{}{CSS}</style>\n</head>\n<body>\n<main>\n",
        pipewright_bench::page_style(),
    );
    for report in reports {
        add(&mut page, report);
    }
    page.push_str("</main>\n</body>\n</html>\n");
    page
}

fn add(page: &mut String, report: &Report) {
    let filesystem = report.filesystem.as_deref().unwrap_or("unknown filesystem");
    let backend = report.backend.map_or("none", |backend| backend.name());
    let _ = write!(
        page,
        "<header>\n<p class=\"what\">pipewright <b>disk</b> · {}</p>\n{}\
         <p class=\"machine\">{}, backend {backend}, {} requests of {} bytes in each test</p>\n\
         <p class=\"machine\">{HOW_TO_READ}</p>\n",
        escape(&report.path.to_string_lossy()),
        headings(report),
        escape(filesystem),
        report.options.requests,
        report.options.block_bytes,
    );
    let unavailable = report.unavailable_backends.iter().map(ToString::to_string);
    let unjudged = report.unjudged.map(|unjudged| format!("Not judged: {unjudged}"));
    let notes: Vec<String> = unavailable.chain(unjudged).collect();
    if !notes.is_empty() {
        page.push_str("<ul class=\"notes\">\n");
        for note in &notes {
            let _ = writeln!(page, "<li>{}</li>", escape(note));
        }
        page.push_str("</ul>\n");
    }
    page.push_str("</header>\n");
    for test in &report.tests {
        add_test(page, report, test);
    }
    page.push_str("<details><summary>All figures</summary>\n");
    add_table(page, report);
    page.push_str("</details>\n");
}

fn add_test(page: &mut String, report: &Report, test: &TestReport) {
    let name = headline(test.test);
    let name = escape(&name);
    let (class, reason) = match &test.outcome {
        TestOutcome::Measured(measured) => return add_measured(page, report, test.test, measured),
        TestOutcome::NotPossible(reason) => ("machine", reason),
        TestOutcome::Failed(reason) => ("machine mark missed", reason),
    };
    let _ = writeln!(
        page,
        "<section class=\"test\">\n<h2>{name}</h2>\n<p class=\"{class}\">{}</p>\n</section>",
        escape(reason)
    );
}

fn add_measured(page: &mut String, report: &Report, test: Test, measured: &Measured) {
    let verdict = measured.verdict;
    let result = match verdict {
        _ if is_missed(report, test, verdict) => "missed",
        Verdict::Asynchronous | Verdict::Cached => "got",
        _ => "neutral",
    };
    let _ = writeln!(
        page,
        "<section class=\"test {result}\">\n<h2>{} <b class=\"mark {result}\">{verdict}</b></h2>\n\
         <div class=\"columns\">\n<div>",
        escape(&headline(test)),
    );
    draw_times(page, measured);
    draw_classes(page, measured);
    page.push_str("</div>\n<div class=\"why\">\n");
    for finding in &measured.findings {
        add_finding(page, finding);
    }
    page.push_str("</div>\n</div>\n</section>\n");
}

fn add_finding(page: &mut String, finding: &Finding) {
    let _ = writeln!(
        page,
        "<p><b>{}</b><br><small>{}</small></p>\n<p class=\"remedy\">Remedy: {}{}</p>",
        escape(&finding.reason.to_string()),
        escape(&finding.evidence),
        escape(&finding.remedy.to_string()),
        escape(&effect(finding)),
    );
}

const CSS: &str = "\
h1,.what{overflow-wrap:anywhere}
.test{margin:28px 0 0;padding:16px 0 0;border-top:1px solid var(--grid)}
.columns{display:grid;grid-template-columns:3fr 2fr;gap:8px 32px}
.columns>div{min-width:0}
.mark{font-weight:600;color:var(--faint);white-space:nowrap}
.mark.got{color:var(--c2)}
.mark.missed{color:var(--c1)}
.bars{display:grid;grid-template-columns:84px minmax(0,1fr) 76px;gap:6px 10px;align-items:center;
margin:12px 0 4px;font-size:14px}
.bars .num{font-variant-numeric:tabular-nums;text-align:right}
.track{display:flex;height:16px;border-radius:2px;overflow:hidden;background:var(--raised)}
.track i{display:block;min-width:1px}
.track .busy{background:var(--c5)}
.track .done{background:var(--c0)}
.free{color:var(--faint)}
.legend{display:flex;flex-wrap:wrap;gap:2px 14px;margin:4px 0;padding:0;list-style:none;
font-size:13px;color:var(--faint)}
.legend i{display:inline-block;width:10px;height:10px;border-radius:2px;margin-right:5px}
.inline_cached{background:var(--c5)}
.async_device{background:var(--c2)}
.async_page_wait{background:var(--c0)}
.worker{background:var(--c4)}
.pending_but_done{background:var(--c3)}
.inline_blocked{background:repeating-linear-gradient(45deg,var(--faint) 0 3px,var(--grid) 3px 6px)}
.missed .worker{background:var(--c1)}
.missed .inline_blocked{background:repeating-linear-gradient(45deg,var(--c1) 0 3px,var(--grid) 3px 6px)}
.said{font-size:14px;color:var(--faint);margin:2px 0}
.why{margin-top:8px}
.why p{margin:0 0 4px;font-size:14px}
.why .remedy{margin-bottom:12px}
small{color:var(--faint)}
.figures td:last-child,.figures th:last-child{text-align:left}
.figures td:first-child,.figures td:nth-child(6){white-space:normal;min-width:12em}
@media(max-width:640px){.columns{grid-template-columns:1fr}}
";

/// Draws the time in which the requests were queued above that in which they were completed: the caller was busy during
/// the first, and free during the rest of the second. The sentences below say the same.
fn draw_times(page: &mut String, measured: &Measured) {
    let busy = (1.0 - measured.free_share()) * 100.0;
    let said = [times(measured), order(measured)];
    // Writing to a String does not fail.
    let _ = writeln!(
        page,
        "<div class=\"bars\" role=\"img\" aria-label=\"{}\">\n\
         <span>queued</span><span class=\"track\"><i class=\"busy\" style=\"width:{busy:.1}%\"></i></span>\
         <span class=\"num\">{}</span>\n\
         <span>completed</span><span class=\"track\"><i class=\"done\" style=\"width:100%\"></i></span>\
         <span class=\"num\">{}</span>\n</div>",
        escape(&said[0]),
        time(measured.queued),
        time(measured.completed),
    );
    for said in &said {
        let _ = writeln!(page, "<p class=\"said\">{}</p>", escape(said));
    }
}

/// Draws the share of each class. Requests of unknown class are left empty.
fn draw_classes(page: &mut String, measured: &Measured) {
    let requests = measured.evidence.requests.max(1);
    let counts = Class::ALL.iter().map(|class| (class, measured.evidence.count(*class)));
    let counts: Vec<_> = counts.filter(|(_, count)| *count > 0).collect();
    if counts.is_empty() {
        return;
    }
    page.push_str("<div class=\"bars\"><span>classes</span><span class=\"track\">");
    for (class, count) in &counts {
        let share = *count as f64 / requests as f64 * 100.0;
        let _ = write!(page, "<i class=\"{}\" style=\"width:{share:.1}%\"></i>", class.name());
    }
    let _ =
        writeln!(page, "</span><span class=\"num\">{requests}</span></div>\n<ul class=\"legend\">");
    for (class, count) in &counts {
        let _ = writeln!(page, "<li><i class=\"{}\"></i>{count} {class}</li>", class.name());
    }
    page.push_str("</ul>\n");
}

fn add_table(page: &mut String, report: &Report) {
    page.push_str(
        "<div class=\"scroll\" tabindex=\"0\" role=\"group\" aria-label=\"figures\">\
         <table class=\"figures\">\n<thead><tr><th>test</th><th>queued</th>\
         <th>completed</th><th>free</th>\
         <th>out of order</th><th>verdict</th><th>classes</th></tr></thead>\n<tbody>\n",
    );
    for test in &report.tests {
        row(page, test);
    }
    page.push_str("</tbody></table></div>\n");
}

fn row(page: &mut String, test: &TestReport) {
    let name = headline(test.test);
    let name = escape(&name);
    let measured = match &test.outcome {
        TestOutcome::Measured(measured) => measured,
        TestOutcome::NotPossible(reason) | TestOutcome::Failed(reason) => {
            let _ =
                writeln!(page, "<tr><td>{name}</td><td colspan=\"6\">{}</td></tr>", escape(reason));
            return;
        }
    };
    let counts = Class::ALL.iter().filter_map(|class| {
        let count = measured.evidence.count(*class);
        (count > 0).then(|| format!("{count} {class}"))
    });
    let _ = writeln!(
        page,
        "<tr><td>{name}</td><td>{}</td><td>{}</td><td>{:.0} %</td><td>{}</td><td>{}</td><td>{}</td></tr>",
        time(measured.queued),
        time(measured.completed),
        measured.free_share() * 100.0,
        measured.out_of_order,
        measured.verdict,
        escape(&counts.collect::<Vec<_>>().join(", ")),
    );
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::time::Duration;

    use pipewright_disk::BackendKind;
    use pipewright_disk::diagnosis::{
        DiagnoseOptions, Report, Test, TestOutcome, Verdict, diagnose,
    };

    use super::{CSS, escape, headline, html_page, is_missed, lead, list, shown, time};

    #[test]
    fn control_characters_in_a_path_are_escaped() {
        assert_eq!(shown(Path::new("a b/ü")), "a b/ü");
        assert_eq!(shown(Path::new("a\n\u{1b}[31mb\u{9b}")), "a\\n\\u{1b}[31mb\\u{9b}");
    }

    #[test]
    fn names_are_joined_as_in_a_sentence() {
        let names = ["a", "b", "c"].map(str::to_owned);
        assert_eq!(list(&names[..0]), "");
        assert_eq!(list(&names[..1]), "a");
        assert_eq!(list(&names[..2]), "a and b");
        assert_eq!(list(&names), "a, b and c");
    }

    #[test]
    fn markup_in_file_names_is_escaped() {
        assert_eq!(escape("<b>&\"x\""), "&lt;b&gt;&amp;&quot;x&quot;");
    }

    #[test]
    fn times_below_a_tenth_of_a_second_are_in_milliseconds() {
        for (micros, shown) in [
            (12, "0.012 ms"),
            (2_800, "2.80 ms"),
            (99_900, "99.9 ms"),
            (100_000, "0.100 s"),
            (1_234_000, "1.23 s"),
        ] {
            assert_eq!(time(Duration::from_micros(micros)), shown);
        }
    }

    /// The diagnosis of a new file, with that verdict on each asynchronous test.
    fn report(verdict: Verdict) -> Report {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("data");
        std::fs::write(&path, vec![1; 1 << 16]).unwrap();
        let options = DiagnoseOptions { requests: 4, block_bytes: 4096, ..Default::default() };
        let mut report = diagnose(&path, &options).unwrap();
        for test in &mut report.tests {
            if let TestOutcome::Measured(measured) = &mut test.outcome {
                if test.test.asynchronous {
                    measured.verdict = verdict;
                }
            }
        }
        report
    }

    #[test]
    fn headlines_explain_themselves() {
        for (verdict, words) in [
            (Verdict::Asynchronous, "are asynchronous: the program went on while the disk worked"),
            (Verdict::Cached, "did not wait for a disk: the data were in memory"),
            (Verdict::Partly, "only in part: for some, a thread or the program waited"),
            (Verdict::Workers, "are not asynchronous: threads waited for the disk"),
            (Verdict::Blocked, "are not asynchronous: the program waited for the disk"),
        ] {
            let report = report(verdict);
            assert!(lead(&report).contains(words), "{}", lead(&report));
            let page = html_page(std::slice::from_ref(&report));
            let (_, heading) = page.split_once("<h1>").unwrap();
            assert!(heading.split_once("</h1>").unwrap().0.contains(words), "{heading}");
            for test in &report.tests {
                assert!(page.contains(&format!("<h2>{}", headline(test.test))), "{page}");
            }
        }
        let read = |asynchronous| Test {
            asynchronous,
            direct: true,
            work: pipewright_disk::diagnosis::Work::Read,
        };
        assert_eq!(headline(read(true)), "Direct reads, all requested at once");
        assert_eq!(headline(read(false)), "Direct reads, one after the other");
        let sync = Test { work: pipewright_disk::diagnosis::Work::Sync, ..read(true) };
        assert_eq!(headline(sync), "Syncs, all requested at once");
    }

    #[test]
    fn red_is_only_what_was_asked_for_and_not_got() {
        // The rules with red are those of what was missed.
        let red: Vec<&str> = CSS.lines().filter(|line| line.contains("var(--c1)")).collect();
        assert!(red.iter().all(|line| line.contains("missed")) && red.len() == 3, "{red:?}");
        for (verdict, has_missed) in [
            (Verdict::Asynchronous, false),
            (Verdict::Cached, false),
            (Verdict::Unknown, false),
            (Verdict::Partly, true),
            (Verdict::Workers, true),
            (Verdict::Blocked, true),
        ] {
            let mut report = report(verdict);
            for test in &report.tests {
                let TestOutcome::Measured(measured) = &test.outcome else { continue };
                // A synchronous test gets what it asks for: it waits.
                let expected = has_missed && test.test.asynchronous;
                assert_eq!(is_missed(&report, test.test, measured.verdict), expected, "{test}");
            }
            let page = html_page(std::slice::from_ref(&report));
            assert_eq!(page.contains("class=\"test missed\""), has_missed, "{verdict:?}");
            // Whoever asks for threads gets them.
            report.options.backend = BackendKind::Threads;
            let page = html_page(std::slice::from_ref(&report));
            let still = has_missed && verdict != Verdict::Workers;
            assert_eq!(page.contains("class=\"test missed\""), still, "{verdict:?}");
        }
    }
}
