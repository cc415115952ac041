//! Batches on other machines: the jobs of a [`Batch`](pipewright_batch::Batch) run behind ssh, in containers, or on
//! Slurm.
//!
//! Start at [`Nodes`]. docs/cluster.md is the tutorial of the tool, and says what happens to the jobs of a node that is
//! lost.
//!
//! A program that runs such batches is the [`Worker`] on each node, too. A node gets a copy of it ([`Nodes::via`]) or
//! has it ([`Nodes::worker_path`]), and starts it with the words `worker --stdio`, `--slots N` with
//! [`Nodes::slots_per_node`], and `--sum HASH` for a copy, which [`Worker::check_program`] checks. On Slurm a worker
//! connects by itself: `worker`, `--connect ADDRESS` for each address, `--secret-file FILE` ([`Worker::connect`]).
//! `pipewright worker` knows them all.
//!
//! ```
//! use std::io::{stdin, stdout};
//!
//! use pipewright_batch::{Batch, Job};
//! use pipewright_cluster::{Hooks, Nodes, Worker};
//!
//! fn main() -> Result<(), Box<dyn std::error::Error>> {
//!     if std::env::args().nth(1).as_deref() == Some("worker") {
//!         let hooks = Hooks {
//!             // The jobs end with this process.
//!             lost: Box::new(|_| std::process::exit(125)),
//!             accepted: Box::new(drop),
//!             leased: Box::new(drop),
//!         };
//!         return Ok(Worker::new("n1".to_owned(), 2).over(stdin(), stdout(), hooks)?);
//!     }
//!     // `ssh n1`, `docker exec -i c`, `kubectl exec -i pod --`; with `env` the node is this machine.
//!     let nodes = Nodes::new().worker_path(std::env::current_exe()?).via(["env"]);
//!     let summary = Batch::new().nodes(nodes).run(["true", "false"].map(Job::new))?;
//!     assert_eq!((summary.succeeded, summary.failed), (1, 1));
//!     Ok(())
//! }
//! ```
//!
//! | file | contents |
//! |---|---|
//! | `host/` | the executor of a batch, and its connections |
//! | `slurm/` | allocations of Slurm |
//! | `worker.rs` | the program on a node |
//! | `wire/` | the messages between both |
//! | `files/` | files that jobs get and leave |
//! | `outbox.rs` | the bytes that a connection is to send |
//! | `lease.rs` | the time after which a worker that hears nothing kills its jobs |
//! | `program.rs` | the program that nodes get a copy of |
//! | `sealed.rs` | the secret that both sides of a connection know, and its encrypted records |
//! | `error.rs` | the error type |
#![forbid(unsafe_code)]

mod error;
mod files;
#[cfg(fuzzing)]
#[doc(hidden)]
pub mod fuzzing;
mod host;
mod lease;
mod outbox;
mod program;
mod sealed;
mod slurm;
mod wire;
mod worker;

pub use error::RemoteError;
pub use host::{Nodes, Slurm};
pub use worker::{Drain, Hooks, SECRET_VARIABLE, SecretSource, Worker};

/// The examples of the README of this crate.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
