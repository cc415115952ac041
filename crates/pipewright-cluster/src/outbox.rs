//! The bytes that a connection is still to send, written by a thread of its own: nobody else waits for the network.

use std::io::{self, Write};
use std::net::TcpStream;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use pipewright_batch::AttemptKey;
use pipewright_os::host::network;
use serde::Serialize;

use crate::error::RemoteError;
use crate::lease::Lease;
use crate::wire::{self, FromWorker, Stream, ToWorker};

/// Bytes of output that a worker may send before the host has taken any; and of files, that each side may send.
const WINDOW_BYTES: u64 = 4 << 20;

/// Bytes of output in one message.
const PIECE_BYTES: usize = 128 << 10;

/// Room that a buffer keeps.
const KEPT_BYTES: usize = 1 << 20;

/// The bytes for which there is credit, each of its own: none holds up another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Lane {
    Output,
    /// Files for a node.
    Sent,
    /// Files of a node.
    Fetched,
}

/// The credit of a lane.
#[derive(Debug, Clone, Copy)]
struct Credit {
    /// Bytes that may still be sent, on the side that sends; on the other one, that may still arrive.
    left: u64,
    /// Credit that the other side has not been told of: a sum, so that one that does not read holds up no memory.
    owed: u64,
}

/// The outbox of a connection.
#[derive(Debug)]
pub(crate) struct Outbox {
    state: Mutex<State>,
    filled: Condvar,
    credited: Condvar,
}

#[derive(Debug)]
struct State {
    bytes: Vec<u8>,
    credit: [Credit; 3],
    /// The number of the last beat that arrived.
    seen: Option<u64>,
    /// The thread that writes waits for bytes.
    is_waiting: bool,
    is_closed: bool,
}

impl Outbox {
    pub(crate) fn new() -> Arc<Outbox> {
        let state = State {
            bytes: Vec::new(),
            credit: [Credit { left: WINDOW_BYTES, owed: 0 }; 3],
            seen: None,
            is_waiting: false,
            is_closed: false,
        };
        let (filled, credited) = (Condvar::new(), Condvar::new());
        Arc::new(Outbox { state: Mutex::new(state), filled, credited })
    }

    /// Sends a message. On a closed connection it is dropped.
    ///
    /// # Errors
    /// The message is too long. Nothing is sent then.
    pub(crate) fn send(&self, message: &impl Serialize) -> Result<(), RemoteError> {
        let mut state = self.state();
        if !state.is_closed {
            wire::append(&mut state.bytes, message)?;
            self.wake(state);
        }
        Ok(())
    }

    /// Sends output, and waits while the host has not taken what was sent before.
    pub(crate) fn send_output(&self, key: AttemptKey, stream: Stream, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let Some(mut state) = self.wait_for_credit(Lane::Output, 1) else { return };
            let left = &mut state.credit[Lane::Output as usize].left;
            let credit = usize::try_from(*left).unwrap_or(usize::MAX);
            let (piece, rest) = bytes.split_at(bytes.len().min(PIECE_BYTES).min(credit));
            *left -= piece.len() as u64;
            bytes = rest;
            // A piece is never too long.
            let _ = wire::append(&mut state.bytes, &FromWorker::Output(key, stream, piece));
            self.wake(state);
        }
    }

    /// Sends a message with a part of a file, and waits while the other side has not stored what was sent before.
    /// Returns false once the connection is closed.
    pub(crate) fn send_part(&self, lane: Lane, cost: u64, message: &impl Serialize) -> bool {
        let Some(mut state) = self.wait_for_credit(lane, cost) else { return false };
        state.credit[lane as usize].left -= cost;
        // A part is never too long.
        let _ = wire::append(&mut state.bytes, message);
        self.wake(state);
        true
    }

    /// Waits until that many bytes may be sent. Returns `None` once the connection is closed.
    fn wait_for_credit(&self, lane: Lane, bytes: u64) -> Option<MutexGuard<'_, State>> {
        let mut state = self.state();
        while state.credit[lane as usize].left < bytes && !state.is_closed {
            state = self.credited.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        (!state.is_closed).then_some(state)
    }

    /// Allows this many more bytes.
    pub(crate) fn add_credit(&self, lane: Lane, bytes: u64) {
        let mut state = self.state();
        let left = &mut state.credit[lane as usize].left;
        // The other side cannot allow more than there may be.
        *left = left.saturating_add(bytes).min(WINDOW_BYTES);
        drop(state);
        self.credited.notify_all();
    }

    /// Takes credit for bytes that have arrived. Returns false if they were more than was allowed.
    pub(crate) fn arrived(&self, lane: Lane, bytes: u64) -> bool {
        let mut state = self.state();
        let left = &mut state.credit[lane as usize].left;
        match left.checked_sub(bytes) {
            Some(rest) => {
                *left = rest;
                true
            }
            None => false,
        }
    }

    /// Sends credit for bytes that were taken.
    pub(crate) fn allow(&self, lane: Lane, bytes: u64) {
        let mut state = self.state();
        let credit = &mut state.credit[lane as usize];
        credit.left = credit.left.saturating_add(bytes);
        credit.owed = credit.owed.saturating_add(bytes);
        self.wake(state);
    }

    /// Names the beat that has arrived.
    pub(crate) fn name_beat(&self, number: u64) {
        let mut state = self.state();
        state.seen = Some(number);
        self.wake(state);
    }

    /// Returns the number of bytes that wait for a peer that does not read.
    pub(crate) fn waiting_bytes(&self) -> usize {
        self.state().bytes.len()
    }

    /// Sends what was there before, and nothing more.
    pub(crate) fn close(&self) {
        self.state().is_closed = true;
        self.filled.notify_all();
        self.credited.notify_all();
    }

    /// Writes all bytes until the outbox is closed, and a beat whenever one is due.
    ///
    /// # Errors
    /// The errors of the writer.
    pub(crate) fn write_to(
        &self,
        writer: &mut impl Write,
        lease: Option<&Lease>,
    ) -> io::Result<()> {
        let mut bytes = Vec::new();
        loop {
            let is_closed = self.take(&mut bytes, lease);
            writer.write_all(&bytes)?;
            writer.flush()?;
            if is_closed {
                return Ok(());
            }
            bytes.clear();
            bytes.shrink_to(KEPT_BYTES);
        }
    }

    /// Waits for bytes, or for a beat that is due, and takes them. Returns true if none will follow.
    fn take(&self, bytes: &mut Vec<u8>, lease: Option<&Lease>) -> bool {
        let mut state = self.state();
        loop {
            let now = Instant::now();
            let due = lease.map(Lease::next_beat);
            if let Some(lease) = lease.filter(|_| due.is_some_and(|due| due <= now)) {
                // A beat is never too long.
                let _ = wire::append(&mut state.bytes, &FromWorker::Beat(lease.beat(now)));
            }
            // Numbers are never too long.
            if let Some(number) = state.seen.take() {
                let _ = wire::append(&mut state.bytes, &ToWorker::Seen(number));
            }
            for lane in [Lane::Output, Lane::Sent, Lane::Fetched] {
                let owed = std::mem::take(&mut state.credit[lane as usize].owed);
                let _ = match lane {
                    _ if owed == 0 => Ok(()),
                    Lane::Output => wire::append(&mut state.bytes, &ToWorker::Credit(owed)),
                    Lane::Sent => wire::append(&mut state.bytes, &FromWorker::FileCredit(owed)),
                    Lane::Fetched => wire::append(&mut state.bytes, &ToWorker::FileCredit(owed)),
                };
            }
            if !state.bytes.is_empty() || state.is_closed {
                std::mem::swap(bytes, &mut state.bytes);
                return state.is_closed;
            }
            state.is_waiting = true;
            state = match due {
                Some(due) => {
                    let waited =
                        self.filled.wait_timeout(state, due.saturating_duration_since(now));
                    waited.unwrap_or_else(PoisonError::into_inner).0
                }
                None => self.filled.wait(state).unwrap_or_else(PoisonError::into_inner),
            };
            state.is_waiting = false;
        }
    }

    /// Waits for bytes, and takes them.
    #[cfg(test)]
    pub(crate) fn take_for_test(&self, bytes: &mut Vec<u8>) {
        self.take(bytes, None);
    }

    fn wake(&self, mut state: MutexGuard<'_, State>) {
        let is_waiting = std::mem::take(&mut state.is_waiting);
        drop(state);
        if is_waiting {
            self.filled.notify_one();
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // The state is consistent between calls.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Sets the options of a connection: messages leave at once, and those that are lost are sent again soon, because a
/// node that is not heard for some seconds is lost.
pub(crate) fn configure(stream: &TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    // Without it, a cut of the network loses a node sooner.
    network::resend_soon(stream).map(drop)
}

#[cfg(test)]
mod tests {
    use std::thread;
    use std::time::Duration;

    use super::*;
    use crate::wire::Frames;

    const KEY: AttemptKey = AttemptKey { job: 1, attempt: 1 };

    /// Returns the messages of some bytes, as text.
    fn messages(bytes: &[u8]) -> Vec<String> {
        let mut frames = Frames::default();
        let mut reader = bytes;
        while frames.fill(&mut reader).unwrap() {}
        let mut messages = Vec::new();
        while let Some(body) = frames.next().unwrap() {
            messages.push(format!("{:?}", wire::parse::<FromWorker<'_>>(body).unwrap()));
        }
        messages
    }

    #[test]
    fn messages_are_written_in_order_and_none_after_the_end() {
        let outbox = Outbox::new();
        for text in ["a", "b"] {
            outbox.send(&FromWorker::Note(text.to_owned())).unwrap();
        }
        outbox.close();
        outbox.send(&FromWorker::Note("c".to_owned())).unwrap();
        let mut written = Vec::new();
        outbox.write_to(&mut written, None).unwrap();
        assert_eq!(messages(&written), ["Note(\"a\")", "Note(\"b\")"]);
    }

    #[test]
    fn output_waits_for_credit() {
        let outbox = Outbox::new();
        let sent = vec![b'x'; 3 * WINDOW_BYTES as usize / 2];
        let (sending, all) = (Arc::clone(&outbox), sent.len());
        let sender = thread::spawn(move || sending.send_output(KEY, Stream::Stdout, &sent));
        let (mut taken, mut bytes) = (0, Vec::new());
        let count = |bytes: &[u8]| bytes.iter().filter(|byte| **byte == b'x').count();
        while taken < WINDOW_BYTES as usize {
            bytes.clear();
            outbox.take(&mut bytes, None);
            taken += count(&bytes);
        }
        assert_eq!(taken, WINDOW_BYTES as usize);
        assert!(!sender.is_finished());
        outbox.add_credit(Lane::Output, WINDOW_BYTES);
        while taken < all {
            bytes.clear();
            outbox.take(&mut bytes, None);
            taken += count(&bytes);
        }
        sender.join().unwrap();
    }

    #[test]
    fn a_file_that_waits_for_credit_holds_up_no_output_and_no_message() {
        let outbox = Outbox::new();
        let part = || wire::FilePart::Bytes(vec![b'f'; PIECE_BYTES]);
        let sending = Arc::clone(&outbox);
        let (sender, sent) = std::sync::mpsc::channel();
        let files = thread::spawn(move || {
            let send =
                || sending.send_part(Lane::Fetched, part().cost(), &FromWorker::File(part()));
            while send() {
                sender.send(()).unwrap();
            }
        });
        // As many as there is credit for: the next one waits.
        for _ in 0..WINDOW_BYTES / part().cost() {
            sent.recv().unwrap();
        }
        let mut bytes = Vec::new();
        outbox.take(&mut bytes, None);
        outbox.send_output(KEY, Stream::Stdout, b"output");
        outbox.send(&FromWorker::Note("note".to_owned())).unwrap();
        bytes.clear();
        outbox.take(&mut bytes, None);
        let messages = messages(&bytes);
        assert!(
            messages[0].starts_with("Output(") && messages[1] == "Note(\"note\")",
            "{messages:?}"
        );
        assert_eq!(messages.len(), 2);
        outbox.close();
        files.join().unwrap();
    }

    #[test]
    fn a_worker_that_beats_and_does_not_read_holds_up_no_memory() {
        let outbox = Outbox::new();
        for number in 1..=100_000 {
            outbox.name_beat(number);
            assert!(outbox.arrived(Lane::Output, 1));
            outbox.allow(Lane::Output, 1);
        }
        assert_eq!(outbox.waiting_bytes(), 0);
        let mut bytes = Vec::new();
        outbox.take(&mut bytes, None);
        let mut wanted = Vec::new();
        wire::append(&mut wanted, &ToWorker::Seen(100_000)).unwrap();
        wire::append(&mut wanted, &ToWorker::Credit(100_000)).unwrap();
        assert_eq!(bytes, wanted);
        assert!(outbox.arrived(Lane::Output, WINDOW_BYTES) && !outbox.arrived(Lane::Output, 1));
        assert!(outbox.arrived(Lane::Fetched, WINDOW_BYTES), "files have a credit of their own");
    }

    #[test]
    fn a_closed_outbox_holds_up_nobody() {
        let outbox = Outbox::new();
        let sending = Arc::clone(&outbox);
        let output = vec![0; 2 * WINDOW_BYTES as usize];
        let sender = thread::spawn(move || sending.send_output(KEY, Stream::Stderr, &output));
        outbox.close();
        sender.join().unwrap();
    }

    #[test]
    fn beats_are_sent_while_nothing_else_is() {
        let outbox = Outbox::new();
        let lease = Lease::new(Duration::from_millis(5), Duration::from_secs(60));
        let mut written = Vec::new();
        while messages(&written).len() < 3 {
            let mut bytes = Vec::new();
            outbox.take(&mut bytes, Some(&lease));
            written.extend_from_slice(&bytes);
        }
        assert_eq!(messages(&written), ["Beat(1)", "Beat(2)", "Beat(3)"]);
    }
}
