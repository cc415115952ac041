//! Diagnoses as one self-contained HTML page.

use std::fmt::Write as _;

use pipewright_disk::Class;
use pipewright_disk::diagnosis::{Report, TestOutcome, TestReport};

use super::{sentence, text};

const HEAD: &str = "<!doctype html>\n<html lang=\"en\"><meta charset=\"utf-8\">\n\
<meta name=\"viewport\" content=\"width=device-width\">\n\
<title>Is disk I/O asynchronous here?</title>\n<style>\n\
:root { color-scheme: light dark; }\n\
body { font: 15px/1.5 system-ui, sans-serif; max-width: 70em; margin: 2em auto; padding: 0 1em; }\n\
table { border-collapse: collapse; width: 100%; }\n\
th, td { text-align: left; vertical-align: top; padding: .4em .8em; border-bottom: 1px solid #8886; }\n\
td.number { text-align: right; font-variant-numeric: tabular-nums; }\n\
.asynchronous { color: #1a7f37; } .workers, .blocked, .partly { color: #c4432b; }\n\
small { opacity: .8; }\n</style>\n";

/// Returns the page.
pub(super) fn page(reports: &[Report]) -> String {
    let mut page = HEAD.to_owned();
    for report in reports {
        add(&mut page, report);
    }
    page
}

fn add(page: &mut String, report: &Report) {
    let filesystem = report.filesystem.as_deref().unwrap_or("unknown filesystem");
    let backend = report.backend.map_or("none", |backend| backend.name());
    let _ = write!(
        page,
        "<h1>{}</h1>\n<p>{}</p>\n<p><small>{}, backend {backend}, {} requests of {} bytes</small></p>\n",
        escape(&report.path.to_string_lossy()),
        escape(&sentence::lead(report)),
        escape(filesystem),
        report.options.requests,
        report.options.block_bytes,
    );
    for step in &report.unavailable_backends {
        let _ = writeln!(page, "<p>{}</p>", escape(&step.to_string()));
    }
    if let Some(unjudged) = report.unjudged {
        let _ = writeln!(page, "<p>Not judged: {}</p>", escape(&unjudged.to_string()));
    }
    page.push_str(
        "<table>\n<tr><th>test<th>queued s<th>completed s<th>free<th>out of order<th>classes\
         <th>verdict, reasons and remedies</tr>\n",
    );
    for test in &report.tests {
        add_test(page, test);
    }
    page.push_str("</table>\n");
}

fn add_test(page: &mut String, test: &TestReport) {
    let name = escape(&test.test.to_string());
    let measured = match &test.outcome {
        TestOutcome::Measured(measured) => measured,
        TestOutcome::NotPossible(reason) | TestOutcome::Failed(reason) => {
            let _ = writeln!(page, "<tr><td>{name}<td colspan=6>{}</tr>", escape(reason));
            return;
        }
    };
    let counts = Class::ALL.iter().filter_map(|class| {
        let count = measured.evidence.count(*class);
        (count > 0).then(|| format!("{count} {class}"))
    });
    let _ = write!(
        page,
        "<tr><td>{name}<td class=number>{:.4}<td class=number>{:.4}<td class=number>{:.0} %\
         <td class=number>{}<td>{}<td><b class={}>{}</b>",
        measured.queued.as_secs_f64(),
        measured.completed.as_secs_f64(),
        measured.free_share() * 100.0,
        measured.out_of_order,
        escape(&counts.collect::<Vec<_>>().join(", ")),
        measured.verdict.name(),
        measured.verdict,
    );
    for finding in &measured.findings {
        let _ = write!(
            page,
            "<br>{} <small>({})</small><br>Remedy: {}{}",
            escape(&finding.reason.to_string()),
            escape(&finding.evidence),
            escape(&finding.remedy.to_string()),
            escape(&text::effect(finding)),
        );
    }
    page.push_str("</tr>\n");
}

/// Escapes text for HTML.
fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::escape;

    #[test]
    fn markup_in_file_names_is_escaped() {
        assert_eq!(escape("<b>&\"x\""), "&lt;b&gt;&amp;&quot;x&quot;");
    }
}
