//! `--pty`: the command on a terminal of its own, connected with the terminal of this process.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, BufWriter, IsTerminal as _, Write as _};
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use pipewright::{
    CancelToken, CastFormat, CastWriter, Command, Error, Output, PipeReader, Pty, RawTerminal,
    Signal, Stdio, console_in,
};
use pipewright_os::base::private_file;
use pipewright_os::base::wait::{self, Slot};
use pipewright_os::base::wake::Wake;
use pipewright_os::process::terminal::{self, Foreground, OutputMode, TerminalChanges};

use super::command::watched_terminal;
use super::ending::Kept;
use super::interrupt::{Interrupt, TerminalStops};
use super::tee::TeeFile;
use crate::Failure;
use crate::args::{RecordFormat, RunOptions, ShowOutput};

/// The interval between two looks at the job in the foreground, while it is another one. Nothing reports that.
const FOREGROUND_INTERVAL: Duration = Duration::from_millis(200);

const CTRL_C: u8 = 3;

/// The room for typed bytes.
const TYPED_BYTES: usize = 4 << 10;

/// The terminal of the command.
pub(super) struct TerminalRun {
    /// True if the keys of this process's terminal are typed at it.
    types: bool,
    /// True if stdout is a terminal, whose size the command's follows. Otherwise nothing here holds the command's: it
    /// hangs up once its output cannot be passed on.
    shows: bool,
    stops: Option<Arc<TerminalStops>>,
    recording: Option<Recording>,
}

/// A recording that the output and the sizes go to.
type Recording = Arc<Mutex<Recorder>>;

struct Recorder {
    cast: CastWriter<BufWriter<File>>,
    /// False if the output is not for stdout.
    shows: bool,
    /// Hangs up when the output cannot be shown.
    cancel: CancelToken,
    is_reader_gone: bool,
    /// The first error, with what could not be done.
    failed: Option<(&'static str, io::Error)>,
}

impl TerminalRun {
    /// Sets the terminal and the streams of the command.
    pub(super) fn set_up(
        command: &mut Command,
        options: &RunOptions,
        cancel: &CancelToken,
        stops: Option<Arc<TerminalStops>>,
        kept: &Kept,
        tee: Option<&Arc<TeeFile>>,
    ) -> Result<TerminalRun, Failure> {
        let size = terminal::size().unwrap_or_default();
        // The keys of a terminal that does not show the output are for others, such as the `less` behind a pipe.
        let shows = io::stdout().is_terminal();
        let types = shows && options.stdin.is_none() && io::stdin().is_terminal();
        command.pty(size);
        set_term(command, options);
        let recording = match &options.record {
            Some(path) => Some(Recorder::create(path, options, size, cancel)?),
            None => None,
        };
        command.stdout(watched_terminal(options, recording.as_ref().map(record), kept, tee));
        if !types && options.stdin.is_none() {
            command.stdin(match io::stdin().is_terminal() {
                true => Stdio::null(),
                false => Stdio::inherit(),
            });
        }
        Ok(TerminalRun { types, shows, stops, recording })
    }

    /// Runs the command to its end.
    pub(super) fn output(
        &self,
        command: &mut Command,
        interrupt: &Interrupt,
    ) -> Result<Output, Error> {
        let child = command.spawn()?;
        // Without a terminal of our own there is nothing to connect.
        let pty = child.pty().filter(|_| self.shows).and_then(|pty| pty.try_clone().ok());
        let Some(pty) = pty else {
            return child.read_all_bytes();
        };
        if let Some(stops) = &self.stops {
            stops.follow(true);
        }
        // Before any output is shown. Dropped last, after the modes that the keys need.
        let _output_mode = OutputMode::of_stdout();
        let mut keys = Keys::default();
        if self.types {
            keys.connect();
        }
        let ended = Wake::new();
        thread::scope(|scope| {
            let relay = ended.as_ref().ok().map(|ended| {
                let relay = Relay { pty: &pty, ended, run: self, interrupt };
                scope.spawn(move || relay.run(keys))
            });
            let output = child.read_all_bytes();
            if let (Ok(ended), Some(_)) = (&ended, relay) {
                ended.raise();
            }
            output
        })
    }

    /// Returns true if the terminal has hung up because the reader of stdout is gone.
    pub(super) fn is_reader_gone(&self, output: &Output) -> bool {
        let has_recorded_it = self.recording.as_ref().is_some_and(|it| lock(it).is_reader_gone);
        has_recorded_it || output.tee_failed.is_some_and(|failed| failed.is_reader_gone())
    }

    /// Ends the recording, with that exit code. Returns the error if a part of the output was not shown or recorded.
    pub(super) fn end(&self, code: i32) -> Option<(&'static str, io::Error)> {
        let mut recorder = lock(self.recording.as_ref()?);
        let ended = recorder.cast.exit(code);
        let flushed = ended.and_then(|()| recorder.cast.flush());
        recorder.note("write the recording", flushed);
        recorder.failed.take()
    }
}

/// Sets TERM where none is, as in cron and CI: programs show colours only on a terminal that they know.
fn set_term(command: &mut Command, options: &RunOptions) {
    let is_set = |value: &OsStr| !value.is_empty();
    let ours = || std::env::var_os("TERM").is_some_and(|value| is_set(&value));
    let theirs = command.get_envs().find(|(name, _)| *name == "TERM");
    let has_term = match theirs {
        Some((_, value)) => value.is_some_and(is_set),
        None => !options.common.environment.clear_env && ours(),
    };
    if !has_term {
        command.env("TERM", "xterm-256color");
    }
}

impl Recorder {
    fn create(
        path: &Path,
        options: &RunOptions,
        size: pipewright::PtySize,
        cancel: &CancelToken,
    ) -> Result<Recording, Failure> {
        let cannot = |error| Failure(format!("cannot create \"{}\": {error}", path.display()));
        let file = private_file::create(path, options.common.private).map_err(cannot)?;
        let format = match options.record_format {
            RecordFormat::AsciicastV2 => CastFormat::AsciicastV2,
            RecordFormat::AsciicastV3 => CastFormat::AsciicastV3,
        };
        let cast = CastWriter::with_format(BufWriter::new(file), size, format).map_err(cannot)?;
        let shows = options.show_output == ShowOutput::Always;
        let cancel = cancel.clone();
        let mut recorder = Recorder { cast, shows, cancel, is_reader_gone: false, failed: None };
        // Each line is written whole and at once: a recording can be watched, and a kill leaves what was there.
        let begun = recorder.cast.flush();
        recorder.note("write the recording", begun);
        Ok(Arc::new(Mutex::new(recorder)))
    }

    fn add(&mut self, chunk: &[u8]) {
        let recorded = self.cast.output(chunk).and_then(|()| self.cast.flush());
        self.note("write the recording", recorded);
        if self.shows {
            let mut stdout = io::stdout().lock();
            let shown = stdout.write_all(chunk).and_then(|()| stdout.flush());
            // As for a tee: a reader that has gone wants no more, and is no failure.
            let Err(error) = &shown else { return };
            self.shows = false;
            self.is_reader_gone = crate::print::is_reader_gone(error);
            if !self.is_reader_gone {
                self.note("write to stdout", shown);
            }
            // Nobody sees what the command shows and asks.
            self.cancel.cancel_with(Signal::HUP);
        }
    }

    /// Keeps the first error.
    fn note(&mut self, doing: &'static str, done: io::Result<()>) {
        if let (Err(error), None) = (done, &self.failed) {
            self.failed = Some((doing, error));
        }
    }
}

/// Returns a closure that records a chunk of output, and shows it.
fn record(recording: &Recording) -> impl FnMut(&[u8]) + Send + use<> {
    let recording = Arc::clone(recording);
    move |chunk: &[u8]| lock(&recording).add(chunk)
}

fn lock(recording: &Recording) -> MutexGuard<'_, Recorder> {
    // Its parts are consistent between calls.
    recording.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The connection of the two terminals while the command runs.
struct Relay<'a> {
    pty: &'a Pty,
    ended: &'a Wake,
    run: &'a TerminalRun,
    interrupt: &'a Interrupt,
}

/// The keys of this process's terminal, in raw mode. None of them is read while another job has the terminal.
#[derive(Default)]
struct Keys {
    raw: Option<RawTerminal>,
    stdin: Option<PipeReader>,
}

impl Keys {
    /// Sets raw mode, if this process is in the foreground: again after a stop, when the shell has set its own modes.
    fn connect(&mut self) {
        self.stdin = None;
        if Foreground::controlling().is_none_or(|terminal| terminal.is_ours()) {
            // Ignored, here and below: without raw mode, whole lines are typed.
            match &mut self.raw {
                Some(raw) => drop(raw.renew()),
                None => self.raw = RawTerminal::of_stdin().ok().flatten(),
            }
            self.stdin = console_in().ok().map(PipeReader::from);
        }
    }
}

impl Relay<'_> {
    /// Types what is typed here, and follows the size, until the command has ended.
    fn run(&self, mut keys: Keys) {
        // Ignored here and below: the command runs on, with the size that it has, or without more keys.
        let Ok(sizes) = TerminalChanges::watch() else { return };
        // It may have changed before that.
        self.follow_size();
        let mut has_keys = self.run.types;
        loop {
            let typed = match keys.stdin.take() {
                Some(stdin) => Slot::Read(stdin, Vec::with_capacity(TYPED_BYTES)),
                None => Slot::Off,
            };
            let waits_for_terminal = has_keys && matches!(typed, Slot::Off);
            let look = waits_for_terminal.then(|| Instant::now() + FOREGROUND_INTERVAL);
            let stops = self.run.stops.as_ref().map_or(Slot::Off, |stops| stops.slot());
            let mut slots = [Slot::Event(self.ended), typed, sizes.slot(), stops];
            if wait::any(&mut slots, sizes.next_look().into_iter().chain(look).min()).is_err() {
                break;
            }
            let [ended, typed, changed, stopped] = slots;
            if matches!(ended, Slot::EventDone) {
                break;
            }
            if sizes.take(&changed) {
                self.follow_size();
            }
            match typed {
                Slot::ReadDone(_, _, Ok(0)) => {
                    has_keys = false;
                    drop(self.pty.send_eof());
                }
                Slot::ReadDone(reader, bytes, Ok(_)) => {
                    if bytes.contains(&CTRL_C) {
                        self.interrupt.ctrl_c_typed();
                    }
                    self.type_bytes(bytes);
                    keys.stdin = Some(reader);
                }
                Slot::Read(reader, _) => keys.stdin = Some(reader),
                Slot::Off if has_keys => keys.connect(),
                _ => has_keys = false,
            }
            if let (Some(stops), true) = (&self.run.stops, matches!(stopped, Slot::EventDone)) {
                stops.take(|| keys = Keys::default());
                if has_keys {
                    keys.connect();
                }
                self.follow_size();
            }
        }
        if let Some(stops) = &self.run.stops {
            stops.follow(false);
        }
    }

    fn type_bytes(&self, bytes: Vec<u8>) {
        let bytes = Arc::new(bytes);
        let (Ok(writer), mut from) = (self.pty.writer(), 0) else { return };
        let mut writer = Some(writer);
        while let Some(ours) = writer.take().filter(|_| from < bytes.len()) {
            let mut slots = [Slot::Event(self.ended), Slot::Write(ours, Arc::clone(&bytes), from)];
            if wait::any(&mut slots, None).is_err() {
                return;
            }
            let [ended, written] = slots;
            match written {
                Slot::WriteDone(ours, _, Ok(count)) => {
                    from += count;
                    writer = Some(ours);
                }
                Slot::Write(ours, ..) if !matches!(ended, Slot::EventDone) => writer = Some(ours),
                _ => {}
            }
        }
    }

    fn follow_size(&self) {
        let Some(size) = terminal::size() else { return };
        if self.pty.window_size().is_ok_and(|now| now != size) && self.pty.resize(size).is_ok() {
            if let Some(recording) = &self.run.recording {
                let mut recorder = lock(recording);
                let recorded = recorder.cast.resize(size).and_then(|()| recorder.cast.flush());
                recorder.note("write the recording", recorded);
            }
        }
    }
}
