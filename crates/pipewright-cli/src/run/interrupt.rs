//! Signals to the tool: they stop the command, or are forwarded to it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};
use std::{io, thread};

use pipewright::{
    ArrivedSignal, CancelToken, Captured, CaughtSignals, Child, Command, Error, Outcome, Output,
    Signal, Stdio,
};
use pipewright_os::base::service_thread;
use pipewright_os::base::wait::Slot;
use pipewright_os::base::wake::Wake;
use pipewright_os::process::terminal::{self, Foreground};

use crate::{exit_code, sleep, stuck};

/// Signals that request a stop.
const STOPPING: [Signal; 3] = [Signal::INT, Signal::TERM, Signal::HUP];
/// Signals that are forwarded.
const OTHERS: [Signal; 3] = [Signal::QUIT, Signal::USR1, Signal::USR2];

/// Time for this process to exit by itself after a signal that finds no child. A start in progress, or the writing of a
/// report, takes far less.
const STUCK_AFTER: Duration = Duration::from_secs(1);
/// Interval of the checks for a command that is being started.
const POLL_INTERVAL: Duration = Duration::from_millis(5);

/// The reaction to a stop of this process (Ctrl-Z).
#[derive(Debug)]
pub(crate) enum Followed {
    /// It stops.
    Nothing,
    /// It stops only after the command has. Otherwise the shell would take the terminal back while the command may
    /// still read from it, and the command would take input meant for the shell.
    Command,
    /// It stops after the modes of the terminal have been restored.
    Terminal(Arc<TerminalStops>),
}

/// Caught signals, handled by a thread.
#[derive(Debug)]
pub(crate) struct Interrupt {
    state: Arc<State>,
}

/// Signals that have arrived, and the phase of the run.
#[derive(Debug)]
struct State {
    cancel: CancelToken,
    followed: Followed,
    /// The first stop signal to this process.
    signal: OnceLock<Signal>,
    /// A stop signal was typed at the terminal shared with the command.
    typed: AtomicBool,
    /// Ctrl-C was typed, with or without a command running.
    ctrl_c: AtomicBool,
    /// No command runs: between two attempts, and after the last.
    idle: AtomicBool,
    /// The grace of a stop.
    grace: Duration,
}

impl Interrupt {
    /// Catches signals, which then no longer kill this process. A stop signal cancels the token, and the command gets
    /// that signal in place of the configured one. Other signals are forwarded.
    ///
    /// `shares_terminal`: the command is in the process group of the tool, and gets the signals of the terminal
    /// (Ctrl-C) itself. It may handle them in its own way, as an editor does.
    ///
    /// `followed`: see there.
    ///
    /// If no command runs, a stop signal is for this process. Examples: the open of a FIFO blocks before the start, the
    /// delay between two attempts, a report that is written to a pipe that nothing reads.
    pub(crate) fn catch(
        cancel: &CancelToken,
        shares_terminal: bool,
        followed: Followed,
        grace: Duration,
    ) -> io::Result<Interrupt> {
        let mut caught = [STOPPING, OTHERS].concat();
        match &followed {
            Followed::Nothing => {}
            Followed::Command => caught.push(Signal::TSTP),
            Followed::Terminal(_) => caught.extend(FOLLOWED),
        }
        let caught = CaughtSignals::new(&caught)?;
        let state = Arc::new(State {
            cancel: cancel.clone(),
            followed,
            signal: OnceLock::new(),
            typed: AtomicBool::new(false),
            ctrl_c: AtomicBool::new(false),
            idle: AtomicBool::new(false),
            grace,
        });
        let handler = Arc::clone(&state);
        // The thread below does little but wait: it needs no heap of its own.
        pipewright_os::base::memory::use_one_heap();
        thread::Builder::new().name("signals".to_owned()).stack_size(64 << 10).spawn(
            move || {
                while let Ok(arrived) = caught.wait_for_arrival() {
                    handler.handle(arrived, shares_terminal);
                }
            },
        )?;
        Ok(Interrupt { state })
    }

    /// Returns the first stop signal.
    pub(crate) fn signal(&self) -> Option<Signal> {
        self.state.signal.get().copied()
    }

    /// Returns the exit code of a run that a signal has stopped.
    pub(crate) fn stop_code(&self) -> i32 {
        self.signal().map_or(exit_code::OWN_FAILURE, |signal| exit_code::of_signal(signal.number()))
    }

    /// Returns true if a stop signal was typed at the terminal, which also ends the retries.
    pub(crate) fn was_interrupted_at_terminal(&self) -> bool {
        self.state.typed.load(Ordering::SeqCst)
    }

    /// Kills this process by SIGINT if Ctrl-C killed the command, arrived while none ran, or ended the retries.
    /// Otherwise returns the exit code.
    ///
    /// A shell ends its loop if SIGINT killed a command, and continues if the command exited, with any code.
    pub(crate) fn end<T>(&self, done: Option<&Captured<T>>, ended_retries: bool, code: i32) -> i32 {
        let ended_by = done.filter(|done| done.outcome == Outcome::Signaled);
        let ended_by = ended_by.and_then(|done| done.status.terminating_signal());
        let is_ctrl_c = if ended_by == Some(Signal::INT) {
            // True no matter if Ctrl-C reached this process too, or only the group of the command.
            Foreground::own().is_some()
        } else {
            let is_ours = ended_retries || self.signal() == Some(Signal::INT);
            is_ours && self.state.ctrl_c.load(Ordering::SeqCst)
        };
        if is_ctrl_c && code != exit_code::OWN_FAILURE {
            Signal::INT.raise();
        }
        code
    }

    /// Records that Ctrl-C was typed at the terminal that the command has for itself.
    pub(crate) fn ctrl_c_typed(&self) {
        self.state.typed.store(true, Ordering::SeqCst);
        self.state.ctrl_c.store(true, Ordering::SeqCst);
    }

    /// Records that a command is about to be started.
    pub(crate) fn command_starts(&self) {
        self.state.idle.store(false, Ordering::SeqCst);
    }

    /// Records that the command has ended.
    pub(crate) fn command_ended(&self) {
        self.state.idle.store(true, Ordering::SeqCst);
    }
}

impl State {
    fn handle(self: &Arc<Self>, arrived: ArrivedSignal, shares_terminal: bool) {
        let ArrivedSignal { signal, from_own_group, .. } = arrived;
        if let (Followed::Terminal(stops), true) = (&self.followed, FOLLOWED.contains(&signal)) {
            return stops.note(signal);
        }
        // A hang-up reaches the leader of the session alone.
        let from_terminal = arrived.from_terminal && signal != Signal::HUP;
        if from_terminal && signal == Signal::INT {
            self.ctrl_c.store(true, Ordering::SeqCst);
        }
        // `kill -TSTP 0` of the command, as editors do: it has stopped itself, and this process follows.
        if signal == Signal::TSTP && from_own_group && shares_terminal {
            return;
        }
        let has_command = self.wait_for_command();
        let stops = STOPPING.contains(&signal) || (signal == Signal::QUIT && !has_command);
        if from_terminal && shares_terminal && has_command {
            if stops {
                self.typed.store(true, Ordering::SeqCst);
            }
        } else if stops {
            // Only the first counts: a second Ctrl-C means the same.
            let is_first = self.signal.set(signal).is_ok();
            self.cancel.cancel_with(signal);
            if !has_command {
                self.end_if_stuck(signal);
            } else if is_first {
                self.end_later_if_stuck(signal);
            }
        } else if signal == Signal::TSTP && !has_command {
            terminal::stop_this_process();
        } else {
            self.cancel.pass_on(signal);
        }
    }

    /// Returns true if a command runs. Waits for one that is being started, as it may get the signal too.
    fn wait_for_command(&self) -> bool {
        let until = Instant::now() + STUCK_AFTER;
        while !self.is_idle() && !self.cancel.is_waited_for() && Instant::now() < until {
            sleep(POLL_INTERVAL);
        }
        !self.is_idle() && self.cancel.is_waited_for()
    }

    fn is_idle(&self) -> bool {
        self.idle.load(Ordering::SeqCst)
    }

    /// Exits if the command has not ended long after its stop: the thread that sees to it waits for a file.
    fn end_later_if_stuck(self: &Arc<Self>, signal: Signal) {
        let state = Arc::clone(self);
        let watch = move || {
            if stuck::is_stuck(state.grace, || state.is_idle()) {
                stuck::end_stopped(exit_code::of_signal(signal.number()));
            }
        };
        // Ignored: without room for a thread, the command ends as it does elsewhere.
        let _ = service_thread::start(c"stop-watch", watch);
    }

    /// Exits, unless this process is about to exit anyway.
    fn end_if_stuck(&self, signal: Signal) {
        if self.is_idle() {
            sleep(STUCK_AFTER);
        }
        if self.is_idle() || !self.cancel.is_waited_for() {
            stuck::end_start(exit_code::of_signal(signal.number()));
        }
    }
}

/// A process in the group of a command. It learns of a Ctrl-C that only this group gets: with `--contain group` the
/// command is the job in the foreground, and this process is not.
///
/// Nothing tells who has typed, and a command that answers Ctrl-C with an exit code of its own looks like one that has
/// failed. So a shell waits beside the command, in its group, and is killed by the SIGINT that the command answers.
/// Only an attempt that may be repeated has one. A Ctrl-C before the shell has joined the group, in the first
/// milliseconds, goes unnoticed.
///
/// # Drop
/// Ends it: it reads a pipe, which ends too if this process is killed.
struct GroupWatch(Child);

impl GroupWatch {
    /// Joins the group of a command. `None` if the command has ended, or if there is no room: then a Ctrl-C goes
    /// unnoticed.
    fn start(leader: u32) -> Option<GroupWatch> {
        let mut shell = Command::new("/bin/sh");
        shell.args(["-c", "read end"]).process_group(i32::try_from(leader).ok()?);
        shell.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        shell.spawn().ok().map(GroupWatch)
    }

    /// Returns true if Ctrl-C has reached the group.
    fn was_interrupted(self) -> bool {
        // Ignored: it has ended. It may be stopped, as the command was by Ctrl-Z.
        let _ = self.0.signal(Signal::CONT);
        // This closes its stdin. A signal that was sent before comes first.
        self.0.wait().is_ok_and(|status| status.terminating_signal() == Some(Signal::INT))
    }
}

/// Runs a command that leads the job in the foreground, and records a Ctrl-C that it answers in its own way.
pub(super) fn output_of_own_group(
    command: &mut Command,
    interrupt: &Interrupt,
) -> Result<Output, Error> {
    let mut running = command.start_output()?;
    let watch = GroupWatch::start(running.pid());
    let output = loop {
        // No clock has a time so late.
        match running.wait_for(Duration::MAX) {
            Ok(None) => {}
            Ok(Some(output)) => break Ok(output),
            Err(error) => break Err(error),
        }
    };
    if watch.is_some_and(GroupWatch::was_interrupted) {
        interrupt.ctrl_c_typed();
    }
    output
}

/// Signals that stop and continue this process: the modes of the terminal go with it.
const FOLLOWED: [Signal; 2] = [Signal::TSTP, Signal::CONT];

/// Passes stops and continues from the thread that takes signals to the one that has set the modes.
#[derive(Debug)]
pub(crate) struct TerminalStops {
    wake: Wake,
    /// A stop was asked for.
    is_asked: AtomicBool,
    /// A thread follows.
    is_followed: AtomicBool,
}

impl TerminalStops {
    pub(super) fn new() -> io::Result<TerminalStops> {
        let (is_asked, is_followed) = (AtomicBool::new(false), AtomicBool::new(false));
        Ok(TerminalStops { wake: Wake::new()?, is_asked, is_followed })
    }

    /// Takes a signal that is followed.
    pub(super) fn note(&self, signal: Signal) {
        let is_stop = signal == Signal::TSTP;
        match self.is_followed.load(Ordering::SeqCst) {
            true => {
                self.is_asked.fetch_or(is_stop, Ordering::SeqCst);
                self.wake.raise();
            }
            false if is_stop => terminal::stop_this_process(),
            false => {}
        }
    }

    /// Follows from now on, until it is called with false.
    pub(super) fn follow(&self, follows: bool) {
        self.is_followed.store(follows, Ordering::SeqCst);
    }

    /// Returns the event of a signal.
    pub(super) fn slot(&self) -> Slot<'_> {
        Slot::Event(&self.wake)
    }

    /// Handles the event, after `restore`: stops this process if that was asked for. Returns when it has been
    /// continued.
    pub(super) fn take(&self, restore: impl FnOnce()) {
        self.wake.lower();
        if self.is_asked.swap(false, Ordering::SeqCst) {
            restore();
            terminal::stop_this_process();
        }
    }
}
