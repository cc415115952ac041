//! The histogram of durations.

use std::fmt::Write as _;

use super::histogram::Interval;
use super::model::PageModel;
use super::timeline::seconds;
use crate::watch::text::duration;

/// Writes the histogram, with its figures.
pub(super) fn write(page: &mut String, model: &PageModel) {
    let histogram = &model.histogram;
    let Some(median) = histogram.median() else { return };
    let total = histogram.total();
    let mean = histogram.sum_seconds() / total as f64;
    // Writing to a String does not fail.
    let _ = write!(
        page,
        "<section>\n<h2>Durations</h2>\n<p class=\"note\">{total} {}: mean {}, median {}, longest {}, sum {}.</p>\n",
        if total == 1 { "attempt" } else { "attempts" },
        duration(seconds(mean)),
        range(&median),
        duration(seconds(histogram.most_seconds())),
        duration(seconds(histogram.sum_seconds())),
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
            label(interval.from),
        );
    }
    page.push_str("</div>\n</section>\n");
}

fn range(interval: &Interval) -> String {
    match interval.to {
        Some(to) => format!("{} to {}", label(interval.from), label(to)),
        None => format!("over {}", label(interval.from)),
    }
}

fn label(seconds: f64) -> String {
    match seconds {
        0.0 => "0".to_owned(),
        s if s < 0.9995 => format!("{:.0} ms", s * 1e3),
        s if s < 9_999.0 => format!("{s:.0} s"),
        s => format!("{:.0}k s", s / 1e3),
    }
}
