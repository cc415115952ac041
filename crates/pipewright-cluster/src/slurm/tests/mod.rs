//! Tests with recorded texts, and here those with a cluster: `bash ci/slurm.sh cargo test -p pipewright-cluster slurm`.

mod recorded;

use std::ffi::OsString;
use std::io::{Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use pipewright::{CancelToken, Command, Limit, Stdio};
use pipewright_test_macros::watched_test;
use pipewright_tests::{skip, watchdog};
use tempfile::TempDir;

use super::allocation::{
    Allocation, AllocationRequest, Connection, GrantedNodes, IDLE_TIME, dial_back_script,
    holding_script, srun_on_node,
};
use super::client::{Call, SlurmError};
use super::job::{JobInfo, SlurmState};

/// The program of `ci/slurm.sh` that kills and starts the daemons of nodes.
const NODE: &str = "PIPEWRIGHT_SLURM_NODE";

/// The cluster, for one test at a time.
struct Cluster {
    /// A folder that all nodes see.
    folder: TempDir,
    _alone: MutexGuard<'static, ()>,
}

/// Returns the cluster, or reports that the test is skipped.
fn cluster() -> Option<Cluster> {
    static ALONE: Mutex<()> = Mutex::new(());
    if std::env::var_os(NODE).is_none() {
        skip::skipped(
            skip::Need::Slurm,
            "needs a Slurm cluster: bash ci/slurm.sh cargo test -p pipewright-cluster slurm",
        );
        return None;
    }
    let alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let cluster = Cluster { folder: tempfile::tempdir().unwrap(), _alone: alone };
    // A node may still end a job of the test before.
    watchdog::until("all nodes are idle", || {
        sinfo() == "idle 4" && Command::new("squeue").arg("--noheader").read().unwrap().is_empty()
    });
    Some(cluster)
}

/// Returns the states of the nodes and their numbers.
fn sinfo() -> String {
    Command::new("sinfo").args(["--noheader", "--format=%T %D"]).read().unwrap()
}

impl Cluster {
    fn path(&self) -> &Path {
        self.folder.path()
    }

    /// Returns the path of a file in the folder.
    fn file(&self, name: &str) -> PathBuf {
        self.path().join(name)
    }

    fn request(&self, nodes: u32, script: Vec<u8>) -> AllocationRequest {
        let output = self.file("output");
        AllocationRequest { nodes, arguments: Vec::new(), script, output }
    }

    fn submit(&self, nodes: u32, script: Vec<u8>) -> Allocation {
        Allocation::submit(&self.request(nodes, script), &never()).unwrap()
    }

    /// Returns the names of the files that begin so, in order.
    fn files(&self, prefix: &str) -> Vec<String> {
        let entries = std::fs::read_dir(self.path()).unwrap();
        let names = entries.map(|it| it.unwrap().file_name().to_string_lossy().into_owned());
        let mut names: Vec<String> = names.filter(|it| it.starts_with(prefix)).collect();
        names.sort();
        names
    }

    /// Kills the daemon of a node and its steps, or starts the daemon.
    fn node(&self, action: &str, name: &str) {
        Command::new(std::env::var_os(NODE).unwrap()).args([action, name]).run().unwrap();
    }
}

/// Returns a token that nothing cancels.
fn never() -> CancelToken {
    CancelToken::new()
}

fn granted(allocation: &Allocation) -> GrantedNodes {
    allocation.wait_until_granted(&never(), asleep, |_| ()).unwrap()
}

/// Waits for the state, and returns the job.
fn in_state(allocation: &Allocation, state: SlurmState) -> JobInfo {
    let mut job = allocation.look(&never()).unwrap();
    watchdog::until(&format!("the job is {state}"), || {
        job = allocation.look(&never()).unwrap();
        job.state == state
    });
    job
}

/// Returns a worker that runs a script of the shell, whose `$0` is the folder. `$node` is the name of the node.
fn shell(cluster: &Cluster, script: &str) -> Vec<OsString> {
    let script = format!("node=$SLURMD_NODENAME; {script}");
    vec!["sh".into(), "-c".into(), script.into(), cluster.path().into()]
}

/// Waits for that time, and asks again.
fn asleep(pause: std::time::Duration) -> bool {
    std::thread::park_timeout(pause);
    false
}

const LIMIT: Duration = Duration::from_secs(600);

/// A worker that runs until the folder has the file `end`.
const UNTIL_END: &str = r#"touch "$0/$node"; until [ -e "$0/end" ]; do sleep 0.05; done"#;

#[watched_test(limit = LIMIT)]
fn workers_run_on_all_four_nodes_and_the_allocation_ends_with_the_last() {
    let Some(cluster) = cluster() else { return };
    let allocation = cluster.submit(4, dial_back_script(&shell(&cluster, UNTIL_END)));
    let nodes = granted(&allocation);
    assert_eq!(nodes.names, ["n1", "n2", "n3", "n4"]);
    assert_eq!(nodes.job.node_list.as_deref(), Some("n[1-4]"));
    assert_eq!((nodes.job.node_count, nodes.job.time_limit), (Some(4), None));
    watchdog::until("all workers run", || cluster.files("n") == ["n1", "n2", "n3", "n4"]);
    assert_eq!(allocation.look(&never()).unwrap().state, SlurmState::Running);
    std::fs::write(cluster.file("end"), "").unwrap();
    let job = in_state(&allocation, SlurmState::Completed);
    assert_eq!(job.exit, Some((0, 0)));
    let ended = allocation.wait_until_granted(&never(), asleep, |_| ()).unwrap_err();
    assert!(matches!(ended, SlurmError::Ended { state: SlurmState::Completed, .. }), "{ended}");
    allocation.end().unwrap();
}

#[watched_test(limit = LIMIT)]
fn a_worker_that_fails_does_not_end_the_others() {
    let Some(cluster) = cluster() else { return };
    let script = format!(r#"[ "$node" != n2 ] || exit 3; {UNTIL_END}; touch "$0/done-$node""#);
    let allocation = cluster.submit(4, dial_back_script(&shell(&cluster, &script)));
    watchdog::until("the others run", || cluster.files("n") == ["n1", "n3", "n4"]);
    std::fs::write(cluster.file("end"), "").unwrap();
    let job = in_state(&allocation, SlurmState::Failed);
    assert_eq!(job.exit, Some((3, 0)), "the worst of all workers");
    assert_eq!(cluster.files("done"), ["done-n1", "done-n3", "done-n4"]);
}

#[watched_test(limit = LIMIT)]
fn dropping_an_allocation_cancels_it() {
    let Some(cluster) = cluster() else { return };
    let allocation = cluster.submit(4, dial_back_script(&shell(&cluster, UNTIL_END)));
    watchdog::until("all workers run", || cluster.files("n").len() == 4);
    let id = allocation.id().to_string();
    drop(allocation);
    let same = Allocation::adopted(&id).unwrap();
    let job = in_state(&same, SlurmState::Cancelled);
    assert_eq!(job.exit, Some((143, 0)), "srun reports the signal as a code");
}

#[watched_test(limit = LIMIT)]
fn an_adopted_allocation_is_not_cancelled() {
    let Some(cluster) = cluster() else { return };
    let allocation = cluster.submit(1, dial_back_script(&shell(&cluster, UNTIL_END)));
    watchdog::until("a worker runs", || cluster.files("n").len() == 1);
    let adopted = Allocation::adopted(&allocation.id().to_string()).unwrap();
    assert_eq!(granted(&adopted).names, ["n1"]);
    adopted.end().unwrap();
    drop(Allocation::adopted(&allocation.id().to_string()));
    std::fs::write(cluster.file("end"), "").unwrap();
    in_state(&allocation, SlurmState::Completed);
}

#[watched_test(limit = LIMIT)]
fn a_job_that_waits_has_a_reason_and_can_be_given_up() {
    let Some(cluster) = cluster() else { return };
    let first = cluster.submit(3, dial_back_script(&shell(&cluster, UNTIL_END)));
    granted(&first);
    let second = cluster.submit(2, dial_back_script(&shell(&cluster, UNTIL_END)));
    let cancel = never();
    let mut seen: Option<JobInfo> = None;
    let error = second.wait_until_granted(
        &cancel,
        |pause| cancel.wait_for(pause),
        |job| {
            if job.reason.as_deref() == Some("Resources") {
                seen = Some(job.clone());
                cancel.cancel();
            }
        },
    );
    assert!(matches!(error, Err(SlurmError::Cancelled)), "{error:?}");
    let job = seen.unwrap();
    assert_eq!((job.state, job.node_list), (SlurmState::Pending, None));
    second.end().unwrap();
}

#[watched_test(limit = LIMIT)]
fn a_job_that_is_cancelled_while_it_waits_is_an_error() {
    let Some(cluster) = cluster() else { return };
    let mut request = cluster.request(1, holding_script(Duration::from_secs(1)));
    request.arguments = vec!["--hold".into()];
    let allocation = Allocation::submit(&request, &never()).unwrap();
    let mut is_cancelled = false;
    let error = allocation.wait_until_granted(&never(), asleep, |job| {
        assert_eq!(job.reason.as_deref(), Some("JobHeldUser"));
        if !std::mem::replace(&mut is_cancelled, true) {
            Command::new("scancel").arg(allocation.id().to_string()).run().unwrap();
        }
    });
    let Err(SlurmError::Ended { state: SlurmState::Cancelled, id, .. }) = error else {
        panic!("{error:?}");
    };
    assert_eq!(id, allocation.id());
}

#[watched_test(limit = LIMIT)]
fn more_nodes_than_exist_are_waited_for_with_a_reason() {
    let Some(cluster) = cluster() else { return };
    let allocation = cluster.submit(5, holding_script(Duration::from_secs(1)));
    let (cancel, mut reason) = (never(), None);
    let error = allocation.wait_until_granted(
        &cancel,
        |pause| cancel.wait_for(pause),
        |job| {
            reason.clone_from(&job.reason);
            if reason.is_some() {
                cancel.cancel();
            }
        },
    );
    assert!(matches!(error, Err(SlurmError::Cancelled)), "{error:?}");
    assert_eq!(reason.as_deref(), Some("PartitionConfig"));
}

#[watched_test(limit = LIMIT)]
fn an_option_that_sbatch_does_not_know_is_refused() {
    let Some(cluster) = cluster() else { return };
    for (option, text) in [("--no-such-option", "Try"), ("--partition=none", "Invalid partition")] {
        let mut request = cluster.request(1, holding_script(Duration::from_secs(1)));
        request.arguments = vec![option.into()];
        let error = Allocation::submit(&request, &never()).unwrap_err();
        assert!(matches!(error, SlurmError::Refused { .. }), "{error:?}");
        assert!(error.to_string().contains(text), "{error}");
    }
}

#[watched_test(limit = LIMIT)]
fn a_job_that_slurm_does_not_know_is_a_typed_error() {
    let Some(_cluster) = cluster() else { return };
    let error = Allocation::adopted("60000000").unwrap().look(&never()).unwrap_err();
    assert!(matches!(error, SlurmError::UnknownJob(_)), "{error:?}");
}

#[watched_test(limit = LIMIT)]
fn the_end_of_a_time_limit_is_known() {
    let Some(cluster) = cluster() else { return };
    let mut request = cluster.request(1, dial_back_script(&shell(&cluster, UNTIL_END)));
    request.arguments = vec!["--time=10".into()];
    let before = SystemTime::now();
    let allocation = Allocation::submit(&request, &never()).unwrap();
    let job = granted(&allocation).job;
    let limit = Duration::from_secs(600);
    assert_eq!(job.time_limit, Some(limit));
    assert!(job.time_left().unwrap() <= limit);
    // Slurm's clock has whole seconds.
    let end = job.end_time.unwrap();
    assert!(end >= before + limit - Duration::from_secs(1), "{end:?}");
}

#[watched_test(limit = LIMIT)]
fn a_controller_that_cannot_be_reached_is_a_transient_error() {
    let Some(cluster) = cluster() else { return };
    let own = std::fs::read_to_string(std::env::var_os("SLURM_CONF").unwrap()).unwrap();
    let other = cluster.file("slurm.conf");
    let lines = own.lines().map(|line| match line.starts_with("SlurmctldPort=") {
        true => "SlurmctldPort=9\n".to_owned(),
        false => format!("{line}\n"),
    });
    std::fs::write(&other, lines.collect::<String>()).unwrap();
    let start = Instant::now();
    let mut call = Call::new("scontrol", ["show", "job", "--oneliner", "1"]);
    call.command.env("SLURM_CONF", &other);
    let error = call.run().unwrap_err();
    pipewright_tests::skip::counted(&format!("{error} after {:?}", start.elapsed()));
    assert!(error.is_transient(), "{error:?}");
}

#[watched_test(limit = LIMIT)]
fn the_name_of_a_job_can_look_like_its_other_fields() {
    let Some(cluster) = cluster() else { return };
    let name = "x JobState=COMPLETED NodeList=n9 UserId=a EndTime=b";
    let mut request = cluster.request(2, dial_back_script(&shell(&cluster, UNTIL_END)));
    request.arguments =
        vec![format!("--job-name={name}").into(), format!("--comment={name}").into()];
    let allocation = Allocation::submit(&request, &never()).unwrap();
    let nodes = granted(&allocation);
    assert_eq!((nodes.job.state, nodes.names.len()), (SlurmState::Running, 2));
}

#[watched_test(limit = LIMIT)]
fn the_secret_is_in_no_file_of_slurm() {
    let Some(cluster) = cluster() else { return };
    let secret = crate::slurm::allocation::SecretFile::create(cluster.path(), b"sesame").unwrap();
    let mut worker = shell(&cluster, r#"cat "$1" > "$0/got"; sleep 600"#);
    worker.push(secret.path().into());
    let allocation = cluster.submit(1, dial_back_script(&worker));
    let got = || std::fs::read(cluster.file("got")).unwrap_or_default() == b"sesame";
    watchdog::until("the worker has read it", got);
    let conf = std::env::var("SLURM_CONF").unwrap();
    let spool = std::path::Path::new(&conf).parent().unwrap().join("spool");
    let mut grep = Command::new("grep");
    grep.args(["-rl", "pipewright"]).arg(&spool).limit(Limit::fail(1 << 20));
    assert!(grep.output().unwrap().status.success(), "the script is somewhere there");
    let mut grep = Command::new("grep");
    grep.args(["-rl", "sesame"]).arg(&spool);
    assert_eq!(grep.output().unwrap().status.code(), Some(1));
    // Nor in the command line of any process.
    let mut grep = Command::new("sh");
    grep.args(["-c", "grep -lsa se''same /proc/[0-9]*/cmdline"]);
    assert_eq!(grep.output().unwrap().stdout, b"");
    drop(allocation);
}

#[watched_test(limit = Duration::from_secs(600))]
fn an_allocation_keeps_the_other_nodes_when_one_is_lost() {
    let Some(cluster) = cluster() else { return };
    let script = r#"touch "$0/$node"; until [ -e "$0/end" ]; do sleep 0.05; done"#;
    let allocation = cluster.submit(4, dial_back_script(&shell(&cluster, script)));
    granted(&allocation);
    watchdog::until("all workers run", || cluster.files("n").len() == 4);
    cluster.node("kill", "n4");
    watchdog::until("the node is down", || sinfo().contains("down"));
    let job = allocation.look(&never()).unwrap();
    assert_eq!((job.state, job.node_list.as_deref()), (SlurmState::Running, Some("n[1-3]")));
    std::fs::write(cluster.file("end"), "").unwrap();
    drop(allocation);
    cluster.node("start", "n4");
    watchdog::until("the node is back", || sinfo() == "idle 4");
}

fn command(words: &[std::ffi::OsString]) -> Command {
    Command::new(&words[0]).args(&words[1..]).owned()
}

#[watched_test(limit = LIMIT)]
fn bytes_pass_through_srun_unchanged_in_both_directions() {
    let Some(cluster) = cluster() else { return };
    let allocation = cluster.submit(4, holding_script(IDLE_TIME));
    granted(&allocation);
    let sent: Vec<u8> = (0..1_000_000_u32).flat_map(u32::to_le_bytes).collect();
    let worker = ["cat".into()];
    let mut srun = command(&srun_on_node(allocation.id(), "n3", Connection::Stdio, &worker));
    let output = srun.stdin(Stdio::bytes(sent.clone())).output().unwrap();
    assert!(output.stdout == sent, "{} of {} bytes", output.stdout.len(), sent.len());
    assert!(output.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

#[watched_test(limit = LIMIT)]
fn a_worker_answers_while_its_input_is_open() {
    let Some(cluster) = cluster() else { return };
    let allocation = cluster.submit(2, holding_script(IDLE_TIME));
    granted(&allocation);
    let worker = shell(&cluster, r#"echo "$node"; exec cat"#);
    for node in ["n1", "n2"] {
        let mut srun = command(&srun_on_node(allocation.id(), node, Connection::Stdio, &worker));
        let mut child = srun.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let (mut stdin, mut stdout) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        let mut name = [0; 3];
        stdout.read_exact(&mut name).unwrap();
        assert_eq!(&name, format!("{node}\n").as_bytes());
        for round in 0..100_u8 {
            stdin.write_all(&[round, 0, 10, 255]).unwrap();
            let mut answer = [0; 4];
            stdout.read_exact(&mut answer).unwrap();
            assert_eq!(answer, [round, 0, 10, 255]);
        }
        // The end of the input reaches the worker.
        drop(stdin);
        assert!(child.wait().unwrap().success());
    }
}

#[watched_test(limit = LIMIT)]
fn a_worker_gets_the_bytes_of_its_arguments() {
    let Some(cluster) = cluster() else { return };
    let allocation = cluster.submit(1, holding_script(IDLE_TIME));
    granted(&allocation);
    let odd = ["a b", "", "it's", "\"", "$HOME `x` $(y)", "line\nline", "\\", "*", "\u{e9}", "%j"];
    let mut worker = vec!["printf".into(), r"%s\0".into()];
    worker.extend(odd.iter().map(std::ffi::OsString::from));
    let mut srun = command(&srun_on_node(allocation.id(), "n1", Connection::Stdio, &worker));
    let output = srun.stdin(Stdio::null()).output().unwrap();
    let expected: String = odd.iter().flat_map(|it| [*it, "\0"]).collect();
    assert_eq!(String::from_utf8_lossy(&output.stdout), expected);
}

#[watched_test(limit = LIMIT)]
fn an_allocation_without_workers_ends_by_itself() {
    let Some(cluster) = cluster() else { return };
    // A while, in which this test hears of the nodes and its worker is a step: both take seconds on a busy machine.
    let allocation = cluster.submit(1, holding_script(Duration::from_secs(9)));
    granted(&allocation);
    let worker = shell(&cluster, r#"touch "$0/worker"; sleep 12; touch "$0/ended""#);
    let mut srun = command(&srun_on_node(allocation.id(), "n1", Connection::Stdio, &worker));
    assert!(srun.status().unwrap().success());
    assert_eq!(cluster.files("ended"), ["ended"], "it lived longer than the idle time");
    let job = in_state(&allocation, SlurmState::Completed);
    assert!(job.run_time >= Duration::from_secs(12), "{job:?}");
}

#[watched_test(limit = LIMIT)]
fn a_worker_is_started_again_beside_others() {
    let Some(cluster) = cluster() else { return };
    let worker = shell(
        &cluster,
        r#"touch "$0/$node"; [ "$node" != n2 ] || exit 0; until [ -e "$0/end" ]; do sleep 0.05; done"#,
    );
    let allocation = cluster.submit(4, crate::slurm::allocation::dial_back_script(&worker));
    watchdog::until("all workers have started", || cluster.files("n").len() == 4);
    let again = shell(&cluster, r#"touch "$0/again-$node""#);
    let mut srun = command(&srun_on_node(allocation.id(), "n2", Connection::DialBack, &again));
    srun.run().unwrap();
    assert_eq!(cluster.files("again"), ["again-n2"]);
    std::fs::write(cluster.file("end"), "").unwrap();
    in_state(&allocation, SlurmState::Completed);
}
