//! The executor that runs attempts on this machine.

mod command;
mod ending;
mod input;
mod memory;
mod settings;
mod slots;

use std::collections::{HashMap, HashSet, VecDeque};
use std::fmt;
use std::io;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime};

use pipewright::{Capture, Error, ErrorKind, Next, Runner, RunnerWaker, TreeSlot};
use pipewright_os::base::errno::{OsErrorKind, os_error_kind};
use pipewright_os::host::host_info;
use pipewright_os::process::terminal;

use super::{
    Attempt, AttemptEnd, AttemptKey, AttemptOutcome, Executor, ExecutorEvent, MachineMemory,
    OutputSink,
};
use input::Look;
use memory::MemoryLimits;
pub use settings::{Containing, LocalSettings};
use slots::{Place, Slots};

/// The time after which an attempt is tried again that found no room for a process or a handle.
const PAUSE: Duration = Duration::from_millis(50);

/// The time after which the process of an attempt is told. Most jobs that end before need no such event.
const TOLD_AFTER: Duration = Duration::from_millis(20);

/// Runs attempts on this machine, with one thread: the one that calls [`Executor::next_event`].
#[derive(Debug)]
pub struct Local {
    settings: LocalSettings,
    slots: Slots,
    memory: MemoryLimits,
    /// True if jobs could ask at the terminal of this process.
    has_terminal: bool,
    runner: Runner<AttemptKey>,
    attempts: HashMap<AttemptKey, Running>,
    /// Attempts whose input is not open yet.
    opening: Vec<AttemptKey>,
    /// Attempts that found no room for a process or a handle. They start when another one has ended, or after a pause.
    waiting: VecDeque<AttemptKey>,
    /// The trees of attempts that have ended, and in which a process has not, by their job.
    stuck: HashMap<u64, TreeSlot>,
    /// Attempts whose process was not told yet, each with the time at which it is to be.
    untold: VecDeque<(Instant, AttemptKey)>,
    /// Notes, and ends that are not the end of a command.
    events: VecDeque<ExecutorEvent>,
}

/// A sink that several starts of an attempt can use.
type SharedSink = Arc<Mutex<Box<dyn OutputSink>>>;

/// An attempt that has been started, or waits for room.
#[derive(Debug)]
struct Running {
    attempt: Attempt,
    sink: Option<SharedSink>,
    started: SystemTime,
    /// The time of the first start that found no room.
    without_room_since: Option<Instant>,
    /// The way in which the memory was limited at the last start.
    limits: Option<MemoryLimits>,
    stdin: input::Stdin,
}

impl Local {
    /// Creates one. Nothing is started yet.
    #[must_use]
    pub fn new(settings: LocalSettings) -> Local {
        Local {
            slots: Slots::new(settings.contain),
            settings,
            memory: MemoryLimits::WithoutSwap,
            has_terminal: terminal::is_controlling(),
            // The batch decides what runs, so the runner has no limit of its own.
            runner: Runner::new(usize::MAX),
            attempts: HashMap::new(),
            opening: Vec::new(),
            waiting: VecDeque::new(),
            stuck: HashMap::new(),
            untold: VecDeque::new(),
            events: VecDeque::new(),
        }
    }

    /// Returns the event for the end of a command, unless it has to be started again.
    fn event(&mut self, key: AttemptKey, result: Result<Capture, Error>) -> Option<AttemptEnd> {
        let running = self.attempts.get_mut(&key)?;
        if let Err(error) = &result {
            // Only what surely did not run is started again.
            if let Some(limits) = running.limits.filter(|_| error.is_start()) {
                // Others may have found out before.
                let weaker = limits.weaker(error);
                if let Some((weaker, note)) = weaker {
                    if self.memory == limits {
                        self.memory = weaker;
                        self.events.push_back(ExecutorEvent::Note(note));
                    }
                    self.push(key);
                    return None;
                }
            }
            if is_out_of_room(error) && self.waits_for_room(key, error) {
                return None;
            }
            if ending::unanswered(error).is_some() {
                self.events.push_back(ExecutorEvent::Note(format!("job {}: {error}", key.job)));
            }
        }
        let running = self.attempts.remove(&key)?;
        // A process that SIGKILL does not end: it is stuck in the kernel, or has become another user's. The next job of its slot
        // has no part in it.
        let slot = running.attempt.slot;
        if let Some(tree) = self.slots.take_stuck(slot) {
            self.stuck.insert(key.job, tree);
            self.events.push_back(ExecutorEvent::Note(format!(
                "a process of job {} does not end, and it is not started again beside that; slot {slot} is held anew",
                key.job
            )));
        }
        Some(ending::end(key, running.started, result))
    }

    /// Lets an attempt wait that found no room. Returns false if it has waited long enough.
    fn waits_for_room(&mut self, key: AttemptKey, error: &dyn fmt::Display) -> bool {
        let Some(running) = self.attempts.get_mut(&key) else { return false };
        // Another one that runs leaves its room some time.
        let is_alone = self.runner.is_empty();
        let is_first = is_alone && running.without_room_since.is_none();
        if !running.may_wait(is_alone, self.settings.room_timeout) {
            return false;
        }
        if is_first {
            let note = format!("nothing can be started now: {error}");
            self.events.push_back(ExecutorEvent::Note(note));
        }
        self.waiting.push_back(key);
        self.release_idle_slots();
        true
    }

    fn push(&mut self, key: AttemptKey) {
        if self.stuck.get(&key.job).is_some_and(|tree| !tree.is_free()) {
            let message = "a process of its earlier attempt does not end";
            if !self.waits_for_room(key, &format_args!("job {}: {message}", key.job)) {
                self.end_without_run(key, AttemptOutcome::NotStarted(message.to_owned()));
            }
            return;
        }
        self.stuck.remove(&key.job);
        let Some(running) = self.attempts.get_mut(&key) else { return };
        running.started = SystemTime::now();
        let runner = &mut self.runner;
        if !running.stdin.open(&running.attempt, self.settings.idle_timeout, || waker_of(runner)) {
            return self.opening.push(key);
        }
        let place = match self.slots.tree(running.attempt.slot) {
            Ok(Some(tree)) => {
                running.limits = Some(self.memory);
                Place::Tree(tree, self.memory.of(running.attempt.memory_max_bytes))
            }
            Ok(None) => {
                running.limits = None;
                Place::Group
            }
            Err(error) => {
                let end = self.event(key, Err(error));
                return self.events.extend(end.map(Box::new).map(ExecutorEvent::Ended));
            }
        };
        self.events.extend(self.slots.take_note().map(ExecutorEvent::Note));
        match command::build(
            &self.settings,
            &running.attempt,
            &mut running.stdin,
            running.sink.as_ref(),
            place,
            self.has_terminal,
        ) {
            Ok(command) => self.runner.push(key, command),
            Err(message) => self.end_without_run(key, AttemptOutcome::NotStarted(message)),
        }
    }

    fn end_without_run(&mut self, key: AttemptKey, outcome: AttemptOutcome) {
        if let Some(running) = self.attempts.remove(&key) {
            let elapsed = running.stdin.waited();
            let end = AttemptEnd::new(key, outcome, running.started, elapsed);
            self.events.push_back(ExecutorEvent::Ended(Box::new(end)));
        }
    }

    /// Starts the attempts whose input is open now, and ends those whose time is over.
    fn look_at_inputs(&mut self) {
        for key in std::mem::take(&mut self.opening) {
            let Some(running) = self.attempts.get_mut(&key) else { continue };
            match running.stdin.look(&mut running.attempt) {
                Look::Open => self.push(key),
                Look::Waits => self.opening.push(key),
                Look::Failed(error) => {
                    let message = input::failed(&running.attempt, &error);
                    let has_room = !matches!(os_error_kind(&error), Some(OsErrorKind::Limit(_)));
                    if has_room || !self.waits_for_room(key, &message) {
                        self.end_without_run(key, AttemptOutcome::NotStarted(message));
                    }
                }
                Look::Over(outcome) => self.end_without_run(key, outcome),
            }
        }
    }

    /// Tells the processes of the attempts that have run for a while. Returns the time of the next look.
    fn tell_processes(&mut self) -> Option<Instant> {
        while let Some((due, key)) = self.untold.front().copied() {
            let runs = self.attempts.contains_key(&key);
            let now = Instant::now();
            if runs && now < due {
                return Some(due);
            }
            self.untold.pop_front();
            match self.runner.pid(&key).filter(|_| runs) {
                Some(pid) => self.events.push_back(ExecutorEvent::Runs { key, pid }),
                // It waits for its start.
                None if runs => self.untold.push_back((now + TOLD_AFTER, key)),
                None => {}
            }
        }
        None
    }

    /// Gives up the trees of slots that run nothing: they could have the room that every attempt waits for.
    fn release_idle_slots(&mut self) {
        let waiting: HashSet<_> = self.waiting.iter().collect();
        let busy = self.attempts.iter().filter(|(key, _)| !waiting.contains(key));
        let busy = busy.map(|(_, running)| running.attempt.slot).collect();
        self.slots.retain(&busy);
    }

    /// Starts one attempt that waits for room. Together, their slots would take the room, and none of them could start.
    fn push_waiting(&mut self) {
        if let Some(key) = self.waiting.pop_front() {
            self.push(key);
        }
    }
}

impl Running {
    /// Returns true if the attempt may wait for room: while others run, and then up to a limit.
    fn may_wait(&mut self, is_alone: bool, limit: Duration) -> bool {
        if !is_alone {
            self.without_room_since = None;
            return true;
        }
        self.without_room_since.get_or_insert_with(Instant::now).elapsed() < limit
    }
}

impl Executor for Local {
    fn start(&mut self, mut attempt: Attempt) {
        let key = attempt.key;
        let sink = attempt.output.take().map(|sink| Arc::new(Mutex::new(sink)));
        let started = SystemTime::now();
        self.attempts.insert(
            key,
            Running {
                attempt,
                sink,
                started,
                without_room_since: None,
                limits: None,
                stdin: input::Stdin::default(),
            },
        );
        self.untold.push_back((Instant::now() + TOLD_AFTER, key));
        self.push(key);
    }

    fn stop(&mut self, key: AttemptKey) {
        if let Some(at) = self.waiting.iter().position(|waiting| *waiting == key) {
            self.waiting.remove(at);
            let reason = "it was stopped before it was started".to_owned();
            self.end_without_run(key, AttemptOutcome::NotStarted(reason));
            return;
        }
        if let Some(at) = self.opening.iter().position(|opening| *opening == key) {
            self.opening.remove(at);
            self.end_without_run(key, AttemptOutcome::Cancelled);
            return;
        }
        self.runner.cancel(&key);
    }

    fn waiting(&self) -> Vec<AttemptKey> {
        self.waiting.iter().copied().collect()
    }

    fn next_event(&mut self, until: Option<Instant>) -> io::Result<Option<ExecutorEvent>> {
        loop {
            let told = self.tell_processes();
            self.look_at_inputs();
            if let Some(event) = self.events.pop_front() {
                return Ok(Some(event));
            }
            let waits = !self.waiting.is_empty() || !self.opening.is_empty();
            let retry = waits.then(|| Instant::now() + PAUSE);
            let limit = [until, told, retry].into_iter().flatten().min();
            let left =
                limit.map_or(Duration::MAX, |at| at.saturating_duration_since(Instant::now()));
            match self.runner.next_within(left) {
                Next::Item((key, result)) => {
                    let end = self.event(key, result);
                    let is_end = end.is_some();
                    self.events.extend(end.map(Box::new).map(ExecutorEvent::Ended));
                    if is_end {
                        self.push_waiting();
                    }
                }
                Next::Pending | Next::Done
                    if !self.waiting.is_empty() || !self.opening.is_empty() =>
                {
                    let is_woken = limit.is_some_and(|at| Instant::now() < at);
                    if self.runner.is_empty() && is_woken {
                        // Nothing runs that could wake this thread.
                        std::thread::park_timeout(PAUSE);
                    }
                    self.push_waiting();
                    if until.is_some_and(|until| Instant::now() >= until) || is_woken {
                        return Ok(None);
                    }
                }
                Next::Pending | Next::Done => return Ok(None),
            }
        }
    }

    fn memory(&mut self) -> Option<MachineMemory> {
        let mut memory = MachineMemory::new(host_info::free_memory_bytes()?);
        memory.stalled = host_info::memory_stall();
        Some(memory)
    }

    fn waker(&mut self) -> io::Result<Box<dyn Fn() + Send + Sync>> {
        let waker: RunnerWaker = self.runner.waker()?;
        Ok(Box::new(move || waker.wake()))
    }
}

/// Returns what wakes the thread of a runner, also while nothing runs there.
fn waker_of(runner: &mut Runner<AttemptKey>) -> input::Waker {
    // Without a handle for one, it looks after a pause.
    let (waker, thread) = (runner.waker().ok(), std::thread::current());
    Box::new(move || {
        waker.iter().for_each(RunnerWaker::wake);
        thread.unpark();
    })
}

/// Returns true for a start that failed because of a limit that other processes may leave soon.
fn is_out_of_room(error: &Error) -> bool {
    // After a failed wait or read the command has run. Too long arguments stay too long.
    error.is_start()
        && matches!(error.kind(), ErrorKind::Limit { .. })
        && io::Error::from_raw_os_error(error.raw_os_error().unwrap_or(0)).kind()
            != io::ErrorKind::ArgumentListTooLong
}
