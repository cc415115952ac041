//! Reports of a running batch: progress on a terminal, events, a trace, a page, and tables of jobs.
//!
//! The driver describes everything that happens by an [`Update`], and passes it to each report that the user wants.
//! Reports have no clock: the driver passes the time too. The driver never waits for their readers: a thread writes to
//! terminals and pipes. Their memory is bounded by the running jobs, except where a bound is named. They never fail the batch: a report that cannot be written keeps its error until the
//! end.
//!
//! Texts of jobs are not trusted. They are cut, and escaped for the place where they are shown.
//!
//! | file | contents |
//! |---|---|
//! | `update.rs` | updates |
//! | `text.rs` | text that is safe and short; durations; ends of attempts in words |
//! | `progress/` | the bar on a terminal, and lines for logs |
//! | `events.rs`, `lines.rs` | JSON lines, and the buffer that keeps them whole |
//! | `trace.rs` | trace events for Perfetto and Chrome |
//! | `page/` | one HTML page about the whole batch |
//! | `watchers.rs` | all reports of a batch, fed with its events |
//! | `queued.rs` | files that a thread writes to |
//! | `table.rs` | jobs as a table or as JSON lines |

mod events;
mod lines;
mod page;
mod progress;
mod queued;
mod table;
#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;
mod text;
mod trace;
mod update;
mod watchers;

pub(crate) use events::EventWriter;
pub(crate) use page::PageModel;
pub use progress::ProgressKind;
pub(crate) use progress::{Progress, Screen};
pub(crate) use queued::QueuedFile;
pub(crate) use table::{JobRow, write_json, write_table};
pub(crate) use text::signal_name;
pub(crate) use trace::TraceWriter;
pub(crate) use update::{BatchFacts, Totals, Update};
pub(crate) use watchers::{WatchSettings, Watchers};
