//! The file of a page, which a thread replaces while the batch runs: at once, and then at most once a second, when
//! something has changed.
//!
//! The driver only changes the model. The thread copies it, makes the page and writes it beside the file, whose place
//! it then takes, so that a reader always sees a whole page. The file stays as it is until the batch has begun: it may
//! be that of another one. A file that cannot be replaced (a pipe, a device) gets one page at the end.

use std::ffi::OsString;
use std::fs;
use std::hash::{BuildHasher as _, RandomState};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use pipewright_os::base::private_file::{self, OpenFolder};
use pipewright_os::base::{late_open, service_thread};

use super::PageModel;
use crate::vocabulary::Event;
use crate::watch::BatchFacts;
use crate::watch::monitor::Monitor;
use crate::watch::queued::{QueuedFile, nobody_reads};

/// The pause between two pages.
const PAUSE: Duration = Duration::from_secs(1);

/// The time that the last page of a batch that is given up may take.
const LAST_PAGE: Duration = Duration::from_secs(5);

/// The page of a batch.
///
/// # Drop
/// The page of a batch that has begun says that it was given up.
#[derive(Debug)]
pub(crate) struct LivePage {
    shared: Arc<Monitor<State>>,
    way: Way,
}

/// The way in which the file gets its pages.
#[derive(Debug)]
enum Way {
    /// A thread replaces it.
    Thread,
    /// The batch has not begun, or there is no thread: it gets its page at the end.
    Waiting(Arc<Target>),
    /// It cannot be replaced, and gets its page at the end.
    AtEnd(QueuedFile),
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
    /// The thread has tried to write a page.
    #[cfg(test)]
    is_tried: bool,
}

/// A file that can be replaced, or made.
#[derive(Debug)]
struct Target {
    /// Without links: it is the file itself that is replaced.
    path: PathBuf,
    /// The folder, whatever has its name later.
    folder: OpenFolder,
    name: OsString,
    /// The name of the next page, until it takes the place.
    new: OsString,
    /// The folder takes other files.
    is_replaced: bool,
    is_private: bool,
}

impl LivePage {
    /// Looks at the file of a page, and leaves it as it is.
    ///
    /// # Errors
    /// The file cannot be made or written.
    pub(crate) fn open(path: &Path, is_private: bool, facts: BatchFacts) -> io::Result<LivePage> {
        let shared = Arc::new(Monitor::new(State::new(PageModel::new(facts))));
        if late_open::waits(path) {
            let way = Way::AtEnd(QueuedFile::of_pipe(path, is_private)?);
            return Ok(LivePage { shared, way });
        }
        // What is there has to be a file of ours that can be written. A link is followed.
        let way = match fs::symlink_metadata(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                Way::Waiting(Target::new(path, is_private, false)?)
            }
            _ => {
                let file = private_file::open_as_it_is(path, is_private)?;
                match file.metadata()?.is_file() {
                    true => Way::Waiting(Target::new(&fs::canonicalize(path)?, is_private, true)?),
                    false => Way::AtEnd(QueuedFile::of_file(file)),
                }
            }
        };
        Ok(LivePage { shared, way })
    }

    /// Starts the thread: the batch has begun.
    pub(crate) fn begin(&mut self) {
        let Way::Waiting(target) = &self.way else { return };
        if !target.is_replaced {
            return;
        }
        self.shared.lock().model.is_live = true;
        let (shared, target) = (Arc::clone(&self.shared), Arc::clone(target));
        match service_thread::start(c"page", move || shared.write_all_to(&target)) {
            Ok(()) => self.way = Way::Thread,
            // Without room for a thread, there is a page at the end.
            Err(_) => self.shared.lock().model.is_live = false,
        }
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
            self.shared.notify();
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
        let page = || self.shared.lock().model.html();
        match &mut self.way {
            Way::Thread => self.shared.close_within(until),
            Way::Waiting(target) => target.write_last(page().as_bytes()),
            Way::AtEnd(file) => {
                file.write_all(page().as_bytes()).and_then(|()| file.wait_within(until))
            }
        }
    }
}

impl Drop for LivePage {
    fn drop(&mut self) {
        let mut state = self.shared.lock();
        if !state.is_closed && matches!(self.way, Way::Thread) {
            state.model.give_up();
            drop(state);
            // Ignored: there is nobody to report it to.
            let _ = self.shared.close_within(Instant::now().checked_add(LAST_PAGE));
        }
    }
}

impl State {
    fn new(model: PageModel) -> State {
        State {
            model,
            is_changed: true,
            is_idle: false,
            is_closed: false,
            written: None,
            #[cfg(test)]
            is_tried: false,
        }
    }
}

impl Monitor<State> {
    /// Lets the thread write the last page, and waits for it, but no longer than until that time.
    fn close_within(&self, until: Option<Instant>) -> io::Result<()> {
        self.lock().is_closed = true;
        self.notify();
        let mut state = self.lock_while(until, |state| state.written.is_none());
        state.written.take().unwrap_or_else(|| Err(nobody_reads()))
    }

    /// Writes pages until the last one. The work of the thread.
    fn write_all_to(&self, target: &Target) {
        loop {
            let mut state = self.lock_while(None, |state| {
                state.is_idle = !state.is_changed && !state.is_closed;
                state.is_idle
            });
            (state.is_changed, state.is_idle) = (false, false);
            let (model, is_last) = (state.model.clone(), state.is_closed);
            drop(state);
            let page = model.html();
            if is_last {
                let written = target.write_last(page.as_bytes());
                self.lock().written = Some(written);
                return self.notify();
            }
            // An error is ignored: the next page tries again, and the last one tells.
            let is_written = target.replace(page.as_bytes()).is_ok();
            let mut state = self.lock();
            state.is_changed |= !is_written;
            #[cfg(test)]
            {
                state.is_tried = true;
            }
            drop(state);
            drop(self.lock_while(Instant::now().checked_add(PAUSE), |state| !state.is_closed));
        }
    }
}

impl Target {
    /// Opens the folder of a page. `exists`: what has the name is a file that can be written.
    fn new(path: &Path, is_private: bool, exists: bool) -> io::Result<Arc<Target>> {
        let no_name = || io::Error::from(io::ErrorKind::InvalidInput);
        let name = path.file_name().ok_or_else(no_name)?.to_owned();
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
        let folder = OpenFolder::open_named(folder.unwrap_or(Path::new(".")))?;
        let mut new = OsString::from(".");
        new.push(&name);
        new.push(format!("-new-{:016x}", RandomState::new().hash_one(0)));
        // In a folder that takes no other file, the one that is there gets its page at the end.
        let made = folder.create_new(&new, true).map(drop).and_then(|()| folder.remove(&new));
        let is_replaced = made.is_ok();
        if !exists {
            made?;
        }
        let path = std::path::absolute(path)?;
        Ok(Arc::new(Target { path, folder, name, new, is_replaced, is_private }))
    }

    fn replace(&self, page: &[u8]) -> io::Result<()> {
        let written = self.write_new(page);
        let written = written.and_then(|()| self.folder.rename(&self.new, &self.name));
        if written.is_err() {
            // Ignored: the first error is the one to report.
            let _ = self.folder.remove(&self.new);
        }
        written
    }

    /// Writes a file with the rights that the other one has now.
    fn write_new(&self, page: &[u8]) -> io::Result<()> {
        let (permissions, is_new) = match self.folder.open_to_read(&self.name) {
            Ok(file) => (Some(file.metadata()?.permissions()), false),
            Err(error) => (None, error.kind() == io::ErrorKind::NotFound),
        };
        // Until it has those rights, or if they are not known, it is for this user alone.
        let mut file = self.folder.create_new(&self.new, self.is_private || !is_new)?;
        file.write_all(page)?;
        match permissions.filter(|_| !self.is_private) {
            Some(permissions) => file.set_permissions(permissions),
            None => Ok(()),
        }
    }

    /// Replaces the file by the last page. Where nothing can take its place, it is written over, and a reader may see a
    /// part of it.
    fn write_last(&self, page: &[u8]) -> io::Result<()> {
        let write_over = |_| private_file::create(&self.path, self.is_private)?.write_all(page);
        self.replace(page).or_else(write_over)
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
        let mut page = LivePage::open(&path, true, facts()).unwrap();
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0, "it has not begun");
        page.begin();
        let read = |word: &str| {
            let mut text = String::new();
            until(word, || {
                let Ok(read) = fs::read_to_string(&path) else { return false };
                text = read;
                assert!(text.ends_with("</html>\n"), "a part of a page");
                text.contains(word)
            });
            text
        };
        assert!(read("0 running").contains("data-reload"));
        let permissions = fs::metadata(&path).unwrap().permissions();
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
        let mut page = LivePage::open(&path, false, facts()).unwrap();
        page.begin();
        drop(page);
        // The last page is there when the drop returns.
        let text = fs::read_to_string(&path).unwrap();
        assert!(text.contains("given up") && !text.contains("data-reload"), "{text}");
    }

    #[test]
    fn a_batch_that_does_not_begin_leaves_the_page_as_it_is() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("page.html");
        fs::write(&path, "the old page").unwrap();
        let permissions = fs::metadata(&path).unwrap().permissions();
        for is_private in [false, true] {
            drop(LivePage::open(&path, is_private, facts()).unwrap());
            assert_eq!(fs::read_to_string(&path).unwrap(), "the old page");
        }
        assert_eq!(fs::metadata(&path).unwrap().permissions(), permissions);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_page_that_could_not_be_replaced_is_tried_again_without_another_event() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("page.html");
        let mut page = LivePage::open(&path, false, facts()).unwrap();
        // A folder cannot be replaced by a file.
        fs::create_dir(&path).unwrap();
        page.begin();
        until("the thread has tried", || {
            let state = page.shared.lock();
            state.is_tried && state.is_changed
        });
        let names = || fs::read_dir(folder.path()).unwrap().count();
        until("nothing is left of a try", || names() == 1);
        fs::remove_dir(&path).unwrap();
        until("the page is there", || {
            fs::read_to_string(&path).is_ok_and(|text| text.contains("0 running"))
        });
        page.finish(at(1.0), None).unwrap();
    }

    #[cfg(unix)]
    #[test]
    fn a_page_keeps_the_rights_that_its_file_has_and_stays_in_its_folder() {
        use std::os::unix::fs::PermissionsExt as _;
        let folder = tempfile::tempdir().unwrap();
        let [one, moved, other] = ["one", "moved", "other"].map(|name| folder.path().join(name));
        fs::create_dir(&one).unwrap();
        fs::create_dir(&other).unwrap();
        let path = one.join("page.html");
        let mut page = LivePage::open(&path, false, facts()).unwrap();
        page.begin();
        until("the page is there", || path.exists());
        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
        // Somebody puts a link in the place of the folder.
        fs::rename(&one, &moved).unwrap();
        std::os::unix::fs::symlink(&other, &one).unwrap();
        page.finish(at(1.0), None).unwrap();
        assert_eq!(fs::read_dir(&other).unwrap().count(), 0, "the link was followed");
        let page = moved.join("page.html");
        assert!(fs::read_to_string(&page).unwrap().contains("0 ok, 0 failed in 1.0 s"));
        assert_eq!(fs::metadata(&page).unwrap().permissions().mode() & 0o777, 0o640);
    }
}
