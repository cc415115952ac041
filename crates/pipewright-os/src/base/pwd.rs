//! The variable `PWD`: the working directory as the user wrote it, with its links.

use std::path::{Component, Path, PathBuf};

/// Returns the value of `PWD` for a program that starts in that directory: absolute, without dots. `None`: this process has
/// no `PWD` (Windows), or the directory cannot be found, which the start reports.
///
/// A path with `..` after a name is looked at, and a look may wait for a mount that does not answer.
///
/// A shell takes it for its directory if it names the same one; other programs show it.
#[must_use]
pub fn of(dir: &Path) -> Option<PathBuf> {
    match without_look(dir)? {
        Shown::Path(shown) => Some(shown),
        Shown::Unknown => dir.canonicalize().ok(),
    }
}

/// The value of `PWD`, as far as it is known without a look at the directory.
#[derive(Debug, PartialEq, Eq)]
pub enum Shown {
    /// The directory.
    Path(PathBuf),
    /// It has `..` after a name, which may be a link. The `PWD` of this process is wrong there.
    Unknown,
}

/// Returns the same as [`of`], but never waits.
#[must_use]
pub fn without_look(dir: &Path) -> Option<Shown> {
    std::env::var_os("PWD")?;
    let mut shown = match dir.is_absolute() {
        true => PathBuf::new(),
        false => std::env::current_dir().ok()?,
    };
    let mut has_name = false;
    for part in dir.components() {
        match part {
            Component::CurDir => {}
            // The system has no links in the current directory.
            Component::ParentDir if !has_name => drop(shown.pop()),
            Component::ParentDir => return Some(Shown::Unknown),
            _ => {
                has_name |= matches!(part, Component::Normal(_));
                shown.push(part);
            }
        }
    }
    Some(Shown::Path(shown))
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;

    #[test]
    fn only_a_name_before_dots_needs_a_look() {
        // The value of every shell; without one, nothing is to be shown.
        if std::env::var_os("PWD").is_none() {
            return assert_eq!(without_look(Path::new("/usr")), None);
        }
        let here = std::env::current_dir().unwrap();
        let above = here.parent().unwrap();
        let path = |path: &Path| Some(Shown::Path(path.to_owned()));
        assert_eq!(without_look(Path::new("./a//b/.")), path(&here.join("a/b")));
        assert_eq!(without_look(Path::new("../b")), path(&above.join("b")));
        assert_eq!(
            without_look(Path::new("/../no such folder")),
            path(Path::new("/no such folder"))
        );
        assert_eq!(without_look(Path::new("no such folder/../b")), Some(Shown::Unknown));
    }
}
