//! The standard input of a job.

use std::path::PathBuf;

/// The standard input of a job.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum JobStdin {
    /// The null device.
    #[default]
    Null,
    /// These bytes, then the end of input.
    Bytes(Vec<u8>),
    /// A file, opened when the job starts.
    File(PathBuf),
}

impl JobStdin {
    /// Returns an input of these bytes.
    #[must_use]
    pub fn bytes(bytes: impl Into<Vec<u8>>) -> JobStdin {
        JobStdin::Bytes(bytes.into())
    }

    /// Returns an input from this file.
    #[must_use]
    pub fn file(path: impl Into<PathBuf>) -> JobStdin {
        JobStdin::File(path.into())
    }
}
