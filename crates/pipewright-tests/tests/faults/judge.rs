//! Compares a run with one in which no call failed.

use libc::{WIFSIGNALED, WTERMSIG};

use crate::calls;
use crate::case::{Facts, Injection};
use crate::scenarios::Scenario;
use crate::scene::{self, Left};

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
    let is_shortage = |it: &Injection| it.errno == libc::ENOMEM && it.key.contains(" ppoll");
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
