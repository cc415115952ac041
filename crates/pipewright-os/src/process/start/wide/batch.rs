//! The command line of a batch file, which `cmd.exe` parses before the script gets it.
//!
//! An argument that `cmd.exe` interprets as something else is a command injection (CVE-2024-24576). So
//! every text that is not known to be harmless is quoted, and characters that are special even in quotes
//! are neutralized or refused.

use super::repeat;
use super::{Arg, CommandLineError, check_length, unit};
use crate::process::start::BadInput;

const QUOTE: u16 = unit('"');
const BACKSLASH: u16 = unit('\\');
const PERCENT: u16 = unit('%');

/// The maximum length of a line for `cmd.exe`, in units.
const MAX_UNITS: usize = 8191;

/// The beginning of the line: extensions on, which [`EMPTY_VARIABLE`] needs; no expansion of `!`; no
/// AutoRun from the registry.
const PREFIX: &str = r#"cmd.exe /e:ON /v:OFF /d /c ""#;

/// The text before each `%`. The result, `%%cd:~,%`, is a literal `%` and then a variable (`%cd:~,%`) that
/// expands to nothing.
const EMPTY_VARIABLE: &str = "%%cd:~,";

/// Returns true if Windows would pass a file with that name to `cmd.exe`. Windows drops dots and spaces at
/// the end of a name (CVE-2024-43402), and ignores case.
pub(crate) fn is_batch(path: &[u16]) -> bool {
    let dropped = |unit: &u16| *unit == self::unit('.') || *unit == self::unit(' ');
    let end = path.iter().rposition(|unit| !dropped(unit)).map_or(0, |at| at + 1);
    let extension = path.get(..end).and_then(|path| path.get(end.checked_sub(4)?..));
    extension.is_some_and(|extension| {
        let text = String::from_utf16_lossy(extension);
        text.eq_ignore_ascii_case(".bat") || text.eq_ignore_ascii_case(".cmd")
    })
}

/// Returns the command line for `cmd.exe`, without a NUL at its end.
pub(crate) fn batch_line(
    script: &[u16],
    args: &[Arg],
    force_quotes: bool,
) -> Result<Vec<u16>, CommandLineError> {
    let mut line: Vec<u16> = PREFIX.encode_utf16().collect();
    // A file name has no quote or line end in it, and no backslash at its end.
    if script.contains(&QUOTE) || script.iter().any(ends_line) || script.last() == Some(&BACKSLASH)
    {
        return Err(CommandLineError::Bad(BadInput::BatchName));
    }
    push(&mut line, script, true);
    for (index, arg) in args.iter().enumerate() {
        line.push(unit(' '));
        match arg {
            Arg::Plain(text) if text.iter().any(ends_line) => {
                return Err(CommandLineError::Bad(BadInput::BatchArg(index)));
            }
            Arg::Plain(text) => push(&mut line, text, force_quotes),
            Arg::Raw(text) => line.extend_from_slice(text),
        }
    }
    // The outermost quotes are those that `/c` removes.
    line.push(QUOTE);
    check_length(line, MAX_UNITS)
}

fn ends_line(unit: &u16) -> bool {
    matches!(char::from_u32(u32::from(*unit)), Some('\r' | '\n' | '\0'))
}

/// Returns true if the character needs no quotes, whatever surrounds it.
fn is_harmless(unit: &u16) -> bool {
    let character = char::from_u32(u32::from(*unit)).filter(char::is_ascii);
    character.is_some_and(|it| it.is_ascii_alphanumeric() || r"#$*+-./:?@\_".contains(it))
}

fn push(line: &mut Vec<u16>, text: &[u16], force_quotes: bool) {
    // Quote after a final backslash too: in a batch file that quotes its argument ("%~1"), it must not
    // escape the closing quote.
    let quoted = force_quotes
        || text.last().is_none_or(|last| *last == BACKSLASH)
        || !text.iter().all(is_harmless);
    if quoted {
        line.push(QUOTE);
    }
    let mut backslashes = 0;
    for unit in text {
        match *unit {
            BACKSLASH => backslashes += 1,
            QUOTE => {
                // A doubled quote means one, for cmd.exe and the C library alike; a backslash would not
                // keep cmd.exe from seeing the end of the quotes.
                repeat(line, backslashes);
                line.push(QUOTE);
                backslashes = 0;
            }
            PERCENT => {
                line.extend(EMPTY_VARIABLE.encode_utf16());
                backslashes = 0;
            }
            _ => backslashes = 0,
        }
        line.push(*unit);
    }
    if quoted {
        repeat(line, backslashes);
        line.push(QUOTE);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::oracle::{self, QuotingRules};
    use super::super::wide;
    use super::*;

    fn line(script: &str, arg: &str) -> Result<String, CommandLineError> {
        let line = batch_line(&wide(script), &[Arg::Plain(wide(arg))], false)?;
        Ok(String::from_utf16(&line).unwrap())
    }

    #[test]
    fn arguments_are_quoted_as_std_quotes_them_for_batch_files() {
        let cases = [
            (r"plain", r"plain"),
            ("", r#""""#),
            ("a b", r#""a b""#),
            ("a&b", r#""a&b""#),
            ("a^b", r#""a^b""#),
            ("a,b", r#""a,b""#),
            (r"a\b", r"a\b"),
            (r"a\", r#""a\\""#),
            (r#"a"b"#, r#""a""b""#),
            (r#"a\"b"#, r#""a\\""b""#),
            ("%PATH%", r#""%%cd:~,%PATH%%cd:~,%""#),
            ("!x!", r#""!x!""#),
        ];
        for (arg, expected) in cases {
            let expected = format!(r#"cmd.exe /e:ON /v:OFF /d /c ""C:\x y.bat" {expected}""#);
            assert_eq!(line(r"C:\x y.bat", arg), Ok(expected));
        }
    }

    #[test]
    fn line_ends_and_quotes_in_names_are_refused() {
        for arg in ["a\nb", "a\r", "\n"] {
            assert_eq!(line("x.bat", arg), Err(CommandLineError::Bad(BadInput::BatchArg(0))));
        }
        for script in ["a\"b.bat", "a\n.bat", "a.bat\\"] {
            assert_eq!(line(script, "x"), Err(CommandLineError::Bad(BadInput::BatchName)));
        }
        assert_eq!(line("x.bat", &"a".repeat(8192)), Err(CommandLineError::TooLong));
    }

    #[test]
    fn batch_files_are_recognized_by_the_resolved_name() {
        for name in ["a.bat", "a.CMD", r"C:\x.y\a.BaT", "a.bat.", "a.cmd . .", "a.bat   ", ".bat"] {
            assert!(is_batch(&wide(name)), "{name:?}");
        }
        for name in
            ["", ".", "bat", "a.bat.exe", "a.bat/x", "a.batx", "a.exe", "   ", "a.ba\u{17f}"]
        {
            assert!(!is_batch(&wide(name)), "{name:?}");
        }
    }

    fn argument() -> impl Strategy<Value = Vec<u16>> {
        let units = prop_oneof![
            8 => prop::sample::select(wide("\\\" \ta=/%^&|<>()!,;~:cd@'`")),
            // Without surrogates: the oracle reads text.
            1 => 0x20..=0xd7ff_u16,
        ];
        prop::collection::vec(units, 0..12)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(10_000))]

        #[test]
        fn cmd_runs_only_the_batch_file_with_every_argument_unchanged(
            args in prop::collection::vec(argument(), 0..6),
            force_quotes: bool,
        ) {
            let plain: Vec<Arg> = args.iter().cloned().map(Arg::Plain).collect();
            let script = wide(r"C:\100%PATH%\x y&.bat");
            let line = batch_line(&script, &plain, force_quotes).unwrap();
            let start = wide("cmd.exe /e:ON /v:OFF /d /c ").len();
            let executed = oracle::cmd(&line[start..]).map_err(TestCaseError::fail)?;
            let parameters = oracle::parameters(&executed);
            prop_assert_eq!(parameters.len(), 1 + args.len(), "{:?}", parameters);
            // The line that a batch file passes to a program with %*.
            let mut expected = vec![script];
            expected.extend(args);
            prop_assert_eq!(oracle::split(&executed, QuotingRules::C), expected);
        }
    }
}
