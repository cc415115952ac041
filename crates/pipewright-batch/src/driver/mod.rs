//! The driver: connects the input, the scheduler, the log, the executor and the output.
//!
//! One thread calls [`Driver::next_event_until`], which does all the work. It waits in the executor while something
//! runs, and in the inbox otherwise.
//!
//! | file | contents |
//! |---|---|
//! | this file | the loop; the settings, jobs that are not settled, and timers |
//! | `inbox.rs` | jobs and messages from other threads, and the one that reads the input |
//! | `resources.rs` | the memory of the machine; tokens of a jobserver |
//! | `starts.rs` | starts that the machine holds back, and the pause after each |
//! | `decisions.rs` | new jobs, what the scheduler decides, and ends of attempts and of jobs |
//! | `log.rs` | the log, if there is one |

mod decisions;
mod inbox;
mod log;
mod resources;
mod starts;

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, VecDeque};
use std::error::Error;
use std::ffi::OsString;
use std::fmt;
use std::io::{self, Write};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use pipewright::Source;
use pipewright_os::base::error::{OneLine, Quoted};

use crate::executor::{Executor, ExecutorEvent};
use crate::job::{Identities, Job, JobId, Template};
use crate::jobserver::{JobserverMode, Part};
use crate::journal::{self, Journal, LogError, LostOutput, Report};
use crate::output::{Output, OutputError, OutputMode, OutputOptions, Unprinted};
use crate::scheduler::{self, JobNumber, Scheduler};
use crate::source::InputError;
use crate::vocabulary::{Event, Halt, RetryOn};
use inbox::{Inbox, Message};
use log::Log;
use resources::{MemoryWatch, Permits};

pub(crate) use decisions::{needs, unknown_token};
pub(crate) use log::LogSettings;
pub(crate) use starts::StartRules;
use starts::StartWatch;

/// The time that a slow reader has to take the output of a batch that was stopped.
const READER_PATIENCE: Duration = Duration::from_secs(5);

/// The exit code of a batch that has lost its executor.
const ABANDONED: i32 = 125;

/// A running batch.
#[derive(Debug)]
pub(crate) struct Driver<E> {
    config: Config,
    scheduler: Scheduler,
    executor: E,
    inbox: Arc<Inbox>,
    identities: Identities,
    /// The number of jobs that were added.
    added: u64,
    /// The number of the last one. Those of a log have gaps.
    last_number: u64,
    live: LiveJobs,
    /// The names of jobs that did not succeed: others are skipped because of them.
    names_not_ok: HashMap<JobNumber, Box<str>>,
    timers: Timers,
    /// The end of the time for the batch.
    ends_at: Option<Instant>,
    permits: Permits,
    memory: MemoryWatch,
    starts: StartWatch,
    log: Log,
    /// The time since which the log fails.
    log_failed_since: Option<Instant>,
    log_timed_out: bool,
    /// `None` after the end.
    output: Option<Output>,
    /// The number of jobs whose output is not complete, and the first error.
    lost_output: (u64, Option<OutputError>),
    unprinted: Unprinted,
    /// Decisions that have not been carried out.
    decisions: Vec<scheduler::Decision>,
    events: VecDeque<Event>,
    input_ended: bool,
    input_error: Option<InputError>,
    timed_out: bool,
    halt: Option<Halt>,
    /// A user has asked for a stop, possibly after a drain.
    stop_requested: bool,
}

/// Controls a running batch from any thread.
#[derive(Debug, Clone)]
pub struct Control(Arc<Inbox>);

impl Control {
    /// Starts nothing new, and lets the running jobs end.
    pub fn drain(&self) {
        self.0.send(Message::Drain);
    }

    /// Starts nothing new, and stops the running jobs: the stop signal, then a kill after the grace period.
    pub fn stop(&self) {
        self.0.send(Message::Stop);
    }
}

impl<E: Executor> Driver<E> {
    /// Starts a batch: a thread begins to read its input. `streams` are stdout and stderr, for the output of jobs.
    ///
    /// # Errors
    /// No more threads or handles are available, the log cannot be used, the output directory cannot be made, a process
    /// of an earlier run cannot be ended, or a jobserver cannot be created.
    pub(crate) fn start<I>(
        config: Config,
        mut executor: E,
        jobs: I,
        streams: [Box<dyn Write + Send>; 2],
    ) -> Result<Driver<E>, BatchError>
    where
        I: Iterator<Item = Result<Job, InputError>> + Send + 'static,
    {
        let [stdout, stderr] = streams;
        let inbox = Arc::new(Inbox::new(executor.waker().map_err(BatchError::Start)?));
        let look = || {
            let inbox = Arc::clone(&inbox);
            Box::new(move || inbox.send(Message::Look))
        };
        let log = Log::open(config.log.as_ref(), look()).map_err(BatchError::Log)?;
        let mut events: VecDeque<Event> = log.notes().into_iter().map(Event::Note).collect();
        // A job that had just been started when its runner was killed may be missing in the log.
        let looks = log.is_resumed() && !config.is_alone;
        let mut killed = log.journal.as_ref().map_or_else(Default::default, |it| it.killed.clone());
        if let Some(journal) = log.journal.as_ref().filter(|_| looks) {
            let runs = journal.earlier_runs.as_deref();
            journal::end_survivors(&journal.batch_id, runs, &mut killed)
                .map_err(BatchError::Survivors)?;
        }
        match killed.len() {
            0 => {}
            1 => events.push_back(Event::Note(
                "a process of an earlier run was alive, and has been killed".into(),
            )),
            count => events.push_back(Event::Note(format!(
                "{count} processes of an earlier run were alive, and have been killed"
            ))),
        }
        if log.journal.as_ref().is_some_and(|journal| journal.left_nodes) {
            log::wait_for_nodes();
        }
        let mut part = Part::take(config.jobserver, config.scheduler.limits.slots)
            .map_err(|error| BatchError::Start(error.into()))?;
        events.extend(part.take_note().map(Event::Note));
        part.notify_when_available(look());
        let permits = Permits::new(part).map_err(BatchError::Start)?;
        let mut options = config.output.clone();
        // A folder of a job keeps its output, too.
        let is_printed = options.dir.is_none() && options.mode != OutputMode::Discard;
        options.keep_beside = log.keep_beside().filter(|_| is_printed);
        let output = Output::new(options, stdout, stderr, look()).map_err(BatchError::Output)?;
        if output.jobs_before() > 0 {
            let jobs = output.jobs_before();
            let what = if jobs == 1 { "1 job" } else { &format!("{jobs} jobs") };
            let note =
                format!("the output of {what} of an earlier run was not printed; it comes first");
            events.push_back(Event::Note(note));
        }
        if let Some((journal, keeper)) = log.journal.as_ref().zip(output.keeper()) {
            journal.keep_outputs(keeper);
        }
        inbox::start_reader(Arc::clone(&inbox), jobs).map_err(BatchError::Start)?;
        let mut timers = Timers::default();
        let ends_at = config.batch_timeout.and_then(|limit| Instant::now().checked_add(limit));
        if let Some(end) = ends_at {
            timers.push(end, Timer::BatchTimeout);
        }
        let mut driver = Driver {
            scheduler: Scheduler::new(config.scheduler.clone()),
            config,
            executor,
            inbox,
            identities: Identities::new(),
            added: 0,
            last_number: 0,
            live: LiveJobs::default(),
            names_not_ok: HashMap::new(),
            timers,
            ends_at,
            permits,
            memory: MemoryWatch::default(),
            starts: StartWatch::default(),
            log,
            log_failed_since: None,
            log_timed_out: false,
            output: Some(output),
            lost_output: (0, None),
            unprinted: Unprinted::Nothing,
            decisions: Vec::new(),
            events,
            input_ended: false,
            input_error: None,
            timed_out: false,
            halt: None,
            stop_requested: false,
        };
        // No job starts on a machine that is busy, and none without a token.
        driver.look_at_machine();
        driver.balance_permits();
        Ok(driver)
    }

    /// Returns a control of this batch.
    pub(crate) fn control(&self) -> Control {
        Control(Arc::clone(&self.inbox))
    }

    /// Returns the number of jobs that were read, and the number of all jobs once it is known.
    pub(crate) fn added(&self) -> (u64, Option<u64>) {
        (self.added, (self.input_ended && self.input_error.is_none()).then_some(self.added))
    }

    /// Returns the error of the input, if it ended the batch.
    pub(crate) fn take_input_error(&mut self) -> Option<InputError> {
        self.input_error.take()
    }

    /// Returns the number of jobs whose output could not be stored completely, and the first error.
    pub(crate) fn take_lost_output(&mut self) -> (u64, Option<OutputError>) {
        std::mem::take(&mut self.lost_output)
    }

    /// Returns what was not printed when the output was closed.
    pub(crate) fn unprinted(&self) -> Unprinted {
        self.unprinted
    }

    /// Returns the next event that needs no wait and no work.
    pub(crate) fn next_ready_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// Waits for the next event, but no longer than `until`. Returns `None` after that time and after the last event:
    /// [`Self::is_finished`] tells them apart.
    ///
    /// # Errors
    /// The executor itself has failed. Jobs that run are not known any more.
    pub(crate) fn next_event_until(&mut self, until: Option<Instant>) -> io::Result<Option<Event>> {
        loop {
            self.work();
            if let Some(event) = self.events.pop_front() {
                return Ok(Some(event));
            }
            if self.is_finished() || until.is_some_and(|until| Instant::now() >= until) {
                return Ok(None);
            }
            self.wait(until)?;
        }
    }

    /// Returns true if all jobs are settled and all events were returned.
    pub(crate) fn is_finished(&self) -> bool {
        self.scheduler.is_finished() && self.decisions.is_empty() && self.events.is_empty()
    }

    /// Returns the time until which the readers of output and reports have to take what is left, if they have one.
    pub(crate) fn readers_until(&self) -> Option<Instant> {
        // A user who stops a batch does not wait for a reader that has stopped reading.
        let is_stopped = self.stop_requested
            || matches!(self.halt, Some(Halt::Stop | Halt::Timeout | Halt::ReaderGone));
        let patience = Instant::now() + READER_PATIENCE;
        match is_stopped {
            true => Some(patience),
            false => self.ends_at.map(|end| end.max(patience)),
        }
    }

    /// Prints what is left, and writes the end of the run to the log. `how` is a word for the log; `until`: see
    /// [`readers_until`](Self::readers_until).
    ///
    /// # Errors
    /// Output or the log could not be written.
    pub(crate) fn close(
        &mut self,
        exit_code: i32,
        how: &str,
        until: Option<Instant>,
    ) -> Result<(), BatchError> {
        let printed =
            self.output.take().map_or(Ok(Unprinted::Nothing), |output| output.close_by(until));
        self.unprinted = *printed.as_ref().unwrap_or(&Unprinted::Nothing);
        let logged = self.log.close(exit_code, how);
        logged.map_err(BatchError::Log)?;
        match printed {
            Err(error) if self.halt != Some(Halt::ReaderGone) => Err(BatchError::Output(error)),
            _ => Ok(()),
        }
    }

    /// Prints what there is, and writes that the run has lost its executor. What ran may run on for a while, so the log
    /// has it as running: a resumed batch waits for its end.
    pub(crate) fn abandon(&mut self) {
        self.stop_requested = true;
        // Ignored: the error of the executor is reported.
        let _ = self.close(ABANDONED, journal::ABANDONED, self.readers_until());
    }

    /// Does everything that can be done without waiting.
    fn work(&mut self) {
        while let Some(message) = self.inbox.next_message() {
            self.take_message(message);
        }
        while let Some(timer) = self.timers.pop_due(Instant::now()) {
            self.take_timer(timer);
        }
        self.add_jobs();
        self.carry_out_decisions();
        self.balance_permits();
        self.note_halt();
        if let Some(journal) = &mut self.log.journal {
            journal.submit();
        }
    }

    /// Returns true if another job should be added.
    fn wants_input(&self) -> bool {
        !self.input_ended
            && self.scheduler.wants_input()
            && self.live.waiting_bytes < inbox::MOST_BYTES
    }

    fn wait(&mut self, until: Option<Instant>) -> io::Result<()> {
        let until = earlier(until, self.timers.next());
        let wants_input = self.wants_input();
        if self.live.running() == 0 && !self.executor.expects_events() {
            self.inbox.wait(wants_input, until);
            return Ok(());
        }
        if !self.inbox.enter_executor(wants_input) {
            return Ok(());
        }
        let event = self.executor.next_event(until);
        self.inbox.leave_executor();
        match event? {
            Some(ExecutorEvent::Ended(end)) => self.attempt_ended(*end),
            Some(ExecutorEvent::Placed(key)) => self.attempt_placed(key),
            Some(ExecutorEvent::Displaced(key)) => self.log.void(key),
            Some(ExecutorEvent::Runs { key, pid }) => {
                if let Some(journal) = &mut self.log.journal {
                    journal.runs_as(key, pid);
                }
            }
            Some(ExecutorEvent::Note(note)) => self.events.push_back(Event::Note(note)),
            Some(ExecutorEvent::Capacity { cpus }) => {
                self.report(scheduler::Event::Capacity { cpus });
                if let Some(journal) = &mut self.log.journal {
                    journal.ledger.set_slots(cpus);
                }
                self.events.push_back(Event::Capacity { slots: cpus });
            }
            Some(ExecutorEvent::Largest { cpus }) => {
                self.report(scheduler::Event::Largest { cpus });
            }
            None => {}
        }
        Ok(())
    }

    fn take_message(&mut self, message: Message) {
        match message {
            Message::Drain => self.report(scheduler::Event::Drain),
            Message::Stop => {
                self.stop_requested = true;
                self.report(scheduler::Event::Stop);
            }
            Message::Look => {
                self.look_at_log();
                self.look_at_output();
                self.permits.look();
            }
        }
    }

    fn take_timer(&mut self, timer: Timer) {
        match timer {
            Timer::Retry(job) => self.report(scheduler::Event::RetryDue { job }),
            Timer::BatchTimeout => {
                self.timed_out = self.scheduler.halted().is_none();
                self.report(scheduler::Event::Stop);
            }
            Timer::LogTimeout => self.give_up_log(),
            Timer::Memory => self.look_at_memory(),
            Timer::Machine => self.look_at_machine(),
            Timer::PauseOver => self.report(scheduler::Event::PauseOver),
        }
    }

    /// Reports an event to the scheduler. What it decides is carried out later.
    fn report(&mut self, event: scheduler::Event) {
        self.scheduler.handle(event, &mut self.decisions);
    }

    /// Tells of the early end of the batch: once, and again if it was drained and is then stopped.
    fn note_halt(&mut self) {
        if self.stop_requested && self.halt == Some(Halt::Drain) {
            self.halt = Some(Halt::Stop);
            self.events.push_back(Event::Halted(Halt::Stop));
        }
        let Some(cause) = self.scheduler.halted().filter(|_| self.halt.is_none()) else { return };
        let halt = match cause {
            _ if self.input_error.is_some() => Halt::Input,
            _ if self.timed_out => Halt::Timeout,
            _ if self.log_timed_out => Halt::Log,
            _ if self.is_reader_gone() => Halt::ReaderGone,
            _ if self.has_output_failed() => Halt::Output,
            cause => cause,
        };
        self.halt = Some(halt);
        self.events.push_back(Event::Halted(halt));
        self.inbox.close();
        // What only waits for a place does not start any more.
        for key in self.executor.waiting() {
            self.report(scheduler::Event::Withdrawn { job: scheduler::JobNumber(key.job) });
            self.executor.stop(key);
        }
    }
}

impl<E> Drop for Driver<E> {
    fn drop(&mut self) {
        self.inbox.close();
    }
}

fn earlier(one: Option<Instant>, other: Option<Instant>) -> Option<Instant> {
    one.into_iter().chain(other).min()
}

// Settings of a driver.

/// Settings of a driver.
#[derive(Debug, Clone)]
pub(crate) struct Config {
    pub(crate) scheduler: scheduler::Config,
    /// Attempts after the first one, for jobs that name none.
    pub(crate) retries: u32,
    /// The failures that are retried.
    pub(crate) retry_on: Vec<RetryOn>,
    /// The memory to reserve for jobs that name none, learned from earlier runs.
    pub(crate) learned_memory: Arc<HashMap<JobId, u64>>,
    /// The rule for jobs without one of their own: run at most once.
    pub(crate) once: bool,
    /// The timeout of a job that has none of its own.
    pub(crate) timeout: Option<Duration>,
    pub(crate) batch_timeout: Option<Duration>,
    pub(crate) starts: StartRules,
    pub(crate) log: Option<LogSettings>,
    pub(crate) output: OutputOptions,
    pub(crate) jobserver: JobserverMode,
    /// No process of an earlier run can be alive: nothing of it was real.
    pub(crate) is_alone: bool,
    /// The working directory of a job that has none of its own.
    pub(crate) current_dir: Option<PathBuf>,
    /// Variables that every job has.
    pub(crate) env: Arc<[(OsString, OsString)]>,
    /// The files that each job gets, and leaves.
    pub(crate) send: Vec<Arc<Template>>,
    pub(crate) fetch: Vec<Arc<Template>>,
}

// Jobs that are not settled.

/// A job that is not settled.
#[derive(Debug)]
struct LiveJob {
    job: Box<Job>,
    id: JobId,
    /// Runs at most once.
    once: bool,
    /// The number of the attempt that runs.
    running: Option<u32>,
    /// The command of the attempt that runs or ran last, quoted for a shell.
    command: String,
    /// The reason for the failure of the last attempt.
    failure: Option<String>,
    /// It ended in an earlier run.
    is_past: bool,
}

impl LiveJob {
    /// Returns the bytes of its input that are held in memory. Those of a job that waits for others do not count: what
    /// it waits for may come later, so the reading goes on.
    fn input_bytes(&self) -> usize {
        if self.job.get_after().is_empty() { self.job.get_stdin().len() } else { 0 }
    }
}

/// All of them, by number.
#[derive(Debug, Default)]
struct LiveJobs {
    jobs: HashMap<JobNumber, LiveJob>,
    running: usize,
    /// The bytes of the inputs of those that do not run.
    waiting_bytes: usize,
}

impl LiveJobs {
    fn insert(&mut self, number: JobNumber, job: LiveJob) {
        self.waiting_bytes += job.input_bytes();
        self.jobs.insert(number, job);
    }

    fn get(&self, number: JobNumber) -> Option<&LiveJob> {
        self.jobs.get(&number)
    }

    fn get_mut(&mut self, number: JobNumber) -> Option<&mut LiveJob> {
        self.jobs.get_mut(&number)
    }

    fn remove(&mut self, number: JobNumber) -> Option<LiveJob> {
        let job = self.jobs.remove(&number)?;
        self.waiting_bytes -= if job.running.is_none() { job.input_bytes() } else { 0 };
        Some(job)
    }

    /// Returns all jobs, in order.
    fn in_order(&self) -> impl Iterator<Item = (JobNumber, &LiveJob)> {
        let mut jobs: Vec<_> = self.jobs.iter().map(|(number, job)| (*number, job)).collect();
        jobs.sort_unstable_by_key(|(number, _)| *number);
        jobs.into_iter()
    }

    /// Returns the number of running attempts.
    fn running(&self) -> usize {
        self.running
    }

    fn started(&mut self, number: JobNumber, attempt: u32) {
        if let Some(job) = self.jobs.get_mut(&number) {
            job.running = Some(attempt);
            self.running += 1;
            self.waiting_bytes -= job.input_bytes();
        }
    }

    /// Records the end of an attempt. Returns false if it does not run.
    fn ended(&mut self, number: JobNumber, attempt: u32, failure: Option<String>) -> bool {
        let job = self.jobs.get_mut(&number).filter(|job| job.running == Some(attempt));
        let Some(job) = job else { return false };
        (job.running, job.failure) = (None, failure);
        self.running -= 1;
        self.waiting_bytes += job.input_bytes();
        true
    }
}

// Timers of a driver.

/// Something that becomes due.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Timer {
    /// The delay of a job's retry is over.
    Retry(JobNumber),
    /// The time of the whole batch is over.
    BatchTimeout,
    /// The log has failed for too long.
    LogTimeout,
    /// The memory of the machine has to be looked at.
    Memory,
    /// The load and the free memory of the machine have to be looked at, because the batch has limits for them.
    Machine,
    /// The pause after a start is over.
    PauseOver,
}

/// All timers, the earliest first.
#[derive(Debug, Default)]
struct Timers(BinaryHeap<Reverse<(Instant, Timer)>>);

impl Timers {
    fn push(&mut self, at: Instant, timer: Timer) {
        self.0.push(Reverse((at, timer)));
    }

    fn extend(&mut self, timers: impl IntoIterator<Item = (Instant, Timer)>) {
        self.0.extend(timers.into_iter().map(Reverse));
    }

    /// Returns the time of the next one.
    fn next(&self) -> Option<Instant> {
        self.0.peek().map(|Reverse((at, _))| *at)
    }

    /// Takes a timer that is due.
    fn pop_due(&mut self, now: Instant) -> Option<Timer> {
        self.next().filter(|at| *at <= now)?;
        self.0.pop().map(|Reverse((_, timer))| timer)
    }
}

// Failures of the log and of the output, while jobs run.

/// The time after which a batch ends whose log cannot be written. Until then it only starts nothing.
const LOG_PATIENCE: Duration = Duration::from_secs(10);

impl<E: Executor> Driver<E> {
    fn look_at_log(&mut self) {
        // Nothing is started after the note that nothing will be.
        self.carry_out_decisions();
        while let Some(report) = self.log.journal.as_mut().and_then(Journal::next_report) {
            match report {
                Report::Durable(key) => {
                    let (job, attempt) = log::attempt_of(key);
                    match self.live.get(job).is_some_and(|live| live.running == Some(attempt)) {
                        true => self.executor.begin(key),
                        false => self.report(scheduler::Event::Intended { job, attempt }),
                    }
                }
                Report::LostOutput(LostOutput { job, reason }) => {
                    self.lost_output.0 += 1;
                    let error = OutputError::lost(reason.clone());
                    self.lost_output.1.get_or_insert(error);
                    let note = format!("job {job} is not done: {reason}");
                    self.events.push_back(Event::Note(note));
                }
                Report::Failed(error) => {
                    let note = format!("{error}; no job is started until it can be written");
                    self.events.push_back(Event::Note(note));
                    self.log_failed_since = Some(Instant::now());
                    let due = Instant::now().checked_add(LOG_PATIENCE);
                    self.timers.extend(due.map(|due| (due, Timer::LogTimeout)));
                    self.report(scheduler::Event::LogFailed);
                }
                Report::Works => {
                    self.log_failed_since = None;
                    self.events.push_back(Event::Note("the log can be written again".to_owned()));
                    self.report(scheduler::Event::LogWorks);
                }
            }
        }
    }

    /// Ends the batch if its log still fails: jobs that have ended are not known to a resumed batch otherwise.
    fn give_up_log(&mut self) {
        if self.log_failed_since.is_some_and(|since| since.elapsed() >= LOG_PATIENCE) {
            self.log_timed_out = self.scheduler.halted().is_none();
            self.report(scheduler::Event::Drain);
        }
    }

    /// Ends the batch early if its output cannot be printed: what the jobs write would be lost.
    fn look_at_output(&mut self) {
        if self.is_reader_gone() {
            self.report(scheduler::Event::Stop);
        } else if self.has_output_failed() {
            self.report(scheduler::Event::Drain);
        }
    }

    fn is_reader_gone(&self) -> bool {
        self.output.as_ref().is_some_and(|output| output.is_reader_gone(Source::Stdout))
    }

    fn has_output_failed(&self) -> bool {
        self.output.as_ref().is_some_and(|output| output.failure().is_some())
    }
}

// The error of a batch.

/// An error of a batch itself. Jobs that fail are no errors. Prints as one line.
#[derive(Debug)]
#[non_exhaustive]
pub enum BatchError {
    /// No more threads or handles are available.
    Start(io::Error),
    /// The executor has failed. Jobs that ran are not known any more.
    Executor(io::Error),
    /// The log cannot be used.
    Log(LogError),
    /// Output of jobs cannot be stored or printed.
    Output(OutputError),
    /// A process of an earlier run cannot be ended.
    Survivors(io::Error),
    /// A report cannot be written.
    #[non_exhaustive]
    Report {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
}

impl fmt::Display for BatchError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (operation, source) = match self {
            BatchError::Start(source) => ("start the batch", source),
            BatchError::Executor(source) => ("wait for the jobs", source),
            BatchError::Survivors(source) => ("end the processes of an earlier run", source),
            BatchError::Report { path, source } => {
                let (path, source) = (Quoted(path.as_os_str()), source.to_string());
                return write!(f, "cannot write {path}: {}", OneLine(&source));
            }
            BatchError::Log(error) => return write!(f, "{error}"),
            BatchError::Output(error) => return write!(f, "{error}"),
        };
        write!(f, "cannot {operation}: {}", OneLine(&source.to_string()))
    }
}

impl Error for BatchError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            BatchError::Start(source)
            | BatchError::Executor(source)
            | BatchError::Survivors(source)
            | BatchError::Report { source, .. } => Some(source),
            BatchError::Log(error) => error.source(),
            BatchError::Output(error) => error.source(),
        }
    }
}

#[cfg(test)]
mod tests;
