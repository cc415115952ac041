//! Jobs as `scontrol show job --oneliner` of Slurm 22.05.8 prints them.

use std::time::{Duration, SystemTime};

use proptest::prelude::*;

use crate::slurm::job::{JobInfo, JobNumber};
use crate::slurm::state::{Phase, SlurmState};

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
