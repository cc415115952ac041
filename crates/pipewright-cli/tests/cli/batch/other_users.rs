//! Jobs that become another user's, as with `sudo`: the batch of an ordinary user cannot end them, and nothing runs beside them.

use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Command, Stdio};

use super::super::Watchdog;
use super::super::trees::until;
use super::{Place, err, out, pace};

const USER: u32 = 54_321;

/// Becomes root, in a folder that [`place`] has made.
const BECOME: &str = "./become --reuid=0 --regid=0 --clear-groups";

/// Returns the folder of an ordinary user, with the tool and a program that makes root of him. `None`, with a message: this machine
/// has no such program.
fn place() -> Option<Place> {
    if !rustix::process::geteuid().is_root() {
        pace::skipped(pace::Need::Root, "a program that makes root of a user");
        return None;
    }
    let place = Place::new();
    fs::set_permissions(place.path(""), Permissions::from_mode(0o755)).unwrap();
    chown(place.path(""), Some(USER), Some(USER)).unwrap();
    fs::copy(env!("CARGO_BIN_EXE_pipewright"), place.path("pw")).unwrap();
    if fs::copy("/usr/bin/setpriv", place.path("become")).is_err() {
        pace::skipped(pace::Need::Program("setpriv"), "is not here");
        return None;
    }
    fs::set_permissions(place.path("become"), Permissions::from_mode(0o4755)).unwrap();
    let mut id = as_user(&place, "sh");
    let id = id.args(["-c", &format!("{BECOME} id -ru")]).output().unwrap();
    if out(&id) != "0\n" {
        pace::skipped(pace::Need::Mount, "programs in the temporary folder make root of nobody");
        return None;
    }
    Some(place)
}

/// Returns a command of that user.
fn as_user(place: &Place, program: &str) -> Command {
    let mut command = Command::new(program);
    command.uid(USER).gid(USER).current_dir(place.path("")).stdin(Stdio::null());
    command
}

fn batch(place: &Place, words: &[&str]) -> Command {
    let mut command = as_user(place, "./pw");
    command.args(["batch", "--progress", "none", "-j2", "--log", "run.db"]).args(words);
    command
}

/// Notes its start, and runs until there is a file `end`; notes in the file `both` that another one runs.
const JOB: &str =
    "mkdir one || touch both; echo $$ >> ran; until test -e end; do sleep 0.05; done; rmdir one";

/// Lets the jobs end, also if the test fails.
struct End<'a>(&'a Place);

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.0.write("end", "");
    }
}

#[test]
fn a_job_that_cannot_be_ended_does_not_run_beside_its_next_attempt() {
    let Some(place) = place() else { return };
    let _watchdog = Watchdog::start(120);
    let end = End(&place);
    let script = format!("{BECOME} sh -c '{JOB}'");
    let limits = ["--timeout", &pace::option(1000), "--kill-grace", "0", "--retries", "1"];
    let delay = ["--retry-delay", "0", "--", "sh", "-c", &script, ":::", "x"];
    let mut tool = batch(&place, &[&limits[..], &delay[..]].concat());
    let messages = fs::File::create(place.path("messages")).unwrap();
    let mut tool = tool.stdout(Stdio::null()).stderr(messages).spawn().unwrap();
    let is_told =
        || place.read("messages").contains("nothing can be started now: job 1: a process");
    until("the second attempt waits", || is_told() || place.path("both").exists());
    assert_eq!(place.lines("ran").len(), 1, "{}", place.read("messages"));
    assert!(place.read("messages").contains("a process of job 1 does not end"));
    drop(end);
    let status = tool.wait().unwrap();
    assert_eq!(status.code(), Some(0), "{}", place.read("messages"));
    assert_eq!(place.lines("ran").len(), 2);
    assert!(!place.path("both").exists());
}

#[test]
fn a_batch_is_not_resumed_beside_a_job_of_its_killed_runner() {
    for (contain, script) in [
        ("tree", format!("exec {BECOME} sh -c '{JOB}'")),
        ("group", format!("exec {BECOME} sh -c '{JOB}'")),
        ("tree", format!("{BECOME} sh -c '{JOB}'; true")),
        ("group", format!("{BECOME} sh -c '{JOB}'; true")),
    ] {
        let Some(place) = place() else { return };
        let _watchdog = Watchdog::start(120);
        let end = End(&place);
        let words = ["--contain", contain, "--", "sh", "-c", &script, ":::", "x"];
        let mut tool = batch(&place, &words).stdout(Stdio::null()).spawn().unwrap();
        let logged = || {
            let pids = place.rows("run.db", "SELECT pid FROM running WHERE pid IS NOT NULL")?;
            Some(pids.first().cloned().unwrap_or_default())
        };
        until("the job runs", || place.lines("ran").len() == 1);
        if logged().is_none() {
            // Nothing here reads the log.
            tool.kill().unwrap();
            tool.wait().unwrap();
            return;
        }
        until("its process is in the log", || logged().is_some_and(|pid| !pid.is_empty()));
        let pid = logged().unwrap();
        tool.kill().unwrap();
        tool.wait().unwrap();

        let resume = || batch(&place, &[&["--resume"], &words[..]].concat()).output().unwrap();
        let refused = resume();
        let message = err(&refused);
        assert_eq!(refused.status.code(), Some(125), "{contain} {script}: {message}");
        for part in ["job 1 of log", &format!("still runs as process {pid}"), "resume then"] {
            assert!(message.contains(part), "{contain} {script}: {message}");
        }
        assert_eq!(message.lines().count(), 1, "{message}");
        drop(end);
        let last = place.lines("ran").concat();
        until("it has ended", || !Path::new("/proc").join(&last).exists());
        let resumed = resume();
        assert_eq!(resumed.status.code(), Some(0), "{contain} {script}: {}", err(&resumed));
        assert_eq!(place.lines("ran").len(), 2, "{contain} {script}");
        assert!(!place.path("both").exists(), "{contain} {script}");
    }
}
