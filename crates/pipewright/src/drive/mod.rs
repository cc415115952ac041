//! Sees a started child through to its end: feeds it, reads from it, stops it when told to.
//!
//! The rules know no system call and are shared by every way to run a child; the loop knows no
//! rule.
//!
//! | file | what |
//! |---|---|
//! | `conduct.rs` | when to stop, when to kill, when to give up reading: times and phases |
//! | `sink.rs` | what is kept of a stream |
//! | `tee.rs` | what is passed on to our own stream |
//! | `feed.rs` | what is fed to stdin, and how far it came |
//! | `front.rs` | a child in front of the terminal |
//! | `nap.rs` | when it pays not to look at once |
//! | `parked.rs` | the waits for a child that is waited for again and again |
//! | `reach.rs` | whom a stop reaches |
//! | `stream.rs` | one stream: read from, passed on, given up |
//! | `rest.rs` | what is left in a pipe that is given up |
//! | `run.rs` | one step of the loop: wait once for everything, do what that brought |
//! | `stepwise.rs` | the loop, taken apart for a caller who is handed what comes |
//! | `background.rs` | keeps the time of runs whose callers are away |
//! | `blocking.rs` | the loop on the calling thread |

mod background;
mod blocking;
mod conduct;
mod feed;
mod front;
mod nap;
mod parked;
mod reach;
mod rest;
mod run;
mod sink;
mod stepwise;
mod stream;
mod tee;

pub(crate) use background::{BACKGROUND, Background, Exits, Keeping, Kept, NextLook};
pub(crate) use blocking::see_through;
pub(crate) use conduct::earlier;
pub(crate) use feed::{Feed, read_chunk};
pub(crate) use front::{Front, OpenFront, open_front};
pub(crate) use parked::{Parked, Stop};
pub(crate) use reach::Reach;
pub(crate) use run::{Failed, Run, SLOTS};
pub(crate) use sink::Sink;
pub(crate) use stepwise::{Chunk, Decide, Stepwise};
pub(crate) use tee::{OpenTee, TeeTo, open_tee, open_tee_to};
