//! Settings of progress and of other reports.

use std::path::PathBuf;

use super::{Batch, ProgressKind};

impl Batch {
    /// Shows progress on stderr, and messages about jobs that fail. The default is none.
    pub fn progress(mut self, kind: ProgressKind) -> Batch {
        self.watch.progress = Some(kind);
        self
    }

    /// Writes every event to this file, one JSON object a line: see `docs/json.md`. The file is replaced.
    pub fn events_to(mut self, path: impl Into<PathBuf>) -> Batch {
        self.watch.events = Some(path.into());
        self
    }

    /// Chooses whether to let no other user read the reports: files of mode 0600 on Unix. They hold what the commands hold.
    /// [`OutputOptions::private`](crate::OutputOptions::private) does the same for the files of jobs.
    pub fn private_reports(mut self, private: bool) -> Batch {
        self.watch.private = private;
        self
    }

    /// Writes trace events to this file, for Perfetto and the browser's `about:tracing`. The file is replaced.
    pub fn trace_to(mut self, path: impl Into<PathBuf>) -> Batch {
        self.watch.trace = Some(path.into());
        self
    }

    /// Writes a page about the batch to this file when it is over: HTML with everything in it. The file is replaced.
    pub fn page_to(mut self, path: impl Into<PathBuf>) -> Batch {
        self.watch.page = Some(path.into());
        self
    }
}
