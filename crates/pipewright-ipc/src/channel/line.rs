//! One connection, without any waiting: the socket and the ring behind one order of frames.
//!
//! A frame goes through the ring or through the socket, and the receiver has to take them in the order
//! in which they were sent. Each record of the ring says how many frames went through the socket before
//! it. So a record is next when as many have been taken; and a frame of the socket is next when no such
//! record is there, for those that were sent before it were in the ring before it was in the socket.

use std::time::Duration;

use pipewright_os::channel::handle_channel::End;
use pipewright_os::channel::shm::{Seen, Written};

use super::spin::Spin;
use crate::error::{Error, ErrorKind};
use crate::options::Options;
use crate::ring::Ring;
use crate::stats::Stats;

/// The ring as it is between two processes.
pub(crate) type SharedRing = Ring<Written, Seen>;

/// What the two sides have agreed on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Limits {
    /// The longest message.
    pub(crate) max_message_bytes: u64,
    /// Below this a message wakes who sleeps.
    pub(crate) threshold_bytes: usize,
    /// The most that is kept of what comes while we are blocked.
    pub(crate) max_backlog_bytes: usize,
}

/// One connection.
#[derive(Debug)]
pub(crate) struct Line {
    pub(crate) end: End,
    pub(crate) ring: Option<SharedRing>,
    pub(crate) limits: Limits,
    pub(super) outgoing: Outgoing,
    pub(super) incoming: super::incoming::Incoming,
    pub(super) room_spin: Spin,
    pub(super) stats: Stats,
}

/// What has been sent.
#[derive(Debug, Default)]
pub(super) struct Outgoing {
    /// Frames that went through the socket and have a place in the order.
    pub(super) through_socket: u64,
    /// A message was begun and will not be ended.
    pub(super) cut_off: bool,
    /// We have said that no more comes.
    pub(super) closed: bool,
}

impl Drop for Line {
    fn drop(&mut self) {
        if cfg!(feature = "tracing") {
            crate::trace::connection_ended(&self.stats());
        }
    }
}

impl Line {
    pub(crate) fn new(
        end: End,
        ring: Option<SharedRing>,
        limits: Limits,
        options: &Options,
        fallback: Option<String>,
    ) -> Line {
        let stats = Stats { shared_memory: ring.is_some(), fallback, ..Stats::default() };
        Line {
            end,
            ring,
            limits,
            outgoing: Outgoing::default(),
            incoming: Default::default(),
            // To wait for room is to wait for one copy of the other side: a fraction of a bound for
            // answers, which have to be thought of.
            room_spin: Spin::new(options.spin.min(Duration::from_micros(30))),
            stats,
        }
    }

    pub(crate) fn stats(&self) -> Stats {
        let mut stats = self.stats.clone();
        stats.sent.system_calls = self.end.calls().send;
        stats.received.system_calls = self.end.calls().receive;
        stats.sent.ring_high_water_bytes = self.ring.as_ref().map_or(0, |it| it.out.high_water());
        stats
    }

    /// Whether something may be sent at all.
    #[inline]
    pub(super) fn may_send(&self, bytes: u64) -> Result<(), Error> {
        if self.outgoing.cut_off {
            return Err(Error::new(ErrorKind::CutOff));
        }
        if self.outgoing.closed {
            return Err(Error::new(ErrorKind::Closed));
        }
        self.has_agreed_to(bytes)
    }

    /// Whether a message may be that long.
    #[inline]
    pub(crate) fn has_agreed_to(&self, bytes: u64) -> Result<(), Error> {
        let most = self.limits.max_message_bytes;
        if bytes > most {
            return Err(Error::new(ErrorKind::TooLong { bytes, most }));
        }
        Ok(())
    }
}
