//! Tests of jobs and their setters, and of quoting, with the real `sh`. `source::tests` reads quoted lines back with
//! our own rules.

use std::ffi::OsString;

use super::*;

fn argv(job: &Job) -> Vec<OsString> {
    job.argv(1).unwrap()
}

#[test]
fn words_are_kept_as_they_are() {
    let job = Job::new("printf").arg("{}").args(["a b", "", "$x"]);
    assert_eq!(argv(&job), ["printf", "{}", "a b", "", "$x"]);
    assert!(!job.is_shell());
}

#[test]
fn a_shell_line_is_one_word_and_arguments_follow_it() {
    let job = Job::shell("echo $1; true");
    assert!(job.is_shell());
    assert_eq!(argv(&job), ["sh", "-c", "echo $1; true"]);
    assert_eq!(argv(&job.arg("a b")), ["sh", "-c", "echo $1; true", "sh", "a b"]);
}

#[test]
fn arguments_follow_those_of_a_template() {
    let template = Arc::new(Template::parse(["cp", "{}"]).unwrap());
    let job = template.job(1, Record::new("a")).unwrap().arg("{}");
    assert_eq!(argv(&job), ["cp", "a", "{}"]);
}

#[test]
fn every_setting_can_be_read_back() {
    let second = Duration::from_secs(1);
    let job = Job::new("true")
        .name("n")
        .current_dir("/tmp")
        .envs([("B", "1"), ("A", "2")])
        .env_remove("C")
        .env("B", "3")
        .stdin(JobStdin::bytes("in"))
        .after("x")
        .after("y")
        .cpus(2)
        .mem_bytes(5)
        .resource("link", 2)
        .timeout(second)
        .retries(3)
        .once(true);
    assert_eq!(job.get_name(), Some("n"));
    assert_eq!(job.get_current_dir(), Some(Path::new("/tmp")));
    let env: Vec<_> = job.get_envs().collect();
    let text = |text: &'static str| OsStr::new(text);
    let expected = [(text("A"), Some(text("2"))), (text("B"), Some(text("3"))), (text("C"), None)];
    assert_eq!(env, expected);
    assert_eq!(job.get_stdin(), &JobStdin::Bytes(b"in".to_vec()));
    assert_eq!(job.get_after(), ["x", "y"]);
    assert_eq!((job.get_resources().cpus, job.get_resources().mem_bytes), (2, Some(5)));
    assert_eq!(job.get_resources().named.get("link"), Some(&2));
    assert_eq!((job.get_timeout(), job.get_retries()), (Some(second), Some(3)));
    assert_eq!(job.get_once(), Some(true));
}

#[test]
fn a_job_without_settings_has_the_defaults() {
    let job = Job::new("true");
    assert_eq!((job.get_name(), job.get_current_dir()), (None, None));
    assert_eq!((job.get_envs().len(), job.get_after().len()), (0, 0));
    assert_eq!(job.get_stdin(), &JobStdin::Null);
    assert_eq!(job.get_resources(), &Resources::default());
    assert_eq!((job.get_timeout(), job.get_retries(), job.get_once()), (None, None, None));
    assert_eq!(job.get_line(), None);
    assert_eq!(job.clone().cpus(0).resource("t", 1).resource("t", 0), job);
}

#[test]
fn a_line_is_no_difference_between_jobs() {
    let job = Job::new("true").on_line(7);
    assert_eq!(job.get_line(), Some(7));
    assert_eq!(job, Job::new("true"));
    assert_ne!(job, Job::new("true").arg(""));
}

#[test]
fn jobs_of_a_template_share_it() {
    let template = Arc::new(Template::parse(["x".repeat(1000), "{}".to_owned()]).unwrap());
    let jobs: Vec<Job> =
        (1..=100).map(|number| template.job(number, Record::new("v")).unwrap()).collect();
    assert_eq!(Arc::strong_count(&template), 101);
    // Fits in two cache lines, so that a million jobs fit in the memory that they may take.
    assert!(size_of::<Job>() <= 128, "{}", size_of::<Job>());
    drop(jobs);
    assert_eq!(Arc::strong_count(&template), 1);
}

// Tests of quoting, with the real `sh`. `source::tests` reads quoted lines back with our own rules.

fn quoted(words: &[&str]) -> String {
    let words: Vec<OsString> = words.iter().map(OsString::from).collect();
    String::from_utf8(shell_quoted(&words)).unwrap()
}

#[test]
fn plain_words_stay_and_others_are_quoted() {
    assert_eq!(quoted(&["gzip", "-9", "a/b.c", "k=v"]), "gzip -9 a/b.c k=v");
    assert_eq!(
        quoted(&["a b", "", "it's", "x*", "\n"]),
        r"'a b' '' 'it'\''s' 'x*' '".to_owned() + "\n'"
    );
    assert_eq!(quoted(&["~", "#", "a{b,c}", "\u{e9}"]), "'~' '#' 'a{b,c}' '\u{e9}'");
}

#[test]
fn a_first_word_with_a_meaning_is_quoted() {
    assert_eq!(quoted(&["A=1", "A=1"]), "'A=1' A=1");
    assert_eq!(quoted(&["if", "if"]), "'if' if");
    assert_eq!(quoted(&[]), "");
}

#[cfg(unix)]
mod sh {
    use std::process::{Command, Output};

    use proptest::prelude::*;

    use super::*;

    fn sh(line: Vec<u8>) -> Output {
        let line = String::from_utf8(line).unwrap();
        let mut sh = Command::new("/bin/sh");
        sh.args(["-c", &line]).env("PATH", "").output().unwrap()
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(300))]
        #[test]
        fn sh_reads_the_same_words(words in words()) {
            let mut line = br"printf '%s\0' ".to_vec();
            line.extend(shell_quoted(&words));
            let output = sh(line);
            prop_assert!(output.status.success());
            let expected: Vec<u8> =
                words.iter().flat_map(|word| [word.as_encoded_bytes(), b"\0"].concat()).collect();
            prop_assert_eq!(output.stdout, expected);
        }
    }

    #[test]
    fn sh_takes_every_first_word_for_a_command() {
        let others = [&b"A=b"[..], b"!", b"{", b"}", b"[[", b"#a", b"~"];
        for word in super::RESERVED.iter().chain(&others) {
            let word = String::from_utf8(word.to_vec()).unwrap();
            let output = sh(shell_quoted(&[word.clone().into(), "x".into()]));
            // Not found. A reserved word is a syntax error, and an assignment or a comment a success.
            assert_eq!(output.status.code(), Some(127), "{word}: {output:?}");
        }
    }
}

/// Returns words that a shell could misread.
#[cfg(unix)]
fn words() -> impl proptest::strategy::Strategy<Value = Vec<OsString>> {
    use proptest::prelude::*;
    let word = prop_oneof!["[ -~\\t\\n]{0,8}", "['\"\\\\ \\n$`a]{0,8}", "\\PC{0,4}"];
    prop::collection::vec(word.prop_map(OsString::from), 1..6)
}
