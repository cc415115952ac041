//! A stream that passes handles, and shared memory, between two processes.

pub mod handle_channel;
pub mod shm;
