//! The colors: distinguishable with red-green color blindness, and with enough contrast to the background.
//!
//! After Okabe and Ito, "Color Universal Design" (2008); darker for white paper and lighter for a dark screen, because
//! the original colors are meant for large areas.

/// A color as red, green and blue.
pub(crate) type Rgb = [u8; 3];

/// The colors for one background.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Theme {
    pub(crate) background: Rgb,
    pub(crate) text: Rgb,
    /// The color of secondary text: tick labels, notes.
    pub(crate) faint: Rgb,
    pub(crate) grid: Rgb,
    /// The background of a tooltip.
    pub(crate) raised: Rgb,
    /// The colors of the curves, in turn.
    pub(crate) curves: [Rgb; CURVES],
}

/// The number of colors. Further curves repeat them with other dashes.
pub(crate) const CURVES: usize = 6;

pub(crate) const LIGHT: Theme = Theme {
    background: [255, 255, 255],
    text: [28, 32, 38],
    faint: [92, 100, 112],
    grid: [226, 229, 234],
    raised: [246, 247, 249],
    curves: [[0, 94, 162], [196, 70, 0], [0, 128, 96], [150, 40, 120], [84, 60, 0], [96, 104, 118]],
};

pub(crate) const DARK: Theme = Theme {
    background: [18, 21, 26],
    text: [232, 235, 240],
    faint: [154, 163, 176],
    grid: [48, 54, 63],
    raised: [29, 33, 40],
    curves: [
        [96, 178, 240],
        [255, 140, 70],
        [64, 208, 164],
        [240, 158, 206],
        [244, 216, 96],
        [168, 178, 190],
    ],
};

/// The colors of the curves in a terminal, of the 256: readable on black and on white.
pub(crate) const TERMINAL: [u8; CURVES] = [33, 166, 36, 169, 136, 245];

/// Returns a color as `#rrggbb`.
pub(crate) fn hex([red, green, blue]: Rgb) -> String {
    format!("#{red:02x}{green:02x}{blue:02x}")
}

/// Returns the dash of a curve whose color is already in use.
pub(crate) fn dash(curve: usize) -> Option<&'static str> {
    match curve / CURVES {
        0 => None,
        1 => Some("7 4"),
        _ => Some("2 3"),
    }
}

/// Returns the letter of a curve.
pub(crate) fn letter(curve: usize) -> char {
    let letters = ('A'..='Z').chain('a'..='z');
    letters.cycle().nth(curve).unwrap_or('?')
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The relative luminance (WCAG 2.2).
    fn light(color: Rgb) -> f64 {
        let linear = color.map(|part| {
            let part = f64::from(part) / 255.0;
            if part <= 0.04045 { part / 12.92 } else { ((part + 0.055) / 1.055).powf(2.4) }
        });
        0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
    }

    fn contrast(a: Rgb, b: Rgb) -> f64 {
        let (a, b) = (light(a), light(b));
        (a.max(b) + 0.05) / (a.min(b) + 0.05)
    }

    #[test]
    fn text_and_curves_stand_out_from_their_background() {
        for theme in [LIGHT, DARK] {
            for background in [theme.background, theme.raised] {
                assert!(contrast(theme.text, background) >= 7.0);
                assert!(contrast(theme.faint, background) >= 4.5);
                for curve in theme.curves {
                    // As for text: letters and figures have the color of their curve.
                    assert!(contrast(curve, background) >= 4.5, "{}", hex(curve));
                }
            }
        }
    }

    /// The color as seen without one kind of cone (Viénot, Brettel and Mollon, 1999).
    fn seen_without([red, green, blue]: Rgb, cone: char) -> [f64; 3] {
        let [red, green, blue] = [red, green, blue].map(|part| (f64::from(part) / 255.0).powf(2.2));
        match cone {
            'r' => [0.112 * red + 0.888 * green, 0.112 * red + 0.888 * green, blue],
            _ => [0.293 * red + 0.707 * green, 0.293 * red + 0.707 * green, blue],
        }
    }

    #[test]
    fn colors_differ_with_red_green_color_blindness() {
        for theme in [LIGHT, DARK] {
            for cone in ['r', 'g'] {
                for (index, a) in theme.curves.iter().enumerate() {
                    for b in &theme.curves[index + 1..] {
                        let [a, b] = [a, b].map(|color| seen_without(*color, cone));
                        let far = a.iter().zip(b).map(|(a, b)| (a.powf(0.4) - b.powf(0.4)).abs());
                        let far: f64 = far.sum();
                        assert!(far > 0.08, "{cone}: {a:?} and {b:?} are {far} apart");
                    }
                }
            }
        }
    }

    #[test]
    fn every_curve_has_its_own_letter() {
        let letters: std::collections::HashSet<char> = (0..52).map(letter).collect();
        assert_eq!((letters.len(), letter(0), letter(26)), (52, 'A', 'a'));
    }
}
