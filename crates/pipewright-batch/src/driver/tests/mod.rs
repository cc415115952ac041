//! Tests of a driver, with an executor that only pretends to run.

mod batches;
mod from_log;
#[cfg(unix)]
mod old_logs;
mod starts;
mod truth;

use std::collections::{BTreeMap, VecDeque};
use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, mpsc};
use std::time::{Duration, Instant};

use super::*;
use crate::batch::Batch;
use crate::executor::{Attempt, Executor, ExecutorEvent, MachineMemory};
use crate::job::{JobId, JobStdin};
use crate::source::Source;
use crate::view::LogView;
use crate::vocabulary::{AttemptEnd, AttemptKey, AttemptOutcome, JobOutcome};

/// A job that the executor ends with that exit code.
fn exits(code: i32) -> Job {
    Job::new("exit").arg(code.to_string())
}

/// The end of a job, as a batch tells it.
#[derive(Debug, Clone, PartialEq)]
struct Said {
    outcome: JobOutcome,
    reason: Option<String>,
    before: bool,
}

/// An end of this run about which there is nothing more to say.
fn said(outcome: JobOutcome) -> Said {
    Said { outcome, reason: None, before: false }
}

/// An end of this run, with its reason.
fn said_with(outcome: JobOutcome, reason: &str) -> Said {
    Said { reason: Some(reason.to_owned()), ..said(outcome) }
}

/// A success of an earlier run.
fn succeeded_before() -> Said {
    Said { before: true, ..said(JobOutcome::Succeeded) }
}

/// Runs the jobs to their ends, and returns those by number.
fn states<I>(batch: Batch, fake: Fake, jobs: I) -> BTreeMap<u64, Said>
where
    I: IntoIterator<Item = Job>,
    I::IntoIter: Send + 'static,
{
    let mut run = batch.start_on(fake, jobs).unwrap();
    let mut states = BTreeMap::new();
    for event in &mut run {
        if let Event::Settled { job, outcome, reason, before, .. } = event.unwrap() {
            let said = Said { outcome, reason, before };
            assert_eq!(states.insert(job, said), None, "job {job} is settled twice");
        }
    }
    assert!(run.is_finished());
    states
}

#[test]
fn each_job_is_settled_once_with_the_reason() {
    let jobs = [exits(0), exits(3), exits(0).name("a").after("b"), exits(1).name("b")];
    let states = states(Batch::new().jobs(2), Fake::new(), jobs);
    let expected = [
        said(JobOutcome::Succeeded),
        said_with(JobOutcome::Failed, "exit code 3"),
        said_with(JobOutcome::Skipped, "job 4 [b] did not succeed"),
        said_with(JobOutcome::Failed, "exit code 1"),
    ];
    assert_eq!(states.into_values().collect::<Vec<_>>(), expected);
}

#[test]
fn a_failed_job_is_tried_again_after_its_delay() {
    let script = Script::new([AttemptOutcome::TimedOut, AttemptOutcome::Exited(0)]);
    let delay = Duration::from_millis(20);
    let batch = Batch::new().retries(1).retry_delay(delay, delay);
    let began = Instant::now();
    let states = states(batch, Fake::with(script), [exits(0)]);
    assert_eq!(states[&1], said(JobOutcome::Succeeded));
    assert!(began.elapsed() >= delay / 2);
}

#[test]
fn a_job_that_needs_more_than_the_batch_has_is_refused_alone() {
    let states = states(Batch::new().jobs(2), Fake::new(), [exits(0).cpus(3), exits(0)]);
    let Said { outcome: JobOutcome::Refused, reason: Some(reason), before: false } = &states[&1]
    else {
        panic!("{states:?}")
    };
    assert!(reason.contains("needs 3 CPUs, and the batch has 2"), "{reason}");
    assert_eq!(states[&2], said(JobOutcome::Succeeded));
}

#[test]
fn a_slow_input_does_not_hold_up_the_ends_of_jobs() {
    let (send, receive) = mpsc::channel::<Job>();
    let mut run = Batch::new().jobs(2).start_on(Fake::new(), receive).unwrap();
    send.send(exits(0)).unwrap();
    // The reading thread waits for the second job meanwhile.
    let is_first = |event: &Event| matches!(event, Event::Settled { job: 1, .. });
    assert!(run.by_ref().any(|event| is_first(&event.unwrap())));
    send.send(exits(0)).unwrap();
    drop(send);
    assert_eq!(run.finish().unwrap().succeeded, 2);
}

#[test]
fn the_inputs_of_jobs_that_wait_for_a_retry_are_bounded() {
    let long = Duration::from_secs(3600);
    let batch = Batch::new().jobs(1).read_ahead(1).retries(1).retry_delay(long, long);
    let blocks = std::iter::repeat_with(|| Ok(exits(1).stdin(JobStdin::bytes(vec![0; 1 << 20]))));
    let streams = || Box::new(io::sink()) as Box<dyn Write + Send>;
    let (config, streams) = (batch.into_config(), [streams(), streams()]);
    let mut driver = Driver::start(config, Fake::new(), blocks, streams).unwrap();
    let most = 17;
    // Each job fails, and waits for an hour.
    while driver.wants_input() || driver.live.running() > 0 {
        let soon = Instant::now() + Duration::from_millis(10);
        driver.next_event_until(Some(soon)).unwrap();
        assert!(driver.added <= most, "{} blocks are held", driver.added);
    }
    assert!(driver.added >= most - 1, "{}", driver.added);
    // Those that wait for others do not count: what they wait for comes later.
    let mut live = LiveJobs::default();
    let job = |job| LiveJob {
        job: Box::new(job),
        id: JobId::from_bytes([0; 16]),
        once: false,
        running: None,
        command: String::new(),
        failure: None,
        is_past: false,
    };
    live.insert(JobNumber(1), job(exits(0).stdin(JobStdin::bytes("1234")).after("later")));
    live.insert(JobNumber(2), job(exits(0).stdin(JobStdin::bytes("12"))));
    assert_eq!(live.waiting_bytes, 2);
    live.started(JobNumber(2), 1);
    assert_eq!(live.waiting_bytes, 0);
    live.ended(JobNumber(2), 1, None);
    assert_eq!(live.waiting_bytes, 2);
    live.remove(JobNumber(1));
    live.remove(JobNumber(2));
    assert_eq!(live.waiting_bytes, 0);
}

#[test]
fn a_drain_ends_a_batch_that_waits_for_its_input() {
    let (send, receive) = mpsc::channel::<Job>();
    let run = Batch::new().start_on(Fake::new(), receive).unwrap();
    run.control().drain();
    let summary = run.finish().unwrap();
    assert_eq!((summary.halted, summary.exit_code()), (Some(Halt::Drain), 123));
    drop(send);
}

#[test]
fn a_drain_lets_running_jobs_end_and_a_stop_ends_them() {
    for (is_stop, expected) in [(false, JobOutcome::Succeeded), (true, JobOutcome::Stopped)] {
        // One job runs until it is released or stopped.
        let (fake, release) = Fake::held();
        let mut run = Batch::new().jobs(1).start_on(fake, [exits(0), exits(0)]).unwrap();
        let is_start = |event: Event| matches!(event, Event::Started { .. });
        assert!(run.by_ref().any(|event| is_start(event.unwrap())));
        if is_stop {
            run.control().stop();
        } else {
            run.control().drain();
            release.release();
        }
        let mut states: BTreeMap<u64, JobOutcome> = run
            .filter_map(|event| match event.unwrap() {
                Event::Settled { job, outcome, reason: None, before: false, .. } => {
                    Some((job, outcome))
                }
                Event::Settled { reason, .. } => panic!("{reason:?}"),
                _ => None,
            })
            .collect();
        // The batch may have ended before the second job was read.
        assert!(states.remove(&2).is_none_or(|outcome| outcome == JobOutcome::NotRun));
        assert_eq!(states, BTreeMap::from([(1, expected)]));
    }
}

#[test]
fn a_bad_input_drains_the_batch_and_is_reported() {
    let jobs = Source::new(&b"exit 0\nexit '0\nexit 0\n"[..]).commands();
    let summary = Batch::new().jobs(1).start_on(Fake::new(), jobs).unwrap().finish().unwrap();
    assert_eq!((summary.succeeded, summary.halted), (1, Some(Halt::Input)));
    assert_eq!(summary.input_error.as_ref().unwrap().line(), Some(2));
    assert_eq!(summary.exit_code(), 125);
}

#[test]
fn a_batch_ends_after_its_timeout() {
    let (fake, _release) = Fake::held();
    let batch = Batch::new().jobs(1).batch_timeout(Duration::from_millis(1));
    let summary = batch.start_on(fake, [exits(0), exits(0)]).unwrap().finish().unwrap();
    assert_eq!((summary.halted, summary.exit_code()), (Some(Halt::Timeout), 124));
    assert_eq!(summary.succeeded + summary.failed, 0);
}

#[test]
fn a_failed_executor_is_an_error_and_ends_the_events() {
    let mut run = Batch::new().start_on(Fake::broken(), [exits(0)]).unwrap();
    let failed = run.by_ref().find_map(Result::err).unwrap();
    assert_eq!(failed.to_string(), "cannot wait for the jobs: the engine is gone");
    assert!(run.next().is_none() && run.is_finished());
}

#[test]
fn a_wait_with_a_limit_returns_in_between() {
    let (fake, release) = Fake::held();
    let mut run = Batch::new().jobs(1).start_on(fake, [exits(0)]).unwrap();
    while !matches!(run.next_until(None).unwrap(), Some(Event::Started { .. })) {}
    // The end of the input is the only other event.
    while run.next_until(Some(Instant::now() + Duration::from_millis(5))).unwrap().is_some() {}
    assert!(!run.is_finished());
    release.release();
    assert_eq!(run.finish().unwrap().succeeded, 1);
}

// An executor that only pretends to run.

/// The outcomes of the attempts, in order.
#[derive(Debug, Default)]
struct Script(VecDeque<AttemptOutcome>);

impl Script {
    fn new(outcomes: impl IntoIterator<Item = AttemptOutcome>) -> Script {
        Script(outcomes.into_iter().collect())
    }
}

/// An executor whose attempts end in the order of their starts.
///
/// Without a script, the command `exit CODE` ends with that code.
#[derive(Debug)]
struct Fake {
    script: Script,
    running: VecDeque<(AttemptKey, AttemptOutcome)>,
    gate: Arc<Gate>,
    is_broken: bool,
    /// The free memory at each look; the last one stays.
    memory: VecDeque<u64>,
    /// The load at each look; the last one stays.
    load: VecDeque<f64>,
    /// The memory that each attempt has used.
    peak_bytes: Option<u64>,
    seen: Arc<Mutex<Vec<Seen>>>,
}

/// An attempt that was started.
#[derive(Debug, Clone, PartialEq)]
struct Seen {
    id: JobId,
    argv: Vec<OsString>,
    current_dir: Option<PathBuf>,
    env: Vec<(OsString, Option<OsString>)>,
    stdin: JobStdin,
    timeout: Option<Duration>,
    memory_max_bytes: Option<u64>,
}

/// Holds attempts back, and wakes the executor.
#[derive(Debug, Default)]
struct Gate {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    is_held: bool,
    is_woken: bool,
}

impl Gate {
    fn release(&self) {
        self.state.lock().unwrap().is_held = false;
        self.changed.notify_all();
    }
}

impl Fake {
    fn new() -> Fake {
        Fake::with(Script::default())
    }

    fn with(script: Script) -> Fake {
        let (running, gate) = (VecDeque::new(), Arc::default());
        let (is_broken, memory, load) = (false, VecDeque::new(), VecDeque::new());
        let (peak_bytes, seen) = (None, Arc::default());
        Fake { script, running, gate, is_broken, memory, load, peak_bytes, seen }
    }

    /// Returns one, and the attempts that it starts.
    fn seeing() -> (Fake, Arc<Mutex<Vec<Seen>>>) {
        let fake = Fake::new();
        let seen = Arc::clone(&fake.seen);
        (fake, seen)
    }

    /// Returns one whose attempts end when the gate is released, or when they are stopped.
    fn held() -> (Fake, Arc<Gate>) {
        let fake = Fake::new();
        fake.gate.state.lock().unwrap().is_held = true;
        let gate = Arc::clone(&fake.gate);
        (fake, gate)
    }

    fn scripted(self, script: Script) -> Fake {
        Fake { script, ..self }
    }

    /// Returns it with that free memory, at one look after the other.
    fn with_memory(self, free: impl IntoIterator<Item = u64>) -> Fake {
        Fake { memory: free.into_iter().collect(), ..self }
    }

    /// Returns it with that load, at one look after the other.
    fn with_load(self, load: impl IntoIterator<Item = f64>) -> Fake {
        Fake { load: load.into_iter().collect(), ..self }
    }

    /// Returns it with attempts that have used so much memory.
    fn with_peak(self, bytes: u64) -> Fake {
        Fake { peak_bytes: Some(bytes), ..self }
    }

    fn broken() -> Fake {
        Fake { is_broken: true, ..Fake::new() }
    }
}

impl Executor for Fake {
    fn start(&mut self, attempt: Attempt) {
        let code = attempt.argv.last().and_then(|code| code.to_str()?.parse().ok());
        let natural = AttemptOutcome::Exited(code.unwrap_or(0));
        let Attempt { key, id, argv, current_dir, env, stdin, timeout, memory_max_bytes, .. } =
            attempt;
        self.seen.lock().unwrap().push(Seen {
            id,
            argv,
            current_dir,
            env,
            stdin,
            timeout,
            memory_max_bytes,
        });
        let outcome = self.script.0.pop_front().unwrap_or(natural);
        self.running.push_back((key, outcome));
    }

    fn stop(&mut self, key: AttemptKey) {
        for (running, outcome) in &mut self.running {
            if *running == key {
                *outcome = AttemptOutcome::Cancelled;
            }
        }
    }

    fn next_event(&mut self, until: Option<Instant>) -> io::Result<Option<ExecutorEvent>> {
        if self.is_broken {
            return Err(io::Error::other("the engine is gone"));
        }
        let mut state = self.gate.state.lock().unwrap();
        loop {
            let is_stopped = |(_, outcome): &(_, _)| *outcome == AttemptOutcome::Cancelled;
            let next = match state.is_held {
                true => self.running.iter().position(is_stopped),
                false => (!self.running.is_empty()).then_some(0),
            };
            if let Some((key, outcome)) = next.and_then(|at| self.running.remove(at)) {
                let mut end = AttemptEnd::without_run(key, outcome);
                end.peak_rss_bytes = self.peak_bytes;
                return Ok(Some(ExecutorEvent::Ended(Box::new(end))));
            }
            let left = until.map_or(Duration::from_secs(60), |until| {
                until.saturating_duration_since(Instant::now())
            });
            if self.running.is_empty() || std::mem::take(&mut state.is_woken) || left.is_zero() {
                return Ok(None);
            }
            state = self.gate.changed.wait_timeout(state, left).unwrap().0;
        }
    }

    fn load(&mut self) -> Option<f64> {
        match self.load.len() {
            1 => self.load.front().copied(),
            _ => self.load.pop_front(),
        }
    }

    fn memory(&mut self) -> Option<MachineMemory> {
        let free = match self.memory.len() {
            1 => self.memory.front().copied(),
            _ => self.memory.pop_front(),
        };
        free.map(MachineMemory::new)
    }

    fn waker(&mut self) -> io::Result<Box<dyn Fn() + Send + Sync>> {
        let gate = Arc::clone(&self.gate);
        Ok(Box::new(move || {
            gate.state.lock().unwrap().is_woken = true;
            gate.changed.notify_all();
        }))
    }
}
