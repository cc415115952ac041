//! The file of a page, which a thread replaces while the batch runs: at once, and then at most once a second, when
//! something has changed.
//!
//! The driver only changes the model. The thread copies it, makes the page and writes it beside the file, whose place
//! it then takes, so that a reader always sees a whole page. A file that cannot be replaced (a pipe, a device) gets one
//! page at the end.

use std::fs::{self, Permissions};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use pipewright_os::base::{late_open, private_file, service_thread};
use tempfile::Builder;

use super::PageModel;
use crate::vocabulary::Event;
use crate::watch::BatchFacts;
use crate::watch::queued::{QueuedFile, nobody_reads};

/// The pause between two pages.
const PAUSE: Duration = Duration::from_secs(1);

/// The page of a batch that runs.
///
/// # Drop
/// The page says that the batch was given up.
#[derive(Debug)]
pub(crate) struct LivePage {
    shared: Arc<Shared>,
    /// The file, if it gets its page at the end only.
    at_end: Option<QueuedFile>,
}

#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug)]
struct State {
    model: PageModel,
    /// The file is older than the model.
    is_changed: bool,
    /// The thread waits for a change.
    is_idle: bool,
    /// The next page is the last one.
    is_closed: bool,
    /// The end of the last page.
    written: Option<io::Result<()>>,
}

/// A file that can be replaced.
#[derive(Debug)]
struct Target {
    /// Without links: it is the file itself that is replaced.
    path: PathBuf,
    /// The rights of the file that was there or was made.
    permissions: Permissions,
    is_private: bool,
}

impl LivePage {
    /// Opens the file of a page, and starts the thread.
    ///
    /// # Errors
    /// The file cannot be made or opened.
    pub(crate) fn open(path: &Path, is_private: bool, facts: BatchFacts) -> io::Result<LivePage> {
        let mut model = PageModel::new(facts);
        let at_end = |model, file| {
            let shared = Shared::new(model);
            Ok(LivePage { shared: Arc::new(shared), at_end: Some(file) })
        };
        if late_open::waits(path) {
            return at_end(model, QueuedFile::of_pipe(path, is_private)?);
        }
        let file = private_file::create(path, is_private)?;
        let facts = file.metadata()?;
        if !facts.is_file() {
            return at_end(model, QueuedFile::of_file(file));
        }
        let path = fs::canonicalize(path)?;
        let target = Target { path, permissions: facts.permissions(), is_private };
        model.is_live = true;
        let shared = Arc::new(Shared::new(model));
        let of_thread = Arc::clone(&shared);
        let started = service_thread::start(c"page", move || of_thread.write_all_to(&target));
        // Without room for a thread, there is a page at the end.
        let at_end = started.err().map(|_| QueuedFile::of_file(file));
        Ok(LivePage { shared, at_end })
    }

    /// Takes note of the number of all jobs, if it is known.
    pub(crate) fn added(&self, total: Option<u64>) {
        self.change(|model| model.added(total));
    }

    /// Takes note of an event.
    pub(crate) fn event(&self, event: &Event, now: SystemTime) {
        self.change(|model| model.event(event, now));
    }

    fn change(&self, change: impl FnOnce(&mut PageModel)) {
        let mut state = self.shared.lock();
        change(&mut state.model);
        state.is_changed = true;
        if std::mem::take(&mut state.is_idle) {
            self.shared.changed.notify_all();
        }
    }

    /// Writes the last page, of a batch that is over now. Waits for the file, but no longer than until that time.
    ///
    /// # Errors
    /// The file cannot be written, or not in time.
    pub(crate) fn finish(mut self, now: SystemTime, until: Option<Instant>) -> io::Result<()> {
        self.change(|model| {
            model.lasts_until(now);
            model.is_over();
        });
        if let Some(mut file) = self.at_end.take() {
            let page = self.shared.lock().model.html();
            return file.write_all(page.as_bytes()).and_then(|()| file.wait_within(until));
        }
        let mut state = self.shared.close();
        loop {
            if let Some(written) = state.written.take() {
                return written;
            }
            let left = until.map(|until| until.saturating_duration_since(Instant::now()));
            state = match left {
                Some(Duration::ZERO) => return Err(nobody_reads()),
                Some(left) => self.shared.wait_for(state, left),
                None => self.shared.wait(state),
            };
        }
    }
}

impl Drop for LivePage {
    fn drop(&mut self) {
        let mut state = self.shared.lock();
        if !state.is_closed {
            state.model.give_up();
            drop(state);
            drop(self.shared.close());
        }
    }
}

impl Shared {
    fn new(model: PageModel) -> Shared {
        let (is_changed, is_idle, is_closed, written) = (true, false, false, None);
        let state = State { model, is_changed, is_idle, is_closed, written };
        Shared { state: Mutex::new(state), changed: Condvar::new() }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Each step leaves it consistent.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait<'a>(&self, state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        self.changed.wait(state).unwrap_or_else(PoisonError::into_inner)
    }

    fn wait_for<'a>(&self, state: MutexGuard<'a, State>, time: Duration) -> MutexGuard<'a, State> {
        let waited = self.changed.wait_timeout(state, time);
        waited.unwrap_or_else(PoisonError::into_inner).0
    }

    fn close(&self) -> MutexGuard<'_, State> {
        let mut state = self.lock();
        state.is_closed = true;
        self.changed.notify_all();
        state
    }

    /// Writes pages until the last one. The work of the thread.
    fn write_all_to(&self, target: &Target) {
        loop {
            let mut state = self.lock();
            while !state.is_changed && !state.is_closed {
                state.is_idle = true;
                state = self.wait(state);
            }
            (state.is_changed, state.is_idle) = (false, false);
            let (model, is_last) = (state.model.clone(), state.is_closed);
            drop(state);
            let page = model.html();
            // An error is ignored: the next page tries again, and the last one tells.
            let written = target.replace(page.as_bytes());
            let mut state = self.lock();
            if is_last {
                // In a folder that takes no other file, a reader may see a part of it.
                state.written = Some(written.or_else(|_| target.write(page.as_bytes())));
                drop(state);
                return self.changed.notify_all();
            }
            let next = Instant::now() + PAUSE;
            while !state.is_closed {
                match next.saturating_duration_since(Instant::now()) {
                    Duration::ZERO => break,
                    left => state = self.wait_for(state, left),
                }
            }
        }
    }
}

impl Target {
    fn replace(&self, page: &[u8]) -> io::Result<()> {
        let folder = self.path.parent().unwrap_or(&self.path);
        let mut prefix = std::ffi::OsString::from(".");
        prefix.push(self.path.file_name().unwrap_or_default());
        prefix.push("-new-");
        let mut file = Builder::new().prefix(&prefix).tempfile_in(folder)?;
        file.write_all(page)?;
        file.as_file().set_permissions(self.permissions.clone())?;
        file.persist(&self.path).map(drop).map_err(|failed| failed.error)
    }

    fn write(&self, page: &[u8]) -> io::Result<()> {
        private_file::create(&self.path, self.is_private)?.write_all(page)
    }
}

#[cfg(test)]
mod tests {
    use pipewright_tests::watchdog::until;

    use super::*;
    use crate::watch::tests::{at, facts, started};

    #[test]
    fn a_page_is_there_at_once_and_is_replaced_as_a_whole() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("page.html");
        let page = LivePage::open(&path, true, facts()).unwrap();
        let permissions = fs::metadata(&path).unwrap().permissions();
        let read = |word: &str| {
            let mut text = String::new();
            until(word, || {
                text = fs::read_to_string(&path).unwrap();
                assert!(text.is_empty() || text.ends_with("</html>\n"), "a part of a page");
                text.contains(word)
            });
            text
        };
        assert!(read("0 running").contains("data-reload"));
        page.event(&started(7, 1, "./convert x"), at(1.0));
        assert!(read("1 running").contains("./convert x"));
        // Nothing is written while nothing changes.
        until("the thread waits for a change", || page.shared.lock().is_idle);
        assert!(!page.shared.lock().is_changed);
        page.event(&Event::Note("the last words".to_owned()), at(2.0));
        let model = page.shared.lock().model.clone();
        assert_eq!(model.ahead().unwrap().left, None);
        page.finish(at(7.5), None).unwrap();
        let text = fs::read_to_string(&path).unwrap();
        assert!(
            text.contains("the last words") && text.contains("\"elapsed_seconds\":7.5"),
            "{text}"
        );
        assert_eq!(fs::metadata(&path).unwrap().permissions(), permissions);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_batch_that_is_given_up_does_not_run_for_ever() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("page.html");
        let page = LivePage::open(&path, false, facts()).unwrap();
        let shared = Arc::clone(&page.shared);
        drop(page);
        let mut state = shared.lock();
        while state.written.is_none() {
            state = shared.wait(state);
        }
        let text = fs::read_to_string(&path).unwrap();
        assert!(text.contains("given up") && !text.contains("data-reload"), "{text}");
    }
}
