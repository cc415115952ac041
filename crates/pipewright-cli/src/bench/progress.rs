//! How far it is, on stderr; nothing where that is no terminal.
//!
//! It is drawn between two cells and never while one is measured.

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// A bar.
#[derive(Debug)]
pub(super) struct Progress {
    bar: ProgressBar,
    series: usize,
}

impl Progress {
    pub(super) fn new(cells: usize, series: usize, hidden: bool) -> Progress {
        let target =
            if hidden { ProgressDrawTarget::hidden() } else { ProgressDrawTarget::stderr() };
        let bar = ProgressBar::with_draw_target(Some((cells * series) as u64), target);
        let template = "{prefix} {bar:24} {percent:>3} %  {eta:>3} left  {wide_msg}";
        // What is not understood is left as it is.
        if let Ok(style) = ProgressStyle::with_template(template) {
            bar.set_style(style.progress_chars("━╸─"));
        }
        Progress { bar, series }
    }

    pub(super) fn series(&self, number: usize) {
        self.bar.set_prefix(format!("series {} of {}", number + 1, self.series));
    }

    /// A cell is measured next.
    pub(super) fn cell(&self, name: &str) {
        self.bar.set_message(name.to_owned());
        self.bar.tick();
        self.bar.inc(1);
    }

    /// Takes the bar away.
    pub(super) fn end(&self) {
        self.bar.finish_and_clear();
    }
}
