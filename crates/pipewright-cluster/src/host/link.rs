//! A connection to a worker, in which the thread that has greeted it reads, and another one writes; and a thread for
//! each node that connects it, again and again.

use std::io::{self, Read, Write};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::time::{Duration, Instant};
use std::{fmt, thread};

use pipewright_batch::LocalSettings;

use super::reports::{NodeId, Origin, Report, Reports};
use crate::error::RemoteError;
use crate::files::{HostFiles, Tell};
use crate::outbox::{Lane, Outbox};
use crate::wire::{Frames, FromWorker, ToWorker, parse};

/// The time for a worker that was greeted to tell its node.
pub(super) const JOIN_TIMEOUT: Duration = Duration::from_secs(if cfg!(test) { 3 } else { 30 });

/// Bytes that wait for a worker that does not read, beyond what is being written. Starts have inputs of some MiB.
const MOST_WAITING_BYTES: usize = 256 << 20;

/// The messages of a node that are shown, of all its connections through one command.
const MOST_NOTES: u32 = 1000;

/// The characters of each text of a node: its name, a message, a reason. They stay for as long as the batch, and are
/// in its log.
const MOST_TEXT_CHARS: usize = 1000;

/// Ends a connection at once.
pub(crate) type Closer = Arc<dyn Fn() + Send + Sync>;

/// A connection to a worker.
pub(crate) struct Link {
    pub(crate) outbox: Arc<Outbox>,
    pub(crate) files: Arc<HostFiles>,
    heard: Arc<Heard>,
    close: Closer,
    origin: Origin,
}

/// The time at which the last bytes arrived.
struct Heard(Mutex<Instant>);

impl Heard {
    fn get(&self) -> Instant {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn now(&self) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
    }
}

impl Link {
    /// Returns the origin of the node.
    pub(crate) fn origin(&self) -> Origin {
        self.origin
    }

    /// Sends a message.
    ///
    /// # Errors
    /// It is too long.
    pub(crate) fn send(&self, message: &ToWorker) -> Result<(), RemoteError> {
        self.outbox.send(message)
    }

    /// Allows this many more bytes of output.
    pub(crate) fn allow(&self, bytes: u64) {
        self.outbox.allow(Lane::Output, bytes);
    }

    /// Returns true if the worker takes no messages.
    pub(crate) fn is_stuck(&self) -> bool {
        self.outbox.waiting_bytes() > MOST_WAITING_BYTES
    }

    /// Returns the time at which the last bytes arrived.
    pub(crate) fn heard(&self) -> Instant {
        self.heard.get()
    }

    /// Ends the connection at once.
    pub(crate) fn close(&self) {
        self.outbox.close();
        (self.close)();
    }
}

impl fmt::Debug for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Link").finish_non_exhaustive()
    }
}

/// The end of a connection.
#[derive(Debug)]
pub(crate) struct Served {
    /// The worker had told its node.
    pub(crate) has_joined: bool,
    /// `None`: it ended in order.
    pub(crate) error: Option<RemoteError>,
}

/// Reads from a worker that has been greeted, until the connection ends.
pub(crate) fn serve(
    reports: &Arc<Reports>,
    reader: impl Read,
    mut writer: impl Write + Send + 'static,
    settings: &LocalSettings,
    close: &Closer,
    origin: Origin,
    notes: &AtomicU32,
) -> Served {
    let node = reports.next_node();
    let outbox = Outbox::new();
    let heard = Arc::new(Heard(Mutex::new(Instant::now())));
    let sending = Arc::clone(&outbox);
    let close_it = Arc::clone(close);
    let writing = thread::Builder::new().name(format!("to node {node}")).stack_size(128 << 10);
    let spawned = writing.spawn(move || {
        // The thread that reads reports the error: the connection ends for it, too.
        if sending.write_to(&mut writer, None).is_err() {
            close_it();
        }
    });
    let told = Arc::clone(reports);
    let tell: Tell = Arc::new(move |key, files, failure| {
        told.add([Report::Files { node, key, files, failure }]);
    });
    let files = Arc::new(HostFiles::new(Arc::clone(&outbox), tell));
    let link = Link {
        outbox: Arc::clone(&outbox),
        files: Arc::clone(&files),
        heard,
        close: Arc::clone(close),
        origin,
    };
    let greeting = close_unless_joined(Arc::clone(close));
    let has_joined = Arc::new(AtomicBool::new(false));
    close_at_end_unless_joined(reports, close, &has_joined);
    let mut reading = Reading {
        node,
        reports,
        outbox,
        files,
        link: Some(link),
        is_bye: false,
        is_draining: false,
        notes,
        greeting: None,
        has_joined,
    };
    let error = match spawned.and(greeting).map_err(RemoteError::from) {
        Ok(greeting) => {
            reading.greeting = Some(greeting);
            // Settings are never too long.
            let _ = reading.outbox.send(&ToWorker::Settings(settings.clone()));
            reading.read(reader).err()
        }
        Err(error) => Some(error),
    };
    reading.outbox.close();
    close();
    reading.files.close();
    reports.disconnect(node);
    let (has_joined, is_bye) = (reading.link.is_none(), reading.is_bye);
    let served = Served { has_joined, error: error.filter(|_| !is_bye) };
    if has_joined {
        let error = match (&served.error, is_bye) {
            (_, true) => None,
            (Some(error), _) => Some(RemoteError::Command(error.to_string())),
            (None, false) => Some(RemoteError::Closed),
        };
        reports.add([Report::Left { node, error }]);
    }
    served
}

/// Closes a connection that does not tell its node in time. A drop of the result ends that.
fn close_unless_joined(close: Closer) -> io::Result<mpsc::Sender<()>> {
    let (sender, joined) = mpsc::channel();
    let watch = move || {
        if joined.recv_timeout(JOIN_TIMEOUT) == Err(mpsc::RecvTimeoutError::Timeout) {
            close();
        }
    };
    thread::Builder::new().name("joining".to_owned()).stack_size(64 << 10).spawn(watch)?;
    Ok(sender)
}

/// Closes a connection that has not told its node when the batch ends, which waits for the thread that reads. One that
/// has is reported.
fn close_at_end_unless_joined(reports: &Reports, close: &Closer, has_joined: &Arc<AtomicBool>) {
    // Weak: it stays for as long as the batch, and holds no handle of a connection that is gone.
    let (close, has_joined) = (Arc::downgrade(close), Arc::clone(has_joined));
    reports.on_close(move || {
        if let Some(close) = close.upgrade().filter(|_| !has_joined.load(Ordering::SeqCst)) {
            close();
        }
    });
}

/// Returns the beginning of a text that a node sent.
fn bounded(text: String) -> String {
    match text.char_indices().nth(MOST_TEXT_CHARS) {
        // The rest of it gives its memory back.
        Some((end, _)) => text.get(..end).unwrap_or_default().to_owned(),
        None => text,
    }
}

/// The state of the thread that reads.
struct Reading<'a> {
    node: NodeId,
    reports: &'a Reports,
    outbox: Arc<Outbox>,
    files: Arc<HostFiles>,
    /// `None`: it was reported.
    link: Option<Link>,
    is_bye: bool,
    is_draining: bool,
    notes: &'a AtomicU32,
    /// Ends when the node is known.
    greeting: Option<mpsc::Sender<()>>,
    has_joined: Arc<AtomicBool>,
}

impl Reading<'_> {
    /// Reads until the end of the stream.
    fn read(&mut self, mut reader: impl Read) -> Result<(), RemoteError> {
        let mut frames = Frames::default();
        let heard = self.link.as_ref().map(|link| Arc::clone(&link.heard));
        let mut arrived = Vec::new();
        while frames.fill(&mut reader)? {
            heard.iter().for_each(|heard| heard.now());
            while let Some(body) = frames.next()? {
                let report = self.take(parse(body)?)?;
                arrived.extend(report);
            }
            // Those of one read together, so that the batch is woken once.
            if !arrived.is_empty() {
                self.reports.add_from_node(arrived.drain(..));
            }
        }
        match self.is_bye && !frames.is_in_frame() {
            true => Ok(()),
            false => Err(RemoteError::Closed),
        }
    }

    fn take(&mut self, message: FromWorker<'_>) -> Result<Option<Report>, RemoteError> {
        let node = self.node;
        // The node comes first, and once. A beat may come at any time.
        let is_in_order = match message {
            FromWorker::Beat(_) => true,
            FromWorker::About(_) => self.link.is_some(),
            _ => self.link.is_none(),
        };
        if !is_in_order {
            return Err(RemoteError::Garbled("its place"));
        }
        Ok(match message {
            FromWorker::About(mut about) => {
                about.node = bounded(about.node);
                let link = self.link.take().ok_or(RemoteError::Closed)?;
                self.greeting = None;
                self.has_joined.store(true, Ordering::SeqCst);
                match self.reports.join(node, about, link) {
                    true => None,
                    false => return Err(RemoteError::Closed),
                }
            }
            FromWorker::Output(key, stream, bytes) => {
                if !self.outbox.arrived(Lane::Output, bytes.len() as u64) {
                    return Err(RemoteError::Garbled("more output than was allowed"));
                }
                Some(Report::Output { node, key, stream, bytes: bytes.to_vec() })
            }
            FromWorker::Ended(mut end) => {
                end.bound_texts(bounded);
                Some(Report::Ended { node, end })
            }
            FromWorker::File(part) => {
                self.files.arrived(part.map_reason(bounded))?;
                None
            }
            FromWorker::Stored(failure) => {
                self.files.stored(failure.map(bounded))?;
                None
            }
            FromWorker::FileCredit(bytes) => {
                self.files.allowed(bytes);
                None
            }
            FromWorker::Displaced(key) => Some(Report::Displaced { node, key }),
            FromWorker::Placed(key) => Some(Report::Placed { node, key }),
            FromWorker::Note(text) => {
                match self.notes.fetch_add(1, Ordering::Relaxed).saturating_add(1) {
                    ..MOST_NOTES => Some(Report::Note { node: Some(node), text: bounded(text) }),
                    MOST_NOTES => {
                        let text = "further messages of it are not shown".to_owned();
                        Some(Report::Note { node: Some(node), text })
                    }
                    _ => None,
                }
            }
            // Once: it stays so.
            FromWorker::Draining(_) if std::mem::replace(&mut self.is_draining, true) => None,
            FromWorker::Draining(reason) => {
                Some(Report::Draining { node, reason: bounded(reason) })
            }
            FromWorker::Beat(number) => {
                self.outbox.name_beat(number);
                None
            }
            FromWorker::Bye => {
                self.is_bye = true;
                None
            }
        })
    }
}

/// The number of failures in a row after which a connector gives up: one that has never connected, and one that has.
const MOST_FAILURES: [u32; 2] = [3, 6];

/// The pause after the first failure. It doubles with each further one.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// A stream to a worker that has been greeted.
pub(crate) struct Connected {
    pub(crate) reader: Box<dyn Read>,
    pub(crate) writer: Box<dyn Write + Send>,
    pub(crate) close: Closer,
}

/// A way to a worker.
pub(crate) trait Connect: Send + 'static {
    /// Returns a name for messages.
    fn label(&self) -> String;

    /// Returns the origin of the node.
    fn origin(&self) -> Origin;

    /// Starts a worker, or reaches one, and greets it.
    ///
    /// # Errors
    /// The node cannot be reached, or is not usable.
    fn connect(&self) -> Result<Connected, RemoteError>;

    /// Releases what [`Self::connect`] has started, after its connection has ended. Returns what it said last.
    fn disconnected(&self) -> Option<String> {
        None
    }
}

/// Starts the thread of a connector.
///
/// # Errors
/// No more threads are available.
pub(crate) fn spawn(
    reports: &Arc<Reports>,
    settings: &LocalSettings,
    way: impl Connect,
) -> std::io::Result<thread::JoinHandle<()>> {
    reports.add_connector(way.origin());
    let (reports, settings) = (Arc::clone(reports), settings.clone());
    thread::Builder::new()
        .name("node".to_owned())
        .stack_size(256 << 10)
        .spawn(move || keep_connected(&reports, &settings, &way))
}

/// Connects until the batch ends, or until it is hopeless.
fn keep_connected(reports: &Arc<Reports>, settings: &LocalSettings, way: &impl Connect) {
    let (mut failures, mut has_joined) = (0, false);
    let notes = AtomicU32::new(0);
    while !reports.is_closed() {
        let served = match way.connect() {
            Ok(Connected { reader, writer, close }) => {
                serve(reports, reader, writer, settings, &close, way.origin(), &notes)
            }
            Err(error) => Served { has_joined: false, error: Some(error) },
        };
        let last_words = way.disconnected();
        let Some(error) = served.error else {
            // The node has ended by itself, in order: it was drained.
            return reports.give_up(way.origin(), way.label(), "it was drained".to_owned());
        };
        if reports.is_closed() {
            return;
        }
        // Another try would end in the same way.
        let is_final = matches!(
            error,
            RemoteError::Program { .. } | RemoteError::Protocol { .. } | RemoteError::WrongSecret
        );
        let error = match (error, last_words) {
            (error, None) => error.to_string(),
            (RemoteError::Closed | RemoteError::NotPipewright(_), Some(words)) => words,
            (error, Some(words)) => format!("{error}; {words}"),
        };
        has_joined |= served.has_joined;
        failures = if served.has_joined { 1 } else { failures + 1 };
        if is_final || failures >= MOST_FAILURES[usize::from(has_joined)] {
            return reports.give_up(way.origin(), way.label(), error);
        }
        let pause = FIRST_PAUSE.saturating_mul(1 << (failures - 1)).min(LONGEST_PAUSE);
        let again = pause.as_secs();
        reports.note(format!("{}: {error}; trying again in {again} s", way.label()));
        if !reports.pause(pause) {
            return;
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// Returns a link to nobody.
    pub(in super::super) fn to_nobody(origin: Origin) -> Link {
        let heard = Arc::new(Heard(Mutex::new(Instant::now())));
        let outbox = Outbox::new();
        let files = Arc::new(HostFiles::new(Arc::clone(&outbox), Arc::new(|_, _, _| {})));
        Link { outbox, files, heard, close: Arc::new(|| {}), origin }
    }
}
