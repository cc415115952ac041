//! The kind of a path, found without asking the system.

use super::unit;

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
mod tests {
    use super::super::wide;
    use super::*;

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
