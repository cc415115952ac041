//! Options of `timeout`: those of coreutils.

use std::ffi::OsString;
use std::time::Duration;

use clap::{Args, ValueHint};
use pipewright::Signal;
use pipewright_batch::{UnitError, parse_duration};

use super::values::wrong;

/// Options of `timeout`.
#[derive(Debug, Args)]
#[command(version, infer_long_args = true,
override_usage = "pipewright timeout [OPTIONS] <DURATION> <CMD> [ARGS]...\n       \
timeout [OPTIONS] <DURATION> <CMD> [ARGS]...", after_long_help = concat!(
    "The options, exit codes and signals are those of timeout in coreutils. A link to pipewright with the\n",
    "name timeout takes its place. For whole process trees, limits and reports, use pipewright run.\n",
    "\n",
    "DURATION is a number with s (the default), m, h or d, or as in pipewright run. 0 means no timeout.\n",
    "\n",
    "Exit codes:\n",
    "  N      exit code of the command\n",
    "  124    the command timed out\n",
    "  125    timeout itself failed\n",
    "  126    the command is not executable\n",
    "  127    the command was not found\n",
    "  128+N  the command was killed by signal N; 137 also if it timed out and was killed by KILL\n",
    "\n",
    "Examples:\n",
    "  pipewright timeout -k 5 1m make check\n",
    "  ln -s \"$(command -v pipewright)\" ~/bin/timeout",
))]
pub(crate) struct TimeoutOptions {
    /// Stay in the group of the caller, and stop only the command itself
    #[arg(short, long)]
    pub(crate) foreground: bool,

    /// Send KILL if the command still runs DUR after the first signal
    #[arg(short, long, value_name = "DUR", value_hint = ValueHint::Other, allow_hyphen_values = true, value_parser = parse)]
    pub(crate) kill_after: Option<Wait>,

    /// Exit with the status of the command, even if it times out
    #[arg(short, long)]
    pub(crate) preserve_status: bool,

    /// Signal to send on a timeout: a name or a number; 0 sends none
    #[arg(short, long, value_name = "SIGNAL", value_hint = ValueHint::Other, default_value = "TERM",
          value_parser = parse_signal)]
    pub(crate) signal: SentSignal,

    /// Print each signal that is sent
    #[arg(short, long)]
    pub(crate) verbose: bool,

    /// Time after which the command is stopped
    #[arg(value_hint = ValueHint::Other, allow_negative_numbers = true, value_parser = parse)]
    pub(crate) duration: Wait,

    /// Command and its arguments
    #[arg(required = true, trailing_var_arg = true, value_name = "CMD",
          value_hint = ValueHint::CommandWithArguments)]
    pub(crate) command: Vec<OsString>,
}

/// A time to wait; `None`: for ever.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Wait(pub(crate) Option<Duration>);

/// A signal; `None`: 0, which is not sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SentSignal(pub(crate) Option<Signal>);

/// Parses a duration. Zero, and one that no clock can count, are waits for ever.
fn parse(text: &str) -> Result<Wait, String> {
    if ["inf", "infinity"].iter().any(|forever| text.eq_ignore_ascii_case(forever)) {
        return Ok(Wait(None));
    }
    match parse_duration(text) {
        Ok(duration) => Ok(Wait(Some(duration).filter(|duration| !duration.is_zero()))),
        Err(UnitError::TooLong) => Ok(Wait(None)),
        Err(error) => Err(wrong(text, error)),
    }
}

fn parse_signal(text: &str) -> Result<SentSignal, String> {
    if text == "0" || text.eq_ignore_ascii_case("EXIT") {
        return Ok(SentSignal(None));
    }
    let signal = text.parse::<Signal>();
    signal
        .map(|signal| SentSignal(Some(signal)))
        .map_err(|error| format!("{error}: write TERM, INT, HUP or 15"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_duration_is_that_of_coreutils() {
        let wait = |text: &str| parse(text).unwrap().0;
        assert_eq!(wait("10.34"), Some(Duration::from_millis(10_340)));
        assert_eq!(wait("1d"), Some(Duration::from_secs(86_400)));
        assert_eq!(wait("9.999999999"), Some(Duration::from_nanos(9_999_999_999)));
        assert_eq!(wait("1e-5000"), Some(Duration::from_nanos(1)), "too small is not zero");
        for forever in ["0", "0.0", "0d", "1e4932", "9223372036854775808d", "infinity", "inf"] {
            assert_eq!(wait(forever), None, "{forever}");
        }
        assert_eq!(wait("2.34e+5d"), Some(Duration::from_secs(234_000 * 86_400)));
        for wrong in ["invalid", "42D", "-1", "-1e4932", "", "nan", "1 s"] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
    }
}
