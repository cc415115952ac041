//! The outcome of an operation, and its check against the child's known output.

use crate::Result;
use crate::request::Operation;

/// The length of a line of the child `lines`.
const LINE_BYTES: u64 = 9;

/// The outcome of an operation.
pub(crate) struct Outcome {
    success: bool,
    output: Output,
}

enum Output {
    Nothing,
    Counted(u64),
    Kept(Vec<u8>),
    /// Nanoseconds, if the time does not begin at the start of the operation.
    Timed(u128),
}

impl Outcome {
    pub(crate) fn exited(success: bool) -> Outcome {
        Outcome { success, output: Output::Nothing }
    }

    pub(crate) fn counted(success: bool, bytes: u64) -> Outcome {
        Outcome { success, output: Output::Counted(bytes) }
    }

    /// Adds the outcome of one more child.
    pub(crate) fn add(&mut self, success: bool, more_bytes: usize) {
        self.success &= success;
        if let Output::Counted(bytes) = &mut self.output {
            *bytes += more_bytes as u64;
        }
    }

    /// Returns the outcome of a pipeline whose last stage printed the number of bytes that it read.
    pub(crate) fn from_printed_count(success: bool, output: &[u8]) -> Result<Outcome> {
        let bytes = std::str::from_utf8(output)?.trim().parse()?;
        Ok(Outcome::counted(success, bytes))
    }

    pub(crate) fn kept(success: bool, bytes: Vec<u8>) -> Outcome {
        Outcome { success, output: Output::Kept(bytes) }
    }

    /// Returns the age of a line that contains its time of writing, and has just been read.
    pub(crate) fn from_timestamp(line: &str) -> Result<Outcome> {
        let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
        let now = i128::from(now.tv_sec) * 1_000_000_000 + i128::from(now.tv_nsec);
        let age = now - line.parse::<i128>()?;
        let age = u128::try_from(age).map_err(|_| "a line arrived before it was written")?;
        Ok(Outcome { success: true, output: Output::Timed(age) })
    }

    /// Returns the measured time, or `None` if it is the time of the whole operation.
    pub(crate) fn own_nanoseconds(&self) -> Option<u128> {
        match self.output {
            Output::Timed(nanoseconds) => Some(nanoseconds),
            _ => None,
        }
    }

    /// Fails unless the child succeeded and its output is complete.
    pub(crate) fn verify(&self, operation: Operation, expected_bytes: u64) -> Result<()> {
        if !self.success {
            return Err("the child did not succeed".into());
        }
        let bytes = match &self.output {
            Output::Nothing | Output::Timed(_) => 0,
            Output::Counted(bytes) => *bytes,
            Output::Kept(bytes) => bytes.len() as u64,
        };
        if bytes != expected_bytes {
            return Err(format!("received {bytes} bytes instead of {expected_bytes}").into());
        }
        let Output::Kept(bytes) = &self.output else {
            return Ok(());
        };
        let (first, last) = match operation {
            Operation::Capture => {
                (line(0), line((expected_bytes / LINE_BYTES).saturating_sub(1) % 1000))
            }
            _ => ("f".to_owned(), "f".to_owned()),
        };
        if bytes.starts_with(first.as_bytes()) && bytes.ends_with(last.as_bytes()) {
            return Ok(());
        }
        Err("received bytes that the child did not write".into())
    }
}

fn line(number: u64) -> String {
    format!("line {number:03}\n")
}
