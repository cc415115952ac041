//! What an operation brought, and whether it is what the child does.

use crate::Result;
use crate::request::Operation;

/// The length of a line of the child `lines`.
const LINE_BYTES: u64 = 9;

/// What an operation brought.
pub(crate) struct Seen {
    success: bool,
    output: Output,
}

enum Output {
    Nothing,
    Counted(u64),
    Kept(Vec<u8>),
    /// Nanoseconds, where they are not those from the start of the operation.
    Timed(u128),
}

impl Seen {
    pub(crate) fn ended(success: bool) -> Seen {
        Seen { success, output: Output::Nothing }
    }

    pub(crate) fn counted(success: bool, bytes: u64) -> Seen {
        Seen { success, output: Output::Counted(bytes) }
    }

    /// One more of many.
    pub(crate) fn add(&mut self, success: bool, more_bytes: usize) {
        self.success &= success;
        if let Output::Counted(bytes) = &mut self.output {
            *bytes += more_bytes as u64;
        }
    }

    /// What a last stage said that counts what it reads.
    pub(crate) fn told(success: bool, said: &[u8]) -> Result<Seen> {
        let bytes = std::str::from_utf8(said)?.trim().parse()?;
        Ok(Seen::counted(success, bytes))
    }

    pub(crate) fn kept(success: bool, bytes: Vec<u8>) -> Seen {
        Seen { success, output: Output::Kept(bytes) }
    }

    /// A line that said when it was written, and has been read now.
    pub(crate) fn stamp(line: &str) -> Result<Seen> {
        let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
        let now = i128::from(now.tv_sec) * 1_000_000_000 + i128::from(now.tv_nsec);
        let age = now - line.parse::<i128>()?;
        let age = u128::try_from(age).map_err(|_| "a line has come before it was written")?;
        Ok(Seen { success: true, output: Output::Timed(age) })
    }

    /// How long it took, where that is not the time of the whole operation.
    pub(crate) fn own_nanoseconds(&self) -> Option<u128> {
        match self.output {
            Output::Timed(nanoseconds) => Some(nanoseconds),
            _ => None,
        }
    }

    /// An error unless the child succeeded and all that it writes has come.
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
            return Err(format!("{bytes} bytes came instead of {expected_bytes}").into());
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
        Err("the bytes that came are not the child's".into())
    }
}

fn line(number: u64) -> String {
    format!("line {number:03}\n")
}
