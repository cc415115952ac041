//! The timeline: jobs at one time, and a lane for each slot.
//!
//! The pictures are stretched to the width of the page and have no text, which would be stretched too. The text is
//! beside them.

use std::fmt::Write as _;
use std::time::Duration;

use super::html::{class_of, escape};
use super::kept::KeptAttempt;
use super::model::PageModel;
use crate::watch::text::{duration, whole_duration};

/// Slots that have a lane.
const MOST_LANES: u32 = 64;

/// The width of a picture, in its own units.
const WIDTH: f64 = 1000.0;

/// The narrowest mark of an attempt.
const LEAST_WIDTH: f64 = 1.2;

/// The height of the picture of jobs at one time.
const LEVEL_HEIGHT: f64 = 60.0;

/// Writes both pictures with their axis.
pub(super) fn write(page: &mut String, model: &PageModel) {
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
    let interval = model.busy.interval_seconds;
    for (from, level) in model.busy.levels() {
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
    page.push_str("</p>\n");
    if model.kept.others > 0 {
        let _ = writeln!(
            page,
            "<p class=\"note\">The lanes show {} of {} attempts, the failed and the longest ones. The area above shows \
             all.</p>",
            attempts.len(),
            model.histogram.total(),
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
