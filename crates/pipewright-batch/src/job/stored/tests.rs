//! Jobs are read back as they were stored.

use std::ffi::OsString;
use std::time::Duration;

use proptest::collection::{btree_map, vec};
use proptest::option;
use proptest::prelude::*;

use super::StoredJob;
use crate::job::{Job, JobId, JobStdin, Record, Template, shell_quoted};

/// Returns the job as a log keeps it. `tagged`: with the values of its record.
fn stored(job: &Job, tagged: bool) -> StoredJob {
    StoredJob {
        name: job.get_name().map(ToOwned::to_owned),
        command: shell_quoted(&job.argv(3).unwrap()),
        current_dir: job.get_current_dir().map(|dir| dir.as_os_str().as_encoded_bytes().to_vec()),
        settings: super::settings(job, tagged),
    }
}

#[track_caller]
fn check(job: &Job) {
    for tagged in [true, false] {
        let back = stored(job, tagged).job().unwrap();
        assert_eq!(JobId::new(&back, 0), JobId::new(job, 0));
        assert_eq!(back.is_shell(), job.is_shell());
        for slot in [1, 3, 40] {
            assert_eq!(back.argv(slot), job.argv(slot));
        }
        assert_eq!(back.settings(), job.settings());
        if tagged {
            assert_eq!(back.record_text(), job.record_text());
        }
    }
}

#[test]
fn a_job_without_settings_stores_nothing_more() {
    let template = std::sync::Arc::new(Template::parse(["gzip", "-k"]).unwrap());
    let from_line = template.job(1, Record::new("it's")).unwrap();
    for job in [Job::new("true"), Job::new("a b").args(["", "c"]), from_line] {
        assert_eq!(super::settings(&job, false), None);
        check(&job);
    }
}

#[test]
fn texts_that_no_job_has_are_refused() {
    let refused = |command: &[u8], settings: Option<&str>| {
        let settings = settings.map(ToOwned::to_owned);
        let job = StoredJob { command: command.to_vec(), settings, ..StoredJob::default() };
        assert_eq!(job.job(), None);
    };
    refused(b"'open", None);
    refused(br"a\b", None);
    refused(b"sh -c", Some(r#"{"shell":true}"#));
    for settings in ["?", "[]", r#"{"other":1}"#, r#"{"cpus":-1}"#, r#"{"timeout":"1"}"#] {
        refused(b"true", Some(settings));
    }
    for settings in [r#"{"words":[]}"#, r#"{"words":[[{"put":"x"}]]}"#, r#"{"stdin":{"hex":"0"}}"#]
    {
        refused(b"true", Some(settings));
    }
}

#[cfg(not(windows))]
fn bytes() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        3 => "[a-z{}#%' \n\"\\\\\u{e9}$]{0,6}".prop_map(String::into_bytes),
        1 => vec(1_u8..=255, 0..5),
    ]
}

#[cfg(not(windows))]
fn word() -> impl Strategy<Value = OsString> {
    bytes().prop_map(|bytes| crate::job::os_string(bytes).unwrap())
}

/// Texts with surrogates that have no pair.
#[cfg(windows)]
fn word() -> impl Strategy<Value = OsString> {
    use std::os::windows::ffi::OsStringExt;
    let unit = prop_oneof![4 => 1_u16..0x80, 1 => 0xd7f0_u16..0xe010];
    vec(unit, 0..5).prop_map(|units| OsString::from_wide(&units))
}

fn value() -> impl Strategy<Value = Vec<u8>> {
    word().prop_filter_map("not Unicode", |word| {
        let bytes = word.as_encoded_bytes().to_vec();
        crate::job::os_string(bytes.clone()).is_ok().then_some(bytes)
    })
}

fn command() -> impl Strategy<Value = Job> {
    let template_word = prop_oneof![
        2 => word(),
        1 => Just("{}".into()), 1 => Just("{#}".into()), 1 => Just("-{%}x{/}".into()), 1 => Just("{#}{2.}".into()),
    ];
    let from_template = (vec(template_word, 1..4), vec(value(), 2..4), 1_u64..u64::MAX);
    let from_template = from_template.prop_filter_map("no template", |(words, values, number)| {
        let template = std::sync::Arc::new(Template::parse(words).ok()?);
        let mut values = values.into_iter();
        let record = Record::new(values.next()?);
        template.job(number, values.fold(record, Record::and)).ok()
    });
    prop_oneof![word().prop_map(Job::new), word().prop_map(Job::shell), from_template]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn any_job_is_read_back(
        (job, args, dir, env) in (
            command(), vec(word(), 0..3), option::of(word()), btree_map(word(), option::of(word()), 0..3),
        ),
        (stdin, after, name) in (0..4, vec(".{0,4}", 0..3), option::of(".{0,4}")),
        input in vec(any::<u8>(), 0..9),
        (cpus, mem, tokens) in (
            option::of(any::<u32>()), option::of(any::<u64>()), btree_map(".{0,3}", any::<u32>(), 0..2),
        ),
        (timeout, retries, once) in (
            option::of((any::<u64>(), 0..1_000_000_000_u32)), option::of(any::<u32>()), option::of(any::<bool>()),
        ),
    ) {
        let mut job = job.args(args);
        job = env.into_iter().fold(job, |job, (name, value)| match value {
            Some(value) => job.env(name, value),
            None => job.env_remove(name),
        });
        job = after.into_iter().fold(job, Job::after);
        job = tokens.into_iter().fold(job, |job, (name, count)| job.resource(name, count));
        job = match stdin {
            1 => job.stdin(JobStdin::bytes(input)),
            2 => job.stdin(JobStdin::file("in put")),
            _ => job,
        };
        if let Some(dir) = dir { job = job.current_dir(dir); }
        if let Some(name) = name { job = job.name(name); }
        if let Some(cpus) = cpus { job = job.cpus(cpus); }
        if let Some(mem) = mem { job = job.mem_bytes(mem); }
        if let Some((secs, nanos)) = timeout { job = job.timeout(Duration::new(secs, nanos)); }
        if let Some(retries) = retries { job = job.retries(retries); }
        if let Some(once) = once { job = job.once(once); }
        check(&job);
    }
}
