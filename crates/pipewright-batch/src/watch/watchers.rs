//! All reports of a batch, fed with its events.

use std::fs::File;
use std::io::{self, IsTerminal as _, Stderr, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Instant, SystemTime};

use pipewright_os::base::{private_file, stdio};

use super::{
    BatchFacts, EventWriter, JobState, PageModel, Progress, ProgressKind, Screen, Totals,
    TraceWriter, Update,
};
use crate::event::{self, Event};

/// The reports that the user wants.
#[derive(Debug, Clone, Default)]
pub(crate) struct WatchSettings {
    /// `None`: no progress, and no messages.
    pub(crate) progress: Option<ProgressKind>,
    pub(crate) events: Option<PathBuf>,
    pub(crate) trace: Option<PathBuf>,
    pub(crate) page: Option<PathBuf>,
    /// No other user can read the files.
    pub(crate) private: bool,
}

/// The reports.
#[derive(Debug)]
pub(crate) struct Watchers {
    progress: Option<SharedProgress>,
    events: Option<(EventWriter<File>, PathBuf)>,
    trace: Option<(TraceWriter<File>, PathBuf)>,
    page: Option<(PageModel, File, PathBuf)>,
    added: u64,
}

type SharedProgress = Arc<Mutex<Progress<Stderr>>>;

/// A report that cannot be written: its file, and the system's error.
pub(crate) type ReportFailed = (PathBuf, io::Error);

impl Watchers {
    /// Opens the files of the reports.
    pub(crate) fn open(
        settings: &WatchSettings,
        facts: BatchFacts,
    ) -> Result<Watchers, ReportFailed> {
        let create = |path: &PathBuf| {
            private_file::create(path, settings.private)
                .map(|file| (file, path.clone()))
                .map_err(|error| (path.clone(), error))
        };
        let new_progress = |kind| {
            let progress = Progress::new(io::stderr(), kind, Screen::stderr(), Instant::now());
            Arc::new(Mutex::new(progress))
        };
        let events = settings.events.as_ref().map(create).transpose()?;
        let trace = settings.trace.as_ref().map(create).transpose()?;
        let page = settings.page.as_ref().map(create).transpose()?;
        let mut watchers = Watchers {
            progress: settings.progress.map(new_progress),
            events: events.map(|(file, path)| (EventWriter::new(file), path)),
            trace: trace.map(|(file, path)| (TraceWriter::new(file), path)),
            page: page.map(|(file, path)| (PageModel::new(facts.clone()), file, path)),
            added: 0,
        };
        watchers.update(&Update::Began(&facts));
        Ok(watchers)
    }

    /// Returns this process's stdout and stderr, as writers that erase the bar first. A stdout that is closed is an error.
    pub(crate) fn streams(&self) -> [Box<dyn Write + Send>; 2] {
        [
            self.beside(stdio::stdout(), io::stdout().is_terminal()),
            self.beside(io::stderr(), io::stderr().is_terminal()),
        ]
    }

    /// Returns a writer that erases the bar first.
    fn beside<W>(&self, writer: W, is_terminal: bool) -> Box<dyn Write + Send>
    where
        W: Write + Send + 'static,
    {
        match &self.progress {
            Some(progress) => {
                Box::new(BesideProgress { is_terminal, writer, progress: Arc::clone(progress) })
            }
            None => Box::new(writer),
        }
    }

    /// Draws what is due. Returns the time at which it should be called again, whatever happens.
    pub(crate) fn tick(&mut self, added: u64, total: Option<u64>) -> Option<Instant> {
        if added > self.added {
            self.update(&Update::Added { jobs: added - self.added, total });
            self.added = added;
        }
        self.progress.as_ref().and_then(|progress| lock(progress).tick(Instant::now()))
    }

    /// Writes what has been collected, before a wait.
    pub(crate) fn flush(&mut self) {
        if let Some((events, _)) = &mut self.events {
            events.flush();
        }
        if let Some((trace, _)) = &mut self.trace {
            trace.flush();
        }
    }

    /// Tells all reports of an event.
    pub(crate) fn event(&mut self, event: &Event) {
        match event {
            Event::Started { key, slot, command } => {
                self.update(&Update::Started { key: *key, slot: *slot, text: command });
            }
            Event::Ended { end, command, last_lines } => {
                self.update(&Update::Ended { end, text: command, last_lines });
            }
            Event::Retrying { job, .. } => self.update(&Update::Retried { job: *job }),
            Event::Settled { job, state, .. } => self.settled(*job, state),
            Event::InputEnded { jobs } => self.update(&Update::InputEnded { total: *jobs }),
            Event::Capacity { slots } => self.update(&Update::Capacity { slots: *slots }),
            Event::Halted(halt) => self.update(&Update::Halted { cause: &halt.to_string() }),
            Event::Note(note) => self.update(&Update::Note(note)),
        }
    }

    fn settled(&mut self, job: u64, state: &event::JobState) {
        let reported = match state {
            event::JobState::SucceededBefore | event::JobState::FailedBefore => {
                return self.update(&Update::Resumed { jobs: 1 });
            }
            event::JobState::Succeeded => JobState::Succeeded,
            event::JobState::Failed(_) => JobState::Failed,
            event::JobState::Skipped(_) => JobState::Skipped,
            event::JobState::Stopped => JobState::Stopped,
            event::JobState::NotRun => JobState::NotRun,
            event::JobState::Unknown => JobState::Unknown,
            event::JobState::Refused(_) => JobState::Refused,
        };
        self.update(&Update::Settled { job, state: reported, reason: state.reason() });
        let needs_attention =
            matches!(reported, JobState::Failed | JobState::Refused | JobState::Unknown);
        if let (Some(progress), true) = (&self.progress, needs_attention) {
            let what = state.reason().unwrap_or("may have run, and is not run again");
            lock(progress).message(&format!("job {job} {}: {what}", reported.word()));
        }
    }

    fn update(&mut self, update: &Update<'_>) {
        let now = SystemTime::now();
        if let Some(progress) = &self.progress {
            lock(progress).update(update, Instant::now());
        }
        if let Some((events, _)) = &mut self.events {
            events.update(update, now);
        }
        if let Some((trace, _)) = &mut self.trace {
            trace.update(update);
        }
        if let Some((page, ..)) = &mut self.page {
            page.update(update, now);
        }
    }

    /// Erases the bar, and writes the ends of all reports. Returns the first that could not be written.
    pub(crate) fn finish(mut self, totals: &Totals) -> Result<(), ReportFailed> {
        self.update(&Update::Finished(totals));
        if let Some(progress) = &self.progress {
            lock(progress).finish();
        }
        let failed = |path: &Path| {
            let path = path.to_owned();
            move |error| (path, error)
        };
        let events = self.events.map(|(events, path)| events.finish().map_err(failed(&path)));
        let trace = self.trace.map(|(trace, path)| trace.finish().map_err(failed(&path)));
        let page = self.page.map(|(page, mut file, path)| {
            file.write_all(page.html().as_bytes()).map_err(failed(&path))
        });
        [events, trace, page].into_iter().flatten().collect()
    }
}

/// A stream that may be the terminal of the bar, or end there: in `batch | tee log`, say.
struct BesideProgress<W> {
    writer: W,
    is_terminal: bool,
    progress: SharedProgress,
}

impl<W> BesideProgress<W> {
    /// Writes without the bar. The progress is not locked meanwhile: a reader that does not read would hold up the
    /// thread that draws, and so the batch.
    fn without_bar<T>(
        &mut self,
        bytes: &[u8],
        write: impl FnOnce(&mut W) -> io::Result<T>,
        count: impl FnOnce(&T) -> usize,
    ) -> io::Result<T> {
        if !self.is_terminal {
            lock(&self.progress).hide();
            return write(&mut self.writer);
        }
        lock(&self.progress).output_begins();
        let result = write(&mut self.writer);
        let written = result.as_ref().map_or(0, count);
        let written = bytes.get(..written).unwrap_or(bytes);
        lock(&self.progress).output_ended(written, Instant::now());
        result
    }
}

impl<W: Write> Write for BesideProgress<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.without_bar(bytes, |writer| writer.write(bytes), |count| *count)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.without_bar(&[], W::flush, |()| 0)
    }
}

fn lock(progress: &SharedProgress) -> MutexGuard<'_, Progress<Stderr>> {
    // Each call leaves it consistent.
    progress.lock().unwrap_or_else(PoisonError::into_inner)
}
