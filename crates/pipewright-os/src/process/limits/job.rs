//! The figures that a job of Windows takes and keeps.

use std::time::Duration;

/// The pages in which the kernel keeps a limit on memory.
const PAGE_BYTES: u64 = 4096;

/// The rate of all processors together.
const ALL: f64 = 10_000.0;

/// Returns the largest limit on memory that the kernel keeps and that is no higher. A limit below one page is one page: 0 would be none.
pub(crate) fn kept_memory(bytes: u64) -> u64 {
    (bytes / PAGE_BYTES).max(1) * PAGE_BYTES
}

/// Returns the rate of a job that gets that time in one second, of all the processors of the machine.
pub(crate) fn cpu_rate(time_per_second: Duration, processors: usize) -> u32 {
    #[expect(clippy::cast_precision_loss, reason = "a few processors")]
    let processors = processors.max(1) as f64;
    let rate = (time_per_second.as_secs_f64() / processors * ALL).clamp(1.0, ALL);
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "in 1..=10000")]
    let rate = rate as u32;
    rate
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_on_memory_is_whole_pages_and_never_higher() {
        for (asked, kept) in [
            (2_000_000_000, 1_999_998_976),
            (256 << 20, 256 << 20),
            (4097, 4096),
            (1, 4096),
            (0, 4096),
            (u64::MAX, u64::MAX - 4095),
        ] {
            assert_eq!(kept_memory(asked), kept, "{asked}");
        }
    }

    #[test]
    fn a_rate_counts_the_processors_of_all_groups() {
        let second = Duration::from_secs(1);
        for (time, processors, rate) in [
            (second, 1, 10_000),
            (second, 128, 78),
            (second * 64, 128, 5_000),
            (second * 9, 4, 10_000),
        ] {
            assert_eq!(cpu_rate(time, processors), rate, "{time:?} of {processors}");
        }
        assert_eq!(cpu_rate(Duration::from_micros(1), 1024), 1, "no rate is no limit");
        assert_eq!(cpu_rate(Duration::MAX, 0), 10_000);
    }
}
