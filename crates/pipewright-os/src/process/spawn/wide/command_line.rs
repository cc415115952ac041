//! The command line: arguments joined into one text, which the child's C library splits again.

use super::{Arg, CommandLineError, MAX_UNITS, check_length, unit};

const QUOTE: u16 = unit('"');
const BACKSLASH: u16 = unit('\\');

/// Returns the command line, without a NUL at its end. The child gets the program as its own name. The
/// program contains no quote, because no file name does.
pub(crate) fn command_line(
    program: &[u16],
    args: &[Arg],
    force_quotes: bool,
) -> Result<Vec<u16>, CommandLineError> {
    let mut line = Vec::with_capacity(program.len() + 2);
    // Always in quotes: it ends at the first space otherwise, and nothing in it can be escaped.
    line.push(QUOTE);
    line.extend_from_slice(program);
    line.push(QUOTE);
    for arg in args {
        line.push(unit(' '));
        match arg {
            Arg::Plain(text) => push(&mut line, text, force_quotes),
            Arg::Raw(text) => line.extend_from_slice(text),
        }
    }
    check_length(line, MAX_UNITS)
}

/// Adds one argument, so that `CommandLineToArgvW` and Microsoft's C library both split it off unchanged: a
/// backslash is an escape only before a quote.
fn push(line: &mut Vec<u16>, arg: &[u16], force_quotes: bool) {
    let is_gap = |unit: &u16| matches!(char::from_u32(u32::from(*unit)), Some(' ' | '\t'));
    let quoted = force_quotes || arg.is_empty() || arg.iter().any(is_gap);
    if quoted {
        line.push(QUOTE);
    }
    let mut backslashes = 0;
    for unit in arg {
        match *unit {
            BACKSLASH => backslashes += 1,
            QUOTE => {
                // Double the backslashes before it, and add one for the quote itself.
                repeat(line, backslashes + 1);
                backslashes = 0;
            }
            _ => backslashes = 0,
        }
        line.push(*unit);
    }
    if quoted {
        // The backslashes are followed by a quote now.
        repeat(line, backslashes);
        line.push(QUOTE);
    }
}

pub(super) fn repeat(line: &mut Vec<u16>, backslashes: usize) {
    line.extend(std::iter::repeat_n(BACKSLASH, backslashes));
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::oracle::{QuotingRules, split};
    use super::super::wide;
    use super::*;

    fn line(args: &[Arg]) -> String {
        String::from_utf16(&command_line(&wide("p q"), args, false).unwrap()).unwrap()
    }

    #[test]
    fn arguments_are_quoted_as_std_quotes_them() {
        let cases = [
            (r"plain", r"plain"),
            ("", r#""""#),
            ("a b", r#""a b""#),
            ("a\tb", "\"a\tb\""),
            (r"a\b\", r"a\b\"),
            (r"a b\", r#""a b\\""#),
            (r#"a"b"#, r#"a\"b"#),
            (r#"a\"b"#, r#"a\\\"b"#),
            (r#"\\"#, r#"\\"#),
            (r#"" x"#, r#""\" x""#),
            ("a\nb", "a\nb"),
        ];
        for (arg, expected) in cases {
            assert_eq!(line(&[Arg::Plain(wide(arg))]), format!(r#""p q" {expected}"#));
        }
    }

    #[test]
    fn raw_arguments_are_unchanged() {
        let args = [Arg::Plain(wide("/c")), Arg::Raw(wide(r#"echo "a  b""#))];
        assert_eq!(line(&args), r#""p q" /c echo "a  b""#);
        let quoted = command_line(&wide("p"), &args, true).unwrap();
        assert_eq!(String::from_utf16(&quoted).unwrap(), r#""p" "/c" echo "a  b""#);
    }

    #[test]
    fn a_line_that_is_too_long_is_refused() {
        let of_units = |units| command_line(&wide("p"), &[Arg::Plain(vec![97; units])], false);
        assert_eq!(of_units(32_762).map(|line| line.len()), Ok(32_766));
        assert_eq!(of_units(32_763), Err(CommandLineError::TooLong));
    }

    /// Generates characters that matter to the rules, and some others.
    fn argument() -> impl Strategy<Value = Vec<u16>> {
        let units = prop_oneof![
            6 => prop::sample::select(wide("\\\" \ta=/%^&")),
            1 => 1..=u16::MAX,
        ];
        prop::collection::vec(units, 0..12)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(10_000))]

        #[test]
        fn every_argument_is_split_off_unchanged(
            args in prop::collection::vec(argument(), 0..6),
            force_quotes: bool,
        ) {
            let plain: Vec<Arg> = args.iter().cloned().map(Arg::Plain).collect();
            let line = command_line(&wide(r"C:\p q\x\"), &plain, force_quotes).unwrap();
            let mut expected = vec![wide(r"C:\p q\x\")];
            expected.extend(args);
            for rules in [QuotingRules::Shell, QuotingRules::C] {
                prop_assert_eq!(&split(&line, rules), &expected, "{:?}", rules);
            }
        }
    }
}
