//! One worker of a pool: its process, its connection, its output, and its calls.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use pipewright::{Child, Command, ExitStatus, Signal, Source, Stdio};
use pipewright_os::base::wait::{self, Slot};
use pipewright_os::base::wake::Wake;

use super::mailbox::{
    BorrowedConnection, Contents, Counter, IdleConnections, OutgoingMessage, QueuedCall,
    ReturnedConnection, WorkerConnection, WorkerSnapshot,
};
use super::options::{LogLine, OnLine, Schedule, WorkerState, WorkerStatus};
use crate::connection::{Body, RawMessage};
use crate::error::{Error, ErrorKind, Peer, Side};
use crate::handshake::{self, Handshake};
use crate::options::{Options, Stats};
use crate::process::{EXIT_DEADLINE, WorkerOutput};
use crate::wire::kind;

/// The number of messages taken from one worker before those of the others.
const TURN: usize = 64;

/// The most turns that end early after the exit of a worker: enough for its ring and its socket. Another process may
/// hold its end.
const MAX_TURNS_AFTER_EXIT: u32 = 64;

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

/// The slots of a wait for one worker.
pub(super) struct WorkerSlots<'a> {
    arrival: Slot<'a>,
    room: Slot<'a>,
    exit: Slot<'a>,
    /// Stdout and stderr.
    output: [Slot<'static>; 2],
}

impl<'a> WorkerSlots<'a> {
    /// Returns the slots in the order in which [`take_from`](Self::take_from) takes them.
    pub(super) fn into_array(self) -> [Slot<'a>; 5] {
        let WorkerSlots { arrival, room, exit, output: [stdout, stderr] } = self;
        [arrival, room, exit, stdout, stderr]
    }

    /// Takes the slots of one worker after a wait.
    pub(super) fn take_from(
        slots: &mut impl Iterator<Item = Slot<'static>>,
    ) -> WorkerSlots<'static> {
        let mut next = || slots.next().unwrap_or_default();
        WorkerSlots { arrival: next(), room: next(), exit: next(), output: [next(), next()] }
    }
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

    /// Sends and receives without waiting, for one turn: so it receives the bytes of a turn at most, and the rest of
    /// one message.
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

    /// Returns the slots of a wait.
    pub(super) fn slots(&mut self) -> WorkerSlots<'_> {
        let output = self.output.each_mut().map(WorkerOutput::slot);
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
            // An end whose other side is gone is always ready: waiting for it would only spin until the exit.
            Some(end) if !end.has_ended() => Slot::Event(end),
            _ => Slot::Off,
        };
        let room = end.filter(|_| room).map_or(Slot::Off, |it| Slot::Room(it));
        let exit = if self.exited { Slot::Off } else { Slot::Event(self.child.child_handle()) };
        WorkerSlots { arrival, room, exit, output }
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
        slots: WorkerSlots<'static>,
        slept: Duration,
        on_line: Option<&OnLine>,
    ) {
        let WorkerSlots { arrival, room, exit, output } = slots;
        let arrived = matches!(arrival, Slot::EventDone);
        if let ConnectionState::Open(connection) = &mut self.connection {
            connection.wake_up(arrived, slept, false);
            self.is_due |= connection.inner.has_records();
        }
        let exited = matches!(exit, Slot::EventDone);
        self.exited |= exited;
        self.is_due |= arrived || exited || matches!(room, Slot::EventDone);
        self.report_output(output, on_line);
    }

    /// Keeps what a wait has read from stdout and stderr, and reports its lines.
    fn report_output(&mut self, slots: [Slot<'static>; 2], on_line: Option<&OnLine>) {
        let call = match &*self.calls {
            [one] => Some(one.call.id),
            _ => None,
        };
        let (worker, pid) = (self.number, self.child.id());
        let sources = [Source::Stdout, Source::Stderr];
        for ((slot, source), output) in slots.into_iter().zip(sources).zip(&mut self.output) {
            let mut log = |text: &str| {
                if let Some(on_line) = on_line {
                    on_line.take(&LogLine { worker, pid, call, source, text });
                }
            };
            output.after_wait(slot, &mut log);
        }
    }

    /// Queues a message, to be sent as soon as there is room.
    pub(super) fn send(&mut self, kind: u8, id: u64, body: Arc<Contents>) {
        self.outgoing.push_back(OutgoingMessage::new(kind, id, body));
        self.is_due = true;
    }

    /// Queues credit for items of a call: together with that which was not sent yet.
    pub(super) fn send_credit(&mut self, id: u64, more: u32) {
        let is_it =
            |it: &&mut OutgoingMessage| it.sending.id() == id && it.sending.kind() == kind::CREDIT;
        match self.outgoing.iter_mut().skip(1).find(is_it) {
            Some(unsent) => unsent.add(more),
            None => self.send(kind::CREDIT, id, Arc::new(more.to_le_bytes().to_vec().into())),
        }
    }

    /// Sends RESET.
    pub(super) fn start_reset(&mut self, timeout: Duration) {
        self.phase = WorkerPhase::Resetting(Instant::now().checked_add(timeout));
        self.send(kind::RESET, 0, Arc::default());
    }

    /// Returns an error if a message of this length exceeds the agreed maximum.
    pub(super) fn check_length(&self, bytes: u64) -> Result<(), Error> {
        match &self.connection {
            ConnectionState::Open(connection) => connection.inner.check_length(bytes),
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

    /// Returns true if it is about to end, and has not answered a call: it has failed to start, or its connection has
    /// failed.
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
            let mut slots = self.output.each_mut().map(WorkerOutput::slot);
            let ready = wait::any(&mut slots, Some(Instant::now()));
            self.report_output(slots, on_line);
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

    /// Returns its state, for an error about a deadline of that call.
    pub(super) fn as_peer_of(&self, call: &ActiveCall) -> Peer {
        match self.as_peer() {
            Peer::Runs { pid } if call.has_spoken => Peer::Streams { pid },
            peer => peer,
        }
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
        let status = WorkerStatus {
            number: self.number,
            pid: self.child.id(),
            state,
            jobs: self.jobs.get(),
            shared_memory: self.shared_memory,
            fallback: self.fallback.clone(),
        };
        WorkerSnapshot { status, jobs: Arc::clone(&self.jobs) }
    }
}

// The phases of a worker, and its end: by itself, after GOODBYE, or by a signal.

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum WorkerPhase {
    Starting,
    /// Takes calls.
    Serving,
    /// Resets its state, and has to confirm that by this deadline.
    Resetting(Option<Instant>),
    /// Has to end: the next step against it, and the time of that step.
    Leaving(StopStep, Option<Instant>),
}

/// The next step against a worker that does not end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum StopStep {
    Terminate,
    Kill,
    /// None: it was killed, and ends at once.
    Wait,
    /// None: it was killed, and did not end.
    Nothing,
}

impl Worker {
    /// Closes its connection because of this error. It ends soon, or is killed.
    pub(super) fn fail(&mut self, error: Error) {
        let is_gone = error.is_disconnect();
        self.close();
        if self.fault.is_none() {
            self.fault = Some(error);
        }
        match self.phase {
            WorkerPhase::Leaving(..) if is_gone => {}
            _ if is_gone => {
                let until = Instant::now().checked_add(EXIT_DEADLINE);
                self.phase = WorkerPhase::Leaving(StopStep::Kill, until);
            }
            _ => self.kill(),
        }
    }

    fn close(&mut self) {
        match std::mem::replace(&mut self.connection, ConnectionState::Closed) {
            ConnectionState::Open(connection) => connection.discard(),
            ConnectionState::Handshake(handshake) => handshake.discard(),
            ConnectionState::Lent | ConnectionState::Closed => {}
        }
    }

    /// Kills it, and closes its connection: the pool is dropped.
    pub(super) fn stop(&mut self) {
        self.kill();
        self.close();
    }

    /// Returns true if it was killed and did not end: this process may not signal it, or it hangs in the kernel. Nobody
    /// waits for it any more.
    pub(super) fn is_abandoned(&self) -> bool {
        matches!(self.phase, WorkerPhase::Leaving(StopStep::Nothing, _))
    }

    /// Sends GOODBYE. It ends soon, or by this schedule.
    pub(super) fn retire(&mut self, schedule: Schedule) {
        if matches!(self.phase, WorkerPhase::Leaving(..)) {
            return;
        }
        self.is_retired = true;
        let until = Instant::now().checked_add(schedule.goodbye);
        match &mut self.connection {
            ConnectionState::Open(connection) => {
                self.phase = WorkerPhase::Leaving(StopStep::Terminate, until);
                if let Err(error) = connection.inner.send_goodbye() {
                    self.fail(error);
                }
                self.is_due = true;
            }
            // Nothing can be sent before the handshake is complete.
            _ => self.kill(),
        }
    }

    pub(super) fn kill(&mut self) {
        let until = Instant::now().checked_add(EXIT_DEADLINE);
        self.phase = WorkerPhase::Leaving(StopStep::Wait, until);
        // Ignored: a worker that has changed its user cannot be killed, and finds its connection closed.
        self.was_killed |= self.child.kill().is_ok() && !self.exited;
    }

    /// Takes the next step if it is due.
    pub(super) fn enforce_schedule(&mut self, now: Instant, schedule: Schedule) {
        let due = |until: Option<Instant>| until.is_some_and(|until| until <= now);
        match self.phase {
            WorkerPhase::Starting
                if self.handshake_deadline().is_some_and(|until| until <= now) =>
            {
                self.fail(handshake::timed_out(Some(&self.child)));
            }
            WorkerPhase::Resetting(until) if due(until) => {
                self.fail(Error::timed_out("a reset", self.as_peer()));
            }
            WorkerPhase::Leaving(StopStep::Terminate, until) if due(until) => {
                let until = now.checked_add(schedule.terminate);
                match self.child.signal(Signal::TERM) {
                    Ok(_) => self.phase = WorkerPhase::Leaving(StopStep::Kill, until),
                    Err(_) => self.kill(),
                }
            }
            WorkerPhase::Leaving(StopStep::Kill, until) if due(until) => self.kill(),
            WorkerPhase::Leaving(StopStep::Wait, until) if due(until) => {
                self.phase = WorkerPhase::Leaving(StopStep::Nothing, None);
                self.close();
            }
            _ => {}
        }
    }

    fn handshake_deadline(&self) -> Option<Instant> {
        match &self.connection {
            ConnectionState::Handshake(handshake) => handshake.until(),
            _ => None,
        }
    }

    pub(super) fn phase_deadline(&self) -> Option<Instant> {
        match self.phase {
            WorkerPhase::Starting => self.handshake_deadline(),
            WorkerPhase::Serving => None,
            WorkerPhase::Resetting(until) | WorkerPhase::Leaving(_, until) => until,
        }
    }
}

// The calls that a worker has, and the messages that it may send about them now.

/// A call that was given to a worker.
#[derive(Debug)]
pub(super) struct ActiveCall {
    pub(super) call: QueuedCall,
    /// The call was cancelled: its caller has its result, and it never runs again.
    pub(super) is_cancelled: bool,
    /// The time by which the worker has to end a cancelled call. `None`: there is no deadline.
    pub(super) cancel_deadline: Option<Instant>,
    /// The number of items that the worker may still send: of the credit that was sent to it, not of what is queued.
    pub(super) credit: u32,
    /// The worker waits for the answer to a question.
    pub(super) has_question: bool,
    /// The worker has sent something for the call.
    pub(super) has_spoken: bool,
}

impl ActiveCall {
    pub(super) fn new(call: QueuedCall) -> ActiveCall {
        ActiveCall {
            call,
            is_cancelled: false,
            cancel_deadline: None,
            credit: 0,
            has_question: false,
            has_spoken: false,
        }
    }
}

/// Checks the header of a message: an error if the worker may not send it now. So a worker can make the host keep only
/// what its calls allow.
fn expect(
    phase: WorkerPhase,
    calls: &[ActiveCall],
    outgoing: &VecDeque<OutgoingMessage>,
    body: &Body,
) -> Result<(), Error> {
    let refuse = |what: &str| Err(Error::protocol(what));
    if let (WorkerPhase::Resetting(_), 0) = (phase, body.id) {
        return match body.kind {
            kind::RESET_DONE => Ok(()),
            _ => refuse("the worker cannot be reset"),
        };
    }
    let Some(active) = calls.iter().find(|active| active.call.id == body.id) else {
        return refuse("a reply to a call that the worker does not have");
    };
    let is_queued = |is_it: fn(u8) -> bool| {
        outgoing.iter().any(|it| it.sending.id() == body.id && is_it(it.sending.kind()))
    };
    if is_queued(|kind| matches!(kind, kind::CALL | kind::OPEN_CALL)) {
        return refuse("a reply to a call that was not sent yet");
    }
    match body.kind {
        kind::REPLY | kind::FAILED => Ok(()),
        kind::ITEM if active.credit == 0 => refuse("an item without credit"),
        kind::CREDIT if active.call.items.is_none() => refuse("credit without items"),
        kind::CREDIT if body.total != 4 => refuse("credit that is not a number of 32 bits"),
        kind::ASK
            if active.has_question
                || is_queued(|kind| matches!(kind, kind::ANSWER | kind::DECLINED)) =>
        {
            refuse("a second question before the first was answered")
        }
        kind::ITEM | kind::CREDIT | kind::ASK => Ok(()),
        kind => refuse(&format!("a frame of kind {kind} from a worker")),
    }
}

/// Records that a message was sent completely.
fn note_sent(calls: &mut [ActiveCall], message: &OutgoingMessage) {
    let (kind, id) = (message.sending.kind(), message.sending.id());
    if !matches!(kind, kind::CREDIT | kind::ITEM) {
        return;
    }
    let Some(active) = calls.iter_mut().rev().find(|active| active.call.id == id) else { return };
    match &active.call.items {
        Some(items) if kind == kind::ITEM => items.note_sent(),
        _ => active.credit = active.credit.saturating_add(message.number()),
    }
}

// A worker whose connection a caller may borrow.

impl Worker {
    /// Returns true if the worker can answer calls, even while a caller has its connection.
    pub(super) fn is_in_service(&self) -> bool {
        self.phase == WorkerPhase::Serving && self.fault.is_none() && !self.exited
    }

    /// Returns true if callers have, or may borrow, the connection.
    pub(super) fn is_lent(&self) -> bool {
        matches!(self.connection, ConnectionState::Lent)
    }

    /// Adds the connection of an idle worker to the idle ones. Callers may borrow it until that time.
    pub(super) fn lend(&mut self, idle: &IdleConnections, until: Option<Instant>) {
        let is_idle = self.calls.is_empty() && self.outgoing.is_empty() && !self.is_due;
        if !is_idle || !self.is_serving() {
            return;
        }
        let Some(wake) = self.wake() else { return };
        self.connection = match std::mem::replace(&mut self.connection, ConnectionState::Lent) {
            ConnectionState::Open(connection) if connection.is_quiet() => {
                let (worker, jobs) = (self.number, Arc::clone(&self.jobs));
                let connection = BorrowedConnection { worker, connection, wake, jobs };
                idle.add(connection, until, self.last_used);
                ConnectionState::Lent
            }
            connection => connection,
        };
    }

    /// Returns the handle that wakes a borrower. `None`: this process has no room for another handle.
    fn wake(&mut self) -> Option<Arc<Wake>> {
        if self.wake.is_none() {
            self.wake = Wake::new().ok().map(Arc::new);
        }
        self.wake.clone()
    }

    /// Takes the connection back.
    pub(super) fn accept_returned(&mut self, returned: ReturnedConnection) {
        self.last_used = self.last_used.max(returned.usage.last);
        self.connection = ConnectionState::Open(returned.connection);
        // The connection of a worker that has exited contains its last messages.
        self.is_due |= self.exited;
    }

    /// Takes over a call that its caller has started.
    pub(super) fn adopt_call(
        &mut self,
        mut call: QueuedCall,
        mut outgoing: VecDeque<OutgoingMessage>,
    ) {
        call.attempts = 1;
        outgoing.append(&mut self.outgoing);
        self.outgoing = outgoing;
        self.calls.push(ActiveCall::new(call));
        self.is_due = true;
    }

    /// Requests the connection if it is needed: the worker has exited, or calls wait. Returns true if no caller has
    /// borrowed it, so that it can be taken back at once.
    pub(super) fn request_back(&self, idle: &IdleConnections, calls_wait: bool) -> bool {
        self.is_lent() && (self.exited || calls_wait) && idle.request(self.number, self.exited)
    }
}
