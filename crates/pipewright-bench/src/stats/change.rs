//! Whether two sets of samples differ by more than noise.
//!
//! A cell has few samples, and what three of them spread by is itself chance. So the noise is that of
//! all cells of a curve together, and the bound rises with the number of cells that are judged: of a
//! hundred, one is far off by chance alone.

use serde::{Deserialize, Serialize};

use crate::stats::Summary;
use crate::stats::logarithm::ln;

/// A difference below this share is none, however close together the samples are: the placement of
/// code and data in memory alone makes more (Mytkowicz, "Producing wrong data without doing anything
/// obviously wrong!").
const LEAST_CHANGE: f64 = 0.10;

/// In so many comparisons of the same thing with itself one cell, of all cells, may be marked.
const COMPARISONS_PER_FALSE_ALARM: f64 = 100.0;

/// The median of samples strays by so much more than their mean would.
const MEDIAN_BY_MEAN: f64 = 1.2533;

/// What samples of the same thing differ by: the standard deviation of their logarithms. By these twice as
/// fast and half as fast are equally far from equal.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Noise {
    deviation: f64,
    /// How many samples there are beyond the first of each set.
    freedom: usize,
}

impl Noise {
    /// Of sets that are each of one thing. `None`: no set has two samples.
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

    /// As far as it may really be: of few samples it is not well known. (Student's distribution, roughly, and
    /// where it matters: far out.)
    fn careful(&self) -> f64 {
        self.deviation * (1.0 + 4.0 / self.freedom as f64)
    }
}

/// Under which circumstances two sets are compared.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Circumstances {
    /// Of both sets and of their neighbours.
    pub(crate) noise: Option<Noise>,
    /// How many pairs are judged.
    pub(crate) pairs: usize,
    /// How many times faster or slower the machine itself may have been, 1 or more.
    pub(crate) drift: f64,
}

/// How a newer set of samples compares with an older one.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub(crate) struct Ratio {
    /// New median by old median.
    pub(crate) ratio: f64,
    /// The least and the most that it could be: of the ends of both bands.
    pub(crate) least: f64,
    pub(crate) most: f64,
    /// It is more than noise, and more than what the machine itself has changed by.
    pub(crate) is_real: bool,
    /// It would be, but the machine itself has changed, or there are too few samples to tell.
    #[serde(default)]
    pub(crate) is_unsure: bool,
}

impl Ratio {
    /// `None`: there is nothing to compare.
    pub(crate) fn of(old: &[f64], new: &[f64], circumstances: &Circumstances) -> Option<Ratio> {
        let (before, now) = Summary::of(old).zip(Summary::of(new))?;
        if before.least <= 0.0 || now.least <= 0.0 {
            return None;
        }
        let (least, most) = (now.least / before.most, now.most / before.least);
        let ratio = now.median / before.median;
        let Circumstances { noise, pairs, drift } = *circumstances;
        let (change, least_change) = (ln(ratio).abs(), ln(1.0 + LEAST_CHANGE));
        let is_apart = least > 1.0 || most < 1.0;
        let Some(noise) = noise else {
            let is_unsure = is_apart && change > least_change;
            return Some(Ratio { ratio, least, most, is_real: false, is_unsure });
        };
        // An error of so many deviations or more has a chance below exp(-errors²/2), times the pairs.
        let errors = (2.0 * ln(pairs.max(1) as f64 * COMPARISONS_PER_FALSE_ALARM)).sqrt();
        let own = Noise::of([old, new]).map_or(0.0, |own| own.deviation);
        let error = noise.careful().max(own)
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

    /// Samples that spread by so much, around so much.
    fn around(median: f64, share: f64) -> [f64; 3] {
        [1.0 - share, 1.0, 1.0 + share].map(|factor| factor * median)
    }

    /// As one of so many pairs of a curve that all spread by so much.
    fn circumstances(share: f64, pairs: usize, drift: f64) -> Circumstances {
        let sets = vec![around(1.0, share); 2 * pairs];
        Circumstances { noise: Noise::of(sets.iter().map(|set| &set[..])), pairs, drift }
    }

    #[test]
    fn noise_is_the_deviation_within_the_sets() {
        // Whatever lies between them, and whatever their size.
        let sets = [[1.0, 1.1, 1.21], [700.0, 770.0, 847.0]];
        let noise = Noise::of(sets.iter().map(|set| &set[..])).unwrap();
        assert!((noise.deviation - 1.1_f64.ln()).abs() < 1e-12, "{noise:?}");
        assert_eq!(noise.freedom, 4);
        assert_eq!(Noise::of([&[1.0][..], &[2.0], &[]]), None);
    }

    #[test]
    fn a_change_is_real_where_it_is_more_than_noise_and_drift() {
        const REAL: (bool, bool) = (true, false);
        const UNSURE: (bool, bool) = (false, true);
        const NONE: (bool, bool) = (false, false);
        // Old and new medians, what all samples spread by, pairs, drift.
        for (change, share, pairs, drift, expected) in [
            // The same mood.
            (1.0, 0.01, 13, 1.0, NONE),
            (1.09, 0.001, 13, 1.0, NONE),
            (1.15, 0.01, 13, 1.0, REAL),
            (1.0 / 1.15, 0.01, 13, 1.0, REAL),
            // As much as samples of this kind stray by.
            (1.3, 0.1, 13, 1.0, NONE),
            (1.6, 0.1, 13, 1.0, REAL),
            // Of more cells one is further off by chance.
            (1.51, 0.1, 120, 1.0, NONE),
            // Another mood, and neither more nor less than that.
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
    fn one_sample_each_is_no_verdict() {
        let circumstances = Circumstances { noise: None, pairs: 1, drift: 1.0 };
        let found = Ratio::of(&[1.0], &[5.0], &circumstances).unwrap();
        assert_eq!((found.is_real, found.is_unsure), (false, true));
        let found = Ratio::of(&[1.0], &[1.05], &circumstances).unwrap();
        assert_eq!((found.is_real, found.is_unsure), (false, false));
        assert_eq!(Ratio::of(&[], &[1.0], &circumstances), None);
        assert_eq!(Ratio::of(&[0.0], &[1.0], &circumstances), None);
    }

    #[test]
    fn a_cell_that_spreads_more_than_its_neighbours_is_judged_by_itself() {
        let quiet = circumstances(0.01, 13, 1.0);
        let (old, new) = (around(1.0, 0.2), [1.3, 1.7, 2.1]);
        assert!(!Ratio::of(&old, &new, &quiet).unwrap().is_real);
        assert!(Ratio::of(&around(1.0, 0.01), &around(1.7, 0.01), &quiet).unwrap().is_real);
    }

    proptest::proptest! {
        #[test]
        fn nothing_differs_from_itself(samples in proptest::collection::vec(1.0..1e6_f64, 1..20)) {
            let ratio = Ratio::of(&samples, &samples, &circumstances(0.0, 1, 1.0)).unwrap();
            assert!(!ratio.is_real && !ratio.is_unsure && ratio.ratio == 1.0, "{ratio:?}");
        }

        #[test]
        fn a_ratio_read_backwards_says_the_same(
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
