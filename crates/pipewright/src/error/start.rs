//! Finds the reason of a failed start: the system has one number for several reasons.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use pipewright_os::base::error::{OsErrorKind, Quoted, os_error_kind};
use pipewright_os::process::limits::LimitUnavailable;
use pipewright_os::process::pty::{OpenError, OpenProblem};
use pipewright_os::process::start::{BadInput, Plan, SpawnError, Step, is_path, search_dirs};

use super::{Error, ErrorKind, FailedOperation, NotExecutable};

pub(crate) fn could_not_start(plan: &Plan<'_>, failed: SpawnError) -> Error {
    if failed.step == Step::Confirm {
        // Not an error of the start: who repeats what did not run must not repeat this.
        return Error::cannot(plan.program, "confirm the start of", failed.source);
    }
    let kind = kind(plan, &failed);
    let operation = match failed.step {
        Step::CurrentDir if kind == ErrorKind::PermissionDenied => {
            let dir = plan.current_dir.unwrap_or(Path::new("")).as_os_str();
            FailedOperation::Prepare(format!(
                "cannot change to its working directory {}",
                Quoted(dir)
            ))
        }
        Step::PreExec => FailedOperation::PreExec,
        // The message of a general kind alone would not name the step.
        step if needs_step(step, &kind) => FailedOperation::Prepare(format!("cannot {step}")),
        Step::Exec => FailedOperation::Execute,
        _ => FailedOperation::Start,
    };
    Error::new(plan.program, operation, kind, Some(failed.source))
}

/// Returns true if the message of the kind does not imply the failed step.
fn needs_step(step: Step, kind: &ErrorKind) -> bool {
    match kind {
        // Readers assume that it is about the program itself.
        ErrorKind::Io | ErrorKind::PermissionDenied => step != Step::Exec,
        // The check's own message is complete.
        ErrorKind::InvalidInput => !matches!(step, Step::Check(_)),
        _ => false,
    }
}

/// Returns the error of a tree slot that could not be created.
pub(crate) fn could_not_create_slot(failed: SpawnError) -> Error {
    let SpawnError { source, .. } = failed;
    let kind = match ErrorKind::limit_of(&source) {
        Some(limit) => limit,
        None if source.kind() == io::ErrorKind::Unsupported => ErrorKind::Unsupported,
        None => ErrorKind::Io,
    };
    Error::new(OsStr::new(""), FailedOperation::CreateSlot, kind, Some(source))
}

/// Returns the error of a file that could not be opened as one of the child's standard handles.
pub(crate) fn could_not_open(
    program: &OsStr,
    path: &Path,
    stream: &str,
    source: io::Error,
) -> Error {
    let words = format!("cannot open {} for its {stream}", Quoted(path.as_os_str()));
    could_not_prepare(program, words, source)
}

/// Returns the error of a terminal that could not be opened.
pub(crate) fn could_not_open_terminal(program: &OsStr, failed: OpenError) -> Error {
    let kind = match failed.problem {
        OpenProblem::Missing => ErrorKind::Unsupported,
        OpenProblem::Exhausted => ErrorKind::Limit { what: "too many terminals" },
        _ => match os_error_kind(&failed.source) {
            Some(OsErrorKind::Denied) => ErrorKind::PermissionDenied,
            Some(OsErrorKind::Limit(what)) => ErrorKind::Limit { what },
            _ => ErrorKind::Io,
        },
    };
    let source = match kind {
        // Its own words name what is missing; the system's error is behind it.
        ErrorKind::Unsupported => io::Error::new(io::ErrorKind::Unsupported, failed),
        _ => failed.source,
    };
    let operation = FailedOperation::Prepare("cannot open a terminal".to_owned());
    Error::new(program, operation, kind, Some(source))
}

/// Returns the error of a step that the start needs, in the words "cannot ...".
pub(crate) fn could_not_prepare(program: &OsStr, words: String, source: io::Error) -> Error {
    let kind = ErrorKind::limit_of(&source).unwrap_or(ErrorKind::Io);
    Error::new(program, FailedOperation::Prepare(words), kind, Some(source))
}

/// Returns the kind of a failed start.
fn kind(plan: &Plan<'_>, failed: &SpawnError) -> ErrorKind {
    let limit = || ErrorKind::limit_of(&failed.source);
    let denied = os_error_kind(&failed.source) == Some(OsErrorKind::Denied);
    if let Some(limit) = unavailable_limit(failed) {
        return ErrorKind::LimitUnavailable { limit: limit.clone() };
    }
    match failed.step {
        Step::Check(BadInput::BatchArg(_) | BadInput::BatchName) => ErrorKind::BatArgs,
        Step::Check(BadInput::SlotInUse) => ErrorKind::SlotInUse,
        Step::Check(_) => ErrorKind::InvalidInput,
        Step::CurrentDir if !denied => ErrorKind::CurrentDirMissing {
            dir: plan.current_dir.map(Path::to_owned).unwrap_or_default(),
        },
        Step::Exec => exec_kind(plan, &failed.source),
        Step::PreExec => ErrorKind::Io,
        // Other code closed the handle, or its number is impossible.
        Step::Stdio(_) | Step::Inherit(_)
            if os_error_kind(&failed.source) == Some(OsErrorKind::BadHandle) =>
        {
            ErrorKind::InvalidInput
        }
        _ if denied => ErrorKind::PermissionDenied,
        _ if failed.source.kind() == io::ErrorKind::Unsupported => ErrorKind::Unsupported,
        _ => limit().unwrap_or(ErrorKind::Io),
    }
}

/// Returns the limit that cannot be held, if that is the reason.
fn unavailable_limit(failed: &SpawnError) -> Option<&LimitUnavailable> {
    failed.source.get_ref()?.downcast_ref()
}

/// Returns the kind of a failed `exec`.
fn exec_kind(plan: &Plan<'_>, source: &io::Error) -> ErrorKind {
    if plan.program.is_empty() {
        return ErrorKind::NotFound { searched: Vec::new() };
    }
    let found = || existing_file(plan);
    if matches!(source.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) {
        return match found() {
            // The file exists, so its interpreter is missing.
            Some(file) => match interpreter(&file) {
                Some(path) => {
                    ErrorKind::NotExecutable { reason: NotExecutable::MissingInterpreter(path) }
                }
                None => ErrorKind::NotExecutable { reason: NotExecutable::BadFormat },
            },
            None => ErrorKind::NotFound { searched: searched(plan) },
        };
    }
    match os_error_kind(source) {
        Some(OsErrorKind::Denied) => match found() {
            Some(file) if file.is_dir() => {
                ErrorKind::NotExecutable { reason: NotExecutable::IsDirectory }
            }
            _ => ErrorKind::PermissionDenied,
        },
        Some(OsErrorKind::Busy) => ErrorKind::Busy,
        Some(OsErrorKind::BadFormat) => {
            ErrorKind::NotExecutable { reason: NotExecutable::BadFormat }
        }
        Some(OsErrorKind::Limit(what)) => ErrorKind::Limit { what },
        _ => ErrorKind::Io,
    }
}

/// Returns the directories that were searched; none if the program was a path.
fn searched(plan: &Plan<'_>) -> Vec<PathBuf> {
    let mut dirs = Vec::new();
    if !is_path(plan.program) {
        for dir in search_dirs(plan) {
            dirs.push(dir);
        }
    }
    dirs
}

/// Returns the file that the child tried, if it exists. Relative paths start at its working directory.
fn existing_file(plan: &Plan<'_>) -> Option<PathBuf> {
    let base = plan.current_dir.unwrap_or(Path::new(""));
    if is_path(plan.program) {
        return Some(base.join(plan.program)).filter(|path| path.symlink_metadata().is_ok());
    }
    for dir in searched(plan) {
        let path = base.join(dir).join(plan.program);
        if path.exists() {
            return Some(path);
        }
    }
    None
}

/// Returns the interpreter that a script's first line or a program's header names, if it is missing.
fn interpreter(file: &Path) -> Option<PathBuf> {
    /// The bytes to read. The kernel reads no more of a script's first line (linux/binfmts.h, BINPRM_BUF_SIZE), and a
    /// program's headers are at its start too.
    const HEAD_BYTES: usize = 4096;
    let mut head = [0; HEAD_BYTES];
    // One read: a file returns all it has. A short read would only make the reason less exact.
    let count = File::open(file).ok()?.read(&mut head).ok()?;
    let head = head.get(..count)?;
    let path = match head.strip_prefix(b"#!") {
        Some(line) => script_interpreter(line),
        None => elf_interpreter(head)?,
    };
    (!path.exists()).then_some(path)
}

fn script_interpreter(line: &[u8]) -> PathBuf {
    // As for the kernel, a carriage return is part of the name. It is the usual reason for the failure.
    let is_end = |byte: &u8| *byte == b'\n';
    let is_gap = |byte: &u8| matches!(byte, b' ' | b'\t');
    let line = line.split(is_end).next().unwrap_or_default();
    path_of(line.split(is_gap).find(|word| !word.is_empty()).unwrap_or_default())
}

fn path_of(bytes: &[u8]) -> PathBuf {
    PathBuf::from(String::from_utf8_lossy(bytes).into_owned())
}

/// Returns the PT_INTERP segment of a 64-bit little-endian ELF file (elf(5)).
fn elf_interpreter(head: &[u8]) -> Option<PathBuf> {
    const PT_INTERP: u64 = 3;
    let field = |at: usize, bytes: usize| -> Option<u64> {
        let field = head.get(at..at.checked_add(bytes)?)?;
        Some(field.iter().rev().fold(0, |value, byte| (value << 8) | u64::from(*byte)))
    };
    if head.get(..6)? != b"\x7fELF\x02\x01" {
        return None;
    }
    let table = usize::try_from(field(32, 8)?).ok()?;
    let entry_bytes = usize::try_from(field(54, 2)?).ok()?;
    let entries = usize::try_from(field(56, 2)?).ok()?;
    for index in 0..entries {
        let entry = table.checked_add(index.checked_mul(entry_bytes)?)?;
        if field(entry, 4)? == PT_INTERP {
            let start = usize::try_from(field(entry.checked_add(8)?, 8)?).ok()?;
            let length = usize::try_from(field(entry.checked_add(32)?, 8)?).ok()?;
            let name = head.get(start..start.checked_add(length)?)?;
            let name = name.split(|byte| *byte == 0).next()?;
            return Some(path_of(name));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use pipewright_os::base::skipped::{Need, skipped};

    use super::*;

    #[test]
    fn the_interpreter_of_a_script_is_read_as_the_kernel_reads_it() {
        let of = |line: &str| script_interpreter(line.as_bytes());
        assert_eq!(of(" /bin/no such\nmore"), Path::new("/bin/no"));
        assert_eq!(of("/bin/sh\r\n"), Path::new("/bin/sh\r"));
        assert_eq!(of(""), Path::new(""));
    }

    #[test]
    fn the_interpreter_of_a_program_is_its_loader() {
        let this = std::env::current_exe().unwrap();
        let mut head = Vec::new();
        File::open(this).unwrap().take(4096).read_to_end(&mut head).unwrap();
        if !head.starts_with(b"\x7fELF") {
            return skipped(Need::Linux, "programs have another format here");
        }
        let loader = elf_interpreter(&head).unwrap();
        assert!(loader.to_string_lossy().contains("ld"), "{loader:?}");
    }

    #[test]
    fn a_malformed_header_names_no_interpreter() {
        let mut malformed = b"\x7fELF\x02\x01".to_vec();
        malformed.extend([0xff; 200]);
        assert_eq!(elf_interpreter(&malformed), None);
        for length in 0..malformed.len() {
            assert_eq!(elf_interpreter(&malformed[..length]), None);
        }
    }
}
