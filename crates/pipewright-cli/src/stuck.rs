//! The end of a tool whose own thread is stuck: a file or a directory that it needs may be on a mount that never
//! answers.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use pipewright_os::base::service_thread;
use pipewright_os::process::tree::{kill_descendants, kill_last_descendants};

use crate::{exit_code, print_error, sleep};

/// Time that a start has beyond its limit. It ends by itself if anything answers.
const MARGIN: Duration = Duration::from_secs(1);

/// Time that a command has to end after its stop and its grace. It ends by itself, or is given up, if no file of the
/// tool holds that up.
const ENDS_WITHIN: Duration = Duration::from_secs(30);

/// The time for the last message, whose reader may stand still.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// Ends this process, and says why.
pub(crate) fn end(message: String, code: i32) -> ! {
    say(message);
    std::process::exit(code);
}

fn say(message: String) {
    let (said, has_said) = mpsc::channel();
    let speak = move || {
        print_error(&message);
        // Ignored: nobody waits any more.
        let _ = said.send(());
    };
    // Another thread, because stderr may take nothing. Ignored: the end matters more than the words.
    if service_thread::start(c"last-words", speak).is_ok() {
        let _ = has_said.recv_timeout(LAST_WORDS);
    }
}

/// Ends this process, in which a start is stuck. The processes of that start end too: no guard holds them yet.
pub(crate) fn end_start(code: i32) -> ! {
    IS_ENDING.store(true, Ordering::SeqCst);
    kill_last_descendants();
    std::process::exit(code);
}

/// Ends this process, whose thread is stuck beside a command that runs. The command ends too.
pub(crate) fn end_run(code: i32) -> ! {
    IS_ENDING.store(true, Ordering::SeqCst);
    kill_descendants();
    std::process::exit(code);
}

/// Ends this process as [`end_run`] does, after a signal.
pub(crate) fn end_stopped(code: i32) -> ! {
    say("the command did not end after the signal: a file or a directory that it needs never answered".to_owned());
    end_run(code);
}

/// True while a thread ends this process. The one that was stuck goes on then, and its result does not count.
static IS_ENDING: AtomicBool = AtomicBool::new(false);

/// Never returns if another thread ends this process.
pub(crate) fn wait_if_ending() {
    while IS_ENDING.load(Ordering::SeqCst) {
        thread::park();
    }
}

/// Returns true if a command has not ended long after its stop: the thread that would see to it waits for a file. Steps
/// of a second, because the time in which this process is stopped (Ctrl-Z) does not count.
pub(crate) fn is_stuck(grace: Duration, has_ended: impl Fn() -> bool) -> bool {
    let steps = grace.saturating_add(ENDS_WITHIN).as_secs().max(1);
    (0..steps).all(|_| {
        sleep(Duration::from_secs(1));
        !has_ended()
    })
}

/// A thread that ends this process with code 124 if something does not begin, or end, within its time: a wait of the
/// kernel for a file has no limit of its own, and holds up the thread that would see to it.
#[derive(Debug)]
pub(crate) struct StartWatch(Arc<State>);

#[derive(Debug, Default)]
struct State {
    /// The time since which a start is under way.
    since: Mutex<Option<Instant>>,
    changed: Condvar,
}

impl StartWatch {
    /// Watches the start of `what` from now on. `None`: it has no limit, or there is no thread for it.
    ///
    /// `has_begun` is asked at the end of the limit. `grace` is that of its stop then: its end is watched, too.
    pub(crate) fn new(
        limit: Option<Duration>,
        grace: Duration,
        what: String,
        has_begun: impl Fn() -> bool + Send + 'static,
    ) -> Option<StartWatch> {
        let limit = limit?;
        let state = Arc::new(State { since: Mutex::new(Some(Instant::now())), ..State::default() });
        let watched = Arc::clone(&state);
        let watch = move || {
            while let Some(since) = watched.wait_until_overdue(limit) {
                let has_ended = || *watched.lock() != Some(since);
                let what_not = match has_begun() {
                    false => "begin",
                    true if is_stuck(grace, has_ended) => "end",
                    true => {
                        watched.lock().take_if(|of| *of == since);
                        continue;
                    }
                };
                say(format!(
                    "{what} did not {what_not} within {limit:?}: a file or a directory that it needs never answered"
                ));
                match what_not {
                    "begin" => end_start(exit_code::STOPPED),
                    _ => end_run(exit_code::STOPPED),
                }
            }
        };
        service_thread::start(c"start-watch", watch).ok().map(|()| StartWatch(state))
    }

    /// Records that a start is under way.
    pub(crate) fn begins(&self) {
        *self.0.lock() = Some(Instant::now());
        self.0.changed.notify_all();
    }

    /// Records that nothing is started now.
    pub(crate) fn rests(&self) {
        *self.0.lock() = None;
    }
}

impl State {
    fn lock(&self) -> MutexGuard<'_, Option<Instant>> {
        // A time is one assignment.
        self.since.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until a start has been under way for too long, and returns its time. `None`: it can never be.
    fn wait_until_overdue(&self, limit: Duration) -> Option<Instant> {
        let limit = limit.checked_add(MARGIN)?;
        let mut since = self.lock();
        loop {
            since = match *since {
                None => self.changed.wait(since).unwrap_or_else(PoisonError::into_inner),
                Some(at) => {
                    let left = limit.saturating_sub(at.elapsed());
                    if left.is_zero() {
                        return Some(at);
                    }
                    let waited = self.changed.wait_timeout(since, left);
                    waited.unwrap_or_else(PoisonError::into_inner).0
                }
            };
        }
    }
}
