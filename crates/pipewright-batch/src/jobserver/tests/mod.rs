//! Tests of both sides, with real makes, cargo and ninja where they are installed.

#[cfg(unix)]
mod pool;
#[cfg(unix)]
mod real;

use std::ffi::{OsStr, OsString};
use std::num::NonZeroU32;
use std::path::{Path, PathBuf};

use pipewright::{Command, ErrorKind};
use pipewright_os::base::skipped::{Need, skipped};
use proptest::prelude::*;

use super::client::{Auth, find, with_options};
use super::server::{Server, Style};
use super::{Client, JobserverError, JobserverErrorKind};

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

/// Connects to the jobserver that these flags name, as if make had passed its handles on.
fn client(flags: &OsStr) -> Result<Option<Client>, JobserverError> {
    Client::from_makeflags(flags, |_, _| Ok(true))
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
    let error = client("-j --jobserver-auth=fifo:/x".as_ref()).unwrap_err();
    assert_eq!(*error.kind(), JobserverErrorKind::Unsupported);
    assert!(error.is_warning());
}

// The words of `MAKEFLAGS`.

fn auth(flags: &str) -> Option<Auth> {
    find(flags.as_ref()).map(|(_, auth)| auth)
}

fn written(existing: &str) -> String {
    with_options(Some(existing.as_ref()), b"-j --jobserver-auth=8,9").into_string().unwrap()
}

#[test]
fn the_forms_of_all_makes_are_found() {
    let pipe = |read, write| Some(Auth::Pipe { read, write });
    assert_eq!(auth(" -j4 --jobserver-auth=3,4"), pipe(3, 4));
    assert_eq!(auth(" --jobserver-fds=3,4 -j"), pipe(3, 4));
    assert_eq!(auth("k -j --jobserver-fds=1,2 --jobserver-auth=5,6"), pipe(5, 6));
    assert_eq!(auth(" -j8 --jobserver-auth=-2,-2"), pipe(-2, -2));
    assert_eq!(
        auth("-j --jobserver-auth=fifo:/tmp/GMfifo1"),
        Some(Auth::Fifo("/tmp/GMfifo1".into()))
    );
    assert_eq!(auth(r"-j --jobserver-auth=fifo:/a\ b"), Some(Auth::Fifo("/a b".into())));
    assert_eq!(auth(" -j --jobserver-auth=gmake_semaphore_17"), Some(Auth::Unknown));
    assert_eq!(auth(" -j --jobserver-auth=fifo:"), Some(Auth::Unknown));
    assert_eq!(auth(" -j --jobserver-auth=3,99999999999"), Some(Auth::Unknown));
}

#[test]
fn the_number_of_jobs_is_found() {
    let jobs = |flags: &str| crate::jobserver::client::jobs(flags.as_ref());
    for (flags, expected) in [
        ("s -j1", Some(1)),
        ("ks -j3 --jobserver-auth=3,4", Some(3)),
        (" --jobs=12", Some(12)),
        (" -j4 -j2", Some(2)),
        ("s", None),
        (" -j --jobserver-fds=3,4", None),
        (" -j0", None),
        (" -- -j9", None),
    ] {
        assert_eq!(jobs(flags), expected, "{flags:?}");
    }
}

#[test]
fn flags_without_a_jobserver_name_none() {
    for flags in ["", "k", " -j4", " --jobserver-style=fifo", " -- A=--jobserver-auth=3,4"] {
        assert_eq!(auth(flags), None, "{flags}");
    }
    // The blank is escaped, so the option is part of the value of a variable.
    assert_eq!(auth(r" -- A=1\ --jobserver-auth=3,4"), None);
    assert_eq!(auth(" -- --jobserver-auth=3,4"), None);
}

#[test]
fn flags_and_variables_of_an_outer_make_stay() {
    assert_eq!(written(""), " -j --jobserver-auth=8,9");
    assert_eq!(written("ks"), "ks -j --jobserver-auth=8,9");
    assert_eq!(written(" --no-print-directory"), " --no-print-directory -j --jobserver-auth=8,9");
    assert_eq!(written("k -I/x -- A=1 B=2\\ 3"), "k -I/x -j --jobserver-auth=8,9 -- A=1 B=2\\ 3");
    assert_eq!(written("A=j4"), " A=j4 -j --jobserver-auth=8,9");
    assert_eq!(written("-l -Ij4 --debug=j4"), " -l -Ij4 --debug=j4 -j --jobserver-auth=8,9");
}

#[test]
fn the_number_of_jobs_and_the_jobserver_of_an_outer_make_do_not_stay() {
    let outer = [
        " -j4 --jobserver-auth=3,4",
        " -j --jobserver-fds=3,4",
        " -j 4",
        "j4",
        "-j4 --jobs=7 --jobs 3 --jobs",
        " --jobserver-auth=fifo:/x",
    ];
    for flags in outer {
        assert_eq!(written(flags), " -j --jobserver-auth=8,9", "{flags}");
    }
    assert_eq!(written("kj4"), "k -j --jobserver-auth=8,9");
    assert_eq!(written(" -kj 4 -s"), " -k -s -j --jobserver-auth=8,9");
}

#[test]
fn no_jobserver_is_no_error_and_a_wrong_one_is_a_warning() {
    let client = |flags: &str| client(flags.as_ref());
    assert!(client("").unwrap().is_none());
    assert!(client(" -j4 -- A=1").unwrap().is_none());
    let error = client(" -j --jobserver-auth=semaphore\n").unwrap_err();
    assert!(error.is_warning());
    assert_eq!(
        error.to_string(),
        "unknown form of jobserver in MAKEFLAGS: --jobserver-auth=semaphore"
    );
    let error = client(" -j4 --jobserver-auth=-2,-2").unwrap_err();
    assert!(matches!(error.kind(), JobserverErrorKind::NotPassedOn { .. }));
    assert!(error.is_warning());
}

#[test]
fn the_style_depends_on_the_version_of_make() {
    let style = |version: &str| Style::for_make(version);
    assert_eq!(style("GNU Make 4.3\nBuilt for x86_64-pc-linux-gnu\n"), Style::Pipe);
    assert_eq!(style("GNU Make 3.81"), Style::Pipe);
    assert_eq!(style("GNU Make 4.4\n"), Style::Fifo);
    assert_eq!(style("GNU Make 4.4.1\n"), Style::Fifo);
    assert_eq!(style("GNU Make 5.0"), Style::Fifo);
    assert_eq!(style("bmake 20240301"), Style::Pipe);
    assert_eq!(style(""), Style::Pipe);
}

/// Text that is likely to be nearly right.
fn flags() -> impl Strategy<Value = String> {
    let part = prop_oneof![
        Just("--jobserver-auth=".to_owned()),
        Just("--jobserver-fds=".to_owned()),
        Just("fifo:".to_owned()),
        Just("-j".to_owned()),
        Just("--".to_owned()),
        Just("\\".to_owned()),
        Just(" ".to_owned()),
        Just(",".to_owned()),
        // No number above 2 that this process may have open.
        prop::sample::select(vec!["-1", "0", "1", "2", "1000001", "2147483648"])
            .prop_map(str::to_owned),
        "[a-z/=\\PC]{0,4}",
    ];
    prop::collection::vec(part, 0..12).prop_map(|parts| parts.concat())
}

proptest! {
    #[test]
    fn malformed_flags_neither_panic_nor_block(text in flags(), bytes in prop::collection::vec(any::<u8>(), 0..40)) {
        let bytes = pipewright_os::base::os_text::from_bytes(bytes).unwrap_or_default();
        for flags in [OsString::from(&text), bytes] {
            if let Ok(Some(client)) = client(&flags) {
                prop_assert!(false, "{flags:?} named {client:?}");
            }
        }
    }

    #[test]
    fn our_jobserver_is_the_one_that_children_find(text in flags()) {
        let ours = with_options(Some(OsStr::new(&text)), b"-j --jobserver-auth=fifo:/ours");
        let found = find(&ours).map(|(_, auth)| auth);
        prop_assert_eq!(found, Some(Auth::Fifo(PathBuf::from("/ours"))), "{:?}", ours);
    }
}
