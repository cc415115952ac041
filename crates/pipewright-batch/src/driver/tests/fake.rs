//! An executor that only pretends to run.

use std::collections::VecDeque;
use std::ffi::OsString;
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use crate::executor::{
    Attempt, AttemptEnd, AttemptKey, AttemptOutcome, Executor, ExecutorEvent, MachineMemory,
};
use crate::job::{JobId, JobStdin};

/// The outcomes of the attempts, in order.
#[derive(Debug, Default)]
pub(super) struct Script(VecDeque<AttemptOutcome>);

impl Script {
    pub(super) fn new(outcomes: impl IntoIterator<Item = AttemptOutcome>) -> Script {
        Script(outcomes.into_iter().collect())
    }
}

/// An executor whose attempts end in the order of their starts.
///
/// Without a script, the command `exit CODE` ends with that code.
#[derive(Debug)]
pub(super) struct Fake {
    script: Script,
    running: VecDeque<(AttemptKey, AttemptOutcome)>,
    gate: Arc<Gate>,
    is_broken: bool,
    /// The free memory at each look; the last one stays.
    memory: VecDeque<u64>,
    /// The memory that each attempt has used.
    peak_bytes: Option<u64>,
    seen: Arc<Mutex<Vec<Seen>>>,
}

/// An attempt that was started.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Seen {
    pub(super) id: JobId,
    pub(super) argv: Vec<OsString>,
    pub(super) current_dir: Option<PathBuf>,
    pub(super) env: Vec<(OsString, Option<OsString>)>,
    pub(super) stdin: JobStdin,
    pub(super) timeout: Option<Duration>,
    pub(super) memory_max_bytes: Option<u64>,
}

/// Holds attempts back, and wakes the executor.
#[derive(Debug, Default)]
pub(super) struct Gate {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    is_held: bool,
    is_woken: bool,
}

impl Gate {
    pub(super) fn release(&self) {
        self.state.lock().unwrap().is_held = false;
        self.changed.notify_all();
    }
}

impl Fake {
    pub(super) fn new() -> Fake {
        Fake::with(Script::default())
    }

    pub(super) fn with(script: Script) -> Fake {
        let (running, gate) = (VecDeque::new(), Arc::default());
        let (is_broken, memory, seen) = (false, VecDeque::new(), Arc::default());
        Fake { script, running, gate, is_broken, memory, peak_bytes: None, seen }
    }

    /// Returns one, and the attempts that it starts.
    pub(super) fn seeing() -> (Fake, Arc<Mutex<Vec<Seen>>>) {
        let fake = Fake::new();
        let seen = Arc::clone(&fake.seen);
        (fake, seen)
    }

    /// Returns one whose attempts end when the gate is released, or when they are stopped.
    pub(super) fn held() -> (Fake, Arc<Gate>) {
        let fake = Fake::new();
        fake.gate.state.lock().unwrap().is_held = true;
        let gate = Arc::clone(&fake.gate);
        (fake, gate)
    }

    pub(super) fn scripted(self, script: Script) -> Fake {
        Fake { script, ..self }
    }

    /// Returns it with that free memory, at one look after the other.
    pub(super) fn with_memory(self, free: impl IntoIterator<Item = u64>) -> Fake {
        Fake { memory: free.into_iter().collect(), ..self }
    }

    /// Returns it with attempts that have used so much memory.
    pub(super) fn with_peak(self, bytes: u64) -> Fake {
        Fake { peak_bytes: Some(bytes), ..self }
    }

    pub(super) fn broken() -> Fake {
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
