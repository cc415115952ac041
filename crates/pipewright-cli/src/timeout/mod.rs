//! `pipewright timeout`: the interface of coreutils' `timeout`, also if the tool is called by that name.

mod ladder;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Instant;
use std::{ffi::OsStr, io};

use pipewright::{CaughtSignals, Child, Command, Contain, Error, ExitStatus, Scope, Signal, Stdio};
use pipewright_os::base::error::OneLine;
use pipewright_os::base::signal;

use crate::args::TimeoutOptions;
use crate::{Failure, exit_code, print_error};
use ladder::Ladder;

/// Signals that a terminal or a parent sends to stop a command.
const STOPPING: [Signal; 4] = [Signal::INT, Signal::TERM, Signal::HUP, Signal::QUIT];

/// Signals that are forwarded too, unless this process ignores them.
const FORWARDED: [Signal; 2] = [Signal::USR1, Signal::USR2];

/// Signals with which this process ends like the command. The others write a core file.
const WITHOUT_CORE: [Signal; 6] =
    [Signal::INT, Signal::TERM, Signal::HUP, Signal::PIPE, Signal::USR1, Signal::USR2];

/// Runs the command, and returns the exit code.
pub(crate) fn run(options: &TimeoutOptions) -> Result<i32, Failure> {
    let alarm: Option<Signal> = "ALRM".parse().ok();
    let mut caught = STOPPING.to_vec();
    // A timeout above this one may send the same signal as this one.
    let also = alarm.into_iter().chain(options.signal.0);
    caught.extend(also.filter(|signal| ![Signal::KILL, Signal::STOP].contains(signal)));
    // A job in the background of a shell script ignores INT and QUIT. As in coreutils, the command does not.
    signal::stop_ignoring(&caught);
    caught.extend(FORWARDED);
    let caught = CaughtSignals::new(&caught).map_err(Failure::cannot("catch signals"))?;
    let started = Instant::now();
    let child = match start(options) {
        Ok(child) => Arc::new(child),
        Err(error) => {
            print_error(&error.to_string());
            return Ok(exit_code::of_error(&error));
        }
    };
    let end = options.duration.0.and_then(|duration| started.checked_add(duration));
    let kill_after = options.kill_after.and_then(|wait| wait.0);
    let enforcer = Enforcer {
        ladder: Mutex::new(Ladder::new(end, options.signal.0, kill_after)),
        has_ended: AtomicBool::new(false),
        alarm,
        child: Arc::clone(&child),
        command: options.command.first().map(|name| name.to_string_lossy().into_owned()),
        is_alone: options.foreground,
        is_verbose: options.verbose,
    };
    let enforcer = Arc::new(enforcer);
    let for_thread = Arc::clone(&enforcer);
    let builder = thread::Builder::new().name("signals".to_owned()).stack_size(64 << 10);
    builder
        .spawn(move || for_thread.enforce(&caught))
        .map_err(Failure::cannot("start a thread"))?;
    let status = child.wait().map_err(Failure::from_error)?;
    enforcer.has_ended.store(true, Ordering::Relaxed);
    Ok(code(status, enforcer.is_timed_out(), options.preserve_status))
}

fn start(options: &TimeoutOptions) -> Result<Child, Error> {
    let mut words = options.command.iter();
    let mut command = Command::new(words.next().map_or(OsStr::new(""), |program| program));
    command.args(words).stdin(Stdio::inherit()).stdout(Stdio::inherit()).stderr(Stdio::inherit());
    command.kill_on_parent_exit(Scope::Child);
    if !options.foreground {
        command.contain(Contain::Group).foreground();
    }
    command.spawn()
}

/// Returns the exit code, or ends this process by the signal that has ended the command.
fn code(status: ExitStatus, is_timed_out: bool, preserves: bool) -> i32 {
    let signal = status.terminating_signal();
    if is_timed_out && !preserves && signal != Some(Signal::KILL) {
        return exit_code::STOPPED;
    }
    if let Some(signal) = signal.filter(|signal| !is_timed_out && WITHOUT_CORE.contains(signal)) {
        signal.raise();
    }
    exit_code::of_status(status)
}

/// Sends the signals while the command runs.
struct Enforcer {
    ladder: Mutex<Ladder>,
    has_ended: AtomicBool,
    /// The signal that is the end of the time.
    alarm: Option<Signal>,
    child: Arc<Child>,
    command: Option<String>,
    /// Signals reach only the command itself.
    is_alone: bool,
    is_verbose: bool,
}

impl Enforcer {
    fn is_timed_out(&self) -> bool {
        self.ladder.lock().unwrap_or_else(PoisonError::into_inner).is_timed_out()
    }

    /// Waits for signals and for the time, and sends what follows. This process ends meanwhile.
    fn enforce(&self, caught: &CaughtSignals) {
        while let Ok(arrived) = self.wait(caught) {
            let mut ladder = self.ladder.lock().unwrap_or_else(PoisonError::into_inner);
            if self.has_ended.load(Ordering::Relaxed) {
                return;
            }
            let now = Instant::now();
            let signal = match arrived {
                Some(arrived) => ladder.arrive(arrived, self.alarm, now),
                None => ladder.expire(now),
            };
            drop(ladder);
            self.send(signal);
        }
    }

    /// Returns the signal that has arrived, or `None` at the end of the time.
    fn wait(&self, caught: &CaughtSignals) -> io::Result<Option<Signal>> {
        let next = self.ladder.lock().unwrap_or_else(PoisonError::into_inner).next();
        match next {
            Some(at) => caught.wait_for(at.saturating_duration_since(Instant::now())),
            None => caught.wait().map(Some),
        }
    }

    fn send(&self, signal: Option<Signal>) {
        if self.is_verbose {
            let name = signal.map_or("EXIT".to_owned(), |signal| signal.to_string());
            let command = self.command.as_deref().unwrap_or_default();
            // In the words of coreutils, for scripts that read them.
            let words = format!(
                "timeout: sending signal {} to command '{}'\n",
                name.trim_start_matches("SIG"),
                OneLine(command)
            );
            // Ignored: stderr may be closed.
            let _ = io::Write::write_all(&mut io::stderr(), words.as_bytes());
        }
        let Some(signal) = signal else { return };
        // Ignored here and below: the command has ended, or has changed its user.
        if self.is_alone {
            let _ = self.child.signal(signal);
            return;
        }
        self.send_to_group(signal);
        if ![Signal::KILL, Signal::CONT].contains(&signal) {
            self.send_to_group(Signal::CONT);
        }
    }

    fn send_to_group(&self, signal: Signal) {
        let child = self.child.child_handle();
        let _ = child.signal_group(signal);
        // The command may have left the group that it was started in.
        if !child.is_group_leader() {
            let _ = self.child.signal(signal);
        }
    }
}
