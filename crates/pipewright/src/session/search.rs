//! The unread output, and the search in it.

use std::ops::Range;

use super::pattern::{Match, Pattern};
use super::seen::seen;

/// The most unread output that is kept.
const MOST_UNREAD_BYTES: usize = 4 << 20;

/// The end of the output that errors carry, as a person has seen it.
const SEEN_BYTES: usize = 2 << 10;

/// The end of the output that is kept for it. Much of it may be colours.
const TAIL_BYTES: usize = 16 << 10;

/// The output that no wait has taken, and the last part of all output.
#[derive(Debug, Default)]
pub(super) struct Output {
    unread: Vec<u8>,
    tail: Vec<u8>,
}

/// A pattern that was found in the unread output.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Found {
    index: usize,
    range: Range<usize>,
    groups: Groups,
}

/// The groups of a regular expression.
type Groups = Vec<Option<Range<usize>>>;

impl Output {
    /// Adds output.
    pub(super) fn add(&mut self, bytes: &[u8]) {
        self.unread.extend_from_slice(bytes);
        // Twice the limit, so that not every chunk moves all of it.
        if self.unread.len() > 2 * MOST_UNREAD_BYTES {
            self.unread.drain(..self.unread.len() - MOST_UNREAD_BYTES);
        }
        self.tail.extend_from_slice(
            bytes.get(bytes.len().saturating_sub(TAIL_BYTES)..).unwrap_or(bytes),
        );
        if self.tail.len() > 2 * TAIL_BYTES {
            self.tail.drain(..self.tail.len() - TAIL_BYTES);
        }
    }

    pub(super) fn unread(&self) -> &[u8] {
        &self.unread
    }

    /// Takes all unread output.
    pub(super) fn take_unread(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.unread)
    }

    /// Returns the end of all output, as a person has seen it.
    pub(super) fn tail(&self) -> String {
        seen(&self.tail, SEEN_BYTES)
    }

    /// Returns the pattern that begins first; of those that begin together, the first of the list.
    pub(super) fn find(&self, patterns: &[Pattern], at_end: bool) -> Option<Found> {
        let found = patterns.iter().enumerate().filter_map(|(index, pattern)| {
            let (range, groups) = match pattern {
                Pattern::Bytes(bytes) => (find_bytes(&self.unread, bytes)?, Vec::new()),
                Pattern::End if at_end => (self.unread.len()..self.unread.len(), Vec::new()),
                Pattern::End | Pattern::Timeout => return None,
                #[cfg(feature = "regex")]
                Pattern::Regex(expression) => find_regex(&self.unread, expression)?,
                #[cfg(feature = "screen")]
                Pattern::Screen(_) => return None,
            };
            Some(Found { index, range, groups })
        });
        found.min_by_key(|found| (found.range.start, found.index))
    }

    /// Takes the output up to the end of the match.
    pub(super) fn take(&mut self, found: Found) -> Match {
        let rest = self.unread.split_off(found.range.end);
        let taken = std::mem::replace(&mut self.unread, rest);
        found.into_match(taken)
    }

    /// Returns the match of a pattern that takes all output.
    #[cfg(feature = "screen")]
    pub(super) fn take_all(&mut self, index: usize) -> Match {
        let end = self.unread.len();
        self.take(Found { index, range: end..end, groups: Vec::new() })
    }
}

impl Found {
    /// Returns a match without output.
    pub(super) fn nothing(index: usize) -> Found {
        Found { index, range: usize::MAX..usize::MAX, groups: Vec::new() }
    }

    /// Divides the output up to the end of the match.
    pub(super) fn into_match(self, mut taken: Vec<u8>) -> Match {
        let Found { index, range, groups } = self;
        let matched = taken.split_off(range.start.min(taken.len()));
        let relative = |group: Range<usize>| group.start - range.start..group.end - range.start;
        let groups = groups.into_iter().map(|group| group.map(relative)).collect();
        Match { index, before: taken, matched, groups }
    }
}

fn find_bytes(output: &[u8], bytes: &[u8]) -> Option<Range<usize>> {
    let Some((first, others)) = bytes.split_first() else { return Some(0..0) };
    let last_start = output.len().checked_sub(bytes.len())?;
    let mut from = 0;
    loop {
        let starts = output.get(from..=last_start)?;
        let at = from + starts.iter().position(|byte| byte == first)?;
        if output.get(at + 1..at + bytes.len()) == Some(others) {
            return Some(at..at + bytes.len());
        }
        from = at + 1;
    }
}

#[cfg(feature = "regex")]
fn find_regex(output: &[u8], expression: &regex::bytes::Regex) -> Option<(Range<usize>, Groups)> {
    let captures = expression.captures(output)?;
    let groups = captures.iter().skip(1).map(|group| group.map(|group| group.range())).collect();
    captures.get(0).map(|whole| (whole.range(), groups))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn output(text: &str) -> Output {
        let mut output = Output::default();
        output.add(text.as_bytes());
        output
    }

    fn found(
        output: &mut Output,
        patterns: &[Pattern],
        at_end: bool,
    ) -> Option<(usize, String, String)> {
        let found = output.find(patterns, at_end)?;
        let found = output.take(found);
        Some((found.index, found.before_text(), found.text()))
    }

    #[test]
    fn a_match_takes_the_output_up_to_its_end() {
        let mut it = output("one two three");
        let wanted = (0, "one ".to_owned(), "two".to_owned());
        assert_eq!(found(&mut it, &["two".into()], false), Some(wanted));
        assert_eq!(it.unread(), b" three");
        assert_eq!(found(&mut it, &["two".into()], false), None);
        assert_eq!(it.tail(), "one two three");
    }

    #[test]
    fn the_first_in_the_output_counts_and_then_the_first_of_the_list() {
        let mut it = output("abcabd");
        let wanted = (1, String::new(), "abc".to_owned());
        assert_eq!(found(&mut it, &["abd".into(), "abc".into(), "ab".into()], false), Some(wanted));
    }

    #[test]
    fn a_pattern_is_found_across_chunks() {
        let mut it = output("aaaa");
        assert_eq!(found(&mut it, &["aab".into()], false), None);
        it.add(b"b");
        let wanted = (0, "aa".to_owned(), "aab".to_owned());
        assert_eq!(found(&mut it, &["aab".into()], false), Some(wanted));
    }

    #[test]
    fn the_end_takes_everything() {
        let mut it = output("rest");
        assert_eq!(found(&mut it, &[Pattern::End], false), None);
        let wanted = (0, "rest".to_owned(), String::new());
        assert_eq!(found(&mut it, &[Pattern::End], true), Some(wanted));
    }

    #[test]
    fn an_empty_pattern_matches_at_once() {
        assert_eq!(
            found(&mut output(""), &["".into()], false),
            Some((0, String::new(), String::new()))
        );
    }

    #[test]
    fn unread_output_and_tail_are_bounded() {
        let mut it = Output::default();
        for _ in 0..40 {
            it.add(&vec![b'x'; 1 << 20]);
        }
        it.add(b"end");
        assert!(it.unread().len() <= 2 * MOST_UNREAD_BYTES && it.unread().ends_with(b"xend"));
        assert!(it.tail.len() <= 2 * TAIL_BYTES);
        assert!(it.tail().len() == SEEN_BYTES && it.tail().ends_with("xend"));
    }

    #[cfg(feature = "regex")]
    #[test]
    fn groups_are_relative_to_the_match() {
        let mut it = output("at 10:32 now");
        let pattern = Pattern::regex(r"(\d+):(\d+)( pm)?").unwrap();
        let found = it.find(&[pattern], false).unwrap();
        let found = it.take(found);
        assert_eq!(found.before_text(), "at ");
        let groups =
            [found.group(0), found.group(1), found.group(2), found.group(3), found.group(4)];
        let text = |text: &'static str| Some(text.as_bytes());
        assert_eq!(groups, [text("10:32"), text("10"), text("32"), None, None]);
    }
}
