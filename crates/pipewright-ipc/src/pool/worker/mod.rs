//! One worker of a pool: its process, its connection, its output, and its calls.

mod active;
mod idle;
mod phase;

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use pipewright::{Child, Command, ExitStatus, Source, Stdio};
use pipewright_os::base::wait::Slot;
use pipewright_os::base::wake::Wake;

use super::connection::{OutgoingMessage, WorkerConnection};
use super::counters::{Counter, WorkerSnapshot};
use super::options::{LogLine, OnLine, Schedule};
use super::status::WorkerState;
use crate::connection::RawMessage;
use crate::error::{Error, ErrorKind, Peer, Side};
use crate::handshake::Handshake;
use crate::options::Options;
use crate::options::Stats;
use crate::process::WorkerOutput;
use crate::wire::kind;
pub(super) use active::ActiveCall;
use active::{expect, note_sent};
pub(super) use phase::WorkerPhase;

/// The number of messages taken from one worker before those of the others.
const TURN: usize = 64;

/// The most turns that end early after the exit of a worker: enough for its ring and its socket. Another process may hold its end.
const MAX_TURNS_AFTER_EXIT: u32 = 64;

/// One worker.
#[derive(Debug)]
pub(super) struct Worker {
    pub(super) number: u64,
    pub(super) child: Child,
    connection: ConnectionState,
    /// Stdout and stderr.
    output: [WorkerOutput; 2],
    pub(super) calls: Vec<ActiveCall>,
    outgoing: VecDeque<OutgoingMessage>,
    /// The longest spin before a sleep.
    max_spin: Duration,
    /// Signals a borrower to return the connection.
    wake: Option<Arc<Wake>>,
    pub(super) phase: WorkerPhase,
    /// The error that ended its connection.
    pub(super) fault: Option<Error>,
    /// There may be something to send or to receive.
    pub(super) is_due: bool,
    exited: bool,
    /// The number of turns since its exit that ended before all was received.
    turns_after_exit: u32,
    /// The error of a send to it: what it sent before is received first.
    unsendable: Option<Error>,
    /// The pool killed it while it was running.
    pub(super) was_killed: bool,
    /// The handshake was complete.
    pub(super) has_served: bool,
    /// The pool does not need it any more.
    pub(super) is_retired: bool,
    /// Shared with borrowers of the connection, which increment it too.
    pub(super) jobs: Arc<Counter>,
    /// It used more memory than allowed, after a call.
    pub(super) exceeds_memory: bool,
    pub(super) started: Instant,
    /// The version of the watched files at its start.
    pub(super) version: u64,
    pub(super) last_used: Instant,
    /// It takes items after a request.
    pub(super) takes_items: bool,
    shared_memory: bool,
    /// Shared with each status.
    fallback: Option<Arc<str>>,
}

#[derive(Debug)]
enum ConnectionState {
    Handshake(Box<Handshake>),
    Open(Box<WorkerConnection>),
    /// Callers have it, or may borrow it.
    Lent,
    Closed,
}

impl Worker {
    pub(super) fn start(
        (number, version): (u64, u64),
        command: &mut Command,
        options: &Options,
        kept: usize,
    ) -> Result<Worker, Error> {
        // Overrides the command: a worker must not read the host's stdin, and its output must not mix with the host's.
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let (end, mut child) = crate::process::start(command)?;
        let output =
            [child.stdout.take(), child.stderr.take()].map(|it| WorkerOutput::new(it, kept));
        let handshake = Handshake::host(end, options);
        let now = Instant::now();
        let mut worker = Worker {
            number,
            child,
            connection: ConnectionState::Closed,
            output,
            calls: Vec::new(),
            outgoing: VecDeque::new(),
            max_spin: options.spin,
            wake: None,
            phase: WorkerPhase::Starting,
            fault: None,
            is_due: true,
            exited: false,
            turns_after_exit: 0,
            unsendable: None,
            was_killed: false,
            has_served: false,
            is_retired: false,
            jobs: Arc::default(),
            exceeds_memory: false,
            started: now,
            version,
            last_used: now,
            takes_items: false,
            shared_memory: false,
            fallback: None,
        };
        match handshake {
            Ok(handshake) => worker.connection = ConnectionState::Handshake(Box::new(handshake)),
            Err(error) => worker.fail(error),
        }
        Ok(worker)
    }

    /// Sends and receives without waiting, for one turn: so it receives the bytes of a turn at most, and the rest of one message.
    pub(super) fn exchange(&mut self, received: &mut Vec<RawMessage>) {
        self.is_due = false;
        if self.fault.is_some() || self.is_lent() {
            return;
        }
        if let Err(error) = self.try_begin_turn() {
            return self.fail(error);
        }
        while received.len() < TURN {
            let Some(message) = self.next_message() else { break };
            received.push(message);
        }
        self.end_turn(received.len() == TURN);
    }

    /// Returns the next message of this turn.
    fn next_message(&mut self) -> Option<RawMessage> {
        let Worker {
            connection: ConnectionState::Open(connection), calls, outgoing, phase, ..
        } = self
        else {
            return None;
        };
        match connection.next(|body| expect(*phase, calls, outgoing, body)) {
            Ok(message) => message,
            Err(error) => {
                self.fail(error);
                None
            }
        }
    }

    /// Ends a turn after the last of its messages, or after as many as a worker may send before others.
    fn end_turn(&mut self, has_more: bool) {
        let is_over = match &self.connection {
            ConnectionState::Open(connection) => has_more || connection.inner.turn_is_over(),
            ConnectionState::Lent => return,
            ConnectionState::Handshake(_) | ConnectionState::Closed => false,
        };
        if is_over {
            self.is_due = true;
            self.turns_after_exit += u32::from(self.exited);
        }
        if self.fault.is_some() {
            return;
        }
        let failed = self.unsendable.take_if(|_| !self.is_due);
        if let Some(error) = failed {
            self.fail(error);
        } else if self.exited && (!self.is_due || self.turns_after_exit > MAX_TURNS_AFTER_EXIT) {
            // Its last messages were received. Another process may still hold its end.
            self.fail(Error::new(ErrorKind::Died { status: None }));
        }
    }

    fn try_begin_turn(&mut self) -> Result<(), Error> {
        if let ConnectionState::Handshake(handshake) = &mut self.connection {
            if !handshake.step()? {
                return Ok(());
            }
            let ConnectionState::Handshake(handshake) =
                std::mem::replace(&mut self.connection, ConnectionState::Closed)
            else {
                return Ok(());
            };
            if !handshake.answers_calls() {
                handshake.discard();
                return Err(Error::new(ErrorKind::Refused {
                    by: Side::Host,
                    field: "can".to_owned(),
                    host: "calls.v1".to_owned(),
                    worker: String::new(),
                }));
            }
            self.takes_items = handshake.takes_items();
            let connection = handshake.into_connection();
            let Stats { shared_memory, fallback, .. } = connection.stats();
            (self.shared_memory, self.fallback) = (shared_memory, fallback.map(Arc::from));
            let holds_handles = connection.end.waiting_handles() > 0;
            self.connection =
                ConnectionState::Open(Box::new(WorkerConnection::new(connection, self.max_spin)));
            if holds_handles {
                return Err(Error::protocol("handles came with the handshake"));
            }
            if self.phase == WorkerPhase::Starting {
                self.phase = WorkerPhase::Serving;
                self.has_served = true;
            }
        }
        let ConnectionState::Open(connection) = &mut self.connection else { return Ok(()) };
        connection.inner.begin_turn();
        if self.unsendable.is_none() {
            let calls = &mut self.calls;
            match connection.send(&mut self.outgoing, |message| note_sent(calls, message)) {
                // It is gone, or about to go: what it sent before is received first.
                Err(error) if error.is_disconnect() => self.unsendable = Some(error),
                sent => drop(sent?),
            }
        }
        if self.unsendable.is_some() {
            let _ = connection.inner.read_socket_next();
        }
        Ok(())
    }

    /// Returns the slots of a wait: arrival, room, exit, stdout, stderr.
    pub(super) fn slots(&mut self) -> [Slot<'_>; 5] {
        let [out, err] = self.output.each_mut().map(WorkerOutput::slot);
        let can_send = self.unsendable.is_none();
        let wants_room = !self.outgoing.is_empty();
        let (end, room) = match &self.connection {
            ConnectionState::Handshake(handshake) => {
                (Some(handshake.end()), handshake.wants_room())
            }
            ConnectionState::Open(it) => {
                (Some(&it.inner.end), can_send && (wants_room || it.inner.unsent() > 0))
            }
            ConnectionState::Lent | ConnectionState::Closed => (None, false),
        };
        let arrival = match end {
            Some(end) if !end.has_ended() => Slot::Event(end),
            _ => Slot::Off,
        };
        let room = end.filter(|_| room).map_or(Slot::Off, |it| Slot::Room(it));
        let exit = if self.exited { Slot::Off } else { Slot::Event(self.child.child_handle()) };
        [arrival, room, exit, out, err]
    }

    /// Prepares a wait. Returns false if there is something to receive already.
    pub(super) fn fall_asleep(&mut self) -> bool {
        match &mut self.connection {
            _ if self.is_due => false,
            ConnectionState::Open(connection) => connection.inner.fall_asleep(),
            _ => true,
        }
    }

    /// Evaluates a wait.
    pub(super) fn after_wait(
        &mut self,
        slots: [Slot<'static>; 5],
        slept: Duration,
        on_line: Option<&OnLine>,
    ) {
        let [arrival, room, exit, out, err] = slots;
        let arrived = matches!(arrival, Slot::EventDone);
        if let ConnectionState::Open(connection) = &mut self.connection {
            connection.wake_up(arrived, slept, false);
            self.is_due |= connection.inner.has_records();
        }
        let exited = matches!(exit, Slot::EventDone);
        self.exited |= exited;
        self.is_due |= arrived || exited || matches!(room, Slot::EventDone);
        let call = match &*self.calls {
            [one] => Some(one.call.id),
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
            output.after_wait(slot, &mut log);
        }
    }

    /// Queues a message, to be sent as soon as there is room.
    pub(super) fn send(&mut self, kind: u8, id: u64, body: Arc<Vec<u8>>) {
        self.outgoing.push_back(OutgoingMessage::new(kind, id, body));
        self.is_due = true;
    }

    /// Queues credit for items of a call: together with that which was not sent yet.
    pub(super) fn send_credit(&mut self, id: u64, more: u32) {
        let is_it =
            |it: &&mut OutgoingMessage| it.sending.id() == id && it.sending.kind() == kind::CREDIT;
        match self.outgoing.iter_mut().skip(1).find(is_it) {
            Some(unsent) => unsent.add(more),
            None => self.send(kind::CREDIT, id, Arc::new(more.to_le_bytes().to_vec())),
        }
    }

    /// Sends RESET.
    pub(super) fn start_reset(&mut self, timeout: Duration) {
        self.phase = WorkerPhase::Resetting(Instant::now().checked_add(timeout));
        self.send(kind::RESET, 0, Arc::default());
    }

    /// Returns an error if a message of this length exceeds the agreed maximum.
    pub(super) fn check_length(&self, body: &[u8]) -> Result<(), Error> {
        match &self.connection {
            ConnectionState::Open(connection) => connection.inner.check_length(body.len() as u64),
            _ => Ok(()),
        }
    }

    /// Withdraws a call if no frame of it was sent. Returns true if so.
    pub(super) fn withdraw(&mut self, id: u64) -> bool {
        let before = self.outgoing.len();
        self.outgoing.retain(|it| !(it.sending.is_call(id) && it.sending.is_unsent()));
        self.outgoing.len() < before
    }

    /// Returns true if the driver may give it calls.
    pub(super) fn is_serving(&self) -> bool {
        self.is_in_service() && !self.is_lent()
    }

    /// Returns true if it is about to end, and has not answered a call: it has failed to start, or its connection has failed.
    pub(super) fn has_failed_early(&self) -> bool {
        let is_leaving = matches!(self.phase, WorkerPhase::Leaving(..)) && !self.is_abandoned();
        self.jobs.get() == 0 && !self.is_retired && is_leaving
    }

    /// Returns true if it has ended, and all its messages were received.
    pub(super) fn has_ended(&self) -> bool {
        self.exited && (self.fault.is_some() || matches!(self.connection, ConnectionState::Closed))
    }

    /// Returns the exit status and the end of stderr, after reading what is left in its streams.
    pub(super) fn finish(&mut self, on_line: Option<&OnLine>) -> (Option<ExitStatus>, String) {
        // Bounded: a descendant that holds the streams may write forever.
        for _ in 0..TURN {
            let [out, err] = self.output.each_mut().map(WorkerOutput::slot);
            let mut slots = [Slot::Off, Slot::Off, Slot::Off, out, err];
            let ready = pipewright_os::base::wait::any(&mut slots, Some(Instant::now()));
            self.after_wait(slots.map(Slot::detach), Duration::ZERO, on_line);
            if !matches!(ready, Ok(1..)) {
                break;
            }
        }
        let [_, stderr] = &mut self.output;
        // Ignored: an unknown status is none.
        (self.child.try_wait().ok().flatten(), stderr.tail())
    }

    /// Returns its state, for an error about a deadline.
    pub(super) fn as_peer(&self) -> Peer {
        Peer::of(Some(&self.child))
    }

    /// Returns its state, for the statistics of the pool.
    pub(super) fn snapshot(&self) -> WorkerSnapshot {
        let state = match self.phase {
            WorkerPhase::Starting => WorkerState::Starting,
            WorkerPhase::Leaving(..) => WorkerState::Leaving,
            WorkerPhase::Resetting(_) => WorkerState::Resetting,
            WorkerPhase::Serving if self.calls.is_empty() => WorkerState::Idle,
            WorkerPhase::Serving => WorkerState::Busy,
        };
        WorkerSnapshot {
            number: self.number,
            pid: self.child.id(),
            state,
            jobs: Arc::clone(&self.jobs),
            shared_memory: self.shared_memory,
            fallback: self.fallback.clone(),
        }
    }
}
