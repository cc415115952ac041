//! From a command to a started child and our ends of its pipes.

use std::fs::{File, OpenOptions};
use std::io;
use std::path::Path;
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

use pipewright_os::base::errno::{Cause, cause};
use pipewright_os::base::handle::Handle;
use pipewright_os::base::pipe::{self, Mode, PipeOptions, PipeReader, PipeWriter};
use pipewright_os::base::stdio;
use pipewright_os::base::wait;
use pipewright_os::process::child::ChildHandle;
use pipewright_os::process::spawn::{self, ChildStdio, Inherit, Plan};
use pipewright_os::process::std_process::ParentStream;

use super::env::ChildEnv;
use super::stdio::Choice;
use super::{Command, Rules, Stdio};
use crate::child::{Process, reaper};
use crate::drive::{Feed, Front, OpenTee, Run, Sink, TeeTo, open_tee_to};
use crate::error::{Doing, Error, ErrorKind, could_not_open, could_not_prepare, could_not_start};
use crate::outcome::Source;
use crate::trace::{self, Trace};

/// What a stream is where the command does not say.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Usual {
    Inherit,
    Null,
    Piped,
    Tee(OpenTee),
}

/// The defaults of a verb.
#[derive(Debug, Clone, Copy)]
pub(crate) struct StdioDefaults {
    pub(crate) stdin: Usual,
    pub(crate) stdout: Usual,
    pub(crate) stderr: Usual,
}

/// A child that runs.
#[derive(Debug)]
pub(crate) struct Started {
    pub(crate) process: Process,
    pub(crate) ends: Ends,
    pub(crate) at: Instant,
    pub(crate) front: Option<Arc<dyn Front>>,
}

/// Our ends.
#[derive(Debug, Default)]
pub(crate) struct Ends {
    /// For the caller to write to.
    pub(crate) stdin: Option<PipeWriter>,
    /// For us to write to.
    pub(crate) feed: Option<Feed>,
    pub(crate) stdout: Option<OutputEnd>,
    pub(crate) stderr: Option<OutputEnd>,
}

impl Started {
    /// What a run of it is made of, where nobody else writes to it: so the child is to find the end
    /// of its input.
    pub(crate) fn into_run(self, rules: &Rules, sink: impl Fn(Source) -> Sink) -> (Process, Run) {
        let Started { process, ends, at, front } = self;
        let Ends { stdin, feed, stdout, stderr } = ends;
        drop(stdin);
        let streams = [
            stdout.map(|end| end.into_stream(Source::Stdout, sink(Source::Stdout))),
            stderr.map(|end| end.into_stream(Source::Stderr, sink(Source::Stderr))),
        ];
        let run = Run::new(rules, at, feed, streams).in_front(front).traced(process.trace());
        (process, run)
    }
}

/// Our end of one of the child's output streams.
#[derive(Debug)]
pub(crate) struct OutputEnd {
    pub(crate) pipe: PipeReader,
    /// What comes is passed through to our own stream as well.
    pub(crate) tee: Option<TeeTo>,
}

impl OutputEnd {
    pub(crate) fn new(pipe: PipeReader, tee: Option<TeeTo>) -> OutputEnd {
        OutputEnd { pipe, tee }
    }

    /// The pipes, and what they are to be passed on to by whoever reads them.
    pub(crate) fn split(
        ends: [Option<OutputEnd>; 2],
    ) -> ([Option<PipeReader>; 2], [Option<TeeTo>; 2]) {
        let [(out, out_tee), (err, err_tee)] =
            ends.map(|end| end.map_or((None, None), |end| (Some(end.pipe), end.tee)));
        ([out, err], [out_tee, err_tee])
    }

    /// The end and its sink, as a drive takes them.
    pub(crate) fn into_stream(self, source: Source, sink: Sink) -> (PipeReader, Sink) {
        let sink = match self.tee {
            Some(to) => sink.passing_on(to.open(source)),
            None => sink,
        };
        (self.pipe, sink)
    }
}

/// One of the child's standard handles, on its way.
enum Theirs<'a> {
    Inherit,
    Borrowed(&'a Handle),
    Owned(Handle),
    SameAsStdout,
}

impl Theirs<'_> {
    fn as_plan(&self) -> ChildStdio<'_> {
        match self {
            Theirs::Inherit | Theirs::SameAsStdout => ChildStdio::Inherit,
            Theirs::Borrowed(handle) => ChildStdio::Handle(handle),
            Theirs::Owned(handle) => ChildStdio::Handle(handle),
        }
    }
}

const STREAM_NAMES: [&str; 3] = ["stdin", "stdout", "stderr"];

/// Everything that is opened, and looked up, before anything is started.
struct Prepared<'a> {
    env: ChildEnv,
    stdio: [Theirs<'a>; 3],
    ends: Ends,
}

impl Command {
    /// Starts the child.
    pub(crate) fn launch(&self, defaults: StdioDefaults) -> Result<Started, Error> {
        self.try_to_launch(defaults).inspect_err(trace::not_started)
    }

    fn try_to_launch(&self, defaults: StdioDefaults) -> Result<Started, Error> {
        reaper::sweep();
        let defaults = match self.lifetime.detach {
            Some(detach) => detach(self, defaults)?,
            None => defaults,
        };
        let at = Instant::now();
        let prepared = self.prepare(defaults)?;
        let front = self.lifetime.front.and_then(|open| open());
        let mut plan = self.plan(&prepared);
        plan.foreground = front.as_ref().map(|front| front.terminal());
        let exit = start(&plan)?;
        let trace = Trace::started(&self.program, &exit);
        let process = Process::new(exit, self.lifetime.kill_on_drop, trace);
        Ok(Started { process, ends: prepared.ends, at, front })
    }

    /// Replaces this process. Returns only with the reason why that failed.
    pub(crate) fn become_program(&self) -> Error {
        let ours =
            StdioDefaults { stdin: Usual::Inherit, stdout: Usual::Inherit, stderr: Usual::Inherit };
        let prepared = match self.check_alone().and_then(|()| self.prepare(ours)) {
            Ok(prepared) => prepared,
            Err(error) => return error,
        };
        let plan = self.plan(&prepared);
        match spawn::exec(&plan) {
            Ok(never) => match never {},
            Err(failed) => could_not_start(&plan, failed),
        }
    }

    fn prepare(&self, defaults: StdioDefaults) -> Result<Prepared<'_>, Error> {
        let env = self.env.apply();
        let (stdin, mut ends) = self.open_stdin(defaults.stdin)?;
        let (stdout, out) = self.open_output(1, self.stdout.as_ref(), defaults.stdout)?;
        ends.stdout = out;
        let stderr = if !self.merge_stderr {
            let (stderr, err) = self.open_output(2, self.stderr.as_ref(), defaults.stderr)?;
            ends.stderr = err;
            stderr
        } else if let Theirs::Inherit = stdout {
            Theirs::Owned(stdio::console_out().map_err(|e| self.cannot_open("stdout", e))?)
        } else {
            Theirs::SameAsStdout
        };
        Ok(Prepared { env, stdio: [stdin, stdout, stderr], ends })
    }

    fn plan<'a>(&'a self, prepared: &'a Prepared<'a>) -> Plan<'a> {
        let [stdin, stdout, stderr] = &prepared.stdio;
        let stderr = match stderr {
            Theirs::SameAsStdout => stdout,
            stderr => stderr,
        };
        Plan {
            program: &self.program,
            search: prepared.env.search(),
            arg0: self.arg0.as_deref(),
            args: &self.args,
            env: prepared.env.as_plan(),
            current_dir: self.current_dir.as_deref(),
            stdio: [stdin.as_plan(), stdout.as_plan(), stderr.as_plan()],
            inherit: match self.inherit_all {
                true => Inherit::AllAnd(&self.inherit),
                false => Inherit::List(&self.inherit),
            },
            contain: self.hold.map(|hold| hold(self.ends_with_us)),
            foreground: None,
            unix: &self.unix,
            windows: self.windows.as_deref(),
        }
    }

    fn open_stdin(&self, default: Usual) -> Result<(Theirs<'_>, Ends), Error> {
        let no_ends = Ends::default;
        let theirs = match self.stdin.as_ref().map(|stdin| &stdin.0) {
            None if matches!(default, Usual::Piped) => return self.pipe_stdin(Mode::Sync),
            None if matches!(default, Usual::Null) => self.null()?,
            None | Some(Choice::Inherit) => Theirs::Inherit,
            Some(Choice::Null) => self.null()?,
            Some(Choice::Handle(handle)) => Theirs::Borrowed(handle),
            Some(Choice::Parent(stream)) => self.parent_stream(*stream)?,
            Some(Choice::Open(path)) => self.open_file(0, path, OpenOptions::new().read(true))?,
            Some(Choice::Piped(mode)) => return self.pipe_stdin(*mode),
            Some(Choice::Bytes(bytes)) => {
                let (theirs, copy, writer) = self.feed_pipe()?;
                let feed = Some(Feed::bytes(writer, copy, Arc::clone(bytes)));
                return Ok((theirs, Ends { feed, ..no_ends() }));
            }
            Some(Choice::Reader(reader)) => {
                let taken = reader.lock().unwrap_or_else(PoisonError::into_inner).take();
                let reader = taken.ok_or_else(|| {
                    self.misuse("its stdin is a reader, which an earlier run has used up")
                })?;
                let (theirs, copy, writer) = self.feed_pipe()?;
                let feed = Some(Feed::reader(writer, copy, reader));
                return Ok((theirs, Ends { feed, ..no_ends() }));
            }
            Some(Choice::Create(_) | Choice::Append(_) | Choice::Tee(_) | Choice::TeeTo(..)) => {
                return Err(self.misuse("its stdin cannot be something to write to"));
            }
        };
        Ok((theirs, no_ends()))
    }

    /// Synchronous on both sides as a rule: whoever takes our end expects a write to block.
    fn pipe_stdin(&self, ours: Mode) -> Result<(Theirs<'static>, Ends), Error> {
        let (reader, writer) = self.make_pipe(PipeOptions { write: ours, ..Default::default() })?;
        let ends = Ends { stdin: Some(writer), ..Ends::default() };
        Ok((Theirs::Owned(reader.into()), ends))
    }

    /// The child's end, our second handle on it, and our end.
    fn feed_pipe(&self) -> Result<(Theirs<'static>, PipeReader, PipeWriter), Error> {
        // Ours must not block: poll promises some room, not room for all, and a write that waits
        // for the child to read while the child waits for us to read would wait for ever.
        let options = PipeOptions { write: Mode::Async, ..PipeOptions::default() };
        let (reader, writer) = self.make_pipe(options)?;
        let copy = reader.try_clone().map_err(|error| self.cannot_open("a pipe", error))?;
        Ok((Theirs::Owned(reader.into()), copy, writer))
    }

    fn open_output<'a>(
        &'a self,
        stream: usize,
        choice: Option<&'a Stdio>,
        default: Usual,
    ) -> Result<(Theirs<'a>, Option<OutputEnd>), Error> {
        let captured = |tee| -> Result<_, Error> {
            let options = PipeOptions { read: Mode::Async, ..PipeOptions::default() };
            let (pipe, writer) = self.make_pipe(options)?;
            Ok((Theirs::Owned(writer.into()), Some(OutputEnd { pipe, tee })))
        };
        let mut write = OpenOptions::new();
        let theirs = match choice.map(|choice| &choice.0) {
            None => match default {
                Usual::Inherit => Theirs::Inherit,
                Usual::Null => self.null()?,
                Usual::Piped => return captured(None),
                Usual::Tee(open) => return captured(Some(TeeTo::Ours(open))),
            },
            Some(Choice::Inherit) => Theirs::Inherit,
            Some(Choice::Null) => self.null()?,
            Some(Choice::Piped(_)) => return captured(None),
            Some(Choice::Tee(open)) => return captured(Some(TeeTo::Ours(*open))),
            Some(Choice::TeeTo(find, target)) => {
                return captured(Some(find(self, stream, target)?));
            }
            Some(Choice::Handle(handle)) => Theirs::Borrowed(handle),
            Some(Choice::Parent(stream)) => self.parent_stream(*stream)?,
            Some(Choice::Create(path)) => {
                self.open_file(stream, path, write.write(true).create(true).truncate(true))?
            }
            Some(Choice::Append(path)) => {
                self.open_file(stream, path, write.append(true).create(true))?
            }
            Some(Choice::Open(_) | Choice::Bytes(_) | Choice::Reader(_)) => {
                let name = STREAM_NAMES[stream];
                return Err(self.misuse(&format!("its {name} cannot be something to read from")));
            }
        };
        Ok((theirs, None))
    }

    /// What a tee passes a stream on to.
    pub(super) fn find_tee(&self, stream: usize, target: &Stdio) -> Result<TeeTo, Error> {
        let cannot = |error| self.cannot_open(STREAM_NAMES[stream], error);
        let handle = match self.open_output(stream, Some(target), Usual::Null)? {
            (Theirs::Owned(handle), None) => Ok(handle),
            (Theirs::Borrowed(handle), None) => handle.try_clone(),
            (Theirs::Inherit, None) if stream == 1 => stdio::console_out(),
            (Theirs::Inherit, None) => stdio::console_err(),
            _ => return Err(self.misuse("a tee cannot be passed on to what passes through us")),
        };
        Ok(TeeTo::Other(open_tee_to, handle.map_err(cannot)?))
    }

    fn open_file(
        &self,
        stream: usize,
        path: &Path,
        options: &OpenOptions,
    ) -> Result<Theirs<'static>, Error> {
        let file: File = options
            .open(path)
            .map_err(|error| could_not_open(&self.program, path, STREAM_NAMES[stream], error))?;
        Ok(Theirs::Owned(file.into()))
    }

    fn parent_stream(&self, stream: ParentStream) -> Result<Theirs<'static>, Error> {
        let opened = match stream {
            ParentStream::Stdout => stdio::console_out(),
            ParentStream::Stderr => stdio::console_err(),
        };
        opened
            .map(Theirs::Owned)
            .map_err(|error| self.cannot_open("a stream of this process", error))
    }

    fn null(&self) -> Result<Theirs<'static>, Error> {
        stdio::null().map(Theirs::Owned).map_err(|error| self.cannot_open("the null device", error))
    }

    pub(crate) fn make_pipe(
        &self,
        options: PipeOptions,
    ) -> Result<(PipeReader, PipeWriter), Error> {
        pipe::pair(options).map_err(|error| self.cannot_open("a pipe", error))
    }

    fn cannot_open(&self, what: &str, error: io::Error) -> Error {
        could_not_prepare(&self.program, format!("cannot open {what}"), error)
    }

    pub(crate) fn misuse(&self, words: &str) -> Error {
        let source = io::Error::new(io::ErrorKind::InvalidInput, words.to_owned());
        Error::new(&self.program, Doing::Start, ErrorKind::InvalidInput, Some(source))
    }
}

/// Starts the child; a program file that is being written is tried again for a while.
///
/// Another thread that starts a child between our writing a file and our closing it leaves that
/// child with a handle that writes until it execs; no order of calls closes that window
/// (golang/go#22315).
fn start(plan: &Plan<'_>) -> Result<ChildHandle, Error> {
    const FIRST_PAUSE: Duration = Duration::from_millis(1);
    const RETRIES: u32 = 7;
    let mut tries = 0;
    loop {
        let failed = match spawn::spawn(plan) {
            Ok(exit) => return Ok(exit),
            Err(failed) => failed,
        };
        let busy = cause(&failed.source) == Some(Cause::Busy);
        if !busy || tries == RETRIES {
            return Err(could_not_start(plan, failed));
        }
        // 1, 2, 4 ... 64 ms: 127 ms in all. Ignored: a wait for nothing has no error of its own.
        let _ = wait::any(&mut [], Some(Instant::now() + FIRST_PAUSE * (1 << tries)));
        tries += 1;
    }
}
