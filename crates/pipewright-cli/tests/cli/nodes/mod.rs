//! Batches on nodes: jobs end, print and fail as they do here; nodes that cannot be used; files that nodes write.
//! A node here is a worker on this machine, behind a command.
//!
//! | file | contents |
//! |---|---|
//! | `files.rs` | files that jobs get and leave |
//! | `lost.rs` | nodes and batches that are killed, stopped or drained; random batches |
//! | `network.rs` | networks that are cut for a time, and nodes behind a real sshd |
//! | `slurm.rs` | nodes of a Slurm cluster, their port and their secret |

mod files;
mod lost;
mod network;
mod slurm;

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::process::{Command, Output, Stdio};

use serde_json::Value;

use crate::trees::{MARK, mark, marked, until};
use crate::{Place, Watchdog, err, out, pace, sorted};

const TOOL: &str = env!("CARGO_BIN_EXE_pipewright");

/// Returns the options for `count` nodes, each with two slots. A node writes the pid of its worker to the file
/// `workers`.
fn nodes(count: usize) -> Vec<String> {
    let mut options = vec!["-j2".to_owned(), "--worker-path".to_owned(), TOOL.to_owned()];
    for node in 1..=count {
        let script = format!(r#"echo $$ >> workers; NODE={node} exec "$@""#);
        options.extend(["--via".to_owned(), format!("sh -c '{script}' sh")]);
    }
    options
}

/// Returns `batch` on nodes, without progress.
fn batch_on(place: &Place, nodes: &[String], args: &[&str]) -> Command {
    let mut command = place.tool(&["batch", "--progress", "none"]);
    command.args(nodes).args(args);
    command
}

/// Returns the pids of the workers that have been started, in order.
fn workers(place: &Place) -> Vec<u32> {
    place.read("workers").lines().map(|pid| pid.parse().unwrap()).collect()
}

fn kill(pid: u32, signal: &str) {
    // Ignored: it may have ended.
    let _ = Command::new("kill").args(["-s", signal, &pid.to_string()]).output().unwrap();
}

/// Returns the end of each job of a batch, and what it said of failures, without what nodes differ in: their names, and
/// the number of directories in `PATH`.
fn ends(place: &Place, log: &str, output: &Output) -> Vec<String> {
    let listed = place.tool(&["jobs", log, "--json"]).output().unwrap();
    let end = |line: &str| {
        let job: serde_json::Value = serde_json::from_str(line).unwrap();
        format!("{} {} {}", job["job"], job["state"], job["exit"])
    };
    let without_node = |line: &str| match line.split_once(" failed: node ") {
        Some((job, reason)) => format!("{job} failed: {}", reason.split_once(": ").unwrap().1),
        None => line.to_owned(),
    };
    let without_path = |line: String| match line.split_once(" (searched ") {
        Some((reason, _)) => reason.to_owned(),
        None => line,
    };
    let failures = err(output).lines().filter(|line| line.contains(" failed: "));
    let failures = failures.map(without_node).map(without_path);
    let mut ends: Vec<String> = out(&listed).lines().map(end).chain(failures).collect();
    ends.sort();
    ends
}

fn host_name() -> String {
    std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap().trim().to_owned()
}

/// Checks that jobs of every end have the same one here and on the nodes of the function.
fn check_ends(place: &Place, batch_on: impl FnOnce(&[&str]) -> Command) {
    place.write_program("no-program", "#!/no/such/interpreter\n");
    place.write("not-executable", "");
    place.write(
        "jobs",
        r#"{"argv": ["true"]}
{"shell": "exit 3"}
{"shell": "kill -9 $$"}
{"shell": "kill -TERM $$"}
{"argv": ["no-such-program"]}
{"argv": ["./not-executable"]}
{"argv": ["./no-program"]}
{"argv": ["true"], "cwd": "no-such-directory"}
{"argv": ["true"], "stdin_file": "no-such-file"}
{"argv": ["sleep", "600"], "timeout": 0.1}
{"shell": "while :; do echo yes; done"}
{"argv": ["cat"], "stdin": "text"}
"#,
    );
    let args =
        ["--jsonl", "--from", "jobs", "--max-output", "100k", "--show-output=never", "--log"];
    let here = place.batch(&[&args[..], &["here.db"]].concat());
    let there = batch_on(&[&args[..], &["there.db"]].concat()).output().unwrap();
    assert_eq!(
        (here.status.code(), there.status.code()),
        (Some(123), Some(123)),
        "{}",
        err(&there)
    );
    let here = ends(place, "here.db", &here);
    assert_eq!(here.len(), 12 + 10);
    assert_eq!(here, ends(place, "there.db", &there));
}

#[test]
fn jobs_on_nodes_end_as_they_do_here() {
    let _watchdog = Watchdog::start(120);
    let place = Place::new();
    check_ends(&place, |args| batch_on(&place, &nodes(2), args));
}

#[test]
fn jobs_on_nodes_start_with_what_the_options_say() {
    let _watchdog = Watchdog::start(60);
    let place = Place::new();
    let options = ["-q", "--clear-env", "--env", "A=1", "-C", "/", "--umask", "027", "--nice", "3"];
    let job = "echo $A $NODE $(pwd) $(umask) $PIPEWRIGHT_JOB";
    let command = ["--show-output", "on-failure", "--", "/bin/sh", "-c", job, ":::", "1"];
    let run = |command: &[&str]| {
        let args = [&options[..], command].concat();
        batch_on(&place, &nodes(1), &args).output().unwrap()
    };
    assert_eq!(out(&run(&command)), "");
    let output = run(&command[2..]);
    assert_eq!(out(&output), "1 / 0027 1\n", "{}", err(&output));
}

#[test]
fn the_reason_for_a_failed_start_names_the_node() {
    let _watchdog = Watchdog::start(60);
    let place = Place::new();
    let output =
        batch_on(&place, &nodes(1), &["--", "no-such-program", ":::", "a"]).output().unwrap();
    let wanted = format!("job 1 failed: node {}: ", host_name());
    assert!(err(&output).contains(&wanted), "{}", err(&output));
}

#[test]
fn words_environment_and_input_are_bytes() {
    let _watchdog = Watchdog::start(60);
    let place = Place::new();
    place.write(
        "jobs",
        concat!(
            r#"{"argv": ["sh", "-c", "printf '%s|' \"$0\" \"$A\" \"$PWD\"; cat", {"hex": "ff0a2027c3"}], "#,
            r#""env": {"A": {"hex": "80fe0a"}}, "stdin": {"hex": "00ff0a00"}, "cwd": "/"}"#,
            "\n",
            r#"{"argv": ["sh", "-c", "echo \"${HOME-unset}\" \"$B\""], "env": {"HOME": null, "B": "b"}}"#,
            "\n",
        ),
    );
    let args = ["--jsonl", "--from", "jobs", "--keep-order"];
    let here = place.batch(&args);
    let there = batch_on(&place, &nodes(2), &args).output().unwrap();
    assert!(here.status.success() && there.status.success(), "{}", err(&there));
    assert_eq!(here.stdout, there.stdout);
    assert!(there.stdout.starts_with(b"\xff\n '\xc3|\x80\xfe\n|/|\0\xff\n\0"));
}

#[test]
fn output_is_whole_and_in_order() {
    let _watchdog = Watchdog::start(120);
    let place = Place::new();
    // More than a connection may have under way.
    let script = "seq $((0*{} + 1)) 900000; echo {} >&2";
    let args = ["--keep-order", "--", "sh", "-c", script, ":::", "1", "2", "3", "4", "5"];
    let output = batch_on(&place, &nodes(2), &[&["--quiet"], &args[..]].concat()).output().unwrap();
    assert!(output.status.success(), "{}", err(&output));
    let once: String = (1..=900_000).map(|number| format!("{number}\n")).collect();
    assert!(output.stdout == once.repeat(5).as_bytes());
    assert_eq!(sorted(err(&output)), ["1", "2", "3", "4", "5"]);
}

#[test]
fn each_node_runs_as_many_jobs_at_once_as_it_has_slots() {
    let _watchdog = Watchdog::start(60);
    let place = Place::new();
    // Each waits until as many run as all nodes have slots.
    let script = "echo $NODE >> started; \
                  until [ $(wc -l < started) -ge 6 ]; do sleep 0.01; done; echo $PIPEWRIGHT_SLOT";
    let values = ["1", "2", "3", "4", "5", "6"];
    let args = [&["--quiet", "--", "sh", "-c", script, ":::"][..], &values].concat();
    let output = batch_on(&place, &nodes(3), &args).output().unwrap();
    assert!(output.status.success(), "{}", err(&output));
    assert_eq!(sorted(out(&output)), values);
    assert_eq!(place.lines("started"), ["1", "1", "2", "2", "3", "3"]);
}

#[test]
fn a_job_on_several_processors_has_them_on_one_node() {
    let _watchdog = Watchdog::start(60);
    let place = Place::new();
    place.write(
        "jobs",
        r#"{"shell": "echo small", "cpus": 1}
{"shell": "echo large", "cpus": 2}
{"shell": "echo too large", "cpus": 3}
"#,
    );
    let args = ["--jsonl", "--from", "jobs", "--log", "run.db"];
    let output = batch_on(&place, &nodes(2), &args).output().unwrap();
    assert_eq!(output.status.code(), Some(123));
    assert_eq!(sorted(out(&output)), ["large", "small"]);
    let wanted = "job 3 failed: needs 3 CPUs, and the largest node has 2";
    assert!(err(&output).contains(wanted), "{}", err(&output));
}

#[test]
fn the_log_has_the_node_of_each_attempt() {
    let _watchdog = Watchdog::start(60);
    let place = Place::new();
    let args = ["--log", "run.db", "--", "true", ":::", "a", "b"];
    let output = batch_on(&place, &nodes(1), &args).output().unwrap();
    assert!(output.status.success(), "{}", err(&output));
    let rows = "select node from attempts union all select remote || ' ' || slots from runs";
    let Some(rows) = place.rows("run.db", rows) else { return };
    assert_eq!(rows, [host_name(), host_name(), "1 2".to_owned()]);
}

#[test]
fn a_copy_of_the_tool_is_kept_on_the_node() {
    let _watchdog = Watchdog::start(180);
    let place = Place::new();
    let cache = place.path("cache");
    let mut inodes = Vec::new();
    for _ in 0..2 {
        let mut command =
            place.tool(&["batch", "--quiet", "--via", "env", "--", "echo", ":::", "hi"]);
        let output = command.env("XDG_CACHE_HOME", &cache).output().unwrap();
        assert_eq!((out(&output), err(&output)), ("hi\n", ""));
        let files = std::fs::read_dir(cache.join("pipewright")).unwrap();
        let files: Vec<_> = files.map(Result::unwrap).collect();
        assert_eq!(files.len(), 1);
        inodes.push(std::os::unix::fs::MetadataExt::ino(&files[0].metadata().unwrap()));
    }
    assert_eq!(inodes[0], inodes[1], "it was copied again");
}

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
        "speaks protocol 1, this one 3: use one build of pipewright; given up",
    );
}

#[test]
fn a_worker_of_another_build_is_refused_with_both_hashes() {
    let _watchdog = Watchdog::start(60);
    let place = Place::new();
    // The same version, and one byte more.
    let other = place.path("other");
    let path = other.to_str().unwrap();
    let script = "cp \"$0\" \"$1\" && printf x >> \"$1\"";
    assert!(Command::new("sh").args(["-c", script, TOOL, path]).status().unwrap().success());
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
    let options = ["--log", "run.db", "--keep-output", "10"];
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

/// Returns the nodes of a script that hides the output directory from its node, or `None` if nothing can be mounted
/// here.
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
    let quiet = ["--output-dir", "out", "--show-output=never"];
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
