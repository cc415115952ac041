//! The page as HTML, with its charts.

use std::borrow::Cow;
use std::fmt::Write as _;
use std::time::Duration;

use jiff::Timestamp;

use super::failures::{Failure, MOST_REASONS, Reason};
use super::{Ahead, Interval, KeptAttempt, MOST_FAILURES, PageModel, Running};
use crate::vocabulary::JobOutcome;
use crate::watch::events::unix_seconds;
use crate::watch::text::{duration, line, whole_duration};

const STYLE: &str = include_str!("page.css");
const SCRIPT: &str = include_str!("page.js");

/// Columns of the command line in the heading.
const MOST_HEADING_COLUMNS: usize = 200;

/// Failures whose output is shown at once.
const MOST_OPEN: usize = 5;

/// Reasons that are listed at once.
const MOST_FIRST: usize = 10;

/// Running jobs that are listed: those that have been running longest.
const MOST_RUNNING: usize = 10;

/// Seconds until a page of a batch that runs is loaded again.
const RELOAD_SECONDS: u32 = 2;

pub(super) fn page(model: &PageModel) -> String {
    let verdict = verdict(model);
    let mut page = String::new();
    let (noscript, data) = match model.runs && model.is_live {
        true => (
            format!(
                "<noscript><meta http-equiv=\"refresh\" content=\"{RELOAD_SECONDS}\"></noscript>\n"
            ),
            format!(" data-reload=\"{RELOAD_SECONDS}\""),
        ),
        false => (String::new(), String::new()),
    };
    // Writing to a String does not fail. The policy allows no request at all, whatever a job printed.
    let _ = write!(
        page,
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'; \
         script-src 'unsafe-inline'\">\n\
         {noscript}<title>{}</title>\n<style>\n{STYLE}</style>\n</head>\n<body{data}>\n<main>\n",
        escape(&verdict),
    );
    let median = model.median();
    head(&mut page, model, &verdict);
    running(&mut page, model);
    failures(&mut page, model);
    if model.histogram.total > 0 || !model.running.is_empty() {
        page.push_str("<section>\n<h2>Slots over time</h2>\n");
        write_timeline(&mut page, model);
        page.push_str("</section>\n");
    }
    if model.histogram.total > 0 {
        write_durations(&mut page, model, median);
        table(&mut page, model);
    }
    foot(&mut page, model, median);
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
    let so_far = if model.runs { "Running: " } else { "" };
    format!("{so_far}{} in {}", counts.join(", "), duration(seconds(model.end_seconds)))
}

/// Returns what is ahead of a batch, for people.
fn words_ahead(model: &PageModel, ahead: Ahead) -> String {
    let mut words = vec![format!("{} running", ahead.running)];
    words.push(match ahead.left {
        Some(left) => format!("{left} left"),
        None => "more are read".to_owned(),
    });
    if let Some(left) = ahead.seconds {
        let end = clock(model, model.end_seconds + left);
        words.push(format!("about {} until the end, at {end}", whole_duration(seconds(left))));
    }
    words.push(format!("as of {}", clock(model, model.end_seconds)));
    words.join(" · ")
}

/// Returns the time of day that many seconds after the start.
fn clock(model: &PageModel, after_seconds: f64) -> String {
    let time = model.facts.started.checked_add(seconds(after_seconds));
    let time = time.and_then(|time| Timestamp::try_from(time).ok()).unwrap_or_default();
    time.strftime("%H:%M:%S UTC").to_string()
}

/// Writes the jobs that have been running longest.
fn running(page: &mut String, model: &PageModel) {
    let mut all: Vec<_> = model.running.iter().collect();
    if all.is_empty() || !model.runs {
        return;
    }
    all.sort_by(|(key, one), (other_key, other)| {
        one.start_seconds.total_cmp(&other.start_seconds).then(key.job.cmp(&other_key.job))
    });
    page.push_str("<section>\n<h2>Running</h2>\n<ul class=\"running\">\n");
    for (key, Running { start_seconds, command, .. }) in all.iter().take(MOST_RUNNING) {
        let time = whole_duration(seconds(model.end_seconds - start_seconds));
        let _ = writeln!(
            page,
            "<li><b>job {}</b> <span data-start=\"{:.3}\">{time}</span> <code>{}</code></li>",
            key.job,
            unix_seconds(model.facts.started) + start_seconds,
            escape(command),
        );
    }
    page.push_str("</ul>\n");
    if all.len() > MOST_RUNNING {
        let _ = writeln!(page, "<p class=\"note\">{MOST_RUNNING} of {}.</p>", all.len());
    }
    page.push_str("</section>\n");
}

fn head(page: &mut String, model: &PageModel, verdict: &str) {
    let _ = write!(
        page,
        "<header>\n<p class=\"what\">pipewright batch</p>\n<h1>{}</h1>\n<p class=\"command\"><code>{}</code></p>\n",
        escape(verdict),
        escape(&line(&model.facts.command, MOST_HEADING_COLUMNS)),
    );
    if let Some(ahead) = model.ahead() {
        let words = words_ahead(model, ahead);
        let _ = writeln!(page, "<p class=\"ahead\">{}</p>", escape(&words));
    }
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
    notes.extend(words_left_out(model.other_notes, "more messages are left out"));
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

/// Writes the jobs that are not ok, by reason: the one of most jobs first, and skipped ones last.
fn failures(page: &mut String, model: &PageModel) {
    let outcomes =
        [JobOutcome::Failed, JobOutcome::Unknown, JobOutcome::Refused, JobOutcome::Stopped];
    let all: u64 = outcomes.map(|outcome| model.counts.of(outcome)).iter().sum();
    let kept: Vec<&Failure> = model.failures.kept().collect();
    if kept.is_empty() {
        return;
    }
    page.push_str("<section>\n<h2>Not ok</h2>\n");
    // Few are open, so that all can be seen at a glance. Many must not hide the rest of the page.
    let open = if kept.len() <= MOST_OPEN { " open" } else { "" };
    let reasons = &model.failures.reasons;
    let mut groups: Vec<Group<'_>> =
        reasons.iter().map(|reason| Group { reason: Some(reason), kept: Vec::new() }).collect();
    // Those that are tried again, and those of too many reasons, stand alone.
    let mut alone = Vec::new();
    for failure in kept.iter().copied() {
        match failure.place.and_then(|place| groups.get_mut(place)) {
            Some(group) => group.kept.push(failure),
            None => alone.push(Group { reason: None, kept: vec![failure] }),
        }
    }
    groups.retain(|group| !group.kept.is_empty());
    groups.extend(alone);
    groups.sort_by_key(Group::order);
    for (index, group) in groups.iter().enumerate() {
        if index == MOST_FIRST {
            let more = groups.len() - MOST_FIRST;
            let _ = writeln!(page, "<details class=\"more\"><summary>{more} more</summary>");
        }
        one_group(page, group, open);
    }
    if groups.len() > MOST_FIRST {
        page.push_str("</details>\n");
    }
    let others = model.failures.of_other_reasons;
    let words = format!("have other reasons: the page tells {MOST_REASONS} apart");
    if let Some(words) = words_left_out(others, &words) {
        let _ = writeln!(page, "<p class=\"note\">{words}.</p>");
    }
    let is_skipped = |failure: &&&Failure| failure.state == Some(JobOutcome::Skipped);
    let shown = kept.iter().filter(|failure| !is_skipped(failure)).count() as u64;
    if all > shown {
        let _ = writeln!(
            page,
            "<p class=\"note\">{shown} of {all}: the page has at most {MOST_FAILURES}.</p>"
        );
    }
    page.push_str("</section>\n");
}

/// Returns a sentence about what is left out, if something is.
fn words_left_out(count: u64, words: &str) -> Option<String> {
    (count > 0).then(|| format!("{count} {words}"))
}

/// Jobs with one reason.
struct Group<'a> {
    reason: Option<&'a Reason>,
    kept: Vec<&'a Failure>,
}

impl Group<'_> {
    fn order(&self) -> (bool, std::cmp::Reverse<u64>, u64) {
        let is_skipped = self.reason.is_some_and(|it| it.state == JobOutcome::Skipped);
        let first = self.kept.first().map_or(0, |failure| failure.job);
        (is_skipped, std::cmp::Reverse(self.reason.map_or(1, |it| it.jobs)), first)
    }
}

fn one_group(page: &mut String, group: &Group<'_>, open: &str) {
    let Some(reason) = group.reason.filter(|reason| reason.jobs > 1) else {
        return group.kept.iter().for_each(|failure| one_failure(page, failure, open));
    };
    let _ = writeln!(
        page,
        "<details class=\"group\" id=\"g{}\"{open}><summary><b class=\"{}\">{} jobs</b> <span>{}</span> \
         <code>{}</code></summary>",
        reason.first_job,
        class_of_job(Some(reason.state)),
        reason.jobs,
        escape(&words_of(reason.state.word(), &reason.reason)),
        escape(&reason.last_line),
    );
    group.kept.iter().for_each(|failure| one_failure(page, failure, open));
    let listed = group.kept.len() as u64;
    if listed < reason.jobs {
        let _ = writeln!(page, "<p class=\"note\">{listed} of {}.</p>", reason.jobs);
    }
    page.push_str("</details>\n");
}

fn words_of(state: &str, reason: &str) -> String {
    if reason.is_empty() { state.to_owned() } else { format!("{state} · {reason}") }
}

fn class_of_job(state: Option<JobOutcome>) -> &'static str {
    match state {
        Some(JobOutcome::Stopped | JobOutcome::Skipped) | None => "gone",
        Some(JobOutcome::Unknown) => "lost",
        Some(_) => "bad",
    }
}

fn one_failure(page: &mut String, failure: &Failure, open: &str) {
    let mut words = vec![failure.state.map_or("not over", JobOutcome::word).to_owned()];
    words.extend(failure.end.clone());
    words.extend(failure.elapsed_seconds.map(|time| duration(seconds(time))));
    if failure.attempts > 1 {
        words.push(format!("{} attempts", failure.attempts));
    }
    let command = escape(failure.command.as_deref().unwrap_or(""));
    let _ = writeln!(
        page,
        "<details class=\"failure\" id=\"f{}\"{open}><summary><b class=\"{}\">job {}</b> <span>{}</span> \
         <code>{command}</code></summary>",
        failure.job,
        class_of_job(failure.state),
        failure.job,
        escape(&words.join(" · ")),
    );
    if !command.is_empty() {
        let _ = writeln!(page, "<p class=\"whole\"><code>{command}</code></p>");
    }
    if let Some(reason) = &failure.reason {
        let _ = writeln!(page, "<p>{}</p>", escape(reason));
    }
    match failure.last_lines.as_str() {
        // It has not run.
        "" if failure.attempts == 0 => {}
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
            model.histogram.total,
        );
    }
    page.push_str(
        "<form class=\"tools\" hidden><input type=\"search\" placeholder=\"Filter\" aria-label=\"Filter\">\
         <label><input type=\"checkbox\"> not ok only</label><output></output></form>\n\
         <div class=\"scroll\" tabindex=\"0\" role=\"group\" aria-label=\"attempts\"><table>\n<thead><tr>",
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

fn foot(page: &mut String, model: &PageModel, median: Option<f64>) {
    // "<" would start markup in a script element. In JSON the escape means the same.
    let json = model.json(median).replace('<', "\\u003c");
    let _ = write!(
        page,
        "<footer>\n<p><a id=\"download\" download=\"pipewright-batch.json\" href=\"#data\">Download the data (JSON)</a>\
         </p>\n</footer>\n</main>\n<script type=\"application/json\" id=\"data\">{json}</script>\n\
         <script>\n{SCRIPT}</script>\n\
         </body>\n</html>\n",
    );
}

/// The word for an attempt that has no outcome yet.
const RUNNING: &str = "running";

/// Returns the class of an outcome, which has its color.
fn class_of(outcome: &str, is_success: bool) -> &'static str {
    match outcome {
        _ if is_success => "good",
        "timed_out" | "idle_timed_out" => "late",
        "not_started" | "lost" => "lost",
        "cancelled" => "gone",
        RUNNING => "now",
        _ => "bad",
    }
}

/// Escapes text for HTML, also inside quotes. Controls are escaped before.
pub(super) fn escape(text: &str) -> Cow<'_, str> {
    html_escape::encode_quoted_attribute(text)
}

// The timeline: jobs at one time, and a lane for each slot.
//
// The pictures are stretched to the width of the page and have no text, which would be stretched too. The text is
// beside them.

/// Slots that have a lane.
const MOST_LANES: u32 = 64;

/// The width of a picture, in its own units.
const WIDTH: f64 = 1000.0;

/// The narrowest mark of an attempt.
const LEAST_WIDTH: f64 = 1.2;

/// The height of the picture of jobs at one time.
const LEVEL_HEIGHT: f64 = 60.0;

/// Writes both pictures with their axis.
fn write_timeline(page: &mut String, model: &PageModel) {
    let seconds = model.end_seconds.max(1e-3);
    let x = |at: f64| (at / seconds * WIDTH).clamp(0.0, WIDTH);
    page.push_str("<div class=\"time\">\n");
    levels(page, model, &x);
    lanes(page, model, &x);
    axis(page, seconds);
    page.push_str("</div>\n");
    legend(page, model);
}

fn levels(page: &mut String, model: &PageModel, x: &dyn Fn(f64) -> f64) {
    let slots = f64::from(model.facts.slots.max(1));
    let y = |level: f64| LEVEL_HEIGHT * (1.0 - (level / slots).clamp(0.0, 1.0));
    let mut path = format!("M0 {LEVEL_HEIGHT}");

    // Those that run have been busy until now.
    let mut busy = model.busy.clone();
    for Running { start_seconds, .. } in model.running.values().filter(|_| model.runs) {
        busy.add(*start_seconds, model.end_seconds - start_seconds);
    }
    let interval = busy.interval_seconds;
    for (from, level) in busy.levels() {
        // Writing to a String does not fail.
        let _ = write!(path, "L{:.1} {:.1}H{:.1}", x(from), y(level), x(from + interval));
    }
    let _ = write!(path, "V{LEVEL_HEIGHT}Z");
    let _ = writeln!(
        page,
        "<div class=\"levels\"><span>{slots} at once</span><span>0</span></div>\n\
         <svg class=\"level\" viewBox=\"0 0 {WIDTH} {LEVEL_HEIGHT}\" preserveAspectRatio=\"none\" role=\"img\" \
         aria-label=\"Jobs at one time\"><path d=\"{path}\"/></svg>"
    );
}

fn lanes(page: &mut String, model: &PageModel, x: &dyn Fn(f64) -> f64) {
    let shown = model.facts.slots.clamp(1, MOST_LANES);
    let height = if shown > 16 { 10.0 } else { 18.0 };
    page.push_str("<div class=\"names\">");
    for slot in 1..=shown {
        // Low lanes have no room for a name each.
        let name = if shown <= 16 || slot == 1 || slot % 8 == 0 {
            slot.to_string()
        } else {
            String::new()
        };
        let _ = write!(page, "<span style=\"height:{height}px\">{name}</span>");
    }
    let whole = height * f64::from(shown);
    let _ = writeln!(
        page,
        "</div>\n<svg class=\"lanes\" style=\"height:{whole}px\" viewBox=\"0 0 {WIDTH} {whole}\" \
         preserveAspectRatio=\"none\" role=\"img\" aria-label=\"Attempts by slot and time\">"
    );
    for lane in 1..shown {
        let y = height * f64::from(lane);
        let _ = writeln!(page, "<path class=\"line\" d=\"M0 {y}H{WIDTH}\"/>");
    }
    // Failed attempts are drawn last, above the others.
    let mut attempts = model.kept.sorted();
    attempts.reverse();
    for attempt in attempts.iter().filter(|it| (1..=shown).contains(&it.slot)) {
        mark(page, attempt, x, height);
    }
    let runs = model.running.iter().filter(|(_, it)| model.runs && (1..=shown).contains(&it.slot));
    for (key, Running { slot, start_seconds, command }) in runs {
        let attempt = KeptAttempt {
            job: key.job,
            attempt: key.attempt,
            slot: *slot,
            outcome: RUNNING,
            end: RUNNING.to_owned(),
            is_success: false,
            start_seconds: *start_seconds,
            elapsed_seconds: (model.end_seconds - start_seconds).max(0.0),
            command: command.clone(),
        };
        mark(page, &attempt, x, height);
    }
    page.push_str("</svg>\n");
}

fn mark(page: &mut String, attempt: &KeptAttempt, x: &dyn Fn(f64) -> f64, height: f64) {
    const GAP: f64 = 2.0;
    let KeptAttempt { job, attempt: number, end, command, .. } = attempt;
    let width = (x(attempt.start_seconds + attempt.elapsed_seconds) - x(attempt.start_seconds))
        .max(LEAST_WIDTH);
    let left = x(attempt.start_seconds).min(WIDTH - width);
    let top = height * f64::from(attempt.slot - 1) + GAP / 2.0;
    let time = duration(seconds(attempt.elapsed_seconds));
    let _ = writeln!(
        page,
        "<rect class=\"{}\" data-row=\"a{job}-{number}\" x=\"{left:.2}\" y=\"{top}\" width=\"{width:.2}\" \
         height=\"{}\"><title>job {job}: {}, {time}\n{}</title></rect>",
        class_of(attempt.outcome, attempt.is_success),
        height - GAP,
        escape(end),
        escape(command),
    );
}

/// Returns a duration for a number of seconds that is one.
pub(super) fn seconds(seconds: f64) -> Duration {
    Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX)
}

fn axis(page: &mut String, whole: f64) {
    let step = step(whole);
    page.push_str("<div class=\"axis\">");
    for tick in 0..=10 {
        let at = step * f64::from(tick);
        if at > whole * 1.0001 {
            break;
        }
        // The last label must not leave the page.
        let class = if at > whole * 0.93 { " class=\"last\"" } else { "" };
        let label = if at == 0.0 { "0".to_owned() } else { label(at) };
        let _ =
            write!(page, "<span{class} style=\"left:{:.2}%\">{label}</span>", at / whole * 100.0);
    }
    page.push_str("</div>\n");
}

fn label(seconds: f64) -> String {
    match seconds {
        s if s < 1.0 => format!("{:.0} ms", s * 1e3),
        s if s < 60.0 => format!("{s:.0} s"),
        s if s < 3600.0 => format!("{:.0} min", s / 60.0),
        s if s < 86_400.0 => format!("{:.0} h", s / 3600.0),
        s => whole_duration(self::seconds(s)),
    }
}

/// Returns the distance of the ticks: a round time, of which 4 or fewer fit.
fn step(whole: f64) -> f64 {
    const ROUND: [f64; 31] = [
        0.001,
        0.002,
        0.005,
        0.01,
        0.02,
        0.05,
        0.1,
        0.2,
        0.5,
        1.0,
        2.0,
        5.0,
        10.0,
        20.0,
        30.0,
        60.0,
        120.0,
        300.0,
        600.0,
        1200.0,
        1800.0,
        3600.0,
        7200.0,
        10_800.0,
        21_600.0,
        43_200.0,
        86_400.0,
        172_800.0,
        432_000.0,
        864_000.0,
        8_640_000.0,
    ];
    ROUND.into_iter().find(|step| whole / step <= 4.5).unwrap_or(whole)
}

fn legend(page: &mut String, model: &PageModel) {
    const WORDS: [(&str, &str); 5] = [
        ("good", "succeeded"),
        ("bad", "failed"),
        ("late", "timed out"),
        ("lost", "lost or not started"),
        ("gone", "stopped"),
    ];
    let attempts = model.kept.sorted();
    page.push_str("<p class=\"legend\">");
    for (class, word) in WORDS {
        if attempts.iter().any(|it| class_of(it.outcome, it.is_success) == class) {
            let _ = write!(page, "<span class=\"{class}\">{word}</span>");
        }
    }
    if model.runs && !model.running.is_empty() {
        let _ = write!(page, "<span class=\"now\">{RUNNING}</span>");
    }
    page.push_str("</p>\n");
    if model.kept.others > 0 {
        let _ = writeln!(
            page,
            "<p class=\"note\">The lanes show {} of {} attempts, the failed and the longest ones. The area above shows \
             all.</p>",
            attempts.len(),
            model.histogram.total,
        );
    }
    if model.facts.slots > MOST_LANES {
        let _ = writeln!(
            page,
            "<p class=\"note\">{MOST_LANES} of {} slots have a lane.</p>",
            model.facts.slots
        );
    }
}

// The histogram of durations.

/// Writes the histogram, with its figures.
fn write_durations(page: &mut String, model: &PageModel, median: Option<f64>) {
    let histogram = &model.histogram;
    let Some(median) = median else { return };
    let total = histogram.total;
    let mean = histogram.sum_seconds / total as f64;
    // Writing to a String does not fail.
    let _ = write!(
        page,
        "<section>\n<h2>Durations</h2>\n<p class=\"note\">{total} {}: mean {}, median {}, longest {}, sum {}.</p>\n",
        if total == 1 { "attempt" } else { "attempts" },
        duration(seconds(mean)),
        duration(seconds(median)),
        duration(seconds(histogram.most_seconds)),
        duration(seconds(histogram.sum_seconds)),
    );
    let used = histogram.used();
    let most = used.iter().map(|it| it.count).max().unwrap_or(0).max(1);
    page.push_str("<div class=\"bars\">\n");
    for interval in &used {
        let percent = interval.count as f64 / most as f64 * 100.0;
        // An interval with a single attempt is seen too.
        let height = if interval.count > 0 { percent.max(1.5) } else { 0.0 };
        let count = if interval.count > 0 { interval.count.to_string() } else { String::new() };
        let _ = writeln!(
            page,
            "<div title=\"{}: {}\"><b>{count}</b><i style=\"height:{height:.1}%\"></i><span>{}</span></div>",
            range(interval),
            interval.count,
            bound(interval.from),
        );
    }
    page.push_str("</div>\n</section>\n");
}

fn range(interval: &Interval) -> String {
    match interval.to {
        Some(to) => format!("{} to {}", bound(interval.from), bound(to)),
        None => format!("over {}", bound(interval.from)),
    }
}

fn bound(seconds: f64) -> String {
    match seconds {
        0.0 => "0".to_owned(),
        s if s < 0.9995 => format!("{:.0} ms", s * 1e3),
        s if s < 9_999.0 => format!("{s:.0} s"),
        s => format!("{:.0}k s", s / 1e3),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_round_and_few() {
        for (whole, expected) in
            [(0.001, 0.001), (3.2, 1.0), (47.0, 20.0), (300.0, 120.0), (9000.0, 3600.0)]
        {
            assert_eq!(step(whole), expected, "{whole}");
        }
        let mut page = String::new();
        axis(&mut page, 130.0);
        assert!(
            page.contains("left:0.00%\">0<") && page.contains("left:92.31%\">2 min<"),
            "{page}"
        );
    }
}
