//! A hint for a program that was not found because its name is a whole command line, and for a limit that cannot be held.

use pipewright::{Error, ErrorKind};

/// Words that only a shell knows.
const BUILTINS: [&str; 8] = ["cd", "export", "source", ".", "alias", "ulimit", "umask", "set"];

/// Returns the error as a message, with a hint if the program's name tells what was meant.
pub(crate) fn message(error: &Error, program: &str) -> String {
    let is_missing = matches!(error.kind(), ErrorKind::NotFound { .. });
    if matches!(error.kind(), ErrorKind::LimitUnavailable { .. }) {
        return format!("{error}; or run without it: --best-effort");
    }
    match hint(program).filter(|_| is_missing) {
        Some(hint) => format!("{error}; {hint}"),
        None => error.to_string(),
    }
}

fn hint(program: &str) -> Option<&'static str> {
    let is_line = program.trim().contains(char::is_whitespace);
    let first = program.split_whitespace().next()?;
    if BUILTINS.contains(&first) {
        return Some("that is a word of the shell: use --cwd or --env, or run sh -c '...'");
    }
    if first.split_once('=').is_some_and(|(name, _)| is_name(name)) {
        return Some("set variables with --env");
    }
    if !is_line {
        return None;
    }
    match program.contains(['|', '<', '>', '&', ';', '$', '`', '*', '(']) {
        true => Some("a line for a shell is run by sh -c '...'"),
        false => Some("pass each word apart, without quotes around all of them"),
    }
}

fn is_name(text: &str) -> bool {
    !text.is_empty() && text.chars().all(|it| it == '_' || it.is_ascii_alphanumeric())
}

#[cfg(test)]
mod tests {
    use super::hint;

    #[test]
    fn each_kind_of_line_has_its_hint() {
        for (program, words) in [
            ("ls -la", Some("pass each word apart")),
            ("echo {} | tr a b", Some("sh -c")),
            ("cat < in", Some("sh -c")),
            ("FOO=1 env", Some("--env")),
            ("FOO=1", Some("--env")),
            ("cd /tmp", Some("--cwd")),
            ("cd", Some("--cwd")),
            ("no-such", None),
            ("a=b=c/d", Some("--env")),
            ("./x=y", None),
            ("", None),
        ] {
            let found = hint(program);
            assert_eq!(found.is_some(), words.is_some(), "{program}");
            assert!(found.unwrap_or_default().contains(words.unwrap_or_default()), "{program}");
        }
    }
}
