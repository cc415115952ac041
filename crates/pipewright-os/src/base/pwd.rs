//! The variable `PWD`: the working directory as the user wrote it, with its links.

use std::path::{Component, Path, PathBuf};

/// Returns the value of `PWD` for a program that starts in that directory: absolute, without dots. `None`: this process has
/// no `PWD` (Windows), or the directory cannot be found, which the start reports.
///
/// Only a path with `..` is looked at: a look may wait for a mount that does not answer.
///
/// A shell takes it for its directory if it names the same one; other programs show it.
#[must_use]
pub fn of(dir: &Path) -> Option<PathBuf> {
    std::env::var_os("PWD")?;
    if dir.components().any(|part| part == Component::ParentDir) {
        return dir.canonicalize().ok();
    }
    let shown = dir.components().filter(|part| *part != Component::CurDir).collect::<PathBuf>();
    match dir.is_absolute() {
        true => Some(shown),
        false => std::env::current_dir().ok().map(|here| here.join(shown).components().collect()),
    }
}
