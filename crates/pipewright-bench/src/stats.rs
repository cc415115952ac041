//! Statistics of few samples: medians, quantiles and spread, reads by size, logarithms and random numbers.
//!
//! Disturbances mostly make a measurement slower and are never normally distributed, so the figures here are the median
//! and the median absolute deviation (MAD).

use std::f64::consts::LOG10_2;

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

/// Returns the value below which a share of the samples lies, interpolated between the two nearest samples; `None`:
/// there are no samples.
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

/// Returns the smallest and the largest figure; infinity and 0: there are none.
pub(crate) fn range(figures: impl Iterator<Item = f64>) -> (f64, f64) {
    figures
        .fold((f64::INFINITY, 0.0), |(least, most), it| (f64::min(least, it), f64::max(most, it)))
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

/// Sizes below 2^40; each belongs to the class of the largest power of two that is not larger.
const CLASSES: usize = 40;

/// The reads of a measurement, by size.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ReadSizes([u64; CLASSES]);

/// The reads of one class.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct SizeClass {
    /// The smallest size; the largest is less than twice as much.
    pub(crate) from_bytes: u64,
    /// The number of reads.
    pub(crate) reads: u64,
}

impl Default for ReadSizes {
    fn default() -> ReadSizes {
        ReadSizes([0; CLASSES])
    }
}

impl ReadSizes {
    /// Counts reads of one size.
    pub(crate) fn of(reads: u64, bytes: usize) -> ReadSizes {
        let mut all = ReadSizes::default();
        all.add(reads, bytes);
        all
    }

    /// Adds reads of one size. Size 0 counts as 1.
    #[inline]
    pub(crate) fn add(&mut self, reads: u64, bytes: usize) {
        let class = bytes.max(1).ilog2() as usize;
        if let Some(count) = self.0.get_mut(class) {
            *count += reads;
        }
    }

    /// Adds the reads of another measurement.
    pub(crate) fn merge(&mut self, other: &ReadSizes) {
        self.0.iter_mut().zip(other.0).for_each(|(ours, theirs)| *ours += theirs);
    }

    /// Returns the number of reads.
    pub(crate) fn count(&self) -> u64 {
        self.0.iter().sum()
    }

    /// Returns the classes that are not empty.
    pub(crate) fn classes(&self) -> Vec<SizeClass> {
        let classes = self.0.iter().enumerate().filter(|(_, reads)| **reads > 0);
        classes.map(|(class, reads)| SizeClass { from_bytes: 1 << class, reads: *reads }).collect()
    }
}

// Logarithms of the crate `libm`. std calls the C library's, which every command of the tool would load at startup.
// Drawings also come out the same on every system.

/// Returns the logarithm to base 2. Zero and negative numbers count as the smallest positive number.
pub(crate) fn log2(value: f64) -> f64 {
    libm::log2(value.max(f64::MIN_POSITIVE))
}

/// Returns the natural logarithm.
pub(crate) fn ln(value: f64) -> f64 {
    libm::log(value.max(f64::MIN_POSITIVE))
}

pub(crate) fn power_of_ten(exponent: i32) -> f64 {
    let power = (0..exponent.unsigned_abs()).fold(1.0, |power, _| power * 10.0);
    if exponent < 0 { 1.0 / power } else { power }
}

/// Returns the exponent of the largest power of ten that is not above the value, with a tolerance for rounding.
pub(crate) fn exponent_of_ten(value: f64) -> i32 {
    let value = value.max(f64::MIN_POSITIVE) * (1.0 + 1e-12);
    let mut exponent = (log2(value) * LOG10_2).floor() as i32;
    if power_of_ten(exponent) > value {
        exponent -= 1;
    }
    if power_of_ten(exponent + 1) <= value {
        exponent += 1;
    }
    exponent
}

/// A SplitMix64 generator (Steele, Lea and Flood, 2014): small, and good enough to shuffle.
///
/// The cells of each series are measured in a random order: in the order of their curve, drift of the machine would
/// bend the curve.
#[derive(Debug, Clone)]
pub(crate) struct Random(u64);

impl Random {
    /// Creates a generator.
    pub(crate) fn new(seed: u64) -> Random {
        Random(seed)
    }

    /// Returns 64 random bits.
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Returns a number below `end`, which is not 0.
    pub(crate) fn below(&mut self, end: u64) -> u64 {
        // The remainder favors small numbers, by about one in 2^40.
        self.next() % end
    }

    /// Shuffles, after Fisher and Yates.
    pub(crate) fn shuffle<T>(&mut self, items: &mut [T]) {
        for last in (1..items.len()).rev() {
            let other = self.below(last as u64 + 1);
            items.swap(last, other as usize);
        }
    }
}

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

    #[test]
    fn every_read_is_in_the_class_of_its_size() {
        let mut reads = ReadSizes::of(3, 4096);
        for bytes in [1, 4095, 4097, 8191, 65_536] {
            reads.add(1, bytes);
        }
        let class = |from_bytes, reads| SizeClass { from_bytes, reads };
        let expected = [class(1, 1), class(2048, 1), class(4096, 5), class(65_536, 1)];
        assert_eq!(reads.classes(), expected);
        let mut all = reads;
        all.merge(&reads);
        assert_eq!((reads.count(), all.count()), (8, 16));
        assert_eq!(ReadSizes::default().classes(), []);
    }

    #[test]
    fn powers_are_exact() {
        for exponent in -60..60 {
            assert_eq!(log2(2_f64.powi(exponent)), f64::from(exponent));
        }
        for exponent in -30..30 {
            assert_eq!(exponent_of_ten(10_f64.powi(exponent)), exponent, "{exponent}");
            assert_eq!(exponent_of_ten(10_f64.powi(exponent) * 9.99), exponent, "{exponent}");
            let power = power_of_ten(exponent) / 10_f64.powi(exponent);
            assert!((power - 1.0).abs() < 1e-12);
        }
    }

    #[test]
    fn numbers_without_a_logarithm_get_the_smallest_one() {
        for value in [0.0, -1.0, f64::MIN_POSITIVE / 4.0, f64::NAN] {
            assert_eq!(log2(value), -1022.0, "{value}");
        }
    }

    proptest::proptest! {
        #[test]
        fn logarithms_agree_with_std(value in 1e-300..1e300_f64) {
            assert!((log2(value) - value.log2()).abs() < 1e-12 * value.log2().abs().max(1.0));
            assert!((ln(value) - value.ln()).abs() < 1e-12 * value.ln().abs().max(1.0));
        }

        #[test]
        fn logarithms_near_1_agree_with_std(value in 0.5..2.0_f64) {
            assert!((log2(value) - value.log2()).abs() < 1e-15);
        }
    }

    #[test]
    fn the_order_depends_on_the_seed_alone() {
        let order = |seed| {
            let mut items: Vec<u32> = (0..20).collect();
            Random::new(seed).shuffle(&mut items);
            items
        };
        assert_eq!(order(7), order(7));
        assert_ne!(order(7), order(8));
    }

    #[test]
    fn the_generator_is_the_published_one() {
        let mut random = Random::new(1_234_567);
        assert_eq!(random.next(), 6_457_827_717_110_365_317);
        assert_eq!(random.next(), 3_203_168_211_198_807_973);
    }

    proptest::proptest! {
        #[test]
        fn no_item_is_lost_or_doubled(seed in 0_u64.., count in 0_usize..100) {
            let mut items: Vec<usize> = (0..count).collect();
            Random::new(seed).shuffle(&mut items);
            items.sort_unstable();
            assert_eq!(items, (0..count).collect::<Vec<_>>());
        }
    }

    #[test]
    fn every_position_is_equally_likely() {
        let mut random = Random::new(1);
        let mut counts = [0_u32; 5];
        for _ in 0..5000 {
            let mut items = [0, 1, 2, 3, 4];
            random.shuffle(&mut items);
            counts[items.iter().position(|item| *item == 0).unwrap()] += 1;
        }
        assert!(counts.iter().all(|count| (850..1150).contains(count)), "{counts:?}");
    }

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
