//! The UTF-16 texts that `CreateProcessW` takes: arguments as a C library splits them, the environment, the search for
//! a program, and the kind of a path, found without asking the system. Arguments of a batch file, which `cmd.exe`
//! parses first, are in `batch.rs`.
//!
//! Nothing in here calls the system, so its tests run on every system.

pub(crate) mod batch;

use std::cmp::Ordering;

use super::BadInput;
use crate::base::os_text::ends_with;

/// The maximum length of a command line for `CreateProcessW`, in units, including its NUL.
const MAX_UNITS: usize = 32_767;

/// An argument.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Arg {
    /// The program has to get it unchanged among its arguments.
    Plain(Vec<u16>),
    /// It goes on the command line unchanged.
    Raw(Vec<u16>),
}

/// The reason why there is no command line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CommandLineError {
    /// It would be too long for its reader.
    TooLong,
    /// It would mean something else.
    Bad(BadInput),
}

/// Returns the line, if it and a NUL fit.
fn check_length(line: Vec<u16>, most_units: usize) -> Result<Vec<u16>, CommandLineError> {
    if line.len() < most_units { Ok(line) } else { Err(CommandLineError::TooLong) }
}

/// Returns an ASCII character as a UTF-16 unit.
pub(crate) const fn unit(character: char) -> u16 {
    character as u16
}

#[cfg(test)]
pub(crate) fn wide(text: &str) -> Vec<u16> {
    text.encode_utf16().collect()
}

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

fn repeat(line: &mut Vec<u16>, backslashes: usize) {
    line.extend(std::iter::repeat_n(BACKSLASH, backslashes));
}

/// A variable's name and value.
pub(crate) type Variable = (Vec<u16>, Vec<u16>);

/// Returns the block: each variable as `name=value` and a NUL, in the order of the names, and another NUL.
/// If several have the same name, the last counts.
///
/// Drive variables (`=C:`, the working directory of another drive) have names like others.
pub(crate) fn block(
    mut variables: Vec<Variable>,
    compare: impl Fn(&[u16], &[u16]) -> Ordering,
) -> Vec<u16> {
    // A stable sort, so that the last stays the last. Programs expect a sorted block.
    variables.sort_by(|one, other| compare(&one.0, &other.0));
    let units = variables.iter().map(|(name, value)| name.len() + value.len() + 2).sum::<usize>();
    let mut block = Vec::with_capacity(units + 2);
    let mut rest = variables.iter().peekable();
    while let Some((name, value)) = rest.next() {
        if rest.peek().is_some_and(|(next, _)| compare(name, next).is_eq()) {
            continue;
        }
        block.extend_from_slice(name);
        block.push(unit('='));
        block.extend_from_slice(value);
        block.push(0);
    }
    if block.is_empty() {
        // A block without variables has an empty one.
        block.push(0);
    }
    block.push(0);
    block
}

/// The inputs for the order of directories.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct SearchInputs<'a> {
    /// The child's `PATH`, if it has an environment of its own.
    pub(crate) child_path: Option<&'a [u16]>,
    /// The directory of this process's program.
    pub(crate) own_program: Option<&'a [u16]>,
    /// System32.
    pub(crate) system: Option<&'a [u16]>,
    /// The directory of Windows.
    pub(crate) windows: Option<&'a [u16]>,
    /// This process's `PATH`.
    pub(crate) own_path: Option<&'a [u16]>,
}

/// Returns the directories, in the order of std. The working directory is not one of them: any user who can
/// write there could provide the program.
pub(crate) fn dirs(inputs: SearchInputs<'_>) -> Vec<Vec<u16>> {
    let mut dirs = inputs.child_path.map(split_path).unwrap_or_default();
    let single = [inputs.own_program, inputs.system, inputs.windows];
    dirs.extend(single.into_iter().flatten().map(<[u16]>::to_vec));
    dirs.extend(inputs.own_path.map(split_path).unwrap_or_default());
    dirs
}

/// Returns the entries of a `PATH`, without the empty ones, which mean nothing here. A semicolon in quotes
/// belongs to the name.
fn split_path(path: &[u16]) -> Vec<Vec<u16>> {
    let mut dirs = Vec::new();
    let mut dir = Vec::new();
    let mut quoted = false;
    for part in path.iter().copied().chain([unit(';')]) {
        if part == unit('"') {
            quoted = !quoted;
        } else if part == unit(';') && !quoted {
            dirs.push(std::mem::take(&mut dir));
        } else {
            dir.push(part);
        }
    }
    // If the last quote is never closed.
    dirs.push(dir);
    dirs.retain(|dir| !dir.is_empty());
    dirs
}

/// Returns the extensions of programs that can be started on their own, without a file association, in the
/// order of `PATHEXT`.
pub(crate) fn extensions(pathext: Option<&[u16]>) -> Vec<String> {
    const KNOWN: [&str; 4] = [".com", ".exe", ".bat", ".cmd"];
    let Some(pathext) = pathext else { return KNOWN.map(str::to_owned).to_vec() };
    let entries = pathext.split(|part| *part == unit(';')).map(String::from_utf16_lossy);
    let lower = entries.map(|entry| entry.trim().to_ascii_lowercase());
    lower.filter(|entry| KNOWN.contains(&entry.as_str())).collect()
}

/// Finds the file of a program that is given without a path.
///
/// The file that std finds comes first: the name with `.exe`, or the plain name if it has a dot. If that
/// exists nowhere, the name with each of the extensions, so that npm's `tool.cmd` is found as `tool`.
pub(crate) fn find(
    name: &[u16],
    dirs: &[Vec<u16>],
    extensions: &[String],
    is_file: &mut dyn FnMut(&[u16]) -> bool,
) -> Option<Vec<u16>> {
    let has_dot = name.contains(&unit('.'));
    let exe = if has_dot { "" } else { ".exe" };
    let mut find_as = |extension: &str| {
        dirs.iter().map(|dir| join(dir, name, extension)).find(|file| is_file(file))
    };
    if let Some(file) = find_as(exe) {
        return Some(file);
    }
    let has_program_extension =
        [".com", ".exe", ".bat", ".cmd"].iter().any(|it| ends_with(name, it));
    if has_program_extension {
        return None;
    }
    // All files of one directory before those of the next, as in cmd.exe.
    dirs.iter()
        .flat_map(|dir| extensions.iter().map(move |extension| join(dir, name, extension)))
        .find(|file| is_file(file))
}

pub(crate) fn join(dir: &[u16], name: &[u16], extension: &str) -> Vec<u16> {
    let mut path = dir.to_vec();
    if !dir.last().is_some_and(|last| is_separator(*last)) {
        path.push(unit('\\'));
    }
    path.extend_from_slice(name);
    path.extend(extension.encode_utf16());
    path
}

/// Returns true if a program is given as a path, and so not searched for.
pub(crate) fn is_path(program: &[u16]) -> bool {
    program.iter().any(|unit| is_separator(*unit) || *unit == self::unit(':'))
}

pub(crate) fn is_separator(unit: u16) -> bool {
    unit == self::unit('\\') || unit == self::unit('/')
}

/// Returns true if the system uses the path unchanged, without resolving `.`, `..` or `/` (`\\?\`).
pub(crate) fn is_verbatim(path: &[u16]) -> bool {
    let start: Vec<u16> = r"\\?\".encode_utf16().collect();
    path.starts_with(&start)
}

/// Returns the common form of a path that starts with `\\?\`, which most programs cannot use. `None` if the
/// path is of another kind. The system has to confirm that both mean the same file.
pub(crate) fn without_verbatim(path: &[u16]) -> Option<Vec<u16>> {
    const START: usize = r"\\?\".len();
    let rest = path.get(START..).filter(|_| is_verbatim(path))?;
    let share: Vec<u16> = r"UNC\".encode_utf16().collect();
    if let Some(share) = rest.strip_prefix(share.as_slice()) {
        return Some(r"\\".encode_utf16().chain(share.iter().copied()).collect());
    }
    let has_drive = rest.get(1) == Some(&unit(':')) && rest.get(2) == Some(&unit('\\'));
    has_drive.then(|| rest.to_vec())
}

#[cfg(test)]
pub(crate) mod oracle;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::oracle::{QuotingRules, split};
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

    fn capitals(text: &[u16]) -> String {
        String::from_utf16_lossy(text).to_uppercase()
    }

    fn compare(one: &[u16], other: &[u16]) -> Ordering {
        capitals(one).cmp(&capitals(other))
    }

    fn made(variables: &[(&str, &str)]) -> String {
        let variables = variables.iter().map(|(name, value)| (wide(name), wide(value))).collect();
        String::from_utf16(&block(variables, compare)).unwrap()
    }

    #[test]
    fn variables_are_sorted_and_the_last_of_a_name_counts() {
        let variables = [("b", "1"), ("PATH", "x"), ("=C:", r"C:\y"), ("Path", "z"), ("A", "")];
        assert_eq!(made(&variables), "=C:=C:\\y\0A=\0b=1\0Path=z\0\0");
    }

    #[test]
    fn an_empty_environment_is_an_empty_string() {
        assert_eq!(made(&[]), "\0\0");
    }

    proptest! {
        #[test]
        fn the_block_holds_each_variable_once(
            variables in prop::collection::vec(("[a-cA-C]{1,3}", "[^\0]{0,5}"), 0..12),
        ) {
            let wide_ones = variables.iter().map(|(name, value)| (wide(name), wide(value)));
            let block = block(wide_ones.collect(), compare);
            let text = String::from_utf16(&block).unwrap();
            let body = text.strip_suffix("\0\0").unwrap();
            let mut last = std::collections::BTreeMap::new();
            for (name, value) in &variables {
                last.insert(name.to_uppercase(), format!("{name}={value}"));
            }
            let expected: Vec<String> = last.into_values().collect();
            let found: Vec<&str> = body.split('\0').filter(|entry| !entry.is_empty()).collect();
            prop_assert_eq!(found, expected);
        }
    }

    fn texts(dirs: &[Vec<u16>]) -> Vec<String> {
        dirs.iter().map(|dir| String::from_utf16(dir).unwrap()).collect()
    }

    #[test]
    fn the_order_is_that_of_std() {
        let [child, own, system, windows, path] =
            [r"C:\child;;D:\", r"C:\own", r"C:\sys", r"C:\win", r"E:\"].map(wide);
        let inputs = SearchInputs {
            child_path: Some(&child),
            own_program: Some(&own),
            system: Some(&system),
            windows: Some(&windows),
            own_path: Some(&path),
        };
        let all = [r"C:\child", r"D:\", r"C:\own", r"C:\sys", r"C:\win", r"E:\"];
        assert_eq!(texts(&dirs(inputs)), all);
        assert_eq!(texts(&dirs(SearchInputs { child_path: None, ..inputs })), all[2..]);
    }

    #[test]
    fn an_empty_entry_is_not_the_working_directory() {
        assert_eq!(texts(&split_path(&wide(r#";;C:\a b;"D:\x;y";"#))), [r"C:\a b", r"D:\x;y"]);
        assert!(split_path(&[]).is_empty());
        assert_eq!(texts(&split_path(&wide(r#""C:\open;x"#))), [r"C:\open;x;"]);
    }

    #[test]
    fn only_programs_count_as_extensions() {
        assert_eq!(extensions(Some(&wide(".EXE;.Cmd; .bat ;.VBS;.js;"))), [".exe", ".cmd", ".bat"]);
        assert_eq!(extensions(None), [".com", ".exe", ".bat", ".cmd"]);
    }

    fn found(name: &str, files: &[&str]) -> Option<String> {
        let dirs = [wide(r"C:\a"), wide(r"C:\b\")];
        let mut is_file = |file: &[u16]| {
            let file = String::from_utf16_lossy(file);
            files.iter().any(|it| it.eq_ignore_ascii_case(&file))
        };
        let found = find(&wide(name), &dirs, &extensions(None), &mut is_file)?;
        Some(String::from_utf16(&found).unwrap())
    }

    #[test]
    fn what_std_finds_is_found_first() {
        let files = [r"C:\a\tool.cmd", r"C:\b\tool.exe", r"C:\b\tool.com"];
        assert_eq!(found("tool", &files).as_deref(), Some(r"C:\b\tool.exe"));
        assert_eq!(found("tool.cmd", &files).as_deref(), Some(r"C:\a\tool.cmd"));
    }

    #[test]
    fn other_extensions_are_found_next() {
        let files = [r"C:\b\npm.cmd", r"C:\a\py3.11.exe", r"C:\a\bare", r"C:\a\x.exe.exe"];
        assert_eq!(found("npm", &files).as_deref(), Some(r"C:\b\npm.cmd"));
        assert_eq!(found("py3.11", &files).as_deref(), Some(r"C:\a\py3.11.exe"));
        assert_eq!(found("bare", &files), None);
        assert_eq!(found("x.exe", &files), None);
    }

    #[test]
    fn a_separator_or_a_drive_makes_a_path() {
        for path in [r"a\b", "a/b", "C:a", r"\a", "./a"] {
            assert!(is_path(&wide(path)), "{path}");
        }
        for name in ["a", "a.exe", "..", "a b"] {
            assert!(!is_path(&wide(name)), "{name}");
        }
    }

    #[test]
    fn verbatim_paths_are_converted_if_possible() {
        let converted = |path: &str| {
            without_verbatim(&wide(path)).map(|path| String::from_utf16(&path).unwrap())
        };
        assert_eq!(converted(r"\\?\C:\a\b").as_deref(), Some(r"C:\a\b"));
        assert_eq!(converted(r"\\?\UNC\server\share\a").as_deref(), Some(r"\\server\share\a"));
        for other in [r"C:\a", r"\\server\share", r"\\?\Volume{1}\a", r"\\?\C:", r"\\?\", ""] {
            assert_eq!(converted(other), None, "{other}");
        }
    }
}
