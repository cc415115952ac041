//! Settings of the executor of this machine.

use std::time::Duration;

use pipewright::Signal;
use serde::{Deserialize, Serialize};

/// Settings of [`Local`](super::Local).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct LocalSettings {
    /// Processes that a stop reaches, and that may not outlive a job.
    pub contain: Containing,
    /// The signal that requests a stop.
    #[serde(with = "signal")]
    pub stop_signal: Signal,
    /// The time between that signal and the kill.
    pub kill_grace: Duration,
    /// The time without output after which an attempt is stopped.
    pub idle_timeout: Option<Duration>,
    /// The number of bytes of one stream after which an attempt is stopped.
    pub limit_bytes: Option<usize>,
    /// The time that a start may wait for room, if the machine has no process or handle left.
    pub room_timeout: Duration,
}

impl Default for LocalSettings {
    fn default() -> LocalSettings {
        LocalSettings {
            contain: Containing::Tree,
            stop_signal: Signal::TERM,
            kill_grace: Duration::from_secs(5),
            idle_timeout: None,
            limit_bytes: None,
            room_timeout: Duration::from_secs(10),
        }
    }
}

/// Processes that a stop reaches, and that may not outlive a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub enum Containing {
    /// Everything that the job starts. It is killed when the job ends, and when the batch is killed.
    Tree,
    /// The process group of the job. What outlives the job keeps running, and the batch's death kills the command only.
    Group,
}

/// Signals travel as their numbers.
mod signal {
    use pipewright::Signal;
    use serde::{Deserialize, Deserializer, Serializer, de};

    pub(super) fn serialize<S: Serializer>(signal: &Signal, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_i32(signal.number())
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Signal, D::Error> {
        let number = i32::deserialize(from)?;
        Signal::from_number(number).ok_or_else(|| de::Error::custom("no such signal"))
    }
}
