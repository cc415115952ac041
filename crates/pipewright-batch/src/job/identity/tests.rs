//! Tests of identities.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use proptest::prelude::*;

use super::*;
use crate::job::{JobStdin, Record, Template};

fn id(job: Job) -> JobId {
    JobId::new(&job, 0)
}

fn from_template(words: &[&str], number: u64, value: &str) -> Job {
    let template = Arc::new(Template::parse(words).unwrap());
    template.job(number, Record::new(value)).unwrap()
}

#[test]
fn an_identity_never_changes() {
    // A log of an earlier release has these. See `encoding::VERSION`. Computed by another program, in Python.
    let id =
        id(Job::new("gzip").args(["-9", "a b"]).current_dir("/d").env("A", "1").env_remove("B"));
    assert_eq!(id.to_string(), "7066d46833eb732952759d3fb2a0351c");
    let job = Job::shell("x").stdin(JobStdin::bytes("in"));
    assert_eq!(JobId::new(&job, 2).to_string(), "88e6c5d53838afa6c1cacfc466be814c");
}

#[test]
fn each_part_makes_another_identity() {
    let job = || Job::new("a").arg("b");
    let jobs = [
        job(),
        Job::new("ab"),
        // The bytes that are hashed of `a` and `b`, without their lengths.
        Job::new("a.tb"),
        Job::new("a"),
        job().arg(""),
        Job::new("").arg("ab"),
        Job::new("a b"),
        Job::shell("a").arg("b"),
        Job::shell("a b"),
        job().current_dir("b"),
        job().current_dir(""),
        job().env("A", ""),
        job().env("A", "B"),
        job().env("AB", ""),
        job().env_remove("A"),
        job().env("A", "").env("B", ""),
        job().stdin(JobStdin::bytes("")),
        job().stdin(JobStdin::bytes("x")),
        job().stdin(JobStdin::file("x")),
        from_template(&["a", "b", "{#}"], 1, ""),
        from_template(&["a", "b", "{%}"], 1, ""),
        Job::new("a").args(["b", "{#}"]),
        Job::new("a").args(["b", "1"]),
        Job::new("a").args(["b", "#"]),
        from_template(&["a", "b", "{#}{#}"], 1, ""),
        from_template(&["a", "b", "{#}", "{#}"], 1, ""),
    ];
    let ids: HashSet<JobId> = jobs.iter().map(|job| JobId::new(job, 0)).collect();
    assert_eq!(ids.len(), jobs.len());
}

#[test]
fn position_name_limits_and_order_of_variables_are_no_part() {
    let job = || Job::new("a").env("A", "1").env("B", "2");
    for same in [
        job().name("n").after("m").cpus(2).mem_bytes(1).resource("t", 1),
        job().timeout(std::time::Duration::ZERO).retries(1).once(true).on_line(4),
        Job::new("a").env("B", "0").env("B", "2").env("A", "1"),
    ] {
        assert_eq!(id(same), id(job()));
    }
    let numbered = |number| from_template(&["a{#}", "{%}", "{}"], number, "x");
    assert_eq!(id(numbered(1)), id(numbered(2)));
}

#[test]
fn a_job_of_a_template_equals_the_same_words() {
    assert_eq!(
        id(from_template(&["cp", "{}", "x{.}y", "{#"], 9, "a.b")),
        id(Job::new("cp").args(["a.b", "xay", "{#"]))
    );
    assert_eq!(id(from_template(&["echo"], 9, "")), id(Job::new("echo").arg("")));
}

#[test]
fn equal_jobs_are_counted() {
    let mut identities = Identities::new();
    let ids: Vec<JobId> =
        ["a", "b", "a", "a"].map(|word| identities.next_id(&Job::new(word))).into();
    let expected = [("a", 0), ("b", 0), ("a", 1), ("a", 2)];
    assert_eq!(ids, expected.map(|(word, before)| JobId::new(&Job::new(word), before)));
    assert_eq!(ids.iter().collect::<HashSet<_>>().len(), 4);
}

#[test]
fn fingerprints_that_begin_alike_are_not_equal() {
    let mut identities = Identities::new();
    let start = 0x0123_4567_89ab_cdef_u128 << 64;
    for low in [0, 1, u128::from(u64::MAX)] {
        assert_eq!(identities.equal_before(start | low), 0);
    }
    assert_eq!(identities.equal_before(start | 1), 1);
    assert_eq!(identities.equal_before(start), 1);
    assert_eq!(identities.equal_before(start | 1), 2);
    // The same end, with the start of every other shard.
    assert_eq!(identities.equal_before(1), 0);
    assert_eq!(identities.equal_before(u128::MAX), 0);
}

#[test]
fn memory_is_bounded_whether_jobs_are_equal_or_not() {
    let count = 200_000_u64;
    for different in [count, count / 2, 1] {
        let mut identities = Identities::new();
        for index in 0..count {
            let hash: [u8; 32] = Sha256::digest((index % different).to_le_bytes()).into();
            let before = identities.equal_before(first_half(hash));
            assert_eq!(u64::from(before), index / different);
        }
        // The shards themselves take 200 KiB.
        let bytes = identities.held_bytes() - identities.shards.len() * size_of::<Shard>();
        assert!(bytes <= 24 * different as usize + 16 * 1024, "{bytes} bytes for {different}");
    }
}

#[test]
fn identities_are_printed_and_parsed() {
    let id = JobId::from_bytes([0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 255]);
    assert_eq!(id.to_string(), "000102030405060708090a0b0c0d0eff");
    assert_eq!(id.to_string().parse(), Ok(id));
    assert_eq!(id.to_string().to_uppercase().parse(), Ok(id));
    assert_eq!(format!("{id:?}"), "JobId(000102030405060708090a0b0c0d0eff)");
    let long = "0".repeat(33);
    let signed = format!("+{}", "0".repeat(31));
    for text in ["", "0", &long, &signed, &"g".repeat(32), "000102030405060708090a0b0c0d0ef\u{e9}"]
    {
        assert_eq!(text.parse::<JobId>(), Err(ParseJobIdError(())), "{text}");
    }
}

type Parts =
    (bool, Vec<String>, Option<String>, Vec<(String, Option<String>)>, Option<(bool, String)>);

/// Returns the parts of a job, of few letters, so that equal texts in different places are likely.
fn parts() -> impl Strategy<Value = Parts> {
    let text = || "[ab{#}]{0,3}";
    let variable = (text(), prop::option::of(text()));
    (
        any::<bool>(),
        prop::collection::vec(text(), 1..4),
        prop::option::of(text()),
        prop::collection::vec(variable, 0..3),
        prop::option::of((any::<bool>(), text())),
    )
}

fn job((is_shell, words, dir, env, stdin): &Parts) -> Job {
    let job = if *is_shell { Job::shell(&words[0]) } else { Job::new(&words[0]) };
    let mut job = job.args(&words[1..]);
    if let Some(dir) = dir {
        job = job.current_dir(dir);
    }
    for (name, value) in env {
        job = match value {
            Some(value) => job.env(name, value),
            None => job.env_remove(name),
        };
    }
    match stdin {
        Some((true, text)) => job.stdin(JobStdin::bytes(text.as_str())),
        Some((false, text)) => job.stdin(JobStdin::file(text)),
        None => job,
    }
}

proptest! {
    #[test]
    fn identities_are_equal_only_if_all_parts_are(one in parts(), other in parts()) {
        let (one, other) = (job(&one), job(&other));
        prop_assert_eq!(JobId::new(&one, 0) == JobId::new(&other, 0), one == other);
        prop_assert_ne!(JobId::new(&one, 0), JobId::new(&one, 1));
    }

    #[test]
    fn occurrences_are_counted_as_by_a_map(fingerprints in prop::collection::vec(0..20_u128, 0..200)) {
        let mut identities = Identities::new();
        let mut counts = HashMap::new();
        for small in fingerprints {
            let fingerprint = (small << 120) | (small % 3);
            let count: &mut u32 = counts.entry(fingerprint).or_default();
            prop_assert_eq!(identities.equal_before(fingerprint), *count);
            *count += 1;
        }
    }
}
