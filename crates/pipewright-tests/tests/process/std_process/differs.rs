//! Differences from std, as the documentation of `pipewright::process` lists them, and the options of
//! `extended`.

use std::fs;
use std::io::{self, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::time::Duration;

use pipewright::process::unix::CommandExt as _;
use pipewright::process::{Command, Stdio};
use pipewright_test_macros::{isolated_test, watched_test};
use pipewright_tests::{TRUE, count, watchdog};

#[watched_test]
fn an_error_has_no_raw_os_error() {
    let theirs = std::process::Command::new("/no/such/program").spawn().unwrap_err();
    let ours = Command::new("/no/such/program").spawn().unwrap_err();
    assert_eq!((theirs.raw_os_error(), ours.raw_os_error()), (Some(libc::ENOENT), None));
}

#[isolated_test]
fn a_dropped_child_leaves_no_zombie() {
    drop(Command::new("true").spawn().unwrap());
    watchdog::until("the child is reaped", || count::children().is_empty());
    let theirs = std::process::Command::new("true").spawn().unwrap();
    watchdog::until("std leaves a zombie", || count::zombies() == [theirs.id()]);
    // Reaped, for the harness.
    let mut theirs = theirs;
    theirs.wait().unwrap();
}

#[isolated_test]
fn a_child_holds_one_more_handle_than_in_std() {
    let before = count::handles();
    let mut theirs = std::process::Command::new("true").spawn().unwrap();
    assert_eq!(count::handles(), before);
    theirs.wait().unwrap();
    let ours = Command::new("true").spawn().unwrap();
    let expected = if pipewright_tests::skip::is_forced_off("pidfd") { 0 } else { 1 };
    assert_eq!(count::handles(), before + expected);
    drop(ours);
    watchdog::until("it is closed", || count::handles() == before);
}

#[watched_test]
fn a_busy_program_is_retried() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("program");
    fs::copy(TRUE, &path).unwrap();
    let writer = fs::OpenOptions::new().append(true).open(&path).unwrap();
    let since = std::time::Instant::now();
    let error = Command::new(&path).spawn().unwrap_err();
    assert!(since.elapsed() >= Duration::from_millis(127));
    assert_eq!(error.kind(), io::ErrorKind::ExecutableFileBusy);
    drop(writer);
    assert!(Command::new(&path).status().unwrap().success());
}

#[watched_test]
fn a_script_without_a_shebang_is_never_run_by_a_shell() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("script");
    let mut file = fs::File::create(&path).unwrap();
    file.write_all(b"echo by a shell\n").unwrap();
    file.set_permissions(fs::Permissions::from_mode(0o755)).unwrap();
    drop(file);
    let mut theirs = std::process::Command::new(&path);
    assert_eq!(theirs.output().unwrap_err().raw_os_error(), Some(libc::ENOEXEC));
    let mut ours = Command::new(&path);
    assert!(ours.output().is_err());
    // SAFETY: they do nothing.
    unsafe {
        std::os::unix::process::CommandExt::pre_exec(&mut theirs, || Ok(()));
        ours.pre_exec(|| Ok(()));
    }
    if cfg!(target_env = "gnu") {
        assert_eq!(theirs.output().unwrap().stdout, b"by a shell\n", "execvp of the C library");
    }
    let inside = ours.output().unwrap_err().into_inner().unwrap();
    assert!(inside.to_string().contains("exec format error: "), "{inside}");
}

#[watched_test]
fn status_drains_streams_that_are_piped() {
    let mut command = Command::new("sh");
    // More than a pipe holds: with std it would wait for ever.
    command.args(["-c", "head -c 300000 /dev/zero; exit 6"]).stdout(Stdio::piped());
    assert_eq!(command.status().unwrap().code(), Some(6));
}

#[watched_test]
fn exec_with_a_piped_stream_is_refused() {
    let error = Command::new("true").stdout(Stdio::piped()).exec();
    assert_eq!(error.kind(), io::ErrorKind::InvalidInput, "{error}");
}

#[watched_test]
fn a_command_with_a_user_is_not_forked() {
    if !pipewright_tests::skip::is_root() {
        pipewright_tests::skip::skipped(
            pipewright_tests::skip::Need::Root,
            "only root becomes another user",
        );
        return;
    }
    let output = Command::new("id").arg("-u").uid(65534).gid(65534).output().unwrap();
    assert_eq!(output.stdout, b"65534\n");
    let groups = Command::new("id").arg("-G").uid(65534).gid(65534).output().unwrap();
    assert_eq!(groups.stdout, b"65534\n", "the groups of root are gone");
}

#[watched_test]
fn options_of_the_extended_command_apply() {
    let mut command = Command::new("sleep");
    command.arg("60").extended().timeout(Duration::from_millis(50));
    assert!(!command.status().unwrap().success());
    assert!(!command.output().unwrap().status.success());
    assert!(!command.spawn().unwrap().wait().unwrap().success());
    let mut limited = Command::new("seq");
    limited.arg("1000").extended().limit(pipewright::Limit::keep_head(4));
    assert_eq!(limited.output().unwrap().stdout, b"1\n2\n");
}

#[watched_test]
fn commands_and_children_convert_both_ways() {
    let mut theirs = std::process::Command::new("sh");
    theirs.args(["-c", "echo $A; pwd"]).env("A", "1").current_dir("/");
    let mut ours = Command::from(theirs);
    assert_eq!(ours.output().unwrap().stdout, b"1\n/\n");
    ours.stdout(Stdio::null()).arg0("name");
    let mut back = std::process::Command::from(ours);
    assert!(back.output().unwrap().stdout.is_empty(), "stdio goes along");

    let mut extended = pipewright::Command::from(Command::new("cat"));
    extended.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = pipewright::process::Child::from(extended.spawn().unwrap());
    child.stdin.as_mut().unwrap().write_all(b"there and back").unwrap();
    let child = pipewright::Child::from(child);
    assert_eq!(child.read_all_text().unwrap().stdout, "there and back");
    assert_eq!(Command::from(extended).stdin(Stdio::null()).status().unwrap().code(), Some(0));
}

/// Runs the calling test again in a namespace in which root may not drop its groups.
fn where_groups_stay(test: &str, body: impl FnOnce()) {
    const MARK: &str = "PIPEWRIGHT_WHERE_GROUPS_STAY";
    if std::env::var_os(MARK).is_some() {
        return body();
    }
    let in_namespace = ["--user", "--map-root-user"];
    let can = std::process::Command::new("unshare").args(in_namespace).arg("true").output();
    if !can.is_ok_and(|output| output.status.success()) {
        pipewright_tests::skip::skipped(
            pipewright_tests::skip::Need::UserNamespace,
            "user namespaces cannot be had",
        );
        return;
    }
    let mut again = std::process::Command::new("unshare");
    again.args(in_namespace).arg(std::env::current_exe().unwrap());
    let output = again.args([test, "--exact", "--test-threads=1"]).env(MARK, "").output().unwrap();
    let stdout = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && stdout.contains("1 passed"), "{stdout}");
}

#[watched_test]
fn groups_that_cannot_be_dropped_are_kept_as_in_std() {
    let test = "std_process::differs::groups_that_cannot_be_dropped_are_kept_as_in_std";
    where_groups_stay(test, || {
        let mut theirs = std::process::Command::new("true");
        std::os::unix::process::CommandExt::uid(&mut theirs, 0);
        assert!(theirs.status().unwrap().success());
        assert!(Command::new("true").uid(0).status().unwrap().success());
        let error = pipewright::Command::new("true").uid(0).status().unwrap_err();
        assert_eq!(*error.kind(), pipewright::ErrorKind::PermissionDenied, "{error}");
    });
}
