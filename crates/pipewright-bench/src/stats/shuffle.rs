//! Random numbers from a seed, and the random order of the cells in each series.
//!
//! If the cells were measured in the order of their curve, drift of the machine would bend the curve.

/// A SplitMix64 generator (Steele, Lea and Flood, 2014): small, and good enough to shuffle.
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

#[cfg(test)]
mod tests {
    use super::*;

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
}
