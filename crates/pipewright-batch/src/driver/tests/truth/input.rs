//! Inputs that change from run to run: ids that move, are renamed, swapped or doubled; lines that come, go and move.

use super::Random;
use crate::job::{Identities, Job, JobId, JobStdin};

/// A line of an input.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Line {
    pub(super) word: usize,
    pub(super) name: Option<String>,
    pub(super) after: Vec<String>,
}

/// The most different words of jobs.
const WORDS: usize = 7;

pub(super) fn first(random: &mut Random) -> Vec<Line> {
    let mut lines = Vec::new();
    let is_named = random.percent(80);
    for at in 0..1 + random.below(WORDS) {
        let name = is_named.then(|| format!("j{at}"));
        lines.push(Line { word: at, name, after: after(random, &lines) });
    }
    lines
}

/// Returns names of lines that there are, so that circles need a change of names.
fn after(random: &mut Random, lines: &[Line]) -> Vec<String> {
    let mut names = Vec::new();
    for line in lines {
        if random.percent(25) {
            names.extend(line.name.clone());
        }
    }
    names
}

/// Changes an input for the next run.
pub(super) fn change(random: &mut Random, lines: &mut Vec<Line>) {
    while random.percent(60) {
        let count = lines.len();
        let (one, other) = (random.below(count.max(1)), random.below(count.max(1)));
        match random.below(8) {
            // Ids that a generator makes of the index, with a line on top.
            0 => {
                let mut new = Line { word: random.below(WORDS + 2), name: None, after: Vec::new() };
                new.name = lines.first().and_then(|line| line.name.clone());
                lines.insert(0, new);
                for (at, line) in lines.iter_mut().enumerate() {
                    line.name = line.name.take().map(|_| format!("j{at}"));
                }
            }
            1 if count > 1 => {
                let name = lines[one].name.clone();
                lines[one].name = std::mem::replace(&mut lines[other].name, name);
            }
            // A renamed job, and those that wait for it.
            2 if count > 0 => {
                let new = format!("r{}", random.below(100));
                let old = lines[one].name.replace(new.clone());
                for name in lines.iter_mut().flat_map(|line| &mut line.after) {
                    if Some(&*name) == old.as_ref() {
                        name.clone_from(&new);
                    }
                }
            }
            3 => {
                let word = random.below(WORDS + 2);
                let after = after(random, lines);
                lines.insert(random.below(count + 1), Line { word, name: None, after });
            }
            4 if count > 1 => drop(lines.remove(one)),
            5 if count > 1 => lines.swap(one, other),
            // The same words twice.
            6 if count > 0 => {
                let line = Line { name: None, ..lines[one].clone() };
                lines.insert(other, line);
            }
            7 if count > 1 && random.percent(50) => lines[one].name = lines[other].name.clone(),
            _ => {}
        }
    }
}

/// Returns true if the job must not run twice.
pub(super) fn is_once(word: usize) -> bool {
    word % 2 == 1
}

/// Returns the jobs of the lines, with their identities. Some words are large.
pub(super) fn jobs(lines: &[Line], large: bool) -> (Vec<Job>, Vec<(JobId, Line)>) {
    let mut identities = Identities::new();
    let job = |line: &Line| {
        let mut job = Job::new(format!("w{}", line.word)).once(is_once(line.word));
        if large && line.word % 3 == 0 {
            job = job.stdin(JobStdin::Bytes(vec![b'x'; 40 << 10]));
        }
        job = line.name.iter().fold(job, |job, name| job.name(name));
        line.after.iter().fold(job, |job, name| job.after(name))
    };
    let jobs: Vec<Job> = lines.iter().map(job).collect();
    let ids = jobs.iter().map(|job| identities.next_id(job)).zip(lines.iter().cloned()).collect();
    (jobs, ids)
}
