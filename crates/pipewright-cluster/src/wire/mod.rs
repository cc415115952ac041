//! The protocol between a batch (the *host*) and a worker on a node: docs/wire-batch.md.
//!
//! | file | contents |
//! |---|---|
//! | `frame.rs` | frames of a stream |
//! | `hello.rs` | the handshake: versions, and proofs of the secret |
//! | `message.rs` | the messages, and their encoding |
//! | `convert.rs` | attempts as messages, without what does not travel |

mod convert;
pub(crate) mod frame;
pub(crate) mod hello;
pub(crate) mod message;

pub(crate) use convert::{attempt_of, wire_attempt};
pub(crate) use frame::Frames;
pub(crate) use message::{About, Ended, FromWorker, Stream, ToWorker};
