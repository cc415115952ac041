//! A connector, which connects a node, again and again: a thread for each.

use std::io::{Read, Write};
use std::sync::Arc;
use std::sync::atomic::AtomicU32;
use std::thread;
use std::time::Duration;

use pipewright_batch::LocalSettings;

use super::link::{self, Closer};
use super::reports::{Origin, Reports};
use crate::error::RemoteError;

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
fn keep_connected(reports: &Reports, settings: &LocalSettings, way: &impl Connect) {
    let (mut failures, mut has_joined) = (0, false);
    let notes = AtomicU32::new(0);
    while !reports.is_closed() {
        let served = match way.connect() {
            Ok(Connected { reader, writer, close }) => {
                link::serve(reports, reader, writer, settings, &close, way.origin(), &notes)
            }
            Err(error) => link::Served { has_joined: false, error: Some(error) },
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
