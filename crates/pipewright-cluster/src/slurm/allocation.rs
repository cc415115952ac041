//! An allocation: nodes that Slurm gives to this process, or that it already has; its scripts, the commands that start
//! workers on the nodes, and the file with their secret.

use std::ffi::OsString;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use pipewright::CancelToken;
use pipewright_batch::shell_quoted;
use pipewright_os::base::generation::Generation;
use tempfile::NamedTempFile;

use super::client::{Call, SlurmError};
use super::job::{JobInfo, JobNumber, Phase};

/// The variable with the job in which this process runs.
const JOB_ID: &str = "SLURM_JOB_ID";

/// The first pause between two questions for the state of a job; each one is twice as long as the last.
const FIRST_PAUSE: Duration = Duration::from_millis(50);

/// The longest pause between two questions. Many jobs that wait must not load the controller.
const LONGEST_PAUSE: Duration = Duration::from_secs(2);

/// The time for which the controller may be away while a job waits: a restart takes less.
const PATIENCE: Duration = Duration::from_secs(300);

/// An allocation to be asked for.
#[derive(Debug, Clone)]
pub(crate) struct AllocationRequest {
    /// The number of nodes.
    pub(crate) nodes: u32,
    /// More options of `sbatch`, which come last, so that they replace those of this module.
    pub(crate) arguments: Vec<OsString>,
    /// The script that runs on the first node.
    pub(crate) script: Vec<u8>,
    /// The file for what script and workers print.
    pub(crate) output: PathBuf,
}

/// An allocation of nodes.
///
/// # Drop
/// Cancels the job if this process submitted it (`scancel`), which takes up to 10 s if the controller does not answer.
/// [`end`](Self::end) also reports whether that worked. If this process is killed, the script of the allocation ends
/// it.
#[derive(Debug)]
pub(crate) struct Allocation {
    id: JobNumber,
    /// The cluster, if it is not the one of this machine.
    cluster: Option<String>,
    /// The process that has submitted it.
    submitted_in: Option<Generation>,
}

/// The nodes of an allocation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct GrantedNodes {
    /// Their names.
    pub(crate) names: Vec<String>,
    /// The job when it had them.
    pub(crate) job: JobInfo,
}

impl Allocation {
    /// Submits a job that has whole nodes.
    ///
    /// # Platform
    /// `sbatch`, with the script on its stdin. A failed node does not end the job (`--no-kill`), and the job never runs
    /// a second time (`--no-requeue`).
    ///
    /// # Errors
    /// Slurm is not installed, does not answer, or refuses the job.
    pub(crate) fn submit(
        request: &AllocationRequest,
        cancel: &CancelToken,
    ) -> Result<Allocation, SlurmError> {
        let call = Call::new("sbatch", sbatch_arguments(request)).input(request.script.clone());
        let printed = call.until(cancel).run().map_err(|error| match error {
            SlurmError::Failed { message, .. } => SlurmError::Refused { message },
            error => error,
        })?;
        let (id, cluster) = submitted(&printed)
            .ok_or(SlurmError::Unreadable { program: "sbatch", text: printed })?;
        Ok(Allocation::submitted_as(id, cluster))
    }

    pub(super) fn submitted_as(id: JobNumber, cluster: Option<String>) -> Allocation {
        Allocation { id, cluster, submitted_in: Some(Generation::current()) }
    }

    /// Returns the allocation in which this process runs, if it runs in one. Nothing ever cancels it.
    pub(crate) fn current() -> Option<Allocation> {
        Allocation::adopted(std::env::var(JOB_ID).ok()?.as_str())
    }

    pub(super) fn adopted(id: &str) -> Option<Allocation> {
        Some(Allocation { id: JobNumber::parse(id)?, cluster: None, submitted_in: None })
    }

    /// Returns its number.
    pub(crate) fn id(&self) -> JobNumber {
        self.id
    }

    /// Asks for the state of the job.
    ///
    /// # Platform
    /// `scontrol show job`.
    ///
    /// # Errors
    /// The controller does not answer, or does not know the job any more.
    pub(crate) fn look(&self, cancel: &CancelToken) -> Result<JobInfo, SlurmError> {
        let id = self.id.to_string();
        let words = self.on_cluster(["show", "job", "--oneliner", &id]);
        let printed = Call::new("scontrol", words).in_utc().until(cancel).run();
        let printed = printed.map_err(|error| match error {
            SlurmError::Failed { message, .. } if message.contains("Invalid job id") => {
                SlurmError::UnknownJob(self.id)
            }
            error => error,
        })?;
        JobInfo::parse(&printed, self.id)
            .ok_or(SlurmError::Unreadable { program: "scontrol", text: printed })
    }

    /// Waits until the job has its nodes. After each question that found it waiting, calls `waiting` with the job, and
    /// then `pause` with the time until the next question. `pause` returns true if there is to be none.
    ///
    /// A controller that is away for less than five minutes is waited for.
    ///
    /// # Errors
    /// The job ended before it had nodes, the controller stays away, or the token was cancelled.
    pub(crate) fn wait_until_granted(
        &self,
        cancel: &CancelToken,
        mut pause_for: impl FnMut(Duration) -> bool,
        mut waiting: impl FnMut(&JobInfo),
    ) -> Result<GrantedNodes, SlurmError> {
        let (mut pause, mut last_answer) = (FIRST_PAUSE, Instant::now());
        loop {
            match self.look(cancel) {
                Ok(job) => {
                    last_answer = Instant::now();
                    match job.phase() {
                        Phase::Granted => {
                            let names = node_names(job.node_list.as_deref(), cancel)?;
                            return Ok(GrantedNodes { names, job });
                        }
                        Phase::Ended => {
                            let JobInfo { state, reason, .. } = job;
                            return Err(SlurmError::Ended { id: self.id, state, reason });
                        }
                        Phase::Waiting => waiting(&job),
                    }
                }
                Err(error) if error.is_transient() && last_answer.elapsed() < PATIENCE => {}
                Err(error) => return Err(error),
            }
            if pause_for(pause) {
                return Err(SlurmError::Cancelled);
            }
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    /// Cancels the job if this process submitted it. One that has ended already is no error.
    ///
    /// # Errors
    /// The controller does not answer.
    pub(crate) fn end(mut self) -> Result<(), SlurmError> {
        self.cancel()
    }

    fn cancel(&mut self) -> Result<(), SlurmError> {
        // The nodes of a fork's copy are those of its parent.
        if !self.submitted_in.take().is_some_and(Generation::is_current) {
            return Ok(());
        }
        let id = self.id.to_string();
        match Call::new("scancel", self.on_cluster(["--quiet", &id])).run() {
            Ok(_) => Ok(()),
            Err(SlurmError::Failed { message, .. }) if is_ended(&message) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Returns the arguments, for the cluster of the job.
    fn on_cluster<const N: usize>(&self, words: [&str; N]) -> Vec<String> {
        let cluster = self.cluster.iter().map(|name| format!("--clusters={name}"));
        cluster.chain(words.map(str::to_owned)).collect()
    }
}

impl Drop for Allocation {
    fn drop(&mut self) {
        // Ignored: the script of the allocation ends it.
        let _ = self.cancel();
    }
}

/// Returns true for the messages of `scancel` about a job that is gone.
fn is_ended(message: &str) -> bool {
    message.contains("already completing or completed") || message.contains("Invalid job id")
}

/// Returns the options of `sbatch`.
pub(super) fn sbatch_arguments(request: &AllocationRequest) -> Vec<OsString> {
    let mut words: Vec<OsString> = vec![
        "--parsable".into(),
        format!("--nodes={}", request.nodes).into(),
        "--ntasks-per-node=1".into(),
        "--exclusive".into(),
        "--no-requeue".into(),
        "--no-kill".into(),
        "--job-name=pipewright".into(),
    ];
    let mut output = OsString::from("--output=");
    output.push(without_patterns(&request.output));
    words.push(output);
    words.extend_from_slice(&request.arguments);
    words
}

/// Returns a path in which `sbatch` replaces nothing: it reads `%j` as the number of the job.
fn without_patterns(path: &Path) -> OsString {
    match path.to_str() {
        Some(text) => text.replace('%', "%%").into(),
        None => path.into(),
    }
}

/// Reads what `sbatch --parsable` printed: the number, and the cluster if it is another one.
pub(super) fn submitted(printed: &str) -> Option<(JobNumber, Option<String>)> {
    // Plugins of a site may print before it.
    let line = printed.lines().map(str::trim).rfind(|line| !line.is_empty())?;
    match line.split_once(';') {
        Some((id, cluster)) => Some((JobNumber::parse(id)?, Some(cluster.to_owned()))),
        None => Some((JobNumber::parse(line)?, None)),
    }
}

/// Returns the names of nodes, from a list as in `n[1-4]`.
///
/// # Platform
/// `scontrol show hostnames`, which does not ask the controller.
fn node_names(list: Option<&str>, cancel: &CancelToken) -> Result<Vec<String>, SlurmError> {
    let list = list.unwrap_or_default();
    let unreadable = |text: &str| SlurmError::Unreadable { program: "scontrol", text: text.into() };
    if list.is_empty() {
        return Err(unreadable("a job that runs has no nodes"));
    }
    let printed = Call::new("scontrol", ["show", "hostnames", list]).until(cancel).run()?;
    let names: Vec<String> = printed.split_whitespace().map(str::to_owned).collect();
    if names.is_empty() { Err(unreadable(list)) } else { Ok(names) }
}

/// Options of each `srun` that starts workers.
///
/// A worker that fails, or a node that is lost, must not end the others; `--wait=0` and `--kill-on-bad-exit=0` replace
/// what the site or the user's environment says. `--overlap` lets a worker start again beside others. The worker itself
/// decides about processors, so `--cpu-bind=none`. `--export=ALL`: an allocation that was submitted with
/// `--export=NONE` would start workers without PATH.
const SRUN_OPTIONS: [&str; 10] = [
    "--overlap",
    "--ntasks-per-node=1",
    "--kill-on-bad-exit=0",
    "--no-kill",
    "--wait=0",
    "--cpu-bind=none",
    "--mpi=none",
    "--export=ALL",
    "--job-name=pipewright",
    "--quiet",
];

/// The connection between a worker and this process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Connection {
    /// The worker connects to this process by itself. It has no input.
    DialBack,
    /// The stdin and stdout of `srun` are those of the worker.
    Stdio,
}

/// Returns the script of an allocation whose workers dial back: one on each node. It ends with the last of them, and so
/// does the allocation.
pub(crate) fn dial_back_script(worker: &[OsString]) -> Vec<u8> {
    let mut script = b"#!/bin/sh\n\
        # Made by pipewright: a worker on each node. The allocation ends with the last of them.\n\
        exec srun --nodes=\"$SLURM_JOB_NUM_NODES\" --ntasks=\"$SLURM_JOB_NUM_NODES\" --input=none"
        .to_vec();
    for option in SRUN_OPTIONS {
        script.push(b' ');
        script.extend_from_slice(option.as_bytes());
    }
    script.push(b' ');
    script.extend_from_slice(&shell_quoted(worker));
    script.push(b'\n');
    script
}

/// The time for which an allocation without workers keeps its nodes: they start again within it.
pub(crate) const IDLE_TIME: Duration = Duration::from_secs(20);

/// Returns the script of an allocation whose workers [`srun_on_node`] starts. It ends that time after the last of them,
/// or after its own start if there is none: [`IDLE_TIME`]. Seconds count.
pub(crate) fn holding_script(idle: Duration) -> Vec<u8> {
    let idle = idle.as_secs();
    // Steps have numbers; the script itself is `.batch`. Without an answer of the controller there may be steps.
    format!(
        r#"#!/bin/sh
# Made by pipewright: keeps the nodes while a worker runs, and for {idle} s after the last of them.
last=$(date +%s)
while [ $(($(date +%s) - last)) -lt {idle} ]; do
    sleep 3
    if steps=$(squeue --noheader --steps --jobs="$SLURM_JOB_ID" --format=%i); then
        case $steps in *.[0-9]*) ;; *) continue ;; esac
    fi
    last=$(date +%s)
done
"#
    )
    .into_bytes()
}

/// Returns the command that starts a worker on one node of an allocation.
pub(crate) fn srun_on_node(
    id: JobNumber,
    node: &str,
    connection: Connection,
    worker: &[OsString],
) -> Vec<OsString> {
    let place = [format!("--nodelist={node}"), "--nodes=1".to_owned(), "--ntasks=1".to_owned()];
    srun(id, &place, connection, worker)
}

/// Returns the command that starts a worker on each node of an allocation that this process has not submitted.
pub(crate) fn srun_on_all_nodes(
    id: JobNumber,
    node_count: u32,
    worker: &[OsString],
) -> Vec<OsString> {
    let place = [format!("--nodes={node_count}"), format!("--ntasks={node_count}")];
    srun(id, &place, Connection::DialBack, worker)
}

fn srun(
    id: JobNumber,
    place: &[String],
    connection: Connection,
    worker: &[OsString],
) -> Vec<OsString> {
    let connected = match connection {
        Connection::DialBack => "--input=none",
        Connection::Stdio => "--unbuffered",
    };
    let mut words: Vec<OsString> = vec!["srun".into(), format!("--jobid={id}").into()];
    words.extend(place.iter().map(OsString::from));
    words.push(connected.into());
    words.extend(SRUN_OPTIONS.iter().map(OsString::from));
    words.extend_from_slice(worker);
    words
}

/// A file that only this user can read. Dropping it removes it.
///
/// # Platform
/// Unix: mode 0600, from its creation on. Windows: the folder decides who can read it.
#[derive(Debug)]
pub(crate) struct SecretFile(NamedTempFile);

impl SecretFile {
    /// Writes a secret to a new file in a folder that all nodes see.
    ///
    /// # Errors
    /// The file cannot be created or written.
    pub(crate) fn create(folder: &Path, secret: &[u8]) -> Result<SecretFile, SlurmError> {
        let create = || {
            let mut file = tempfile::Builder::new().prefix(".pipewright-").tempfile_in(folder)?;
            file.write_all(secret)?;
            // A node of a network filesystem sees what has left this one.
            file.as_file().sync_all()?;
            Ok(SecretFile(file))
        };
        create().map_err(SlurmError::Secret)
    }

    /// Returns the path, for the command line of the workers.
    pub(crate) fn path(&self) -> &Path {
        self.0.path()
    }
}
