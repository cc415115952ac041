//! The executor that runs attempts on this machine: the holders of trees, one for each slot, the limit on memory, the
//! end of a command as the end of an attempt, and the command of an attempt.

mod input;
mod room;

use std::collections::{BTreeSet, HashMap, HashSet, VecDeque};
use std::error::Error as _;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use pipewright::{
    Capture, Command, Contain, Error, ErrorKind, Limit, LimitKind, Limits, Next, Outcome, Runner,
    RunnerWaker, Scope, Signal, Source, Stdio, TreeSlot,
};
use pipewright_os::base::error::{OsErrorKind, os_error_kind};
use pipewright_os::base::open_limit;
use pipewright_os::base::this_process::{Shown, pwd_without_look};
use pipewright_os::host::host_info;
use pipewright_os::process::start::GUARDS_GROUPS;
use pipewright_os::process::terminal;
use serde::{Deserialize, Serialize};

use super::attributes::JobAttributes;
use super::{Attempt, Executor, ExecutorEvent, MachineMemory, OutputSink};
use crate::job::JobStdin;
use crate::vocabulary::{AttemptEnd, AttemptKey, AttemptOutcome};

use input::{Look, Stdin};
use room::{PAUSE, Refused, Room};

/// The reason for which an attempt is not started.
const HELD: &str = "a process of its earlier attempt does not end";

/// The time after which the process of an attempt is reported. Most jobs that end before need no such event.
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
    room: Room,
    /// Attempts that wait for room: for processes and handles.
    waiting: VecDeque<AttemptKey>,
    /// Attempts that have room, and wait for [`Executor::begin`].
    placed: BTreeSet<AttemptKey>,
    /// Attempts beside whose earlier one a process does not end, each with the time since which nothing else runs.
    held: Vec<(AttemptKey, Option<Instant>)>,
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
    /// The log does not have it: it asks before it begins.
    asks: bool,
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
            runner: Runner::new(usize::MAX).enforce_in_background(),
            attempts: HashMap::new(),
            opening: Vec::new(),
            room: Room::new(),
            waiting: VecDeque::new(),
            placed: BTreeSet::new(),
            held: Vec::new(),
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
            if is_out_of_room(error) {
                let cause = io::Error::from_raw_os_error(error.raw_os_error().unwrap_or(0));
                self.refused(key, &cause, error.to_string());
                return None;
            }
            if unanswered(error).is_some() {
                self.events.push_back(ExecutorEvent::Note(format!("job {}: {error}", key.job)));
            }
        }
        let running = self.attempts.remove(&key)?;
        self.room.has_run();
        // A process that SIGKILL does not end: it is stuck in the kernel, or has become another user's. The next job of
        // its slot has no part in it.
        let slot = running.attempt.slot;
        if let Some(tree) = self.slots.take_stuck(slot) {
            self.stuck.insert(key.job, tree);
            self.events.push_back(ExecutorEvent::Note(format!(
                "a process of job {} does not end, and it is not started again beside that; slot {slot} is held anew",
                key.job
            )));
        }
        Some(end_of(key, running.started, result))
    }

    /// Lets an attempt wait that found no room, or ends it if nothing runs that could leave some.
    fn refused(&mut self, key: AttemptKey, error: &io::Error, message: String) {
        // Trees of slots that run nothing could have the room.
        if self.slots.retain(&self.busy_slots()) {
            return self.push(key);
        }
        let message = match open_limit::remedy(error) {
            Some(remedy) => format!("{message}: {remedy}"),
            None => message,
        };
        let running = self.running();
        match self.room.refuse(running, error, &message, self.settings.room_timeout) {
            Refused::Fails => {
                return self.end_without_run(key, AttemptOutcome::NotStarted(message));
            }
            Refused::Retries { is_first: true } => {
                let note = format!("nothing can be started now: {message}");
                self.events.push_back(ExecutorEvent::Note(note));
            }
            Refused::Retries { is_first: false } | Refused::Waits => {}
        }
        self.displace(key);
        self.waiting.push_front(key);
    }

    /// Tells that an attempt which was started waits for room.
    fn displace(&mut self, key: AttemptKey) {
        if let Some(running) = self.attempts.get_mut(&key).filter(|running| running.attempt.once) {
            running.asks = true;
            self.events.push_back(ExecutorEvent::Displaced(key));
        }
    }

    /// Returns the number of attempts that have room.
    fn running(&self) -> usize {
        self.runner.len() + self.opening.len() + self.placed.len()
    }

    /// Starts the attempts for which there is room.
    fn start_waiting(&mut self) {
        if !self.waiting.is_empty() {
            self.room.grow(self.running());
        }
        while let Some(key) = self.waiting.front().copied() {
            if !self.has_place(key) {
                return;
            }
            self.waiting.pop_front();
            match self.attempts.get(&key) {
                Some(running) if running.asks => {
                    self.placed.insert(key);
                    self.events.push_back(ExecutorEvent::Placed(key));
                }
                _ => self.push(key),
            }
        }
    }

    fn has_place(&mut self, key: AttemptKey) -> bool {
        let sink = self.attempts.get(&key).and_then(|running| running.sink.as_ref());
        let files =
            sink.map_or(0, |sink| sink.lock().unwrap_or_else(PoisonError::into_inner).files());
        self.room.has_place(self.running(), files)
    }

    /// Starts the attempts beside whose earlier one no process is left, and ends those that have waited long enough for
    /// that.
    fn look_at_held(&mut self) {
        for (key, since) in std::mem::take(&mut self.held) {
            if self.stuck.get(&key.job).is_none_or(TreeSlot::is_free) {
                self.push(key);
                continue;
            }
            // Another one that runs may be what it takes.
            let is_alone = self.running() == 0 && self.waiting.is_empty();
            let since = is_alone.then(|| since.unwrap_or_else(Instant::now));
            match since.filter(|since| since.elapsed() >= self.settings.room_timeout) {
                Some(_) => {
                    self.end_without_run(key, AttemptOutcome::NotStarted(HELD.to_owned()));
                }
                None => self.held.push((key, since)),
            }
        }
    }

    fn push(&mut self, key: AttemptKey) {
        if self.stuck.get(&key.job).is_some_and(|tree| !tree.is_free()) {
            let note = format!("job {} cannot be started now: {HELD}", key.job);
            self.events.push_back(ExecutorEvent::Note(note));
            return self.held.push((key, None));
        }
        self.stuck.remove(&key.job);
        let Some(running) = self.attempts.get_mut(&key) else { return };
        running.started = SystemTime::now();
        let runner = &mut self.runner;
        if !running.stdin.open(&running.attempt, self.settings.idle_timeout, || waker_of(runner)) {
            return self.opening.push(key);
        }
        let slot = running.attempt.slot;
        let has_own = self.settings.attributes.user.is_some() && self.slots.holds_trees();
        if !has_own && !self.slots.has(slot) {
            let busy = self.busy_slots();
            self.slots.move_idle(slot, &busy);
        }
        let tree = if has_own { Ok(None) } else { self.slots.tree(slot) };
        let Some(running) = self.attempts.get_mut(&key) else { return };
        let place = match tree {
            Ok(tree) if has_own || tree.is_some() => {
                let own = running.attempt.memory_max_bytes;
                running.limits = own.map(|_| self.memory);
                let limits = self.settings.attributes.limits_with(self.memory.of(own));
                Place::Tree(tree, limits)
            }
            Ok(_) if self.settings.attributes.limits.is_some_and(|limits| !limits.best_effort) => {
                let message =
                    "its limits need a tree, and jobs have process groups only".to_owned();
                return self.end_without_run(key, AttemptOutcome::NotStarted(message));
            }
            Ok(_) => {
                running.limits = None;
                Place::Group
            }
            Err(error) => {
                let end = self.event(key, Err(error));
                return self.events.extend(end.map(Box::new).map(ExecutorEvent::Ended));
            }
        };
        self.events.extend(self.slots.take_note().map(ExecutorEvent::Note));
        match build_command(
            &self.settings,
            &running.attempt,
            &mut running.stdin,
            running.sink.as_ref(),
            place,
            self.has_terminal,
        ) {
            Ok(command) => self.runner.push(key, command),
            Err(Unbuilt::NoHandle(error)) => {
                self.refused(key, &error, format!("no handle for it: {error}"));
            }
            Err(Unbuilt::NoCommand) => {
                let message = "the command is empty".to_owned();
                self.end_without_run(key, AttemptOutcome::NotStarted(message));
            }
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
                    match os_error_kind(&error) {
                        Some(OsErrorKind::Limit(_)) => self.refused(key, &error, message),
                        _ => self.end_without_run(key, AttemptOutcome::NotStarted(message)),
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

    /// Returns the slots of the attempts that do not wait for room.
    fn busy_slots(&self) -> HashSet<u32> {
        let waiting: HashSet<_> = self.waiting.iter().collect();
        let busy = self.attempts.iter().filter(|(key, _)| !waiting.contains(key));
        busy.map(|(_, running)| running.attempt.slot).collect()
    }

    /// Takes an attempt that is not started yet. It waits for room.
    fn add(&mut self, mut attempt: Attempt, asks: bool) -> AttemptKey {
        let key = attempt.key;
        let sink = attempt.output.take().map(|sink| Arc::new(Mutex::new(sink)));
        let (started, limits) = (SystemTime::now(), None);
        let stdin = input::Stdin::default();
        self.attempts.insert(key, Running { attempt, sink, started, asks, limits, stdin });
        self.untold.push_back((Instant::now() + TOLD_AFTER, key));
        key
    }
}

impl Executor for Local {
    fn start(&mut self, attempt: Attempt) {
        let key = self.add(attempt, false);
        if self.waiting.is_empty() && self.has_place(key) {
            return self.push(key);
        }
        self.displace(key);
        self.waiting.push_back(key);
    }

    /// Returns true once room was short.
    fn places_first(&self) -> bool {
        self.room.is_short()
    }

    fn place(&mut self, attempt: Attempt) {
        let key = self.add(attempt, true);
        self.waiting.push_back(key);
    }

    fn begin(&mut self, key: AttemptKey) {
        if self.placed.remove(&key) {
            self.push(key);
        }
    }

    fn stop(&mut self, key: AttemptKey) {
        if self.waiting().contains(&key) {
            self.waiting.retain(|waiting| *waiting != key);
            self.held.retain(|(held, _)| *held != key);
            self.placed.remove(&key);
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
        let held = self.held.iter().map(|(key, _)| key);
        self.waiting.iter().chain(&self.placed).chain(held).copied().collect()
    }

    fn next_event(&mut self, until: Option<Instant>) -> io::Result<Option<ExecutorEvent>> {
        loop {
            let told = self.tell_processes();
            self.look_at_inputs();
            self.look_at_held();
            self.start_waiting();
            if self.runner.queued() == 0 {
                self.events.extend(self.room.take_note().map(ExecutorEvent::Note));
            }
            if let Some(event) = self.events.pop_front() {
                return Ok(Some(event));
            }
            let waits = !self.waiting.is_empty()
                || !self.opening.is_empty()
                || !self.placed.is_empty()
                || !self.held.is_empty();
            let retry = waits.then(|| Instant::now() + PAUSE);
            let limit = [until, told, retry].into_iter().flatten().min();
            let left =
                limit.map_or(Duration::MAX, |at| at.saturating_duration_since(Instant::now()));
            match self.runner.next_within(left) {
                Next::Item((key, result)) => {
                    let end = self.event(key, result);
                    self.events.extend(end.map(Box::new).map(ExecutorEvent::Ended));
                }
                Next::Pending | Next::Done if waits => {
                    let is_woken = limit.is_some_and(|at| Instant::now() < at);
                    if self.runner.is_empty() && is_woken {
                        // Nothing runs that could wake this thread.
                        std::thread::park_timeout(PAUSE);
                    }
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

    fn load(&mut self) -> Option<f64> {
        host_info::running_threads()
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

// Settings of the executor of this machine.

/// Settings of [`Local`](super::Local).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct LocalSettings {
    /// Processes that a stop reaches, and that may not outlive a job.
    pub contain: Containing,
    /// The signal that requests a stop.
    #[serde(with = "signal")]
    pub stop_signal: Signal,
    /// The time between that signal and the kill.
    pub kill_grace: Duration,
    /// The time without output after which an attempt is stopped.
    pub idle_timeout: Option<Duration>,
    /// The number of bytes of one stream after which an attempt is stopped.
    pub limit_bytes: Option<usize>,
    /// The time that a start may wait for room, if the machine has no process or handle left.
    pub room_timeout: Duration,
    /// The attributes that every job starts with.
    pub attributes: JobAttributes,
}

impl Default for LocalSettings {
    fn default() -> LocalSettings {
        LocalSettings {
            contain: Containing::Tree,
            stop_signal: Signal::TERM,
            kill_grace: Duration::from_secs(5),
            idle_timeout: None,
            limit_bytes: None,
            room_timeout: Duration::from_secs(10),
            attributes: JobAttributes::default(),
        }
    }
}

/// Processes that a stop reaches, and that may not outlive a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub enum Containing {
    /// Everything that the job starts. It is killed when the job ends, and when the batch is killed.
    Tree,
    /// The process group of the job. What outlives the job keeps running, and the batch's death kills the command only.
    Group,
}

/// Signals travel as their numbers.
mod signal {
    use pipewright::Signal;
    use serde::{Deserialize, Deserializer, Serializer, de};

    pub(super) fn serialize<S: Serializer>(signal: &Signal, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_i32(signal.number())
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Signal, D::Error> {
        let number = i32::deserialize(from)?;
        Signal::from_number(number).ok_or_else(|| de::Error::custom("no such signal"))
    }
}

// The holders of process trees, one for each slot of the batch.

/// The holders. They are made when they are needed, and used by one job after the other.
#[derive(Debug)]
pub(super) struct Slots {
    contain: Containing,
    trees: HashMap<u32, TreeSlot>,
    note: Option<String>,
}

/// The containment of a command.
pub(super) enum Place {
    /// A tree, perhaps with limits. `None`: one of its own, for a command of another user, which no holder of several
    /// starts.
    Tree(Option<TreeSlot>, Option<Limits>),
    Group,
}

impl Slots {
    pub(super) fn new(contain: Containing) -> Slots {
        Slots { contain, trees: HashMap::new(), note: None }
    }

    /// Returns the holder of the next command in that slot; `None` if commands have groups only.
    ///
    /// # Errors
    /// There is no room for another process or handle.
    pub(super) fn tree(&mut self, slot: u32) -> Result<Option<TreeSlot>, Error> {
        if self.contain == Containing::Group {
            return Ok(None);
        }
        if let Some(tree) = self.trees.get(&slot) {
            return Ok(Some(tree.clone()));
        }
        match TreeSlot::new() {
            Ok(tree) => {
                self.trees.insert(slot, tree.clone());
                Ok(Some(tree))
            }
            Err(error) if matches!(error.kind(), ErrorKind::Unsupported) => {
                self.contain = Containing::Group;
                self.note = Some(format!(
                    "jobs have process groups only, so processes can outlive them: {error}"
                ));
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    /// Gives up the holder of a slot in which a process of its last command does not end, and returns it.
    pub(super) fn take_stuck(&mut self, slot: u32) -> Option<TreeSlot> {
        self.trees.get(&slot).filter(|tree| !tree.is_free())?;
        self.trees.remove(&slot)
    }

    /// Returns true if commands have trees.
    pub(super) fn holds_trees(&self) -> bool {
        self.contain == Containing::Tree
    }

    /// Returns true if the slot has a holder, or needs none.
    pub(super) fn has(&self, slot: u32) -> bool {
        self.contain == Containing::Group || self.trees.contains_key(&slot)
    }

    /// Gives a slot the holder of one that runs nothing, if there is one.
    pub(super) fn move_idle(&mut self, slot: u32, busy: &HashSet<u32>) {
        let is_idle = |(other, tree): &(&u32, &TreeSlot)| !busy.contains(other) && tree.is_free();
        let idle = self.trees.iter().find(is_idle).map(|(idle, _)| *idle);
        if let Some(tree) = idle.and_then(|idle| self.trees.remove(&idle)) {
            self.trees.insert(slot, tree);
        }
    }

    /// Gives up the holders of all slots but these, and their handles. Returns true if there were some.
    pub(super) fn retain(&mut self, busy: &HashSet<u32>) -> bool {
        let before = self.trees.len();
        self.trees.retain(|slot, _| busy.contains(slot));
        self.trees.len() < before
    }

    /// Returns the reason for a weaker containment, once.
    pub(super) fn take_note(&mut self) -> Option<String> {
        self.note.take()
    }
}

// The limit on the memory of a job, where this machine can enforce one.

/// The way in which the memory of jobs is limited. Each refusal leads to the next weaker one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum MemoryLimits {
    /// Memory, and no swap: with swap a job could use as much as it likes.
    WithoutSwap,
    /// Memory only.
    Memory,
    /// Nothing: the memory of a job is reserved, and not limited.
    None,
}

impl MemoryLimits {
    /// Returns the limits of a job with that memory.
    pub(super) fn of(self, bytes: Option<u64>) -> Option<Limits> {
        let limits = Limits::new().memory_max(bytes.filter(|bytes| *bytes > 0)?);
        match self {
            MemoryLimits::WithoutSwap => Some(limits.memory_swap_max(0)),
            MemoryLimits::Memory => Some(limits),
            MemoryLimits::None => None,
        }
    }

    /// Returns the next weaker way and the reason, if the error says that a limit cannot be held.
    pub(super) fn weaker(self, error: &Error) -> Option<(MemoryLimits, String)> {
        if self == MemoryLimits::None {
            return None;
        }
        match error.kind() {
            ErrorKind::LimitUnavailable { limit } if limit.limit == LimitKind::Swap => {
                let note = format!("the memory of jobs is limited, and their swap is not: {limit}");
                Some((MemoryLimits::Memory, note))
            }
            ErrorKind::LimitUnavailable { limit } => {
                let note = format!("the memory of jobs is reserved, and not limited: {limit}");
                Some((MemoryLimits::None, note))
            }
            ErrorKind::Unsupported => {
                let note = format!("the memory of jobs is reserved, and not limited: {error}");
                Some((MemoryLimits::None, note))
            }
            _ => None,
        }
    }
}

// The end of a command as the end of an attempt.

/// Returns the end of an attempt.
fn end_of(key: AttemptKey, started: SystemTime, result: Result<Capture, Error>) -> AttemptEnd {
    match result {
        Ok(capture) => {
            let outcome = outcome(&capture);
            let mut end = AttemptEnd::new(key, outcome, started, capture.elapsed);
            end.user = capture.usage.map(|usage| usage.user);
            end.system = capture.usage.map(|usage| usage.system);
            let peak_of_tree =
                capture.tree_usage.as_ref().and_then(|usage| usage.peak_memory_bytes);
            end.peak_rss_bytes =
                capture.usage.and_then(|usage| usage.peak_rss_bytes).max(peak_of_tree);
            end.stdout_bytes = capture.stdout_bytes.unwrap_or(0);
            end.stderr_bytes = capture.stderr_bytes.unwrap_or(0);
            end.leftovers_killed = capture.leftovers_killed;
            end
        }
        Err(error) => {
            let elapsed = started.elapsed().unwrap_or(Duration::ZERO);
            AttemptEnd::new(key, without_status(&error), started, elapsed)
        }
    }
}

fn outcome(capture: &Capture) -> AttemptOutcome {
    match capture.outcome {
        Outcome::TimedOut => AttemptOutcome::TimedOut,
        Outcome::IdleTimedOut => AttemptOutcome::IdleTimedOut,
        Outcome::LimitExceeded => AttemptOutcome::LimitExceeded,
        Outcome::Cancelled => AttemptOutcome::Cancelled,
        Outcome::OutOfMemory(_) => AttemptOutcome::OutOfMemory,
        _ => match (capture.status.code(), capture.status.signal()) {
            (Some(code), _) => AttemptOutcome::Exited(code),
            (None, Some(signal)) => AttemptOutcome::Signaled(signal),
            (None, None) => AttemptOutcome::Lost("its exit status is unknown".to_owned()),
        },
    }
}

/// Returns the outcome of a start that was ended because the file of the program, or the directory, never answered.
pub(super) fn unanswered(error: &Error) -> Option<AttemptOutcome> {
    let cause = error.source()?.downcast_ref::<io::Error>();
    // An error of the system is the answer.
    let cause = cause.filter(|cause| error.is_start() && cause.raw_os_error().is_none());
    match cause?.kind() {
        io::ErrorKind::TimedOut => Some(AttemptOutcome::TimedOut),
        io::ErrorKind::Interrupted => Some(AttemptOutcome::Cancelled),
        _ => None,
    }
}

/// Returns the outcome of a command that has no status.
fn without_status(error: &Error) -> AttemptOutcome {
    let message = error.to_string();
    match error.kind() {
        // With a status it would be the outcome of a capture: nothing of it ran.
        ErrorKind::Cancelled => AttemptOutcome::NotStarted(message),
        ErrorKind::StatusLost => AttemptOutcome::Lost(message),
        _ if error.is_start() => unanswered(error).unwrap_or(AttemptOutcome::NotStarted(message)),
        _ => AttemptOutcome::Lost(message),
    }
}

// The command of an attempt.

/// A command that cannot be built.
pub(super) enum Unbuilt {
    /// There are no words.
    NoCommand,
    NoHandle(io::Error),
}

/// Builds the command, or returns the reason why it cannot be started.
fn build_command(
    settings: &LocalSettings,
    attempt: &Attempt,
    stdin: &mut Stdin,
    sink: Option<&SharedSink>,
    place: Place,
    has_terminal: bool,
) -> Result<Command, Unbuilt> {
    let Some((program, args)) = attempt.argv.split_first() else {
        return Err(Unbuilt::NoCommand);
    };
    let mut command = Command::new(program);
    command.args(args);
    settings.attributes.set(&mut command);
    // The thread of all jobs must not wait for one directory.
    match attempt.current_dir.as_deref().and_then(pwd_without_look) {
        Some(Shown::Path(dir)) => drop(command.env("PWD", dir)),
        Some(Shown::Unknown) => drop(command.env_remove("PWD")),
        None => {}
    }
    for (name, value) in &attempt.env {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    for (handle, number) in attempt.handles.iter() {
        let handle = handle.try_clone().map_err(Unbuilt::NoHandle)?;
        command.inherit_fd_as(handle, *number);
    }
    if let Some(dir) = &attempt.current_dir {
        command.current_dir(dir);
    }
    command.stdin(match &attempt.stdin {
        JobStdin::Null => Stdio::null(),
        JobStdin::Bytes(bytes) => Stdio::bytes(bytes.clone()),
        JobStdin::File(path) => match stdin.file() {
            Some(file) => Stdio::from(file.map_err(Unbuilt::NoHandle)?),
            None => Stdio::open(path),
        },
    });
    if let Some(timeout) = attempt.timeout {
        command.timeout(timeout);
    }
    if let Some(timeout) = settings.idle_timeout {
        command.idle_timeout(timeout);
    }
    command.stop_signal(settings.stop_signal).kill_grace(settings.kill_grace);
    match sink {
        Some(sink) => {
            command.stdout(tee(sink, Source::Stdout)).stderr(tee(sink, Source::Stderr));
            if !sink.lock().unwrap_or_else(PoisonError::into_inner).is_live() {
                command.coalesce_reads();
            }
            // The sink has the bytes, so nothing is kept here.
            command
                .limit(settings.limit_bytes.map_or(Limit::keep_head(0), Limit::fail).count_only());
        }
        None => {
            command.stdout(Stdio::inherit()).stderr(Stdio::inherit());
        }
    }
    // Ctrl-C at the terminal must reach the batch alone, which lets the jobs end. A group is enough for that, but a job
    // that asks a question at the terminal would be suspended there for ever. In a session it has none, and fails.
    // Without a terminal a group costs less. On Windows, a stop needs the console of this process.
    match has_terminal {
        true => command.own_session(),
        false => command.own_group(),
    };
    // A program or a directory on a mount that does not answer must not hold up the thread of all jobs. A slot has
    // its own way.
    if matches!(place, Place::Group | Place::Tree(None, _)) {
        command.start_aside();
    }
    match place {
        Place::Tree(slot, limits) => {
            match &slot {
                Some(slot) => command.contain_in(slot),
                None => command.contain(Contain::Tree).kill_on_parent_exit(Scope::Tree),
            };
            if let Some(limits) = limits {
                command.limits(limits);
            }
        }
        // A guard of the group ends all of it with the runner, so that a resume starts beside nothing. It cannot enter
        // a session.
        Place::Group if GUARDS_GROUPS && !has_terminal => {
            command.contain(Contain::Tree).kill_on_parent_exit(Scope::Tree);
        }
        Place::Group => {
            command.contain(Contain::Group).kill_on_parent_exit(Scope::Child);
        }
    }
    Ok(command)
}

/// Returns a stream that hands all bytes to the sink.
fn tee(sink: &SharedSink, source: Source) -> Stdio {
    let sink = Arc::clone(sink);
    Stdio::tee_with(move |bytes| {
        // A sink is consistent between calls.
        sink.lock().unwrap_or_else(PoisonError::into_inner).write(source, bytes);
    })
}
