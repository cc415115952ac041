//! The outcome of an operation, and its check against the child's known output.

use crate::Result;
use crate::request::ChildOperation;

/// The length of a line of the child `lines`.
const LINE_BYTES: u64 = 9;

/// The outcome of an operation.
pub(crate) struct PeerOutcome {
    success: bool,
    output: KeptOutput,
}

enum KeptOutput {
    Nothing,
    Counted(u64),
    Kept(Vec<u8>),
    /// Nanoseconds, if the time does not begin at the start of the operation.
    Timed(u128),
}

impl PeerOutcome {
    pub(crate) fn exited(success: bool) -> PeerOutcome {
        PeerOutcome { success, output: KeptOutput::Nothing }
    }

    pub(crate) fn counted(success: bool, bytes: u64) -> PeerOutcome {
        PeerOutcome { success, output: KeptOutput::Counted(bytes) }
    }

    /// Adds the outcome of one more child.
    pub(crate) fn add(&mut self, success: bool, more_bytes: usize) {
        self.success &= success;
        if let KeptOutput::Counted(bytes) = &mut self.output {
            *bytes += more_bytes as u64;
        }
    }

    /// Returns the outcome of a pipeline whose last stage printed the number of bytes that it read.
    pub(crate) fn from_printed_count(success: bool, output: &[u8]) -> Result<PeerOutcome> {
        let bytes = std::str::from_utf8(output)?.trim().parse()?;
        Ok(PeerOutcome::counted(success, bytes))
    }

    pub(crate) fn kept(success: bool, bytes: Vec<u8>) -> PeerOutcome {
        PeerOutcome { success, output: KeptOutput::Kept(bytes) }
    }

    /// Returns the age of a line that contains its time of writing, and has just been read.
    pub(crate) fn from_timestamp(line: &str) -> Result<PeerOutcome> {
        let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
        let now = i128::from(now.tv_sec) * 1_000_000_000 + i128::from(now.tv_nsec);
        let age = now - line.parse::<i128>()?;
        let age = u128::try_from(age).map_err(|_| "a line arrived before it was written")?;
        Ok(PeerOutcome { success: true, output: KeptOutput::Timed(age) })
    }

    /// Returns the measured time, or `None` if it is the time of the whole operation.
    pub(crate) fn own_nanoseconds(&self) -> Option<u128> {
        match self.output {
            KeptOutput::Timed(nanoseconds) => Some(nanoseconds),
            _ => None,
        }
    }

    /// Fails unless the child succeeded and its output is complete.
    pub(crate) fn verify(&self, operation: ChildOperation, expected_bytes: u64) -> Result<()> {
        if !self.success {
            return Err("the child did not succeed".into());
        }
        let bytes = match &self.output {
            KeptOutput::Nothing | KeptOutput::Timed(_) => 0,
            KeptOutput::Counted(bytes) => *bytes,
            KeptOutput::Kept(bytes) => bytes.len() as u64,
        };
        if bytes != expected_bytes {
            return Err(format!("received {bytes} bytes instead of {expected_bytes}").into());
        }
        let KeptOutput::Kept(bytes) = &self.output else {
            return Ok(());
        };
        let (first, last) = match operation {
            ChildOperation::Capture => {
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
