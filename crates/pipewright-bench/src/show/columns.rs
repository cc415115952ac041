//! Columns of text, and text that does not fit.

/// Cuts text to that many characters, and marks the cut.
pub(crate) fn cut(text: &str, most: usize) -> String {
    if text.chars().count() <= most {
        return text.to_owned();
    }
    let mut cut: String = text.chars().take(most.saturating_sub(1)).collect();
    if most > 0 {
        cut.push('…');
    }
    cut
}

/// Returns the widths of the columns.
pub(super) fn widths<'a>(rows: impl IntoIterator<Item = &'a [String]>) -> Vec<usize> {
    let mut widths: Vec<usize> = Vec::new();
    for row in rows {
        for (column, text) in row.iter().enumerate() {
            let width = text.chars().count();
            match widths.get_mut(column) {
                Some(known) => *known = width.max(*known),
                None => widths.push(width),
            }
        }
    }
    widths
}

/// Splits columns into ranges that fit beside a first column of that width.
pub(super) fn chunks(first: usize, widths: &[usize], most: usize) -> Vec<std::ops::Range<usize>> {
    const GAP: usize = 2;
    let mut chunks = Vec::new();
    let (mut start, mut used) = (0, first);
    for (column, width) in widths.iter().enumerate() {
        if column > start && used + GAP + width > most {
            chunks.push(start..column);
            (start, used) = (column, first);
        }
        used += GAP + width;
    }
    if start < widths.len() {
        chunks.push(start..widths.len());
    }
    chunks
}

/// Wraps text at that many characters, without cutting words.
pub(super) fn wrap(text: &str, most: usize, indent: &str) -> String {
    let mut wrapped = String::new();
    let mut width = 0;
    for word in text.split_whitespace() {
        let length = word.chars().count();
        if width > 0 && width + 1 + length > most {
            wrapped.push('\n');
            wrapped.push_str(indent);
            width = indent.chars().count();
        } else if width > 0 {
            wrapped.push(' ');
            width += 1;
        }
        wrapped.push_str(word);
        width += length;
    }
    wrapped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_that_do_not_fit_go_below() {
        let ends = |widths: &[usize], most| {
            chunks(8, widths, most)
                .into_iter()
                .map(|chunk| (chunk.start, chunk.end))
                .collect::<Vec<_>>()
        };
        assert_eq!(ends(&[10, 10, 10], 80), [(0, 3)]);
        assert_eq!(ends(&[10, 10, 10], 32), [(0, 2), (2, 3)]);
        // A column that is too wide has its own range.
        assert_eq!(ends(&[50, 10], 32), [(0, 1), (1, 2)]);
        assert_eq!(ends(&[], 32), []);
    }

    #[test]
    fn text_is_cut_and_wrapped_at_characters() {
        assert_eq!((cut("µsµs", 3).as_str(), cut("µs", 2).as_str()), ("µs…", "µs"));
        assert_eq!(wrap("aa bb  cc", 5, "  "), "aa bb\n  cc");
        assert_eq!(wrap("longword b", 3, ""), "longword\nb");
    }
}
