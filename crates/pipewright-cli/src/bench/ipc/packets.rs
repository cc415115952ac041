//! How long each message is: both sides know it.

/// Messages of one length, or of those of a build.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::bench) struct Packets {
    /// The length; of mixed ones the average.
    pub(in crate::bench) bytes: usize,
    pub(in crate::bench) mixed: bool,
}

impl Packets {
    /// Of the length that each has.
    pub(in crate::bench) fn all_of(bytes: usize) -> Packets {
        Packets { bytes, mixed: false }
    }

    pub(in crate::bench) fn length(self, number: u64) -> usize {
        if !self.mixed {
            return self.bytes;
        }
        // Hundredths of the average: of twenty 14 are small, and one is large.
        let share = match number * 7 % 20 {
            0..14 => 23,
            14..19 => 173,
            _ => 813,
        };
        self.bytes * share / 100
    }

    pub(in crate::bench) fn longest(self) -> usize {
        (0..20).map(|number| self.length(number)).max().unwrap_or(self.bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::Packets;

    #[test]
    fn mixed_ones_are_on_average_as_long_as_it_says() {
        let packets = Packets { bytes: 86_784, mixed: true };
        let total: usize = (0..5000).map(|number| packets.length(number)).sum();
        assert!((total / 5000).abs_diff(86_784) < 100, "{total}");
        assert_eq!((total + 500_000) / 1_000_000, 434);
        assert!(packets.longest() > 8 * 86_784);
        assert_eq!(Packets::all_of(7).longest(), 7);
    }
}
