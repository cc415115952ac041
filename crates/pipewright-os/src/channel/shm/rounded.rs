//! The sizes that a system gives to an object: whole pages.

/// The sizes of pages of macOS: of Intel's processors, and of Apple's. A process under Rosetta sees the former, and its kernel has the
/// latter.
const PAGE_BYTES: [u64; 2] = [4 << 10, 16 << 10];

/// Returns true if an object that was made with that size has the size that was found: the kernel rounds it up to whole pages.
pub(super) fn has_size(found: u64, made: u64) -> bool {
    PAGE_BYTES.iter().any(|page| made.checked_next_multiple_of(*page) == Some(found))
}

#[cfg(test)]
mod tests {
    use super::has_size;

    #[test]
    fn an_object_has_its_size_or_that_of_its_pages_and_no_other() {
        // A ring of 64 KiB behind its words, on pages of 4 KiB and of 16 KiB.
        let made = (4 << 10) + (64 << 10);
        for (found, fits) in [
            (made, true),
            (80 << 10, true),
            (made - 1, false),
            (made + 1, false),
            (made + (4 << 10), false),
            (96 << 10, false),
            (0, false),
        ] {
            assert_eq!(has_size(found, made), fits, "{found}");
        }
        assert!(!has_size(0, u64::MAX));
    }
}
