//! The standard input of a job.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// The standard input of a job.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum JobStdin {
    /// The null device.
    #[default]
    Null,
    /// These bytes, then the end of input.
    Bytes(#[serde(with = "bytes")] Vec<u8>),
    /// A file, opened when the job starts.
    File(#[serde(with = "path_bytes")] PathBuf),
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

/// Bytes travel as bytes, and not as a list of numbers.
mod bytes {
    use serde::{Deserialize, Deserializer, Serializer};

    pub(super) fn serialize<S: Serializer>(bytes: &[u8], to: S) -> Result<S::Ok, S::Error> {
        to.serialize_bytes(bytes)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<u8>, D::Error> {
        Vec::deserialize(from)
    }
}

/// Paths travel as the bytes of `OsStr::as_encoded_bytes`: both sides are the same program.
pub(crate) mod path_bytes {
    use std::path::{Path, PathBuf};

    use pipewright_os::base::os_text::from_encoded_bytes;
    use serde::{Deserialize, Deserializer, Serializer, de};

    pub(crate) fn serialize<S: Serializer>(path: &Path, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_bytes(path.as_os_str().as_encoded_bytes())
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<PathBuf, D::Error> {
        let path = from_encoded_bytes(Vec::deserialize(from)?);
        path.map(Into::into).map_err(|_| de::Error::custom("no path of this system"))
    }
}
