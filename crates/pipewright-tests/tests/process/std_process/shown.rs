//! `Debug` is std's.

use pipewright_test_macros::watched_test;

use super::pretty_eq;

/// Commands of every shape, as both of std's formats show them.
macro_rules! shown {
    ($($process:ident)::*, $($unix:ident)::*) => {{
        use std::os::unix::ffi::OsStrExt as _;
        use $($unix)::*::CommandExt as _;
        use $($process)::*::{Command, Stdio};

        let of = |set: fn(&mut Command) -> &mut Command| {
            let mut command = Command::new("program");
            set(&mut command);
            [format!("{command:?}"), format!("{command:#?}")]
        };
        [
            of(|it| it),
            of(|it| it.args(["a b", "\"quoted\"", "", "\u{e9}\n"])),
            of(|it| it.arg(std::ffi::OsStr::from_bytes(b"\xff"))),
            of(|it| it.env("KEY", "some value").env("A", "1")),
            of(|it| it.env_remove("GONE").env_remove("ALSO").env("KEY", "v")),
            of(|it| it.env_clear()),
            of(|it| it.env("LOST", "1").env_clear().env("KEY", "v")),
            of(|it| it.current_dir("/some dir")),
            of(|it| it.arg0("other").arg("x")),
            of(|it| it.current_dir("/").env("A", "1").arg0("other").arg("x")),
            of(|it| it.uid(1).gid(2).process_group(0)),
            of(|it| it.process_group(77)),
            of(|it| it.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::inherit())),
            of(|it| it.arg("nul\0")),
        ]
    }};
}

#[watched_test]
fn commands_are_shown_as_std_shows_them() {
    let theirs = shown!(std::process, std::os::unix::process);
    let ours = shown!(pipewright::process, pipewright::process::unix);
    for (theirs, ours) in theirs.iter().flatten().zip(ours.iter().flatten()) {
        pretty_eq(theirs, ours);
    }
}

#[watched_test]
fn secrets_are_not_shown() {
    let mut command = pipewright::process::Command::new("login");
    command.arg("--password").extended().secret_arg("hunter2");
    assert_eq!(format!("{command:?}"), r#""login" "--password" "***""#);
    assert!(!format!("{command:#?}").contains("hunter2"));
}
