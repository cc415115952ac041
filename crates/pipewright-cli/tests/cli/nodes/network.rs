//! Networks that are cut for a time, and nodes behind a real sshd on 127.0.0.1, with keys of its own.
//!
//! `PIPEWRIGHT_TEST_CUT_SECONDS` sets the length of the long cuts.

use std::fs;
use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use super::check_ends;
use super::*;
use crate::{err, pace, random};

/// Two networks with a cable between them, in which nothing else is.
pub(super) struct Network {
    near: String,
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

    /// Pulls the cable for that time, and on until a fact.
    pub(super) fn cut(&self, time: Duration, what: &str, fact: impl FnMut() -> bool) {
        let set = |state| {
            let args = ["-n", &self.near, "link", "set", "near", state];
            assert!(Command::new("ip").args(args).status().unwrap().success());
        };
        set("down");
        let end = Instant::now() + time;
        while let Some(left) = end.checked_duration_since(Instant::now()) {
            std::thread::park_timeout(left);
        }
        until(what, fact);
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

/// Returns a time after which a node is lost.
fn long_cut() -> Duration {
    Duration::from_secs(random::number("PIPEWRIGHT_TEST_CUT_SECONDS").unwrap_or(8))
}

/// Makes the programs of a cluster whose one node is in the far network. The batch runs in its allocation.
fn cluster(place: &Place, network: &Network) -> Command {
    let far = &network.far;
    let write = |name: &str, script: &str| {
        place.write_program(name, &format!("#!/bin/sh\n{script}\n"));
    };
    fs::create_dir(place.path("bin")).unwrap();
    let job = "JobId=7 JobName=x UserId=x GroupId=x JobState=RUNNING TimeLimit=UNLIMITED NodeList=n1 NumNodes=1";
    write("bin/scontrol", &format!("[ $2 = hostnames ] && echo n1 || echo '{job}'"));
    let run = format!("exec nsenter --net=/run/netns/{far} env SLURMD_NODENAME=n1 \"$@\"");
    write("bin/srun", &format!("while case $1 in -*) ;; *) false ;; esac; do shift; done\n{run}"));
    write("bin/squeue", "exit 0");
    let mut command = Network::enter(&network.near);
    let path = std::env::var("PATH").unwrap();
    command.env("PATH", format!("{}:{path}", place.path("bin").display()));
    command.env("SLURM_JOB_ID", "7").env("XDG_CACHE_HOME", place.path(""));
    command.arg(TOOL).args([
        "batch",
        "--progress",
        "none",
        "--on",
        "slurm",
        "--listen",
        "10.99.0.1",
    ]);
    command.current_dir(place.path(""));
    command
}

/// Returns the number of jobs that run in that folder. What a job has started is none: before its exec it looks the
/// same.
fn jobs_in(folder: &Path) -> usize {
    let is_job = |pid: &u32| {
        let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        line.starts_with(b"sh\0-c\0echo ")
    };
    let all = fs::read_dir("/proc").unwrap().flatten();
    let pids = all.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let here = |pid: &u32| fs::read_link(format!("/proc/{pid}/cwd")).is_ok_and(|cwd| cwd == folder);
    let pids: Vec<u32> = pids.filter(is_job).filter(here).collect();
    pids.iter()
        .filter(|pid| super::lost::parent(**pid).is_none_or(|it| !pids.contains(&it)))
        .count()
}

#[test]
fn a_node_that_connects_by_itself_comes_back_after_a_cut_and_no_job_ends_twice() {
    let seconds = long_cut().as_secs();
    let _watchdog = Watchdog::start(240 + seconds);
    let Some(network) = Network::new() else { return };
    let place = Place::new();
    let mut command = cluster(&place, &network);
    // A copy that runs beside another one cannot have the lock.
    let script = "echo {} >> starts; exec 9> lock-{}; flock -n 9 || echo {} >> copies
        until [ -e end ]; do sleep 0.05; done; echo {} >> ends";
    command.args([
        "-j2",
        "--max-lost",
        "9",
        "--log",
        "run.db",
        "--",
        "sh",
        "-c",
        script,
        ":::",
        "1",
        "2",
    ]);
    command.env(MARK, mark("slurm-cut")).stdin(Stdio::null()).stderr(Stdio::piped());
    let child = command.spawn().unwrap();
    until("both jobs run", || place.lines("starts").len() == 2);
    // At the limit: whether the node is lost depends on the moment.
    network.cut(Duration::from_secs(3), "the time is over", || true);
    let end = Instant::now() + Duration::from_secs(6);
    until("it is known if the node is lost", || Instant::now() >= end);
    until("both jobs run", || jobs_in(&place.path("")) == 2);
    let starts = place.lines("starts").len();
    eprintln!("after a cut of 3 s: {starts} starts");
    network.cut(long_cut(), "the node has killed its jobs", || jobs_in(&place.path("")) == 0);
    until("both jobs run again", || place.lines("starts").len() == starts + 2);
    place.write("end", "");
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", err(&output));
    assert_eq!(
        (place.lines("ends"), place.read("copies")),
        (vec!["1".into(), "2".into()], String::new())
    );
    assert!(err(&output).contains("node n1 is lost with 2 jobs: "), "{}", err(&output));
    until("nothing is left", || marked("slurm-cut").is_empty());
}

#[test]
fn a_short_cut_of_the_network_loses_nothing_and_a_long_one_the_node() {
    let _watchdog = Watchdog::start(240 + long_cut().as_secs());
    let Some(network) = Network::new() else { return };
    let Some(sshd) = Sshd::start_in(Some(network)) else { return };
    let network = sshd.network.as_ref().unwrap();
    let place = Place::new();
    let script = "echo {} >> starts; until [ -e end ]; do sleep 0.05; done; echo {} >> ends";
    let args = ["--log", "run.db", "--", "sh", "-c", script, ":::", "1", "2"];
    let mut command = Network::enter(&network.near);
    let batch = batch_on(&place, &sshd.nodes(&place, 1), &args);
    command.arg(batch.get_program()).args(batch.get_args()).current_dir(place.path(""));
    command.env(MARK, mark("ssh-cut")).stdin(Stdio::null()).stderr(Stdio::piped());
    let child = command.spawn().unwrap();
    until("both jobs run", || place.lines("starts").len() == 2);
    network.cut(Duration::from_secs(1), "the time is over", || true);
    // Longer than anybody waits for an answer.
    let end = Instant::now() + Duration::from_secs(6);
    until("the answers are there again", || Instant::now() >= end);
    assert_eq!(place.lines("starts").len(), 2, "a cut of a second has lost the node");

    let jobs = || jobs_in(&place.path(""));
    assert_eq!(jobs(), 2);
    // Nobody can tell it to.
    network.cut(long_cut(), "the node has killed its jobs", || jobs() == 0);
    until("both jobs run again", || place.lines("starts").len() == 4);
    place.write("end", "");
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", err(&output));
    assert_eq!(place.lines("ends"), ["1", "2"]);
    assert!(err(&output).contains("is lost with 2 jobs: no answer for 5.0 s"), "{}", err(&output));
}

/// Returns a port that was free a moment ago.
fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

/// An sshd for the user of this process.
pub(super) struct Sshd {
    place: Place,
    address: &'static str,
    port: u16,
    process: Child,
    pub(super) network: Option<Network>,
}

impl Sshd {
    /// Starts one. `None`, with a message: none is installed.
    pub(super) fn start() -> Option<Sshd> {
        Sshd::start_in(None)
    }

    fn start_in(network: Option<Network>) -> Option<Sshd> {
        let address = if network.is_some() { "10.99.0.2" } else { "127.0.0.1" };
        let sshd = "/usr/sbin/sshd";
        if !fs::exists(sshd).unwrap() || Command::new("ssh").arg("-V").output().is_err() {
            pace::skipped(pace::Need::File("/usr/sbin/sshd"), "there is no sshd here");
            return None;
        }
        let place = Place::new();
        // Root's sshd puts its children into this empty folder, which a service makes elsewhere.
        let _ = fs::create_dir("/run/sshd");
        for key in ["host", "user"] {
            let mut keygen = Command::new("ssh-keygen");
            keygen.args(["-q", "-t", "ed25519", "-N", "", "-f"]).arg(place.path(key));
            assert!(keygen.status().unwrap().success());
        }
        let port = free_port();
        let process = Sshd::serve(&place, network.as_ref(), address, port);
        let mut sshd = Sshd { place, address, port, process, network };
        for _ in 0..5 {
            let mut has_ended = false;
            until("sshd answers", || {
                has_ended = sshd.process.try_wait().unwrap().is_some();
                has_ended || sshd.client().arg("true").status().unwrap().success()
            });
            if !has_ended {
                return Some(sshd);
            }
            // Another process was given the port meanwhile.
            sshd.port = free_port();
            sshd.process = Sshd::serve(&sshd.place, sshd.network.as_ref(), sshd.address, sshd.port);
        }
        panic!("sshd ends at each port");
    }

    /// Starts the program at a port.
    fn serve(place: &Place, network: Option<&Network>, address: &str, port: u16) -> Child {
        let folder = place.path("");
        let folder = folder.to_str().unwrap().trim_end_matches('/');
        place.write(
            "config",
            &format!(
                "Port {port}\nListenAddress {address}\nHostKey {folder}/host\n\
                 AuthorizedKeysFile {folder}/user.pub\nStrictModes no\nUsePAM no\nPidFile none\n\
                 PasswordAuthentication no\nPermitRootLogin prohibit-password\n"
            ),
        );
        place.write("known", &format!("[{address}]:{port} {}", place.read("host.pub")));
        let mut command = match network {
            Some(network) => Network::enter(&network.far),
            None => Command::new("env"),
        };
        command.args(["/usr/sbin/sshd", "-D", "-e", "-f"]).arg(place.path("config"));
        command.stdin(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
    }

    /// Returns the words of a client.
    fn words(&self) -> String {
        let (folder, port, address) = (self.place.path(""), self.port, self.address);
        let folder = folder.to_str().unwrap().trim_end_matches('/');
        format!(
            "ssh -F none -p {port} -i {folder}/user -o UserKnownHostsFile={folder}/known -o BatchMode=yes \
             -o LogLevel=ERROR {address}"
        )
    }

    fn client(&self) -> Command {
        let words = self.words();
        let mut command = match &self.network {
            Some(network) => Network::enter(&network.near),
            None => Command::new("env"),
        };
        command.args(words.split(' ')).stdin(Stdio::null()).stderr(Stdio::null());
        command
    }

    /// Returns the options for `count` nodes with two slots each, whose jobs run in that place.
    pub(super) fn nodes(&self, place: &Place, count: usize) -> Vec<String> {
        let folder = place.path("");
        let via =
            format!("{} 'cd {} && echo $$ >> workers && exec'", self.words(), folder.display());
        let mut options = vec!["-j2".to_owned(), "--worker-path".to_owned(), TOOL.to_owned()];
        (0..count).for_each(|_| options.extend(["--via".to_owned(), via.clone()]));
        options
    }
}

impl Drop for Sshd {
    fn drop(&mut self) {
        // Ignored: it has ended.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

#[test]
fn jobs_over_ssh_end_as_they_do_here() {
    let _watchdog = Watchdog::start(120);
    let Some(sshd) = Sshd::start() else { return };
    let place = Place::new();
    check_ends(&place, |args| batch_on(&place, &sshd.nodes(&place, 2), args));
}

#[test]
fn code_255_of_a_job_is_that_of_the_job() {
    let _watchdog = Watchdog::start(120);
    let Some(sshd) = Sshd::start() else { return };
    let place = Place::new();
    let args = ["--", "sh", "-c", "exit {}", ":::", "255", "0"];
    let output = batch_on(&place, &sshd.nodes(&place, 1), &args).output().unwrap();
    assert_eq!(output.status.code(), Some(123));
    assert!(err(&output).contains("job 1 failed: exit code 255"), "{}", err(&output));
}

#[test]
fn jobs_of_a_killed_connection_run_again_and_none_ends_twice() {
    let _watchdog = Watchdog::start(120);
    let Some(sshd) = Sshd::start() else { return };
    let place = Place::new();
    let script = "echo {} >> starts; until [ -e end ]; do sleep 0.05; done; echo {} >> ends";
    let args = ["--", "sh", "-c", script, ":::", "1", "2", "3", "4"];
    let mut command = batch_on(&place, &sshd.nodes(&place, 2), &args);
    let child = command.env(MARK, mark("ssh-killed")).stderr(Stdio::piped()).spawn().unwrap();
    until("both nodes are full", || place.lines("starts").len() == 4);
    // The client of the first node: the other side hears of it from its sshd.
    let is_client = |pid: &u32| {
        let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        line.starts_with(b"ssh\0")
    };
    let clients: Vec<u32> = marked("ssh-killed").into_iter().filter(is_client).collect();
    assert_eq!(clients.len(), 2);
    kill(clients[0], "KILL");
    until("its jobs run again", || place.lines("starts").len() == 6);
    place.write("end", "");
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", err(&output));
    assert_eq!(place.lines("ends"), ["1", "2", "3", "4"]);
    assert!(err(&output).contains("is lost with 2 jobs: "), "{}", err(&output));
}
