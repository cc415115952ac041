//! The file of a program, and its command line.

use std::env;
use std::ffi::OsStr;
use std::io;
use std::path::{Path, PathBuf};

use windows_sys::Win32::Foundation::{ERROR_ACCESS_DENIED, ERROR_FILE_NOT_FOUND};

use super::directories;
use super::text::{self, nul_terminated, wide};
use crate::base::os_text::ends_with;
use crate::process::spawn::wide::batch::{batch_line, is_batch};
use crate::process::spawn::wide::command_line::command_line;
use crate::process::spawn::wide::path::is_separator;
use crate::process::spawn::wide::search::{self, SearchInputs};
use crate::process::spawn::wide::{Arg, CommandLineError, path, unit};
use crate::process::spawn::{Env, Plan, Search, SpawnError, Step, WindowsOptions};

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
        let cmd = directories::system().ok_or_else(|| cannot_load(not_found()))?;
        let cmd = search::join(&cmd, &wide("cmd".as_ref()), ".exe");
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
    let found = if path::is_path(&name) {
        // From the child's working directory, as on other systems; by std's rules from this process's.
        let base = plan.current_dir.filter(|_| !plan.unix.std_rules).unwrap_or(Path::new(""));
        with_extension(wide(base.join(plan.program).as_os_str()))
    } else {
        let extensions = search::extensions(own("PATHEXT").as_deref());
        let mut is_file = |file: &[u16]| directories::is_file(&nul_terminated(file.to_vec()));
        search::find(&name, &dirs(plan), &extensions, &mut is_file).ok_or_else(not_found)?
    };
    directories::absolute(found)
}

/// Returns the path as std interprets it: with `.exe` at its end, if that file exists.
fn with_extension(path: Vec<u16>) -> Vec<u16> {
    let names_a_directory = path.last().is_some_and(|last| is_separator(*last));
    if names_a_directory || ends_with(&path, ".exe") {
        return path;
    }
    let mut longer = path.clone();
    longer.extend(".exe".encode_utf16());
    if directories::is_file(&nul_terminated(longer.clone())) { longer } else { path }
}

fn must_be_a_file(file: &[u16]) -> io::Result<()> {
    if !directories::is_of_directory(directories::attributes(&nul_terminated(file.to_vec()))?) {
        return Ok(());
    }
    // The system's error for a directory.
    Err(io::Error::from_raw_os_error(ERROR_ACCESS_DENIED as i32))
}

pub(in super::super) fn is_path(program: &OsStr) -> bool {
    path::is_path(&wide(program))
}

pub(in super::super) fn search_dirs(plan: &Plan<'_>) -> impl Iterator<Item = PathBuf> + use<> {
    dirs(plan).into_iter().map(|dir| text::path(&dir))
}

fn dirs(plan: &Plan<'_>) -> Vec<Vec<u16>> {
    let child_path = match (plan.env, plan.search) {
        (Env::Exactly(_), Search::Path(path)) => Some(wide(path)),
        _ => None,
    };
    let own_program = env::current_exe().ok();
    let own_program = own_program.as_deref().and_then(Path::parent);
    search::dirs(SearchInputs {
        child_path: child_path.as_deref(),
        own_program: own_program.map(|dir| wide(dir.as_os_str())).as_deref(),
        system: directories::system().as_deref(),
        windows: directories::windows().as_deref(),
        own_path: own("PATH").as_deref(),
    })
}

fn own(variable: &str) -> Option<Vec<u16>> {
    env::var_os(variable).map(|value| wide(&value))
}
