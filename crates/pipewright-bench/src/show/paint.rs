//! Colors of a terminal, or none.

use crate::draw::palette::{CURVES, TERMINAL};

/// The style of a piece of text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Pen {
    Plain,
    Bold,
    Faint,
    Curve(usize),
}

/// Adds colors to text, if enabled.
#[derive(Debug, Clone, Copy)]
pub(super) struct Paint {
    pub(super) colors: bool,
}

impl Paint {
    pub(super) fn text(self, pen: Pen, text: &str) -> String {
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
