//! Output that nodes write to files themselves.

use std::fs;

use serde_json::Value;

use super::*;

const ON_NODES: [&str; 3] = ["--output-dir", "out", "--output-on-nodes"];

/// Returns stdout, stderr and the facts of each job, in the order of the input.
fn folders(place: &Place) -> Vec<(String, String, Value)> {
    let entries = fs::read_dir(place.path("out")).unwrap();
    let mut folders: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
    folders.sort();
    let text = |path| fs::read_to_string(path).unwrap();
    let read = |folder: std::path::PathBuf| {
        let facts = serde_json::from_str(&text(folder.join("job.json"))).unwrap();
        (text(folder.join("stdout")), text(folder.join("stderr")), facts)
    };
    folders.into_iter().map(read).collect()
}

#[test]
fn nodes_write_the_output_of_their_jobs_and_send_none() {
    let _watchdog = Watchdog::start(120);
    let place = Place::new();
    // All that the worker sends passes through `tee`.
    let node = r#"sh -c 'PATH=/nonexistent:$PATH "$@" | tee sent' sh"#;
    let nodes = ["-j2", "--worker-path", TOOL, "--via", node].map(ToOwned::to_owned);
    let script = "head -c {} /dev/zero | tr '\\0' x; echo 'end of {}' >&2";
    let args = [&ON_NODES[..], &["--", "sh", "-c", script, ":::", "0", "5000000", "7"]].concat();
    let output = batch_on(&place, &nodes, &args).output().unwrap();
    assert!(output.status.success(), "{}", err(&output));
    assert_eq!(out(&output), "");
    let folders = folders(&place);
    for ((stdout, stderr, facts), count) in folders.iter().zip([0_usize, 5_000_000, 7]) {
        assert!(*stdout == "x".repeat(count), "{} of {count} bytes", stdout.len());
        assert_eq!(*stderr, format!("end of {count}\n"));
        assert_eq!((&facts["stdout_bytes"], &facts["truncated"]), (&count.into(), &false.into()));
        assert_eq!(facts["stderr_bytes"], stderr.len());
    }
    assert_eq!(folders.len(), 3);
    let sent = fs::read(place.path("sent")).unwrap();
    assert!(!sent.is_empty() && !sent.windows(20).any(|bytes| bytes == [b'x'; 20]));
}

#[test]
fn a_retried_job_leaves_the_output_of_its_last_attempt() {
    let _watchdog = Watchdog::start(120);
    let place = Place::new();
    let script = "[ -e again ] && exec echo second; touch again; echo the first attempt; exit 1";
    let args = [&ON_NODES[..], &["--retries", "1", "--", "sh", "-c", script]].concat();
    place.write("none", "one\n");
    let args = [&["--from", "none"], &args[..]].concat();
    let output = batch_on(&place, &nodes(1), &args).output().unwrap();
    assert!(output.status.success(), "{}", err(&output));
    let (stdout, _, facts) = folders(&place).remove(0);
    assert_eq!((&*stdout, &facts["attempt"]), ("second\n", &2.into()));
}

#[test]
fn nodes_keep_the_first_bytes_and_report_the_last_lines() {
    let _watchdog = Watchdog::start(120);
    let place = Place::new();
    let script = "seq 100; echo the reason of {} >&2; exit 3";
    let options = ["--log", "run.db", "--max-output", "10"];
    let args = [&ON_NODES[..], &options, &["--", "sh", "-c", script, ":::", "1"]].concat();
    let output = batch_on(&place, &nodes(1), &args).output().unwrap();
    assert_eq!(output.status.code(), Some(123), "{}", err(&output));
    if let Some(rows) = place.rows("run.db", "select stderr_tail, stdout_bytes from attempts") {
        assert_eq!(rows, ["the reason of 1|292"]);
    }
    let (stdout, stderr, facts) = folders(&place).remove(0);
    assert_eq!((&*stdout, &*stderr), ("1\n2\n3\n4\n5\n", "the reason"));
    assert_eq!((&facts["stdout_bytes"], &facts["truncated"]), (&292.into(), &true.into()));
}

#[test]
fn the_output_of_a_lost_attempt_is_replaced() {
    let _watchdog = Watchdog::start(120);
    let place = Place::new();
    // The first attempt kills the worker that it runs on, after its output is in the file.
    let script = "[ -e again ] && exec echo second; touch again; echo the first attempt
        until [ -s out/*/stdout ]; do sleep 0.05; done; kill -9 $(cat workers); sleep 600";
    let args = [&ON_NODES[..], &["--", "sh", "-c", script, ":::", "1"]].concat();
    let output = batch_on(&place, &nodes(1), &args).output().unwrap();
    assert!(output.status.success(), "{}", err(&output));
    let (stdout, _, facts) = folders(&place).remove(0);
    assert_eq!((&*stdout, &facts["truncated"]), ("second\n", &false.into()));
}

/// Returns the nodes of a script that hides the output directory from its node, or `None` if nothing can be mounted here.
fn node_that_sees(mount: &str) -> Option<Vec<String>> {
    let namespace = ["--user", "--map-root-user", "--mount"];
    let mut tried = Command::new("unshare");
    tried.args(namespace).args(["mount", "-t", "tmpfs", "none", "/mnt"]);
    if !tried.output().is_ok_and(|tried| tried.status.success()) {
        return None;
    }
    let node = format!("unshare {} sh -c '{mount} && exec \"$@\"' sh", namespace.join(" "));
    Some(["-j1", "--worker-path", TOOL, "--via", &node].map(ToOwned::to_owned).to_vec())
}

#[test]
fn a_job_does_not_start_where_its_folder_is_not() {
    let _watchdog = Watchdog::start(120);
    let place = Place::new();
    fs::create_dir(place.path("out")).unwrap();
    let Some(nodes) = node_that_sees("mount -t tmpfs none out") else {
        return pace::skipped(pace::Need::UserNamespace, "user namespaces cannot be had");
    };
    let args = [&ON_NODES[..], &["--", "touch", ":::", "ran"]].concat();
    let output = batch_on(&place, &nodes, &args).output().unwrap();
    assert_eq!(output.status.code(), Some(123), "{}", err(&output));
    assert!(err(&output).contains("cannot write the output to "), "{}", err(&output));
    assert!(!place.path("ran").exists());
}

/// Runs a job on a node with another folder of the same name, on a file system of that size.
fn run_elsewhere(place: &Place, size: &str, job: &[&str]) -> Option<std::process::Output> {
    // A first batch finds the name of the folder, which depends on the job only.
    let quiet = ["--output-dir", "out", "--no-output"];
    assert!(place.batch(&[&quiet, job].concat()).status.success());
    let entry = fs::read_dir(place.path("out")).unwrap().next().unwrap().unwrap();
    let name = entry.file_name().into_string().unwrap();
    let nodes =
        node_that_sees(&format!("mount -t tmpfs -o size={size} none out && mkdir out/{name}"))?;
    Some(batch_on(place, &nodes, &[&ON_NODES[..], job].concat()).output().unwrap())
}

#[test]
fn files_that_are_not_here_are_an_error() {
    let _watchdog = Watchdog::start(120);
    let place = Place::new();
    let Some(output) = run_elsewhere(&place, "1m", &["--", "echo", ":::", "text"]) else {
        return pace::skipped(pace::Need::UserNamespace, "user namespaces cannot be had");
    };
    assert_eq!(output.status.code(), Some(125), "{}", err(&output));
    assert!(err(&output).contains("the node wrote 5 bytes, and 0 are here"), "{}", err(&output));
}

#[test]
fn a_full_disk_of_a_node_is_an_error_and_the_job_goes_on() {
    let _watchdog = Watchdog::start(120);
    let place = Place::new();
    let job = ["--", "sh", "-c", "head -c 1000000 /dev/zero; echo {} > ran", ":::", "x"];
    let Some(output) = run_elsewhere(&place, "64k", &job) else {
        return pace::skipped(pace::Need::UserNamespace, "user namespaces cannot be had");
    };
    assert_eq!(output.status.code(), Some(125), "{}", err(&output));
    assert!(err(&output).contains("No space left on device"), "{}", err(&output));
    let (_, _, facts) = folders(&place).remove(0);
    assert_eq!((&facts["outcome"], &facts["truncated"]), (&"exited".into(), &true.into()));
    assert_eq!((&facts["stdout_bytes"], &*place.read("ran")), (&1_000_000.into(), "x\n"));
}
