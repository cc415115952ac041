//! Sees a started child through to its end: feeds it, reads from it, stops it when told to.
//!
//! The rules know no system call and are shared by every way to run a child; the loop knows no
//! rule. `blocking.rs` is the loop on the calling thread.
//!
//! | file | what |
//! |---|---|
//! | `conduct.rs` | when to stop, when to kill, when to give up reading: times and phases |
//! | `sink.rs` | what is kept of a stream |
//! | `feed.rs` | what is fed to stdin, and how far it came |
//! | `nap.rs` | when it pays not to look at once |
//! | `reach.rs` | whom a stop reaches |
//! | `blocking.rs` | the loop |

mod blocking;
mod conduct;
mod feed;
mod nap;
mod reach;
mod sink;

pub(crate) use blocking::{Job, drive};
pub(crate) use feed::Feed;
pub(crate) use reach::Reach;
pub(crate) use sink::Sink;
