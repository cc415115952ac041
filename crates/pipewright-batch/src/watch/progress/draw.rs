//! Lines at the bottom of a terminal, which are drawn again and erased.

use std::io::Write;

use super::bar::Line;

/// The lines that are on the terminal.
#[derive(Debug, Default)]
pub(super) struct Lines {
    widths: Vec<usize>,
}

impl Lines {
    /// Replaces the lines. The cursor stays behind the last one.
    pub(super) fn draw<W: Write>(
        &mut self,
        writer: &mut W,
        lines: &[Line],
        columns: usize,
        is_ansi: bool,
    ) {
        let mut text = String::new();
        // Without cursor movements there is one line, and blanks erase the rest of it.
        let rest = self.widths.first().copied().unwrap_or(0);
        if is_ansi {
            text += &self.erasure(columns);
        } else {
            text.push('\r');
        }
        for (index, line) in lines.iter().enumerate() {
            text += if index > 0 { "\n" } else { "" };
            text += &line.painted;
        }
        if !is_ansi {
            let width = lines.first().map_or(0, |line| line.columns);
            text += &" ".repeat(rest.min(columns.saturating_sub(1)).saturating_sub(width));
        }
        self.widths = lines.iter().map(|line| line.columns).collect();
        // One write, so that no other process writes in between. Ignored: the batch goes on without a terminal.
        let _ = writer.write_all(text.as_bytes());
        let _ = writer.flush();
    }

    /// Erases the lines. Returns true if there were some.
    pub(super) fn erase<W: Write>(
        &mut self,
        writer: &mut W,
        columns: usize,
        is_ansi: bool,
    ) -> bool {
        if self.widths.is_empty() {
            return false;
        }
        let text = if is_ansi {
            self.erasure(columns)
        } else {
            let width = self.widths.first().copied().unwrap_or(0);
            format!("\r{:1$}\r", "", width.min(columns.saturating_sub(1)))
        };
        self.widths.clear();
        let _ = writer.write_all(text.as_bytes());
        let _ = writer.flush();
        true
    }

    /// Returns the movements to the start of the first line, and the erasure of everything from there.
    fn erasure(&self, columns: usize) -> String {
        if self.widths.is_empty() {
            return String::new();
        }
        // A terminal that was made narrower has wrapped the lines.
        let rows: usize =
            self.widths.iter().map(|width| width.div_ceil(columns.max(1)).max(1)).sum();
        match rows - 1 {
            0 => "\r\x1b[J".to_owned(),
            up => format!("\r\x1b[{up}A\x1b[J"),
        }
    }
}
