//! Runs up to millions of commands, some at the same time, with a log that survives any kill.
#![forbid(unsafe_code)]

mod job;
mod journal;
mod plan;
mod scheduler;
mod source;
