//! A started child, in std's shape.

mod fed;
mod process;
mod read_all;
pub(crate) mod reaper;
#[cfg(feature = "tokio")]
mod task;
mod wait;

use std::ffi::{OsStr, OsString};
use std::io;
use std::sync::Arc;
use std::time::Instant;

use pipewright_os::base::signal::Signal;
use pipewright_os::process::child::{ChildHandle, Containment};

pub(crate) use fed::{Fed, Input};
pub(crate) use process::{Process, Processes, kill};

use crate::command::{Limit, OutputEnd, Rules, Started};
use crate::drive::{self, Feed, Front, Keeping, Parked, Reach, Run, Sink, TeeTo};
use crate::error::Error;
use crate::output::Output;
use crate::process_handle::ProcessHandle;
use crate::text::Decoding;
use crate::{ChildStderr, ChildStdin, ChildStdout};

/// A child that runs, or has run.
///
/// `wait`, `try_wait`, `kill` and `signal` take `&self`: one thread can wait while another kills.
///
/// # Drop
/// As in std, the child goes on running. Unlike in std it does not become a zombie: a background
/// thread, started for the first such child, reaps it when it ends.
///
/// A child whose tree is held ([`Contain::Tree`](crate::Contain::Tree)) is killed, with its tree,
/// and waited for as long as that can be expected to take.
/// [`kill_on_drop`](crate::Command::kill_on_drop) ends it instead.
#[derive(Debug)]
pub struct Child {
    /// Our end of its stdin, where that is piped. Dropping it ends the child's input.
    pub stdin: Option<ChildStdin>,
    /// Our end of its stdout, where that is piped.
    pub stdout: Option<ChildStdout>,
    /// Our end of its stderr, where that is piped.
    pub stderr: Option<ChildStderr>,
    /// Before the process: it has a handle on it.
    keeping: Option<Keeping>,
    process: Arc<Process>,
    program: OsString,
    started: Instant,
    front: Option<Arc<dyn Front>>,
    /// Input that came with the command.
    input: Input,
    parked: Arc<Parked>,
    rules: Rules,
    reading: Reading,
    /// What whoever reads the streams is to pass on: us, if we do.
    tees: [Option<TeeTo>; 2],
}

/// What the command says about reading a child's streams.
#[derive(Debug)]
pub(crate) struct Reading {
    pub(crate) limit: Option<Limit>,
    pub(crate) max_line_bytes: Option<usize>,
    pub(crate) decoding: Decoding,
}

impl Child {
    pub(crate) fn new(started: Started, program: &OsStr, rules: &Rules, reading: Reading) -> Child {
        let Started { process, ends, at, front } = started;
        let input = Input::begin(ends.feed, process.alone());
        let ([stdout, stderr], tees) = OutputEnd::split([ends.stdout, ends.stderr]);
        let mut child = Child {
            keeping: None,
            stdin: ends.stdin,
            stdout,
            stderr,
            process: Arc::new(process),
            program: program.to_owned(),
            started: at,
            front,
            input,
            parked: Arc::default(),
            rules: rules.clone(),
            reading,
            tees,
        };
        child.keeping = rules.keep(&child.process, &child.parked);
        if child.keeping.is_some() {
            child.parked.put(Box::new(child.run(None, [None, None])));
        }
        child
    }

    /// The process id. The name is std's.
    #[must_use]
    pub fn id(&self) -> u32 {
        self.process.pid()
    }

    /// The process id: as [`id`](Self::id).
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.process.pid()
    }

    /// What other crates of the family wait for together with their own sources.
    #[doc(hidden)]
    #[must_use]
    pub fn child_handle(&self) -> &ChildHandle {
        &self.process
    }

    /// Kills the child, the group it leads and the descendants that can be found. A child that has
    /// ended is no error. The child still has to be waited for, or dropped.
    ///
    /// # Errors
    /// The child may not be signalled by us: it has become another user's.
    #[doc(alias = "terminate")]
    pub fn kill(&self) -> Result<(), Error> {
        let killed = Reach::default().kill(self.process.alone());
        killed.map_err(|error| self.cannot("kill", error))
    }

    /// How the child is held: what [`kill`](Self::kill), a timeout and a cancel reach.
    #[must_use]
    pub fn containment(&self) -> Containment {
        self.process.containment()
    }

    /// Sends the child a signal, and only the child. `false`: it has ended already.
    ///
    /// Never reaches another process that was given the same number since.
    ///
    /// # Errors
    /// The child has become another user's.
    pub fn signal(&self, signal: Signal) -> Result<bool, Error> {
        self.process.signal(signal).map_err(|error| self.cannot("signal", error))
    }

    /// The process, without its streams.
    pub(crate) fn into_handle(self) -> ProcessHandle {
        let Child { keeping, process, program, .. } = self;
        drop(keeping);
        ProcessHandle::started(process, &program)
    }

    fn drive(
        &self,
        feed: Option<Feed>,
        streams: [Option<(ChildStdout, Sink)>; 2],
    ) -> Result<Output, Error> {
        drive::see_through(self.run(feed, streams), self.process.alone(), &self.rules)
            .map_err(|(doing, source)| self.cannot(doing, source))
    }

    /// A run that reads nothing.
    fn new_run(&self) -> Run {
        self.run(self.input.take_feed(), [None, None])
    }

    /// A run of the child, which has been started.
    fn run(&self, feed: Option<Feed>, streams: [Option<(ChildStdout, Sink)>; 2]) -> Run {
        if let Some(begun) = self.parked.take_out() {
            return begun.reading(feed, streams);
        }
        Run::new(&self.rules, self.started, feed, streams)
            .of(&self.program)
            .fed_by(self.input.fed())
            .in_front(self.front.clone())
            .traced(self.process.trace())
    }

    fn cannot(&self, doing: &'static str, error: io::Error) -> Error {
        Error::talk(&self.program, doing, error)
    }
}
