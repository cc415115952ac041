//! The file of the program and its command line, and the directories of this machine.

use std::ffi::OsStr;
use std::os::windows::io::{FromRawHandle as _, OwnedHandle};
use std::path::{Path, PathBuf};
use std::{env, io, ptr};

use windows_sys::Win32::Foundation::{
    ERROR_ACCESS_DENIED, ERROR_DIRECTORY, ERROR_FILE_NOT_FOUND, INVALID_HANDLE_VALUE, MAX_PATH,
};
use windows_sys::Win32::Storage::FileSystem::{
    CreateFileW, FILE_ATTRIBUTE_DIRECTORY, FILE_EXECUTE, FILE_SHARE_DELETE, FILE_SHARE_READ,
    FILE_SHARE_WRITE, GetFileAttributesW, GetFullPathNameW, INVALID_FILE_ATTRIBUTES, OPEN_EXISTING,
};
use windows_sys::Win32::System::SystemInformation::{
    GetSystemDirectoryW, GetSystemWindowsDirectoryW,
};

use super::text::{self, nul_terminated, wide};
use crate::base::os_text::ends_with;
use crate::process::start::wide::batch::{batch_line, is_batch};
use crate::process::start::wide::{
    self, Arg, CommandLineError, SearchInputs, command_line, is_separator, is_verbatim, unit,
    without_verbatim,
};
use crate::process::start::{Env, Plan, Search, SpawnError, Step, WindowsOptions};

/// The file and the command line for `CreateProcessW`; both end with NUL.
#[derive(Debug)]
pub(super) struct ProgramAndLine {
    /// The file, so that the system does not search for it again, by other rules.
    pub(super) file: Vec<u16>,
    pub(super) line: Vec<u16>,
}

impl ProgramAndLine {
    pub(super) fn find(plan: &Plan<'_>) -> Result<ProgramAndLine, SpawnError> {
        let file = file(plan).map_err(cannot_load)?;
        let args = args(plan);
        let force_quotes = plan.windows.is_some_and(|windows| windows.force_quotes);
        // Decided by the real name of the file, whatever name the program was given by.
        if !is_batch(&file) {
            let line = command_line(&wide(plan.program), &args, force_quotes).map_err(refused)?;
            return Ok(ProgramAndLine { file: nul_terminated(file), line: nul_terminated(line) });
        }
        // Otherwise cmd.exe would report the missing file, as its output.
        must_be_a_file(&file).map_err(cannot_load)?;
        let line = batch_line(&file, &args, force_quotes).map_err(refused)?;
        let cmd = system().ok_or_else(|| cannot_load(not_found()))?;
        let cmd = wide::join(&cmd, &wide("cmd".as_ref()), ".exe");
        Ok(ProgramAndLine { file: nul_terminated(cmd), line: nul_terminated(line) })
    }
}

fn cannot_load(error: io::Error) -> SpawnError {
    SpawnError::new(Step::Exec, error)
}

fn not_found() -> io::Error {
    io::Error::from_raw_os_error(ERROR_FILE_NOT_FOUND as i32)
}

fn refused(reason: CommandLineError) -> SpawnError {
    match reason {
        CommandLineError::Bad(input) => SpawnError::bad(input),
        CommandLineError::TooLong => cannot_load(io::Error::new(
            io::ErrorKind::ArgumentListTooLong,
            "the command line is longer than Windows allows",
        )),
    }
}

fn args(plan: &Plan<'_>) -> Vec<Arg> {
    let raw = plan.windows.map_or(&[][..], |WindowsOptions { raw_args, .. }| raw_args);
    let arg = |(index, text): (usize, &std::ffi::OsString)| match raw.contains(&index) {
        true => Arg::Raw(wide(text)),
        false => Arg::Plain(wide(text)),
    };
    plan.args.iter().enumerate().map(arg).collect()
}

/// Returns the full path of the file.
fn file(plan: &Plan<'_>) -> io::Result<Vec<u16>> {
    let name = wide(plan.program);
    if name.contains(&unit('"')) {
        // No file name has one, and the command line would end the name there.
        return Err(not_found());
    }
    let found = if wide::is_path(&name) {
        // From the child's working directory, as on other systems; by std's rules from this process's.
        let base = plan.current_dir.filter(|_| !plan.unix.std_rules).unwrap_or(Path::new(""));
        with_extension(wide(base.join(plan.program).as_os_str()))
    } else {
        let extensions = wide::extensions(own("PATHEXT").as_deref());
        let mut is_file = |file: &[u16]| is_file(&nul_terminated(file.to_vec()));
        wide::find(&name, &dirs(plan), &extensions, &mut is_file).ok_or_else(not_found)?
    };
    absolute(found)
}

/// Returns the path as std interprets it: with `.exe` at its end, if that file exists.
fn with_extension(path: Vec<u16>) -> Vec<u16> {
    let names_a_directory = path.last().is_some_and(|last| is_separator(*last));
    if names_a_directory || ends_with(&path, ".exe") {
        return path;
    }
    let mut longer = path.clone();
    longer.extend(".exe".encode_utf16());
    if is_file(&nul_terminated(longer.clone())) { longer } else { path }
}

fn must_be_a_file(file: &[u16]) -> io::Result<()> {
    if !is_of_directory(attributes(&nul_terminated(file.to_vec()))?) {
        return Ok(());
    }
    // The system's error for a directory.
    Err(io::Error::from_raw_os_error(ERROR_ACCESS_DENIED as i32))
}

pub(in crate::process::start) fn is_path(program: &OsStr) -> bool {
    wide::is_path(&wide(program))
}

pub(in crate::process::start) fn search_dirs(
    plan: &Plan<'_>,
) -> impl Iterator<Item = PathBuf> + use<> {
    dirs(plan).into_iter().map(|dir| text::path(&dir))
}

fn dirs(plan: &Plan<'_>) -> Vec<Vec<u16>> {
    let child_path = match (plan.env, plan.search) {
        (Env::Exactly(_), Search::Path(path)) => Some(wide(path)),
        _ => None,
    };
    let own_program = env::current_exe().ok();
    let own_program = own_program.as_deref().and_then(Path::parent);
    wide::dirs(SearchInputs {
        child_path: child_path.as_deref(),
        own_program: own_program.map(|dir| wide(dir.as_os_str())).as_deref(),
        system: system().as_deref(),
        windows: windows().as_deref(),
        own_path: own("PATH").as_deref(),
    })
}

fn own(variable: &str) -> Option<Vec<u16>> {
    env::var_os(variable).map(|value| wide(&value))
}

/// Returns `C:\Windows\System32`.
pub(super) fn system() -> Option<Vec<u16>> {
    // SAFETY: a live buffer of that size.
    query_text(|buffer, units| unsafe { GetSystemDirectoryW(buffer, units) }).ok()
}

/// Returns `C:\Windows`.
pub(super) fn windows() -> Option<Vec<u16>> {
    // SAFETY: a live buffer of that size.
    query_text(|buffer, units| unsafe { GetSystemWindowsDirectoryW(buffer, units) }).ok()
}

/// Returns the full path as the system makes it: without `.`, `..`, and dots and spaces at its end; with a
/// drive.
fn full(path: Vec<u16>) -> io::Result<Vec<u16>> {
    let path = nul_terminated(path);
    // SAFETY: a string that ends with NUL; a live buffer of that size; no pointer to the last part.
    query_text(|buffer, units| unsafe {
        GetFullPathNameW(path.as_ptr(), units, buffer, ptr::null_mut())
    })
}

/// Returns a path that does not depend on the working directory, and that the calls accept at any length.
/// If it is short, every program understands it.
pub(super) fn absolute(path: Vec<u16>) -> io::Result<Vec<u16>> {
    if let Some(common_form) = common_form(&path) {
        return Ok(common_form);
    }
    if is_verbatim(&path) {
        return Ok(path);
    }
    let full = full(path)?;
    if fits(&full) {
        return Ok(full);
    }
    let without = |start: &str| full.strip_prefix(wide(start.as_ref()).as_slice());
    let (start, rest) = match (without(r"\\.\"), without(r"\\")) {
        (Some(device), _) => (r"\\?\", device),
        (_, Some(share)) => (r"\\?\UNC\", share),
        _ => (r"\\?\", full.as_slice()),
    };
    Ok(start.encode_utf16().chain(rest.iter().copied()).collect())
}

/// Returns the common form of a path that starts with `\\?\`, if it means the same.
fn common_form(path: &[u16]) -> Option<Vec<u16>> {
    let common_form = without_verbatim(path).filter(|common_form| fits(common_form))?;
    let is_same = full(common_form.clone()).is_ok_and(|full| full == common_form);
    is_same.then_some(common_form)
}

fn fits(path: &[u16]) -> bool {
    path.len() < MAX_PATH as usize
}

/// Returns the directory for the call, ended by NUL. Programs cannot handle a working directory that starts
/// with `\\?\`, which `canonicalize` returns.
pub(super) fn as_working_directory(dir: &Path) -> Vec<u16> {
    let dir = wide(dir.as_os_str());
    nul_terminated(common_form(&dir).unwrap_or(dir))
}

/// Returns the reason why that cannot be a working directory, if there is one.
pub(super) fn working_dir_error(dir: &Path) -> Option<io::Error> {
    match attributes(&nul_terminated(wide(dir.as_os_str()))) {
        Ok(it) if is_of_directory(it) => None,
        Ok(_) => Some(io::Error::from_raw_os_error(ERROR_DIRECTORY as i32)),
        Err(error) => Some(error),
    }
}

pub(super) fn is_directory(path_and_nul: &[u16]) -> bool {
    attributes(path_and_nul).is_ok_and(is_of_directory)
}

fn is_of_directory(attributes: u32) -> bool {
    attributes & FILE_ATTRIBUTE_DIRECTORY != 0
}

/// Returns true if this process may execute that file.
pub(super) fn may_be_executed(path_and_nul: &[u16]) -> bool {
    let shared = FILE_SHARE_READ | FILE_SHARE_WRITE | FILE_SHARE_DELETE;
    // SAFETY: a path that ends with NUL, no attributes and no template.
    let opened = unsafe {
        let (path, none) = (path_and_nul.as_ptr(), ptr::null_mut());
        CreateFileW(path, FILE_EXECUTE, shared, ptr::null(), OPEN_EXISTING, 0, none)
    };
    if opened == INVALID_HANDLE_VALUE {
        return false;
    }
    // SAFETY: made by the call above, and owned nowhere else.
    drop(unsafe { OwnedHandle::from_raw_handle(opened) });
    true
}

pub(super) fn is_file(path_and_nul: &[u16]) -> bool {
    attributes(path_and_nul).is_ok_and(|it| !is_of_directory(it))
}

pub(super) fn attributes(path_and_nul: &[u16]) -> io::Result<u32> {
    // SAFETY: a string that ends with NUL.
    match unsafe { GetFileAttributesW(path_and_nul.as_ptr()) } {
        INVALID_FILE_ATTRIBUTES => Err(io::Error::last_os_error()),
        attributes => Ok(attributes),
    }
}

/// Returns a text from a call that takes a buffer and its size, and returns the length of the text, or, if
/// the buffer is too small, the required size.
fn query_text(call: impl Fn(*mut u16, u32) -> u32) -> io::Result<Vec<u16>> {
    let mut text = vec![0; MAX_PATH as usize];
    loop {
        let units = u32::try_from(text.len()).unwrap_or(u32::MAX);
        match call(text.as_mut_ptr(), units) {
            0 => return Err(io::Error::last_os_error()),
            length if length < units => {
                text.truncate(length as usize);
                return Ok(text);
            }
            // Between two calls a directory may have become longer.
            length => text.resize(length as usize + 1, 0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_paths_become_verbatim() {
        let long = "x".repeat(MAX_PATH as usize);
        let of = |start: &str| {
            let path = absolute(wide(format!("{start}{long}").as_ref())).unwrap();
            String::from_utf16(&path).unwrap().strip_suffix(&long).unwrap().to_owned()
        };
        assert_eq!(of(r"C:\a\"), r"\\?\C:\a\");
        assert_eq!(of(r"\\server\share\"), r"\\?\UNC\server\share\");
        assert_eq!(of(r"\\.\C:\a\"), r"\\?\C:\a\");
        assert_eq!(of(r"\\?\C:\a\"), r"\\?\C:\a\");
    }
}
