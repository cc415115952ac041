//! The operations of a channel, and the waits between their steps: for messages, for room, for the end of the other
//! side.
//!
//! [`Core::drive`] runs an operation: a function that does what is possible now and returns what to wait for.
//! `drive_async` does the same for a task.

use std::time::{Duration, Instant};

use pipewright::{CancelToken, Child, ExitStatus};
use pipewright_os::base::wait::{self, Slot};
use pipewright_os::channel::handle_channel::Arrived;

use crate::connection::{Connection, FRAME_BYTES, Payload, Sending, Spin, StepResult, Want};
use crate::error::{Error, ErrorKind, Peer, WAIT, WATCH_TOKEN};
use crate::process;
use crate::wire::{Header, kind};

/// The time in which a worker has to exit after GOODBYE.
const CLOSE_DEADLINE: Duration = Duration::from_secs(5);

/// The most bytes of small messages that are queued before they are sent together.
const MAX_QUEUED_BYTES: usize = 64 << 10;

/// A channel whose messages are bytes.
#[derive(Debug)]
pub(crate) struct Core {
    pub(crate) connection: Connection,
    pub(super) child: Option<Child>,
    pub(super) cancel: Option<CancelToken>,
    pub(super) timeout: Option<Duration>,
    spin: Spin,
    /// A buffer for encoded values, and for loans without room in the ring.
    pub(super) scratch: Vec<u8>,
    /// The child has exited.
    exited: bool,
    /// The registrations of a task that waits.
    #[cfg(feature = "tokio")]
    watch: wait::Watch,
}

/// The slots of a wait: arrival, room, exit of the child, cancel token.
type Slots<'a> = [Slot<'a>; 4];

impl Core {
    pub(super) fn new(connection: Connection, child: Option<Child>, spin: Duration) -> Core {
        Core {
            connection,
            child,
            cancel: None,
            timeout: None,
            spin: Spin::new(spin),
            scratch: Vec::new(),
            exited: false,
            #[cfg(feature = "tokio")]
            watch: wait::Watch::default(),
        }
    }

    /// Returns the deadline of a call that begins now.
    #[inline]
    pub(crate) fn until(&self) -> Option<Instant> {
        self.timeout.and_then(|timeout| Instant::now().checked_add(timeout))
    }

    /// Runs an operation to its end, and waits between its steps.
    #[inline]
    pub(crate) fn drive(
        &mut self,
        until: Option<Instant>,
        mut step: impl FnMut(&mut Connection) -> Result<StepResult, Error>,
    ) -> Result<(), Error> {
        run_async_for_test!(self, self.drive_async(until, step));
        loop {
            let waited = match step(&mut self.connection) {
                Ok(StepResult::Done) => return Ok(()),
                Ok(StepResult::Blocked(want)) if self.connection.turn_is_over() => {
                    self.next_turn(want, until)
                }
                Ok(StepResult::Blocked(want)) => self.wait_for(want, until),
                Err(error) => Err(error),
            };
            if let Err(error) = waited {
                return Err(process::explain(error, self.child.as_ref(), until));
            }
        }
    }

    /// Sends a message. After an error in the middle of it, nothing more can be sent.
    #[inline]
    pub(crate) fn send<'a>(
        &mut self,
        (kind, id): (u8, u64),
        payload: impl Into<Payload<'a>>,
        until: Option<Instant>,
    ) -> Result<(), Error> {
        let (mut sending, payload) = (Sending::new(kind, id), payload.into());
        let sent = self.drive(until, |connection| sending.step(connection, payload));
        sent.inspect_err(|_| sending.abandon(&mut self.connection))
    }

    /// Sends a message that may stay queued for a while.
    #[inline]
    pub(super) fn queue(&mut self, bytes: &[u8]) -> Result<(), Error> {
        if bytes.len() > FRAME_BYTES {
            let until = self.until();
            return self.send((kind::MESSAGE, 0), bytes, until);
        }
        self.connection.check_may_send(bytes.len() as u64)?;
        self.connection.queue_frame(&Header::new(kind::MESSAGE, bytes.len()), bytes)?;
        self.connection.count_message_sent(bytes.len() as u64, 1);
        if self.connection.unsent() < MAX_QUEUED_BYTES {
            return Ok(());
        }
        let until = self.until();
        let sent = self.drive(until, Connection::flush);
        sent.inspect_err(|_| self.connection.set_cut_off(true))
    }

    /// Sends a message without waiting. Returns false, and sends nothing, if earlier bytes are still unsent.
    pub(super) fn try_send(&mut self, bytes: &[u8]) -> Result<bool, Error> {
        self.connection.check_may_send(bytes.len() as u64)?;
        let sent = match self.connection.flush_and_settle() {
            Ok(StepResult::Done) => Sending::send_all(&mut self.connection, bytes).map(|()| true),
            Ok(StepResult::Blocked(_)) => Ok(false),
            Err(error) => Err(error),
        };
        self.explain_at_once(sent)
    }

    /// Starts to receive the next message, if it has arrived. Returns false if it has not.
    pub(crate) fn try_begin(
        &mut self,
        begin: impl FnOnce(&mut Connection) -> Result<StepResult, Error>,
    ) -> Result<bool, Error> {
        let _ = self.connection.read_socket_next();
        self.connection.begin_turn();
        let flushed = self.connection.flush_before_receiving();
        let started = flushed.and_then(|()| begin(&mut self.connection));
        self.explain_at_once(started.map(|progress| progress == StepResult::Done))
    }

    /// Reads the message that is being received into a buffer.
    #[inline]
    pub(crate) fn read_into(
        &mut self,
        mut buffer: &mut Vec<u8>,
        until: Option<Instant>,
    ) -> Result<(), Error> {
        self.connection.prepare_buffer(buffer)?;
        self.drive(until, |connection| connection.take_rest(&mut buffer))
    }

    fn explain_at_once<T>(&self, result: Result<T, Error>) -> Result<T, Error> {
        let now = Instant::now;
        result.map_err(|error| process::explain(error, self.child.as_ref(), Some(now())))
    }

    /// Sends GOODBYE, and waits for that of the other side and for the exit of the child.
    pub(crate) fn close(&mut self) -> Result<Option<ExitStatus>, Error> {
        let (until, mut closing) = (self.close_deadline(), Closing::default());
        let closed = self.drive(until, |connection| closing.step(connection));
        closing.check(closed)?;
        let Some(child) = &self.child else { return Ok(None) };
        self.exit_status(process::wait_for_exit(child, until))
    }

    /// Returns the deadline of a close that begins now. Without a child and a timeout there is none: a worker waits
    /// for a slow host, whose exit ends the wait.
    fn close_deadline(&self) -> Option<Instant> {
        let timeout = self.timeout.or(self.child.is_some().then_some(CLOSE_DEADLINE))?;
        Instant::now().checked_add(timeout)
    }

    /// Returns the exit status of the child, or a timeout if it has not exited.
    fn exit_status(&self, status: Option<ExitStatus>) -> Result<Option<ExitStatus>, Error> {
        if status.is_some() { Ok(status) } else { Err(self.timed_out(Want::Message)) }
    }

    /// Begins the next turn of an operation that has more to do, unless its time is over.
    fn next_turn(&mut self, want: Want, until: Option<Instant>) -> Result<(), Error> {
        if until.is_some_and(|until| until <= Instant::now()) {
            return Err(self.timed_out(want));
        }
        if self.cancel.as_ref().is_some_and(CancelToken::is_cancelled) {
            return Err(Error::new(ErrorKind::Cancelled));
        }
        self.connection.begin_turn();
        Ok(())
    }

    fn wait_for(&mut self, want: Want, until: Option<Instant>) -> Result<(), Error> {
        if !self.before_wait(want, true)? {
            return Ok(());
        }
        let began = Instant::now();
        let arrived = self.wait(want, until);
        self.after_wait(want, began.elapsed(), arrived)
    }

    /// Prepares a wait. Returns false if it is not needed.
    #[inline]
    fn before_wait(&mut self, want: Want, may_spin: bool) -> Result<bool, Error> {
        match want {
            Want::Message => self.before_message(may_spin),
            Want::Room => self.before_room().map(|()| true),
        }
    }

    #[inline]
    fn before_message(&mut self, may_spin: bool) -> Result<bool, Error> {
        if self.exited {
            if self.connection.read_socket_next() {
                // The socket may have its last message.
                return Ok(false);
            }
            return Err(Error::new(ErrorKind::Died { status: None }));
        }
        // An earlier call that does not wait may have queued something.
        self.connection.flush_before_receiving()?;
        if !self.connection.waits_for_socket() {
            if may_spin {
                let connection = &self.connection;
                let spun = self.spin.until(|| connection.has_records());
                self.connection.stats.received.spun += spun;
                self.connection.stats.received.blocked += spun;
            }
            if self.connection.has_records() {
                return Ok(false);
            }
        }
        Ok(self.connection.fall_asleep())
    }

    /// Returns an error if there can never be room.
    fn before_room(&self) -> Result<(), Error> {
        if self.exited {
            return Err(Error::new(ErrorKind::Died { status: None }));
        }
        let most = self.connection.limits.max_backlog_bytes;
        if self.connection.end.arrived().len() >= most {
            return Err(Error::new(ErrorKind::Backlog { most }));
        }
        Ok(())
    }

    /// Ends a wait that took this long.
    #[inline]
    fn after_wait(
        &mut self,
        want: Want,
        slept: Duration,
        arrived: Result<bool, Error>,
    ) -> Result<(), Error> {
        match want {
            Want::Message => {
                self.connection.wake_up(slept);
                self.connection.stats.received.blocked += slept;
                self.spin.note_sleep(slept);
                arrived.map(drop)
            }
            Want::Room => {
                self.connection.stats.sent.blocked += slept;
                // The other side may be waiting for room as well: keep what it has sent.
                if arrived? { self.read_backlog() } else { Ok(()) }
            }
        }
    }

    fn read_backlog(&mut self) -> Result<(), Error> {
        let most = self.connection.limits.max_backlog_bytes;
        while let Arrived::Bytes { .. } = self.connection.end.receive(most)? {}
        Ok(())
    }

    /// Waits for the socket, the exit of the child, the cancel token and the deadline. Returns true if something has
    /// arrived.
    fn wait(&mut self, want: Want, until: Option<Instant>) -> Result<bool, Error> {
        let alone = self.child.is_none() && self.cancel.is_none() && until.is_none();
        if alone && !self.wants_room(want) && !self.connection.end.has_ended() {
            self.connection.end.wait_and_receive()?;
            return Ok(true);
        }
        let mut slots = self.slots(want)?;
        let done = wait::any(&mut slots, until).map_err(Error::cannot(WAIT))?;
        let slots = slots.map(Slot::detach);
        self.note_wait(want, slots, done)
    }

    fn wants_room(&self, want: Want) -> bool {
        matches!(want, Want::Room) || self.connection.unsent() > 0
    }

    /// Returns the slots of a wait.
    fn slots(&self, want: Want) -> Result<Slots<'_>, Error> {
        let end = &self.connection.end;
        let arrival = if end.has_ended() { Slot::Off } else { Slot::Event(end) };
        let room = if self.wants_room(want) { Slot::Room(end) } else { Slot::Off };
        let exit = match &self.child {
            Some(child) if !self.exited => Slot::Event(child.child_handle()),
            _ => Slot::Off,
        };
        let cancel = match &self.cancel {
            Some(token) => Slot::Event(token.wake().map_err(Error::cannot(WATCH_TOKEN))?),
            None => Slot::Off,
        };
        Ok([arrival, room, exit, cancel])
    }

    /// Evaluates a wait. Returns true if something has arrived.
    fn note_wait(&mut self, want: Want, slots: Slots<'static>, done: usize) -> Result<bool, Error> {
        let [arrival, _, exit, cancel] = slots.map(|slot| matches!(slot, Slot::EventDone));
        // Not an error yet: the socket and the ring have what it sent before.
        self.exited |= exit;
        if done == 0 {
            return Err(self.timed_out(want));
        }
        if let (true, Some(token)) = (cancel, &self.cancel) {
            if token.is_cancelled() {
                return Err(Error::new(ErrorKind::Cancelled));
            }
            // The wake-up was for a signal to another child.
            token.take_signals();
        }
        Ok(arrival)
    }

    fn timed_out(&self, want: Want) -> Error {
        let waiting_for = match want {
            Want::Message => "a message",
            Want::Room => "the other side to read",
        };
        Error::timed_out(waiting_for, Peer::of(self.child.as_ref()))
    }
}

// The same for tasks of a tokio runtime: only the wait differs.

#[cfg(feature = "tokio")]
impl Core {
    /// Like [`drive`](Self::drive), without blocking a thread.
    pub(super) async fn drive_async(
        &mut self,
        until: Option<Instant>,
        mut step: impl FnMut(&mut Connection) -> Result<StepResult, Error>,
    ) -> Result<(), Error> {
        // A future that was dropped may have left the connection asleep.
        self.connection.wake_up(Duration::ZERO);
        loop {
            let waited = match step(&mut self.connection) {
                Ok(StepResult::Done) => return Ok(()),
                Ok(StepResult::Blocked(want)) if self.connection.turn_is_over() => {
                    let_others_run().await;
                    self.next_turn(want, until)
                }
                Ok(StepResult::Blocked(want)) => self.wait_for_async(want, until).await,
                Err(error) => Err(error),
            };
            if let Err(error) = waited {
                return Err(process::explain_async(error, self.child.as_ref(), until).await);
            }
        }
    }

    /// Like [`send`](Self::send), for plain messages.
    pub(super) async fn send_async(
        &mut self,
        payload: Payload<'_>,
        until: Option<Instant>,
    ) -> Result<(), Error> {
        let mut sending = Sending::new(kind::MESSAGE, 0);
        let step = |connection: &mut Connection| sending.step(connection, payload);
        let sent = self.drive_async(until, step).await;
        sent.inspect_err(|_| sending.abandon(&mut self.connection))
    }

    /// Like [`close`](Self::close).
    pub(super) async fn close_async(&mut self) -> Result<Option<ExitStatus>, Error> {
        let (until, mut closing) = (self.close_deadline(), Closing::default());
        let closed = self.drive_async(until, |connection| closing.step(connection)).await;
        closing.check(closed)?;
        let Some(child) = &self.child else { return Ok(None) };
        self.exit_status(process::wait_for_exit_async(child, until).await)
    }

    async fn wait_for_async(&mut self, want: Want, until: Option<Instant>) -> Result<(), Error> {
        if !self.before_wait(want, false)? {
            return Ok(());
        }
        let began = Instant::now();
        let arrived = self.wait_async(want, until).await;
        self.after_wait(want, began.elapsed(), arrived)
    }

    async fn wait_async(&mut self, want: Want, until: Option<Instant>) -> Result<bool, Error> {
        // Moved out, so that it can change while the rest is borrowed. Dropping the future drops it too.
        let mut watch = std::mem::take(&mut self.watch);
        let (slots, done) = std::future::poll_fn(|context| {
            let mut slots = match self.slots(want) {
                Ok(slots) => slots,
                Err(error) => return std::task::Poll::Ready(Err(error)),
            };
            let waited = watch.poll_wait(context, &mut slots, until);
            waited.map(|done| Ok((slots.map(Slot::detach), done.map_err(Error::cannot(WAIT))?)))
        })
        .await?;
        self.watch = watch;
        self.note_wait(want, slots, done)
    }
}

/// Lets other tasks of the runtime run.
#[cfg(feature = "tokio")]
async fn let_others_run() {
    let mut has_run = false;
    std::future::poll_fn(|context| {
        if std::mem::replace(&mut has_run, true) {
            return std::task::Poll::Ready(());
        }
        context.waker().wake_by_ref();
        std::task::Poll::Pending
    })
    .await;
}

/// The end of a connection: GOODBYE, then everything that the other side still sends.
#[derive(Debug, Default)]
struct Closing {
    /// GOODBYE was sent.
    said_goodbye: bool,
}

impl Closing {
    /// Goes on until the connection reports its end as an error.
    fn step(&mut self, connection: &mut Connection) -> Result<StepResult, Error> {
        if !self.said_goodbye {
            connection.send_goodbye()?;
            if let blocked @ StepResult::Blocked(_) = connection.flush()? {
                return Ok(blocked);
            }
            self.said_goodbye = true;
        }
        loop {
            if let blocked @ StepResult::Blocked(_) = connection.begin_plain()? {
                return Ok(blocked);
            }
        }
    }

    /// Returns `Ok` for the end of the connection after GOODBYE was sent.
    fn check(&self, closed: Result<(), Error>) -> Result<(), Error> {
        match closed {
            Err(error) if self.said_goodbye && error.is_disconnect() => Ok(()),
            closed => closed,
        }
    }
}
