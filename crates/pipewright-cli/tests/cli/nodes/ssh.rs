//! Nodes behind a real sshd on 127.0.0.1, with keys of its own.

use std::fs;
use std::net::TcpListener;
use std::process::{Child, Stdio};

use super::network::Network;
use super::via::check_ends;
use super::*;

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

    pub(super) fn start_in(network: Option<Network>) -> Option<Sshd> {
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
        // Free a moment ago. Nobody else takes ports of this range by chance.
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
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
        let mut command = match &network {
            Some(network) => Network::enter(&network.far),
            None => Command::new("env"),
        };
        command.args([sshd, "-D", "-e", "-f"]).arg(place.path("config"));
        let process = command.stdin(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        let sshd = Sshd { place, address, port, process, network };
        until("sshd answers", || sshd.client().arg("true").status().unwrap().success());
        Some(sshd)
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
