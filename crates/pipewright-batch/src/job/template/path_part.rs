//! The parts of a path that a placeholder can ask for, with the results of GNU parallel.

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PathPart {
    /// The value as it is.
    Whole,
    /// Without the extension: `{.}`.
    WithoutExtension,
    /// After the last separator: `{/}`.
    FileName,
    /// The directory: `{//}`.
    Directory,
    /// After the last separator, without the extension: `{/.}`.
    FileStem,
}

impl PathPart {
    /// The ends of a placeholder, and the parts that they ask for. None is the end of a later one.
    pub(super) const ENDS: [(&'static [u8], PathPart); 5] = [
        (b"/.", PathPart::FileStem),
        (b"//", PathPart::Directory),
        (b"/", PathPart::FileName),
        (b".", PathPart::WithoutExtension),
        (b"", PathPart::Whole),
    ];

    /// Returns this part of a path.
    pub(super) fn of(self, path: &[u8]) -> &[u8] {
        match self {
            PathPart::Whole => path,
            PathPart::WithoutExtension => without_extension(path),
            PathPart::FileName => split(path).1,
            PathPart::Directory => directory(path),
            PathPart::FileStem => without_extension(split(path).1),
        }
    }
}

fn is_separator(byte: u8) -> bool {
    byte.is_ascii() && std::path::is_separator(byte.into())
}

/// Splits after the last separator.
fn split(path: &[u8]) -> (&[u8], &[u8]) {
    let last = path.iter().rposition(|byte| is_separator(*byte));
    path.split_at(last.map_or(0, |last| last + 1))
}

/// Returns the path up to the last dot of its last part. A leading dot counts, as in GNU parallel: of `.bashrc`
/// nothing is left.
fn without_extension(path: &[u8]) -> &[u8] {
    let (directory, name) = split(path);
    match name.iter().rposition(|byte| *byte == b'.') {
        Some(dot) => path.get(..directory.len() + dot).unwrap_or(path),
        None => path,
    }
}

/// Returns what `dirname` of Perl and of the shell returns.
fn directory(path: &[u8]) -> &[u8] {
    let (parent, name) = split(path);
    let parent = trimmed(parent);
    // A separator at the end does not count.
    let parent = if name.is_empty() { trimmed(split(parent).0) } else { parent };
    if parent.is_empty() { b"." } else { parent }
}

/// Returns the path without the separators at its end, except that of a root.
fn trimmed(path: &[u8]) -> &[u8] {
    let end = path.iter().rposition(|byte| !is_separator(*byte));
    let end = end.map_or(path.len().min(1), |last| last + 1);
    // `C:\` is a root, and `C:` is not. There are drives where `\` is a separator.
    let is_drive = is_separator(b'\\') && end == 2 && path.get(1) == Some(&b':');
    path.get(..end + usize::from(is_drive)).unwrap_or(path)
}
