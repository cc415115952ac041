//! One HTML page about a whole batch, without any other file and without network.
//!
//! [`PageModel`] takes every update of a batch and keeps a bounded part of it: counts of everything, a histogram of all
//! durations, the number of jobs at one time, [`MOST_ATTEMPTS`] attempts (failed ones before others, long ones before
//! short ones) and [`MOST_FAILURES`] failed jobs with their last lines. The page says what it leaves out.
//!
//! The page works without its script, which only sorts and filters the table and offers the data as a file.
//!
//! | file | contents |
//! |---|---|
//! | `model.rs` | the model |
//! | `kept.rs`, `busy.rs`, `histogram.rs` | the bounded parts of it |
//! | `html.rs` | the page |
//! | `timeline.rs`, `durations.rs` | its charts |
//! | `page.css`, `page.js` | its style, with the colors of `pipewright bench`, and its script |

mod busy;
mod durations;
mod histogram;
mod html;
mod kept;
mod model;
#[cfg(test)]
mod tests;
mod timeline;

pub(crate) use model::PageModel;

/// Attempts that are listed and drawn one by one.
const MOST_ATTEMPTS: usize = 2_000;

/// Failed jobs that are shown with their last lines.
const MOST_FAILURES: usize = 200;
