//! Errors on Windows: refusals of the system, and their words.

use std::fs;
use std::io;
use std::os::windows::fs::OpenOptionsExt as _;

use pipewright::{Command, Error, ErrorKind, NotExecutable, Outcome, ProcessHandle, Source, Stdio};
use pipewright_test_macros::watched_test;

use super::puppet;

fn error_of(program: impl AsRef<std::ffi::OsStr>) -> Error {
    Command::new(program).capture().unwrap_err()
}

#[watched_test]
fn not_found_names_the_number_of_searched_directories() {
    let error = Command::new("no-such").env("PATH", r"C:\a;C:\b").capture().unwrap_err();
    let ErrorKind::NotFound { searched } = error.kind() else { panic!("{error:?}") };
    assert!(
        searched.len() > 2,
        "the child's PATH, and the directories of the system: {searched:?}"
    );
    assert!(
        searched[..2]
            .iter()
            .all(|dir| [r"C:\a", r"C:\b"].iter().any(|own| dir.as_os_str() == *own))
    );
    let words = format!(
        r#"cannot start "no-such": not found in PATH (searched {} directories)"#,
        searched.len()
    );
    assert_eq!(error.to_string(), words);
    assert_eq!(io::Error::from(error).kind(), io::ErrorKind::NotFound);

    let error = error_of(r"C:\no\such\program.exe");
    assert_eq!(error.kind(), &ErrorKind::NotFound { searched: Vec::new() });
    assert!(error.to_string().ends_with(r#"program.exe": no such file"#), "{error}");
}

#[watched_test]
fn a_missing_working_directory_is_not_reported_as_a_missing_program() {
    let error = puppet(["exit=0"]).current_dir(r"C:\no\such").status().unwrap_err();
    assert_eq!(error.kind(), &ErrorKind::CurrentDirMissing { dir: r"C:\no\such".into() });
    assert!(error.to_string().contains("working directory"), "{error}");
    assert!(error.to_string().ends_with("does not exist"), "{error}");
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("file");
    fs::write(&file, "x").unwrap();
    let error = puppet(["exit=0"]).current_dir(&file).status().unwrap_err();
    assert_eq!(error.kind(), &ErrorKind::CurrentDirMissing { dir: file });
    assert!(error.to_string().ends_with("is not a directory"), "{error}");
}

#[watched_test]
fn not_executable_names_the_reason() {
    let dir = tempfile::tempdir().unwrap();
    let error = error_of(dir.path());
    assert_eq!(error.kind(), &ErrorKind::NotExecutable { reason: NotExecutable::IsDirectory });
    assert!(error.to_string().ends_with("\": is a directory"), "{error}");
    let text = dir.path().join("text.exe");
    fs::write(&text, "just text\r\n").unwrap();
    let error = error_of(&text);
    assert_eq!(error.kind(), &ErrorKind::NotExecutable { reason: NotExecutable::BadFormat });
    assert!(error.to_string().contains("\": exec format error: "), "{error}");
}

#[watched_test]
fn a_program_open_for_writing_is_busy() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("copy.exe");
    fs::copy(puppet(["exit=0"]).get_program(), &path).unwrap();
    let writer = fs::OpenOptions::new().append(true).share_mode(0).open(&path).unwrap();
    assert_eq!(error_of(&path).kind(), &ErrorKind::Busy);
    drop(writer);
    assert!(Command::new(&path).status().unwrap().success());
}

#[watched_test]
fn invalid_input_names_the_problem() {
    let words = |command: &mut Command| {
        let error = command.status().unwrap_err();
        assert_eq!(error.kind(), &ErrorKind::InvalidInput, "{error}");
        assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
        error.to_string()
    };
    assert_eq!(words(&mut Command::new("")), r#"cannot start "": the command is empty"#);
    assert!(words(Command::new("cmd").args(["fine", "a\0b"])).ends_with("NUL byte in argument 2"));
    assert!(words(Command::new("cmd").env("A=B", "x")).contains("environment variable"));
    assert!(words(Command::new("cmd").env("A", "x\0")).contains("environment variable"));
    assert!(words(Command::new("cmd").current_dir("C:\\\0")).contains("directory's name"));
    // Of a drive's directory, which is a variable whose name begins with the sign.
    assert!(puppet(["exit=0"]).env("=C:", r"C:\").status().unwrap().success());
}

#[watched_test]
fn unsafe_arguments_of_a_batch_file_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let script = dir.path().join("script.bat");
    fs::write(&script, "@echo [%1]\r\n").unwrap();
    assert_eq!(Command::new(&script).arg("plain").read().unwrap(), "[plain]");
    for name in ["script.bat", "script.bat.", "script.bat ", "script.BAT. ."] {
        let error = Command::new(dir.path().join(name)).arg("a\r\nb").status().unwrap_err();
        assert_eq!(error.kind(), &ErrorKind::BatArgs, "{name}: {error}");
    }
}

#[watched_test]
fn a_command_line_that_is_too_long_is_a_limit() {
    // CreateProcessW: 32,767 characters, with the last NUL.
    let error = puppet(["x".repeat(32_767)]).status().unwrap_err();
    let ErrorKind::Limit { what } = error.kind() else { panic!("{error:?}") };
    assert!(what.contains("too long"), "{error}");
}

#[watched_test]
fn failed_carries_status_outcome_and_the_end_of_stderr() {
    let error = puppet(["err=first\nlast words\n", "exit=3"]).read().unwrap_err();
    let ErrorKind::Failed { status, outcome, stderr_tail, .. } = error.kind() else {
        panic!("{error:?}");
    };
    assert_eq!((status.code(), *outcome), (Some(3), Outcome::Exited));
    assert_eq!(stderr_tail, "first\nlast words\n");
    assert!(error.to_string().contains("failed: exit "), "{error}");
    assert!(error.to_string().ends_with(": 3: last words"), "{error}");
    // The well-known number of an exception.
    let error = Command::new("cmd").args(["/c", "exit", "-1073741819"]).read().unwrap_err();
    assert!(error.to_string().to_lowercase().contains("0xc0000005"), "{error}");
}

#[watched_test]
fn strict_text_that_is_not_utf8_is_an_error_with_its_offset() {
    let error = puppet(["out-hex=616263ff"]).strict_utf8().capture().unwrap_err();
    assert_eq!(error.kind(), &ErrorKind::InvalidUtf8 { source: Source::Stdout, offset: 3 });
}

#[watched_test]
fn files_that_cannot_be_opened_are_named_and_nothing_is_started() {
    let dir = tempfile::tempdir().unwrap();
    let mark = dir.path().join("started");
    let missing = dir.path().join("missing").join("file");
    for stdio in [0, 1] {
        let mut command = puppet([format!("touch={}", mark.display())]);
        match stdio {
            0 => command.stdin(Stdio::open(&missing)),
            _ => command.stdout(Stdio::create(&missing)),
        };
        let error = command.status().unwrap_err();
        assert_eq!(error.kind(), &ErrorKind::Io);
        assert!(error.to_string().contains("cannot open"), "{error}");
        assert!(!mark.exists(), "it was started");
    }
}

#[watched_test]
fn a_process_that_does_not_exist_is_not_found() {
    // Numbers are multiples of four, and far below this one.
    let error = ProcessHandle::open(0x7FFF_FFFC).unwrap_err();
    assert_eq!(error.kind(), &ErrorKind::NoSuchProcess, "{error}");
    assert_eq!(error.kind(), io::ErrorKind::NotFound);
}
