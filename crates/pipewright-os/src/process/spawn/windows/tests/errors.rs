//! Starts that fail.

use std::ffi::OsString;
use std::io::{self, Read as _, Write as _};
use std::path::Path;

use super::{Note, act, code, plan};
use crate::base::errno::{OsErrorKind, os_error_kind};
use crate::base::handle::Handle;
use crate::base::pipe::{Mode, PipeOptions, pair};
use crate::process::spawn::{
    BadInput, ChildStdio, Env, Plan, Search, SpawnError, Step, UnixOptions, spawn,
};

fn failure(program: &str, args: &[OsString]) -> SpawnError {
    let unix = UnixOptions::default();
    spawn(&plan(program, args, &unix)).unwrap_err()
}

#[test]
fn a_program_that_is_not_there_is_not_found() {
    for program in
        ["no-such-program", "no-such.exe", r"C:\no\such.exe", r"C:\windows\no-such", "a\"b"]
    {
        let error = failure(program, &[]);
        assert_eq!(
            (error.step, error.source.kind()),
            (Step::Exec, io::ErrorKind::NotFound),
            "{program}"
        );
    }
}

#[test]
fn the_working_directory_is_not_searched() {
    let note = Note::new("cwd");
    let dir = std::env::temp_dir();
    let name = format!("pipewright-cwd-{}.exe", std::process::id());
    std::fs::copy(r"C:\windows\system32\cmd.exe", dir.join(&name)).unwrap();
    let unix = UnixOptions::default();
    let env = [("PATH".into(), ";;".into())];
    let plan = Plan {
        current_dir: Some(&dir),
        env: Env::Exactly(&env),
        search: Search::Path(";;".as_ref()),
        ..plan(&name, &[], &unix)
    };
    let error = spawn(&plan).unwrap_err();
    std::fs::remove_file(dir.join(&name)).unwrap();
    assert_eq!((error.step, error.source.kind()), (Step::Exec, io::ErrorKind::NotFound));
    drop(note);
}

#[test]
fn the_childs_path_is_searched_first() {
    let dir = std::env::temp_dir().join(format!("pipewright path {}", std::process::id()));
    std::fs::create_dir_all(&dir).unwrap();
    // It has the name of a program in a directory that every search includes.
    std::fs::copy(std::env::current_exe().unwrap(), dir.join("cmd.exe")).unwrap();
    let mut act = act("exit", "9");
    act.env.retain(|(name, _)| !name.eq_ignore_ascii_case("path"));
    act.env.push(("PATH".into(), dir.clone().into()));
    let plan =
        Plan { program: "cmd".as_ref(), search: Search::Path(dir.as_os_str()), ..act.plan() };
    let found = code(&spawn(&plan).unwrap());
    std::fs::remove_dir_all(&dir).unwrap();
    assert_eq!(found, 9);
}

#[test]
fn directories_and_bad_formats_give_different_errors() {
    let error = failure(r"C:\windows", &[]);
    assert_eq!(
        (error.step, os_error_kind(&error.source)),
        (Step::Exec, Some(OsErrorKind::Denied)),
        "{error}"
    );
    let note = Note::new("no program");
    std::fs::write(&note.0, "hello\n").unwrap();
    let error = failure(note.0.to_str().unwrap(), &[]);
    assert_eq!(
        (error.step, os_error_kind(&error.source)),
        (Step::Exec, Some(OsErrorKind::BadFormat)),
        "{error}"
    );
}

#[test]
fn a_start_that_fails_takes_nothing_from_an_overlapped_stdin() {
    let note = Note::new("takes nothing");
    std::fs::write(&note.0, "no program\n").unwrap();
    let options = PipeOptions { read: Mode::Async, ..PipeOptions::default() };
    let (mut reader, writer) = pair(options).unwrap();
    (&writer).write_all(b"for the next one").unwrap();
    let (unix, given) = (UnixOptions::default(), Handle::from(reader.try_clone().unwrap()));
    let stdio = [ChildStdio::Handle(&given), ChildStdio::Inherit, ChildStdio::Inherit];
    let program = note.0.to_str().unwrap();
    let error = spawn(&Plan { stdio, ..plan(program, &[], &unix) }).unwrap_err();
    assert_eq!(error.step, Step::Exec, "{error}");
    drop((given, writer));
    let mut left = String::new();
    reader.read_to_string(&mut left).unwrap();
    assert_eq!(left, "for the next one");
}

#[test]
fn missing_directory_and_missing_program_give_different_errors() {
    let unix = UnixOptions::default();
    let note = Note::new("no directory");
    std::fs::write(&note.0, "").unwrap();
    for (dir, kind) in [
        (Path::new(r"C:\no such directory"), io::ErrorKind::NotFound),
        (note.0.as_path(), io::ErrorKind::NotADirectory),
    ] {
        for program in ["cmd", "no-such-program", r".\cmd.exe"] {
            let error = spawn(&Plan { current_dir: Some(dir), ..plan(program, &[], &unix) });
            let error = error.unwrap_err();
            assert_eq!((error.step, error.source.kind()), (Step::CurrentDir, kind), "{program}");
        }
    }
}

#[test]
fn a_command_line_that_is_too_long_is_a_limit() {
    let error = failure("cmd", &["x".repeat(32_767).into()]);
    assert_eq!(error.step, Step::Exec);
    assert!(matches!(os_error_kind(&error.source), Some(OsErrorKind::Limit(_))), "{error}");
    // The longest line works: no argument here has quotes, the program has.
    let mut act = act("exit", "3");
    let words = act.args.iter().map(|arg| arg.len() + 1).sum::<usize>();
    let used = act.program.as_os_str().len() + 2 + words + 1;
    act.args.push("x".repeat(32_766 - used).into());
    assert_eq!(act.code(), 3);
    act.args.last_mut().unwrap().push("x");
    assert!(spawn(&act.plan()).is_err());
}

#[test]
fn contradicting_flags_are_refused() {
    let windows =
        crate::process::spawn::WindowsOptions { creation_flags: 0x10 | 0x8, ..Default::default() };
    let unix = UnixOptions::default();
    let args = ["/c".into(), "exit 0".into()];
    match spawn(&Plan { windows: Some(&windows), ..plan("cmd", &args, &unix) }) {
        Err(error) => assert_eq!(error.step, Step::Create, "{error}"),
        Ok(_) => crate::base::skipped::skipped(
            crate::base::skipped::Need::Windows,
            "this system takes them",
        ),
    }
}

#[test]
fn a_batch_file_is_run_and_unsafe_arguments_are_refused() {
    let dir = std::env::temp_dir().join(format!("pipewright batch {}", std::process::id()));
    std::fs::create_dir_all(&dir).unwrap();
    std::fs::write(dir.join("a b.cmd"), "@exit %1\r\n").unwrap();
    let unix = UnixOptions::default();
    let path = dir.join("a b.cmd");
    let args = [OsString::from("7")];
    let found = spawn(&plan(path.to_str().unwrap(), &args, &unix)).map(|exit| code(&exit));
    // By its bare name, as npm's are called.
    let env = [("PATH".into(), dir.clone().into())];
    let plan_by_name = Plan {
        env: Env::Exactly(&env),
        search: Search::Path(dir.as_os_str()),
        ..plan("a b", &args, &unix)
    };
    let by_name = spawn(&plan_by_name).map(|exit| code(&exit));
    let hostile = [OsString::from("a\nb")];
    let refused = failure(path.to_str().unwrap(), &hostile);
    // The system finds a batch file under that name.
    let dotted = format!("{}. .", path.to_str().unwrap());
    let dotted = failure(&dotted, &hostile);
    let missing = failure(dir.join("missing.bat").to_str().unwrap(), &[]);
    std::fs::remove_dir_all(&dir).unwrap();
    assert_eq!(found.unwrap(), 7);
    assert_eq!(by_name.unwrap(), 7);
    assert_eq!(refused.step, Step::Check(BadInput::BatchArg(0)));
    assert_eq!(dotted.step, Step::Check(BadInput::BatchArg(0)));
    assert_eq!((missing.step, missing.source.kind()), (Step::Exec, io::ErrorKind::NotFound));
}
