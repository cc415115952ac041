//! Diagnoses as one self-contained HTML page: no network and no script.

use std::fmt::Write as _;

use html_escape::encode_quoted_attribute as escape;
use pipewright_disk::Class;
use pipewright_disk::diagnosis::{Finding, Measured, Report, TestOutcome, TestReport};

use super::text;

pub(super) fn page(reports: &[Report]) -> String {
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
        "<header>\n<p class=\"what\">pipewright <b>disk</b> · {}</p>\n<h1>{}</h1>\n\
         <p class=\"machine\">{}, backend {backend}, {} requests of {} bytes in each test</p>\n",
        escape(&report.path.to_string_lossy()),
        escape(&text::lead(report)),
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
        add_test(page, test);
    }
    page.push_str("<details><summary>All figures</summary>\n");
    add_table(page, report);
    page.push_str("</details>\n");
}

fn add_test(page: &mut String, test: &TestReport) {
    let name = test.test.to_string();
    let name = escape(&name);
    let measured = match &test.outcome {
        TestOutcome::Measured(measured) => measured,
        TestOutcome::NotPossible(reason) | TestOutcome::Failed(reason) => {
            let _ = writeln!(
                page,
                "<section class=\"test\">\n<h2>{name}</h2>\n<p class=\"machine\">{}</p>\n</section>",
                escape(reason)
            );
            return;
        }
    };
    let verdict = measured.verdict;
    let _ = writeln!(
        page,
        "<section class=\"test\">\n<h2>{name} <b class=\"verdict-mark {}\">{verdict}</b></h2>\n\
         <div class=\"columns\">\n<div>",
        verdict.name(),
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
        escape(&text::effect(finding)),
    );
}

const CSS: &str = "\
h1,.what{overflow-wrap:anywhere}
.test{margin:28px 0 0;padding:16px 0 0;border-top:1px solid var(--grid)}
.columns{display:grid;grid-template-columns:3fr 2fr;gap:8px 32px}
.columns>div{min-width:0}
.verdict-mark{font-weight:600;color:var(--faint);white-space:nowrap}
.asynchronous,.cached{color:var(--c2)}
.partly,.workers,.blocked{color:var(--c1)}
.bars{display:grid;grid-template-columns:max-content 1fr max-content;gap:6px 10px;align-items:center;
margin:12px 0 4px;font-size:14px}
.bars .num{font-variant-numeric:tabular-nums;text-align:right}
.track{display:flex;height:16px;border-radius:2px;overflow:hidden;background:var(--raised)}
.track i{display:block;min-width:1px}
.track .busy{background:var(--c1)}
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
.inline_blocked{background:var(--c1)}
.said{font-size:14px;color:var(--faint);margin:2px 0}
.why p{margin:0 0 4px;font-size:14px}
.why .remedy{margin-bottom:12px}
small{color:var(--faint)}
.figures td:last-child,.figures th:last-child{text-align:left}
@media(max-width:640px){.columns{grid-template-columns:1fr}}
";

/// Draws the time in which the requests were queued above that in which they were completed: the caller was busy during
/// the first, and free during the rest of the second. The sentences below say the same.
fn draw_times(page: &mut String, measured: &Measured) {
    let (queued, completed) = (measured.queued.as_secs_f64(), measured.completed.as_secs_f64());
    let busy = (1.0 - measured.free_share()) * 100.0;
    let said = [text::times(measured), text::order(measured)];
    // Writing to a String does not fail.
    let _ = writeln!(
        page,
        "<div class=\"bars\" role=\"img\" aria-label=\"{}\">\n\
         <span>queued</span><span class=\"track\"><i class=\"busy\" style=\"width:{busy:.1}%\"></i></span>\
         <span class=\"num\">{queued:.4} s</span>\n\
         <span>completed</span><span class=\"track\"><i class=\"done\" style=\"width:100%\"></i></span>\
         <span class=\"num\">{completed:.4} s</span>\n</div>",
        escape(&said[0]),
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
        "<div class=\"scroll\"><table class=\"figures\">\n<thead><tr><th>test</th><th>queued</th>\
         <th>completed</th><th>free</th>\
         <th>out of order</th><th>verdict</th><th>classes</th></tr></thead>\n<tbody>\n",
    );
    for test in &report.tests {
        row(page, test);
    }
    page.push_str("</tbody></table></div>\n");
}

fn row(page: &mut String, test: &TestReport) {
    let name = test.test.to_string();
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
        "<tr><td>{name}</td><td>{:.4} s</td><td>{:.4} s</td><td>{:.0} %</td><td>{}</td><td>{}</td><td>{}</td></tr>",
        measured.queued.as_secs_f64(),
        measured.completed.as_secs_f64(),
        measured.free_share() * 100.0,
        measured.out_of_order,
        measured.verdict,
        escape(&counts.collect::<Vec<_>>().join(", ")),
    );
}

#[cfg(test)]
mod tests {
    use super::escape;

    #[test]
    fn markup_in_file_names_is_escaped() {
        assert_eq!(escape("<b>&\"x\""), "&lt;b&gt;&amp;&quot;x&quot;");
    }
}
