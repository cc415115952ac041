//! The files of a node's jobs, on the node: a thread stores what the host sends, and sends what it asks for.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, mpsc};
use std::thread;

use super::{Store, read_parts};
use crate::error::RemoteError;
use crate::outbox::{Lane, Outbox};
use crate::wire::{FilePart, FromWorker, Text};

/// An order of the host. They are bounded by its credit for files.
#[derive(Debug)]
pub(crate) enum FileOrder {
    Path(Text),
    Part(FilePart),
    StoreAll,
    Fetch(Vec<Text>),
}

/// The thread of a worker that stores and sends files.
#[derive(Debug)]
pub(crate) struct NodeFiles(mpsc::Sender<FileOrder>);

impl NodeFiles {
    /// Starts the thread. It ends with the last order after a drop.
    ///
    /// # Errors
    /// No more threads are available.
    pub(crate) fn start(outbox: Arc<Outbox>) -> io::Result<NodeFiles> {
        let (sender, orders) = mpsc::channel();
        thread::Builder::new().name("files".to_owned()).stack_size(256 << 10).spawn(move || {
            let mut storing =
                Storing { outbox, path: None, store: Store::default(), failure: None };
            // A path that is none, or a message that is too long, is of a host that is no host.
            while orders.recv().is_ok_and(|order| storing.carry_out(order).is_ok()) {}
        })?;
        Ok(NodeFiles(sender))
    }

    /// Returns one that stores nothing.
    #[cfg(fuzzing)]
    pub(crate) fn ignored() -> NodeFiles {
        NodeFiles(mpsc::channel().0)
    }

    pub(crate) fn push(&self, order: FileOrder) {
        // Ignored: it has ended with the connection.
        let _ = self.0.send(order);
    }
}

struct Storing {
    outbox: Arc<Outbox>,
    path: Option<PathBuf>,
    store: Store,
    /// The first failure since the last `StoreAll`.
    failure: Option<String>,
}

impl Storing {
    fn carry_out(&mut self, order: FileOrder) -> Result<(), RemoteError> {
        match order {
            FileOrder::Path(path) => self.path = Some(path.into_os()?.into()),
            FileOrder::Part(part) => {
                let cost = part.cost();
                let path = self.path.as_deref().unwrap_or(Path::new(""));
                // Another node gets what is lost in a power cut.
                let is_over = matches!(part, FilePart::End(Some(_)));
                if let Some(Err(failure)) = self.store.add(part, path, "write", false) {
                    self.failure.get_or_insert(failure);
                }
                if is_over {
                    // The host has given up the attempt, and sends the files of the next one.
                    self.failure = None;
                }
                self.outbox.allow(Lane::Sent, cost);
            }
            FileOrder::StoreAll => self.outbox.send(&FromWorker::Stored(self.failure.take()))?,
            FileOrder::Fetch(paths) => {
                for path in paths {
                    let path = PathBuf::from(path.into_os()?);
                    if let Err(error) = read_parts(&path, |part| self.send(part)) {
                        self.send(FilePart::End(Some(error.to_string())));
                    }
                }
            }
        }
        Ok(())
    }

    fn send(&self, part: FilePart) -> bool {
        let cost = part.cost();
        self.outbox.send_part(Lane::Fetched, cost, &FromWorker::File(part))
    }
}
