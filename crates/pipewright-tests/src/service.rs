//! A typed service, which the puppet serves; and others that differ from it.

use pipewright_ipc::service;
use pipewright_ipc::service::{Bytes, Context, Duplex, Input, Output};
use serde::{Deserialize, Serialize};

/// An error of a method.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum DivisionError {
    /// The divisor is 0.
    ByZero { dividend: i64 },
    /// The quotient is no `i64`.
    Overflow,
}

/// A service with a method of each kind.
#[service(version = 7)]
pub trait Probe {
    /// Returns the worker's process id.
    fn pid(&self) -> u32;

    fn divide(&self, dividend: i64, divisor: i64) -> Result<i64, DivisionError>;

    /// Adds to a sum, which a reset clears.
    fn add(&mut self, numbers: Vec<u64>) -> u64;

    /// Does nothing. The names of its arguments are those of the expansion's variables.
    fn nothing(&self, private: (), method: String, arguments: u8, call: u8, request: u8);

    fn panic(&self, message: String);

    #[idempotent]
    fn exit(&self, code: i32);

    /// Returns the bytes.
    fn echo(&self, bytes: Vec<u8>) -> Vec<u8>;

    /// Returns the bytes from there on, behind the prefix.
    fn cut(&self, prefix: Vec<u8>, bytes: Bytes, from: u32) -> Result<Bytes, String>;

    /// Sends the bytes in pieces.
    fn split(&self, bytes: Vec<u8>, size: u32, pieces: &mut Output<'_, Bytes>) -> Vec<u8>;

    /// Creates a file, and waits until it is cancelled.
    fn wait(&self, file: String, context: &mut Context<'_>) -> bool;

    /// Sends numbers.
    fn count_up(&self, to: u32, numbers: &mut Output<'_, u32>) -> String;

    /// Adds up numbers.
    fn sum(&self, start: u64, numbers: &mut Input<'_, u64>) -> Option<u64>;

    /// Returns each text with its number.
    fn number(&self, texts: &mut Duplex<'_, String, (u32, String)>, prefix: String) -> u32;
}

/// Services that are almost the same.
pub mod others {
    use pipewright_ipc::service;

    /// One of another version.
    #[service(name = "Probe", version = 8)]
    pub trait Version {
        /// Returns the worker's process id.
        fn pid(&self) -> u32;
    }

    /// One with other methods.
    #[service(name = "Probe", version = 7)]
    pub trait Methods {
        /// Returns the worker's process id.
        fn pid(&self) -> u32;
    }
}
