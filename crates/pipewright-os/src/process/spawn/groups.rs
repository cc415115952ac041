//! The supplementary groups of a child on the systems that keep the effective group in the list.

/// Returns the list that `setgroups` takes there: its first group becomes the effective one (setgroups(2) of the BSDs), and a place is
/// lost to it unless it is named once only.
pub(super) fn with_effective_first(effective: u32, groups: &[u32]) -> Vec<u32> {
    let others = groups.iter().copied().filter(|group| *group != effective);
    std::iter::once(effective).chain(others).collect()
}

#[cfg(test)]
mod tests {
    use super::with_effective_first;

    #[test]
    fn the_effective_group_comes_first_and_once() {
        assert_eq!(with_effective_first(20, &[]), [20]);
        assert_eq!(with_effective_first(20, &[12, 80]), [20, 12, 80]);
        assert_eq!(with_effective_first(20, &[12, 20, 80, 20]), [20, 12, 80]);
    }
}
