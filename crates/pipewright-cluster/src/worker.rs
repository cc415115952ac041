//! The worker: runs the attempts that a host sends it, on this node.
//!
//! Five threads: one runs the jobs, one stores and sends files, one reads orders, one writes what is to be reported,
//! and one watches the lease. The first two may wait for a slow host; the other three never do.

use std::collections::{HashMap, VecDeque};
use std::error::Error;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use pipewright::Source;
use pipewright_batch::{
    Attempt, AttemptEnd, AttemptKey, AttemptOutcome, Executor, ExecutorEvent, Local, NodeWriter,
    OutputSink,
};

use crate::error::RemoteError;
use crate::files::{FileOrder, NodeFiles};
use crate::lease::{BEAT, LEASE, Lease};
use crate::outbox::{Lane, Outbox};
use crate::program::Program;
use crate::sealed::Secret;
use crate::wire::hello::greet_host;
use crate::wire::{self, About, Ended, Frames, FromWorker, Stream, ToWorker, WireAttempt, parse};

/// The variable with the secret, for systems that pass variables to nodes but no files. Jobs do not get it.
pub const SECRET_VARIABLE: &str = "PIPEWRIGHT_BATCH_SECRET";

/// The time for a connection to the host, and then for the handshake.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// The time for which the end of a job by a signal, or by a code that a shell makes of one, is held back. An engine
/// that ends an allocation sends SIGTERM to the jobs and to the worker, in any order, and the host has to hear first
/// that the node is asked to end.
const HOLD: Duration = Duration::from_millis(250);

/// The same for any other failure, which may be that of a handler of SIGTERM. Most are none, and wait for nothing.
const SHORT_HOLD: Duration = Duration::from_millis(50);

/// The time that a worker has to end after its host has told it to.
const END_TIME: Duration = Duration::from_secs(60);

/// A worker on this node. The tool runs it as `pipewright worker`.
#[derive(Debug)]
pub struct Worker {
    node: String,
    slots: u32,
}

/// A handle that asks the host to start nothing more on this node.
#[derive(Debug, Clone)]
pub struct Drain(Arc<Outbox>);

impl Drain {
    /// Asks for it. The jobs that run go on.
    pub fn drain(&self, reason: &str) {
        // A short text is never too long.
        let _ = self.0.send(&FromWorker::Draining(reason.to_owned()));
    }
}

/// The functions that a worker calls. They come from its program, because they concern the whole process.
pub struct Hooks {
    /// Called when the host is lost, and jobs may run. Has to end this process at once, so that the holders of the
    /// trees kill them.
    pub lost: Box<dyn Fn(&RemoteError) + Send + Sync>,
    /// Called when the host has accepted the worker.
    pub accepted: Box<dyn FnOnce(Drain)>,
    /// Called with the time for which the host is known to count on this worker, whenever that is extended. After it,
    /// no job may run here, even if this process hangs.
    pub leased: Box<dyn Fn(Duration) + Send>,
}

impl std::fmt::Debug for Hooks {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Hooks").finish_non_exhaustive()
    }
}

/// A source of the secret.
#[derive(Debug)]
pub enum SecretSource {
    /// The first line of a file.
    File(PathBuf),
    /// The variable [`SECRET_VARIABLE`].
    Environment,
}

impl Worker {
    /// Creates a worker that runs up to this many jobs at once.
    #[must_use]
    pub fn new(node: String, slots: u32) -> Worker {
        Worker { node, slots: slots.max(1) }
    }

    /// Checks that this process runs the program which the host has copied here: the one of that hash.
    ///
    /// # Errors
    /// It is another one, or its file cannot be read.
    pub fn check_program(hash: &str) -> Result<(), RemoteError> {
        match Program::own_hash()? == hash {
            true => Ok(()),
            false => Err(RemoteError::Command(
                "the copy of the program on the node is not the one of the batch: \
                 remove it from the cache folder there"
                    .to_owned(),
            )),
        }
    }

    /// Connects to the host at the first address that answers, and runs what it sends until it ends the connection.
    ///
    /// # Errors
    /// The host cannot be reached, is another program, or does not know the secret.
    pub fn connect(
        self,
        addresses: &[std::net::SocketAddr],
        secret: &SecretSource,
        hooks: Hooks,
    ) -> Result<(), RemoteError> {
        let secret = match secret {
            SecretSource::File(path) => Secret::read(path)?,
            SecretSource::Environment => {
                let text = std::env::var_os(SECRET_VARIABLE).unwrap_or_default();
                let text = zeroize::Zeroizing::new(text.into_encoded_bytes());
                Secret::parse(&text)?
            }
        };
        let mut failure = RemoteError::Closed;
        for address in addresses {
            match TcpStream::connect_timeout(address, CONNECT_TIMEOUT) {
                Ok(stream) => return self.serve_tcp(stream, secret, hooks),
                Err(error) => failure = error.into(),
            }
        }
        Err(failure)
    }

    fn serve_tcp(self, stream: TcpStream, secret: Secret, hooks: Hooks) -> Result<(), RemoteError> {
        crate::outbox::configure(&stream)?;
        stream.set_read_timeout(Some(CONNECT_TIMEOUT))?;
        let session = greet_host(&mut &stream, &mut &stream, Some(&secret))?;
        drop(secret);
        stream.set_read_timeout(None)?;
        // There are keys, because there was a secret.
        let session = session.ok_or(RemoteError::WrongSecret)?;
        self.serve(session.reader(stream.try_clone()?), session.writer(stream), hooks)
    }

    /// Runs what the host at the other end of these streams sends. They have no secret: the program that started this
    /// process has them.
    ///
    /// # Errors
    /// The other side is no host, or another program.
    pub fn over(
        self,
        mut reader: impl Read + Send + 'static,
        mut writer: impl Write + Send + 'static,
        hooks: Hooks,
    ) -> Result<(), RemoteError> {
        greet_host(&mut reader, &mut writer, None)?;
        self.serve(reader, writer, hooks)
    }

    fn serve(
        self,
        mut reader: impl Read + Send + 'static,
        mut writer: impl Write + Send + 'static,
        hooks: Hooks,
    ) -> Result<(), RemoteError> {
        let Hooks { lost, accepted, leased: extend } = hooks;
        let lost: Arc<dyn Fn(&RemoteError) + Send + Sync> = Arc::from(lost);
        let outbox = Outbox::new();
        let lease = Arc::new(Lease::new(BEAT, LEASE));
        outbox.send(&FromWorker::About(About { node: self.node, slots: self.slots }))?;

        let (leased, expire) = (Arc::clone(&lease), Arc::clone(&lost));
        spawn("lease", move || {
            if leased.wait_for_end() {
                expire(&RemoteError::Silent(LEASE));
            }
        })?;
        let (sending, beating, fail) = (Arc::clone(&outbox), Arc::clone(&lease), Arc::clone(&lost));
        let writing = spawn("writer", move || {
            if let Err(error) = sending.write_to(&mut writer, Some(&beating)) {
                fail(&error.into());
            }
        })?;

        let mut frames = Frames::default();
        let settings = match next_order(&mut frames, &mut reader)? {
            ToWorker::Settings(settings) => settings,
            _ => return Err(RemoteError::Garbled("no settings")),
        };
        let mut local = Local::new(settings);
        let inbox = Arc::new(Inbox::new(local.waker()?));
        extend(lease.left());
        accepted(Drain(Arc::clone(&outbox)));
        let (orders, told) = (Arc::clone(&inbox), Arc::clone(&lease));
        let credited = Arc::clone(&outbox);
        let files = NodeFiles::start(Arc::clone(&outbox))?;
        spawn("reader", move || {
            let read = read_orders(frames, reader, &orders, &files, &told, &extend, &credited);
            if let Err(error) = read {
                lost(&error);
            }
        })?;

        run(&mut local, &inbox, &outbox)?;
        // Kills what runs. Nothing should: the host has waited for its jobs.
        drop(local);
        outbox.send(&FromWorker::Bye)?;
        outbox.close();
        // A panic of that thread has nothing to tell any more.
        let _ = writing.join();
        lease.release();
        Ok(())
    }
}

fn spawn(
    name: &str,
    run: impl FnOnce() + Send + 'static,
) -> Result<thread::JoinHandle<()>, RemoteError> {
    thread::Builder::new()
        .name(name.to_owned())
        .stack_size(256 << 10)
        .spawn(run)
        .map_err(RemoteError::Io)
}

/// Reads one message.
fn next_order(frames: &mut Frames, reader: &mut impl Read) -> Result<ToWorker, RemoteError> {
    loop {
        if let Some(body) = frames.next()? {
            return parse(body);
        }
        if !frames.fill(reader)? {
            return Err(RemoteError::Closed);
        }
    }
}

/// Reads orders until the host ends the batch. The end of the stream before that is an error.
fn read_orders(
    mut frames: Frames,
    mut reader: impl Read,
    inbox: &Inbox,
    files: &NodeFiles,
    lease: &Lease,
    extend: &dyn Fn(Duration),
    outbox: &Outbox,
) -> Result<(), RemoteError> {
    loop {
        match next_order(&mut frames, &mut reader)? {
            ToWorker::Start(attempt) => inbox.push(Order::Start(attempt)),
            ToWorker::Stop(key) => inbox.push(Order::Stop(key)),
            ToWorker::Begin(key) => inbox.push(Order::Begin(key)),
            ToWorker::Seen(beat) => {
                lease.seen(beat);
                extend(lease.left());
            }
            ToWorker::Credit(bytes) => outbox.add_credit(Lane::Output, bytes),
            ToWorker::FileCredit(bytes) => outbox.add_credit(Lane::Fetched, bytes),
            ToWorker::Path(path) => files.push(FileOrder::Path(path)),
            ToWorker::File(part) => files.push(FileOrder::Part(part)),
            ToWorker::StoreAll => files.push(FileOrder::StoreAll),
            ToWorker::Fetch(paths) => files.push(FileOrder::Fetch(paths)),
            ToWorker::End => {
                // A host that does not wait needs no answer.
                lease.release();
                extend(END_TIME);
                outbox.add_credit(Lane::Output, u64::MAX);
                inbox.push(Order::End);
                return Ok(());
            }
            ToWorker::Settings(_) => return Err(RemoteError::Garbled("settings again")),
        }
    }
}

/// Carries out orders until the host ends the batch.
fn run(local: &mut Local, inbox: &Inbox, outbox: &Arc<Outbox>) -> Result<(), RemoteError> {
    let mut running = 0_usize;
    let mut writers = HashMap::new();
    let mut held: Vec<(Instant, Ended)> = Vec::new();
    loop {
        let now = Instant::now();
        while let Some(at) = held.iter().position(|(due, _)| *due <= now) {
            let (_, end) = held.remove(at);
            outbox.send(&FromWorker::Ended(Box::new(end)))?;
        }
        let until = held.iter().map(|(due, _)| *due).min();
        for order in inbox.take() {
            match order {
                Order::Start(attempt) => {
                    running += usize::from(start(local, *attempt, outbox, &mut writers)?);
                }
                Order::Stop(key) => local.stop(key),
                Order::Begin(key) => local.begin(key),
                Order::End => return Ok(()),
            }
        }
        if running == 0 {
            inbox.wait(until);
            continue;
        }
        if !inbox.enter_executor() {
            continue;
        }
        let event = local.next_event(until);
        inbox.leave_executor();
        match event? {
            Some(ExecutorEvent::Ended(end)) => {
                running -= 1;
                let written = writers.remove(&end.key).map(NodeWriter::finish);
                let hold = hold(&end.outcome);
                let message = Ended::new(*end, written);
                match hold {
                    Some(hold) => held.push((Instant::now() + hold, message)),
                    None => outbox.send(&FromWorker::Ended(Box::new(message)))?,
                }
            }
            Some(ExecutorEvent::Note(note)) => outbox.send(&FromWorker::Note(note))?,
            Some(ExecutorEvent::Displaced(key)) => outbox.send(&FromWorker::Displaced(key))?,
            Some(ExecutorEvent::Placed(key)) => outbox.send(&FromWorker::Placed(key))?,
            // What else there is concerns a batch.
            Some(_) | None => {}
        }
    }
}

/// Returns the time for which an end is held back.
fn hold(outcome: &AttemptOutcome) -> Option<Duration> {
    match outcome {
        AttemptOutcome::Signaled(_) => Some(HOLD),
        AttemptOutcome::Exited(code) if *code > 128 => Some(HOLD),
        other => other.may_be_told_to_end().then_some(SHORT_HOLD),
    }
}

/// Starts an attempt. Returns false if it has ended by that.
fn start(
    local: &mut Local,
    attempt: WireAttempt,
    outbox: &Arc<Outbox>,
    writers: &mut HashMap<AttemptKey, NodeWriter>,
) -> Result<bool, RemoteError> {
    let key = attempt.key;
    match prepare(attempt, outbox) {
        Ok((mut attempt, writer)) => {
            writers.extend(writer.map(|writer| (key, writer)));
            // Jobs do not see the secret, whatever their batch sets.
            attempt.env.retain(|(name, _)| name != SECRET_VARIABLE);
            attempt.env.push((SECRET_VARIABLE.into(), None));
            local.start(attempt);
            Ok(true)
        }
        Err(error) => {
            outbox.send(&FromWorker::Ended(Box::new(refused(key, error.to_string()))))?;
            Ok(false)
        }
    }
}

/// Returns the attempt of a message, and the writer of its files if it has some.
fn prepare(
    mut attempt: WireAttempt,
    outbox: &Arc<Outbox>,
) -> Result<(Attempt, Option<NodeWriter>), Box<dyn Error>> {
    let (key, is_live) = (attempt.key, attempt.is_live);
    let files = attempt.files.take();
    let writer = files.map(NodeWriter::create).transpose()?;
    let sink: Box<dyn OutputSink> = match &writer {
        Some(writer) => writer.sink(),
        None => Box::new(Sink { outbox: Arc::clone(outbox), key, is_live }),
    };
    Ok((wire::attempt_of(attempt, sink)?, writer))
}

fn refused(key: AttemptKey, reason: String) -> Ended {
    Ended::new(AttemptEnd::without_run(key, AttemptOutcome::NotStarted(reason)), None)
}

/// Reads orders from bytes, and returns the number of attempts that they would start.
#[cfg(fuzzing)]
pub(super) fn orders_of(bytes: &[u8], outbox: &Arc<Outbox>) -> usize {
    let (inbox, lease) = (Inbox::new(Box::new(|| {})), Lease::new(BEAT, LEASE));
    // Any error is right: the connection ends with it.
    let files = NodeFiles::ignored();
    let _ = read_orders(Frames::default(), bytes, &inbox, &files, &lease, &|_| {}, outbox);
    let sink = |key| Sink { outbox: Arc::clone(outbox), key, is_live: false };
    let starts = |order| match order {
        Order::Start(attempt) => {
            let key = attempt.key;
            wire::attempt_of(*attempt, Box::new(sink(key))).is_ok()
        }
        _ => false,
    };
    inbox.take().into_iter().filter_map(|order| starts(order).then_some(())).count()
}

/// An order.
#[derive(Debug)]
enum Order {
    Start(Box<WireAttempt>),
    Stop(AttemptKey),
    Begin(AttemptKey),
    End,
}

/// Makes an executor return from its wait.
type Waker = Box<dyn Fn() + Send + Sync>;

/// The inbox of a worker.
struct Inbox {
    state: Mutex<State>,
    arrived: Condvar,
    wake_executor: Waker,
}

#[derive(Default)]
struct State {
    orders: VecDeque<Order>,
    waits_in_executor: bool,
}

impl Inbox {
    fn new(wake_executor: Waker) -> Inbox {
        Inbox { state: Mutex::default(), arrived: Condvar::new(), wake_executor }
    }

    fn push(&self, order: Order) {
        let mut state = self.state();
        state.orders.push_back(order);
        let waits_in_executor = std::mem::take(&mut state.waits_in_executor);
        drop(state);
        match waits_in_executor {
            true => (self.wake_executor)(),
            false => self.arrived.notify_one(),
        }
    }

    /// Returns all orders that have arrived.
    fn take(&self) -> VecDeque<Order> {
        std::mem::take(&mut self.state().orders)
    }

    /// Waits until an order has arrived, but no longer than `until`.
    fn wait(&self, until: Option<Instant>) {
        let mut state = self.state();
        while state.orders.is_empty() {
            let left = until.map(|until| until.saturating_duration_since(Instant::now()));
            state = match left {
                Some(Duration::ZERO) => return,
                Some(left) => {
                    let waited = self.arrived.wait_timeout(state, left);
                    waited.unwrap_or_else(PoisonError::into_inner).0
                }
                None => self.arrived.wait(state).unwrap_or_else(PoisonError::into_inner),
            };
        }
    }

    /// Returns true if no order has arrived, so that the caller may wait in its executor, which the next order wakes.
    /// Call [`Self::leave_executor`] afterwards.
    fn enter_executor(&self) -> bool {
        let mut state = self.state();
        state.waits_in_executor = state.orders.is_empty();
        state.waits_in_executor
    }

    fn leave_executor(&self) {
        self.state().waits_in_executor = false;
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // The queue is consistent between calls.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Sends output to the host. Waits while the host is behind: then the jobs of this node wait for their readers, as they
/// would at a full pipe. Beats go on.
#[derive(Debug)]
struct Sink {
    outbox: Arc<Outbox>,
    key: AttemptKey,
    is_live: bool,
}

impl OutputSink for Sink {
    fn write(&mut self, stream: Source, bytes: &[u8]) {
        let stream = match stream {
            Source::Stderr => Stream::Stderr,
            _ => Stream::Stdout,
        };
        self.outbox.send_output(self.key, stream, bytes);
    }

    fn is_live(&self) -> bool {
        self.is_live
    }
}
