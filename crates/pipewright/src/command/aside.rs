//! A start on a thread of its own: a file or a directory that it needs has not answered, and the caller sees to other
//! commands.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use pipewright_os::base::service_thread;
use pipewright_os::base::wake::{WaitEvent, Wake};
use pipewright_os::process::start::StartLimit;

use super::Command;
use crate::error::{Error, could_not_prepare};
use crate::run::Run;

/// The time after which a start goes on elsewhere. Most take a thousandth of it.
const PATIENCE: Duration = Duration::from_secs(1);

/// Begins such a start. A pointer, so that programs without such commands do not contain its code.
pub(crate) type StartAside = fn(Command) -> Result<Box<dyn Aside>, Error>;

/// A start on a thread of its own.
///
/// # Drop
/// Ends it. The thread kills a child that it gets then.
pub(crate) trait Aside: fmt::Debug + Send + Sync {
    /// Returns the event after which [`finish`](Self::finish) does not wait.
    fn result(&self) -> &dyn WaitEvent;

    fn command(&self) -> &Command;

    /// Returns the time at which the command has to end.
    fn until(&self) -> Option<Instant>;

    /// Kills the child, unless it runs its program.
    fn end(&self);

    fn finish(&self) -> Result<Run, Error>;
}

impl Command {
    /// Lets a [`Runner`](crate::Runner) see to its other commands while the start of this one waits for a file or a
    /// directory: after a second it goes on in a thread of its own. For a runner only: elsewhere such a start fails
    /// then.
    ///
    /// # Platform
    /// Linux, without a slot, a tree or a closure. Else it has no effect.
    #[doc(hidden)]
    pub fn start_aside(&mut self) -> &mut Command {
        self.lifetime.aside = Some(start);
        self.set_start_limit(StartLimit::Time(PATIENCE));
        self
    }

    pub(crate) fn aside(&self) -> Option<StartAside> {
        self.lifetime.aside
    }

    fn set_start_limit(&mut self, limit: StartLimit) {
        self.unix.start_limit = Some(limit);
    }
}

#[derive(Debug)]
struct AsideStart {
    command: Arc<Command>,
    until: Option<Instant>,
    has_come: Arc<Wake>,
    is_unwanted: Arc<AtomicBool>,
    result: Arc<Mutex<Option<Result<Run, Error>>>>,
}

fn start(mut command: Command) -> Result<Box<dyn Aside>, Error> {
    let is_unwanted = Arc::new(AtomicBool::new(false));
    command.set_start_limit(StartLimit::Flag(Arc::clone(&is_unwanted)));
    let until = command.ends_at(Instant::now());
    let command = Arc::new(command);
    let cannot =
        |what: &str, error| could_not_prepare(command.get_program(), what.to_owned(), error);
    let has_come = Arc::new(Wake::new().map_err(|error| cannot("cannot make an event", error))?);
    let start = AsideStart {
        command: Arc::clone(&command),
        until,
        has_come,
        is_unwanted,
        result: Arc::default(),
    };
    let (to_start, has_come) = (Arc::clone(&command), Arc::clone(&start.has_come));
    let (is_unwanted, result) = (Arc::clone(&start.is_unwanted), Arc::clone(&start.result));
    let work = move || {
        let mut started = to_start.start_capture();
        let mut result = result.lock().unwrap_or_else(PoisonError::into_inner);
        if is_unwanted.load(Ordering::Relaxed) {
            started.iter_mut().for_each(Run::abandon);
        }
        *result = Some(started);
        has_come.raise();
    };
    service_thread::start_with_default_stack(c"start-aside", work)
        .map_err(|error| cannot("cannot start a thread", error))?;
    Ok(Box::new(start))
}

impl Aside for AsideStart {
    fn result(&self) -> &dyn WaitEvent {
        &*self.has_come
    }

    fn command(&self) -> &Command {
        &self.command
    }

    fn until(&self) -> Option<Instant> {
        self.until
    }

    fn end(&self) {
        self.is_unwanted.store(true, Ordering::Relaxed);
    }

    fn finish(&self) -> Result<Run, Error> {
        let mut result = self.result.lock().unwrap_or_else(PoisonError::into_inner);
        // The event has happened, and only this takes it.
        result.take().unwrap_or_else(|| Err(self.command.misuse("its start has no result")))
    }
}

impl Drop for AsideStart {
    fn drop(&mut self) {
        self.end();
        let mut result = self.result.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(Ok(run)) = &mut *result {
            run.abandon();
        }
    }
}
