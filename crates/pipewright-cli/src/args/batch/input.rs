//! Options of `batch` for its input: what is read, and how the words of jobs are made of it.

use std::path::PathBuf;

use clap::{Args, ValueHint};

use super::super::headings;
use super::super::values::{parse_count, parse_some_bytes};

/// Options of `batch` for its input.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct InputOptions {
    /// Read jobs from FILE (- for stdin, the default)
    #[arg(short = 'a', long, value_name = "FILE", value_hint = ValueHint::FilePath, help_heading = headings::INPUT)]
    pub(crate) from: Option<PathBuf>,

    /// Separate jobs by NUL instead of a line end (find -print0)
    #[arg(short = '0', long, conflicts_with_all = ["jsonl", "csv"], help_heading = headings::INPUT)]
    pub(crate) null: bool,

    /// Separate jobs by a character instead of a line end: , or \t or \x1e
    #[arg(short, long, value_name = "CHAR", value_hint = ValueHint::Other, value_parser = parse_delimiter,
          conflicts_with_all = ["null", "jsonl", "csv"], help_heading = headings::INPUT)]
    pub(crate) delimiter: Option<u8>,

    /// Read each line as a JSON object that describes a job
    #[arg(long, conflicts_with_all = ["csv", "shell"], help_heading = headings::INPUT)]
    pub(crate) jsonl: bool,

    /// Read CSV; the first row names the columns
    #[arg(long, conflicts_with = "shell", help_heading = headings::INPUT)]
    pub(crate) csv: bool,

    /// Run each line with sh -c
    #[arg(long, help_heading = headings::INPUT)]
    pub(crate) shell: bool,

    /// Split each line into columns {1} {2} at REGEX; spaces around a value are removed
    #[arg(long, value_name = "REGEX", value_hint = ValueHint::Other, conflicts_with_all = ["jsonl", "csv", "shell"],
          help_heading = headings::INPUT)]
    pub(crate) colsep: Option<String>,

    /// Take one value of each list after ::: for a job, instead of all combinations
    #[arg(long, help_heading = headings::INPUT)]
    pub(crate) link: bool,

    /// Put up to N values into one job
    #[arg(short = 'n', long, value_name = "N", allow_hyphen_values = true, value_hint = ValueHint::Other,
          value_parser = parse_some, conflicts_with_all = ["jsonl", "csv", "shell"], help_heading = headings::INPUT)]
    pub(crate) max_args: Option<u32>,

    /// Put as many values into one job as fit, as xargs does
    #[arg(short = 'm', long, conflicts_with_all = ["jsonl", "csv", "shell"], help_heading = headings::INPUT)]
    pub(crate) xargs: bool,

    /// Repeat a word such as pic{}.jpg for each value; otherwise as -m
    #[arg(short = 'X', long, conflicts_with_all = ["xargs", "jsonl", "csv", "shell"], help_heading = headings::INPUT)]
    pub(crate) xargs_context: bool,

    /// Limit the words of a job to BYTES, with -n, -m and -X [default: 128k, as in xargs]
    #[arg(short = 's', long, value_name = "BYTES", allow_hyphen_values = true, value_hint = ValueHint::Other,
          value_parser = parse_some_bytes, help_heading = headings::INPUT)]
    pub(crate) max_chars: Option<usize>,

    /// Replace TEXT in the command by the value, instead of {}
    #[arg(short = 'I', long, value_name = "TEXT", value_hint = ValueHint::Other,
          conflicts_with_all = ["jsonl", "csv", "shell"], help_heading = headings::INPUT)]
    pub(crate) replace: Option<String>,

    /// Give each job a block of whole lines as its stdin, instead of values
    #[arg(long, conflicts_with_all = ["jsonl", "csv", "shell", "colsep", "link", "max_args", "xargs", "xargs_context",
          "max_chars", "replace"], help_heading = headings::INPUT)]
    pub(crate) pipe: bool,

    /// Limit the blocks of --pipe to SIZE [default: 1M]
    #[arg(long, value_name = "SIZE", allow_hyphen_values = true, value_hint = ValueHint::Other,
          value_parser = parse_some_bytes, requires = "pipe", help_heading = headings::INPUT)]
    pub(crate) block: Option<usize>,
}

impl InputOptions {
    /// Returns the option that takes values for a command, if there is one.
    pub(crate) fn of_values(&self) -> Option<&'static str> {
        let options = [
            ("--colsep", self.colsep.is_some()),
            ("-n", self.max_args.is_some()),
            ("-m", self.xargs),
            ("-X", self.xargs_context),
            ("-s", self.max_chars.is_some()),
            ("-I", self.replace.is_some()),
            ("--link", self.link),
            ("--pipe", self.pipe),
        ];
        options.into_iter().find(|(_, is_set)| *is_set).map(|(name, _)| name)
    }
}

fn parse_some(text: &str) -> Result<u32, String> {
    match parse_count(text)? {
        0 => Err("must be at least 1".to_owned()),
        count => Ok(count),
    }
}

/// Parses a character of one byte, or an escape of it as in C.
fn parse_delimiter(text: &str) -> Result<u8, String> {
    let refuse = || format!("\"{text}\" is not one character: write , or \\t or \\0 or \\x1e");
    let Some(escape) = text.strip_prefix('\\').filter(|escape| !escape.is_empty()) else {
        return <[u8; 1]>::try_from(text.as_bytes()).map(|[byte]| byte).map_err(|_| refuse());
    };
    Ok(match escape {
        "a" => 7,
        "b" => 8,
        "f" => 12,
        "n" => b'\n',
        "r" => b'\r',
        "t" => b'\t',
        "v" => 11,
        "\\" => b'\\',
        _ => {
            let (digits, radix) = escape.strip_prefix('x').map_or((escape, 8), |hex| (hex, 16));
            let is_number = digits.bytes().all(|byte| byte.is_ascii_hexdigit());
            u8::from_str_radix(digits, radix).ok().filter(|_| is_number).ok_or_else(refuse)?
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_delimiter_is_a_character_or_an_escape() {
        for (text, byte) in [
            (",", b','),
            ("\\", b'\\'),
            ("\\\\", b'\\'),
            (" ", b' '),
            ("\\t", b'\t'),
            ("\\n", b'\n'),
            ("\\0", 0),
            ("\\054", b','),
            ("\\x2c", b','),
            ("\n", b'\n'),
        ] {
            assert_eq!(parse_delimiter(text), Ok(byte), "{text:?}");
        }
        for text in ["", "ab", "\u{e9}", "\\q", "\\x", "\\+7", "\\x+7", "\\400", "\\x100"] {
            assert!(parse_delimiter(text).is_err(), "{text:?}");
        }
    }
}
