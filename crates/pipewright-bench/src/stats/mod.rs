//! Statistics of few samples: the median and how far they spread.
//!
//! Medians, because what disturbs a measurement mostly makes it slower, and never by a normal
//! distribution; the median absolute deviation (MAD) for the same reason.

pub(crate) mod change;
pub(crate) mod histogram;
pub(crate) mod logarithm;
pub(crate) mod shuffle;

use serde::{Deserialize, Serialize};

/// Above this share of the median a MAD says that the samples are noise.
const NOISY_SHARE: f64 = 0.10;

/// MADs times this are standard deviations, if the samples are normally distributed.
const SIGMAS_PER_MAD: f64 = 1.4826;

/// A sample that is so many standard deviations off is an outlier: hyperfine's rule.
const OUTLIER_SIGMAS: f64 = 10.0;

/// Of fewer samples nobody can say which is the odd one.
const LEAST_FOR_OUTLIERS: usize = 5;

/// What there is to say of some samples.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub(crate) struct Summary {
    pub(crate) median: f64,
    pub(crate) least: f64,
    pub(crate) most: f64,
    /// The median of the distances to the median.
    pub(crate) mad: f64,
}

impl Summary {
    /// `None`: there is no sample.
    pub(crate) fn of(samples: &[f64]) -> Option<Summary> {
        let median = median(samples)?;
        let distances: Vec<f64> = samples.iter().map(|sample| (sample - median).abs()).collect();
        Some(Summary {
            median,
            least: samples.iter().copied().fold(f64::INFINITY, f64::min),
            most: samples.iter().copied().fold(f64::NEG_INFINITY, f64::max),
            mad: self::median(&distances)?,
        })
    }

    /// The MAD as a share of the median.
    pub(crate) fn spread(&self) -> f64 {
        if self.median == 0.0 { 0.0 } else { (self.mad / self.median).abs() }
    }

    /// Whether a re-run could well give something else.
    pub(crate) fn is_noisy(&self) -> bool {
        self.spread() > NOISY_SHARE
    }
}

/// The middle one, or the mean of the two in the middle.
pub(crate) fn median(samples: &[f64]) -> Option<f64> {
    let mut sorted = samples.to_vec();
    sorted.sort_by(f64::total_cmp);
    let upper = *sorted.get(sorted.len() / 2)?;
    if sorted.len() % 2 == 1 {
        return Some(upper);
    }
    let lower = *sorted.get(sorted.len() / 2 - 1)?;
    Some(lower + (upper - lower) / 2.0)
}

/// How many samples are far away from all the others.
pub(crate) fn outliers(samples: &[f64]) -> usize {
    let Some(summary) = Summary::of(samples) else { return 0 };
    if samples.len() < LEAST_FOR_OUTLIERS {
        return 0;
    }
    // Samples that are all but equal: then what is merely a little off is no outlier.
    let least = summary.median.abs() * 0.005;
    let far = OUTLIER_SIGMAS * (SIGMAS_PER_MAD * summary.mad).max(least);
    samples.iter().filter(|sample| (*sample - summary.median).abs() > far).count()
}

/// What single operations took, in seconds: how long at most so many of a hundred.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub(crate) struct Percentiles {
    pub(crate) p50: f64,
    pub(crate) p90: f64,
    pub(crate) p99: f64,
    pub(crate) p99_9: f64,
    pub(crate) most: f64,
}

impl Percentiles {
    /// `None`: there was no operation.
    pub(crate) fn of(mut times: Vec<f64>) -> Option<Percentiles> {
        times.sort_unstable_by(f64::total_cmp);
        // The nearest rank: a time that there was.
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

    /// Of each figure the median of several.
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
    fn percentiles_are_times_that_there_were() {
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
    fn an_outlier_is_far_away_from_all_others_and_there_are_others() {
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
        fn order_and_scale_make_no_difference(
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
