//! Patterns, the unread output and the search in it, which looks at each byte once; the output as a person has seen it.

use std::fmt;
use std::ops::Range;

#[cfg(feature = "screen")]
use super::screen::{Screen, ScreenTest};
#[cfg(feature = "regex")]
use crate::error::{Error, ErrorKind, FailedOperation};

/// Something to wait for in the output of a [`Session`](super::Session). Text and bytes convert to it.
#[non_exhaustive]
pub enum Pattern {
    /// These bytes.
    Bytes(Vec<u8>),
    /// The end of the output: no process has the terminal open any more.
    End,
    /// The end of the time. The match takes no output.
    Timeout,
    /// A match of a regular expression: [`Pattern::regex`].
    #[cfg(feature = "regex")]
    #[doc(hidden)]
    Regex(Box<regex::bytes::Regex>),
    /// A screen: [`Pattern::screen`].
    #[cfg(feature = "screen")]
    #[doc(hidden)]
    Screen(ScreenTest),
}

impl Pattern {
    /// Returns a pattern for a regular expression, in the syntax of the crate `regex` (feature `regex`).
    ///
    /// The expression sees the output so far, so one that ends with a repetition can match a part of what the program
    /// is about to write: let it end with a text that comes after it.
    ///
    /// # Errors
    /// [`InvalidInput`](crate::ErrorKind::InvalidInput) for an expression that is not valid.
    ///
    /// ```
    /// # if cfg!(unix) {
    /// use pipewright::{Command, Pattern, Session};
    /// let mut session = Session::spawn(Command::new("echo").arg("version 1.85.0"))?;
    /// let found = session.expect(Pattern::regex(r"version (\d+)\.(\d+)\.")?)?;
    /// assert_eq!(found.group(2), Some(&b"85"[..]));
    /// # }
    /// # Ok::<(), pipewright::Error>(())
    /// ```
    #[cfg(feature = "regex")]
    pub fn regex(expression: &str) -> Result<Pattern, Error> {
        let made = regex::bytes::Regex::new(expression).map_err(|error| {
            let source = std::io::Error::new(std::io::ErrorKind::InvalidInput, error);
            let operation = FailedOperation::Child("search the output with");
            Error::new(expression.as_ref(), operation, ErrorKind::InvalidInput, Some(source))
        });
        Ok(Pattern::Regex(Box::new(made?)))
    }

    /// Returns a pattern for a screen that passes the test (feature `screen`). The match takes all output.
    ///
    /// ```
    /// # if cfg!(unix) {
    /// use pipewright::{Command, Pattern, Session};
    /// // Written from right to left: no text in the output is "hello".
    /// let mut session = Session::spawn(Command::new("printf").arg(r"\033[1;4Hlo\033[1;1Hhel"))?;
    /// session.expect(Pattern::screen(|screen| screen.contains("hello")))?;
    /// # }
    /// # Ok::<(), pipewright::Error>(())
    /// ```
    #[cfg(feature = "screen")]
    #[must_use]
    pub fn screen(test: impl Fn(&Screen<'_>) -> bool + Send + Sync + 'static) -> Pattern {
        Pattern::Screen(ScreenTest(Box::new(test)))
    }
}

impl From<&str> for Pattern {
    fn from(text: &str) -> Pattern {
        Pattern::Bytes(text.as_bytes().to_vec())
    }
}

impl From<String> for Pattern {
    fn from(text: String) -> Pattern {
        Pattern::Bytes(text.into_bytes())
    }
}

impl From<&[u8]> for Pattern {
    fn from(bytes: &[u8]) -> Pattern {
        Pattern::Bytes(bytes.to_vec())
    }
}

impl From<Vec<u8>> for Pattern {
    fn from(bytes: Vec<u8>) -> Pattern {
        Pattern::Bytes(bytes)
    }
}

impl fmt::Display for Pattern {
    /// Writes the pattern as an error names it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Pattern::Bytes(bytes) => write!(f, "{:?}", String::from_utf8_lossy(bytes)),
            Pattern::End => f.write_str("the end of the output"),
            Pattern::Timeout => f.write_str("the end of the time"),
            #[cfg(feature = "regex")]
            Pattern::Regex(expression) => write!(f, "/{}/", expression.as_str()),
            #[cfg(feature = "screen")]
            Pattern::Screen(_) => f.write_str("a screen"),
        }
    }
}

impl fmt::Debug for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Pattern({self})")
    }
}

/// Returns the patterns in the words of an error.
pub(super) fn describe(patterns: &[Pattern]) -> String {
    let all: Vec<String> = patterns.iter().map(ToString::to_string).collect();
    all.join(" or ")
}

/// The output that a wait has taken.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Match {
    /// The place of the pattern in its list.
    pub index: usize,
    /// The output before the match, from the end of the previous one.
    pub before: Vec<u8>,
    /// The output that matched. Empty for the end, the timeout and a screen.
    pub matched: Vec<u8>,
    /// The number of bytes before `before` that were dropped, because more than 4 MiB were unread.
    pub dropped: u64,
    /// The groups of a regular expression in it.
    pub(super) groups: Vec<Option<Range<usize>>>,
}

impl Match {
    /// Returns the output before the match as text. Bytes that are not UTF-8 become U+FFFD.
    #[must_use]
    pub fn before_text(&self) -> String {
        String::from_utf8_lossy(&self.before).into_owned()
    }

    /// Returns the output that matched as text.
    #[must_use]
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.matched).into_owned()
    }

    /// Returns a group of a regular expression; 0 is the whole match.
    #[must_use]
    pub fn group(&self, number: usize) -> Option<&[u8]> {
        if number == 0 {
            return Some(&self.matched);
        }
        self.matched.get(self.groups.get(number - 1)?.clone()?)
    }
}

/// The most unread output that is kept.
const MOST_UNREAD_BYTES: usize = 4 << 20;

/// The end of the output that errors carry, as a person has seen it.
const SEEN_BYTES: usize = 2 << 10;

/// The end of the output that is kept for it. Much of it may be colours.
const TAIL_BYTES: usize = 16 << 10;

/// The unread output that a regular expression is searched in at each chunk.
#[cfg(feature = "regex")]
const CHEAP_BYTES: usize = 64 << 10;

/// The output that no wait has taken, and the last part of all output.
#[derive(Debug, Default)]
pub(super) struct Output {
    unread: Vec<u8>,
    /// The number of bytes that were dropped since the last match, before `unread`.
    dropped: u64,
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
            let excess = self.unread.len() - MOST_UNREAD_BYTES;
            self.unread.drain(..excess);
            self.dropped += excess as u64;
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
        self.dropped = 0;
        std::mem::take(&mut self.unread)
    }

    /// Returns the number of bytes before the unread output that were dropped.
    pub(super) fn dropped(&self) -> u64 {
        self.dropped
    }

    /// Returns the end of all output, as a person has seen it.
    pub(super) fn tail(&self) -> String {
        seen(&self.tail, SEEN_BYTES)
    }

    /// Takes the output up to the end of the match.
    pub(super) fn take(&mut self, found: Found) -> Match {
        let rest = self.unread.split_off(found.range.end);
        let taken = std::mem::replace(&mut self.unread, rest);
        found.into_match(taken, std::mem::take(&mut self.dropped))
    }

    /// Returns the match of a pattern that takes all output.
    #[cfg(feature = "screen")]
    pub(super) fn take_all(&mut self, index: usize) -> Match {
        let end = self.unread.len();
        self.take(Found { index, range: end..end, groups: Vec::new() })
    }
}

/// The search of one wait: it goes on where it was, however the output comes.
pub(super) struct Search<'a> {
    patterns: &'a [Pattern],
    /// The state of each literal; empty for other patterns.
    literals: Vec<Literal>,
    /// The number of bytes, with those that were dropped, that all literals have been compared with.
    searched: u64,
    /// The size that the unread output has to have for the next search for a regular expression. It searches all
    /// output, so while output comes without a pause, it waits until there is half as much more.
    #[cfg(feature = "regex")]
    regex_from: u64,
    is_postponed: bool,
    /// The number of bytes that were looked at, for tests.
    #[cfg(test)]
    looked_at: u64,
}

impl<'a> Search<'a> {
    pub(super) fn new(patterns: &'a [Pattern]) -> Search<'a> {
        let literal = |pattern: &Pattern| match pattern {
            Pattern::Bytes(bytes) => Literal::new(bytes),
            _ => Literal::default(),
        };
        Search {
            patterns,
            literals: patterns.iter().map(literal).collect(),
            searched: 0,
            #[cfg(feature = "regex")]
            regex_from: 0,
            is_postponed: false,
            #[cfg(test)]
            looked_at: 0,
        }
    }

    pub(super) fn patterns(&self) -> &'a [Pattern] {
        self.patterns
    }

    /// Returns true if a search that is expensive waits for a pause of the output.
    pub(super) fn is_postponed(&self) -> bool {
        self.is_postponed
    }

    /// Returns the pattern that begins first; of those that begin together, the first of the list. `may_follow`: more
    /// output may be there already, so a search that is expensive can wait.
    pub(super) fn find(
        &mut self,
        output: &Output,
        at_end: bool,
        may_follow: bool,
    ) -> Option<Found> {
        let unread = output.unread.as_slice();
        let all = output.dropped + unread.len() as u64;
        let from = self.searched.saturating_sub(output.dropped);
        let new =
            usize::try_from(from).ok().and_then(|from| unread.get(from..)).unwrap_or_default();
        self.searched = all;
        #[cfg(feature = "regex")]
        let searches_regex = self.is_regex_due(unread.len(), all, at_end || !may_follow);
        #[cfg(not(feature = "regex"))]
        let _ = may_follow;
        self.is_postponed = false;
        let mut first: Option<Found> = None;
        for (index, (pattern, literal)) in self.patterns.iter().zip(&mut self.literals).enumerate()
        {
            let (range, groups) = match pattern {
                Pattern::Bytes(bytes) => {
                    #[cfg(test)]
                    {
                        self.looked_at += new.len() as u64;
                    }
                    let Some(rest) = literal.find(bytes, new) else { continue };
                    let end = unread.len() - rest;
                    let Some(start) = end.checked_sub(bytes.len()) else { continue };
                    (start..end, Vec::new())
                }
                Pattern::End if at_end => (unread.len()..unread.len(), Vec::new()),
                Pattern::End | Pattern::Timeout => continue,
                #[cfg(feature = "regex")]
                Pattern::Regex(expression) => {
                    if !searches_regex {
                        self.is_postponed = true;
                        continue;
                    }
                    #[cfg(test)]
                    {
                        self.looked_at += unread.len() as u64;
                    }
                    let Some(found) = find_regex(unread, expression) else { continue };
                    found
                }
                #[cfg(feature = "screen")]
                Pattern::Screen(_) => continue,
            };
            if first.as_ref().is_none_or(|first| range.start < first.range.start) {
                first = Some(Found { index, range, groups });
            }
        }
        first
    }

    /// Returns true if regular expressions are searched now, and sets the size for the next time.
    #[cfg(feature = "regex")]
    fn is_regex_due(&mut self, unread_bytes: usize, all: u64, is_pause: bool) -> bool {
        let is_due = is_pause || unread_bytes < CHEAP_BYTES || all >= self.regex_from;
        if is_due {
            self.regex_from = all + all / 2;
        }
        is_due
    }
}

impl Found {
    /// Returns a match without output.
    pub(super) fn nothing(index: usize) -> Found {
        Found { index, range: usize::MAX..usize::MAX, groups: Vec::new() }
    }

    /// Divides the output up to the end of the match.
    pub(super) fn into_match(self, mut taken: Vec<u8>, dropped: u64) -> Match {
        let Found { index, range, groups } = self;
        let matched = taken.split_off(range.start.min(taken.len()));
        let relative = |group: Range<usize>| group.start - range.start..group.end - range.start;
        let groups = groups.into_iter().map(|group| group.map(relative)).collect();
        Match { index, before: taken, matched, groups, dropped }
    }
}

/// The search for a literal by Knuth, Morris and Pratt: a comparison or two a byte, whatever the bytes are.
#[derive(Debug, Default)]
struct Literal {
    /// For each number of first bytes that are there: the longest beginning of the literal that also ends them, but not
    /// all of them.
    borders: Vec<usize>,
    /// The number of first bytes of the literal that the output ends with.
    there: usize,
}

impl Literal {
    fn new(bytes: &[u8]) -> Literal {
        let mut borders = vec![0; bytes.len() + 1];
        let mut border = 0;
        for (at, byte) in bytes.iter().enumerate().skip(1) {
            while border > 0 && bytes.get(border) != Some(byte) {
                border = borders.get(border).copied().unwrap_or(0);
            }
            border += usize::from(bytes.get(border) == Some(byte));
            if let Some(place) = borders.get_mut(at + 1) {
                *place = border;
            }
        }
        Literal { borders, there: 0 }
    }

    /// Goes on with new output. Returns the number of bytes after the first match.
    fn find(&mut self, bytes: &[u8], new: &[u8]) -> Option<usize> {
        if bytes.is_empty() {
            // The start of the output, however much there is.
            return Some(new.len());
        }
        for (at, byte) in new.iter().enumerate() {
            while self.there > 0 && bytes.get(self.there) != Some(byte) {
                self.there = self.borders.get(self.there).copied().unwrap_or(0);
            }
            self.there += usize::from(bytes.get(self.there) == Some(byte));
            if self.there == bytes.len() {
                return Some(new.len() - at - 1);
            }
        }
        None
    }
}

#[cfg(feature = "regex")]
fn find_regex(output: &[u8], expression: &regex::bytes::Regex) -> Option<(Range<usize>, Groups)> {
    let captures = expression.captures(output)?;
    let groups = captures.iter().skip(1).map(|group| group.map(|group| group.range())).collect();
    captures.get(0).map(|whole| (whole.range(), groups))
}

/// The distance of tab stops.
const TAB: usize = 8;

/// The longest line that is kept as one. A terminal wraps sooner.
const MOST_COLUMNS: usize = 4 << 10;

/// The lines of a terminal without a height: what scrolls away stays.
#[derive(Default)]
struct Lines {
    text: String,
    line: Vec<char>,
    column: usize,
}

/// Returns what these bytes show, on a terminal without a height, and no more than the last `most` bytes of it.
pub(super) fn seen(bytes: &[u8], most: usize) -> String {
    let text = String::from_utf8_lossy(bytes);
    let mut lines = Lines::default();
    let mut rest = text.chars();
    while let Some(character) = rest.next() {
        match character {
            '\x1b' => lines.sequence(&mut rest),
            other => lines.put(other),
        }
    }
    lines.end();
    let seen = lines.text;
    let from = seen.len().saturating_sub(most);
    let from = (from..=seen.len()).find(|at| seen.is_char_boundary(*at)).unwrap_or(0);
    seen.get(from..).unwrap_or_default().to_owned()
}

impl Lines {
    fn put(&mut self, character: char) {
        match character {
            '\n' => {
                self.end();
                self.text.push('\n');
            }
            '\r' => self.column = 0,
            '\x08' => self.column = self.column.saturating_sub(1),
            '\t' => self.go_to((self.column / TAB + 1) * TAB),
            control if control.is_control() => {}
            shown => {
                if self.column >= MOST_COLUMNS {
                    self.end();
                }
                self.go_to(self.column);
                match self.line.get_mut(self.column) {
                    Some(place) => *place = shown,
                    None => self.line.push(shown),
                }
                self.column += 1;
            }
        }
    }

    /// Moves the cursor in the line. What it passes over is blank.
    fn go_to(&mut self, column: usize) {
        self.column = column.min(MOST_COLUMNS);
        while self.line.len() < self.column {
            self.line.push(' ');
        }
    }

    /// Ends the line, with the column of a line feed: terminals get a carriage return with it.
    fn end(&mut self) {
        let line: String = self.line.drain(..).collect();
        self.text.push_str(line.trim_end());
        self.column = 0;
    }

    /// Reads a control sequence, and obeys those that change the line.
    fn sequence(&mut self, rest: &mut std::str::Chars<'_>) {
        match rest.next() {
            Some('[') => {
                let mut parameters = String::new();
                let last = rest.find(|character| {
                    let ends = matches!(character, '\x40'..='\x7e');
                    if !ends {
                        parameters.push(*character);
                    }
                    ends
                });
                self.obey(last.unwrap_or_default(), &parameters);
            }
            // A string, such as a title: up to BEL or ESC \.
            Some(']' | 'P' | '^' | '_') => {
                while let Some(character) = rest.next() {
                    if character == '\x07' {
                        return;
                    }
                    if character == '\x1b' {
                        rest.next();
                        return;
                    }
                }
            }
            // A choice of a character set.
            Some('(' | ')' | '*' | '+' | '#' | '%') => drop(rest.next()),
            _ => {}
        }
    }

    fn obey(&mut self, last: char, parameters: &str) {
        let first = parameters.split(';').next().unwrap_or_default();
        let count = || first.parse().unwrap_or(1_usize).clamp(1, MOST_COLUMNS);
        match (last, first) {
            ('K', "" | "0") => self.line.truncate(self.column),
            ('K', "2") => self.line.clear(),
            ('C', _) => self.go_to(self.column + count()),
            ('D', _) => self.column = self.column.saturating_sub(count()),
            ('G', _) => self.go_to(count() - 1),
            // The cursor goes to another row, and the screen is drawn anew: a line of its own.
            ('H' | 'f' | 'J', _) if !self.line.is_empty() => {
                self.end();
                self.text.push('\n');
            }
            _ => {}
        }
    }
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
        let found = Search::new(patterns).find(output, at_end, false)?;
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

    /// Searches a stream of chunks. Returns the place of the match, and the number of bytes that were looked at.
    fn search(pattern: Pattern, chunks: &[&[u8]], may_follow: bool) -> (Option<u64>, u64) {
        let patterns = [pattern];
        let mut search = Search::new(&patterns);
        let mut output = Output::default();
        for chunk in chunks {
            output.add(chunk);
            if let Some(found) = search.find(&output, false, may_follow) {
                let start = output.dropped + found.range.start as u64;
                return (Some(start), search.looked_at);
            }
        }
        (None, search.looked_at)
    }

    #[test]
    fn each_byte_is_compared_once_with_a_literal() {
        let chunk = [b'x'; 4096];
        let chunks = vec![chunk.as_slice(); 1024];
        let all = 1024 * 4096;
        assert_eq!(search("nope".into(), &chunks, true), (None, all));
        // Its first bytes fill the output.
        assert_eq!(search(format!("{}END", "x".repeat(5000)).into(), &chunks, true), (None, all));
    }

    #[test]
    fn a_literal_is_found_wherever_chunks_divide_it() {
        let text = b"aabaabaaabaabaac";
        for literal in ["aabaabaac", "aabaaabaab", "aab", "aac", "c", "baaabaabaac"] {
            let wanted = text.windows(literal.len()).position(|it| it == literal.as_bytes());
            for size in 1..=text.len() {
                let chunks: Vec<&[u8]> = text.chunks(size).collect();
                let (found, _) = search(literal.into(), &chunks, true);
                assert_eq!(found, wanted.map(|at| at as u64), "{literal} in chunks of {size}");
            }
        }
    }

    #[cfg(feature = "regex")]
    #[test]
    fn a_regular_expression_is_not_searched_at_each_chunk_that_comes_without_a_pause() {
        let chunk = [b'x'; 4096];
        let chunks = vec![chunk.as_slice(); 1024];
        let all = 1024 * 4096;
        let (found, looked_at) = search(Pattern::regex("END").unwrap(), &chunks, true);
        assert!(found.is_none() && looked_at <= 4 * all, "{looked_at} of {all}");
        // At each pause it is.
        let (found, _) = search(Pattern::regex("x{5000}").unwrap(), &chunks[..2], false);
        assert_eq!(found, Some(0));
    }

    #[test]
    fn a_match_says_how_much_was_dropped_before_it() {
        let mut it = Output::default();
        let chunk = vec![b'x'; 1 << 20];
        (0..20).for_each(|_| it.add(&chunk));
        let found = Search::new(&[Pattern::End]).find(&it, true, false).unwrap();
        let found = it.take(found);
        assert_eq!(found.dropped + found.before.len() as u64, 20 << 20);
        it.add(b"y");
        let found = Search::new(&["y".into()]).find(&it, false, false).unwrap();
        assert_eq!(it.take(found).dropped, 0);
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
        let found = Search::new(&[pattern]).find(&it, false, false).unwrap();
        let found = it.take(found);
        assert_eq!(found.before_text(), "at ");
        let groups =
            [found.group(0), found.group(1), found.group(2), found.group(3), found.group(4)];
        let text = |text: &'static str| Some(text.as_bytes());
        assert_eq!(groups, [text("10:32"), text("10"), text("32"), None, None]);
    }

    fn all(bytes: &[u8]) -> String {
        seen(bytes, usize::MAX)
    }

    #[test]
    fn colours_and_titles_are_not_seen() {
        let bytes = b"\x1b]0;title\x07\x1b[1;31mred\x1b[0m \x1b(Bplain\x1b]8;;x\x1b\\link\r\n";
        assert_eq!(all(bytes), "red plainlink\n");
    }

    #[test]
    fn a_line_is_seen_as_it_was_overwritten() {
        assert_eq!(all(b"  5 %\r 50 %\r100 %\r\ndone"), "100 %\ndone");
        assert_eq!(all(b"a long line\rshort\x1b[K\r\n"), "short\n");
        assert_eq!(all(b"abc\x08\x08X\r\n"), "aXc\n");
        assert_eq!(all(b"a\tb\x1b[3Cc\x1b[1Gd"), "d       b   c");
    }

    #[test]
    fn bytes_that_are_no_text_and_sequences_that_do_not_end_are_harmless() {
        assert_eq!(all(b"a\xffb\x00\x1b[12"), "a\u{fffd}b");
        assert_eq!(all(b"a\x1b"), "a");
        assert_eq!(all(b"a\x1b]title"), "a");
        let far = all(b"\x1b[999999999999C.\x1b[4000000000C.\x1b[65535Gx");
        assert!(far.len() < 2 * MOST_COLUMNS, "{}", far.len());
    }

    #[test]
    fn the_end_of_a_long_line_is_seen() {
        let line = format!("{}end", "x".repeat(3 * MOST_COLUMNS));
        assert_eq!(all(line.as_bytes()), line);
        assert_eq!(seen(line.as_bytes(), 4), "xend");
    }

    #[test]
    fn the_last_bytes_are_kept_at_the_begin_of_a_character() {
        assert_eq!(seen("aäöü".as_bytes(), 5), "öü");
        assert_eq!(seen(b"abc", 0), "");
    }
}
