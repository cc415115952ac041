//! Nodes that are lost.

use std::time::Duration;

use pipewright_test_macros::watched_test;
use pipewright_tests::watchdog;

use super::{cluster, granted, never, shell, sinfo};
use crate::slurm::state::SlurmState;
use crate::slurm::worker::dial_back_script;

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
