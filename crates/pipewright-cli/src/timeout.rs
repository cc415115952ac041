//! `pipewright timeout`: the interface of coreutils' `timeout`, also if the tool is called by that name.
//!
//! The terminal is left alone, as there. Without `--foreground` the tool leads a group of its own: the shell's own job
//! stays in the foreground with its command, and in a script a command that reads the terminal is stopped by it. With
//! `--foreground` the command stays in the group that it is started from.

use std::ffi::OsStr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use std::{io, thread};

use pipewright::{CaughtSignals, Child, Command, Contain, Error, ExitStatus, Scope, Signal, Stdio};
use pipewright_os::base::error::{OneLine, Quoted};
use pipewright_os::base::signal;

use crate::args::TimeoutOptions;
use crate::stuck::StartWatch;
use crate::{Failure, exit_code, print, print_error};

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
    caught.extend(terminal_stops());
    // A job in the background of a shell script ignores INT and QUIT. As in coreutils, the command does not.
    signal::stop_ignoring(&caught);
    caught.extend(FORWARDED);
    // Before anything is started. The group is what signals reach, and this process is in it.
    let leads_group = !options.foreground && signal::lead_own_group();
    let caught = CaughtSignals::new(&caught).map_err(Failure::cannot("catch signals"))?;
    let started = Instant::now();
    let name = options.command.first().map(|name| Quoted(name).to_string());
    // coreutils forks, so that its child alone waits for a program on a mount that never answers.
    let limit = options.duration.0;
    let watch = StartWatch::new(limit, Duration::ZERO, name.unwrap_or_default(), || false);
    let begun = start(options, leads_group);
    watch.iter().for_each(StartWatch::rests);
    let child = match begun {
        Ok(child) => Arc::new(child),
        Err(error) => {
            let program = options.command.first().map(|name| name.to_string_lossy());
            print_error(&print::message_of(&error, &program.unwrap_or_default()));
            return Ok(exit_code::of_error(&error));
        }
    };
    let end = options.duration.0.and_then(|duration| started.checked_add(duration));
    let kill_after = options.kill_after.and_then(|wait| wait.0);
    let enforcer = Enforcer {
        ladder: Mutex::new(Ladder::new(end, options.signal.0, kill_after)),
        has_ended: AtomicBool::new(false),
        sending: Mutex::default(),
        alarm,
        child: Arc::clone(&child),
        command: options.command.first().map(|name| name.to_string_lossy().into_owned()),
        reach: match (options.foreground, leads_group) {
            (true, _) => Reach::Command,
            (false, true) => Reach::OwnGroup,
            (false, false) => Reach::GroupOfCommand,
        },
        sent: Mutex::default(),
        is_verbose: options.verbose,
    };
    let enforcer = Arc::new(enforcer);
    let for_thread = Arc::clone(&enforcer);
    let builder = thread::Builder::new().name("signals".to_owned()).stack_size(64 << 10);
    builder
        .spawn(move || for_thread.enforce(&caught))
        .map_err(Failure::cannot("start a thread"))?;
    let status = child.wait().map_err(Failure::from_error)?;
    enforcer.end();
    Ok(code(status, enforcer.is_timed_out(), options.preserve_status))
}

/// Returns the signals that stop a group whose process reads or sets the terminal from the background. Such a command
/// is stopped; this process has to go on.
fn terminal_stops() -> Vec<Signal> {
    ["TTIN", "TTOU"].iter().filter_map(|name| name.parse().ok()).collect()
}

fn start(options: &TimeoutOptions, leads_group: bool) -> Result<Child, Error> {
    let mut words = options.command.iter();
    let mut command = Command::new(words.next().map_or(OsStr::new(""), |program| program));
    command.args(words).stdin(Stdio::inherit()).stdout(Stdio::inherit()).stderr(Stdio::inherit());
    command.kill_on_parent_exit(Scope::Child);
    // As coreutils does: what the shell ignores stays ignored.
    if pipewright_os::base::stdio::was_pipe_ignored() {
        command.keep_ignored_pipe();
    }
    if !options.foreground && !leads_group {
        command.contain(Contain::Group);
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

/// The processes that a signal reaches.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Reach {
    /// The command alone.
    Command,
    /// The group of this process, which the command is in.
    OwnGroup,
    /// A group of the command, where this process cannot have one.
    GroupOfCommand,
}

/// Sends the signals while the command runs.
struct Enforcer {
    ladder: Mutex<Ladder>,
    has_ended: AtomicBool,
    /// Held while a signal is sent: to the command, and then to the rest of the group.
    sending: Mutex<()>,
    /// The signal that is the end of the time.
    alarm: Option<Signal>,
    child: Arc<Child>,
    command: Option<String>,
    reach: Reach,
    /// The signals that were sent to this process's own group, and so to this process. From the first one on they are
    /// ignored.
    sent: Mutex<Vec<Signal>>,
    is_verbose: bool,
}

impl Enforcer {
    fn is_timed_out(&self) -> bool {
        self.ladder.lock().unwrap_or_else(PoisonError::into_inner).is_timed_out()
    }

    /// Sends no more: the command has ended. The signal that ended it may be on its way to the rest of the group, and
    /// the end of this process must not get ahead of it.
    fn end(&self) {
        let _sending = self.sending.lock().unwrap_or_else(PoisonError::into_inner);
        self.has_ended.store(true, Ordering::Relaxed);
    }

    /// Waits for signals and for the time, and sends what follows. This process ends meanwhile.
    fn enforce(&self, caught: &CaughtSignals) {
        while let Ok(arrived) = self.wait(caught) {
            if self.has_ended.load(Ordering::Relaxed) {
                return;
            }
            if let Some(signal) = arrived {
                if FORWARDED.contains(&signal) {
                    // Ignored: the command has ended, or has changed its user.
                    let _ = self.child.signal(signal);
                    continue;
                }
                if terminal_stops().contains(&signal) || self.sent().contains(&signal) {
                    continue;
                }
            }
            let mut ladder = self.ladder.lock().unwrap_or_else(PoisonError::into_inner);
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
        let _sending = self.sending.lock().unwrap_or_else(PoisonError::into_inner);
        if self.has_ended.load(Ordering::Relaxed) {
            return;
        }
        if !self.send_to(signal) {
            // Windows has no such signal, or the command has not this console: the time is over all the same.
            let _ = match self.reach {
                Reach::Command => self.child.signal(Signal::KILL).map(drop),
                Reach::OwnGroup | Reach::GroupOfCommand => self.child.kill(),
            };
        } else if self.reach != Reach::Command && ![Signal::KILL, Signal::CONT].contains(&signal) {
            self.send_to(Signal::CONT);
        }
    }

    /// Returns false if the system cannot send the signal to the command. Other errors are ignored, here and above: the
    /// command has ended, or has changed its user.
    fn send_to(&self, signal: Signal) -> bool {
        let child = self.child.child_handle();
        let sent = match self.reach {
            Reach::Command => child.signal(signal),
            Reach::OwnGroup => {
                // The command may have left the group.
                let _ = child.signal(signal);
                self.sent().push(signal);
                signal::send_to_own_group(signal);
                return true;
            }
            Reach::GroupOfCommand => child.signal_group(signal),
        };
        !sent.is_err_and(|error| error.kind() == io::ErrorKind::Unsupported)
    }

    fn sent(&self) -> MutexGuard<'_, Vec<Signal>> {
        self.sent.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The signals of one command.
#[derive(Debug)]
struct Ladder {
    /// The time of the next signal. `None`: no time.
    next: Option<Instant>,
    /// The signal that is sent then; `None`: the number 0, which is not sent.
    signal: Option<Signal>,
    /// The time between the first signal and KILL.
    kill_after: Option<Duration>,
    is_timed_out: bool,
}

impl Ladder {
    fn new(end: Option<Instant>, signal: Option<Signal>, kill_after: Option<Duration>) -> Ladder {
        Ladder { next: end, signal, kill_after, is_timed_out: false }
    }

    /// Returns the time of the next signal.
    fn next(&self) -> Option<Instant> {
        self.next
    }

    /// Returns true if the time was over before the command was.
    fn is_timed_out(&self) -> bool {
        self.is_timed_out
    }

    /// Returns the signal to send when the time is over; `None`: the number 0.
    fn expire(&mut self, now: Instant) -> Option<Signal> {
        self.is_timed_out = true;
        let signal = self.signal;
        self.next = None;
        self.begin_grace(now);
        signal
    }

    /// Returns the signal to send after this process has got one. ALRM is the end of the time.
    fn arrive(&mut self, arrived: Signal, alarm: Option<Signal>, now: Instant) -> Option<Signal> {
        if Some(arrived) == alarm {
            return self.expire(now);
        }
        self.begin_grace(now);
        Some(arrived)
    }

    /// Sends KILL some time after the first signal, whatever it was.
    fn begin_grace(&mut self, now: Instant) {
        if let Some(grace) = self.kill_after.take() {
            self.signal = Some(Signal::KILL);
            self.next = now.checked_add(grace);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn the_time_ends_with_the_signal_and_later_with_kill() {
        let now = Instant::now();
        let mut ladder = Ladder::new(Some(now), Some(Signal::TERM), Some(SECOND));
        assert_eq!(ladder.expire(now), Some(Signal::TERM));
        assert_eq!(ladder.next(), Some(now + SECOND));
        assert_eq!(ladder.expire(now + SECOND), Some(Signal::KILL));
        assert_eq!((ladder.next(), ladder.is_timed_out()), (None, true));
    }

    #[test]
    fn signal_zero_is_followed_by_kill() {
        let now = Instant::now();
        let mut ladder = Ladder::new(Some(now), None, Some(SECOND));
        assert_eq!(ladder.expire(now), None);
        assert_eq!(ladder.expire(now), Some(Signal::KILL));
    }

    #[test]
    fn a_signal_that_arrives_is_forwarded_and_begins_the_grace() {
        let now = Instant::now();
        let alarm = Some(Signal::USR1);
        let mut ladder = Ladder::new(Some(now + SECOND), Some(Signal::TERM), Some(SECOND / 2));
        assert_eq!(ladder.arrive(Signal::HUP, alarm, now), Some(Signal::HUP));
        assert!(!ladder.is_timed_out());
        assert_eq!(ladder.next(), Some(now + SECOND / 2));
        // Without a grace the time goes on.
        let mut ladder = Ladder::new(Some(now + SECOND), Some(Signal::TERM), None);
        ladder.arrive(Signal::HUP, alarm, now);
        assert_eq!(ladder.next(), Some(now + SECOND));
        assert_eq!(ladder.arrive(Signal::USR1, alarm, now), Some(Signal::TERM));
        assert!(ladder.is_timed_out());
    }
}
