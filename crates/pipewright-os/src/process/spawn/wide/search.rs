//! The search for a program: the directories, and the names to try.

use super::path::is_separator;
use super::unit;
use crate::base::os_text::ends_with;

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
pub(crate) fn split_path(path: &[u16]) -> Vec<Vec<u16>> {
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

#[cfg(test)]
mod tests {
    use super::super::wide;
    use super::*;

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
}
