//! The variable `PWD`: the working directory as the user wrote it, with its links.

use std::path::{Component, Path, PathBuf};

/// Returns the value of `PWD` for a program that starts in that directory: absolute, without dots. `None`: this process has
/// no `PWD` (Windows), or the directory does not exist, which the start reports.
///
/// A shell takes it for its directory if it names the same one; other programs show it.
#[must_use]
pub fn of(dir: &Path) -> Option<PathBuf> {
    std::env::var_os("PWD")?;
    let is_shown = |part: Component<'_>| matches!(part, Component::RootDir | Component::Normal(_));
    match dir.is_absolute() && dir.components().all(is_shown) {
        true => Some(dir.components().collect()),
        false => dir.canonicalize().ok(),
    }
}
