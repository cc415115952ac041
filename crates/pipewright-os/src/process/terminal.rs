//! The controlling terminal of this process: its foreground job, its size, its modes.

use std::io;
use std::time::{Duration, Instant};

use crate::base::caught_signals::SignalFlag;
use crate::base::handle::Handle;
use crate::base::signal::Signal;
use crate::base::wait::Slot;
use crate::process::pty::PtySize;

/// Returns true if this process has a controlling terminal: a background process of its session that reads it is
/// suspended (SIGTTIN).
///
/// # Platform
/// Unix: true unless opening `/dev/tty` fails with `ENXIO`. Windows: false; it has no job control.
#[must_use]
pub fn is_controlling() -> bool {
    imp::is_controlling()
}

/// The terminal of a process, whose job may be in the foreground.
#[derive(Debug)]
pub struct Foreground {
    pub(crate) terminal: Handle,
}

impl Foreground {
    /// Returns the controlling terminal of this process; `None` if there is none, or if another job is in
    /// the foreground.
    ///
    /// # Platform
    /// Unix: `/dev/tty`, `tcgetpgrp`. Windows: `None`; it has no job control.
    #[must_use]
    pub fn own() -> Option<Foreground> {
        let foreground = Foreground { terminal: imp::terminal()? };
        foreground.is_ours().then_some(foreground)
    }

    /// Returns the controlling terminal of this process, whichever job is in the foreground; `None` if there is none.
    ///
    /// # Platform
    /// Unix: `/dev/tty`. Windows: `None`.
    #[must_use]
    pub fn controlling() -> Option<Foreground> {
        imp::terminal().map(|terminal| Foreground { terminal })
    }

    /// Returns true if the group of this process is in the foreground.
    #[must_use]
    pub fn is_ours(&self) -> bool {
        imp::foreground_group(&self.terminal) == Some(imp::own_group())
    }

    /// Puts a group of this session in the foreground. Nothing happens if the group has ended. (On Linux a
    /// child that starts in the foreground does this itself; on macOS it is done before the child runs.)
    ///
    /// # Platform
    /// Unix: `tcsetpgrp`, with SIGTTOU blocked, which would stop a background job.
    pub fn give_to(&self, group: u32) {
        imp::set_foreground_group(&self.terminal, group);
    }

    /// Puts the group of this process back in the foreground.
    pub fn take_back(&self) {
        if !self.is_ours() {
            self.give_to(imp::own_group());
        }
    }

    /// Returns the terminal, for a child that can put itself in the foreground.
    #[cfg(target_os = "linux")]
    pub(crate) fn terminal(&self) -> &Handle {
        &self.terminal
    }
}

/// The raw mode of the terminal that is stdin: each key is read at once, none is echoed, and none is a signal.
///
/// # Drop
/// Restores the earlier modes, unless this process is in the background and others were set meanwhile: they are the
/// shell's.
#[derive(Debug)]
pub struct RawMode {
    before: imp::RawMode,
}

impl RawMode {
    /// Sets the raw mode. Returns `None` if stdin is not a terminal.
    ///
    /// # Platform
    /// Unix: `tcsetattr`, after what was written to the terminal. Windows: `SetConsoleMode` of stdin and stdout, with
    /// virtual terminal sequences.
    ///
    /// # Errors
    /// The error of the call.
    #[doc(alias = "cfmakeraw")]
    pub fn of_stdin() -> io::Result<Option<RawMode>> {
        Ok(imp::RawMode::of_stdin()?.map(|before| RawMode { before }))
    }

    /// Returns true if stdin still has that mode. A shell may have set another one while this process was stopped.
    #[must_use]
    pub fn is_set(&self) -> bool {
        self.before.is_set()
    }

    /// Forgets the earlier modes: others were set since, which another value restores.
    pub fn forget(self) {
        // It owns nothing but numbers.
        std::mem::forget(self);
    }
}

/// Returns when this process is in the foreground of the terminal that is its stdin: in the background it is stopped
/// until then, as every program is that sets a terminal's modes. Returns at once if stdin is no terminal, or if nothing
/// could continue it.
///
/// # Platform
/// Unix: `tcdrain`, whose SIGTTOU stops this process's group. Windows: nothing; it has no job control.
pub fn wait_for_foreground() {
    imp::wait_for_foreground();
}

/// The modes of this process's stdout for the output of another terminal: its sequences are obeyed, and its text is
/// UTF-8.
///
/// # Drop
/// Restores the earlier modes.
#[derive(Debug)]
pub struct OutputMode {
    #[expect(dead_code, reason = "its drop restores the modes")]
    before: imp::OutputMode,
}

impl OutputMode {
    /// Sets the modes, if stdout is a console.
    ///
    /// # Platform
    /// Windows: `SetConsoleMode` with virtual terminal sequences, and `SetConsoleOutputCP`. The output of a
    /// pseudo-console is both, and a console in another mode shows it as it is. Unix: nothing; every terminal does so.
    #[must_use]
    #[doc(alias = "SetConsoleOutputCP")]
    pub fn of_stdout() -> OutputMode {
        OutputMode { before: imp::OutputMode::of_stdout() }
    }
}

/// A shell script that restores the terminal's modes, in the form of `stty -g` as `$0`, when its stdin ends. `None` on
/// Windows, where the modes end with the console's programs.
pub const RESTORE_SCRIPT: Option<&str> = imp::RESTORE_SCRIPT;

/// Returns true if other processes of this process's group may use the terminal: this one is a member of a pipeline
/// (stdout is no terminal), or a background job of a script (stdin is the null device).
///
/// # Platform
/// Unix: `isatty`, `fstat`. Windows: false; it has no job control.
#[must_use]
pub fn is_shared() -> bool {
    imp::is_shared()
}

/// Returns the size of the terminal that is stdin, or stdout. `None` if neither is a terminal, or the size is unknown.
///
/// # Platform
/// As for [`columns`].
#[must_use]
pub fn size() -> Option<PtySize> {
    imp::size().filter(|size| size.rows > 0 && size.cols > 0)
}

/// Returns the number of columns of the terminal that is stdout. `None` if stdout is not a terminal, or if
/// its size is unknown.
///
/// # Platform
/// Unix: `tcgetwinsize`. Windows: `GetConsoleScreenBufferInfo`; the width of the window counts.
#[must_use]
#[doc(alias = "tcgetwinsize")]
pub fn columns() -> Option<usize> {
    imp::columns(&std::io::stdout()).filter(|columns| *columns > 0)
}

/// Returns the number of columns of the terminal that is stderr, which may be another one, or the only one.
///
/// # Platform
/// As for [`columns`].
#[must_use]
pub fn stderr_columns() -> Option<usize> {
    imp::columns(&std::io::stderr()).filter(|columns| *columns > 0)
}

/// Stops this process, as Ctrl-Z does, and returns when it is continued. Returns at once if no process
/// could continue it (its group is orphaned, see setpgid(2)).
///
/// # Platform
/// Unix: SIGTSTP to this thread, even if another one [catches](crate::base::caught_signals::CaughtSignals)
/// it. Windows: nothing, because no process could continue it.
pub fn stop_this_process() {
    imp::stop_this_process();
}

/// The interval between two looks at the terminal, where nothing reports a change.
const INTERVAL: Duration = Duration::from_millis(100);

/// Changes of this process's terminal, as long as this lives: of its size, and perhaps of its modes and its size while
/// this process was stopped.
///
/// # Platform
/// Unix: a handler for SIGWINCH and SIGCONT, which costs nothing while neither arrives. If one of them is ignored, and
/// on Windows: a look every 100 ms.
#[derive(Debug)]
pub struct TerminalChanges(Option<SignalFlag>);

impl TerminalChanges {
    /// Watches for changes from now on.
    ///
    /// # Errors
    /// No more handles are available.
    pub fn watch() -> io::Result<TerminalChanges> {
        SignalFlag::install(&[Signal::WINCH, Signal::CONT]).map(TerminalChanges)
    }

    /// Returns the event of a change, which is there until [`take`](Self::take) takes it.
    #[must_use]
    pub fn slot(&self) -> Slot<'_> {
        match &self.0 {
            Some(flag) => Slot::Event(flag.wake()),
            None => Slot::Off,
        }
    }

    /// Returns the time of the next look that is needed, if no event reports a change.
    #[must_use]
    pub fn next_look(&self) -> Option<Instant> {
        self.0.is_none().then(|| Instant::now() + INTERVAL)
    }

    /// Returns true if the terminal may have changed, after a wait with that [`slot`](Self::slot). Look at it
    /// afterwards.
    #[must_use]
    pub fn take(&self, slot: &Slot<'_>) -> bool {
        let Some(flag) = &self.0 else { return true };
        let is_done = matches!(slot, Slot::EventDone);
        if is_done {
            flag.wake().lower();
        }
        is_done
    }
}

/// Requests to stop this process that are held back, as long as this lives, until its terminal has its own modes again.
///
/// # Platform
/// Unix: a handler for SIGTSTP. If it is ignored, and on Windows: nothing.
///
/// # Drop
/// Restores the previous effect of SIGTSTP.
#[derive(Debug)]
pub struct StopRequests(Option<SignalFlag>);

impl StopRequests {
    /// Holds requests back from now on.
    ///
    /// # Errors
    /// No more handles are available.
    pub fn hold() -> io::Result<StopRequests> {
        SignalFlag::install(&[Signal::TSTP]).map(StopRequests)
    }

    /// Returns the event of a request, which is there until [`follow`](Self::follow) is called.
    #[must_use]
    pub fn slot(&self) -> Slot<'_> {
        match &self.0 {
            Some(flag) => Slot::Event(flag.wake()),
            None => Slot::Off,
        }
    }

    /// Returns true if there is a request.
    #[must_use]
    pub fn is_asked(&self) -> bool {
        self.0.as_ref().is_some_and(|flag| flag.wake().is_raised())
    }

    /// Lets the signal have its previous effect: by default this process stops. Returns when it has been continued.
    ///
    /// # Errors
    /// No more handles are available: later requests are not held back.
    pub fn follow(&mut self) -> io::Result<()> {
        self.0 = None;
        stop_this_process();
        *self = StopRequests::hold()?;
        Ok(())
    }
}

// `/dev/tty` and job control.
#[cfg(unix)]
mod imp {
    use std::fs::{File, OpenOptions};
    use std::io::{self, IsTerminal as _};
    use std::os::fd::{AsFd, BorrowedFd};
    use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};

    use rustix::process::Pid;
    use rustix::termios::{
        LocalModes, OptionalActions, Termios, tcdrain, tcgetattr, tcgetpgrp, tcsetattr, tcsetpgrp,
    };

    use crate::base::generation::Generation;
    use crate::base::handle::Handle;
    use crate::base::signal::{AllBlocked, Signal, group_of};
    use crate::process::pty::PtySize;

    pub(super) fn terminal() -> Option<Handle> {
        open_terminal().ok().map(Handle::from)
    }

    pub(super) fn is_controlling() -> bool {
        open_terminal().err().and_then(|error| error.raw_os_error()) != Some(libc::ENXIO)
    }

    fn open_terminal() -> io::Result<File> {
        let mut options = OpenOptions::new();
        options.read(true).write(true).custom_flags(libc::O_NOCTTY);
        options.open("/dev/tty")
    }

    pub(super) fn own_group() -> u32 {
        // The terminal of a group that has no number here is another's.
        group_of(0).unwrap_or(0) as u32
    }

    pub(super) fn foreground_group(terminal: impl AsFd) -> Option<u32> {
        tcgetpgrp(terminal).ok().map(|group| group.as_raw_nonzero().get() as u32)
    }

    pub(super) fn set_foreground_group(terminal: &Handle, group: u32) {
        if let Some(group) = i32::try_from(group).ok().and_then(Pid::from_raw) {
            let _blocked = AllBlocked::new();
            // Ignored: the group has ended, or the terminal has hung up.
            let _ = tcsetpgrp(terminal, group);
        }
    }

    pub(super) fn wait_for_foreground() {
        // Ignored, except for a handler's signal: no terminal, or an orphaned group, which nothing could continue.
        while tcdrain(io::stdin()) == Err(rustix::io::Errno::INTR) {}
    }

    pub(super) fn is_shared() -> bool {
        let null = || std::fs::metadata("/dev/null").ok().map(|null| null.rdev());
        let stdin = || {
            let stdin = File::from(io::stdin().as_fd().try_clone_to_owned().ok()?);
            stdin.metadata().ok().map(|stdin| stdin.rdev())
        };
        !io::stdout().is_terminal() || stdin().is_some_and(|stdin| null() == Some(stdin))
    }

    pub(super) fn stop_this_process() {
        Signal::TSTP.raise();
    }

    pub(super) fn columns(stream: &impl AsFd) -> Option<usize> {
        rustix::termios::tcgetwinsize(stream).ok().map(|size| size.ws_col.into())
    }

    pub(super) fn size() -> Option<PtySize> {
        let of = |stream: BorrowedFd<'_>| rustix::termios::tcgetwinsize(stream).ok();
        let size = of(io::stdin().as_fd()).or_else(|| of(io::stdout().as_fd()))?;
        Some(PtySize { rows: size.ws_row, cols: size.ws_col })
    }

    /// In the background, `stty` would be stopped by SIGTTOU.
    pub(super) const RESTORE_SCRIPT: Option<&str> =
        Some("trap '' HUP INT QUIT TERM TSTP TTIN TTOU; read -r _; stty \"$0\" < /dev/tty");

    /// Raw mode, until the drop.
    #[derive(Debug)]
    pub(super) struct RawMode {
        before: Termios,
        /// As the terminal has taken it.
        raw: Termios,
        /// The process that has set it: a fork does not restore it.
        made_in: Generation,
    }

    impl RawMode {
        pub(super) fn of_stdin() -> io::Result<Option<RawMode>> {
            let Ok(before) = tcgetattr(io::stdin()) else { return Ok(None) };
            let mut raw = before.clone();
            raw.make_raw();
            tcsetattr(io::stdin(), OptionalActions::Drain, &raw)?;
            let raw = tcgetattr(io::stdin())?;
            Ok(Some(RawMode { before, raw, made_in: Generation::current() }))
        }

        pub(super) fn is_set(&self) -> bool {
            // PENDIN: on BSDs a state, not a mode.
            let local = |of: &Termios| of.local_modes - LocalModes::PENDIN;
            let modes =
                |of: &Termios| (of.input_modes, of.output_modes, of.control_modes, local(of));
            tcgetattr(io::stdin()).is_ok_and(|now| modes(&now) == modes(&self.raw))
        }
    }

    impl Drop for RawMode {
        fn drop(&mut self) {
            if !self.made_in.is_current() {
                return;
            }
            let foreground = foreground_group(io::stdin());
            if foreground.is_some_and(|group| group != own_group()) && !self.is_set() {
                return;
            }
            let _blocked = AllBlocked::new();
            // Ignored: the terminal has hung up.
            let _ = tcsetattr(io::stdin(), OptionalActions::Now, &self.before);
        }
    }

    /// Nothing: a terminal obeys sequences.
    #[derive(Debug)]
    pub(super) struct OutputMode;

    impl OutputMode {
        pub(super) fn of_stdout() -> OutputMode {
            OutputMode
        }
    }
}

// Windows has no job control: no terminal has a foreground job.
#[cfg(windows)]
mod imp {
    use std::io;
    use std::os::windows::io::AsRawHandle;

    use windows_sys::Win32::Globalization::CP_UTF8;
    use windows_sys::Win32::System::Console::{
        CONSOLE_MODE, CONSOLE_SCREEN_BUFFER_INFO, ENABLE_ECHO_INPUT, ENABLE_LINE_INPUT,
        ENABLE_PROCESSED_INPUT, ENABLE_VIRTUAL_TERMINAL_INPUT, ENABLE_VIRTUAL_TERMINAL_PROCESSING,
        GetConsoleMode, GetConsoleOutputCP, GetConsoleScreenBufferInfo, SetConsoleMode,
        SetConsoleOutputCP,
    };

    use crate::base::handle::Handle;
    use crate::process::pty::PtySize;

    pub(super) fn terminal() -> Option<Handle> {
        None
    }

    pub(super) fn is_controlling() -> bool {
        false
    }

    pub(super) fn own_group() -> u32 {
        // No group has this number.
        0
    }

    pub(super) fn foreground_group(_: &Handle) -> Option<u32> {
        None
    }

    pub(super) fn set_foreground_group(_: &Handle, _: u32) {
        // Windows has no foreground job.
    }

    pub(super) fn wait_for_foreground() {
        // Windows has no foreground job.
    }

    pub(super) fn is_shared() -> bool {
        false
    }

    pub(super) fn stop_this_process() {
        // No process could continue it.
    }

    pub(super) fn columns(stream: &impl AsRawHandle) -> Option<usize> {
        window(stream).and_then(|(columns, _)| usize::try_from(columns).ok())
    }

    pub(super) fn size() -> Option<PtySize> {
        let (columns, rows) = window(&io::stdout())?;
        Some(PtySize { rows: u16::try_from(rows).ok()?, cols: u16::try_from(columns).ok()? })
    }

    /// Returns the columns and rows of the window.
    fn window(stream: &impl AsRawHandle) -> Option<(i32, i32)> {
        let mut screen = CONSOLE_SCREEN_BUFFER_INFO::default();
        let stream = stream.as_raw_handle();
        // SAFETY: a live struct; a stream that is not a console, or does not exist, is an error of the call.
        let ok = unsafe { GetConsoleScreenBufferInfo(stream, &raw mut screen) };
        let length = |from: i16, to: i16| i32::from(to) - i32::from(from) + 1;
        let window = screen.srWindow;
        (ok != 0).then(|| (length(window.Left, window.Right), length(window.Top, window.Bottom)))
    }

    pub(super) const RESTORE_SCRIPT: Option<&str> = None;

    /// The modes of stdin and stdout before.
    #[derive(Debug)]
    pub(super) struct RawMode {
        input: CONSOLE_MODE,
        output: Option<CONSOLE_MODE>,
    }

    impl RawMode {
        pub(super) fn of_stdin() -> io::Result<Option<RawMode>> {
            let Some(input) = mode(&io::stdin()) else { return Ok(None) };
            let output = mode(&io::stdout());
            let cooked = ENABLE_ECHO_INPUT | ENABLE_LINE_INPUT | ENABLE_PROCESSED_INPUT;
            set_mode(&io::stdin(), (input & !cooked) | ENABLE_VIRTUAL_TERMINAL_INPUT)?;
            let before = RawMode { input, output };
            if let Some(output) = output {
                set_mode(&io::stdout(), output | ENABLE_VIRTUAL_TERMINAL_PROCESSING)?;
            }
            Ok(Some(before))
        }

        pub(super) fn is_set(&self) -> bool {
            // Nothing stops this process while another one sets its modes.
            true
        }
    }

    impl Drop for RawMode {
        fn drop(&mut self) {
            // Ignored: the console has gone.
            let _ = set_mode(&io::stdin(), self.input);
            if let Some(output) = self.output {
                let _ = set_mode(&io::stdout(), output);
            }
        }
    }

    /// The mode and the code page of stdout before.
    #[derive(Debug)]
    pub(super) struct OutputMode {
        /// `None`: stdout is no console.
        before: Option<(CONSOLE_MODE, u32)>,
    }

    impl OutputMode {
        pub(super) fn of_stdout() -> OutputMode {
            let before = mode(&io::stdout()).map(|mode| {
                // SAFETY: no arguments.
                let code_page = unsafe { GetConsoleOutputCP() };
                // Ignored, here and below: an old console has no such mode, and shows the sequences.
                let _ = set_mode(&io::stdout(), mode | ENABLE_VIRTUAL_TERMINAL_PROCESSING);
                // SAFETY: a number.
                let _ = unsafe { SetConsoleOutputCP(CP_UTF8) };
                (mode, code_page)
            });
            OutputMode { before }
        }
    }

    impl Drop for OutputMode {
        fn drop(&mut self) {
            if let Some((mode, code_page)) = self.before {
                let _ = set_mode(&io::stdout(), mode);
                // SAFETY: a number.
                let _ = unsafe { SetConsoleOutputCP(code_page) };
            }
        }
    }

    fn mode(stream: &impl AsRawHandle) -> Option<CONSOLE_MODE> {
        let mut mode = 0;
        // SAFETY: a live number; a stream that is not a console, or does not exist, is an error of the call.
        let ok = unsafe { GetConsoleMode(stream.as_raw_handle(), &raw mut mode) };
        (ok != 0).then_some(mode)
    }

    fn set_mode(stream: &impl AsRawHandle, mode: CONSOLE_MODE) -> io::Result<()> {
        // SAFETY: takes a handle and a number; a stream that is not a console is an error of the call.
        match unsafe { SetConsoleMode(stream.as_raw_handle(), mode) } {
            0 => Err(io::Error::last_os_error()),
            _ => Ok(()),
        }
    }
}
