//! Calls of Slurm's commands, and their errors.

use std::error::Error as _;
#[cfg(unix)]
use std::time::Duration;

#[cfg(unix)]
use pipewright_test_macros::isolated_test;
use pipewright_test_macros::watched_test;
#[cfg(unix)]
use pipewright_tests::watchdog::in_a_fork;

#[cfg(unix)]
use super::never;
use crate::slurm::allocation::Allocation;
use crate::slurm::client::{Call, message};
use crate::slurm::error::SlurmError;
use crate::slurm::job::JobNumber;
use crate::slurm::secret::SecretFile;
use crate::slurm::state::SlurmState;

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
