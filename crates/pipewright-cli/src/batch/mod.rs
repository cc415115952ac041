//! `batch`: many commands, some at the same time.

mod input;
mod settings;

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::io::{self, IsTerminal as _, Write as _};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use pipewright::{CaughtSignals, Signal};
use pipewright_batch::{
    BatchError, Control, Event, Halt, LogErrorKind, Run, Summary, shell_quoted,
};
use pipewright_os::base::stdio;

use crate::args::{BatchOptions, Span};
use crate::print::{is_reader_gone, without_controls};
use crate::stuck::{self, StartWatch};
use crate::{Failure, exit_code, print_error, sleep};

/// Runs the batch, and returns the exit code.
pub(crate) fn run(options: BatchOptions) -> Result<i32, Failure> {
    // Before anything is opened: a log, an input or a folder may be on a mount that never answers.
    let limit = options.batch_timeout.as_ref().and_then(Span::as_limit);
    let watch = StartWatch::new(limit, Duration::ZERO, "the batch".to_owned(), || false);
    let Some(log) = input::resumed_log(&options)? else {
        return run_input(&options, None, watch);
    };
    if options.dry_run {
        let printed = input::dry_run_of_log(&log, &options);
        rest(watch);
        return printed;
    }
    let batch = settings::batch(&options)?;
    let interrupt = Interrupt::catch().map_err(Failure::cannot("catch signals"))?;
    match batch.resume_log(&log) {
        Ok(run) => {
            rest(watch);
            follow(run, &interrupt, &BatchOptions { log: Some(log), ..options })
        }
        Err(BatchError::Log(error)) if matches!(error.kind(), LogErrorKind::LacksInput { .. }) => {
            let Some(options) = input::with_noted_input(options, &log) else {
                return Err(Failure::from_error(error));
            };
            if !options.quiet {
                print_error("the log lacks jobs that were not read: the input is read again");
            }
            run_input(&options, Some(interrupt), watch)
        }
        Err(error) => Err(Failure::from_error(error)),
    }
}

/// Runs the jobs of the input.
fn run_input(
    options: &BatchOptions,
    interrupt: Option<Interrupt>,
    watch: Option<StartWatch>,
) -> Result<i32, Failure> {
    let jobs = input::jobs(options)?;
    let batch = settings::batch(options)?;
    if options.dry_run {
        // Its input is read here, and may wait for another process.
        let printed = dry_run(jobs);
        rest(watch);
        return printed;
    }
    input::check_file(options, &batch)?;
    let interrupt = match interrupt {
        Some(interrupt) => interrupt,
        None => Interrupt::catch().map_err(Failure::cannot("catch signals"))?,
    };
    let run = batch.start(jobs).map_err(Failure::from_error)?;
    rest(watch);
    follow(run, &interrupt, options)
}

/// Ends the watch: from now on the batch sees to its time itself.
fn rest(watch: Option<StartWatch>) {
    if let Some(watch) = watch {
        watch.rests();
    }
}

/// Follows a batch to its end, and returns the exit code.
fn follow(mut run: Run, interrupt: &Interrupt, options: &BatchOptions) -> Result<i32, Failure> {
    interrupt.control(run.control());
    if let Some(time) = options.batch_timeout.as_ref().and_then(Span::as_limit) {
        interrupt.limit(time, options.kill_after.duration);
    }
    while let Some(event) = run.next_until(None).map_err(Failure::from_error)? {
        interrupt.note(&event);
        if matches!(event, Event::Halted(Halt::Drain)) && interrupt.is_by_ctrl_c() {
            run.note("Ctrl-C again stops the running jobs");
        }
    }
    interrupt.closing();
    let counts = run.summary().to_string();
    let code = match run.finish() {
        Ok(summary) => conclude(&summary, options),
        Err(error) => {
            let code = Failure::from_error(error).report();
            if !options.quiet {
                print_error(&counts);
            }
            code
        }
    };
    Ok(interrupt.end(code))
}

/// Prints the summary, and returns the exit code.
fn conclude(summary: &Summary, options: &BatchOptions) -> i32 {
    if let Some(error) = &summary.input_error {
        print_error(&error.to_string());
    }
    if let Some(error) = &summary.output_error {
        let jobs = if summary.incomplete_outputs == 1 { "job" } else { "jobs" };
        print_error(&format!(
            "output of {} {jobs} is incomplete: {error}",
            summary.incomplete_outputs
        ));
    }
    if summary.kept_outputs > 0 {
        let outputs = if summary.kept_outputs == 1 { "output was" } else { "outputs were" };
        print_error(&format!(
            "{} {outputs} not printed, and will be by --resume",
            summary.kept_outputs
        ));
    } else if summary.discarded_output {
        print_error("output was discarded, because its reader did not take it in time");
    }
    match &summary.not_started {
        // A user who wants no messages wants to know why nothing has happened.
        Some((job, reason)) if options.quiet => print_error(&format!("job {job}: {reason}")),
        _ => {}
    }
    if summary.leftovers_killed > 0 && !options.quiet {
        let processes = match summary.leftovers_killed {
            1 => "1 process that a job left running was".to_owned(),
            count => format!("{count} processes that jobs left running were"),
        };
        print_error(&format!("{processes} killed; --contain group keeps them"));
    }
    if !options.quiet {
        let log = options.log.as_ref().filter(|_| summary.failed > 0);
        let hint = log.map(|log| format!("; pipewright jobs {}", log.display()));
        print_error(&format!("{summary}{}", hint.unwrap_or_default()));
    }
    summary.exit_code()
}

/// Prints the commands, one a line.
fn dry_run(jobs: input::AllJobs) -> Result<i32, Failure> {
    let mut stdout = stdio::stdout();
    let is_terminal = io::stdout().is_terminal();
    for job in jobs {
        let job = job.map_err(Failure::from_error)?;
        let mut line = shell_quoted(&job.argv(1).map_err(Failure::from_error)?);
        line.push(b'\n');
        if is_terminal {
            line = without_controls(&String::from_utf8_lossy(&line)).into_owned().into_bytes();
        }
        match stdout.write_all(&line) {
            Err(error) if is_reader_gone(&error) => return Ok(exit_code::SUCCESS),
            written => written.map_err(Failure::cannot("write to stdout"))?,
        }
    }
    crate::print::check(stdout.flush())?;
    Ok(exit_code::SUCCESS)
}

/// Time for a start in progress, when a signal arrives. One that takes longer is stuck, as at a FIFO that nobody opens.
const STUCK_AFTER: Duration = Duration::from_secs(1);

/// The time that a batch that was stopped has to write the rest of its output, which has 5 s of it, its reports and its
/// log. Their readers may stand still, and their disks may not answer.
const STOPPED_CLOSES_WITHIN: Duration = Duration::from_secs(10);

/// The time that a batch has to stop its jobs after the end of its time, beside their grace: nodes have the most of
/// it. Its own thread may wait for a file that does not answer.
const STOPS_WITHIN: Duration = Duration::from_secs(30);

/// The time that a batch has to end after a second signal, whatever does not answer. With the last words it is 5 s.
const ENDS_WITHIN: Duration = Duration::from_secs(4);

/// The jobs that the last message names.
const MOST_NAMED: usize = 10;

/// Caught signals, handled by a thread.
#[derive(Debug)]
struct Interrupt {
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
    /// The end of the batch's time.
    ends_at: OnceLock<Instant>,
    /// The jobs that run.
    running: Mutex<BTreeSet<u64>>,
}

impl Interrupt {
    /// Catches signals. Call it before other threads start: the kernel would give a signal to one that does not block
    /// it, and it would kill this process. A signal before [`Self::control`] ends this process, as no job runs.
    fn catch() -> io::Result<Interrupt> {
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
    fn control(&self, control: Control) {
        // Ignored: a process runs one batch.
        let _ = self.state.control.set(control);
    }

    /// Ends this process some time after the end of the batch's time, if it has not ended by then.
    pub(super) fn limit(&self, time: Duration, grace: Duration) {
        if let Some(end) = Instant::now().checked_add(time) {
            // Ignored: a process runs one batch.
            let _ = self.state.ends_at.set(end);
        }
        let limit = [grace, STOPS_WITHIN].into_iter().try_fold(time, Duration::checked_add);
        if let Some(limit) = limit {
            self.end_later(limit, exit_code::STOPPED);
        }
    }

    /// Takes note of an event.
    fn note(&self, event: &Event) {
        match event {
            Event::Started { key, .. } => drop(self.state.running().insert(key.job)),
            Event::Ended { end, .. } => drop(self.state.running().remove(&end.key.job)),
            _ => {}
        }
    }

    /// Records that no job runs any more. A signal then ends this process: what reads its output may have stopped to
    /// read.
    fn closing(&self) {
        self.state.is_closing.store(true, Ordering::SeqCst);
        let signal = self.state.signal.get();
        let left =
            self.state.ends_at.get().map(|end| end.saturating_duration_since(Instant::now()));
        match (signal.filter(|_| self.state.is_stopping.load(Ordering::SeqCst)), left) {
            (Some(signal), _) => {
                self.end_later(STOPPED_CLOSES_WITHIN, exit_code::of_signal(signal.number()));
            }
            (None, Some(left)) => {
                self.end_later(left.saturating_add(STOPPED_CLOSES_WITHIN), exit_code::STOPPED);
            }
            (None, None) => {}
        }
    }

    fn end_later(&self, pause: Duration, code: i32) {
        let state = Arc::clone(&self.state);
        // Ignored: without a thread, the next signal ends this process.
        let _ = thread::Builder::new()
            .name("end".to_owned())
            .stack_size(64 << 10)
            .spawn(move || state.end_after(pause, code));
    }

    /// Returns true if the first signal was a Ctrl-C.
    fn is_by_ctrl_c(&self) -> bool {
        self.state.signal.get() == Some(&Signal::INT)
    }

    /// Returns the exit code. Kills this process by SIGINT after a Ctrl-C, so that a shell ends its loop.
    fn end(&self, code: i32) -> i32 {
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

    /// Ends this process after that time, and says what it leaves.
    fn end_after(&self, pause: Duration, code: i32) {
        sleep(pause);
        stuck::end(self.left(), code);
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
        let code = exit_code::of_signal(signal.number());
        let Some(control) = self.control.get() else { std::process::exit(code) };
        // Nothing is printed here: a terminal that takes nothing would make this thread deaf to the next signal.
        let is_first = self.signal.set(signal).is_ok();
        if is_first && signal == Signal::INT {
            control.drain();
        } else {
            control.stop();
            if self.is_stopping.swap(true, Ordering::SeqCst) {
                // Somebody does not want to wait for what does not end.
                self.end_after(ENDS_WITHIN, code);
            }
        }
        if self.is_closing.load(Ordering::SeqCst) {
            self.end_after(STUCK_AFTER, code);
        }
    }
}
