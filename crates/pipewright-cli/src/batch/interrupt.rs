//! Signals: the first Ctrl-C lets running jobs end, the second one stops them. SIGTERM and SIGHUP stop them at once.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;
use std::{io, thread};

use pipewright::{CaughtSignals, Signal};
use pipewright_batch::{Control, Event};

use crate::run::interrupt::sleep;
use crate::{exit_code, stuck};

/// Time for a start in progress, when a signal arrives. One that takes longer is stuck, as at a FIFO that nobody opens.
const STUCK_AFTER: Duration = Duration::from_secs(1);

/// The time that a batch that was stopped has to write the rest of its output, which has 5 s of it, and its reports. Their
/// readers may stand still.
const STOPPED_CLOSES_WITHIN: Duration = Duration::from_secs(10);

/// The time that a batch has to end after a second signal, whatever does not answer.
const ENDS_WITHIN: Duration = Duration::from_secs(5);

/// The jobs that the last message names.
const MOST_NAMED: usize = 10;

/// Caught signals, handled by a thread.
#[derive(Debug)]
pub(super) struct Interrupt {
    state: Arc<State>,
}

#[derive(Debug, Default)]
struct State {
    /// The first signal.
    signal: OnceLock<Signal>,
    /// The control of the batch, once it has been started.
    control: OnceLock<Control>,
    /// The running jobs have been stopped.
    is_stopping: AtomicBool,
    /// No job runs any more: output is printed, and reports are written.
    is_closing: AtomicBool,
    /// The jobs that run.
    running: Mutex<BTreeSet<u64>>,
}

impl Interrupt {
    /// Catches signals. Call it before other threads start: the kernel would give a signal to one that does not block it, and
    /// it would kill this process. A signal before [`Self::control`] ends this process, as no job runs.
    pub(super) fn catch() -> io::Result<Interrupt> {
        let caught = CaughtSignals::new(&[Signal::INT, Signal::TERM, Signal::HUP])?;
        let state = Arc::new(State::default());
        let handler = Arc::clone(&state);
        let handle = move || {
            while let Ok(arrived) = caught.wait_for_arrival() {
                handler.handle(arrived.signal);
            }
        };
        thread::Builder::new().name("signals".to_owned()).stack_size(64 << 10).spawn(handle)?;
        Ok(Interrupt { state })
    }

    /// Sets the control of the batch, which signals use from now on.
    pub(super) fn control(&self, control: Control) {
        // Ignored: a process runs one batch.
        let _ = self.state.control.set(control);
    }

    /// Takes note of an event.
    pub(super) fn note(&self, event: &Event) {
        match event {
            Event::Started { key, .. } => drop(self.state.running().insert(key.job)),
            Event::Ended { end, .. } => drop(self.state.running().remove(&end.key.job)),
            _ => {}
        }
    }

    /// Records that no job runs any more. A signal then ends this process: what reads its output may have stopped to read.
    pub(super) fn closing(&self) {
        self.state.is_closing.store(true, Ordering::SeqCst);
        if let (true, Some(&signal)) =
            (self.state.is_stopping.load(Ordering::SeqCst), self.state.signal.get())
        {
            let state = Arc::clone(&self.state);
            // Ignored: without a thread, the next signal ends this process.
            let _ = thread::Builder::new()
                .name("end".to_owned())
                .stack_size(64 << 10)
                .spawn(move || state.end_after(STOPPED_CLOSES_WITHIN, signal));
        }
    }

    /// Returns true if the first signal was a Ctrl-C.
    pub(super) fn is_by_ctrl_c(&self) -> bool {
        self.state.signal.get() == Some(&Signal::INT)
    }

    /// Returns the exit code. Kills this process by SIGINT after a Ctrl-C, so that a shell ends its loop.
    pub(super) fn end(&self, code: i32) -> i32 {
        match self.state.signal.get() {
            Some(_) if code == exit_code::OWN_FAILURE => code,
            Some(&Signal::INT) => {
                Signal::INT.raise();
                exit_code::of_signal(Signal::INT.number())
            }
            Some(signal) => exit_code::of_signal(signal.number()),
            None => code,
        }
    }
}

impl State {
    fn running(&self) -> MutexGuard<'_, BTreeSet<u64>> {
        // Each change is whole.
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends this process some time after a signal, and says what it leaves.
    fn end_after(&self, pause: Duration, signal: Signal) {
        sleep(pause);
        stuck::end(self.left(), exit_code::of_signal(signal.number()));
    }

    /// Returns a message about what did not end.
    fn left(&self) -> String {
        let running = self.running();
        if running.is_empty() {
            return "ended before the readers of its output and reports took all, or its files answered"
                .to_owned();
        }
        let jobs = if running.len() == 1 { "job" } else { "jobs" };
        let mut text = format!("ended before {jobs}");
        for (index, job) in running.iter().take(MOST_NAMED).enumerate() {
            // Ignored: a text takes everything.
            let _ = write!(text, "{} {job}", if index == 0 { "" } else { "," });
        }
        if running.len() > MOST_NAMED {
            let _ = write!(text, " and {} more", running.len() - MOST_NAMED);
        }
        text + " did, which may still run"
    }

    fn handle(&self, signal: Signal) {
        if self.control.get().is_none() {
            sleep(STUCK_AFTER);
        }
        let Some(control) = self.control.get() else {
            std::process::exit(exit_code::of_signal(signal.number()));
        };
        // Nothing is printed here: a terminal that takes nothing would make this thread deaf to the next signal.
        let is_first = self.signal.set(signal).is_ok();
        if is_first && signal == Signal::INT {
            control.drain();
        } else {
            control.stop();
            if self.is_stopping.swap(true, Ordering::SeqCst) {
                // Somebody does not want to wait for what does not end.
                self.end_after(ENDS_WITHIN, signal);
            }
        }
        if self.is_closing.load(Ordering::SeqCst) {
            self.end_after(STUCK_AFTER, signal);
        }
    }
}
