//! Statistics of few samples: medians, quantiles and spread.
//!
//! Disturbances mostly make a measurement slower and are never normally distributed, so the figures here are the median
//! and the median absolute deviation (MAD).

pub(crate) mod change;
pub(crate) mod histogram;
pub(crate) mod logarithm;
pub(crate) mod shuffle;

use serde::{Deserialize, Serialize};

/// Samples are noisy if their MAD is larger than this share of their median.
const NOISY_SHARE: f64 = 0.10;

/// The standard deviation of normally distributed samples, in MADs.
const SIGMAS_PER_MAD: f64 = 1.4826;

/// A sample this many standard deviations from the median is an outlier, as in hyperfine.
const OUTLIER_SIGMAS: f64 = 10.0;

/// With fewer samples there is no telling which one is the outlier.
const LEAST_FOR_OUTLIERS: usize = 5;

/// The median of some samples, and their spread.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Summary {
    /// The median.
    pub median: f64,
    /// The smallest sample.
    pub least: f64,
    /// The largest sample.
    pub most: f64,
    /// The median of the distances to the median.
    pub mad: f64,
}

impl Summary {
    /// Summarizes samples; `None`: there are none.
    ///
    /// ```
    /// use pipewright_bench::stats::Summary;
    ///
    /// let summary = Summary::of(&[1.0, 5.0, 2.0]).unwrap_or_default();
    /// assert_eq!((summary.median, summary.least, summary.most), (2.0, 1.0, 5.0));
    /// ```
    #[must_use]
    pub fn of(samples: &[f64]) -> Option<Summary> {
        let median = median(samples)?;
        let distances: Vec<f64> = samples.iter().map(|sample| (sample - median).abs()).collect();
        Some(Summary {
            median,
            least: samples.iter().copied().fold(f64::INFINITY, f64::min),
            most: samples.iter().copied().fold(f64::NEG_INFINITY, f64::max),
            mad: self::median(&distances)?,
        })
    }

    /// Returns the MAD as a share of the median.
    pub(crate) fn spread(&self) -> f64 {
        if self.median == 0.0 { 0.0 } else { (self.mad / self.median).abs() }
    }

    /// Returns true if another run could well give a different median.
    pub(crate) fn is_noisy(&self) -> bool {
        self.spread() > NOISY_SHARE
    }
}

/// Returns the sample in the middle, or the mean of the two in the middle; `None`: there are no samples.
#[must_use]
pub fn median(samples: &[f64]) -> Option<f64> {
    quantile(samples, 0.5)
}

/// Returns the value below which a share of the samples lies, interpolated between the two nearest samples; `None`: there
/// are no samples.
#[must_use]
pub fn quantile(samples: &[f64], share: f64) -> Option<f64> {
    let mut sorted = samples.to_vec();
    sorted.sort_by(f64::total_cmp);
    let place = share.clamp(0.0, 1.0) * sorted.len().checked_sub(1)? as f64;
    let lower = *sorted.get(place as usize)?;
    let upper = sorted.get(place as usize + 1).copied().unwrap_or(lower);
    let fraction = place - (place as usize) as f64;
    Some(if fraction > 0.0 { lower + (upper - lower) * fraction } else { lower })
}

/// Returns the ratio of each sample to the baseline's sample of the same round.
///
/// Ratios within a round are stable on a machine whose speed drifts, because both samples drift alike.
#[must_use]
pub fn ratios(samples: &[f64], baseline: &[f64]) -> Vec<f64> {
    samples.iter().zip(baseline).map(|(sample, baseline)| sample / baseline).collect()
}

/// Returns the number of samples that are far from all others.
pub(crate) fn outliers(samples: &[f64]) -> usize {
    let Some(summary) = Summary::of(samples) else { return 0 };
    if samples.len() < LEAST_FOR_OUTLIERS {
        return 0;
    }
    // Nearly equal samples have a tiny MAD, and a small difference is no outlier then.
    let least = summary.median.abs() * 0.005;
    let far = OUTLIER_SIGMAS * (SIGMAS_PER_MAD * summary.mad).max(least);
    samples.iter().filter(|sample| (*sample - summary.median).abs() > far).count()
}

/// Percentiles of the times of single operations, in seconds.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub(crate) struct Percentiles {
    pub(crate) p50: f64,
    pub(crate) p90: f64,
    pub(crate) p99: f64,
    pub(crate) p99_9: f64,
    pub(crate) most: f64,
}

impl Percentiles {
    /// Returns the percentiles; `None`: there are no times.
    pub(crate) fn of(mut times: Vec<f64>) -> Option<Percentiles> {
        times.sort_unstable_by(f64::total_cmp);
        // The nearest rank, which is one of the times.
        let at = |share: f64| {
            let rank = (times.len() as f64 * share).ceil() as usize;
            times.get(rank.saturating_sub(1)).copied()
        };
        Some(Percentiles {
            p50: at(0.5)?,
            p90: at(0.9)?,
            p99: at(0.99)?,
            p99_9: at(0.999)?,
            most: *times.last()?,
        })
    }

    /// Returns the median of each percentile over several series.
    pub(crate) fn median(several: &[Percentiles]) -> Option<Percentiles> {
        let median_of =
            |part: fn(&Percentiles) -> f64| median(&several.iter().map(part).collect::<Vec<f64>>());
        Some(Percentiles {
            p50: median_of(|it| it.p50)?,
            p90: median_of(|it| it.p90)?,
            p99: median_of(|it| it.p99)?,
            p99_9: median_of(|it| it.p99_9)?,
            most: median_of(|it| it.most)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_measured_times() {
        let times: Vec<f64> = (1..=1000).rev().map(f64::from).collect();
        let found = Percentiles::of(times).unwrap();
        let shown = [found.p50, found.p90, found.p99, found.p99_9, found.most];
        assert_eq!(shown, [500.0, 900.0, 990.0, 999.0, 1000.0]);
        let one = Percentiles::of(vec![7.0]).unwrap();
        assert_eq!((one.p50, one.p99_9), (7.0, 7.0));
        assert_eq!(Percentiles::of(Vec::new()), None);
        let middle = Percentiles::median(&[one, found, one]).unwrap();
        assert_eq!(middle, one);
        assert_eq!(Percentiles::median(&[]), None);
    }

    #[test]
    fn quantiles_are_interpolated() {
        assert_eq!(quantile(&[0.0, 10.0], 0.1), Some(1.0));
        assert_eq!(quantile(&[3.0, 1.0, 2.0], 1.0), Some(3.0));
        assert_eq!((median(&[4.0, 1.0]), median(&[])), (Some(2.5), None));
        assert_eq!(ratios(&[2.0, 9.0], &[4.0, 3.0]), [0.5, 3.0]);
    }

    fn summary(samples: &[f64]) -> Summary {
        Summary::of(samples).unwrap()
    }

    #[test]
    fn medians_and_deviations_are_right() {
        for (samples, median, mad) in [
            (&[1.0][..], 1.0, 0.0),
            (&[1.0, 2.0], 1.5, 0.5),
            (&[3.0, 1.0, 2.0], 2.0, 1.0),
            (&[1.0, 1.0, 2.0, 2.0, 4.0, 6.0, 9.0], 2.0, 1.0),
            (&[5.0, 5.0, 5.0, 1000.0], 5.0, 0.0),
        ] {
            let summary = summary(samples);
            assert_eq!((summary.median, summary.mad), (median, mad), "{samples:?}");
        }
        assert_eq!(Summary::of(&[]), None);
    }

    #[test]
    fn noise_is_a_tenth_of_the_median() {
        assert!(!summary(&[100.0, 90.0, 110.0]).is_noisy());
        assert!(summary(&[100.0, 88.0, 112.0]).is_noisy());
        assert!(!summary(&[0.0, 0.0, 1.0]).is_noisy());
    }

    #[test]
    fn an_outlier_is_far_from_all_others() {
        for (samples, count) in [
            (&[10.0, 10.1, 9.9, 10.2, 30.0][..], 1),
            (&[10.0, 10.1, 9.9, 10.2, 10.3], 0),
            (&[10.0, 10.0, 10.0, 10.0, 10.2], 0),
            (&[10.0, 10.0, 10.0, 10.0, 11.0], 1),
            (&[10.0, 10.0, 30.0], 0),
            (&[], 0),
        ] {
            assert_eq!(outliers(samples), count, "{samples:?}");
        }
    }

    proptest::proptest! {
        #[test]
        fn a_median_is_in_the_middle(samples in proptest::collection::vec(-1e9..1e9_f64, 1..50)) {
            let summary = summary(&samples);
            let below = samples.iter().filter(|sample| **sample < summary.median).count();
            let above = samples.iter().filter(|sample| **sample > summary.median).count();
            assert!(below * 2 <= samples.len() && above * 2 <= samples.len());
            assert!(summary.least <= summary.median && summary.median <= summary.most);
            assert!(summary.mad >= 0.0 && summary.mad <= summary.most - summary.least);
        }

        #[test]
        fn order_and_scale_do_not_matter(
            mut samples in proptest::collection::vec(1.0..1e6_f64, 1..20), scale in 0.01..100.0_f64,
        ) {
            let before = summary(&samples);
            samples.reverse();
            samples.iter_mut().for_each(|sample| *sample *= scale);
            let after = summary(&samples);
            assert!((after.median / scale - before.median).abs() <= 1e-9 * before.median);
            assert!((after.spread() - before.spread()).abs() <= 1e-9);
        }
    }
}
