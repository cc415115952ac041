//! The competitors: each runs the same jobs from its own kind of input.

use std::ffi::OsString;
use std::fmt::Write as _;
use std::fs;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use pipewright::{Command, Stdio};

use super::{Result, Setup};

/// A competitor.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Peer {
    /// With a log, and trees held: the default.
    Pipewright,
    PipewrightWithoutLog,
    /// With process groups only, and without a log.
    PipewrightGroup,
    Xargs,
    Make,
    Ninja,
    Parallel,
}

/// The time and the peak memory of a run.
pub(crate) struct Measured {
    pub(crate) time: Duration,
    pub(crate) peak_bytes: Option<u64>,
}

impl Peer {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Peer::Pipewright => "pipewright batch --log",
            Peer::PipewrightWithoutLog => "pipewright batch",
            Peer::PipewrightGroup => "pipewright batch --contain group",
            Peer::Xargs => "xargs -P",
            Peer::Make => "make -j",
            Peer::Ninja => "ninja -j",
            Peer::Parallel => "GNU parallel",
        }
    }

    fn program(self, setup: &Setup) -> OsString {
        match self {
            Peer::Xargs => "xargs".into(),
            Peer::Make => "make".into(),
            Peer::Ninja => "ninja".into(),
            Peer::Parallel => "parallel".into(),
            _ => setup.tool.clone().into(),
        }
    }

    /// Returns true if the program is installed.
    pub(crate) fn is_here(self, setup: &Setup) -> bool {
        let mut command = Command::new(self.program(setup));
        command.arg("--version").stdin(Stdio::null()).capture().is_ok_and(|done| done.success())
    }

    /// Runs that many jobs of the child that does nothing, with the same input for each peer.
    pub(crate) fn run(self, setup: &Setup, jobs: usize, at_once: usize) -> Result<Measured> {
        let lines = self.input(setup, jobs)?;
        let mut command = Command::new(self.program(setup));
        command.stdin(Stdio::null()).current_dir(&setup.folder);
        let at_once = at_once.to_string();
        let child = setup.child.as_os_str();
        match self {
            Peer::Pipewright | Peer::PipewrightWithoutLog | Peer::PipewrightGroup => {
                command.args(["batch", "--quiet", "-j", &at_once, "-a"]).arg(&lines);
                if self == Peer::Pipewright {
                    command.arg("--log").arg(setup.new_file("db"));
                }
                if self == Peer::PipewrightGroup {
                    command.args(["--contain", "group"]);
                }
                command.arg("--").arg(child);
            }
            Peer::Xargs => {
                command.arg("-a").arg(&lines).args(["-P", &at_once, "-n", "1"]).arg(child);
            }
            Peer::Make => {
                command.args(["-s", "-j", &at_once, "-f"]).arg(&lines);
            }
            Peer::Ninja => {
                command.args(["--quiet", "-j", &at_once, "-f"]).arg(&lines);
            }
            Peer::Parallel => {
                command.args(["--will-cite", "-j", &at_once, "-a"]).arg(&lines).arg(child);
            }
        }
        measured(&mut command)
    }

    /// Writes the input of that peer, unless it exists.
    fn input(self, setup: &Setup, jobs: usize) -> Result<PathBuf> {
        let suffix = match self {
            Peer::Make => "mk",
            Peer::Ninja => "ninja",
            _ => "txt",
        };
        let path = setup.folder.join(format!("{jobs}.{suffix}"));
        if !path.exists() {
            let text = match self {
                Peer::Make => makefile(setup, jobs)?,
                Peer::Ninja => ninja_file(setup, jobs)?,
                _ => (1..=jobs).map(|number| format!("{number}\n")).collect(),
            };
            fs::write(&path, text)?;
        }
        Ok(path)
    }
}

impl Setup {
    /// Returns the path of a file that does not exist.
    pub(crate) fn new_file(&self, suffix: &str) -> PathBuf {
        (0..)
            .map(|number: u64| self.folder.join(format!("new-{number}.{suffix}")))
            .find(|path| !path.exists())
            .unwrap_or_default()
    }
}

/// Runs a command to its end, which has to be a success.
pub(crate) fn measured(command: &mut Command) -> Result<Measured> {
    let began = Instant::now();
    let done = command.stdout(Stdio::null()).capture()?;
    let time = began.elapsed();
    let peak_bytes = done.usage.and_then(|usage| usage.peak_rss_bytes);
    done.check()?;
    Ok(Measured { time, peak_bytes })
}

fn makefile(setup: &Setup, jobs: usize) -> Result<String> {
    let mut text = String::from("all:");
    for number in 1..=jobs {
        write!(text, " j{number}")?;
    }
    text.push('\n');
    for number in 1..=jobs {
        write!(text, "j{number}:\n\t{} {number}\n", setup.child.display())?;
    }
    Ok(text)
}

fn ninja_file(setup: &Setup, jobs: usize) -> Result<String> {
    let mut text = format!("rule run\n  command = {} $in_number\n", setup.child.display());
    for number in 1..=jobs {
        write!(text, "build j{number}: run\n  in_number = {number}\n")?;
    }
    Ok(text)
}
