//! Terminals that cannot be opened: typed errors, and no child.

use std::fs;

use pipewright::{Command, ErrorKind, PtySize};
use pipewright_test_macros::isolated_test;
use pipewright_tests::{count, mounts, skip};
use rustix::mount::{MountFlags, mount, mount_bind};

use super::pty::SIZE;

fn on_a_terminal(script: &str) -> Command {
    Command::new("sh").args(["-c", script]).pty(SIZE).owned()
}

/// Returns true, and reports it, if this process cannot have mounts of its own.
fn cannot_mount() -> bool {
    match mounts::private() {
        Ok(()) => false,
        Err(lack) => {
            lack.skip();
            true
        }
    }
}

#[isolated_test]
fn without_a_ptmx_the_error_says_so() {
    if cannot_mount() {
        return;
    }
    let before = count::handles();
    // Something else has its name.
    mount_bind("/dev/null", "/dev/ptmx").unwrap();
    let error = on_a_terminal("echo").capture().unwrap_err();
    assert_eq!(error.kind(), &ErrorKind::Unsupported);
    let words =
        "cannot start \"sh\": cannot open a terminal: this system has no pseudo-terminals: ";
    assert!(error.to_string().starts_with(words), "{error}");
    // Nothing has it.
    mount("none", "/dev", "tmpfs", MountFlags::empty(), None).unwrap();
    let error = on_a_terminal("echo").capture().unwrap_err();
    assert_eq!(error.kind(), &ErrorKind::Unsupported);
    assert!(error.to_string().ends_with("No such file or directory (os error 2)"), "{error}");
    assert_eq!(count::handles(), before);
    assert!(count::children().is_empty());
}

/// Mounts a devpts that has terminals for nobody else.
fn mount_own_devpts(max: u32) -> rustix::io::Result<()> {
    let options = std::ffi::CString::new(format!("newinstance,ptmxmode=0666,max={max}")).unwrap();
    mount("devpts", "/dev/pts", "devpts", MountFlags::empty(), Some(options.as_c_str()))?;
    if fs::read_link("/dev/ptmx").is_ok() {
        return Ok(());
    }
    mount_bind("/dev/pts/ptmx", "/dev/ptmx")
}

#[isolated_test]
fn when_all_terminals_are_in_use_the_error_is_a_limit() {
    if cannot_mount() {
        return;
    }
    if let Err(error) = mount_own_devpts(2) {
        return skip::skipped(skip::Need::Mount, format_args!("no devpts: {error}"));
    }
    let used = [0, 1].map(|_| on_a_terminal("read line").spawn().unwrap());
    let before = count::handles();
    let error = on_a_terminal("echo").capture().unwrap_err();
    assert_eq!(error.kind(), &ErrorKind::Limit { what: "too many terminals" });
    let words = "cannot start \"sh\": cannot open a terminal: too many terminals (os error 28)";
    assert_eq!(error.to_string(), words);
    assert_eq!(count::handles(), before);
    drop(used);
}

#[isolated_test]
fn a_devpts_of_its_own_works_until_it_is_hidden() {
    if cannot_mount() {
        return;
    }
    if let Err(error) = mount_own_devpts(10) {
        return skip::skipped(skip::Need::Mount, format_args!("no devpts: {error}"));
    }
    let capture = on_a_terminal("test -t 0 && test -t 1 && echo seen > /dev/tty").capture();
    assert_eq!(capture.unwrap().stdout, "seen\r\n");
    mount("none", "/dev/pts", "tmpfs", MountFlags::empty(), None).unwrap();
    let error = on_a_terminal("echo").capture().unwrap_err();
    assert_eq!(error.kind(), &ErrorKind::Unsupported, "{error}");
}

#[isolated_test]
fn a_child_of_another_user_has_the_terminal() {
    if !skip::is_root() {
        return skip::skipped(skip::Need::Root, "only root can change the user");
    }
    let size = PtySize { rows: 5, cols: 9 };
    let mut command = Command::new("sh");
    command.args(["-c", "id -u; stty size; echo tty > /dev/tty"]).uid(65534).pty(size);
    assert_eq!(command.capture().unwrap().stdout, "65534\r\n5 9\r\ntty\r\n");
}

#[isolated_test]
fn an_ordinary_user_can_open_terminals() {
    if !skip::is_root() {
        return skip::skipped(skip::Need::Root, "the other tests do this already");
    }
    rustix::thread::set_thread_uid(rustix::process::Uid::from_raw(65534)).unwrap();
    let capture = on_a_terminal("id -u; stty size; echo tty > /dev/tty").capture().unwrap();
    assert_eq!(capture.stdout, "65534\r\n30 100\r\ntty\r\n");
}
