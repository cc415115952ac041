//! Two networks of a test's own, and a cable between them.

use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use super::super::{err, pace};

/// Two networks with a cable between them, in which nothing else is.
pub(super) struct Network {
    pub(super) near: String,
    pub(super) far: String,
}

impl Network {
    /// Makes both. `None`, with a message: this user may not.
    pub(super) fn new() -> Option<Network> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let name = format!("{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let network = Network { near: format!("pw-near-{name}"), far: format!("pw-far-{name}") };
        let Network { near, far } = &network;
        let script = format!(
            "set -e; ip netns add {near}; ip netns add {far}
             ip link add near netns {near} type veth peer name far netns {far}
             ip -n {near} addr add 10.99.0.1/30 dev near; ip -n {far} addr add 10.99.0.2/30 dev far
             ip -n {near} link set lo up; ip -n {near} link set near up; ip -n {far} link set far up"
        );
        let made = Command::new("sh").args(["-c", &script]).output().unwrap();
        if made.status.success() {
            return Some(network);
        }
        pace::skipped(pace::Need::NetworkNamespace, err(&made));
        None
    }

    /// Returns a command that starts programs in one of them.
    pub(super) fn enter(name: &str) -> Command {
        let mut command = Command::new("nsenter");
        command.arg(format!("--net=/run/netns/{name}"));
        command
    }

    /// Pulls the cable for that time.
    pub(super) fn cut(&self, time: Duration) {
        let set = |state| {
            let args = ["-n", &self.near, "link", "set", "near", state];
            assert!(Command::new("ip").args(args).status().unwrap().success());
        };
        set("down");
        let end = Instant::now() + time;
        while let Some(left) = end.checked_duration_since(Instant::now()) {
            std::thread::park_timeout(left);
        }
        set("up");
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        for name in [&self.near, &self.far] {
            // Ignored: it may not exist.
            let _ = Command::new("ip").args(["netns", "del", name]).output();
        }
    }
}
