//! Recorded texts of Slurm 22.05.8: jobs, times, scripts, calls of its commands and their errors.

use std::error::Error as _;
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

#[cfg(unix)]
use pipewright_test_macros::isolated_test;
use pipewright_test_macros::watched_test;
#[cfg(unix)]
use pipewright_tests::watchdog::in_a_fork;
use proptest::prelude::*;

#[cfg(unix)]
use super::never;
use crate::slurm::allocation::{
    Allocation, AllocationRequest, Connection, SecretFile, dial_back_script, sbatch_arguments,
    srun_on_all_nodes, srun_on_node, submitted,
};
#[cfg(unix)]
use crate::slurm::allocation::{IDLE_TIME, holding_script};
use crate::slurm::client::{Call, SlurmError, message};
use crate::slurm::job::{JobInfo, JobNumber, Phase, SlurmState, duration, moment};

/// A job that runs. Its user chose a name and a comment that look like fields.
const NAMED: &str = "\
    JobId=19850001 JobName=x JobState=COMPLETED NodeList=n9 UserId=a EndTime=b UserId=root(0) GroupId=root(0) \
    MCS_label=N/A Priority=4294901759 Nice=0 Account=(null) QOS=(null) JobState=RUNNING Reason=None \
    Dependency=(null) Requeue=1 Restarts=0 BatchFlag=1 Reboot=0 ExitCode=0:0 RunTime=00:00:02 \
    TimeLimit=00:10:00 TimeMin=N/A SubmitTime=2026-11-26T03:01:47 EligibleTime=2026-11-26T03:01:47 \
    AccrueTime=2026-11-26T03:01:47 StartTime=2026-11-26T03:01:49 EndTime=2026-11-26T03:11:49 Deadline=N/A \
    SuspendTime=None SecsPreSuspend=0 LastSchedEval=2026-11-26T03:01:49 Scheduler=Main Partition=p \
    AllocNode:Sid=localhost:2781 ReqNodeList=(null) ExcNodeList=(null) NodeList=n[1-3] BatchHost=n1 NumNodes=3 \
    NumCPUs=24 NumTasks=3 CPUs/Task=1 ReqB:S:C:T=0:0:*:* TRES=cpu=24,node=3,billing=24 Socks/Node=* \
    NtasksPerN:B:S:C=0:0:*:* CoreSpec=* MinCPUsNode=1 MinMemoryNode=0 MinTmpDiskNode=0 Features=(null) \
    DelayBoot=00:00:00 OverSubscribe=NO Contiguous=0 Licenses=(null) Network=(null) Command=(null) \
    WorkDir=/home/me Comment=c JobState=FAILED  StdErr=/home/me/slurm-19850001.out StdIn=/dev/null \
    StdOut=/home/me/slurm-19850001.out Power= ";

/// A job that waits for nodes.
const PENDING: &str = "\
    JobId=19850002 JobName=sbatch UserId=root(0) GroupId=root(0) MCS_label=N/A Priority=4294901758 Nice=0 \
    Account=(null) QOS=(null) JobState=PENDING Reason=Resources Dependency=(null) Requeue=0 Restarts=0 \
    BatchFlag=1 Reboot=0 ExitCode=0:0 RunTime=00:00:00 TimeLimit=UNLIMITED TimeMin=N/A \
    SubmitTime=2026-11-26T03:01:47 EligibleTime=2026-11-26T03:01:47 AccrueTime=2026-11-26T03:01:47 \
    StartTime=Unknown EndTime=Unknown Deadline=N/A SuspendTime=None SecsPreSuspend=0 \
    LastSchedEval=2026-11-26T03:01:51 Scheduler=Main Partition=p AllocNode:Sid=localhost:2781 \
    ReqNodeList=(null) ExcNodeList=(null) NodeList= NumNodes=2-2 NumCPUs=2 NumTasks=2 CPUs/Task=1 \
    ReqB:S:C:T=0:0:*:* TRES=cpu=2,mem=2000M,node=2,billing=2 Socks/Node=* NtasksPerN:B:S:C=0:0:*:* CoreSpec=* \
    MinCPUsNode=1 MinMemoryNode=0 MinTmpDiskNode=0 Features=(null) DelayBoot=00:00:00 OverSubscribe=NO \
    Contiguous=0 Licenses=(null) Network=(null) Command=(null) WorkDir=/home/me \
    StdErr=/home/me/slurm-19850002.out StdIn=/dev/null StdOut=/home/me/slurm-19850002.out Power= ";

/// The same job, cancelled before it had nodes.
const CANCELLED: &str = "\
    JobId=19850002 JobName=sbatch UserId=root(0) GroupId=root(0) MCS_label=N/A Priority=4294901758 Nice=0 \
    Account=(null) QOS=(null) JobState=CANCELLED Reason=Resources Dependency=(null) Requeue=0 Restarts=0 \
    BatchFlag=1 Reboot=0 ExitCode=0:0 RunTime=00:00:00 TimeLimit=UNLIMITED TimeMin=N/A \
    SubmitTime=2026-11-26T03:01:47 EligibleTime=2026-11-26T03:01:47 AccrueTime=2026-11-26T03:01:47 \
    StartTime=2026-11-26T03:01:51 EndTime=2026-11-26T03:01:51 Deadline=N/A SuspendTime=None SecsPreSuspend=0 \
    LastSchedEval=2026-11-26T03:01:51 Scheduler=Main Partition=p AllocNode:Sid=localhost:2781 \
    ReqNodeList=(null) ExcNodeList=(null) NodeList= NumNodes=2 NumCPUs=2 NumTasks=N/A CPUs/Task=1 \
    ReqB:S:C:T=0:0:*:* TRES=cpu=2,mem=2000M,node=2,billing=2 Socks/Node=* NtasksPerN:B:S:C=0:0:*:* CoreSpec=* \
    MinCPUsNode=1 MinMemoryNode=0 MinTmpDiskNode=0 Features=(null) DelayBoot=00:00:00 OverSubscribe=NO \
    Contiguous=0 Licenses=(null) Network=(null) Command=(null) WorkDir=/home/me \
    StdErr=/home/me/slurm-19850002.out StdIn=/dev/null StdOut=/home/me/slurm-19850002.out Power= ";

/// A job whose script exited with code 7.
const FAILED: &str = "\
    JobId=19850007 JobName=sbatch UserId=root(0) GroupId=root(0) MCS_label=N/A Priority=4294901755 Nice=0 \
    Account=(null) QOS=(null) JobState=FAILED Reason=NonZeroExitCode Dependency=(null) Requeue=1 Restarts=0 \
    BatchFlag=1 Reboot=0 ExitCode=7:0 RunTime=00:00:00 TimeLimit=UNLIMITED TimeMin=N/A \
    SubmitTime=2026-11-26T03:01:54 EligibleTime=2026-11-26T03:01:54 AccrueTime=2026-11-26T03:01:54 \
    StartTime=2026-11-26T03:01:55 EndTime=2026-11-26T03:01:55 Deadline=N/A SuspendTime=None SecsPreSuspend=0 \
    LastSchedEval=2026-11-26T03:01:55 Scheduler=Main Partition=p AllocNode:Sid=localhost:2781 \
    ReqNodeList=(null) ExcNodeList=(null) NodeList=n1 BatchHost=n1 NumNodes=1 NumCPUs=1 NumTasks=1 CPUs/Task=1 \
    ReqB:S:C:T=0:0:*:* TRES=cpu=1,node=1,billing=1 Socks/Node=* NtasksPerN:B:S:C=0:0:*:* CoreSpec=* \
    MinCPUsNode=1 MinMemoryNode=0 MinTmpDiskNode=0 Features=(null) DelayBoot=00:00:00 OverSubscribe=OK \
    Contiguous=0 Licenses=(null) Network=(null) Command=(null) WorkDir=/home/me StdErr=/home/me/o%19850007 \
    StdIn=/dev/null StdOut=/home/me/o%19850007 Power= ";

/// A job array that is held.
const ARRAY: &str = "\
    JobId=19850005 ArrayJobId=19850005 ArrayTaskId=1-2 JobName=sbatch UserId=root(0) GroupId=root(0) \
    MCS_label=N/A Priority=0 Nice=0 Account=(null) QOS=(null) JobState=PENDING Reason=JobHeldUser \
    Dependency=(null) Requeue=1 Restarts=0 BatchFlag=1 Reboot=0 ExitCode=0:0 RunTime=00:00:00 \
    TimeLimit=UNLIMITED TimeMin=N/A SubmitTime=2026-11-26T03:01:47 EligibleTime=Unknown AccrueTime=Unknown \
    StartTime=Unknown EndTime=Unknown Deadline=N/A SuspendTime=None SecsPreSuspend=0 \
    LastSchedEval=2026-11-26T03:01:47 Scheduler=Main Partition=p AllocNode:Sid=localhost:2781 \
    ReqNodeList=(null) ExcNodeList=(null) NodeList= NumNodes=1-1 NumCPUs=1 NumTasks=1 CPUs/Task=1 \
    ReqB:S:C:T=0:0:*:* TRES=cpu=1,mem=1000M,node=1,billing=1 Socks/Node=* NtasksPerN:B:S:C=0:0:*:* CoreSpec=* \
    MinCPUsNode=1 MinMemoryNode=0 MinTmpDiskNode=0 Features=(null) DelayBoot=00:00:00 OverSubscribe=OK \
    Contiguous=0 Licenses=(null) Network=(null) Command=(null) WorkDir=/home/me \
    StdErr=/home/me/slurm-19850005_4294967294.out StdIn=/dev/null StdOut=/home/me/slurm-19850005_4294967294.out \
    Power= ";

fn read(text: &str) -> JobInfo {
    let id = text.split(['=', ' ']).nth(1).unwrap();
    JobInfo::parse(text, JobNumber::parse(id).unwrap()).unwrap()
}

#[test]
fn a_job_that_runs_has_nodes_and_an_end() {
    let job = read(NAMED);
    assert_eq!(
        (&job.state, job.phase(), &job.reason),
        (&SlurmState::Running, Phase::Granted, &None)
    );
    assert_eq!((job.node_list.as_deref(), job.node_count), (Some("n[1-3]"), Some(3)));
    assert_eq!(job.time_limit, Some(Duration::from_secs(600)));
    assert_eq!(job.time_left(), Some(Duration::from_secs(598)));
    // 2026-11-26T03:11:49Z
    let end = SystemTime::UNIX_EPOCH + Duration::from_secs(1_795_662_709);
    assert_eq!((job.end_time, job.exit), (Some(end), Some((0, 0))));
}

#[test]
fn a_job_that_waits_has_a_reason_and_no_nodes() {
    let job = read(PENDING);
    assert_eq!((&job.state, job.phase()), (&SlurmState::Pending, Phase::Waiting));
    assert_eq!(job.reason.as_deref(), Some("Resources"));
    assert_eq!((job.node_list.as_deref(), job.node_count), (None, Some(2)));
    assert_eq!((job.time_limit, job.time_left(), job.end_time), (None, None, None));
    let held = read(ARRAY);
    assert_eq!((held.state, held.reason.as_deref()), (SlurmState::Pending, Some("JobHeldUser")));
}

#[test]
fn a_job_that_ended_has_its_state_and_exit_code() {
    let job = read(CANCELLED);
    assert_eq!((&job.state, job.phase()), (&SlurmState::Cancelled, Phase::Ended));
    let job = read(FAILED);
    assert_eq!((job.state, job.reason.as_deref()), (SlurmState::Failed, Some("NonZeroExitCode")));
    assert_eq!((job.exit, job.node_list.as_deref()), (Some((7, 0)), Some("n1")));
}

#[test]
fn values_have_spaces_and_equals_signs_and_unknown_keys_are_ignored() {
    let text = "JobId=5 JobName=a b=c UserId=me(1) GroupId=me(1) NewKey=1 JobState=RUNNING \
        Reason=Nodes required, a=b c Newer:Key=x y NodeList=n[1,3-4] TRES=cpu=4,node=2";
    let job = read(text);
    assert_eq!(job.reason.as_deref(), Some("Nodes required, a=b c"));
    assert_eq!(job.node_list.as_deref(), Some("n[1,3-4]"));
    // A version without the groups.
    assert_eq!(read("JobId=5 JobName=x JobState=TIMEOUT").state, SlurmState::Timeout);
}

#[test]
fn the_line_of_the_job_is_found_among_others() {
    let text = format!("{FAILED}\n{NAMED}\n{PENDING}\n");
    let found = |id: &str| JobInfo::parse(&text, JobNumber::parse(id).unwrap());
    assert_eq!(found("19850001"), Some(read(NAMED)));
    assert_eq!(found("19850002"), Some(read(PENDING)));
    assert_eq!(found("1985000"), None);
    assert_eq!(found("8"), None);
    let id = JobNumber::parse("5").unwrap();
    for text in ["", "JobId=5", "JobId=5 JobState=", "slurm_load_jobs error", " JobId=5 JobState=X"]
    {
        assert_eq!(JobInfo::parse(text, id), None, "{text:?}");
    }
    let name_with_a_line = "JobId=5 JobName=a\nb UserId=me(1) GroupId=me(1) JobState=RUNNING";
    assert_eq!(read(name_with_a_line).state, SlurmState::Running);
}

#[test]
fn states_print_as_slurm_names_them() {
    for name in ["PENDING", "RUNNING", "NODE_FAIL", "PREEMPTED", "OUT_OF_MEMORY", "NEW_STATE"] {
        assert_eq!(SlurmState::parse(name).to_string(), name);
    }
    let phase = |name| SlurmState::parse(name).phase();
    for name in ["PENDING", "CONFIGURING", "REQUEUED", "SPECIAL_EXIT"] {
        assert_eq!(phase(name), Phase::Waiting, "{name}");
    }
    for name in ["RUNNING", "SUSPENDED", "RESIZING"] {
        assert_eq!(phase(name), Phase::Granted, "{name}");
    }
    let ended =
        ["COMPLETING", "COMPLETED", "CANCELLED", "FAILED", "TIMEOUT", "NODE_FAIL", "PREEMPTED"];
    for name in ended.iter().chain(&["BOOT_FAIL", "DEADLINE", "OUT_OF_MEMORY", "REVOKED", "new"]) {
        assert_eq!(phase(name), Phase::Ended, "{name}");
    }
}

proptest! {
    #[test]
    fn any_text_is_read_without_a_panic(text in "(JobId=5 |[A-Z][a-z]{0,3}=|[ =\\n\\PC]){0,40}") {
        let id = JobNumber::parse("5").unwrap();
        let _ = JobInfo::parse(&text, id);
        let _ = JobInfo::parse(&format!("JobId=5 JobState=RUNNING {text}"), id);
    }

    #[test]
    fn a_name_changes_nothing_else(name in "[ -~]{0,40}") {
        let named = NAMED.replacen("JobName=x", &format!("JobName={name} x"), 1);
        prop_assert_eq!(read(&named), read(NAMED));
    }
}

#[test]
fn durations_have_days_hours_minutes_and_seconds() {
    let seconds = |text| duration(text).map(|it| it.as_secs());
    assert_eq!(seconds("00:00:00"), Some(0));
    assert_eq!(seconds("01:02:03"), Some(3723));
    assert_eq!(seconds("30:00"), Some(1800));
    assert_eq!(seconds("2-00:00:01"), Some(172_801));
    assert_eq!(seconds("365-00:00:00"), Some(31_536_000));
    for text in ["", "UNLIMITED", "INVALID", "Partition_Limit", "5", "-1:00", "1:2:3:4", "+1:00"] {
        assert_eq!(duration(text), None, "{text}");
    }
    assert_eq!(duration("99999999999999999999-00:00:00"), None);
    assert_eq!(duration("18446744073709551615-00:00:00"), None);
}

#[test]
fn moments_are_in_utc() {
    let seconds = |text| Some(moment(text)?.duration_since(SystemTime::UNIX_EPOCH).unwrap());
    // As `date -u -d TEXT +%s` prints them.
    assert_eq!(seconds("1970-01-01T00:00:00"), Some(Duration::ZERO));
    assert_eq!(seconds("2000-02-29T12:00:00"), Some(Duration::from_secs(951_825_600)));
    assert_eq!(seconds("2026-11-26T02:30:01"), Some(Duration::from_secs(1_795_660_201)));
    assert_eq!(seconds("2100-03-01T00:00:00"), Some(Duration::from_secs(4_107_542_400)));
    for text in ["Unknown", "N/A", "", "2026-11-26", "1969-12-31T00:00:00", "2026-13-01T00:00:00"] {
        assert_eq!(moment(text), None, "{text}");
    }
    assert_eq!(moment("2026-01-01T24:00:00"), None);
    assert_eq!(moment("99999-01-01T00:00:00"), None);
}

fn words(words: &[&str]) -> Vec<OsString> {
    words.iter().map(OsString::from).collect()
}

fn id() -> JobNumber {
    JobNumber::parse("7").unwrap()
}

#[test]
fn the_script_of_workers_that_dial_back_is_one_srun() {
    let worker = words(&["/opt/pipe wright", "worker", "--secret-file", "/shared/it's"]);
    let script = String::from_utf8(dial_back_script(&worker)).unwrap();
    let lines: Vec<&str> = script.lines().collect();
    assert_eq!(lines[0], "#!/bin/sh");
    assert_eq!(
        lines[2],
        concat!(
            r#"exec srun --nodes="$SLURM_JOB_NUM_NODES" --ntasks="$SLURM_JOB_NUM_NODES" --input=none --overlap "#,
            "--ntasks-per-node=1 --kill-on-bad-exit=0 --no-kill --wait=0 --cpu-bind=none --mpi=none --export=ALL ",
            r"--job-name=pipewright --quiet '/opt/pipe wright' worker --secret-file '/shared/it'\''s'"
        )
    );
    assert_eq!(lines.len(), 3);
}

#[test]
fn a_worker_is_started_on_one_node_by_srun() {
    let worker = words(&["pipewright", "worker"]);
    let words = srun_on_node(id(), "n2", Connection::Stdio, &worker);
    let words: Vec<&str> = words.iter().map(|it| it.to_str().unwrap()).collect();
    let start = ["srun", "--jobid=7", "--nodelist=n2", "--nodes=1", "--ntasks=1", "--unbuffered"];
    assert_eq!(words[..6], start);
    assert!(words.contains(&"--overlap") && words.contains(&"--cpu-bind=none"), "{words:?}");
    assert_eq!(words[words.len() - 2..], ["pipewright", "worker"]);
}

#[test]
fn a_worker_that_dials_back_has_no_input() {
    let worker = words(&["pipewright"]);
    for line in [
        srun_on_node(id(), "n2", Connection::DialBack, &worker),
        srun_on_all_nodes(id(), 4, &worker),
    ] {
        assert!(line.contains(&"--input=none".into()), "{line:?}");
    }
    let all = srun_on_all_nodes(id(), 4, &worker);
    assert_eq!(all[..4], words(&["srun", "--jobid=7", "--nodes=4", "--ntasks=4"]));
}

#[test]
fn the_options_of_the_user_come_last() {
    let request = AllocationRequest {
        nodes: 4,
        arguments: words(&["--partition=debug", "--nodes=2"]),
        script: Vec::new(),
        output: PathBuf::from("/shared/100%j/out"),
    };
    let line = sbatch_arguments(&request);
    assert_eq!(line[..2], words(&["--parsable", "--nodes=4"]));
    assert_eq!(line[line.len() - 2..], words(&["--partition=debug", "--nodes=2"]));
    assert!(line.contains(&"--output=/shared/100%%j/out".into()), "{line:?}");
}

#[test]
fn the_number_of_a_submitted_job_is_the_last_line() {
    let read = |text| submitted(text).map(|(id, cluster)| (id.to_string(), cluster));
    assert_eq!(read("12\n"), Some(("12".into(), None)));
    assert_eq!(read("12;other\n"), Some(("12".into(), Some("other".into()))));
    assert_eq!(read("Welcome to our site\n4294967294\n\n"), Some(("4294967294".into(), None)));
    for text in ["", "\n", "0", "-1", "+1", "Submitted batch job 12", "4294967296", ";x"] {
        assert_eq!(read(text), None, "{text:?}");
    }
}

#[cfg(unix)]
#[test]
fn a_shell_reads_the_scripts() {
    let hostile = words(&["a\nb", "$(false)", "`false`", "\\", "\"", "'", "", "*", "~", "!x"]);
    for script in [dial_back_script(&hostile), holding_script(IDLE_TIME)] {
        let mut sh = pipewright::Command::new("sh");
        sh.arg("-n").stdin(pipewright::Stdio::bytes(script)).run().unwrap();
    }
}

/// Runs a holding script with an imitated `squeue`, and returns the number of times that it asked.
#[cfg(unix)]
fn held(squeue: &str) -> usize {
    use std::os::unix::fs::PermissionsExt as _;

    let folder = tempfile::tempdir().unwrap();
    let asked = folder.path().join("asked");
    let program = |name: &str, text: String| {
        let path = folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    };
    program("squeue", format!("#!/bin/sh\necho x >> {0}\n{squeue}", asked.display()));
    program("sleep", "#!/bin/sh\nexec /bin/sleep 0.3\n".to_owned());
    let path = std::env::var("PATH").unwrap();
    let mut sh = pipewright::Command::new("sh");
    sh.env("PATH", format!("{}:{path}", folder.path().display())).env("SLURM_JOB_ID", "7");
    sh.stdin(pipewright::Stdio::bytes(holding_script(Duration::from_secs(3)))).run().unwrap();
    std::fs::read_to_string(asked).unwrap_or_default().lines().count()
}

#[cfg(unix)]
#[pipewright_test_macros::watched_test]
fn a_script_keeps_the_nodes_while_steps_exist_or_may_exist() {
    // Slurm also lists the script itself, and what a site adds to each job.
    assert!(held("echo 7.batch; echo 7.extern") <= 15);
    assert!(held("exit 0") <= 15);
    let until = |state: &str| {
        let script = format!(r#"[ "$(wc -l < "${{0%/*}}/asked")" -ge 20 ] || {{ {state}; }}"#);
        held(&script)
    };
    assert!(until("echo 7.batch; echo 7.0") >= 20);
    assert!(until("echo 7.12; echo 7.batch; exit 0") >= 20);
    // The controller is away.
    assert!(until("echo 7.batch; exit 1") >= 20);
}

#[watched_test]
fn a_command_that_is_not_installed_is_a_typed_error() {
    let error = Call::new("no-such-sbatch", ["--parsable"]).run().unwrap_err();
    assert!(matches!(error, SlurmError::Missing { .. }), "{error:?}");
    assert!(error.source().is_some() && !error.is_transient());
    let text = error.to_string();
    assert!(text.starts_with(r#"cannot start "no-such-sbatch": "#), "{text}");
    assert!(text.ends_with(": this needs a machine with Slurm's commands"), "{text}");
}

#[cfg(unix)]
#[watched_test]
fn a_command_that_does_not_answer_is_killed_after_its_limit() {
    let mut call = Call::new("sleep", ["600"]);
    call.limit = Duration::from_millis(100);
    let error = call.run().unwrap_err();
    assert!(matches!(error, SlurmError::NotAnswering { program: "sleep", .. }), "{error:?}");
    assert!(error.is_transient());
    assert_eq!(error.to_string(), "sleep did not answer within 100ms");
}

#[cfg(unix)]
#[watched_test]
fn a_cancelled_call_ends_early() {
    let cancel = never();
    cancel.cancel();
    let error = Call::new("sleep", ["600"]).until(&cancel).run().unwrap_err();
    assert!(matches!(error, SlurmError::Cancelled), "{error:?}");
}

#[cfg(unix)]
#[watched_test]
fn the_error_of_a_command_is_the_last_line_of_its_stderr() {
    let script = "echo sh: error: one >&2; echo 'sh: error: two\tthree' >&2; echo >&2; exit 3";
    let error = Call::new("sh", ["-c", script]).run().unwrap_err();
    assert_eq!(error.to_string(), r"sh failed: exit status: 3: two\tthree");
    // It ended by itself, so no controller is to be waited for.
    assert!(!error.is_transient());
    let silent = Call::new("sh", ["-c", "exit 1"]).run().unwrap_err();
    assert_eq!(silent.to_string(), "sh failed: exit status: 1");
}

#[cfg(unix)]
#[watched_test]
fn a_command_that_prints_without_end_is_stopped() {
    let error = Call::new("yes", [""; 0]).run().unwrap_err();
    assert!(matches!(error, SlurmError::Failed { program: "yes", .. }), "{error:?}");
}

#[test]
fn messages_lose_the_name_of_the_command_and_are_bounded() {
    let refused =
        b"sbatch: warning: x\nsbatch: error: Batch job submission failed: Invalid partition\n";
    assert_eq!(message("sbatch", refused), "Batch job submission failed: Invalid partition");
    assert_eq!(message("scontrol", b"slurm_load_jobs error: x\r\n"), "slurm_load_jobs error: x");
    assert_eq!(message("sbatch", b""), "");
    assert_eq!(message("sbatch", "\u{e9}".repeat(5000).as_bytes()).chars().count(), 300);
    assert_eq!(message("sbatch", b"\xff\n"), "\u{fffd}");
}

#[test]
fn errors_are_one_line() {
    let id = JobNumber::parse("12").unwrap();
    let ended = |reason: Option<&str>| {
        let reason = reason.map(str::to_owned);
        SlurmError::Ended { id, state: SlurmState::Cancelled, reason }.to_string()
    };
    assert_eq!(ended(None), "job 12 ended before it had nodes: CANCELLED");
    assert_eq!(ended(Some("a\nb")), r"job 12 ended before it had nodes: CANCELLED (a\nb)");
    assert_eq!(SlurmError::UnknownJob(id).to_string(), "Slurm does not know job 12");
    let refused = SlurmError::Refused { message: "Invalid partition".into() };
    assert_eq!(refused.to_string(), "sbatch refused the allocation: Invalid partition");
    let text = "x".repeat(10_000);
    let unreadable = SlurmError::Unreadable { program: "scontrol", text }.to_string();
    assert!(unreadable.len() < 600, "{unreadable}");
}

#[test]
fn the_current_allocation_is_that_of_the_environment() {
    let current = Allocation::current().map(|it| it.id().to_string());
    assert_eq!(current, std::env::var("SLURM_JOB_ID").ok());
    for text in ["", "x", "0", "-1", "12.0"] {
        assert!(Allocation::adopted(text).is_none(), "{text}");
    }
}

#[watched_test]
fn the_file_of_a_secret_is_readable_by_its_user_alone_and_removed() {
    let folder = tempfile::tempdir().unwrap();
    let file = SecretFile::create(folder.path(), b"secret").unwrap();
    let path = file.path().to_owned();
    assert_eq!(std::fs::read(&path).unwrap(), b"secret");
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt as _;
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o7777, 0o600);
    }
    drop(file);
    assert!(!path.exists());
    let error = SecretFile::create(&path, b"secret").unwrap_err().to_string();
    assert!(error.starts_with("cannot write the secret of the workers: "), "{error}");
}

/// Without the commands of Slurm, a call of one is an error.
#[cfg(unix)]
#[isolated_test]
fn a_fork_cancels_no_job_of_its_parent() {
    let mut copy = Some(Allocation::submitted_as(JobNumber::parse("1").unwrap(), None));
    assert!(in_a_fork(|| copy.take().unwrap().end().unwrap()));
    let has_slurm = Call::new("scancel", ["--version"]).run().is_ok();
    assert!(has_slurm || copy.unwrap().end().is_err());
}
