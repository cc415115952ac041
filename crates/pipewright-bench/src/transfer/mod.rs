//! Both sides of a transfer, set up and ready: threads, processes and workers that move blocks or messages.

mod messages;
mod round_trip;
mod stream_reader;
mod threads;
mod two_processes;

pub(crate) use messages::{ChannelEcho, MessageMethod, OneWay};
pub(crate) use round_trip::{RoundTrips, StreamEcho};
pub(crate) use threads::{OneThread, TwoThreads};
pub(crate) use two_processes::TwoProcesses;
