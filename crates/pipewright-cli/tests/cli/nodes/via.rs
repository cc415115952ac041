//! Jobs on nodes end, print and fail as they do here.

use std::os::unix::fs::PermissionsExt as _;
use std::process::Output;

use super::*;

/// Returns the end of each job of a batch, and what it said of failures, without what nodes differ in: their names, and
/// the number of directories in `PATH`.
pub(super) fn ends(place: &Place, log: &str, output: &Output) -> Vec<String> {
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
pub(super) fn check_ends(place: &Place, batch_on: impl FnOnce(&[&str]) -> Command) {
    place.write("no-program", "#!/no/such/interpreter\n");
    let mut mode = std::fs::metadata(place.path("no-program")).unwrap().permissions();
    place.write("not-executable", "");
    mode.set_mode(0o755);
    std::fs::set_permissions(place.path("no-program"), mode).unwrap();
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
    let args = ["--jsonl", "--from", "jobs", "--limit", "100k", "--no-output", "--log"];
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
        r#"{"argv": ["sh", "-c", "printf '%s|' \"$0\" \"$A\" \"$PWD\"; cat", {"hex": "ff0a2027c3"}], "env": {"A": {"hex": "80fe0a"}}, "stdin": {"hex": "00ff0a00"}, "cwd": "/"}
{"argv": ["sh", "-c", "echo \"${HOME-unset}\" \"$B\""], "env": {"HOME": null, "B": "b"}}
"#,
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
    let script = "echo $NODE >> started; until [ $(wc -l < started) -ge 6 ]; do sleep 0.01; done; echo $PIPEWRIGHT_SLOT";
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
