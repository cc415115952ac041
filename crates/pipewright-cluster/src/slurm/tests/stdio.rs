//! Workers that `srun` connects to its own stdin and stdout.

use std::io::{Read as _, Write as _};
use std::time::Duration;

use pipewright::{Command, Stdio};
use pipewright_test_macros::watched_test;
use pipewright_tests::watchdog;

use super::{cluster, granted, in_state, shell};
use crate::slurm::state::SlurmState;
use crate::slurm::worker::{Connection, holding_script, srun_on_node};

const LIMIT: Duration = Duration::from_secs(600);

fn command(words: &[std::ffi::OsString]) -> Command {
    Command::new(&words[0]).args(&words[1..]).owned()
}

#[watched_test(limit = LIMIT)]
fn bytes_pass_through_srun_unchanged_in_both_directions() {
    let Some(cluster) = cluster() else { return };
    let allocation = cluster.submit(4, holding_script(Duration::from_secs(3)));
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
    let allocation = cluster.submit(2, holding_script(Duration::from_secs(3)));
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
    let allocation = cluster.submit(1, holding_script(Duration::from_secs(3)));
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
    let allocation = cluster.submit(1, holding_script(Duration::from_secs(3)));
    granted(&allocation);
    let worker = shell(&cluster, r#"touch "$0/worker"; sleep 8; touch "$0/ended""#);
    let mut srun = command(&srun_on_node(allocation.id(), "n1", Connection::Stdio, &worker));
    assert!(srun.status().unwrap().success());
    assert_eq!(cluster.files("ended"), ["ended"], "it lived longer than the idle time");
    let job = in_state(&allocation, SlurmState::Completed);
    assert!(job.run_time >= Duration::from_secs(8), "{job:?}");
}

#[watched_test(limit = LIMIT)]
fn a_worker_is_started_again_beside_others() {
    let Some(cluster) = cluster() else { return };
    let worker = shell(
        &cluster,
        r#"touch "$0/$node"; [ "$node" != n2 ] || exit 0; until [ -e "$0/end" ]; do sleep 0.05; done"#,
    );
    let allocation = cluster.submit(4, crate::slurm::worker::dial_back_script(&worker));
    watchdog::until("all workers have started", || cluster.files("n").len() == 4);
    let again = shell(&cluster, r#"touch "$0/again-$node""#);
    let mut srun = command(&srun_on_node(allocation.id(), "n2", Connection::DialBack, &again));
    srun.run().unwrap();
    assert_eq!(cluster.files("again"), ["again-n2"]);
    std::fs::write(cluster.file("end"), "").unwrap();
    in_state(&allocation, SlurmState::Completed);
}
