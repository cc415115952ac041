//! The one-line summary of a run.

use std::fmt;
use std::time::Duration;

use super::Ending;
use crate::outcome::Outcome;

impl fmt::Display for Ending {
    /// Writes the end of the run on one line: `exited with code 1 after 1.2s`, `killed by SIGKILL after 31ms`,
    /// `timed out after 2s, ended after 2.1s`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let elapsed = rounded(self.elapsed);
        match (self.outcome, self.exceeded) {
            (Outcome::Exited | Outcome::Signaled, _) => {
                match (self.status.code(), self.status.terminating_signal()) {
                    (Some(code), _) => write!(f, "exited with code {code}")?,
                    (None, Some(signal)) => write!(f, "killed by {signal}")?,
                    (None, None) => write!(f, "{}", self.status)?,
                }
                write!(f, " after {elapsed:?}")
            }
            (Outcome::OutOfMemory(oom), _) => write!(f, "{oom}, ended after {elapsed:?}"),
            (_, Some(exceeded)) => write!(f, "{exceeded}, ended after {elapsed:?}"),
            (stopped, None) => write!(f, "{stopped}, ended after {elapsed:?}"),
        }
    }
}

/// Rounds down to the precision that readers need: 0.1 s, a millisecond, or a microsecond.
fn rounded(time: Duration) -> Duration {
    let unit = match time.as_secs() {
        1.. => 100_000_000,
        0 if time.as_millis() >= 1 => 1_000_000,
        0 => 1_000,
    };
    let nanos = time.subsec_nanos() / unit * unit;
    Duration::new(time.as_secs(), nanos)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_cut_to_the_precision_that_readers_need() {
        let shown = |nanos| format!("{:?}", rounded(Duration::from_nanos(nanos)));
        assert_eq!(shown(1_234_567_890), "1.2s");
        assert_eq!(shown(31_234_567), "31ms");
        assert_eq!(shown(1_567), "1µs");
        assert_eq!(shown(2_000_000_001), "2s");
    }
}
