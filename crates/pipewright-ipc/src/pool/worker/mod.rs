//! One worker of a pool: its process, its connection, what it writes, and the calls that it has.

mod lend;
mod phase;

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use pipewright::{Child, Command, ExitStatus, Source, Stdio};
use pipewright_os::base::wait::Slot;
use pipewright_os::base::wake::Wake;

use super::connection::Connection;
use super::counters::Counter;
use super::job::Job;
use super::options::{LogLine, OnLine, Schedule};
use super::status::{Standing, WorkerState};
use crate::channel::{Piece, Sending};
use crate::error::{Error, ErrorKind, Peer, Side};
use crate::handshake::Greeting;
use crate::options::Options;
use crate::output::Output;
use crate::stats::Stats;
use crate::wire::kind;
pub(super) use phase::Phase;

/// How many messages are taken from one worker before the others have their turn.
const TURN: usize = 64;

/// One worker.
#[derive(Debug)]
pub(super) struct Worker {
    pub(super) number: u64,
    pub(super) child: Child,
    link: Link,
    /// Stdout and stderr.
    output: [Output; 2],
    pub(super) calls: Vec<OpenCall>,
    outgoing: VecDeque<Sending>,
    /// The longest look for something before a sleep.
    spin: Duration,
    /// For whoever has its connection: it is to come back.
    wake: Option<Arc<Wake>>,
    pub(super) phase: Phase,
    /// Why nothing comes from it any more.
    pub(super) fault: Option<Error>,
    /// Something has come, or is to be sent.
    pub(super) is_due: bool,
    exited: bool,
    /// By us, while it ran.
    pub(super) was_killed: bool,
    /// It has said who it is.
    pub(super) has_served: bool,
    /// It was let go.
    pub(super) is_retired: bool,
    /// Shared: whoever has its connection counts too.
    pub(super) jobs: Arc<Counter>,
    /// It used more memory than it may, after a call.
    pub(super) has_grown: bool,
    pub(super) started: Instant,
    /// Of which state of its files it is.
    pub(super) version: u64,
    pub(super) last_used: Instant,
    shared_memory: bool,
    /// Shared: it is told with every status.
    fallback: Option<Arc<str>>,
}

#[derive(Debug)]
enum Link {
    Greeting(Box<Greeting>),
    Open(Box<Connection>),
    /// On the shelf, or with a caller.
    Lent,
    Closed,
}

/// A call that a worker has.
#[derive(Debug)]
pub(super) struct OpenCall {
    pub(super) job: Job,
    /// Nobody wants it any more, and the worker has to be done with it by then.
    pub(super) unwanted_until: Option<Instant>,
    /// How many more pieces of the answer the worker may send.
    pub(super) credit: u32,
    /// The worker has asked something that was not answered.
    pub(super) has_asked: bool,
}

impl Worker {
    pub(super) fn start(
        (number, version): (u64, u64),
        command: &mut Command,
        options: &Options,
        kept: usize,
    ) -> Result<Worker, Error> {
        // Whatever the command says: nobody else is to read our stdin, or to find its output among ours.
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let (end, mut child) = crate::host::start(command)?;
        let output = [child.stdout.take(), child.stderr.take()].map(|it| Output::new(it, kept));
        let greeting = Greeting::host(end, options);
        let now = Instant::now();
        let mut worker = Worker {
            number,
            child,
            link: Link::Closed,
            output,
            calls: Vec::new(),
            outgoing: VecDeque::new(),
            spin: options.spin,
            wake: None,
            phase: Phase::Starting,
            fault: None,
            is_due: true,
            exited: false,
            was_killed: false,
            has_served: false,
            is_retired: false,
            jobs: Arc::default(),
            has_grown: false,
            started: now,
            version,
            last_used: now,
            shared_memory: false,
            fallback: None,
        };
        match greeting {
            Ok(greeting) => worker.link = Link::Greeting(Box::new(greeting)),
            Err(error) => worker.give_up(error),
        }
        Ok(worker)
    }

    /// Sends and receives what can be without waiting.
    pub(super) fn go_on(&mut self, heard: &mut Vec<Piece>) {
        self.is_due = false;
        if self.fault.is_some() || self.is_lent() {
            return;
        }
        if let Err(error) = self.talk(heard) {
            self.give_up(error);
        } else if self.exited && !self.is_due {
            // What it said last has been taken; somebody else may still hold its end.
            self.give_up(Error::new(ErrorKind::Died { status: None }));
        }
    }

    fn talk(&mut self, heard: &mut Vec<Piece>) -> Result<(), Error> {
        if let Link::Greeting(greeting) = &mut self.link {
            if !greeting.go_on()? {
                return Ok(());
            }
            let Link::Greeting(greeting) = std::mem::replace(&mut self.link, Link::Closed) else {
                return Ok(());
            };
            if !greeting.answers_calls() {
                return Err(Error::new(ErrorKind::Refused {
                    by: Side::Host,
                    field: "can".to_owned(),
                    host: "calls.v1".to_owned(),
                    worker: String::new(),
                }));
            }
            let line = greeting.into_line();
            let Stats { shared_memory, fallback, .. } = line.stats();
            (self.shared_memory, self.fallback) = (shared_memory, fallback.map(Arc::from));
            self.link = Link::Open(Box::new(Connection::new(line, self.spin)));
            if self.phase == Phase::Starting {
                self.phase = Phase::Serving;
                self.has_served = true;
            }
        }
        let Link::Open(connection) = &mut self.link else { return Ok(()) };
        connection.send(&mut self.outgoing)?;
        for _ in 0..TURN {
            match connection.next()? {
                Some(piece) => heard.push(piece),
                None => return Ok(()),
            }
        }
        self.is_due = true;
        Ok(())
    }

    /// What to wait for: something from it, room, its end, and what it writes.
    pub(super) fn submit(&mut self) -> [Slot<'_>; 5] {
        let [out, err] = self.output.each_mut().map(Output::submit);
        let wants_room = !self.outgoing.is_empty();
        let (end, room) = match &self.link {
            Link::Greeting(greeting) => (Some(greeting.end()), greeting.wants_room()),
            Link::Open(it) => (Some(&it.line.end), wants_room || it.line.end.unsent() > 0),
            Link::Lent | Link::Closed => (None, false),
        };
        let arrival = match end {
            Some(end) if !end.has_ended() => Slot::Event(end),
            _ => Slot::Off,
        };
        let room = end.filter(|_| room).map_or(Slot::Off, |it| Slot::Room(it));
        let exit = if self.exited { Slot::Off } else { Slot::Event(self.child.child_handle()) };
        [arrival, room, exit, out, err]
    }

    /// To be called before a wait. `false`: there is something already.
    pub(super) fn fall_asleep(&mut self) -> bool {
        match &mut self.link {
            _ if self.is_due => false,
            Link::Open(connection) => connection.line.fall_asleep(),
            _ => true,
        }
    }

    /// Takes back what a wait has done.
    pub(super) fn take_back(
        &mut self,
        slots: [Slot<'static>; 5],
        slept: Duration,
        on_line: Option<&OnLine>,
    ) {
        let [arrival, room, exit, out, err] = slots;
        let arrived = matches!(arrival, Slot::EventDone);
        if let Link::Open(connection) = &mut self.link {
            connection.wake_up(arrived, slept, false);
            self.is_due |= connection.line.has_news();
        }
        let exited = matches!(exit, Slot::EventDone);
        self.exited |= exited;
        self.is_due |= arrived || exited || matches!(room, Slot::EventDone);
        let call = match &*self.calls {
            [one] => Some(one.job.id),
            _ => None,
        };
        let (worker, pid) = (self.number, self.child.id());
        let streams = [(out, Source::Stdout), (err, Source::Stderr)];
        for ((slot, source), output) in streams.into_iter().zip(&mut self.output) {
            let mut log = |text: &str| {
                if let Some(on_line) = on_line {
                    on_line.take(&LogLine { worker, pid, call, source, text });
                }
            };
            output.take_back(slot, &mut log);
        }
    }

    /// Sends something as soon as there is room.
    pub(super) fn send(&mut self, kind: u8, id: u64, body: Arc<Vec<u8>>) {
        self.outgoing.push_back(Sending::new(kind, id, body));
        self.is_due = true;
    }

    /// Tells it to become as if it had just been started.
    pub(super) fn reset(&mut self, timeout: Duration) {
        self.phase = Phase::Resetting(Instant::now().checked_add(timeout));
        self.send(kind::RESET, 0, Arc::default());
    }

    /// Whether a message to it may be that long.
    pub(super) fn has_agreed_to(&self, body: &[u8]) -> Result<(), Error> {
        match &self.link {
            Link::Open(connection) => connection.line.has_agreed_to(body.len() as u64),
            _ => Ok(()),
        }
    }

    /// Takes back a call of which nothing has gone. Whether that was so.
    pub(super) fn unsend(&mut self, id: u64) -> bool {
        let before = self.outgoing.len();
        self.outgoing.retain(|it| !(it.is_call(id) && it.is_whole()));
        self.outgoing.len() < before
    }

    /// Whether it is given calls.
    pub(super) fn is_serving(&self) -> bool {
        self.is_in_service() && !self.is_lent()
    }

    /// Returns true if it will never serve, and is about to end.
    pub(super) fn has_failed_to_start(&self) -> bool {
        !self.has_served && !self.is_retired && matches!(self.phase, Phase::Leaving(..))
    }

    /// Whether it has ended, and everything that it had said is known.
    pub(super) fn is_over(&self) -> bool {
        self.exited && (self.fault.is_some() || matches!(self.link, Link::Closed))
    }

    /// How it ended, and its last words: what it wrote stands in its streams.
    pub(super) fn bury(&mut self, on_line: Option<&OnLine>) -> (Option<ExitStatus>, String) {
        // A descendant that holds the streams may write for ever.
        for _ in 0..TURN {
            let [out, err] = self.output.each_mut().map(Output::submit);
            let mut slots = [Slot::Off, Slot::Off, Slot::Off, out, err];
            let came = pipewright_os::base::wait::any(&mut slots, Some(Instant::now()));
            self.take_back(slots.map(Slot::detach), Duration::ZERO, on_line);
            if !matches!(came, Ok(1..)) {
                break;
            }
        }
        let [_, stderr] = &mut self.output;
        // Ignored: a status that is lost is none.
        (self.child.try_wait().ok().flatten(), stderr.last_words())
    }

    /// What is known of it when the time is over.
    pub(super) fn as_peer(&self) -> Peer {
        Peer::of(Some(&self.child))
    }

    /// Returns its state, for the statistics of the pool.
    pub(super) fn standing(&self) -> Standing {
        let state = match self.phase {
            Phase::Starting => WorkerState::Starting,
            Phase::Leaving(..) => WorkerState::Leaving,
            Phase::Resetting(_) => WorkerState::Resetting,
            Phase::Serving if self.calls.is_empty() => WorkerState::Idle,
            Phase::Serving => WorkerState::Busy,
        };
        Standing {
            number: self.number,
            pid: self.child.id(),
            state,
            jobs: Arc::clone(&self.jobs),
            shared_memory: self.shared_memory,
            fallback: self.fallback.clone(),
        }
    }
}
