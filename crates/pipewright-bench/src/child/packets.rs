//! The lengths of the messages, which both sides know.

/// Messages of one length, or of the lengths in a build.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PacketSizes {
    /// The length; for mixed lengths the average.
    pub(crate) bytes: usize,
    pub(crate) mixed: bool,
}

impl PacketSizes {
    /// Messages that all have one length.
    pub(crate) fn all_of(bytes: usize) -> PacketSizes {
        PacketSizes { bytes, mixed: false }
    }

    /// Returns the length of a message.
    pub(crate) fn length(self, number: u64) -> usize {
        if !self.mixed {
            return self.bytes;
        }
        // In hundredths of the average: 14 of 20 are small, one is large.
        let share = match number * 7 % 20 {
            0..14 => 23,
            14..19 => 173,
            _ => 813,
        };
        self.bytes * share / 100
    }

    /// Returns the length of the longest message.
    pub(crate) fn longest(self) -> usize {
        (0..20).map(|number| self.length(number)).max().unwrap_or(self.bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::PacketSizes;

    #[test]
    fn mixed_messages_have_the_stated_average_length() {
        let packets = PacketSizes { bytes: 86_784, mixed: true };
        let total: usize = (0..5000).map(|number| packets.length(number)).sum();
        assert!((total / 5000).abs_diff(86_784) < 100, "{total}");
        assert_eq!((total + 500_000) / 1_000_000, 434);
        assert!(packets.longest() > 8 * 86_784);
        assert_eq!(PacketSizes::all_of(7).longest(), 7);
    }
}
