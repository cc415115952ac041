//! Our client below a real make. The client is this test program, started again by the recipes.

use std::sync::mpsc;

use super::*;

/// Names the log, in a process that is to be the client.
const LOG: &str = "PIPEWRIGHT_TEST_CLIENT_LOG";
/// Names the way in which the client ends, if it is not to end by itself.
const END: &str = "PIPEWRIGHT_TEST_CLIENT_END";

const JOBS: u32 = 6;
const SLOTS: u32 = 4;

/// Runs jobs as a batch does, if this process is to be the client.
#[test]
fn client_of_the_make_above() {
    let Some(log) = std::env::var_os(LOG) else { return };
    let end = std::env::var(END).unwrap_or_default();
    let client = Client::from_env();
    if end == "report" {
        println!(
            "client: {}",
            client.map_or_else(|error| error.to_string(), |it| format!("{it:?}"))
        );
        return;
    }
    let client = client.unwrap().unwrap();
    let (sender, events) = mpsc::channel();
    let woken = sender.clone();
    client.notify_when_available(Box::new(move || woken.send(None).unwrap()));
    let (mut waiting, mut running) = (JOBS, Vec::new());
    while waiting > 0 || !running.is_empty() {
        while waiting > 0 {
            let Some(token) = client.try_acquire().unwrap() else { break };
            waiting -= 1;
            running.push(token);
            let (sender, job) = (sender.clone(), logged_job(log.as_ref(), SLOTS));
            std::thread::spawn(move || {
                Command::new("sh").arg("-c").arg(job).run().unwrap();
                sender.send(Some(())).unwrap();
            });
        }
        if end == "panic" && running.len() > 1 && waiting == 0 {
            panic!("as the test wants");
        }
        if events.recv().unwrap().is_some() {
            running.pop();
        }
    }
}

/// Runs `make -j4` with a makefile whose recipes start the client, and returns its output.
fn make(log: &Path, prefix: &str, clients: u32, end: &str) -> pipewright::Capture {
    let folder = tempfile::tempdir().unwrap();
    let names: Vec<String> = (0..clients).map(|number| format!("c{number}")).collect();
    let names = names.join(" ");
    let program = std::env::current_exe().unwrap();
    let test = "jobserver::tests::client::client_of_the_make_above";
    let recipe = format!("{prefix}{} --exact {test} --nocapture", program.display());
    file(
        folder.path(),
        "Makefile",
        &format!("all: {names}\n.PHONY: all {names}\n{names}:\n\t{recipe}\n"),
    );
    let mut make = Command::new("make");
    make.arg(format!("-j{SLOTS}")).arg("-C").arg(folder.path());
    make.env_remove("MAKEFLAGS").env_remove("CARGO_MAKEFLAGS").env(LOG, log).env(END, end);
    make.capture().unwrap()
}

#[test]
fn clients_below_make_share_its_slots() {
    if version_of("make").is_none() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("log");
    let captured = make(&log, "+", 2, "").check().unwrap();
    // Two clients have two slots by themselves; the other two they take from make.
    assert_eq!(read_log(&log), (2 * JOBS, SLOTS));
    assert!(!captured.stderr.contains("make"), "{}", captured.stderr);
}

#[test]
fn a_client_that_panics_gives_its_tokens_back() {
    if version_of("make").is_none() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("log");
    let captured = make(&log, "-+", 1, "panic");
    // Make counts its tokens at its end, and reports an INTERNAL error if one lacks.
    assert!(!captured.stderr.contains("INTERNAL"), "{}", captured.stderr);
    assert!(captured.stderr.contains("as the test wants"), "{}", captured.stderr);
}

#[test]
fn a_client_in_a_recipe_without_plus_gets_a_warning() {
    if version_of("make").is_none() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let captured = make(&folder.path().join("log"), "", 1, "report").check().unwrap();
    assert!(captured.stdout.contains("client: jobserver unavailable ("), "{}", captured.stdout);
    assert!(captured.stdout.contains("put + before the command"), "{}", captured.stdout);
}
