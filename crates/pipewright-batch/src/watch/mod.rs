//! Reports of a running batch: progress on a terminal, events, a trace and a page.
//!
//! Each report that the user wants is told every [`Event`] of the batch. Reports have no clock: the driver passes the
//! time too. The driver never waits for their readers: a thread writes to terminals and pipes. Their memory is bounded
//! by the running jobs, except where a bound is named. They never fail the batch: a report that cannot be written keeps
//! its error until the end.
//!
//! Texts of jobs are not trusted. They are cut, and escaped for the place where they are shown.
//!
//! | file | contents |
//! |---|---|
//! | `text.rs` | text that is safe and short; durations; ends of attempts in words |
//! | `progress/` | the bar on a terminal, and lines for logs |
//! | `events.rs`, `trace.rs` | JSON lines; trace events for Perfetto and Chrome |
//! | `joblog.rs`, `junit.rs` | the table of `--joblog`; JUnit XML |
//! | `page/` | one HTML page about the whole batch, also while it runs |
//! | `queued.rs` | files that a thread writes to, in pieces that are whole |

mod events;
mod joblog;
mod junit;
mod monitor;
mod page;
mod progress;
mod queued;
pub(crate) mod text;
mod trace;

use std::borrow::Cow;
use std::fs::{File, OpenOptions};
use std::io::{self, IsTerminal as _, Read as _, Seek as _, SeekFrom, Write};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use pipewright_os::base::{late_open, private_file, stdio};

use crate::vocabulary::{Event, JobOutcome};

pub(crate) use events::EventWriter;
pub(crate) use joblog::JoblogWriter;
pub(crate) use junit::JunitWriter;
pub(crate) use page::{LivePage, PageModel};
pub use progress::ProgressKind;
pub(crate) use progress::{Progress, Screen};
pub(crate) use queued::QueuedFile;
pub(crate) use trace::TraceWriter;

/// The facts about a batch that are known when it begins.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct BatchFacts {
    /// The command line, for people.
    pub(crate) command: String,
    /// The number of slots.
    pub(crate) slots: u32,
    /// The time at which it began.
    pub(crate) started: SystemTime,
    /// The path of the log.
    pub(crate) log: Option<String>,
}

/// Returns the number of a job and its name: `job 3 [build]`.
pub(crate) fn numbered(job: u64, name: Option<&str>) -> String {
    match name {
        Some(name) => format!("job {job} [{}]", text::line(name, MOST_NAME_COLUMNS)),
        None => format!("job {job}"),
    }
}

/// Returns the command of a job behind its name: `[build] make`.
pub(crate) fn named<'a>(command: &'a str, name: Option<&str>) -> Cow<'a, str> {
    match name {
        Some(name) => format!("[{}] {command}", text::line(name, MOST_NAME_COLUMNS)).into(),
        None => command.into(),
    }
}

/// Columns of a name that is shown.
const MOST_NAME_COLUMNS: usize = 60;

/// The counts of a batch that is over.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub(crate) struct Totals {
    /// The exit code of the tool, unless a signal ends it. `None`: the log or the output could not be written.
    pub(crate) exit_code: Option<i32>,
    /// `finished`, or the name of the reason for an early end.
    pub(crate) how: &'static str,
    pub(crate) succeeded: u64,
    pub(crate) failed: u64,
    pub(crate) skipped: u64,
    pub(crate) stopped: u64,
    pub(crate) not_run: u64,
    pub(crate) unknown: u64,
}

/// The number of jobs with each end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct OutcomeCounts([u64; JobOutcome::ALL.len()]);

impl OutcomeCounts {
    pub(crate) fn add(&mut self, outcome: JobOutcome) {
        if let Some(count) = self.0.get_mut(outcome as usize) {
            *count += 1;
        }
    }

    pub(crate) fn of(&self, outcome: JobOutcome) -> u64 {
        self.0.get(outcome as usize).copied().unwrap_or(0)
    }

    pub(crate) fn all(&self) -> u64 {
        self.0.iter().sum()
    }
}

// All reports of a batch, fed with its events.

/// The reports that the user wants.
#[derive(Debug, Clone, Default)]
pub(crate) struct WatchSettings {
    /// `None`: no progress, and no messages.
    pub(crate) progress: Option<ProgressKind>,
    pub(crate) events: Option<PathBuf>,
    pub(crate) trace: Option<PathBuf>,
    pub(crate) page: Option<PathBuf>,
    pub(crate) joblog: Option<PathBuf>,
    /// The table is added to what its file has.
    pub(crate) appends_joblog: bool,
    pub(crate) junit: Option<PathBuf>,
    /// No other user can read the files.
    pub(crate) private: bool,
    /// Each command is printed on stderr when it starts.
    pub(crate) prints_commands: bool,
}

/// The pause before the next look at a terminal that takes nothing.
const STUCK_PAUSE: Duration = Duration::from_millis(100);

/// The reports.
#[derive(Debug)]
pub(crate) struct Watchers {
    progress: Option<SharedProgress>,
    /// The stream of the progress.
    stderr: QueuedFile,
    events: Option<(EventWriter<QueuedFile>, QueuedFile, PathBuf)>,
    trace: Option<(TraceWriter<QueuedFile>, QueuedFile, PathBuf)>,
    page: Option<(LivePage, PathBuf)>,
    joblog: Option<(JoblogWriter<QueuedFile>, QueuedFile, PathBuf)>,
    junit: Option<(JunitWriter<QueuedFile>, QueuedFile, PathBuf)>,
    /// The files that are emptied when the batch begins.
    new_files: Vec<(QueuedFile, PathBuf)>,
    is_private: bool,
    prints_commands: bool,
    added: u64,
}

type SharedProgress = Arc<Mutex<Progress<QueuedFile>>>;

/// A report that cannot be written: its file, and the system's error.
pub(crate) type ReportFailed = (PathBuf, io::Error);

/// Ends the last line of a file that has some: an editor, or a kill, may have left it without its end.
fn end_last_line(file: &mut File) -> io::Result<()> {
    let mut last = [0];
    file.seek(SeekFrom::End(-1))?;
    file.read_exact(&mut last)?;
    if last == *b"\n" { Ok(()) } else { file.write_all(b"\n") }
}

impl Watchers {
    /// Opens the files of the reports, and leaves them as they are.
    pub(crate) fn open(
        settings: &WatchSettings,
        facts: BatchFacts,
    ) -> Result<Watchers, ReportFailed> {
        let append = |path: &PathBuf| {
            let mut file = private_file::open(path, OpenOptions::new().read(true).append(true))?;
            end_last_line(&mut file)?;
            Ok((QueuedFile::of_file(file), path.clone()))
        };
        let mut new_files = Vec::new();
        let mut create = |path: &PathBuf| {
            let file = match late_open::waits(path) {
                true => QueuedFile::of_pipe(path, settings.private),
                false => {
                    private_file::open_as_it_is(path, settings.private).map(QueuedFile::of_file)
                }
            };
            let file = file.map_err(|error| (path.clone(), error))?;
            new_files.push((file.clone(), path.clone()));
            Ok((file, path.clone()))
        };
        let stderr = QueuedFile::new(io::stderr());
        let new_progress = |kind| {
            let progress = Progress::new(stderr.clone(), kind, Screen::stderr(), Instant::now());
            Arc::new(Mutex::new(progress))
        };
        let events = settings.events.as_ref().map(&mut create).transpose()?;
        let trace = settings.trace.as_ref().map(&mut create).transpose()?;
        let page = settings.page.as_ref().map(|path| {
            let page = LivePage::open(path, settings.private, facts.clone());
            page.map(|page| (page, path.clone())).map_err(|error| (path.clone(), error))
        });
        let page = page.transpose()?;
        let joblog = settings.joblog.as_ref();
        // A file that has lines has the header, too. An empty one is as a new one.
        let has_lines = |path: &PathBuf| path.metadata().is_ok_and(|file| file.len() > 0);
        let is_continued = settings.appends_joblog && joblog.is_some_and(has_lines);
        let joblog = joblog.map(|path| match is_continued {
            true => append(path).map_err(|error| (path.clone(), error)),
            false => create(path),
        });
        let joblog = joblog.transpose()?;
        let junit = settings.junit.as_ref().map(&mut create).transpose()?;
        Ok(Watchers {
            progress: settings.progress.map(new_progress),
            events: events.map(|(file, path)| (EventWriter::new(file.clone(), &facts), file, path)),
            trace: trace.map(|(file, path)| (TraceWriter::new(file.clone(), &facts), file, path)),
            joblog: joblog
                .map(|(file, path)| (JoblogWriter::new(file.clone(), is_continued), file, path)),
            junit: junit.map(|(file, path)| (JunitWriter::new(file.clone(), &facts), file, path)),
            page,
            stderr,
            new_files,
            is_private: settings.private,
            prints_commands: settings.prints_commands,
            added: 0,
        })
    }

    /// Takes note that the batch has begun: what the files had goes.
    ///
    /// # Errors
    /// A file cannot be emptied.
    pub(crate) fn begin(&mut self) -> Result<(), ReportFailed> {
        for (file, path) in self.new_files.drain(..) {
            file.empty(self.is_private).map_err(|error| (path, error))?;
        }
        if let Some((page, _)) = &mut self.page {
            page.begin();
        }
        Ok(())
    }

    /// Returns this process's stdout and stderr, as writers that erase the bar first. A stdout that is closed is an
    /// error.
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
                let (progress, stderr) = (Arc::clone(progress), self.stderr.clone());
                Box::new(BesideProgress { is_terminal, writer, progress, stderr })
            }
            None => Box::new(writer),
        }
    }

    /// Draws what is due. Returns the time at which it should be called again, whatever happens.
    pub(crate) fn tick(&mut self, added: u64, total: Option<u64>) -> Option<Instant> {
        if added > self.added {
            self.added = added;
            if let Some(progress) = &self.progress {
                lock(progress).added(added, total);
            }
            if let Some((events, ..)) = &mut self.events {
                events.added(added, total, SystemTime::now());
            }
            if let Some((page, _)) = &self.page {
                page.added(total);
            }
        }
        let progress = self.progress.as_ref()?;
        if !self.stderr.is_idle() {
            // Nobody could see the bar, and a stack of bars helps nobody later.
            return Instant::now().checked_add(STUCK_PAUSE);
        }
        lock(progress).tick(Instant::now())
    }

    /// Writes what has been collected, before a wait.
    pub(crate) fn flush(&mut self) {
        if let Some((events, ..)) = &mut self.events {
            events.flush();
        }
        if let Some((trace, ..)) = &mut self.trace {
            trace.flush();
        }
        if let Some((joblog, ..)) = &mut self.joblog {
            joblog.flush();
        }
        if let Some((junit, ..)) = &mut self.junit {
            junit.flush();
        }
    }

    /// Tells all reports of an event.
    pub(crate) fn event(&mut self, event: &Event) {
        let now = SystemTime::now();
        if let Some(progress) = &self.progress {
            lock(progress).event(event, Instant::now());
        }
        if let Some((events, ..)) = &mut self.events {
            events.event(event, now);
        }
        if let Some((trace, ..)) = &mut self.trace {
            trace.event(event);
        }
        if let Some((page, _)) = &self.page {
            page.event(event, now);
        }
        if let Some((joblog, ..)) = &mut self.joblog {
            joblog.event(event);
        }
        if let Some((junit, ..)) = &mut self.junit {
            junit.event(event);
        }
        if let (Event::Started { command, .. }, true) = (event, self.prints_commands) {
            self.print(|progress| progress.print_line(command));
        }
    }

    /// Writes a message for people, above the bar; also if no progress is shown.
    pub(crate) fn message(&mut self, text: &str) {
        self.print(|progress| progress.message(text));
    }

    /// Prints on stderr, also if no progress is shown.
    fn print(&mut self, print: impl FnOnce(&mut Progress<QueuedFile>)) {
        match &self.progress {
            Some(progress) => print(&mut lock(progress)),
            None => {
                let none = Screen { columns: || 0, is_ansi: false, colors: false };
                let stderr = self.stderr.clone();
                print(&mut Progress::new(stderr, ProgressKind::None, none, Instant::now()));
            }
        }
    }

    /// Erases the bar, and writes the ends of all reports. Waits for the readers, but no longer than until that time.
    /// Returns the first report that could not be written.
    pub(crate) fn finish(
        self,
        totals: &Totals,
        until: Option<Instant>,
    ) -> Result<(), ReportFailed> {
        if let Some(progress) = &self.progress {
            lock(progress).finish();
        }
        let events = self
            .events
            .map(|(events, file, path)| (events.finish(totals, SystemTime::now()), file, path));
        let trace = self.trace.map(|(trace, file, path)| (trace.finish(), file, path));
        let joblog = self.joblog.map(|(joblog, file, path)| (joblog.finish(), file, path));
        let junit = self.junit.map(|(junit, file, path)| (junit.finish(), file, path));
        // Ignored: the batch goes on without a terminal. What is printed next comes after the messages.
        let _ = self.stderr.wait_within(until);
        let reports = [events, trace, joblog, junit].map(|report| {
            report
                .map(|(written, file, path)| (written.and_then(|()| file.wait_within(until)), path))
        });
        let page = self.page.map(|(page, path)| (page.finish(SystemTime::now(), until), path));
        let mut reports = reports.into_iter().chain([page]).flatten();
        reports.try_for_each(|(written, path)| written.map_err(|error| (path, error)))
    }
}

/// A stream that may be the terminal of the bar, or end there: in `batch | tee log`, say.
struct BesideProgress<W> {
    writer: W,
    is_terminal: bool,
    progress: SharedProgress,
    stderr: QueuedFile,
}

impl<W> BesideProgress<W> {
    /// Writes without the bar, after what was written to the terminal before. The progress is not locked meanwhile: a
    /// reader that does not read would hold up the thread that draws, and so the batch.
    fn without_bar<T>(
        &mut self,
        bytes: &[u8],
        write: impl FnOnce(&mut W) -> io::Result<T>,
        count: impl FnOnce(&T) -> usize,
    ) -> io::Result<T> {
        if !self.is_terminal {
            if lock(&self.progress).hide() {
                self.wait_for_terminal();
            }
            return write(&mut self.writer);
        }
        lock(&self.progress).output_begins();
        self.wait_for_terminal();
        let result = write(&mut self.writer);
        let written = result.as_ref().map_or(0, count);
        let written = bytes.get(..written).unwrap_or(bytes);
        lock(&self.progress).output_ended(written, Instant::now());
        result
    }

    fn wait_for_terminal(&self) {
        // Ignored: without a terminal, there is no bar to stay clear of.
        let _ = self.stderr.wait_until_written();
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

fn lock(progress: &SharedProgress) -> MutexGuard<'_, Progress<QueuedFile>> {
    // Each call leaves it consistent.
    progress.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
