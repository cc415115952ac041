//! Batches on a Slurm cluster: `bash ci/slurm.sh cargo test -p pipewright-cli --test cli -- nodes::slurm`.
//!
//! The cluster has the nodes n1 to n4 on this machine, with 8 processors each.

use std::collections::BTreeSet;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::process::{Child, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use std::{env, fs};

use super::check_ends;
use super::*;

/// Each test has the whole cluster.
pub(super) struct Cluster {
    _alone: MutexGuard<'static, ()>,
    _watchdog: Watchdog,
}

impl Cluster {
    /// Returns the cluster. `None`, with a message: there is none.
    pub(super) fn take(seconds: u64) -> Option<Cluster> {
        static ALONE: Mutex<()> = Mutex::new(());
        if env::var_os("PIPEWRIGHT_SLURM_NODE").is_none() {
            pace::skipped(pace::Need::Slurm, "needs a Slurm cluster: see ci/slurm.sh");
            return None;
        }
        // A test that failed has left nothing that another one could trip over.
        let alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
        let cluster = Cluster { _alone: alone, _watchdog: Watchdog::start(seconds) };
        until_released();
        until("all nodes are idle", || sinfo("%T %D") == "idle 4");
        Some(cluster)
    }

    /// Starts, kills or loses a node.
    fn node(&self, action: &str, node: &str) {
        let program = env::var_os("PIPEWRIGHT_SLURM_NODE").unwrap();
        let status = Command::new(program).args([action, node]).status().unwrap();
        assert!(status.success(), "{action} {node}: {status}");
    }
}

fn sinfo(format: &str) -> String {
    let output = Command::new("sinfo").args(["--noheader", "--format", format]).output().unwrap();
    out(&output).trim().to_owned()
}

/// Returns the numbers of the jobs that Slurm runs or keeps waiting.
fn squeue() -> Vec<String> {
    let output = Command::new("squeue").args(["--noheader", "--format=%i"]).output().unwrap();
    out(&output).lines().map(ToOwned::to_owned).collect()
}

pub(super) fn on_slurm(place: &Place, nodes: u32, args: &[&str]) -> Command {
    let mut command = place.tool(&["batch", "--progress", "none", "--on", "slurm"]);
    command.args(["--nodes", &nodes.to_string()]).args(args);
    // The cluster's own folder for secrets, so that a test sees what is left of them.
    command.env("XDG_CACHE_HOME", place.path(""));
    command
}

/// Starts a batch of jobs that note their starts and their ends, and wait for the file `end` in between.
pub(super) fn started(place: &Place, name: &str, nodes: u32, options: &[&str], jobs: u32) -> Child {
    let script = "echo {} $SLURMD_NODENAME >> starts; sleep 600 & \
                  until [ -e end ]; do sleep 0.02; done; echo {} >> ends";
    let values: Vec<String> = (1..=jobs).map(|job| job.to_string()).collect();
    let mut command = on_slurm(place, nodes, options);
    command.args(["--log", "run.db", "--", "sh", "-c", script, ":::"]).args(&values);
    command.env(MARK, mark(name)).stdout(Stdio::null()).stderr(Stdio::piped());
    command.spawn().unwrap()
}

/// Returns the processes of jobs with that mark. What else Slurm starts has it, too.
fn jobs_of(name: &str) -> Vec<u32> {
    let is_job = |pid: &u32| {
        let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        environment
            .split(|byte| *byte == 0)
            .any(|variable| variable.starts_with(b"PIPEWRIGHT_JOB="))
    };
    marked(name).into_iter().filter(is_job).collect()
}

/// Waits until the allocations are over. One without workers may keep its nodes for half a minute.
pub(super) fn until_released() {
    let start = std::time::Instant::now();
    while !squeue().is_empty() {
        assert!(start.elapsed() < pace::millis(90_000), "an allocation is left");
        std::thread::park_timeout(Duration::from_millis(100));
    }
}

pub(super) fn all(jobs: u32) -> Vec<String> {
    let mut jobs: Vec<String> = (1..=jobs).map(|job| job.to_string()).collect();
    jobs.sort();
    jobs
}

#[test]
fn jobs_on_slurm_end_as_they_do_here() {
    let Some(_cluster) = Cluster::take(240) else { return };
    for options in [&[][..], &["--slurm-stdio"]] {
        let place = Place::new();
        check_ends(&place, |args| on_slurm(&place, 2, &[options, args].concat()));
        until_released();
    }
}

#[test]
fn all_nodes_of_the_allocation_run_jobs_and_the_output_is_whole() {
    let Some(_cluster) = Cluster::take(240) else { return };
    for options in [&[][..], &["--slurm-stdio"]] {
        let place = Place::new();
        // Each waits until as many run as there are processors.
        let script = "echo $SLURMD_NODENAME >> started; \
                      until [ $(wc -l < started) -ge 32 ]; do sleep 0.05; done; seq 50000";
        let mut command = on_slurm(&place, 4, options);
        let values: Vec<String> = (1..=32).map(|value| value.to_string()).collect();
        let output = command.args(["--quiet", "--", "sh", "-c", script, ":::"]).args(&values);
        let output = output.output().unwrap();
        assert!(output.status.success(), "{}", err(&output));
        let nodes: BTreeSet<String> = place.lines("started").into_iter().collect();
        assert_eq!(nodes.len(), 4);
        let once: String = (1..=50_000).map(|number| format!("{number}\n")).collect();
        assert!(output.stdout == once.repeat(32).as_bytes());
        until_released();
    }
}

#[test]
fn inside_of_an_allocation_its_nodes_are_used() {
    let Some(_cluster) = Cluster::take(120) else { return };
    let place = Place::new();
    let script = r#""$PW" batch --quiet --on slurm -- sh -c 'echo $SLURM_JOB_ID; sleep 0.1' ::: 1 2 3; squeue -ho %i"#;
    let mut command = Command::new("salloc");
    command.args(["--quiet", "--nodes=2", "--exclusive", "sh", "-c", script]).env("PW", TOOL);
    let output = command.current_dir(place.path("")).output().unwrap();
    let lines = sorted(out(&output));
    // Three jobs, and the allocation that is still there afterwards.
    assert_eq!(lines.len(), 4, "{}", err(&output));
    assert!(lines.iter().all(|line| *line == lines[0]), "{lines:?}");
}

#[test]
fn jobs_of_a_lost_node_run_elsewhere_and_none_ends_twice() {
    let Some(cluster) = Cluster::take(240) else { return };
    let place = Place::new();
    let child = started(&place, "slurm-lost", 4, &[], 40);
    until("all nodes are full", || place.lines("starts").len() == 32);
    cluster.node("lose", "n2");
    place.write("end", "");
    let output = child.wait_with_output().unwrap();
    cluster.node("start", "n2");
    assert!(output.status.success(), "{}", err(&output));
    assert_eq!(place.lines("ends"), all(40));
    assert!(err(&output).contains("node n2 is lost with 8 jobs: "), "{}", err(&output));
    let query = "select outcome, node = 'n2', count(*) from attempts group by 1, 2";
    if let Some(rows) = place.rows("run.db", query) {
        assert_eq!(rows, ["exited|0|40", "lost|1|8"]);
    }
    until("no job is left", || jobs_of("slurm-lost").is_empty());
    until_released();
}

#[test]
fn nothing_is_lost_with_the_daemons_of_a_node() {
    let Some(cluster) = Cluster::take(240) else { return };
    let place = Place::new();
    let child = started(&place, "slurm-daemons", 2, &[], 16);
    until("both nodes are full", || place.lines("starts").len() == 16);
    cluster.node("kill", "n2");
    place.write("end", "");
    let output = child.wait_with_output().unwrap();
    cluster.node("start", "n2");
    assert!(output.status.success(), "{}", err(&output));
    assert_eq!(place.lines("ends"), all(16));
    until("no job is left", || jobs_of("slurm-daemons").is_empty());
}

#[test]
fn a_cancelled_allocation_drains_the_batch_and_it_goes_on() {
    let Some(_cluster) = Cluster::take(240) else { return };
    let place = Place::new();
    let child = started(&place, "slurm-cancelled", 2, &[], 20);
    until("both nodes are full", || place.lines("starts").len() == 16);
    let status = Command::new("scancel").args(squeue()).status().unwrap();
    assert!(status.success());
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(125), "{}", err(&output));
    let text = err(&output);
    assert!(text.contains("SIGTERM was sent to its worker"), "{text}");
    assert!(text.contains("no node is left: slurm: the allocation is CANCELLED"), "{text}");
    until("no job is left", || jobs_of("slurm-cancelled").is_empty());
    until_released();
    assert_eq!(place.lines("ends"), [""; 0]);
    place.write("end", "");
    let resumed = on_slurm(&place, 2, &["--resume", "run.db"]).output().unwrap();
    assert!(resumed.status.success(), "{}", err(&resumed));
    assert_eq!(place.lines("ends"), all(20));
}

#[test]
fn nothing_is_left_of_a_killed_batch_and_it_goes_on() {
    let Some(_cluster) = Cluster::take(240) else { return };
    for options in [&[][..], &["--slurm-stdio"]] {
        let place = Place::new();
        let mut child = started(&place, "slurm-killed", 2, options, 20);
        until("both nodes are full", || place.lines("starts").len() == 16);
        child.kill().unwrap();
        child.wait().unwrap();
        until("no job runs", || jobs_of("slurm-killed").is_empty());
        place.write("end", "");
        let args = [options, &["--resume", "run.db"]].concat();
        let resumed = on_slurm(&place, 2, &args).output().unwrap();
        assert!(resumed.status.success(), "{}", err(&resumed));
        assert_eq!(place.lines("ends"), all(20));
        until_released();
    }
}

#[test]
fn a_job_that_needs_more_time_than_there_is_is_refused() {
    let Some(_cluster) = Cluster::take(120) else { return };
    let place = Place::new();
    place.write(
        "jobs",
        "{\"argv\": [\"echo\", \"short\"], \"timeout\": 5}\n\
         {\"argv\": [\"echo\", \"long\"], \"timeout\": 3600}\n",
    );
    let args = ["--slurm-arg=--time=1", "--jsonl", "--from", "jobs"];
    let output = on_slurm(&place, 1, &args).output().unwrap();
    assert_eq!((output.status.code(), out(&output)), (Some(123), "short\n"), "{}", err(&output));
    let wanted = "job 2 failed: has 3600s, and the nodes are given for 60s: ask for more time";
    assert!(err(&output).contains(wanted), "{}", err(&output));
}

#[test]
fn an_allocation_that_is_refused_is_an_error_with_the_words_of_slurm() {
    let Some(_cluster) = Cluster::take(120) else { return };
    let place = Place::new();
    let args = ["--slurm-arg=--partition=none", "--", "echo", ":::", "a"];
    let output = on_slurm(&place, 1, &args).output().unwrap();
    assert_eq!(output.status.code(), Some(125), "{}", err(&output));
    assert!(err(&output).contains("sbatch refused the allocation"), "{}", err(&output));
}

#[test]
fn a_worker_that_cannot_be_started_is_named() {
    let Some(_cluster) = Cluster::take(240) else { return };
    let place = Place::new();
    let args = ["--worker-path", "/no/such/program", "--", "echo", ":::", "a"];
    let output = on_slurm(&place, 2, &args).output().unwrap();
    assert_eq!(output.status.code(), Some(125), "{}", err(&output));
    assert!(err(&output).contains("/no/such/program"), "{}", err(&output));
    until_released();
}

#[test]
fn another_allocation_is_asked_for_when_the_time_that_is_left_is_too_short() {
    let Some(_cluster) = Cluster::take(240) else { return };
    let place = Place::new();
    // After the first job, fewer than 55 s of the minute are left.
    place.write(
        "jobs",
        "{\"id\": \"a\", \"shell\": \"echo $SLURM_JOB_ID; sleep 7\"}\n\
         {\"shell\": \"echo $SLURM_JOB_ID\", \"after\": [\"a\"], \"timeout\": 55}\n",
    );
    let args = ["--slurm-arg=--time=1", "--jsonl", "--from", "jobs", "--keep-order"];
    let output = on_slurm(&place, 1, &args).output().unwrap();
    assert!(output.status.success(), "{}", err(&output));
    let allocations: Vec<&str> = out(&output).lines().collect();
    assert_eq!(allocations.len(), 2);
    assert_ne!(allocations[0], allocations[1]);
    assert!(err(&output).contains("COMPLETED; asking for another"), "{}", err(&output));
}

/// Returns the address at which workers connect, from the messages of a batch.
fn address(child: &mut Child) -> String {
    let mut stderr = child.stderr.take().unwrap();
    let mut text = String::new();
    let mut buffer = [0; 1024];
    loop {
        let whole_lines = text.rsplit_once('\n').map_or("", |(lines, _)| lines);
        if let Some(line) = whole_lines.lines().find(|line| line.contains("workers connect to")) {
            let address = line.rsplit(' ').next().unwrap().to_owned();
            // The pipe is kept, so that the batch can go on to write.
            std::thread::spawn(move || std::io::copy(&mut stderr, &mut std::io::sink()));
            return address;
        }
        let count = stderr.read(&mut buffer).unwrap();
        assert_ne!(count, 0, "{text}");
        text.push_str(&String::from_utf8_lossy(&buffer[..count]));
    }
}

#[test]
fn strangers_at_the_port_get_nothing_and_disturb_nobody() {
    let Some(_cluster) = Cluster::take(240) else { return };
    let place = Place::new();
    let mut child = started(&place, "slurm-strangers", 2, &["--verbose"], 16);
    let address = address(&mut child);
    assert!(address.starts_with("127.0.0.1:"), "{address}");
    until("both nodes are full", || place.lines("starts").len() == 16);

    // A port scanner, a browser, somebody who says nothing, and a peer that sends a frame at once.
    let silent = TcpStream::connect(&address).unwrap();
    for bytes in [
        &b""[..],
        b"GET / HTTP/1.0\r\n\r\n",
        b"\x16\x03\x01\x02\0",
        &[0xff; 4096],
        b"\x10\0\0\0pipewright batch",
    ] {
        let mut stream = TcpStream::connect(&address).unwrap();
        // Ignored: the batch may have closed the connection already.
        let _ = stream.write_all(bytes);
        let _ = stream.shutdown(std::net::Shutdown::Write);
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        let mut answer = Vec::new();
        // A connection that is closed with unread bytes is reset.
        let _ = stream.read_to_end(&mut answer);
        assert_eq!(answer, b"");
    }
    // A worker with another secret: neither side accepts the other.
    place.write("other-secret", &"0123456789abcdef".repeat(4));
    let worker = ["worker", "--connect", &address, "--secret-file", "other-secret"];
    let worker = place.tool(&worker).output().unwrap();
    assert_eq!(worker.status.code(), Some(125));
    assert!(err(&worker).contains("the other side does not know the secret"), "{}", err(&worker));

    place.write("end", "");
    assert!(child.wait().unwrap().success());
    drop(silent);
    assert_eq!(place.lines("ends"), all(16));
}

/// Returns the workers with that mark.
fn workers_of(name: &str) -> Vec<u32> {
    let is_worker = |pid: &u32| {
        let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        line.starts_with(format!("{TOOL}\0worker\0").as_bytes())
    };
    marked(name).into_iter().filter(is_worker).collect()
}

/// Returns the memory of a process that the kernel would write into a core file.
fn core(pid: u32) -> Vec<Vec<u8>> {
    let memory = fs::File::open(format!("/proc/{pid}/mem")).unwrap();
    let mut blocks = Vec::new();
    let mut range = None;
    for line in fs::read_to_string(format!("/proc/{pid}/smaps")).unwrap().lines() {
        let first = line.split(' ').next().unwrap_or_default();
        if let Some((from, to)) = first.split_once('-') {
            let number = |text: &str| u64::from_str_radix(text, 16).unwrap();
            range = Some((number(from), number(to)));
        } else if let Some(flags) = line.strip_prefix("VmFlags:") {
            let (from, to) = range.take().unwrap();
            let has = |flag: &str| flags.split(' ').any(|it| it == flag);
            // Readable and written to, without MADV_DONTDUMP.
            if has("rd") && has("wr") && !has("dd") {
                let mut block = vec![0; usize::try_from(to - from).unwrap()];
                std::os::unix::fs::FileExt::read_exact_at(&memory, &mut block, from).unwrap();
                blocks.push(block);
            }
        }
    }
    assert!(blocks.len() > 3);
    blocks
}

#[test]
fn the_secret_is_in_no_command_line_no_environment_no_core_and_no_log() {
    let Some(_cluster) = Cluster::take(120) else { return };
    let place = Place::new();
    let mut child = started(&place, "slurm-secret", 2, &["--verbose"], 2);
    until("both jobs run", || place.lines("starts").len() == 2);
    let file = |entry: fs::DirEntry| {
        let is_secret = entry.file_name().to_string_lossy().starts_with(".pipewright-");
        is_secret.then(|| entry.path())
    };
    let entries = fs::read_dir(place.path("pipewright")).unwrap().map(Result::unwrap);
    let files: Vec<_> = entries.filter_map(file).collect();
    assert_eq!(files.len(), 1);
    let mode = std::os::unix::fs::MetadataExt::mode(&fs::metadata(&files[0]).unwrap());
    assert_eq!(mode & 0o777, 0o600);
    let secret = fs::read(&files[0]).unwrap();
    assert_eq!(secret.len(), 64);
    let has_secret = |bytes: &[u8]| bytes.windows(64).any(|window| window == secret);
    for process in fs::read_dir("/proc").unwrap().map(Result::unwrap) {
        for file in ["cmdline", "environ"] {
            let bytes = fs::read(process.path().join(file)).unwrap_or_default();
            assert!(!has_secret(&bytes), "{:?} {file}", process.path());
        }
    }
    let raw: Vec<u8> = secret
        .chunks(2)
        .map(|digits| u8::from_str_radix(std::str::from_utf8(digits).unwrap(), 16).unwrap())
        .collect();
    let tools = [vec![child.id()], workers_of("slurm-secret")].concat();
    assert_eq!(tools.len(), 3, "the batch and two workers");
    for pid in tools {
        for block in core(pid) {
            let is_raw = block.windows(32).any(|window| window == raw);
            assert!(!is_raw && !has_secret(&block), "a core of {pid} would have the secret");
        }
    }
    place.write("end", "");
    assert!(child.wait().unwrap().success());
    assert!(!has_secret(&fs::read(place.path("run.db")).unwrap()));
    let left = fs::read_dir(place.path("pipewright")).unwrap().count();
    assert_eq!(left, 0, "a file of the batch is left");
}
