//! The child process: the running program again, started with a hidden argument and a task.
//!
//! [`run_if_child`] looks for that argument before the program does anything else, so that such a child costs as
//! little as possible. The argument is not for people.

mod packets;
mod run;
mod task;
mod usage_line;
mod worker;

use std::ffi::OsString;
use std::io;

use crate::Error;

pub(crate) use packets::PacketSizes;
pub(crate) use run::echo;
pub(crate) use task::ChildTask;
pub(crate) use usage_line::parse_usage_line;
pub(crate) use worker::{channel_options, request};

/// The hidden argument.
pub(crate) const NAME: &str = "__bench-peer";

/// Does the task of a child process of a benchmark and returns its result; `None`: this process is not one.
///
/// Call it first in `main`, and exit if it returns a result. Benchmarks start the running program for processes
/// that write, read and answer.
///
/// # Errors
///
/// Wrong arguments, and a failed read or write.
#[must_use]
pub fn run_if_child() -> Option<Result<(), Error>> {
    let mut args = std::env::args_os().skip(1);
    if args.next()? != NAME {
        return None;
    }
    let words: Vec<OsString> = args.collect();
    let words: Vec<&str> = words.iter().filter_map(|word| word.to_str()).collect();
    let task = ChildTask::parse(&words).ok_or(io::ErrorKind::InvalidInput.into());
    Some(task.and_then(run::run).map_err(Error::Child))
}
