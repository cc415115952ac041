//! All figures of a diagnosis as a table, which scrolls on a narrow screen.

use std::fmt::Write as _;

use pipewright_disk::Class;
use pipewright_disk::diagnosis::{Report, TestOutcome, TestReport};

use super::escape;

/// Adds the table.
pub(super) fn add(page: &mut String, report: &Report) {
    page.push_str(
        "<div class=\"scroll\"><table class=\"figures\">\n<thead><tr><th>test</th><th>queued</th><th>completed</th><th>free</th>\
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
