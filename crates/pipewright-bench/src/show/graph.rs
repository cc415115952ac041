//! A chart in a terminal: curves of braille dots, or bars of blocks.

use super::columns::cut;
use super::paint::{Paint, Pen};
use crate::draw::axis::{BlockAxis, Scale};
use crate::draw::braille::Canvas;
use crate::draw::palette::letter;
use crate::report::{Axis, Cell, Chart};

/// Draws a chart in a width of that many columns.
pub(super) fn graph(chart: &Chart, columns: usize, paint: Paint) -> String {
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
    let several = chart.curves.len() > 1;
    let mut rows: Vec<(usize, String, &Cell)> = Vec::new();
    for (index, curve) in chart.curves.iter().enumerate() {
        for cell in curve.cells.iter().filter(|cell| cell.median.is_some()) {
            let label = if several {
                format!("{}, {}", curve.name, cell.label)
            } else {
                cell.label.clone()
            };
            rows.push((index, label, cell));
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

#[cfg(test)]
mod tests {
    use super::bar;

    #[test]
    fn bars_are_drawn_in_eighths_and_are_never_empty() {
        for (share, drawn) in [(0.0, "▏"), (0.5, "██"), (1.0, "████"), (0.53, "██▏"), (0.28, "█▏")]
        {
            assert_eq!(bar(share, 4), drawn, "{share}");
        }
    }
}
