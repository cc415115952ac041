//! Signals that are meant for the command: they are passed on, or stop it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};
use std::{io, thread};

use pipewright::{ArrivedSignal, CancelToken, Captured, CaughtSignals, Outcome, Signal};
use pipewright_os::base::wait;
use pipewright_os::process::terminal::{self, Foreground};

use crate::exit_code;

/// Those that mean "stop".
const STOPPING: [Signal; 3] = [Signal::INT, Signal::TERM, Signal::HUP];
/// Those that mean whatever the command makes of them.
const OTHERS: [Signal; 3] = [Signal::QUIT, Signal::USR1, Signal::USR2];

/// How long we have to come to our end by ourselves after a signal that finds no child: a start that is under
/// way, or a report that is being written, takes far less.
const STUCK_AFTER: Duration = Duration::from_secs(1);
/// How often it is looked whether a command that is being started is there.
const LOOK_PAUSE: Duration = Duration::from_millis(5);

/// The signals, caught.
#[derive(Debug)]
pub(crate) struct Interrupt {
    seen: Arc<Seen>,
}

/// What has come, and whom it could be for.
#[derive(Debug)]
struct Seen {
    cancel: CancelToken,
    /// The first that means "stop" and was for us.
    signal: OnceLock<Signal>,
    /// A stop was typed at the terminal that we share with the command.
    typed: AtomicBool,
    /// Ctrl-C was among it, whether there was a command or not.
    ctrl_c: AtomicBool,
    /// Between two attempts, and after the last.
    at_rest: AtomicBool,
}

impl Interrupt {
    /// From here on signals do not end this process: one that means "stop" cancels the token, and
    /// the command is sent it in the place of the stop signal; others are passed on.
    ///
    /// `shares_terminal`: the command is in our process group, and has got what the terminal sends
    /// (Ctrl-C) itself. It may have its own idea of what that means, as an editor has.
    ///
    /// `is_followed`: when the command stops, so do we, and not before. The shell would take the terminal back
    /// while the command may still be about to read from it, and it would take what is typed for the shell.
    ///
    /// Where there is no command (a file has not been opened yet that is a FIFO; between two attempts; a report is
    /// written that nobody reads) whoever wants it to stop means us.
    pub(crate) fn catch(
        cancel: &CancelToken,
        shares_terminal: bool,
        is_followed: bool,
    ) -> io::Result<Interrupt> {
        let mut caught = [STOPPING, OTHERS].concat();
        caught.extend(is_followed.then_some(Signal::TSTP));
        let caught = CaughtSignals::new(&caught)?;
        let seen = Arc::new(Seen {
            cancel: cancel.clone(),
            signal: OnceLock::new(),
            typed: AtomicBool::new(false),
            ctrl_c: AtomicBool::new(false),
            at_rest: AtomicBool::new(false),
        });
        let noting = Arc::clone(&seen);
        // The thread below does next to nothing but wait.
        pipewright_os::base::memory::use_one_heap();
        thread::Builder::new().name("signals".to_owned()).stack_size(64 << 10).spawn(
            move || {
                while let Ok(arrived) = caught.wait_for_arrival() {
                    noting.note(arrived, shares_terminal);
                }
            },
        )?;
        Ok(Interrupt { seen })
    }

    /// The signal that came first.
    pub(crate) fn signal(&self) -> Option<Signal> {
        self.seen.signal.get().copied()
    }

    /// Whether somebody at the terminal wants it to end: then it is not tried again.
    pub(crate) fn was_typed(&self) -> bool {
        self.seen.typed.load(Ordering::SeqCst)
    }

    /// Ends us by Ctrl-C where that has ended the command, or came while there was none, or was why we gave up what we
    /// would have tried again; else gives the code to exit with. A shell ends its loop for what SIGINT has ended, and
    /// goes on after what exits, with whichever code.
    pub(crate) fn end<T>(&self, done: Option<&Captured<T>>, gave_up: bool, code: i32) -> i32 {
        let ended_by = done.filter(|done| done.outcome == Outcome::Signaled);
        let ended_by = ended_by.and_then(|done| done.status.terminating_signal());
        let is_ctrl_c = if ended_by == Some(Signal::INT) {
            // Whether we have got it as well, or it was for the group of the command alone.
            Foreground::own().is_some()
        } else {
            let is_ours = gave_up || self.signal() == Some(Signal::INT);
            is_ours && self.seen.ctrl_c.load(Ordering::SeqCst)
        };
        if is_ctrl_c && code != exit_code::OWN_FAILURE {
            Signal::INT.raise();
        }
        code
    }

    /// A command is about to be started.
    pub(crate) fn begin(&self) {
        self.seen.at_rest.store(false, Ordering::SeqCst);
    }

    /// It has ended.
    pub(crate) fn rest(&self) {
        self.seen.at_rest.store(true, Ordering::SeqCst);
    }
}

impl Seen {
    fn note(&self, arrived: ArrivedSignal, shares_terminal: bool) {
        let ArrivedSignal { signal, from_terminal, .. } = arrived;
        if from_terminal && signal == Signal::INT {
            self.ctrl_c.store(true, Ordering::SeqCst);
        }
        let has_command = self.wait_for_command();
        let stops = STOPPING.contains(&signal) || (signal == Signal::QUIT && !has_command);
        if from_terminal && shares_terminal && has_command {
            if stops {
                self.typed.store(true, Ordering::SeqCst);
            }
        } else if stops {
            // The first one counts; who presses Ctrl-C twice means the same thing.
            let _ = self.signal.set(signal);
            self.cancel.cancel_with(signal);
            if !has_command {
                self.end_if_stuck(signal);
            }
        } else if signal == Signal::TSTP && !has_command {
            terminal::stop_this_process();
        } else {
            self.cancel.pass_on(signal);
        }
    }

    /// Whether there is a command. One that is being started is waited for, as it may have got the signal too.
    fn wait_for_command(&self) -> bool {
        let until = Instant::now() + STUCK_AFTER;
        while !self.is_at_rest() && !self.cancel.is_waited_for() && Instant::now() < until {
            nap(LOOK_PAUSE);
        }
        !self.is_at_rest() && self.cancel.is_waited_for()
    }

    fn is_at_rest(&self) -> bool {
        self.at_rest.load(Ordering::SeqCst)
    }

    /// Ends this process, unless that is about to happen.
    fn end_if_stuck(&self, signal: Signal) {
        if self.is_at_rest() {
            nap(STUCK_AFTER);
        }
        if self.is_at_rest() || !self.cancel.is_waited_for() {
            std::process::exit(exit_code::of_signal(signal.number()));
        }
    }
}

fn nap(time: Duration) {
    // Ignored: a wait for nothing has no error of its own.
    let _ = wait::any(&mut [], Some(Instant::now() + time));
}
