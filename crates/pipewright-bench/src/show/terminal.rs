//! A report for a terminal: charts of braille dots or blocks, each with its verdict, tables, warnings, and the verdict
//! last. That of several benchmarks also starts with its verdicts, for a reader who scrolls up, or reads a file.

use super::NOT_MEASURED;
use super::table::{self, TextTable};
use crate::draw::{BlockAxis, CURVES, Scale, TERMINAL, letter};
use crate::report::{Axis, BenchReport, Cell, Chart, Section};
use crate::units::{self, wrap};

/// Returns the report in a width of that many columns.
pub(crate) fn terminal(report: &BenchReport, columns: usize, colors: bool) -> String {
    let columns = columns.clamp(30, 200);
    let paint = Paint { colors };
    let mut text = String::new();
    let mut say = |pen, line: &str| {
        text.push_str(&paint.text(pen, line));
        text.push('\n');
    };
    say(Pen::Bold, &wrap(&super::heading(report), columns, ""));
    for line in report.sections.iter().flat_map(Section::lines) {
        say(Pen::Bold, &wrap(&line, columns, "  "));
    }
    let when = units::date(report.started_unix_seconds);
    say(Pen::Plain, &wrap(&format!("{when}; {}", report.machine.line()), columns, ""));
    say(Pen::Plain, &wrap(&super::method(report), columns, ""));
    for chart in &report.charts {
        text.push('\n');
        text.push_str(&chart_text(chart, report, columns, paint));
    }
    let mut notes = report.warnings.iter().map(|warning| warning.message.as_str()).peekable();
    if notes.peek().is_some() {
        text.push('\n');
    }
    for note in notes {
        text.push_str(&wrap(&format!("! {note}"), columns, "  "));
        text.push('\n');
    }
    text.push('\n');
    for line in [Some(&report.verdict), report.comparison.as_ref().map(|it| &it.verdict)] {
        for line in line.into_iter().flat_map(|lines| lines.lines()) {
            text.push_str(&paint.text(Pen::Bold, &wrap(line, columns, "")));
            text.push('\n');
        }
    }
    text
}

fn chart_text(chart: &Chart, report: &BenchReport, columns: usize, paint: Paint) -> String {
    let mut text = paint.text(Pen::Bold, &wrap(&chart.title, columns, ""));
    text.push_str("\n\n");
    if !chart.is_measured() {
        text.push_str(NOT_MEASURED);
        text.push('\n');
        return text;
    }
    text.push_str(&graph(chart, columns, paint));
    if !chart.verdict.is_empty() {
        text.push('\n');
        text.push_str(&paint.text(Pen::Bold, &wrap(&chart.verdict, columns, "")));
        text.push('\n');
    }
    let compared = report.comparison.as_ref();
    if chart.axis == Axis::Cases && compared.is_none() {
        // The bars show the figures.
        return text;
    }
    text.push('\n');
    for reference in &chart.references {
        let value = chart.unit.show(reference.value);
        text.push_str(&paint.text(Pen::Faint, &format!("{value:>10}  {}\n", reference.label)));
    }
    if !chart.references.is_empty() {
        text.push('\n');
    }
    if chart.axis == Axis::BlockBytes {
        text.push_str(&curves(&table::curves(chart), columns, paint));
        text.push('\n');
    }
    text.push_str(&figures(&table::figures(chart, compared, false), columns, paint));
    text
}

/// Returns the table of curves. In a narrow terminal it leaves out columns; the files have them all.
fn curves(table: &TextTable, columns: usize, paint: Paint) -> String {
    const LEAST_NAME: usize = 12;
    let all =
        widths([table.heading.as_slice()].into_iter().chain(table.rows.iter().map(Vec::as_slice)));
    let mut shown = all.len();
    let rest =
        |shown: usize| all.iter().skip(2).take(shown - 2).map(|width| width + 2).sum::<usize>();
    while shown > 4 && 3 + LEAST_NAME + rest(shown) > columns {
        shown -= 1;
    }
    let name = all
        .get(1)
        .copied()
        .unwrap_or(0)
        .min(columns.saturating_sub(3 + rest(shown)).max(LEAST_NAME));
    let mut text = String::new();
    let rows = std::iter::once((None, &table.heading));
    for (index, row) in
        rows.chain(table.rows.iter().enumerate().map(|(index, row)| (Some(index), row)))
    {
        let mut line = String::new();
        for (column, (entry, width)) in row.iter().zip(&all).take(shown).enumerate() {
            match column {
                0 => line.push_str(
                    &paint.text(index.map_or(Pen::Plain, Pen::Curve), &format!("{entry:<1}  ")),
                ),
                1 => line.push_str(&format!("{:<name$}", cut(entry, name))),
                _ if index.is_none() => {
                    line.push_str(&paint.text(Pen::Faint, &format!("  {entry:>width$}")))
                }
                _ => line.push_str(&format!("  {entry:>width$}")),
            }
        }
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

/// Returns the table of figures, in several parts if it is too wide.
fn figures(table: &TextTable, columns: usize, paint: Paint) -> String {
    let all =
        widths([table.heading.as_slice()].into_iter().chain(table.rows.iter().map(Vec::as_slice)));
    let Some((first, rest)) = all.split_first() else { return String::new() };
    let first = (*first).min(columns / 2);
    let mut text = String::new();
    for (part, chunk) in chunks(first, rest, columns).into_iter().enumerate() {
        if part > 0 {
            text.push('\n');
        }
        let rows = std::iter::once((true, &table.heading));
        for (is_heading, row) in rows.chain(table.rows.iter().map(|row| (false, row))) {
            let label = row.first().map_or("", String::as_str);
            let mut line = format!("{:<first$}", cut(label, first));
            for (entry, width) in row.iter().skip(1).zip(rest).skip(chunk.start).take(chunk.len()) {
                // No heading above the marks of noise and change.
                let entry = if is_heading { format!("{entry}  ") } else { entry.clone() };
                line.push_str(&format!("  {entry:>width$}"));
            }
            let pen = if is_heading { Pen::Faint } else { Pen::Plain };
            text.push_str(&paint.text(pen, line.trim_end()));
            text.push('\n');
        }
    }
    text
}

// Columns of text, and text that does not fit.

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
fn widths<'a>(rows: impl IntoIterator<Item = &'a [String]>) -> Vec<usize> {
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
fn chunks(first: usize, widths: &[usize], most: usize) -> Vec<std::ops::Range<usize>> {
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

// Colors of a terminal, or none.

/// The style of a piece of text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Pen {
    Plain,
    Bold,
    Faint,
    Curve(usize),
}

/// Adds colors to text, if enabled.
#[derive(Debug, Clone, Copy)]
struct Paint {
    colors: bool,
}

impl Paint {
    fn text(self, pen: Pen, text: &str) -> String {
        let code = match pen {
            _ if !self.colors || text.trim().is_empty() => return text.to_owned(),
            Pen::Plain => return text.to_owned(),
            Pen::Bold => "1".to_owned(),
            Pen::Faint => "2".to_owned(),
            Pen::Curve(curve) => {
                let color = TERMINAL.get(curve % CURVES).copied().unwrap_or_default();
                format!("38;5;{color}")
            }
        };
        format!("\x1b[{code}m{text}\x1b[0m")
    }
}

// The charts: curves of braille dots, or bars of blocks.

/// Draws a chart in a width of that many columns.
fn graph(chart: &Chart, columns: usize, paint: Paint) -> String {
    match chart.axis {
        Axis::BlockBytes => lines(chart, columns, paint),
        Axis::Cases => bars(chart, columns, paint),
    }
}

/// The height of a line chart, without the axis.
const ROWS: usize = 14;

fn lines(chart: &Chart, columns: usize, paint: Paint) -> String {
    let Some(blocks) = BlockAxis::of(chart) else { return String::new() };
    let scale = Scale::of(chart, 5);
    let label_width = scale.ticks.iter().map(|(_, text)| text.chars().count()).max().unwrap_or(0);
    let width = columns.saturating_sub(label_width + 4).clamp(10, 160);
    let mut canvas = Canvas::new(width, ROWS);
    // The verdict is about the first curve, so it is drawn last.
    for (index, curve) in chart.curves.iter().enumerate().rev() {
        draw(&mut canvas, &blocks, &scale, (index, &curve.cells), chart.curves.len() == 1);
    }
    for (index, curve) in chart.curves.iter().enumerate() {
        if let Some((cell, summary)) = curve.best(chart.unit) {
            let x = cell.block_bytes.map_or(0.0, |bytes| blocks.place(bytes));
            let dot = canvas.dot_at(x, scale.place(summary.median));
            canvas.letter(dot, letter(index), index);
        }
    }
    let mut text = String::new();
    if !scale.unit.is_empty() {
        text.push_str(&paint.text(Pen::Faint, &format!("{:>label_width$}", scale.unit)));
        text.push('\n');
    }
    for (row, characters) in canvas.rows().enumerate() {
        let label = scale.ticks.iter().find(|(value, _)| row_of(scale.place(*value)) == row);
        let mark = if label.is_some() { '┤' } else { '│' };
        let label = label.map_or("", |(_, text)| text.as_str());
        text.push_str(&paint.text(Pen::Faint, &format!("{label:>label_width$} {mark}")));
        text.push_str(&painted(&characters, paint));
        text.push('\n');
    }
    text.push_str(&paint.text(Pen::Faint, &foot(&blocks, label_width, width)));
    text
}

fn row_of(place: f64) -> usize {
    ((1.0 - place) * (ROWS - 1) as f64).round() as usize
}

/// The faint pen of single series.
const SERIES: usize = usize::MAX;

/// Draws the medians of a curve. A curve that is alone has its series behind it, and a line twice as thick.
fn draw(
    canvas: &mut Canvas,
    blocks: &BlockAxis,
    scale: &Scale,
    (pen, cells): (usize, &[Cell]),
    alone: bool,
) {
    let dots = |canvas: &Canvas, value: &dyn Fn(&Cell) -> Option<f64>| -> Vec<(usize, usize)> {
        let place = |cell: &Cell| {
            Some(canvas.dot_at(blocks.place(cell.block_bytes?), scale.place(value(cell)?)))
        };
        cells.iter().filter_map(place).collect()
    };
    if alone {
        let series = cells.iter().map(|cell| cell.samples.len()).max().unwrap_or(0);
        for number in 0..series {
            let dots = dots(canvas, &|cell| cell.samples.get(number).copied());
            join(canvas, &dots, SERIES);
        }
    }
    let median = dots(canvas, &|cell| cell.median);
    join(canvas, &median, pen);
    if alone {
        let below: Vec<_> = median.iter().map(|(x, y)| (*x, y + 1)).collect();
        join(canvas, &below, pen);
    }
}

fn join(canvas: &mut Canvas, dots: &[(usize, usize)], pen: usize) {
    for (from, to) in dots.iter().zip(dots.iter().skip(1)) {
        canvas.line(*from, *to, pen);
    }
    if let [only] = dots {
        canvas.dot(*only, pen);
    }
}

/// Paints runs of characters with the same pen.
fn painted(characters: &[(char, Option<usize>)], paint: Paint) -> String {
    let mut text = String::new();
    let filled = characters.iter().rposition(|(character, _)| *character != ' ');
    let characters = &characters[..filled.map_or(0, |last| last + 1)];
    for run in characters.chunk_by(|(_, a), (_, b)| a == b) {
        let piece: String = run.iter().map(|(character, _)| character).collect();
        let pen = match run.first().and_then(|(_, pen)| *pen) {
            None => Pen::Plain,
            Some(SERIES) => Pen::Faint,
            Some(curve) => Pen::Curve(curve),
        };
        text.push_str(&paint.text(pen, &piece));
    }
    text
}

/// Returns the horizontal axis, with marks and sizes.
fn foot(blocks: &BlockAxis, label_width: usize, width: usize) -> String {
    const ROOM: usize = 7;
    let mut line: Vec<char> = std::iter::repeat_n('─', width).collect();
    let mut sizes: Vec<char> = vec![' '; width + ROOM];
    for (place, text) in blocks.ticks((width / ROOM).max(2)) {
        let column = (place * (width - 1) as f64).round() as usize;
        if let Some(mark) = line.get_mut(column) {
            *mark = '┬';
        }
        let start = column.saturating_sub(text.len() / 2);
        for (place, character) in sizes.iter_mut().skip(start).zip(text.chars()) {
            *place = character;
        }
    }
    let (line, sizes): (String, String) = (line.iter().collect(), sizes.iter().collect());
    let pad = " ".repeat(label_width);
    let caption = "block size in bytes";
    let caption = format!("{caption:>width$}");
    format!("{pad} └{line}\n{pad}  {}\n{pad}  {caption}\n", sizes.trim_end())
}

fn bars(chart: &Chart, columns: usize, paint: Paint) -> String {
    let mut rows: Vec<(usize, String, &Cell)> = Vec::new();
    for (index, curve) in chart.curves.iter().enumerate() {
        for cell in curve.cells.iter().filter(|cell| cell.median.is_some()) {
            rows.push((index, chart.case_label(curve, cell), cell));
        }
    }
    let scale = Scale::of(chart, 5);
    let longest = rows.iter().map(|(_, label, _)| label.chars().count()).max().unwrap_or(0);
    const FIGURE: usize = 12;
    let label_width = longest.min(columns.saturating_sub(FIGURE + 10).max(10));
    let width = columns.saturating_sub(label_width + FIGURE + 2).clamp(6, 100);
    let mut text = String::new();
    for (index, label, cell) in rows {
        let median = cell.median.unwrap_or(0.0);
        let bar = bar(scale.place(median), width);
        let noisy = if cell.noisy { " ~" } else { "" };
        text.push_str(&format!("{:<label_width$}  ", cut(&label, label_width)));
        text.push_str(&paint.text(Pen::Curve(index), &bar));
        text.push_str(&format!(" {}{noisy}\n", chart.unit.show(median)));
    }
    text
}

/// Returns a bar with a length in eighths of a character.
fn bar(share: f64, width: usize) -> String {
    const PARTS: [&str; 8] = ["", "▏", "▎", "▍", "▌", "▋", "▊", "▉"];
    let eighths = ((share * (width * PARTS.len()) as f64).round() as usize).max(1);
    let part = PARTS.get(eighths % PARTS.len()).copied().unwrap_or_default();
    format!("{}{part}", "█".repeat(eighths / PARTS.len()))
}

// The canvas of braille dots: each character of a terminal is two dots wide and four dots high.

/// The dots, and the last pen in each character.
#[derive(Debug, Clone)]
struct Canvas {
    columns: usize,
    rows: usize,
    dots: Vec<u8>,
    pens: Vec<Option<usize>>,
    letters: Vec<Option<char>>,
}

/// The bits of the dots of a character, by column and row (Unicode, block Braille Patterns).
const BITS: [[u8; 4]; 2] = [[0x01, 0x02, 0x04, 0x40], [0x08, 0x10, 0x20, 0x80]];

const EMPTY: u32 = 0x2800;

impl Canvas {
    fn new(columns: usize, rows: usize) -> Canvas {
        let cells = columns * rows;
        Canvas {
            columns,
            rows,
            dots: vec![0; cells],
            pens: vec![None; cells],
            letters: vec![None; cells],
        }
    }

    /// Returns the width in dots.
    fn width(&self) -> usize {
        self.columns * BITS.len()
    }

    /// Returns the height in dots.
    fn height(&self) -> usize {
        self.rows * BITS[0].len()
    }

    /// Returns the dot at a position, from 0 to 1 from left to right and from bottom to top.
    fn dot_at(&self, x: f64, y: f64) -> (usize, usize) {
        let place = |share: f64, count: usize| {
            (share.clamp(0.0, 1.0) * count.saturating_sub(1) as f64).round() as usize
        };
        (place(x, self.width()), place(1.0 - y, self.height()))
    }

    /// Sets a dot. Does nothing outside of the canvas.
    fn dot(&mut self, (x, y): (usize, usize), pen: usize) {
        if x >= self.width() || y >= self.height() {
            return;
        }
        let cell = y / BITS[0].len() * self.columns + x / BITS.len();
        self.dots[cell] |= BITS[x % BITS.len()][y % BITS[0].len()];
        self.pens[cell] = Some(pen);
    }

    /// Draws a line, after Bresenham.
    fn line(&mut self, from: (usize, usize), to: (usize, usize), pen: usize) {
        let [(mut x, mut y), (to_x, to_y)] = [from, to].map(|(x, y)| (x as i64, y as i64));
        let (width, height) = ((to_x - x).abs(), -(to_y - y).abs());
        let (step_x, step_y) = ((to_x - x).signum(), (to_y - y).signum());
        let mut error = width + height;
        loop {
            self.dot((x as usize, y as usize), pen);
            if (x, y) == (to_x, to_y) {
                return;
            }
            let twice = 2 * error;
            if twice >= height {
                error += height;
                x += step_x;
            }
            if twice <= width {
                error += width;
                y += step_y;
            }
        }
    }

    /// Puts a letter at a dot, unless the character has one.
    fn letter(&mut self, (x, y): (usize, usize), letter: char, pen: usize) {
        let (column, row) = (x / BITS.len(), y / BITS[0].len());
        if column < self.columns && row < self.rows {
            let cell = row * self.columns + column;
            if self.letters[cell].is_none() {
                self.letters[cell] = Some(letter);
                self.pens[cell] = Some(pen);
            }
        }
    }

    /// Returns the rows from the top, as characters with their pens. `None`: an empty character.
    fn rows(&self) -> impl Iterator<Item = Vec<(char, Option<usize>)>> {
        (0..self.rows).map(|row| {
            (row * self.columns..(row + 1) * self.columns)
                .map(|cell| self.character(cell))
                .collect()
        })
    }

    fn character(&self, cell: usize) -> (char, Option<usize>) {
        let pen = self.pens[cell];
        match (self.letters[cell], self.dots[cell]) {
            (Some(letter), _) => (letter, pen),
            (None, 0) => (' ', None),
            (None, dots) => (char::from_u32(EMPTY + u32::from(dots)).unwrap_or(' '), pen),
        }
    }
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

    #[test]
    fn bars_are_drawn_in_eighths_and_are_never_empty() {
        for (share, drawn) in [(0.0, "▏"), (0.5, "██"), (1.0, "████"), (0.53, "██▏"), (0.28, "█▏")]
        {
            assert_eq!(bar(share, 4), drawn, "{share}");
        }
    }

    fn text(canvas: &Canvas) -> Vec<String> {
        canvas.rows().map(|row| row.into_iter().map(|(character, _)| character).collect()).collect()
    }

    #[test]
    fn every_dot_has_its_own_bit() {
        let mut seen = Vec::new();
        for x in 0..2 {
            for y in 0..4 {
                let mut canvas = Canvas::new(1, 1);
                canvas.dot((x, y), 0);
                seen.push(text(&canvas).concat());
            }
        }
        assert_eq!(seen.concat(), "⠁⠂⠄⡀⠈⠐⠠⢀");
    }

    #[test]
    fn lines_go_from_end_to_end_in_every_direction() {
        let mut canvas = Canvas::new(4, 2);
        canvas.line((0, 7), (7, 0), 1);
        assert_eq!(text(&canvas), ["  ⡠⠊", "⡠⠊  "]);
        let mut back = Canvas::new(4, 2);
        back.line((7, 0), (0, 7), 1);
        assert_eq!(text(&back), text(&canvas));
        let mut flat = Canvas::new(3, 1);
        flat.line((0, 3), (5, 3), 0);
        flat.line((2, 0), (2, 0), 0);
        assert_eq!(text(&flat), ["⣀⣁⣀"]);
    }

    #[test]
    fn positions_map_to_corners_and_letters_stay() {
        let mut canvas = Canvas::new(3, 2);
        assert_eq!((canvas.dot_at(0.0, 0.0), canvas.dot_at(1.0, 1.0)), ((0, 7), (5, 0)));
        canvas.letter((0, 0), 'A', 0);
        canvas.letter((1, 1), 'B', 1);
        canvas.dot((1, 3), 2);
        canvas.dot((100, 0), 2);
        canvas.letter((100, 0), 'C', 2);
        assert_eq!(text(&canvas), ["A  ", "   "]);
        assert_eq!(text(&Canvas::new(0, 0)), Vec::<String>::new());
    }

    proptest::proptest! {
        #[test]
        fn nothing_panics_and_both_ends_are_drawn(
            x in 0.0..1.0_f64, y in 0.0..1.0_f64, to_x in 0.0..1.0_f64, to_y in 0.0..1.0_f64,
        ) {
            let mut canvas = Canvas::new(9, 5);
            let (from, to) = (canvas.dot_at(x, y), canvas.dot_at(to_x, to_y));
            canvas.line(from, to, 0);
            let before = text(&canvas);
            canvas.dot(from, 0);
            canvas.dot(to, 0);
            assert_eq!(text(&canvas), before);
        }
    }
}
