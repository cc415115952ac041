//! `--pty`: the command on a terminal of its own, connected with the terminal of this process.

use std::fs::File;
use std::io::{self, BufWriter, IsTerminal as _, Write as _};
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;

use pipewright::{
    CastFormat, CastWriter, Command, Error, Output, PipeReader, Pty, RawTerminal, Stdio, console_in,
};
use pipewright_os::base::private_file;
use pipewright_os::base::wait::{self, Slot};
use pipewright_os::base::wake::Wake;
use pipewright_os::process::terminal::{self, SizeChanges};

use super::command::watched_terminal;
use crate::Failure;
use crate::args::{RecordFormat, RunOptions};

/// The room for typed bytes.
const TYPED_BYTES: usize = 4 << 10;

/// The terminal of the command.
pub(super) struct TerminalRun {
    /// True if the keys of this process's terminal are typed at it.
    types: bool,
    recording: Option<Recording>,
}

/// A recording that the output and the sizes go to.
type Recording = Arc<Mutex<Recorder>>;

struct Recorder {
    cast: CastWriter<BufWriter<File>>,
    /// False if the output is not for stdout.
    shows: bool,
    /// The first error, with what could not be done.
    failed: Option<(&'static str, io::Error)>,
}

impl TerminalRun {
    /// Sets the terminal and the streams of the command.
    pub(super) fn set_up(
        command: &mut Command,
        options: &RunOptions,
    ) -> Result<TerminalRun, Failure> {
        let size = terminal::size().unwrap_or_default();
        let types = options.stdin.is_none() && io::stdin().is_terminal();
        command.pty(size);
        let recording = match &options.record {
            Some(path) => Some(Recorder::create(path, options, size)?),
            None => None,
        };
        if let Some(stdout) = watched_terminal(options, recording.as_ref().map(record)) {
            command.stdout(stdout);
        }
        if !types && options.stdin.is_none() {
            command.stdin(Stdio::inherit());
        }
        Ok(TerminalRun { types, recording })
    }

    /// Runs the command to its end.
    pub(super) fn output(&self, command: &mut Command) -> Result<Output, Error> {
        let child = command.spawn()?;
        let pty = child.pty().and_then(|pty| pty.try_clone().ok());
        // Without a terminal of our own there is nothing to connect.
        let (Some(pty), true) = (pty, self.types || terminal::size().is_some()) else {
            return child.read_all_bytes();
        };
        let raw = self.types.then(RawTerminal::of_stdin);
        let ended = Wake::new();
        let output = thread::scope(|scope| {
            let relay = ended.as_ref().ok().map(|ended| {
                scope.spawn(|| {
                    Relay { pty: &pty, ended, recording: self.recording.as_ref() }.run(self.types)
                })
            });
            let output = child.read_all_bytes();
            if let (Ok(ended), Some(_)) = (&ended, relay) {
                ended.raise();
            }
            output
        });
        drop(raw);
        output
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

impl Recorder {
    fn create(
        path: &Path,
        options: &RunOptions,
        size: pipewright::PtySize,
    ) -> Result<Recording, Failure> {
        let cannot = |error| Failure(format!("cannot create \"{}\": {error}", path.display()));
        let file = private_file::create(path, options.common.private).map_err(cannot)?;
        let format = match options.record_format {
            RecordFormat::AsciicastV2 => CastFormat::AsciicastV2,
            RecordFormat::AsciicastV3 => CastFormat::AsciicastV3,
        };
        let cast = CastWriter::with_format(BufWriter::new(file), size, format).map_err(cannot)?;
        let shows = !options.capture;
        Ok(Arc::new(Mutex::new(Recorder { cast, shows, failed: None })))
    }

    fn add(&mut self, chunk: &[u8]) {
        let recorded = self.cast.output(chunk);
        self.note("write the recording", recorded);
        if self.shows {
            let mut stdout = io::stdout().lock();
            let shown = stdout.write_all(chunk).and_then(|()| stdout.flush());
            // As for a tee: a reader that has gone wants no more, and is no failure.
            self.shows = shown.is_ok();
            if shown.as_ref().is_err_and(|error| !crate::print::is_reader_gone(error)) {
                self.note("write to stdout", shown);
            }
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
    recording: Option<&'a Recording>,
}

impl Relay<'_> {
    /// Types what is typed here, and follows the size, until the command has ended.
    fn run(&self, types: bool) {
        // Ignored here and below: the command runs on, with the size that it has, or without more keys.
        let mut stdin = types.then(console_in).and_then(Result::ok).map(PipeReader::from);
        let Ok(sizes) = SizeChanges::watch() else { return };
        // It may have changed before that.
        self.follow_size();
        loop {
            let typed = match stdin.take() {
                Some(stdin) => Slot::Read(stdin, Vec::with_capacity(TYPED_BYTES)),
                None => Slot::Off,
            };
            let mut slots = [Slot::Event(self.ended), typed, sizes.slot()];
            if wait::any(&mut slots, sizes.next_look()).is_err() {
                return;
            }
            let [ended, typed, changed] = slots;
            if matches!(ended, Slot::EventDone) {
                return;
            }
            if sizes.take(&changed) {
                self.follow_size();
            }
            match typed {
                Slot::ReadDone(_, _, Ok(0)) => drop(self.pty.send_eof()),
                Slot::ReadDone(reader, bytes, Ok(_)) => {
                    self.type_bytes(bytes);
                    stdin = Some(reader);
                }
                Slot::Read(reader, _) => stdin = Some(reader),
                _ => {}
            }
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
            if let Some(recording) = self.recording {
                let mut recorder = lock(recording);
                let recorded = recorder.cast.resize(size);
                recorder.note("write the recording", recorded);
            }
        }
    }
}
