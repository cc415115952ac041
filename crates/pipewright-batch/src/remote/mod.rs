//! Batches on other machines: a worker on each node, and one protocol between it and the batch.
//!
//! | file | contents |
//! |---|---|
//! | `host/` | the executor of a batch, and its connections |
//! | `slurm/` | allocations of Slurm |
//! | `worker/` | the program on a node |
//! | `wire/` | the messages between both |
//! | `outbox.rs` | the bytes that a connection is to send |
//! | `lease.rs` | the time after which a worker that hears nothing kills its jobs |
//! | `program.rs` | the program that nodes get a copy of |
//! | `secret.rs` | the secret that both sides of a connection know |
//! | `sealed.rs` | the encrypted records of a connection with a secret |
//! | `tcp.rs` | connections |
//! | `error.rs` | the error type |

mod error;
#[cfg(fuzzing)]
pub mod fuzzing;
mod host;
mod lease;
mod outbox;
mod program;
mod sealed;
mod secret;
mod slurm;
mod tcp;
mod wire;
mod worker;

pub use error::RemoteError;
pub use host::{Nodes, Slurm};
pub use worker::{Drain, Hooks, SECRET_VARIABLE, SecretSource, Worker};
