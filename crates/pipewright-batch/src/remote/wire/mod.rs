//! The protocol between a batch (the *host*) and a worker on a node: docs/wire-batch.md.
//!
//! | file | contents |
//! |---|---|
//! | `frame.rs` | frames of a stream |
//! | `hello.rs` | the handshake: versions, and proofs of the secret |
//! | `message.rs` | the messages, and their encoding |
//! | `convert.rs` | attempts and their ends as messages |

mod convert;
pub(crate) mod frame;
pub(crate) mod hello;
pub(crate) mod message;

pub(crate) use convert::{
    attempt_of, end_of, files_of, node_output, settings_of, wire_attempt, wire_end, wire_settings,
};
pub(crate) use frame::Frames;
pub(crate) use message::{About, FromWorker, Key, Stream, ToWorker};
