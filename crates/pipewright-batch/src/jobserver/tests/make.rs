//! Real makes below our server: never more recipes at once than slots, and as many.

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
        let tokens: Vec<_> = (0..2).map(|_| server.try_acquire().unwrap().unwrap()).collect();
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
    let client = Client::from_makeflags(&flags).unwrap().unwrap();
    let token = client.try_acquire().unwrap();
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
    let token = server.try_acquire().unwrap();
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
    let token = server.try_acquire().unwrap();
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
        let token = server.try_acquire().unwrap();
        let mut ninja = Command::new("ninja");
        ninja.arg("-C").arg(folder.path());
        // The rule makes no files, so all of it runs again.
        below(&server, ninja).run().unwrap();
        assert_eq!(read_log(&log), (RECIPES, SLOTS), "{style:?}");
        drop(token);
        assert_eq!(server.refill().unwrap(), Default::default(), "{style:?}");
    }
}
