//! Allocations of a real cluster: submitted, granted, refused, cancelled.

use std::time::{Duration, Instant, SystemTime};

use pipewright::{Command, Limit};
use pipewright_test_macros::watched_test;
use pipewright_tests::watchdog;

use super::{asleep, cluster, granted, in_state, never, shell};
use crate::slurm::allocation::Allocation;
use crate::slurm::client::Call;
use crate::slurm::error::SlurmError;
use crate::slurm::job::JobInfo;
use crate::slurm::state::SlurmState;
use crate::slurm::worker::{dial_back_script, holding_script};

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
    let call = Call::new("scontrol", ["show", "job", "--oneliner", "1"]).env("SLURM_CONF", &other);
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
    let secret = crate::slurm::secret::SecretFile::create(cluster.path(), b"sesame").unwrap();
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
