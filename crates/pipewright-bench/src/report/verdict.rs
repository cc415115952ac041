//! The verdict on one chart: the curve or case that is the fastest, if its range is apart from the ranges of others.
//!
//! Ranges that are apart differ by more than the noise of this run, also on a noisy machine.

use super::{Axis, Cell, Chart, Curve, best_of, worst};
use crate::stats::Summary;
use crate::units::{Unit, sentences, three_digits};

/// Fewer samples do not show a range.
const FEWEST_SAMPLES: usize = 3;

/// Ranges of a few samples can be narrow by chance, so medians differ by this factor at least.
const LEAST_FACTOR: f64 = 1.03;

/// A curve or a case, with its best cell.
struct Contender {
    name: String,
    /// The name, with the place and the figure of the best cell.
    words: String,
    summary: Summary,
    /// The best figure of all cells.
    reach: f64,
    has_range: bool,
}

/// Adds the verdicts to charts: a sentence, or nothing where one curve or case is alone.
pub(crate) fn judge(charts: &mut [Chart]) {
    for chart in charts {
        let found = of_chart(chart).unwrap_or_else(str::to_owned);
        let found = (!found.is_empty()).then_some([found]);
        chart.verdict = found.and_then(|found| sentences(&found)).unwrap_or_default();
    }
}

/// Returns a statement about the fastest curve or case of a chart. An error is the reason why there is none.
pub(crate) fn of_chart(chart: &Chart) -> Result<String, &'static str> {
    let unit = chart.unit;
    let mut others = contenders(chart);
    others.sort_by(|a, b| unit.rank(b.summary.median).total_cmp(&unit.rank(a.summary.median)));
    let measured = others.iter().enumerate().map(|(place, it)| (place, it.summary));
    let Some((place, _)) = best_of(measured.collect(), unit) else { return Err("") };
    let best = others.remove(place);
    if others.is_empty() {
        return Err("");
    }
    if !best.has_range {
        return Err("no verdict: fewer than 3 series do not show the ranges");
    }
    let is_apart = |other: &Contender| {
        let near = unit.rank(worst(&best.summary, unit));
        let is_beyond = near > unit.rank(other.reach) && factor(&best, other, unit) >= LEAST_FACTOR;
        other.has_range && is_beyond
    };
    let Some(next) = others.iter().find(|it| is_apart(it)) else {
        return Err("no verdict: the ranges overlap");
    };
    let factor = three_digits(factor(&best, next, unit));
    let words = format!("{factor} times as fast as {}", next.words);
    let near: Vec<&str> =
        others.iter().filter(|it| !is_apart(it)).map(|it| it.name.as_str()).collect();
    let near = match near[..] {
        [] => return Ok(format!("{} is the fastest: {words}", best.words)),
        [one] => one.to_owned(),
        [one, other] => format!("{one} and of {other}"),
        _ => format!("{} others", near.len()),
    };
    Ok(format!("{} leads: {words}; its range overlaps with that of {near}", best.words))
}

/// Returns how many times as fast one is as the other.
fn factor(one: &Contender, other: &Contender, unit: Unit) -> f64 {
    let ratio = one.summary.median / other.summary.median;
    if unit.more_is_better() { ratio } else { 1.0 / ratio }
}

/// Returns the curves of a chart with several ones over block sizes, otherwise the cells.
fn contenders(chart: &Chart) -> Vec<Contender> {
    let is_curves = chart.axis == Axis::BlockBytes && chart.curves.len() > 1;
    let of_curve = |curve: &Curve| {
        let (cell, _) = curve.best(chart.unit)?;
        contender(chart, &curve.name, Some(cell.label.as_str()), cell, &curve.cells)
    };
    if is_curves {
        return chart.curves.iter().filter_map(of_curve).collect();
    }
    let cells = chart.curves.iter().flat_map(|curve| curve.cells.iter().map(move |it| (curve, it)));
    let of_cell = |(curve, cell): (&Curve, &Cell)| {
        let name = chart.case_label(curve, cell);
        contender(chart, &name, None, cell, std::slice::from_ref(cell))
    };
    cells.filter_map(of_cell).collect()
}

fn contender(
    chart: &Chart,
    name: &str,
    place: Option<&str>,
    cell: &Cell,
    all: &[Cell],
) -> Option<Contender> {
    let (summary, unit) = (cell.summary()?, chart.unit);
    let ends = all.iter().filter_map(Cell::summary);
    let ends = ends.map(|it| super::reach(&it, unit));
    let reach = ends.max_by(|a, b| unit.rank(*a).total_cmp(&unit.rank(*b)))?;
    let place = place.map_or(String::new(), |place| format!("{place}, "));
    let words = format!("{name} ({place}{})", unit.show(summary.median));
    let (name, has_range) = (name.to_owned(), cell.samples.len() >= FEWEST_SAMPLES);
    Some(Contender { name, words, summary, reach, has_range })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample;

    /// A chart of cases with these samples, in microseconds.
    fn cases(cases: &[(&str, &[f64])]) -> Chart {
        let mut chart = sample::spawn().charts.swap_remove(0);
        let cell = |(label, samples): &(&str, &[f64])| {
            Cell::new(label, None, samples.iter().map(|micros| micros * 1e-6).collect())
        };
        chart.curves[0].cells = cases.iter().map(cell).collect();
        chart
    }

    #[test]
    fn the_fastest_is_named_where_its_range_is_apart_however_noisy_it_is() {
        let noisy = cases(&[
            ("slow", &[900.0, 1500.0, 2100.0]),
            ("fast", &[100.0, 300.0, 500.0]),
            ("slower", &[4000.0, 5000.0, 9000.0]),
        ]);
        assert!(noisy.cells().all(|cell| cell.noisy));
        assert_eq!(
            of_chart(&noisy).as_deref(),
            Ok("fast (300 µs) is the fastest: 5.00 times as fast as slow (1.50 ms)")
        );
    }

    #[test]
    fn what_cannot_be_told_apart_is_said_and_not_guessed() {
        let overlap = cases(&[("a", &[100.0, 110.0, 120.0]), ("b", &[119.0, 130.0, 140.0])]);
        assert_eq!(of_chart(&overlap), Err("no verdict: the ranges overlap"));
        let equal = cases(&[
            ("a", &[100.0, 110.0, 120.0]),
            ("b", &[119.0, 130.0, 140.0]),
            ("c", &[219.0, 220.0, 221.0]),
        ]);
        let words =
            "a (110 µs) leads: 2.00 times as fast as c (220 µs); its range overlaps with that of b";
        assert_eq!(of_chart(&equal).as_deref(), Ok(words));
        // Ranges of few samples say little, and one curve alone is not compared.
        let few = cases(&[("a", &[100.0, 101.0]), ("b", &[200.0, 201.0])]);
        assert_eq!(of_chart(&few), Err("no verdict: fewer than 3 series do not show the ranges"));
        assert_eq!(of_chart(&cases(&[("a", &[1.0; 3])])), Err(""));
        // Apart, but by next to nothing.
        let near = cases(&[("a", &[100.0; 3]), ("b", &[101.0; 3])]);
        assert_eq!(of_chart(&near), Err("no verdict: the ranges overlap"));
    }

    #[test]
    fn curves_are_compared_at_their_best_sizes() {
        let pipes = sample::pipes();
        let words = "two threads, Unix socket (64 KiB, 5.40 GB/s) is the fastest: 1.87 times as fast as \
                     two threads, pipe 1 MiB (8 KiB, 2.88 GB/s)";
        assert_eq!(of_chart(&pipes.charts[0]).as_deref(), Ok(words));
        let trips = sample::trips();
        let words = "shared memory (64 B, 600 ns) is the fastest: 15.0 times as fast as pipes (64 B, 9.00 µs)";
        assert_eq!(of_chart(&trips.charts[0]).as_deref(), Ok(words));
    }
}
