//! A canvas of braille dots: each character of a terminal is two dots wide and four dots high.

/// The dots, and the last pen in each character.
#[derive(Debug, Clone)]
pub(crate) struct Canvas {
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
    pub(crate) fn new(columns: usize, rows: usize) -> Canvas {
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
    pub(crate) fn width(&self) -> usize {
        self.columns * BITS.len()
    }

    /// Returns the height in dots.
    pub(crate) fn height(&self) -> usize {
        self.rows * BITS[0].len()
    }

    /// Returns the dot at a position, from 0 to 1 from left to right and from bottom to top.
    pub(crate) fn dot_at(&self, x: f64, y: f64) -> (usize, usize) {
        let place = |share: f64, count: usize| {
            (share.clamp(0.0, 1.0) * count.saturating_sub(1) as f64).round() as usize
        };
        (place(x, self.width()), place(1.0 - y, self.height()))
    }

    /// Sets a dot. Does nothing outside of the canvas.
    pub(crate) fn dot(&mut self, (x, y): (usize, usize), pen: usize) {
        if x >= self.width() || y >= self.height() {
            return;
        }
        let cell = y / BITS[0].len() * self.columns + x / BITS.len();
        self.dots[cell] |= BITS[x % BITS.len()][y % BITS[0].len()];
        self.pens[cell] = Some(pen);
    }

    /// Draws a line, after Bresenham.
    pub(crate) fn line(&mut self, from: (usize, usize), to: (usize, usize), pen: usize) {
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
    pub(crate) fn letter(&mut self, (x, y): (usize, usize), letter: char, pen: usize) {
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
    pub(crate) fn rows(&self) -> impl Iterator<Item = Vec<(char, Option<usize>)>> {
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
    use super::Canvas;

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
