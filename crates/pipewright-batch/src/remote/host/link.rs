//! A connection to a worker: the thread that has greeted it reads, and another one writes.

use std::fmt;
use std::io::{Read, Write};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Instant;

use super::reports::{NodeId, Report, Reports};
use crate::remote::error::RemoteError;
use crate::remote::outbox::Outbox;
use crate::remote::wire::message::{Settings, parse};
use crate::remote::wire::{Frames, FromWorker, ToWorker};

/// Ends a connection at once.
pub(crate) type Closer = Arc<dyn Fn() + Send + Sync>;

/// A connection to a worker.
pub(crate) struct Link {
    pub(crate) outbox: Arc<Outbox>,
    heard: Arc<Heard>,
    close: Closer,
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
    /// Sends a message.
    ///
    /// # Errors
    /// It is too long.
    pub(crate) fn send(&self, message: &ToWorker) -> Result<(), RemoteError> {
        self.outbox.send(message)
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
    reports: &Reports,
    reader: impl Read,
    mut writer: impl Write + Send + 'static,
    settings: &Settings,
    close: &Closer,
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
    let link = Link { outbox: Arc::clone(&outbox), heard, close: Arc::clone(close) };
    let mut reading = Reading { node, reports, outbox, link: Some(link), is_bye: false };
    let error = match spawned.map_err(RemoteError::from) {
        Ok(_) => {
            // Settings are never too long.
            let _ = reading.outbox.send(&ToWorker::Settings(settings.clone()));
            reading.read(reader).err()
        }
        Err(error) => Some(error),
    };
    reading.outbox.close();
    close();
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

/// The state of the thread that reads.
struct Reading<'a> {
    node: NodeId,
    reports: &'a Reports,
    outbox: Arc<Outbox>,
    /// `None`: it was reported.
    link: Option<Link>,
    is_bye: bool,
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
                self.reports.add(arrived.drain(..));
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
            FromWorker::About(about) => {
                let link = self.link.take().ok_or(RemoteError::Closed)?;
                match self.reports.join(node, about, link) {
                    true => None,
                    false => return Err(RemoteError::Closed),
                }
            }
            FromWorker::Output(key, stream, bytes) => {
                Some(Report::Output { node, key, stream, bytes: bytes.to_vec() })
            }
            FromWorker::Ended(end) => Some(Report::Ended { node, end }),
            FromWorker::Note(text) => Some(Report::Note { node: Some(node), text }),
            FromWorker::Draining(reason) => Some(Report::Draining { node, reason }),
            FromWorker::Beat(number) => {
                // A number is never too long.
                let _ = self.outbox.send(&ToWorker::Seen(number));
                None
            }
            FromWorker::Bye => {
                self.is_bye = true;
                None
            }
        })
    }
}
