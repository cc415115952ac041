//! An open that may wait: that of a named pipe, until another process opens the other side, or of a file on a mount
//! that does not answer.

use std::fmt;
use std::fs::{File, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::base::service_thread;

/// Returns true if an open of that file waits for another process: it is a named pipe.
///
/// # Platform
/// Windows: false, because an open of a named pipe there does not wait.
///
/// ```
/// # use pipewright_os::base::late_open::waits;
/// assert!(!waits(std::path::Path::new("no such file")));
/// ```
#[must_use]
pub fn waits(path: &Path) -> bool {
    #[cfg(unix)]
    return std::fs::metadata(path)
        .is_ok_and(|found| std::os::unix::fs::FileTypeExt::is_fifo(&found.file_type()));
    #[cfg(windows)]
    {
        let _ = path;
        false
    }
}

/// An open that a thread of its own waits for.
///
/// # Platform
/// Unix: `open` without `O_NONBLOCK`: a reader that opens a pipe earlier would find its end before the first writer
/// comes.
///
/// # Drop
/// As [`give_up`](Self::give_up).
///
/// ```
/// # use pipewright_os::base::late_open::LateOpen;
/// let mut options = std::fs::OpenOptions::new();
/// options.read(true);
/// let open = LateOpen::start(std::env::current_exe()?, options)?;
/// let file = open.wait(None).unwrap()?;
/// assert!(file.metadata()?.len() > 0);
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug)]
pub struct LateOpen {
    path: PathBuf,
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    ended: Condvar,
}

#[derive(Default)]
struct State {
    result: Option<io::Result<File>>,
    is_over: bool,
    is_given_up: bool,
    /// Both sides of the pipe, until the thread has left its open.
    release: Option<File>,
}

impl fmt::Debug for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("State").field("is_over", &self.is_over).finish_non_exhaustive()
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl LateOpen {
    /// Starts the thread.
    ///
    /// # Errors
    /// The system cannot start another thread.
    pub fn start(path: impl Into<PathBuf>, options: OpenOptions) -> io::Result<LateOpen> {
        LateOpen::start_with(path, move |path| options.open(path), || {})
    }

    /// Starts the thread, which opens the file by `open`, and calls `on_end` once there is a result.
    ///
    /// # Errors
    /// As [`start`](Self::start).
    pub fn start_with(
        path: impl Into<PathBuf>,
        open: impl FnOnce(&Path) -> io::Result<File> + Send + 'static,
        on_end: impl FnOnce() + Send + 'static,
    ) -> io::Result<LateOpen> {
        let late = LateOpen { path: path.into(), shared: Arc::default() };
        let (path, shared) = (late.path.clone(), Arc::clone(&late.shared));
        service_thread::start(c"pw-open", move || {
            let opened = open(&path);
            let mut state = shared.lock();
            state.is_over = true;
            state.release = None;
            if !state.is_given_up {
                state.result = Some(opened);
            }
            drop(state);
            shared.ended.notify_all();
            on_end();
        })?;
        Ok(late)
    }

    /// Returns the file, once. `None`: the open waits, or its result was taken.
    #[must_use]
    pub fn take(&self) -> Option<io::Result<File>> {
        self.shared.lock().result.take()
    }

    /// Waits for the file, but no longer than until that time. `None`: the time has passed, or the open was given up.
    #[must_use]
    pub fn wait(&self, until: Option<Instant>) -> Option<io::Result<File>> {
        let mut state = self.shared.lock();
        while state.result.is_none() && !state.is_over && !state.is_given_up {
            let left = match until {
                Some(until) => until.saturating_duration_since(Instant::now()),
                None => Duration::from_secs(3600),
            };
            if left.is_zero() {
                break;
            }
            let waited = self.shared.ended.wait_timeout(state, left);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        state.result.take()
    }

    /// Ends all waits for the file. If it is a pipe, the thread ends too: the pipe is opened from both sides for a
    /// moment.
    pub fn give_up(&self) {
        let mut state = self.shared.lock();
        if state.is_over || std::mem::replace(&mut state.is_given_up, true) {
            return;
        }
        drop(state);
        self.shared.ended.notify_all();
        self.release();
    }

    /// Opens both sides of a pipe. The look at a file may wait as its open does, so another thread looks.
    fn release(&self) {
        let (path, shared) = (self.path.clone(), Arc::clone(&self.shared));
        // Ignored: without a thread, that of the open waits on.
        let _ = service_thread::start(c"pw-release", move || {
            let both = open_both_sides(&path);
            let mut state = shared.lock();
            if !state.is_over {
                state.release = both;
            }
        });
    }
}

impl Drop for LateOpen {
    fn drop(&mut self) {
        self.give_up();
    }
}

/// Opens a pipe without a wait. `None`: somebody has removed it, and the thread waits on.
fn open_both_sides(path: &Path) -> Option<File> {
    let mut both = OpenOptions::new();
    both.read(true).write(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::custom_flags(&mut both, libc::O_NONBLOCK);
    waits(path).then(|| both.open(path).ok()).flatten()
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;

    #[test]
    fn a_wait_ends_with_the_other_side_with_its_time_and_with_the_handle() {
        let path = std::env::temp_dir().join(format!("late-open-{}", std::process::id()));
        let made = std::process::Command::new("mkfifo").arg(&path).status().unwrap();
        assert!(made.success() && waits(&path));
        let reader = || {
            let mut read = OpenOptions::new();
            read.read(true);
            LateOpen::start(&path, read).unwrap()
        };
        let open = reader();
        let soon = Duration::from_millis(30);
        assert!(open.wait(Some(Instant::now() + soon)).is_none() && open.take().is_none());
        let writer = OpenOptions::new().write(true).open(&path).unwrap();
        assert!(open.wait(None).unwrap().is_ok());
        drop((open, writer));
        let open = reader();
        let shared = Arc::clone(&open.shared);
        open.give_up();
        assert!(open.wait(None).is_none());
        drop(open);
        let mut state = shared.lock();
        while !state.is_over {
            state = shared.ended.wait(state).unwrap();
        }
        assert!(state.release.is_none() && state.result.is_none());
        std::fs::remove_file(path).unwrap();
    }
}
