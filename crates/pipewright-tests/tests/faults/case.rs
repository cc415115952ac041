//! One run of a scenario with at most one failing call, seen from outside and compared with one in which no call
//! failed.

use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use libc::{WIFSIGNALED, WTERMSIG, c_long};
use pipewright_tests::pace;
use pipewright_tests::skip::Need;

use crate::calls::{self, Object, Of};
use crate::injector::{self, Asked, Listener};
use crate::scenarios::Scenario;
use crate::scene::{self, Left};

/// The name of a call in a scenario: who makes it, its name and its object.
pub(crate) type Key = String;

/// A call that fails: the one with that number, counted from 1.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Injection {
    pub(crate) key: Key,
    pub(crate) nth: u32,
    pub(crate) errno: i32,
}

/// The facts about a run.
#[derive(Debug, Default)]
pub(crate) struct Facts {
    /// The number of times that each call happened while calls may fail, and its possible errors.
    pub(crate) calls: BTreeMap<Key, (u32, Vec<i32>)>,
    /// True if the call failed.
    pub(crate) fired: bool,
    /// The results of the passes, by number: `ok`, `told` or `untrue`, and a text.
    pub(crate) passes: BTreeMap<u32, (String, String)>,
    /// Reasons why the scenario cannot run here.
    pub(crate) skipped: Option<String>,
    /// Everything that the scenario's own process has found at its end.
    pub(crate) left: Left,
    /// The phase in which it hung.
    hung: Option<i32>,
    /// The raw status of its process.
    pub(crate) status: i32,
    /// Processes that were left after it.
    pub(crate) orphans: Vec<String>,
    pub(crate) stderr: String,
    /// Names that commands wrote to the tally more than once.
    pub(crate) twice: Vec<String>,
}

/// The process or the thread of a call.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Role {
    /// Part of the product: `host`, `child` between clone and exec, `supervisor`, `worker`, `tool`, `python`, and the
    /// `tool-child` and `python-child` of these. True if calls may fail: its start is over.
    Product(&'static str, bool),
    /// A program that the scenario runs.
    Command,
    /// It has replaced its program, or tried to.
    Replaced,
}

/// Runs a scenario in that folder, which is empty. `usual` is what it leaves if no call fails.
pub(crate) fn run(
    scenario: &Scenario,
    folder: &Path,
    injection: Option<&Injection>,
    usual: &Left,
) -> Facts {
    injector::adopt_orphans();
    fs::create_dir_all(folder.join("tmp")).expect("a folder for the run");
    let output = fs::File::create(folder.join("stderr")).expect("a file for stderr");
    let (null, output) = (fs::File::open("/dev/null").expect("/dev/null"), OwnedFd::from(output));
    let null = OwnedFd::from(null);
    let numbers: Vec<c_long> = calls::all().iter().map(|(number, ..)| *number).collect();
    let started = injector::fork(&numbers, || {
        injector::own_session(&null, &output, &folder.join("tmp"));
        scene::play(scenario, folder, usual);
    });
    let (host, listener) = match started {
        Ok(started) => started,
        Err(error) => {
            return Facts {
                skipped: Some(format!("{} {error}", Need::SeccompNotify)),
                ..Facts::default()
            };
        }
    };
    let mut looked = Looked {
        host,
        folder: folder.to_owned(),
        scenario,
        injection,
        listener,
        names: calls::all().into_iter().map(|(number, name, of)| (number, (name, of))).collect(),
        roles: HashMap::from([(host, Role::Product("host", true))]),
        phase: 0,
        facts: Facts::default(),
    };
    looked.until_the_end();
    let mut facts = looked.facts;
    facts.read(folder);
    facts
}

impl Facts {
    /// Takes what the scenario has written.
    fn read(&mut self, folder: &Path) {
        let text = |name: &str| {
            let bytes = fs::read(folder.join(name)).unwrap_or_default();
            String::from_utf8_lossy(&bytes).into_owned()
        };
        for line in text("result").lines() {
            let mut words = line.splitn(4, '\t');
            let mut next = || words.next().unwrap_or_default().to_owned();
            match next().as_str() {
                "pass" => {
                    let pass = next().parse().unwrap_or(0);
                    self.passes.insert(pass, (next(), next()));
                }
                "skip" => self.skipped = Some(next()),
                "left" => {
                    let (kind, name) = (next(), next());
                    let count = next().parse().unwrap_or(0);
                    self.left.insert((kind, name), count);
                }
                _ => {}
            }
        }
        self.stderr = text("stderr");
        let mut seen: BTreeMap<String, u32> = BTreeMap::new();
        for line in text("tally").lines() {
            *seen.entry(line.to_owned()).or_default() += 1;
        }
        self.twice = seen.into_iter().filter(|(_, count)| *count > 1).map(|it| it.0).collect();
    }
}

/// A run that is looked at.
struct Looked<'a> {
    host: i32,
    folder: PathBuf,
    scenario: &'a Scenario,
    injection: Option<&'a Injection>,
    listener: Listener,
    names: HashMap<c_long, (&'static str, Of)>,
    /// By thread.
    roles: HashMap<i32, Role>,
    /// The last mark of the scenario.
    phase: i32,
    facts: Facts,
}

impl Looked<'_> {
    /// Answers calls until no process is left.
    fn until_the_end(&mut self) {
        let mut deadline = Instant::now() + pace::scaled(self.scenario.limit);
        let mut host_ended = false;
        loop {
            match self.listener.next(if host_ended { 5 } else { 20 }) {
                Ok(Some(asked)) => {
                    let error = self.error_of(&asked);
                    self.listener.answer(&asked, error);
                    if Instant::now() < deadline {
                        continue;
                    }
                }
                Ok(None) => {}
                // Nobody can make a call: all are about to be reaped.
                Err(()) => std::thread::park_timeout(Duration::from_millis(1)),
            }
            match injector::reap() {
                Ok(Some((pid, status))) if pid == self.host => {
                    self.facts.status = status;
                    host_ended = true;
                    deadline = Instant::now() + pace::seconds(5);
                    continue;
                }
                Ok(Some(_)) => continue,
                Ok(None) => {}
                Err(()) => return,
            }
            if Instant::now() >= deadline {
                if host_ended {
                    self.facts.orphans.extend(children().into_iter().map(command_line));
                } else {
                    self.facts.hung = Some(self.phase);
                }
                return self.kill_all();
            }
        }
    }

    /// Kills all processes, parents first, so that orphans come to this process.
    fn kill_all(&mut self) {
        loop {
            for pid in children() {
                injector::kill(pid);
            }
            if let Ok(Some(asked)) = self.listener.next(1) {
                self.listener.answer(&asked, None);
            }
            while let Ok(ended) = injector::reap() {
                if ended.is_none() {
                    break;
                }
            }
            if injector::reap() == Err(()) {
                return;
            }
        }
    }

    /// Returns the error with which a call has to fail.
    fn error_of(&mut self, asked: &Asked) -> Option<i32> {
        let (name, of) = *self.names.get(&asked.number)?;
        if name == "close" && (asked.args[0] as i32) < -999 {
            match -(asked.args[0] as i32) - scene::MARKS {
                // A program that has no other sign that it has begun.
                scene::BEGUN => self.begun(asked.thread),
                phase => self.phase = phase,
            }
            return None;
        }
        let role = self.role(asked.thread);
        if name.starts_with("execve") {
            self.roles.insert(asked.thread, Role::Replaced);
        }
        if name == "sigaltstack" {
            // Of Rust's start; that of Python goes on.
            if !matches!(role, Role::Product("python", _)) {
                self.begun(asked.thread);
            }
            return None;
        }
        let Role::Product(who, true) = role else { return None };
        if self.phase != scene::ARMED || !self.scenario.roles.contains(&who) {
            return None;
        }
        let object = self.object(asked, of);
        let mut errors = calls::errors(name, &object, &asked.args);
        let key = format!("{who} {name} {}", object.label).trim_end().to_owned();
        let left_out = self.scenario.left_out.iter().filter(|(call, _)| key.starts_with(call));
        let left_out: Vec<i32> = left_out.flat_map(|(_, errors)| *errors).copied().collect();
        // A supervisor has no handlers of signals; and as subprocess does, the package says nothing of input that is
        // not read.
        errors.retain(|errno| {
            let of_role =
                matches!((who, *errno), ("supervisor", libc::EINTR) | ("python", libc::EPIPE));
            !of_role && !left_out.contains(errno)
        });
        if errors.is_empty() {
            return None;
        }
        let (count, _) = self
            .facts
            .calls
            .entry(key.clone())
            .and_modify(|(count, _)| *count += 1)
            .or_insert_with(|| (1, errors.clone()));
        let injection = self.injection?;
        let is_it = injection.key == key
            && injection.nth == *count
            && errors.contains(&injection.errno)
            && !self.facts.fired;
        self.facts.fired |= is_it;
        is_it.then_some(injection.errno)
    }

    fn begun(&mut self, thread: i32) {
        if let Some(Role::Product(_, has_begun)) = self.roles.get_mut(&thread) {
            *has_begun = true;
        }
    }

    fn role(&mut self, thread: i32) -> Role {
        match self.roles.get(&thread) {
            Some(Role::Replaced) | None => {}
            Some(role) => return role.clone(),
        }
        let was_replaced = self.roles.contains_key(&thread);
        let status = fs::read_to_string(format!("/proc/{thread}/status")).unwrap_or_default();
        let number = |name: &str| -> i32 {
            let line = status.lines().find_map(|line| line.strip_prefix(name));
            line.and_then(|it| it.trim().parse().ok()).unwrap_or(0)
        };
        let (process, parent) = (number("Tgid:"), number("PPid:"));
        let role = if process != thread && self.roles.contains_key(&process) {
            self.roles[&process].clone()
        } else {
            let program = fs::read_link(format!("/proc/{thread}/exe")).unwrap_or_default();
            let program = program.to_string_lossy();
            let own = std::env::current_exe().unwrap_or_default();
            let is_tool = program.ends_with("/pipewright");
            let is_python = program.contains("/python");
            let is_own = Path::new(&*program) == own;
            let parent_has_begun =
                !matches!(self.roles.get(&parent), Some(Role::Product(_, false)));
            if program.starts_with("/memfd:") {
                Role::Product("supervisor", true)
            } else if !was_replaced && self.roles.get(&parent) == Some(&Role::Command) {
                Role::Command
            } else if !was_replaced && is_own {
                Role::Product("child", parent_has_begun)
            } else if !was_replaced && is_tool {
                Role::Product("tool-child", parent_has_begun)
            } else if !was_replaced && is_python {
                Role::Product("python-child", parent_has_begun)
            } else if is_tool {
                Role::Product("tool", false)
            } else if is_own {
                Role::Product("worker", false)
            } else if is_python {
                Role::Product("python", false)
            } else {
                Role::Command
            }
        };
        self.roles.insert(thread, role.clone());
        role
    }

    fn object(&self, asked: &Asked, of: Of) -> Object {
        let thread = asked.thread;
        match of {
            Of::Nothing => Object::default(),
            Of::Word(index) => {
                let label = format!("{:#x}", asked.args[index] as u32);
                Object { label, ..Object::default() }
            }
            Of::Path(index) => {
                let path = injector::string_of(thread, asked.args[index]).unwrap_or_default();
                Object { label: self.path_label(&path), ..Object::default() }
            }
            Of::Fd(index) => {
                let number = asked.args[index] as i32;
                let place = format!("/proc/{thread}/fd/{number}");
                let is_directory = fs::metadata(&place).is_ok_and(|it| it.is_dir());
                let link = fs::read_link(place);
                let link = link.unwrap_or_default().to_string_lossy().into_owned();
                let label =
                    object_of_link(&link).map_or_else(|| self.path_label(&link), str::to_owned);
                let facts = fs::read_to_string(format!("/proc/{thread}/fdinfo/{number}"));
                let facts = facts.unwrap_or_default();
                let flags = facts.lines().find_map(|line| line.strip_prefix("flags:"));
                let flags =
                    flags.and_then(|it| i32::from_str_radix(it.trim(), 8).ok()).unwrap_or(0);
                let is_dont_wait = |name: &str, index: usize| {
                    let number = asked.number;
                    self.names.get(&number).is_some_and(|it| it.0 == name)
                        && asked.args[index] as i32 & libc::MSG_DONTWAIT != 0
                };
                let nonblocking = flags & libc::O_NONBLOCK != 0
                    || is_dont_wait("sendto", 3)
                    || is_dont_wait("recvfrom", 3)
                    || is_dont_wait("sendmsg", 2)
                    || is_dont_wait("recvmsg", 2);
                Object { label, nonblocking, is_directory }
            }
        }
    }

    fn path_label(&self, path: &str) -> String {
        label(&path.replace(&*self.folder.to_string_lossy(), "$"))
    }
}

/// Returns the kind of an object without a path.
fn object_of_link(link: &str) -> Option<&str> {
    if link.starts_with("/memfd:") {
        return Some("memfd");
    }
    let (kind, rest) = link.split_once(':')?;
    match kind {
        "anon_inode" => Some(rest.trim_matches(['[', ']'])),
        "pipe" | "socket" => Some(kind),
        _ => None,
    }
}

/// Replaces what differs from run to run: numbers, and names that were made up.
pub(crate) fn label(path: &str) -> String {
    let mut parts = Vec::new();
    for part in path.split('/') {
        let hex = part.len() > 20 && part.chars().filter(char::is_ascii_hexdigit).count() > 20;
        let made_up = part.starts_with(".tmp");
        let mut kept = String::new();
        for letter in part.chars() {
            match letter {
                '0'..='9' if kept.ends_with('#') => {}
                '0'..='9' => kept.push('#'),
                _ => kept.push(letter),
            }
        }
        parts.push(match part.strip_prefix("pipewright-") {
            Some(rest) if rest.starts_with(|it: char| it.is_ascii_digit()) => {
                "pipewright-*".to_owned()
            }
            _ if hex || made_up => "*".to_owned(),
            _ => kept,
        });
    }
    parts.join("/")
}

/// Returns the children of this process.
pub(crate) fn children() -> Vec<i32> {
    let own = std::process::id();
    let text = fs::read_to_string(format!("/proc/{own}/task/{own}/children")).unwrap_or_default();
    text.split_whitespace().filter_map(|pid| pid.parse().ok()).collect()
}

/// Returns what a process was started with.
pub(crate) fn command_line(pid: i32) -> String {
    let bytes = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let text = String::from_utf8_lossy(&bytes).replace('\0', " ");
    let name = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    let own = std::env::current_exe().unwrap_or_default();
    let text = text.replace(&*own.to_string_lossy(), "SUITE");
    let text = label(if text.trim().is_empty() { name.trim() } else { text.trim() });
    text.chars().take(80).collect()
}

/// Something that does not hold.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Finding {
    /// `hang`, `untrue`, `next`, `changed`, `left`, `twice`, `panic` or `crash`.
    pub(crate) kind: &'static str,
    pub(crate) text: String,
}

/// Returns everything that does not hold.
pub(crate) fn findings(
    scenario: &Scenario,
    usual: &Facts,
    run: &Facts,
    injection: Option<&Injection>,
) -> Vec<Finding> {
    let is_about_disks = scenario.name.starts_with("disk");
    let mut found = Vec::new();
    let mut add = |kind: &'static str, text: String| found.push(Finding { kind, text });
    if let Some(phase) = run.hung {
        let place = match phase {
            scene::ARMED => "in the call",
            scene::NEXT => "in a later call",
            scene::ENDING => "at the end",
            _ => "before",
        };
        add("hang", place.to_owned());
    }
    if let Some(line) = run.stderr.lines().find(|line| line.contains("panicked at")) {
        let rest = run.stderr.lines().skip_while(|it| *it != line).nth(1).unwrap_or_default();
        add("panic", format!("{line} {rest}"));
    }
    if WIFSIGNALED(run.status) && run.hung.is_none() {
        add("crash", format!("signal {}", WTERMSIG(run.status)));
    } else if run.status != 0 && run.hung.is_none() {
        add("crash", format!("status {:#x}", run.status));
    }
    let is_sync = |it: &Injection| it.key.contains(" fsync ") || it.key.contains(" fdatasync ");
    let said_ok = run.passes.get(&1).is_some_and(|(result, _)| result == "ok");
    if is_about_disks && said_ok && injection.is_some_and(is_sync) {
        add("untrue", "synced after a failed sync, which was repeated".to_owned());
    }
    // A wait takes many things together, and must not end them all. An `epoll_ctl` is about one, and so is the wait for
    // a disk.
    let is_wait = |key: &str| key.contains(" ppoll") || key.contains(" poll");
    let is_shortage = |it: &Injection| it.errno == libc::ENOMEM && is_wait(&it.key);
    let has_failed = run.passes.get(&1).is_some_and(|(result, _)| result == "told");
    if !is_about_disks && has_failed && injection.is_some_and(is_shortage) {
        add("untrue", "a wait that had no memory once has failed what it waited for".to_owned());
    }
    let is_refusal = injection.is_some_and(|it| calls::is_refusal(it.errno));
    for (number, (result, text)) in &run.passes {
        let wanted = usual.passes.get(number);
        match (result.as_str(), number) {
            ("untrue", 1) => add("untrue", text.clone()),
            ("untrue", _) => add("next", format!("pass {number}: {text}")),
            ("told", 2..) if !is_refusal => add("next", format!("pass {number}: {text}")),
            ("ok", 2..) if !is_refusal => {
                if let Some(wanted) = wanted.filter(|wanted| wanted.1 != *text) {
                    add("changed", format!("pass {number}: {text}, not {}", wanted.1));
                }
            }
            _ => {}
        }
    }
    if run.hung.is_none() && run.passes.keys().filter(|number| **number > 0).count() < 3 {
        add("crash", "a pass has no result".to_owned());
    }
    let more = more(&usual.left, &run.left, injection);
    if !more.is_empty() && run.hung.is_none() {
        add("left", more.join(", "));
    }
    if !run.orphans.is_empty() {
        add("left", format!("after the end: {}", run.orphans.join(", ")));
    }
    if !run.twice.is_empty() {
        add("twice", run.twice.join(", "));
    }
    found
}

/// Returns what a run has left more of.
fn more(usual: &Left, run: &Left, injection: Option<&Injection>) -> Vec<String> {
    let has_failed = |name: &str| injection.is_some_and(|it| it.key.contains(name));
    // A close that did not happen, and a group that was not removed: the next process that makes one removes it.
    let mut spare = match () {
        () if has_failed(" close ") => Some("descriptor"),
        () if has_failed(" unlinkat pipewright-") => Some("control group"),
        () => None,
    };
    let mut more = Vec::new();
    for (what, count) in run {
        // Kept for the next start, once it is made.
        if what.1.starts_with("/memfd:pipewright-supervisor") && *count == 1 {
            continue;
        }
        let mut count = count.saturating_sub(*usual.get(what).unwrap_or(&0));
        if count > 0 && spare == Some(&*what.0) {
            count -= 1;
            spare = None;
        }
        if count > 0 {
            more.push(format!("{count} {} {}", what.0, what.1));
        }
    }
    more
}
