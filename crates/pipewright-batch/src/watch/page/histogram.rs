//! A histogram of the durations of all attempts, in steps of 1, 2 and 5.

use serde::Serialize;

/// The steps of a decade.
const STEPS: [u64; 3] = [1, 2, 5];

/// The decades, from one millisecond on.
const DECADES: u32 = 9;

/// The numbers of attempts by their duration.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct Histogram {
    /// The number of attempts in each interval. The first one starts at 0.
    counts: Vec<u64>,
    total: u64,
    sum_seconds: f64,
    most_seconds: f64,
}

/// An interval, and the number of attempts in it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Interval {
    pub(super) from: f64,
    /// `None`: without end.
    pub(super) to: Option<f64>,
    pub(super) count: u64,
}

impl Default for Histogram {
    fn default() -> Histogram {
        Histogram {
            counts: vec![0; edges().count()],
            total: 0,
            sum_seconds: 0.0,
            most_seconds: 0.0,
        }
    }
}

/// Returns the start of each interval.
fn edges() -> impl Iterator<Item = f64> {
    // In whole milliseconds: powers of 10.0 differ by a bit between systems.
    let millis = (0..DECADES).flat_map(|decade| STEPS.map(|step| step * 10_u64.pow(decade)));
    let decades = millis.map(|millis| millis as f64 / 1e3);
    std::iter::once(0.0).chain(decades)
}

impl Histogram {
    pub(super) fn add(&mut self, seconds: f64) {
        let place = edges().take_while(|edge| *edge <= seconds).count().saturating_sub(1);
        if let Some(count) = self.counts.get_mut(place) {
            *count += 1;
        }
        self.total += 1;
        self.sum_seconds += seconds;
        self.most_seconds = self.most_seconds.max(seconds);
    }

    pub(super) fn total(&self) -> u64 {
        self.total
    }

    pub(super) fn sum_seconds(&self) -> f64 {
        self.sum_seconds
    }

    pub(super) fn most_seconds(&self) -> f64 {
        self.most_seconds
    }

    /// Returns the intervals from the first with an attempt to the last, and a few around them if those are few.
    pub(super) fn used(&self) -> Vec<Interval> {
        const LEAST: usize = 9;
        let is_used = |count: &u64| *count > 0;
        let Some(first) = self.counts.iter().position(is_used) else { return Vec::new() };
        let last = self.counts.iter().rposition(is_used).unwrap_or(first);
        let more = LEAST.saturating_sub(last + 1 - first);
        let end = (last + 1 + more.div_ceil(2)).min(self.counts.len());
        let first = first.min(end.saturating_sub(LEAST).max(first.saturating_sub(more)));
        let edges: Vec<f64> = edges().collect();
        let interval = |(place, count): (usize, &u64)| {
            let from = edges.get(place).copied().unwrap_or_default();
            Interval { from, to: edges.get(place + 1).copied(), count: *count }
        };
        self.counts.iter().enumerate().take(end).skip(first).map(interval).collect()
    }

    pub(super) fn median(&self) -> Option<Interval> {
        let mut before = 0;
        self.used().into_iter().find(|interval| {
            before += interval.count;
            before * 2 >= self.total
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_duration_is_in_its_interval() {
        let mut histogram = Histogram::default();
        for seconds in [0.0, 0.0005, 0.001, 0.0019, 0.3, 0.4, 7.0, 1e9] {
            histogram.add(seconds);
        }
        let filled: Vec<_> = histogram.used().into_iter().filter(|it| it.count > 0).collect();
        let counts: Vec<_> = filled.iter().map(|it| it.count).collect();
        assert_eq!(counts, [2, 2, 2, 1, 1]);
        assert_eq!((filled[1].from, filled[1].to), (0.001, Some(0.002)));
        assert_eq!(filled[4].to, None);
        assert_eq!(histogram.median().unwrap().from, 0.001);
        assert_eq!((histogram.total(), histogram.most_seconds()), (8, 1e9));
    }

    #[test]
    fn few_durations_have_neighbours() {
        for seconds in [0.0, 1.0, 1e9] {
            let mut histogram = Histogram::default();
            histogram.add(seconds);
            assert!((5..=9).contains(&histogram.used().len()), "{seconds}: {:?}", histogram.used());
        }
        assert_eq!(Histogram::default().used(), []);
        assert_eq!(Histogram::default().median(), None);
    }
}
