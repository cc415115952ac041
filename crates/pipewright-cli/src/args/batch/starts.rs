//! Options of `batch` that hold starts back.

use std::str::FromStr;
use std::thread;

use clap::{Args, ValueHint};
use pipewright_batch::{Batch, parse_size};

use super::super::headings;
use super::super::values::{Span, wrong};

/// Options of `batch` that hold starts back.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct StartOptions {
    /// Wait DUR after each start of a job
    #[arg(long, value_name = "DUR", allow_hyphen_values = true, value_hint = ValueHint::Other,
          help_heading = headings::RUNNING)]
    pub(crate) delay: Option<Span>,

    /// Start jobs only while fewer than N threads run (100%: the processors)
    ///
    /// The machine is looked at once a second.
    #[arg(long, value_name = "N", allow_hyphen_values = true, value_hint = ValueHint::Other,
          conflicts_with_all = ["via", "via_file", "on"], help_heading = headings::RUNNING)]
    pub(crate) load: Option<Load>,

    /// Start jobs only while SIZE of memory is free
    ///
    /// The machine is looked at once a second.
    #[arg(long, value_name = "SIZE", allow_hyphen_values = true, value_hint = ValueHint::Other,
          value_parser = parse_bytes, conflicts_with_all = ["via", "via_file", "on"], help_heading = headings::RUNNING)]
    pub(crate) memfree: Option<u64>,
}

impl StartOptions {
    /// Sets the rules of a batch.
    pub(crate) fn apply_to(&self, mut batch: Batch) -> Batch {
        if let Some(delay) = &self.delay {
            batch = batch.start_delay(delay.duration);
        }
        if let Some(load) = self.load {
            batch = batch.max_load(load.0);
        }
        match self.memfree {
            Some(bytes) => batch.min_free_memory(bytes),
            None => batch,
        }
    }
}

fn parse_bytes(text: &str) -> Result<u64, String> {
    parse_size(text).map_err(|error| wrong(text, error))
}

/// A number of threads that run.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Load(f64);

impl FromStr for Load {
    type Err = String;

    fn from_str(text: &str) -> Result<Load, String> {
        let refuse = || format!("\"{text}\" is not a load: write 4, 1.5 or 80%");
        let (digits, is_percent) = text.strip_suffix('%').map_or((text, false), |it| (it, true));
        let is_number = digits.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
        let number = digits.parse::<f64>().ok().filter(|number| is_number && number.is_finite());
        let number = number.ok_or_else(refuse)?;
        let processors = || thread::available_parallelism().map_or(1, |count| count.get());
        let load = if is_percent { number * processors() as f64 / 100.0 } else { number };
        match load > 0.0 {
            true => Ok(Load(load)),
            false => Err("must be more than 0: no job would ever start".to_owned()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_load_is_a_number_or_a_part_of_the_processors() {
        assert_eq!("1.5".parse(), Ok(Load(1.5)));
        let half = "50%".parse::<Load>().unwrap();
        assert_eq!("100%".parse(), Ok(Load(half.0 * 2.0)));
        for text in ["", "0", "0%", "-1", "x", "1e3", "inf", "%"] {
            assert!(text.parse::<Load>().is_err(), "{text}");
        }
    }
}
