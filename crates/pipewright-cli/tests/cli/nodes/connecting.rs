//! Nodes that cannot be used.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::Stdio;

use super::*;

/// Runs two jobs on a node that works and on one behind that command, and waits for that message about it.
fn with_one_more(via: &str, wanted: &str) {
    let place = Place::new();
    place.write("worker", "cat hello; exec cat > /dev/null");
    std::fs::write(place.path("hello"), hello_of_an_older_version()).unwrap();
    let mut nodes = nodes(1);
    nodes.extend(["--via".to_owned(), via.to_owned()]);
    let script = "until [ -e heard ]; do sleep 0.05; done; echo {}";
    let mut batch = batch_on(&place, &nodes, &["--", "sh", "-c", script, ":::", "a", "b"]);
    let mut child = batch.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines().map(Result::unwrap);
    let mut before = Vec::new();
    while !before.last().is_some_and(|line: &String| line.contains(wanted)) {
        before.push(lines.next().unwrap_or_else(|| panic!("{via}: {wanted}: {before:?}")));
    }
    place.write("heard", "");
    let rest: Vec<String> = lines.collect();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{via}: {before:?} {rest:?}");
    assert_eq!(sorted(out(&output)), ["a", "b"]);
}

/// Returns what a worker of an older version says first.
fn hello_of_an_older_version() -> Vec<u8> {
    let mut hello = b"pipewright batch\x01\0w\0".to_vec();
    hello.extend(b"9.8.7".iter().copied().chain(std::iter::repeat_n(0, 59)));
    hello
}

#[test]
fn a_node_that_cannot_be_reached_is_named_and_the_others_go_on() {
    let _watchdog = Watchdog::start(60);
    let via = "sh -c 'echo no route >&2; exit 255'";
    with_one_more(via, "exit 255': no route; trying again in 1 s");
    with_one_more(via, "exit 255': no route; given up");
}

#[test]
fn a_batch_without_a_node_fails_with_the_last_words_of_the_command() {
    let _watchdog = Watchdog::start(60);
    let place = Place::new();
    let via = "sh -c 'echo Permission denied >&2; exit 255'";
    let output = place.batch(&["--via", via, "--log", "run.db", "--", "echo", ":::", "a"]);
    assert_eq!(output.status.code(), Some(125));
    let text = err(&output);
    let wanted = "no node is left: sh -c 'echo Permission denied >&2; exit 255': Permission denied";
    assert!(text.contains(wanted), "{text}");
    // The batch can go on when the nodes are there.
    let args = ["--log", "run.db", "--resume", "--", "echo", ":::", "a"];
    let resumed = batch_on(&place, &nodes(1), &args).output().unwrap();
    assert_eq!(out(&resumed), "a\n", "{}", err(&resumed));
}

#[test]
fn a_worker_of_an_older_version_is_refused() {
    let _watchdog = Watchdog::start(60);
    with_one_more(
        "sh worker",
        "speaks protocol 1, this one 2: use one build of pipewright; given up",
    );
}

#[test]
fn a_worker_of_another_build_is_refused_with_both_hashes() {
    let _watchdog = Watchdog::start(60);
    let place = Place::new();
    // The same version, and one byte more.
    let other = place.path("other");
    std::fs::copy(TOOL, &other).unwrap();
    let mut file = std::fs::OpenOptions::new().append(true).open(&other).unwrap();
    file.write_all(b"x").unwrap();
    drop(file);
    let path = other.to_str().unwrap();
    let args = ["--via", "env", "--worker-path", path, "--", "echo", ":::", "a"];
    let output = place.batch(&args);
    assert_eq!((output.status.code(), out(&output)), (Some(125), ""));
    let text = err(&output);
    let (_, hashes) = text.split_once("another build of pipewright: its program is ").expect(text);
    let (theirs, ours) = hashes.split_once(", this one ").unwrap();
    let ours = &ours[..32];
    let is_hash = |text: &str| text.len() == 32 && text.bytes().all(|it| it.is_ascii_hexdigit());
    assert!(is_hash(theirs) && is_hash(ours) && theirs != ours, "{text}");
}

#[test]
fn a_command_that_is_no_node_is_named() {
    let _watchdog = Watchdog::start(60);
    for (via, wanted) in [
        ("sh -c 'echo nonsense; exit 1'", "the other side is not pipewright: nonsense"),
        ("sh -c 'head -c 99999 /dev/zero'", "the other side is not pipewright"),
        ("sh -c 'printf pipewright; kill -9 $$'", "the other side is not pipewright: pipewright"),
        ("no-such-command", "no-such-command: cannot start \"no-such-command\""),
    ] {
        with_one_more(via, wanted);
    }
}

#[test]
fn a_node_that_says_nothing_holds_up_nobody() {
    let _watchdog = Watchdog::start(60);
    let place = Place::new();
    let mut nodes = nodes(1);
    nodes.extend([
        "--via".to_owned(),
        "sleep 600".to_owned(),
        "--via".to_owned(),
        "cat".to_owned(),
    ]);
    let output = batch_on(&place, &nodes, &["--", "echo", ":::", "a"]).output().unwrap();
    assert_eq!(out(&output), "a\n", "{}", err(&output));
}

#[test]
fn options_for_nodes_that_make_no_sense_are_refused() {
    let _watchdog = Watchdog::start(60);
    let place = Place::new();
    place.write("none", "\n");
    place.write("open", "ssh 'a\n");
    for (args, wanted) in [
        (&["--via", ""][..], "name no command"),
        (&["--via", "ssh 'a"], "--via: line 1 of the input: the quote ' is not closed"),
        (&["--via-file", "none"], "name no command"),
        (&["--via-file", "open"], "line 1 of \"open\": the quote ' is not closed"),
        (&["--via-file", "missing"], "\"missing\""),
        (&["--worker-path", "/x"], "--worker-path needs --via or --on"),
        (&["--on", "slurm", "--listen", "0.0.0.0"], "would be every interface"),
        (&["--on", "slurm", "--listen", "no-such-interface"], "there is no such interface"),
        (&["--nodes", "2"], "--on"),
    ] {
        let output = place.batch(&[args, &["--", "echo", ":::", "a"]].concat());
        assert_eq!(output.status.code(), Some(125), "{args:?}: {}", err(&output));
        assert!(err(&output).contains(wanted), "{args:?}: {}", err(&output));
        assert_eq!(out(&output), "");
    }
}
