//! The line in which a child reports its CPU time and context switches.

use std::time::Duration;

use pipewright_os::process::usage::Spent;

/// Returns the CPU time and context switches of a child in a line.
pub(crate) fn usage_line(spent: Spent) -> String {
    let switches = spent.switches.map_or("-".to_owned(), |switches| switches.to_string());
    format!("{} {switches}", spent.cpu.as_nanos())
}

/// Parses that line.
pub(crate) fn parse_usage_line(line: &str) -> Option<Spent> {
    let (nanos, switches) = line.trim().split_once(' ')?;
    Some(Spent { cpu: Duration::from_nanos(nanos.parse().ok()?), switches: switches.parse().ok() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_usage_line_is_parsed_as_it_was_written() {
        let spent = Spent { cpu: Duration::from_nanos(1500), switches: Some(7) };
        for spent in [spent, Spent { switches: None, ..spent }] {
            assert_eq!(parse_usage_line(&usage_line(spent)), Some(spent));
        }
        assert_eq!(parse_usage_line("1500 7\n"), Some(spent));
        assert_eq!(parse_usage_line("pipewright: no\n"), None);
        assert_eq!(parse_usage_line(""), None);
    }
}
