//! Real programs on both sides: makes and cargo below our server, and our client below a make. The client is this test
//! program, started again by the recipes.

use std::sync::mpsc;

use pipewright::Contain;

use super::*;

/// The number of recipes in each makefile.
const RECIPES: u32 = 8;

fn makefile(folder: &Path, log: &Path, barrier: u32) -> PathBuf {
    let names: Vec<String> = (0..RECIPES).map(|number| format!("t{number}")).collect();
    let names = names.join(" ");
    // A recipe is one line, and make reads `$` as a variable.
    let recipe = logged_job(log, barrier).replace('$', "$$");
    file(folder, "Makefile", &format!("all: {names}\n.PHONY: all {names}\n{names}:\n\t@{recipe}\n"))
}

fn make(folder: &Path, server: &Server) -> Command {
    let mut make = Command::new("make");
    make.arg("-C").arg(folder);
    below(server, make)
}

#[test]
fn two_makes_below_us_share_the_slots() {
    let Some(version) = version_of("make") else { return };
    let mut styles = vec![Style::Pipe];
    match Style::for_make(&version) {
        Style::Fifo => styles.push(Style::Fifo),
        Style::Pipe => {
            skipped(Need::Version("make", "4.4"), format_args!("{version} knows no FIFO"))
        }
    }
    const SLOTS: u32 = 4;
    for style in styles {
        let folder = tempfile::tempdir().unwrap();
        let log = folder.path().join("log");
        makefile(folder.path(), &log, SLOTS);
        let server = Server::new(slots(SLOTS), style).unwrap();
        let tokens: Vec<_> =
            (0..2).map(|_| server.tokens.try_acquire().unwrap().unwrap()).collect();
        let makes = (0..2).map(|_| make(folder.path(), &server));
        for captured in pipewright::run_all(makes).concurrency(2).captures() {
            let captured = captured.unwrap().check().unwrap();
            // Make says so if a jobserver is unavailable, and if it lacks a token at its end.
            assert_eq!(captured.stderr, "", "{style:?}");
        }
        // The barrier needs all slots at once. Without a token each, the two makes could use five.
        assert_eq!(read_log(&log), (2 * RECIPES, SLOTS), "{style:?}");
        drop(tokens);
        assert_eq!(server.refill().unwrap(), Default::default(), "{style:?}");
    }
}

#[test]
fn a_make_below_a_client_takes_part_in_the_jobserver_above() {
    if version_of("make").is_none() {
        return;
    }
    const SLOTS: u32 = 3;
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("log");
    makefile(folder.path(), &log, SLOTS);
    // Stands for the make above.
    let above = Server::new(slots(SLOTS), Style::Pipe).unwrap();
    let flags = above.makeflags(None);
    let client = client(&flags).unwrap().unwrap();
    let token = client.tokens.try_acquire().unwrap();
    let mut make = Command::new("make");
    make.arg("-C").arg(folder.path()).env("MAKEFLAGS", &flags);
    for (handle, number) in client.inherited().unwrap() {
        make.inherit_fd_as(handle, number);
    }
    assert_eq!(make.capture().unwrap().check().unwrap().stderr, "");
    assert_eq!(read_log(&log), (RECIPES, SLOTS));
    drop(token);
    assert_eq!(above.refill().unwrap(), Default::default());
}

#[test]
fn the_log_of_a_make_without_our_server_shows_more_jobs_than_slots() {
    // The test above could not fail if the log did not show this.
    if version_of("make").is_none() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("log");
    makefile(folder.path(), &log, RECIPES);
    let mut make = Command::new("make");
    make.arg("-j").arg("-C").arg(folder.path()).env_remove("MAKEFLAGS");
    make.read().unwrap();
    assert_eq!(read_log(&log), (RECIPES, RECIPES));
}

#[test]
fn tokens_of_a_killed_make_are_there_again_after_a_refill() {
    if version_of("make").is_none() {
        return;
    }
    const SLOTS: u32 = 3;
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("log");
    // More than the slots: all recipes of the first ones wait until they are killed.
    makefile(folder.path(), &log, SLOTS + 1);
    std::fs::write(&log, "").unwrap();
    let server = Server::new(slots(SLOTS), Style::Pipe).unwrap();
    let token = server.tokens.try_acquire().unwrap();
    let mut first = make(folder.path(), &server);
    first.contain(Contain::Tree);
    let child = first.spawn().unwrap();
    wait_until(|| read_starts(&log) == SLOTS as usize);
    child.kill().unwrap();
    child.wait().unwrap();
    // The recipes go with the tree.
    drop(child);
    drop(token);
    assert_eq!(server.refill().unwrap().lost, SLOTS - 1);
    std::fs::write(&log, "").unwrap();
    makefile(folder.path(), &log, SLOTS);
    let token = server.tokens.try_acquire().unwrap();
    make(folder.path(), &server).read().unwrap();
    drop(token);
    assert_eq!(read_log(&log), (RECIPES, SLOTS));
}

fn read_starts(log: &Path) -> usize {
    std::fs::read_to_string(log).unwrap().lines().filter(|line| *line == "start").count()
}

fn wait_until(mut fact: impl FnMut() -> bool) {
    let start = std::time::Instant::now();
    while !fact() {
        assert!(start.elapsed().as_secs() < 60, "waited in vain");
        std::thread::park_timeout(std::time::Duration::from_millis(5));
    }
}

#[test]
fn ninja_below_us_shares_the_slots() {
    let Some(version) = version_of("ninja") else { return };
    let mut parts = version.split('.').map_while(|part| part.parse::<u32>().ok());
    if (parts.next(), parts.next()) < (Some(1), Some(13)) {
        return skipped(Need::Version("ninja", "1.13"), version);
    }
    const SLOTS: u32 = 2;
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("log");
    let recipe = logged_job(&log, SLOTS).replace('$', "$$");
    let mut text = format!("rule job\n  command = {recipe}\n");
    for number in 0..RECIPES {
        text += &format!("build t{number}: job\n");
    }
    file(folder.path(), "build.ninja", &text);
    for style in [Style::Fifo, Style::Pipe] {
        file(folder.path(), "log", "");
        let server = Server::new(slots(SLOTS), style).unwrap();
        let token = server.tokens.try_acquire().unwrap();
        let mut ninja = Command::new("ninja");
        ninja.arg("-C").arg(folder.path());
        // The rule makes no files, so all of it runs again.
        below(&server, ninja).run().unwrap();
        assert_eq!(read_log(&log), (RECIPES, SLOTS), "{style:?}");
        drop(token);
        assert_eq!(server.refill().unwrap(), Default::default(), "{style:?}");
    }
}

// cargo below our server: its build scripts are the jobs that are counted.

/// The number of packages, each with a build script.
const PACKAGES: u32 = 5;

#[test]
fn cargo_below_us_shares_the_slots() {
    if version_of("cargo").is_none() {
        return;
    }
    const SLOTS: u32 = 2;
    for style in [Style::Fifo, Style::Pipe] {
        let folder = tempfile::tempdir().unwrap();
        let log = folder.path().join("log");
        std::fs::write(&log, "").unwrap();
        workspace(folder.path(), &log, SLOTS);
        let server = Server::new(slots(SLOTS), style).unwrap();
        let token = server.tokens.try_acquire().unwrap();
        let mut cargo = Command::new("cargo");
        // Without the tokens it would run as many as this.
        cargo.args(["build", "--offline", "--quiet", "--jobs", "8", "--target-dir"]);
        cargo.arg(folder.path().join("target")).current_dir(folder.path());
        // The gate's flags are not for these packages.
        cargo.env_remove("RUSTFLAGS").env_remove("CARGO_ENCODED_RUSTFLAGS");
        let captured = below(&server, cargo).capture().unwrap().check().unwrap();
        assert_eq!(captured.stderr, "", "{style:?}");
        assert_eq!(read_log(&log), (PACKAGES, SLOTS), "{style:?}");
        drop(token);
        assert_eq!(server.refill().unwrap(), Default::default(), "{style:?}");
    }
}

fn workspace(folder: &Path, log: &Path, barrier: u32) {
    file(folder, "Cargo.toml", "[workspace]\nresolver = \"2\"\nmembers = [\"p*\"]\n");
    let job = logged_job(log, barrier);
    let script = format!(
        "fn main() {{\n\
         let status = std::process::Command::new(\"sh\").arg(\"-c\").arg({job:?}).status();\n\
         assert!(status.unwrap().success());\n}}\n"
    );
    for number in 0..PACKAGES {
        let package =
            format!("[package]\nname = \"p{number}\"\nversion = \"0.1.0\"\nedition = \"2021\"\n");
        file(folder, &format!("p{number}/Cargo.toml"), &package);
        file(folder, &format!("p{number}/build.rs"), &script);
        file(folder, &format!("p{number}/src/lib.rs"), "");
    }
}

// Our client below a real make. The client is this test program, started again by the recipes.

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
    client.tokens.notify_when_available(Box::new(move || woken.send(None).unwrap()));
    let (mut waiting, mut running) = (JOBS, Vec::new());
    while waiting > 0 || !running.is_empty() {
        while waiting > 0 {
            let Some(token) = client.tokens.try_acquire().unwrap() else { break };
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
fn make_clients(log: &Path, prefix: &str, clients: u32, end: &str) -> pipewright::Capture {
    let folder = tempfile::tempdir().unwrap();
    let names: Vec<String> = (0..clients).map(|number| format!("c{number}")).collect();
    let names = names.join(" ");
    let program = std::env::current_exe().unwrap();
    let test = "jobserver::tests::real::client_of_the_make_above";
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
    let captured = make_clients(&log, "+", 2, "").check().unwrap();
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
    let captured = make_clients(&log, "-+", 1, "panic");
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
    let captured = make_clients(&folder.path().join("log"), "", 1, "report").check().unwrap();
    assert!(captured.stdout.contains("client: jobserver unavailable ("), "{}", captured.stdout);
    assert!(captured.stdout.contains("put + before the command"), "{}", captured.stdout);
}
