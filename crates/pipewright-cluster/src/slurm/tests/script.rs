//! The scripts of allocations, and the commands that start workers.

use std::ffi::OsString;
use std::path::PathBuf;
#[cfg(unix)]
use std::time::Duration;

use crate::slurm::allocation::{AllocationRequest, sbatch_arguments, submitted};
use crate::slurm::job::JobNumber;
use crate::slurm::worker::{Connection, dial_back_script, srun_on_all_nodes, srun_on_node};
#[cfg(unix)]
use crate::slurm::worker::{IDLE_TIME, holding_script};

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
        r#"exec srun --nodes="$SLURM_JOB_NUM_NODES" --ntasks="$SLURM_JOB_NUM_NODES" --input=none --overlap --ntasks-per-node=1 --kill-on-bad-exit=0 --no-kill --wait=0 --cpu-bind=none --mpi=none --export=ALL --job-name=pipewright --quiet '/opt/pipe wright' worker --secret-file '/shared/it'\''s'"#
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
