//! Random numbers that a seed repeats.

use std::env;

/// Numbers from a seed (splitmix64).
pub(in super::super) struct Random(u64);

impl Random {
    /// Returns the numbers of a seed.
    pub(in super::super) fn of(seed: u64) -> Random {
        Random(seed)
    }

    /// Returns a number below `end`.
    pub(in super::super) fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % end
    }

    /// Returns true in one of `of` cases.
    pub(in super::super) fn one_in(&mut self, of: u64) -> bool {
        self.below(of) == 0
    }

    /// Returns one of several.
    pub(in super::super) fn pick<'a, T: ?Sized>(&mut self, from: &[&'a T]) -> &'a T {
        from[self.below(from.len() as u64) as usize]
    }
}

/// Returns the seed in `PIPEWRIGHT_TEST_SEED`, which repeats a run that failed, or else `default`.
pub(in super::super) fn seed(default: u64) -> u64 {
    number("PIPEWRIGHT_TEST_SEED").unwrap_or(default)
}

/// Returns the number in a variable.
pub(in super::super) fn number(variable: &str) -> Option<u64> {
    let text = env::var(variable).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{variable} is no number: {text}")))
}
