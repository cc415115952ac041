//! Tests of both sides, with real makes, cargo and ninja where they are installed.

#[cfg(unix)]
mod cargo;
#[cfg(unix)]
mod client;
#[cfg(unix)]
mod make;
mod makeflags;
#[cfg(unix)]
mod pool;

use std::num::NonZeroU32;
use std::path::{Path, PathBuf};

use pipewright::{Command, ErrorKind};
use pipewright_os::base::skipped::{Need, skipped};

use super::{Client, JobserverErrorKind, Server, Style};

/// A shell command that logs its start, waits until `barrier` commands have started, and logs its end.
fn logged_job(log: &Path, barrier: u32) -> String {
    let log = log.display();
    format!(
        "echo start >> {log}; \
         until [ $(grep -c start {log}) -ge {barrier} ]; do sleep 0.01; done; \
         sleep 0.02; echo end >> {log}"
    )
}

/// Returns the number of jobs that a log has, and the largest number of them that ran at one time.
fn read_log(log: &Path) -> (u32, u32) {
    let (mut jobs, mut running, mut most) = (0_u32, 0_u32, 0_u32);
    for line in std::fs::read_to_string(log).unwrap().lines() {
        match line {
            "start" => (jobs, running) = (jobs + 1, running + 1),
            "end" => running = running.checked_sub(1).unwrap(),
            other => panic!("{other}"),
        }
        most = most.max(running);
    }
    assert_eq!(running, 0, "a job has not ended");
    (jobs, most)
}

fn slots(count: u32) -> NonZeroU32 {
    NonZeroU32::new(count).unwrap()
}

/// Prepares a command as a job of a batch with that jobserver.
fn below(server: &Server, mut command: Command) -> Command {
    for (name, value) in server.variables(None) {
        command.env(name, value);
    }
    for (handle, number) in server.inherited().unwrap() {
        command.inherit_fd_as(handle, number);
    }
    command
}

/// Returns the first line that `program --version` prints, or reports that the test is skipped.
fn version_of(program: &str) -> Option<String> {
    match Command::new(program).arg("--version").read() {
        Err(error) if matches!(error.kind(), ErrorKind::NotFound { .. }) => {
            skipped(Need::Program(program), "is not here");
            None
        }
        text => text.unwrap().lines().next().map(str::to_owned),
    }
}

/// Writes a file into a folder, and returns its path.
fn file(folder: &Path, name: &str, text: &str) -> PathBuf {
    let path = folder.join(name);
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(&path, text).unwrap();
    path
}

#[cfg(windows)]
#[test]
fn jobservers_are_unsupported_on_windows() {
    let error = Server::new(slots(2), Style::Fifo).unwrap_err();
    assert_eq!(*error.kind(), JobserverErrorKind::Unsupported);
    let error = Client::from_makeflags("-j --jobserver-auth=fifo:/x".as_ref()).unwrap_err();
    assert_eq!(*error.kind(), JobserverErrorKind::Unsupported);
    assert!(error.is_warning());
}
