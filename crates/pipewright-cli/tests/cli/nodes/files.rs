//! Files that jobs get (`--send`) and leave (`--fetch`). A node works in a folder of its own.

use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::process::Stdio;

use super::*;

/// Returns the options for nodes of one slot that work in the folders `n1`, `n2` and so on.
fn nodes_in_folders(place: &Place, count: usize) -> Vec<String> {
    let mut options = vec!["-j1".to_owned(), "--worker-path".to_owned(), TOOL.to_owned()];
    for node in 1..=count {
        fs::create_dir_all(place.path(&format!("n{node}"))).unwrap();
        let script = format!(r#"echo $$ >> workers; cd n{node}; exec "$@""#);
        options.extend(["--via".to_owned(), format!("sh -c '{script}' sh")]);
    }
    options
}

/// Runs a batch on one node.
fn on_node(place: &Place, args: &[&str]) -> Output {
    batch_on(place, &nodes_in_folders(place, 1), args).output().unwrap()
}

/// Returns the names of files that have not arrived whole, anywhere.
fn halves(place: &Place) -> Vec<String> {
    let found = Command::new("find")
        .arg(place.path("."))
        .args(["-name", ".*-new-*", "!", "-name", ".run.db*"])
        .output();
    out(&found.unwrap()).lines().map(ToOwned::to_owned).collect()
}

/// A length whose bytes take so long that a test can look meanwhile.
const SIZE: &str = "8G";

/// Leaves a file that does not arrive in time, and the second time another one.
const SCRIPT: &str = r#"echo x >> ../ran
    [ -e ../second ] || { touch ../second; exec truncate -s "$0" out; }
    rm -f out; echo whole > out"#;

/// Returns bytes that no text has.
fn binary(length: usize) -> Vec<u8> {
    (0..length).map(|at| (at.wrapping_mul(31) ^ (at >> 8)) as u8).collect()
}

#[test]
fn files_arrive_with_their_bytes_and_rights_there_and_back() {
    let _watchdog = Watchdog::start(120);
    let place = Place::new();
    fs::create_dir_all(place.path("in/deep")).unwrap();
    let files = [("empty", 0), ("one", 1), ("big", 5 << 20), ("deep/x.bin", 300_000)];
    for (name, length) in files {
        fs::write(place.path(&format!("in/{name}")), binary(length)).unwrap();
    }
    for (name, mode) in [("one", 0o755), ("big", 0o600), ("empty", 0o444)] {
        fs::set_permissions(place.path(&format!("in/{name}")), Permissions::from_mode(mode))
            .unwrap();
    }
    let script = r#"mkdir -p out/$(dirname "$0"); cp -p in/"$0" out/"$0"; rm -f in/"$0""#;
    let names = files.map(|(name, _)| name);
    let args = ["--send", "in/{}", "--fetch", "out/{}", "--umask", "022", "--", "sh", "-c", script];
    let output = on_node(&place, &[&args[..], &["{}", ":::"], &names].concat());
    assert!(output.status.success(), "{}", err(&output));
    for (name, length) in files {
        let (sent, fetched) =
            (place.path(&format!("in/{name}")), place.path(&format!("out/{name}")));
        assert!(fs::read(&fetched).unwrap() == binary(length), "{name}");
        let mode = |path| fs::metadata(path).unwrap().mode() & 0o777;
        assert_eq!(mode(sent), mode(fetched), "{name}");
        assert!(!place.path(&format!("n1/in/{name}")).exists(), "it was there");
    }
    assert_eq!(halves(&place), [""; 0]);
}

#[test]
fn the_names_of_files_have_the_placeholders_of_the_command() {
    let _watchdog = Watchdog::start(60);
    let place = Place::new();
    fs::create_dir_all(place.path("d")).unwrap();
    place.write("d/a b.txt", "1");
    place.write("d/c.txt", "2");
    place.write("lib", "shared");
    let args = ["--send", "{}", "--send", "./lib", "--fetch", "{.}.out", "--fetch", "o/./{/.}-{#}"];
    let command = ["--", "sh", "-c", r#"mkdir -p o; cat "$0" lib > "$1"; cp "$1" "o/$2""#];
    let words = ["{}", "{.}.out", "{/.}-{#}", ":::", "d/a b.txt", "d/c.txt"];
    let output = on_node(&place, &[&args[..], &command, &words].concat());
    assert!(output.status.success(), "{}", err(&output));
    assert_eq!(
        (place.read("d/a b.out"), place.read("d/c.out")),
        ("1shared".into(), "2shared".into())
    );
    assert_eq!((place.read("o/a b-1"), place.read("o/c-2")), ("1shared".into(), "2shared".into()));
    // `-I` has another text for the value.
    let args = ["-I", "%", "--send", "%", "--fetch", "%.gz", "--", "cp", "%", "%.gz", ":::", "lib"];
    let output = on_node(&place, &args);
    assert!(output.status.success(), "{}", err(&output));
    assert_eq!(place.read("lib.gz"), "shared");
}

#[test]
fn relative_files_are_those_of_the_directory_of_the_job() {
    let _watchdog = Watchdog::start(60);
    let place = Place::new();
    place.write("a", "text");
    let args = ["--send", "{}", "--fetch", "{}.out", "-C", "job/dir"];
    let output = on_node(&place, &[&args[..], &["--", "cp", "{}", "{}.out", ":::", "a"]].concat());
    assert!(output.status.success(), "{}", err(&output));
    assert_eq!((place.read("n1/job/dir/a"), place.read("a.out")), ("text".into(), "text".into()));
}

#[test]
fn a_file_without_placeholders_is_sent_to_each_node_once() {
    let _watchdog = Watchdog::start(60);
    let place = Place::new();
    place.write("lib", "text");
    // The inode is that of the file that has arrived last.
    let args = ["-q", "--send", "lib", "--", "stat", "-c", "%i", "{}", ":::"];
    let output = on_node(&place, &[&args[..], &["lib", "./lib", "././lib"]].concat());
    assert!(output.status.success(), "{}", err(&output));
    let mut inodes: Vec<&str> = out(&output).lines().collect();
    assert_eq!(inodes.len(), 3);
    inodes.dedup();
    assert_eq!(inodes.len(), 1);
}

#[test]
fn a_job_whose_file_is_missing_here_does_not_start() {
    let _watchdog = Watchdog::start(60);
    let place = Place::new();
    place.write("there", "");
    fs::create_dir(place.path("folder")).unwrap();
    let args = ["--send", "{}", "--log", "run.db", "--", "sh", "-c", "echo ran {}", ":::"];
    let output = on_node(&place, &[&args[..], &["missing", "folder", "there"]].concat());
    assert_eq!(output.status.code(), Some(123), "{}", err(&output));
    assert_eq!(out(&output), "ran there\n");
    let message = err(&output);
    assert!(message.contains(r#"cannot send "missing": No such file"#), "{message}");
    assert!(
        message.contains(r#"cannot send "folder": is a folder: name the files in it"#),
        "{message}"
    );
    let query = "select number, failure from jobs where state = 'failed' order by number";
    if let Some(rows) = place.rows("run.db", query) {
        assert_eq!(rows, ["1|start_failed", "2|start_failed"]);
    }
}

#[test]
fn a_job_whose_file_cannot_be_stored_there_does_not_start_and_the_next_one_does() {
    let _watchdog = Watchdog::start(60);
    let place = Place::new();
    let nodes = nodes_in_folders(&place, 1);
    fs::create_dir(place.path("n1/a")).unwrap();
    place.write("a", "1");
    place.write("b", "2");
    let args = ["--send", "{}", "--", "cat", ":::", "a", "b"];
    let output = batch_on(&place, &nodes, &args).output().unwrap();
    assert_eq!(output.status.code(), Some(123), "{}", err(&output));
    assert_eq!(out(&output), "2");
    assert!(
        err(&output).contains(r#"cannot write "a": is not a regular file"#),
        "{}",
        err(&output)
    );
}

#[test]
fn a_job_that_has_not_left_its_file_has_failed_and_a_resumed_batch_runs_it_again() {
    let _watchdog = Watchdog::start(60);
    let place = Place::new();
    let args = ["--fetch", "out-{}", "--fetch", "more-{}", "--log", "run.db", "--resume"];
    let script = "echo {} >> ../ran; echo {} > out-{}; [ {} = 1 ] || echo {} > more-{}";
    let job = ["--", "sh", "-c", script, ":::", "1", "2"];
    let output = on_node(&place, &[&args[..], &job].concat());
    assert_eq!(output.status.code(), Some(123), "{}", err(&output));
    let message = err(&output);
    assert!(message.contains(r#"cannot fetch "more-1": No such file"#), "{message}");
    assert!(!message.contains("more-2"), "{message}");
    assert_eq!((place.read("out-1"), place.read("more-2")), ("1\n".into(), "2\n".into()));
    // What is there now is fetched.
    place.write("n1/more-1", "now");
    let output = on_node(&place, &[&args[..], &job].concat());
    assert!(output.status.success(), "{}", err(&output));
    assert_eq!(
        (place.lines("ran"), place.read("more-1")),
        (["1", "1", "2"].map(String::from).into(), "now".into())
    );
}

#[test]
fn what_a_failed_job_has_left_is_fetched_too() {
    let _watchdog = Watchdog::start(60);
    let place = Place::new();
    let args = [
        "--fetch",
        "log",
        "--fetch",
        "none",
        "--",
        "sh",
        "-c",
        "echo why > log; exit 3",
        ":::",
        "1",
    ];
    let output = on_node(&place, &args);
    assert_eq!(output.status.code(), Some(123), "{}", err(&output));
    assert!(err(&output).contains("job 1 failed: exit code 3"), "{}", err(&output));
    assert_eq!(place.read("log"), "why\n");
}

#[test]
fn files_of_jobs_without_nodes_are_an_error_that_says_what_to_do() {
    let place = Place::new();
    for option in ["--send", "--fetch"] {
        let output = place.batch(&[option, "a", "--", "true", ":::", "1"]);
        assert_eq!(output.status.code(), Some(125));
        assert!(err(&output).contains("they need --via or --on"), "{}", err(&output));
    }
}

#[test]
fn a_link_in_the_place_of_a_fetched_file_is_replaced_and_not_followed() {
    let _watchdog = Watchdog::start(60);
    let place = Place::new();
    place.write("precious", "mine");
    std::os::unix::fs::symlink("precious", place.path("out")).unwrap();
    let output =
        on_node(&place, &["--fetch", "out", "--", "sh", "-c", "echo theirs > out", ":::", "1"]);
    assert!(output.status.success(), "{}", err(&output));
    assert_eq!((place.read("precious"), place.read("out")), ("mine".into(), "theirs\n".into()));
}

#[test]
fn a_node_that_is_killed_while_it_sends_leaves_no_half_file_and_the_job_runs_elsewhere() {
    let _watchdog = Watchdog::start(120);
    let place = Place::new();
    let args = ["--fetch", "out", "--log", "run.db", "--", "sh", "-c", SCRIPT, SIZE, ":::", "1"];
    let mut command = batch_on(&place, &nodes_in_folders(&place, 2), &args);
    let child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    until("the file is on its way", || !halves(&place).is_empty());
    assert!(!place.path("out").exists());
    // The job has ended, so nothing tells which node it was on.
    workers(&place).into_iter().for_each(|worker| kill(worker, "KILL"));
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", err(&output));
    assert!(err(&output).contains("is lost with 1 job: "), "{}", err(&output));
    assert_eq!((place.read("out"), place.lines("ran").len()), ("whole\n".into(), 2));
    assert_eq!(halves(&place), [""; 0]);
}

#[test]
fn a_job_whose_files_had_not_arrived_when_the_batch_was_killed_runs_again() {
    let _watchdog = Watchdog::start(120);
    let place = Place::new();
    let args = ["--fetch", "out", "--log", "run.db", "--resume", "--", "sh", "-c", SCRIPT, SIZE];
    let args = [&args[..], &[":::", "1"]].concat();
    let mut command = batch_on(&place, &nodes_in_folders(&place, 1), &args);
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    until("the file is on its way", || !halves(&place).is_empty());
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(!place.path("out").exists());
    let output = command.stderr(Stdio::piped()).spawn().unwrap().wait_with_output().unwrap();
    assert!(output.status.success(), "{}", err(&output));
    assert_eq!((place.read("out"), place.lines("ran").len()), ("whole\n".into(), 2));
}

#[test]
fn a_batch_that_is_stopped_while_it_fetches_leaves_no_half_file() {
    let _watchdog = Watchdog::start(120);
    let place = Place::new();
    let args = ["--fetch", "out", "--", "truncate", "-s", SIZE, "{}", ":::", "out"];
    let mut command = batch_on(&place, &nodes_in_folders(&place, 1), &args);
    let child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    until("the file is on its way", || !halves(&place).is_empty());
    kill(child.id(), "TERM");
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(128 + 15), "{}", err(&output));
    assert_eq!(halves(&place), [""; 0]);
    assert!(!place.path("out").exists());
}

#[test]
fn a_job_whose_node_is_killed_while_it_gets_a_file_has_not_begun_and_runs_elsewhere() {
    let _watchdog = Watchdog::start(120);
    let place = Place::new();
    let big = fs::File::create(place.path("big")).unwrap();
    big.set_len(8 << 30).unwrap();
    let job = ["--", "sh", "-c", "echo x >> ../ran; cp {} {}.out", ":::", "big"];
    // One that may not begin twice would be unknown if it had begun.
    let args = ["--once", "--send", "{}", "--fetch", "{}.out", "--log", "run.db"];
    let args = [&args[..], &job].concat();
    let mut command = batch_on(&place, &nodes_in_folders(&place, 2), &args);
    let child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    until("the file is on its way", || !halves(&place).is_empty());
    // The next node gets another one, which is short.
    place.write("short", "whole");
    fs::rename(place.path("short"), place.path("big")).unwrap();
    workers(&place).into_iter().for_each(|worker| kill(worker, "KILL"));
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", err(&output));
    assert_eq!((place.read("big.out"), place.lines("ran").len()), ("whole".into(), 1));
}
