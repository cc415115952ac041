//! Options that limit the resources of the command and everything that it starts.

use clap::{Args, ValueHint};
use pipewright::Limits;

use super::headings;
use super::values::{parse_bytes, parse_some_bytes};

/// Options that limit the resources of a whole process tree.
#[derive(Debug, Args)]
pub(crate) struct ResourceOptions {
    /// Limit the memory of all processes together
    ///
    /// If they need more, the kernel kills one of them, and the exit code is 124. `pipewright doctor` says whether limits
    /// can be had here, and what would help.
    #[arg(long, value_name = "BYTES", value_hint = ValueHint::Other, value_parser = parse_some_bytes,
          help_heading = headings::LIMITS)]
    pub(crate) memory: Option<usize>,

    /// Limit the swap of all processes together (0 for none)
    #[arg(long, value_name = "BYTES", value_hint = ValueHint::Other, value_parser = parse_bytes,
          hide_short_help = true, help_heading = headings::LIMITS)]
    pub(crate) swap: Option<usize>,

    /// Limit the CPU time to that of N processors, such as 1.5
    #[arg(long, value_name = "N", value_hint = ValueHint::Other, value_parser = parse_processors,
          help_heading = headings::LIMITS)]
    pub(crate) cpus: Option<f64>,

    /// Limit the number of processes and threads at one time
    #[arg(long, value_name = "N", value_hint = ValueHint::Other,
          value_parser = clap::value_parser!(u64).range(1..), hide_short_help = true,
          help_heading = headings::LIMITS)]
    pub(crate) pids: Option<u64>,

    /// Kill everything if one process is killed for lack of memory
    #[arg(long, requires = "memory", hide_short_help = true, help_heading = headings::LIMITS)]
    pub(crate) oom_group: bool,

    /// Run without the limits that cannot be held here
    #[arg(long, hide_short_help = true, help_heading = headings::LIMITS)]
    pub(crate) best_effort: bool,
}

impl ResourceOptions {
    /// Returns the limits, if there are any or if the tree has to be measured.
    pub(crate) fn limits(&self, measures: bool) -> Option<Limits> {
        let ResourceOptions { memory, swap, cpus, pids, oom_group, best_effort } = self;
        let mut limits = Limits::new();
        limits.memory_max_bytes = memory.map(|bytes| bytes as u64);
        limits.memory_swap_max_bytes = swap.map(|bytes| bytes as u64);
        limits.pids_max = *pids;
        limits.oom_group = *oom_group;
        limits.best_effort = *best_effort;
        if let Some(processors) = cpus {
            limits = limits.cpu_max(*processors);
        }
        let is_limited = limits.kinds().next().is_some();
        (is_limited || measures).then_some(limits)
    }
}

/// Parses a number of processors.
fn parse_processors(text: &str) -> Result<f64, String> {
    const LEAST: f64 = 0.01;
    const MOST: f64 = 1e6;
    match text.parse::<f64>() {
        Ok(processors) if (LEAST..=MOST).contains(&processors) => Ok(processors),
        Ok(_) => Err(format!("\"{text}\" is not a number of processors from 0.01 to 1000000")),
        Err(_) => Err(format!("\"{text}\" is not a number of processors: write 1.5")),
    }
}

#[cfg(test)]
mod tests {
    use super::parse_processors;

    #[test]
    fn a_number_of_processors_may_be_a_fraction() {
        assert_eq!(parse_processors("1.5"), Ok(1.5));
        assert_eq!(parse_processors("0.01"), Ok(0.01));
        for text in ["", "0", "-1", "nan", "inf", "1,5", "two"] {
            assert!(parse_processors(text).is_err(), "{text}");
        }
    }
}
