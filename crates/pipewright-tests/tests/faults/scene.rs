//! The process of a scenario: three passes, of which calls fail in the first, and a look at what is left.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use pipewright::Command;
use pipewright_tests::pace;

use crate::case;
use crate::injector;
use crate::scenarios::Scenario;

/// Added to the phases, so that no descriptor has such a number.
pub(crate) const MARKS: i32 = 1000;
/// The phase in which calls fail.
pub(crate) const ARMED: i32 = 1;
/// The phase of the next calls.
pub(crate) const NEXT: i32 = 2;
/// The phase of the end.
pub(crate) const ENDING: i32 = 3;
/// Told by a program when it has begun.
pub(crate) const BEGUN: i32 = 9;

/// Descriptors, threads, children and files, and how many there are of each.
pub(crate) type Left = BTreeMap<(String, String), usize>;

/// The result of a pass that is no success.
#[derive(Debug)]
pub(crate) enum Fault {
    /// An error that was told.
    Told(String),
    /// A success that is none.
    Untrue(String),
    /// The machine has no such thing: its need, a blank and a detail.
    Skip(String),
}

/// The facts of a success that have to be the same in every later pass, such as the containment.
pub(crate) type Seen = Result<String, Fault>;

/// Does one pass.
pub(crate) type Pass = Box<dyn FnMut(&Scene) -> Seen>;

/// The place of a run.
pub(crate) struct Scene {
    pub(crate) folder: PathBuf,
    /// The number of the pass.
    pub(crate) pass: Cell<u32>,
}

impl Fault {
    /// Takes any error.
    pub(crate) fn told(error: impl std::fmt::Display) -> Fault {
        Fault::Told(error.to_string())
    }
}

/// Checks a fact about a success.
pub(crate) fn expect<T: PartialEq + std::fmt::Debug>(
    name: &str,
    found: T,
    wanted: T,
) -> Result<(), Fault> {
    if found == wanted {
        return Ok(());
    }
    let short = |text: String| text.chars().take(90).collect::<String>();
    let (found, wanted) = (short(format!("{found:?}")), short(format!("{wanted:?}")));
    Err(Fault::Untrue(format!("{name}: {found}, not {wanted}")))
}

impl Scene {
    /// Returns a shell script that first adds that name to the tally of its pass.
    pub(crate) fn script(&self, name: &str, script: &str) -> Command {
        let tally = self.folder.join("tally");
        let text = format!("echo {}.{name} >>{}; {script}", self.pass.get(), tally.display());
        Command::new("/bin/sh").arg("-c").arg(text).owned()
    }

    /// Returns a path in the folder, for this pass.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.join(format!("{name}.{}", self.pass.get()))
    }

    /// Returns the bytes of a file of this pass; none if there is no such file.
    pub(crate) fn bytes_of(&self, name: &str) -> Vec<u8> {
        pause(|| fs::read(self.path(name))).unwrap_or_default()
    }

    /// Checks that the command of that name ran in this pass.
    pub(crate) fn ran(&self, name: &str) -> Result<(), Fault> {
        let tally = pause(|| fs::read_to_string(self.folder.join("tally"))).unwrap_or_default();
        let name = format!("{}.{name}", self.pass.get());
        expect(&format!("runs of {name}"), tally.lines().filter(|line| *line == name).count(), 1)
    }

    fn say(&self, line: &str) {
        let options = fs::File::options().append(true).create(true).clone();
        pause(|| {
            let file = options.open(self.folder.join("result"));
            // Without it the driver sees that the pass has no result.
            let _ = file.and_then(|mut file| file.write_all(format!("{line}\n").as_bytes()));
        });
    }
}

thread_local! {
    static PHASE: Cell<i32> = const { Cell::new(0) };
}

fn enter(phase: i32) {
    PHASE.set(phase);
    injector::mark(MARKS + phase);
}

/// Does something of the test's own, in which no call fails.
pub(crate) fn pause<T>(body: impl FnOnce() -> T) -> T {
    let phase = PHASE.get();
    enter(0);
    let result = body();
    enter(phase);
    result
}

/// Plays a scenario in that folder. `usual` is what it leaves if no call fails.
pub(crate) fn play(scenario: &Scenario, folder: &Path, usual: &Left) {
    let scene = Scene { folder: folder.to_owned(), pass: Cell::new(0) };
    let before = look(folder);
    let mut open = None;
    if scenario.warm {
        open = pass(&scene, scenario, None);
        if open.is_none() {
            return;
        }
    }
    scene.pass.set(1);
    enter(ARMED);
    open = pass(&scene, scenario, open);
    enter(NEXT);
    for number in [2, 3] {
        scene.pass.set(number);
        open = pass(&scene, scenario, open);
    }
    drop(open);
    enter(ENDING);
    for ((kind, name), count) in at_rest(folder, &before, usual) {
        scene.say(&format!("left\t{kind}\t{name}\t{count}"));
    }
}

/// Does a pass, and opens what it needs if that is not open.
fn pass(scene: &Scene, scenario: &Scenario, open: Option<Pass>) -> Option<Pass> {
    let opened = open.map_or_else(|| (scenario.open)(scene), Ok);
    let (open, seen) = match opened {
        Ok(mut open) => {
            let seen = open(scene);
            (Some(open), seen)
        }
        Err(fault) => (None, Err(fault)),
    };
    let one_line = |text: String| text.replace(['\n', '\t'], " ");
    let line = match seen {
        Ok(seen) => format!("ok\t{seen}"),
        Err(Fault::Told(text)) => format!("told\t{}", one_line(text)),
        Err(Fault::Untrue(text)) => format!("untrue\t{}", one_line(text)),
        Err(Fault::Skip(text)) => {
            scene.say(&format!("skip\t{}", one_line(text)));
            return open;
        }
    };
    scene.say(&format!("pass\t{}\t{line}", scene.pass.get()));
    open
}

/// Waits until nothing is left that was not there before and is not usual, for at most a second, and returns what is
/// left.
fn at_rest(folder: &Path, before: &Left, usual: &Left) -> Left {
    let until = Instant::now() + pace::millis(1000);
    loop {
        let mut left = look(folder);
        for (what, count) in before {
            if let Some(now) = left.get_mut(what) {
                *now = now.saturating_sub(*count);
            }
        }
        left.retain(|_, count| *count > 0);
        let is_usual = left.iter().all(|(what, count)| usual.get(what) >= Some(count));
        if is_usual || Instant::now() >= until {
            return left;
        }
        std::thread::park_timeout(Duration::from_millis(2));
    }
}

/// Returns what this process has.
fn look(folder: &Path) -> Left {
    let (mut left, mut idle) = (Left::new(), 0);
    let mut add = |kind: &str, name: String| *left.entry((kind.to_owned(), name)).or_default() += 1;
    let names = |path: &Path| {
        let entries = fs::read_dir(path).into_iter().flatten().flatten();
        entries.map(|entry| entry.path()).collect::<Vec<_>>()
    };
    for descriptor in names(Path::new("/proc/self/fd")) {
        // That of the list itself is closed.
        if let Ok(link) = fs::read_link(&descriptor) {
            let link = link.to_string_lossy().replace(&*folder.to_string_lossy(), "$");
            if !link.starts_with("/proc/") {
                add("descriptor", case::label(&link));
            }
        }
    }
    for thread in names(Path::new("/proc/self/task")) {
        let name = fs::read_to_string(thread.join("comm")).unwrap_or_default();
        match name.trim() {
            // It has ended meanwhile.
            "" => {}
            // These end by themselves when they had nothing to do for a while.
            "pipewright-reap" | "pipewright-time" => idle += 1,
            name => add("thread", name.to_owned()),
        }
        let children = fs::read_to_string(thread.join("children")).unwrap_or_default();
        for child in children.split_whitespace().filter_map(|pid| pid.parse().ok()) {
            add("child", case::command_line(child));
        }
    }
    let own_group = format!("pipewright-{}-", std::process::id());
    for group in groups() {
        for entry in names(&group) {
            let name = entry.file_name().unwrap_or_default().to_string_lossy().into_owned();
            if name.starts_with(&own_group) {
                add("control group", case::label(&entry.to_string_lossy()));
            }
        }
    }
    for file in names(&folder.join("tmp")) {
        add("file", case::label(&file.file_name().unwrap_or_default().to_string_lossy()));
    }
    if let Some(count) = left.get_mut(&("descriptor".to_owned(), "anon_inode:[eventfd]".to_owned()))
    {
        *count -= idle.min(*count);
    }
    left.retain(|_, count| *count > 0);
    left
}

/// Returns the control groups of this process, of every hierarchy that may be mounted.
fn groups() -> Vec<PathBuf> {
    let mut groups = Vec::new();
    for line in fs::read_to_string("/proc/self/cgroup").unwrap_or_default().lines() {
        let mut fields = line.splitn(3, ':').skip(1);
        let (Some(controllers), Some(path)) = (fields.next(), fields.next()) else { continue };
        let mounts = match controllers {
            "" => vec!["/sys/fs/cgroup".to_owned(), "/sys/fs/cgroup/unified".to_owned()],
            _ => vec![format!("/sys/fs/cgroup/{controllers}")],
        };
        groups.extend(mounts.into_iter().map(|mount| PathBuf::from(format!("{mount}{path}"))));
    }
    groups
}
