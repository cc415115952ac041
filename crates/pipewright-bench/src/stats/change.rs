//! Changes between two sets of samples that are larger than noise.
//!
//! A cell has few samples, and the spread of three samples is itself random. The noise is therefore estimated from all
//! cells of a curve, and the bound rises with the number of compared cells: among a hundred, one is far off by chance.

use serde::{Deserialize, Serialize};

use super::ln;
use crate::stats::Summary;

/// The smallest change that is reported. The placement of code and data in memory alone changes times by almost as much
/// (Mytkowicz, "Producing wrong data without doing anything obviously wrong!").
const LEAST_CHANGE: f64 = 0.10;

/// One cell may be marked by chance in this many comparisons of a build with itself.
const COMPARISONS_PER_FALSE_ALARM: f64 = 100.0;

/// The standard error of a median, in standard errors of a mean.
const MEDIAN_BY_MEAN: f64 = 1.2533;

/// The noise of samples: the standard deviation of their logarithms, by which twice as fast and half as fast are equal
/// changes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Noise {
    deviation: f64,
    /// The degrees of freedom: the number of samples without the first of each set.
    freedom: usize,
}

impl Noise {
    /// Estimates the noise within sets of samples; `None`: no set has two samples.
    pub(crate) fn of<'a>(sets: impl IntoIterator<Item = &'a [f64]>) -> Option<Noise> {
        let (mut squares, mut freedom) = (0.0, 0);
        for set in sets {
            let Some(more) = set.len().checked_sub(1) else { continue };
            let logarithms: Vec<f64> = set.iter().copied().map(ln).collect();
            let mean = logarithms.iter().sum::<f64>() / set.len() as f64;
            squares += logarithms.iter().map(|it| (it - mean) * (it - mean)).sum::<f64>();
            freedom += more;
        }
        let deviation = (squares / freedom.max(1) as f64).sqrt();
        (freedom > 0).then_some(Noise { deviation, freedom })
    }

    /// Returns an upper estimate of the deviation, larger for fewer samples: roughly the tails of Student's
    /// distribution.
    fn upper_deviation(&self) -> f64 {
        self.deviation * (1.0 + 4.0 / self.freedom as f64)
    }
}

/// The circumstances of a comparison.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ComparisonContext {
    /// The noise of both sets and of the other cells of their curve.
    pub(crate) noise: Option<Noise>,
    /// The number of compared pairs.
    pub(crate) pairs: usize,
    /// The factor by which the machine itself may have become faster or slower, at least 1.
    pub(crate) drift: f64,
}

/// The comparison of newer samples with older ones.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub(crate) struct Ratio {
    /// The new median divided by the old one.
    pub(crate) ratio: f64,
    /// The smallest possible ratio, from the ends of both ranges.
    pub(crate) least: f64,
    /// The largest possible ratio.
    pub(crate) most: f64,
    /// The change is larger than noise and than the drift of the machine.
    pub(crate) is_real: bool,
    /// The change is larger than noise, but not than the drift of the machine; or there are too few samples.
    #[serde(default)]
    pub(crate) is_unsure: bool,
}

impl Ratio {
    /// Compares two sets of samples; `None`: one is empty or has a sample that is not positive.
    pub(crate) fn of(old: &[f64], new: &[f64], circumstances: &ComparisonContext) -> Option<Ratio> {
        let (before, now) = Summary::of(old).zip(Summary::of(new))?;
        if before.least <= 0.0 || now.least <= 0.0 {
            return None;
        }
        let (least, most) = (now.least / before.most, now.most / before.least);
        let ratio = now.median / before.median;
        let ComparisonContext { noise, pairs, drift } = *circumstances;
        let (change, least_change) = (ln(ratio).abs(), ln(1.0 + LEAST_CHANGE));
        let is_apart = least > 1.0 || most < 1.0;
        let Some(noise) = noise else {
            let is_unsure = is_apart && change > least_change;
            return Some(Ratio { ratio, least, most, is_real: false, is_unsure });
        };
        // The probability of an error of at least that many deviations is below exp(-errors²/2), for each pair.
        let errors = (2.0 * ln(pairs.max(1) as f64 * COMPARISONS_PER_FALSE_ALARM)).sqrt();
        let own = Noise::of([old, new]).map_or(0.0, |own| own.deviation);
        let error = noise.upper_deviation().max(own)
            * MEDIAN_BY_MEAN
            * (1.0 / old.len() as f64 + 1.0 / new.len() as f64).sqrt();
        let bound = least_change.max(errors * error);
        let is_change = is_apart && change > bound;
        let is_real = is_change && change > bound + ln(drift);
        Some(Ratio { ratio, least, most, is_real, is_unsure: is_change && !is_real })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Samples around a median, with a given spread.
    fn around(median: f64, share: f64) -> [f64; 3] {
        [1.0 - share, 1.0, 1.0 + share].map(|factor| factor * median)
    }

    /// One of that many pairs of a curve, all with the same spread.
    fn circumstances(share: f64, pairs: usize, drift: f64) -> ComparisonContext {
        let sets = vec![around(1.0, share); 2 * pairs];
        ComparisonContext { noise: Noise::of(sets.iter().map(|set| &set[..])), pairs, drift }
    }

    #[test]
    fn noise_is_the_deviation_within_the_sets() {
        // The distance between the sets and their size do not matter.
        let sets = [[1.0, 1.1, 1.21], [700.0, 770.0, 847.0]];
        let noise = Noise::of(sets.iter().map(|set| &set[..])).unwrap();
        assert!((noise.deviation - 1.1_f64.ln()).abs() < 1e-12, "{noise:?}");
        assert_eq!(noise.freedom, 4);
        assert_eq!(Noise::of([&[1.0][..], &[2.0], &[]]), None);
    }

    #[test]
    fn a_change_is_real_if_it_is_larger_than_noise_and_drift() {
        const REAL: (bool, bool) = (true, false);
        const UNSURE: (bool, bool) = (false, true);
        const NONE: (bool, bool) = (false, false);
        // The change of the median, the spread of all samples, pairs, drift.
        for (change, share, pairs, drift, expected) in [
            // No drift.
            (1.0, 0.01, 13, 1.0, NONE),
            (1.09, 0.001, 13, 1.0, NONE),
            (1.15, 0.01, 13, 1.0, REAL),
            (1.0 / 1.15, 0.01, 13, 1.0, REAL),
            // Within the noise of such samples.
            (1.3, 0.1, 13, 1.0, NONE),
            (1.6, 0.1, 13, 1.0, REAL),
            // Among more cells, one is further off by chance.
            (1.51, 0.1, 120, 1.0, NONE),
            // Drift, and a change of the same size.
            (1.3, 0.01, 13, 1.3, UNSURE),
            (1.0 / 1.3, 0.01, 13, 1.3, UNSURE),
            (1.5, 0.01, 13, 1.3, REAL),
            (1.05, 0.01, 13, 1.3, NONE),
        ] {
            let (old, new) = (around(5.0, share), around(5.0 * change, share));
            let found = Ratio::of(&old, &new, &circumstances(share, pairs, drift)).unwrap();
            let case = (change, share, pairs, drift);
            assert_eq!((found.is_real, found.is_unsure), expected, "{case:?}: {found:?}");
        }
    }

    #[test]
    fn one_sample_each_allows_no_verdict() {
        let circumstances = ComparisonContext { noise: None, pairs: 1, drift: 1.0 };
        let found = Ratio::of(&[1.0], &[5.0], &circumstances).unwrap();
        assert_eq!((found.is_real, found.is_unsure), (false, true));
        let found = Ratio::of(&[1.0], &[1.05], &circumstances).unwrap();
        assert_eq!((found.is_real, found.is_unsure), (false, false));
        assert_eq!(Ratio::of(&[], &[1.0], &circumstances), None);
        assert_eq!(Ratio::of(&[0.0], &[1.0], &circumstances), None);
    }

    #[test]
    fn a_cell_noisier_than_its_curve_is_compared_by_its_own_noise() {
        let quiet = circumstances(0.01, 13, 1.0);
        let (old, new) = (around(1.0, 0.2), [1.3, 1.7, 2.1]);
        assert!(!Ratio::of(&old, &new, &quiet).unwrap().is_real);
        assert!(Ratio::of(&around(1.0, 0.01), &around(1.7, 0.01), &quiet).unwrap().is_real);
    }

    proptest::proptest! {
        #[test]
        fn samples_do_not_differ_from_themselves(samples in proptest::collection::vec(1.0..1e6_f64, 1..20)) {
            let ratio = Ratio::of(&samples, &samples, &circumstances(0.0, 1, 1.0)).unwrap();
            assert!(!ratio.is_real && !ratio.is_unsure && ratio.ratio == 1.0, "{ratio:?}");
        }

        #[test]
        fn the_reverse_comparison_has_the_same_verdict(
            old in proptest::collection::vec(1.0..100.0_f64, 1..9),
            new in proptest::collection::vec(1.0..100.0_f64, 1..9),
        ) {
            let circumstances = circumstances(0.1, 3, 1.1);
            let there = Ratio::of(&old, &new, &circumstances).unwrap();
            let back = Ratio::of(&new, &old, &circumstances).unwrap();
            assert_eq!(there.is_real, back.is_real);
            assert_eq!(there.is_unsure, back.is_unsure);
            assert!(there.least <= there.ratio && there.ratio <= there.most);
        }
    }
}
