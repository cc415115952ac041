//! The page as HTML.

use std::borrow::Cow;
use std::fmt::Write as _;

use jiff::Timestamp;

use super::kept::KeptAttempt;
use super::model::{Failure, PageModel};
use super::timeline::seconds;
use super::{MOST_FAILURES, durations, timeline};
use crate::vocabulary::JobOutcome;
use crate::watch::text::{duration, line};

const STYLE: &str = include_str!("page.css");
const SCRIPT: &str = include_str!("page.js");

/// Columns of the command line in the heading.
const MOST_HEADING_COLUMNS: usize = 200;

/// Failures whose output is shown at once.
const MOST_OPEN: usize = 5;

/// Failures that are listed at once.
const MOST_FIRST: usize = 10;

pub(super) fn page(model: &PageModel) -> String {
    let verdict = verdict(model);
    let mut page = String::new();
    // Writing to a String does not fail. The policy allows no request at all, whatever a job printed.
    let _ = write!(
        page,
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'; \
         script-src 'unsafe-inline'\">\n\
         <title>{}</title>\n<style>\n{STYLE}</style>\n</head>\n<body>\n<main>\n",
        escape(&verdict),
    );
    head(&mut page, model, &verdict);
    failures(&mut page, model);
    if model.histogram.total() > 0 {
        page.push_str("<section>\n<h2>Slots over time</h2>\n");
        timeline::write(&mut page, model);
        page.push_str("</section>\n");
        durations::write(&mut page, model);
        table(&mut page, model);
    }
    foot(&mut page, model);
    page
}

fn verdict(model: &PageModel) -> String {
    let always = [JobOutcome::Succeeded, JobOutcome::Failed];
    let mut order = JobOutcome::ALL;
    order.rotate_right(1);
    let counts: Vec<String> = order
        .into_iter()
        .map(|outcome| (outcome, model.counts.of(outcome)))
        .filter(|(outcome, count)| *count > 0 || always.contains(outcome))
        .map(|(outcome, count)| format!("{count} {}", outcome.word()))
        .collect();
    format!("{} in {}", counts.join(", "), duration(seconds(model.end_seconds)))
}

fn head(page: &mut String, model: &PageModel, verdict: &str) {
    let _ = write!(
        page,
        "<header>\n<p class=\"what\">pipewright batch</p>\n<h1>{}</h1>\n<p class=\"command\"><code>{}</code></p>\n",
        escape(verdict),
        escape(&line(&model.facts.command, MOST_HEADING_COLUMNS)),
    );
    let mut facts = vec![date(model)];
    facts.push(format!(
        "{} {}",
        model.facts.slots,
        if model.facts.slots == 1 { "slot" } else { "slots" }
    ));
    if let Some(log) = &model.facts.log {
        facts.push(format!("log {}", line(log, MOST_HEADING_COLUMNS)));
    }
    if model.resumed > 0 {
        facts.push(format!("{} more jobs ended in an earlier run", model.resumed));
    }
    let _ = writeln!(page, "<p class=\"facts\">{}</p>", escape(&facts.join(" · ")));
    let mut notes = model.notes.clone();
    notes.extend(model.halted.as_ref().map(|cause| format!("ended early: {cause}")));
    if !notes.is_empty() {
        page.push_str("<ul class=\"notes\">\n");
        for note in &notes {
            let _ = writeln!(page, "<li>{}</li>", escape(note));
        }
        page.push_str("</ul>\n");
    }
    page.push_str("</header>\n");
}

/// Returns the date of the start: `2026-11-22 05:30 UTC`.
fn date(model: &PageModel) -> String {
    // A clock that is far off is no reason to have no page.
    let started = Timestamp::try_from(model.facts.started).unwrap_or_default();
    started.strftime("%Y-%m-%d %H:%M UTC").to_string()
}

fn failures(page: &mut String, model: &PageModel) {
    let all: u64 =
        [JobOutcome::Failed, JobOutcome::Unknown, JobOutcome::Refused, JobOutcome::Stopped]
            .map(|outcome| model.counts.of(outcome))
            .iter()
            .sum();
    if model.failures.is_empty() {
        return;
    }
    page.push_str("<section>\n<h2>Not ok</h2>\n");
    // Few are open, so that all can be seen at a glance. Many must not hide the rest of the page.
    let open = if model.failures.len() <= MOST_OPEN { " open" } else { "" };
    let (first, more) =
        (model.failures.values().take(MOST_FIRST), model.failures.len().saturating_sub(MOST_FIRST));
    first.for_each(|failure| one_failure(page, failure, open));
    if more > 0 {
        let _ = writeln!(page, "<details class=\"more\"><summary>{more} more</summary>");
        model.failures.values().skip(MOST_FIRST).for_each(|failure| one_failure(page, failure, ""));
        page.push_str("</details>\n");
    }
    let shown = model.failures.len() as u64;
    if all > shown {
        let _ = writeln!(
            page,
            "<p class=\"note\">{shown} of {all}: the page has at most {MOST_FAILURES}.</p>"
        );
    }
    page.push_str("</section>\n");
}

fn one_failure(page: &mut String, failure: &Failure, open: &str) {
    let mut words = vec![failure.state.map_or("not over", JobOutcome::word).to_owned()];
    words.extend(failure.end.clone());
    words.extend(failure.elapsed_seconds.map(|time| duration(seconds(time))));
    if failure.attempts > 1 {
        words.push(format!("{} attempts", failure.attempts));
    }
    let command = failure.command.as_deref().unwrap_or("");
    let class = match failure.state {
        Some(JobOutcome::Stopped) | None => "gone",
        Some(JobOutcome::Unknown) => "lost",
        Some(_) => "bad",
    };
    let _ = writeln!(
        page,
        "<details class=\"failure\"{open}><summary><b class=\"{class}\">job {}</b> <span>{}</span> \
         <code>{}</code></summary>",
        failure.job,
        escape(&words.join(" · ")),
        escape(command),
    );
    if let Some(reason) = &failure.reason {
        let _ = writeln!(page, "<p>{}</p>", escape(reason));
    }
    match failure.last_lines.as_str() {
        "" => page.push_str("<p class=\"note\">No output is known.</p>\n"),
        lines => {
            let _ = writeln!(page, "<pre>{}</pre>", escape(lines));
        }
    }
    page.push_str("</details>\n");
}

fn table(page: &mut String, model: &PageModel) {
    let attempts = model.kept.sorted();
    page.push_str("<section>\n<h2>Attempts</h2>\n");
    if model.kept.others > 0 {
        let _ = writeln!(
            page,
            "<p class=\"note\">The table has {} of {} attempts: the failed and the longest ones.</p>",
            attempts.len(),
            model.histogram.total(),
        );
    }
    page.push_str(
        "<form class=\"tools\" hidden><input type=\"search\" placeholder=\"Filter\" aria-label=\"Filter\">\
         <label><input type=\"checkbox\"> not ok only</label><output></output></form>\n\
         <div class=\"scroll\"><table>\n<thead><tr>",
    );
    let columns = [
        ("job", ""),
        ("attempt", "opt"),
        ("slot", "opt"),
        ("start", "opt"),
        ("time", ""),
        ("end", "text"),
        ("command", "text"),
    ];
    for (column, class) in columns {
        let _ = write!(page, "<th scope=\"col\" class=\"{class}\">{column}</th>");
    }
    page.push_str("</tr></thead>\n<tbody>\n");
    for attempt in attempts {
        row(page, attempt);
    }
    page.push_str("</tbody></table></div>\n</section>\n");
}

fn row(page: &mut String, attempt: &KeptAttempt) {
    let KeptAttempt { job, attempt: number, slot, .. } = attempt;
    let _ = writeln!(
        page,
        "<tr id=\"a{job}-{number}\"><td>{job}</td><td class=\"opt\">{number}</td><td class=\"opt\">{slot}</td>\
         <td class=\"opt\" data-v=\"{:.6}\">{}</td><td data-v=\"{:.6}\">{}</td>\
         <td class=\"text end {}\" title=\"{end}\">{end}</td>\
         <td class=\"text\" title=\"{command}\"><code>{command}</code></td></tr>",
        attempt.start_seconds,
        duration(seconds(attempt.start_seconds)),
        attempt.elapsed_seconds,
        duration(seconds(attempt.elapsed_seconds)),
        class_of(attempt.outcome, attempt.is_success),
        end = escape(&attempt.end),
        command = escape(&attempt.command),
    );
}

fn foot(page: &mut String, model: &PageModel) {
    // "<" would start markup in a script element. In JSON the escape means the same.
    let json = model.json().replace('<', "\\u003c");
    let _ = write!(
        page,
        "<footer>\n<p><a id=\"download\" download=\"pipewright-batch.json\" href=\"#data\">Download the data (JSON)</a>\
         </p>\n</footer>\n</main>\n<script type=\"application/json\" id=\"data\">{json}</script>\n\
         <script>\n{SCRIPT}</script>\n\
         </body>\n</html>\n",
    );
}

/// Returns the class of an outcome, which has its color.
pub(super) fn class_of(outcome: &str, is_success: bool) -> &'static str {
    match outcome {
        _ if is_success => "good",
        "timed_out" | "idle_timed_out" => "late",
        "not_started" | "lost" => "lost",
        "cancelled" => "gone",
        _ => "bad",
    }
}

/// Escapes text for HTML, also inside quotes. Controls are escaped before.
pub(super) fn escape(text: &str) -> Cow<'_, str> {
    html_escape::encode_quoted_attribute(text)
}
