//! The memory of jobs: reserved, limited, and more of it after a lack of memory.

use super::{Place, err, out, pace};

/// A job that needs some 40 MiB and prints the number of bytes that it has read.
const HUNGRY: &str = "head -c 40M /dev/zero | tail | wc -c";

/// Returns true, and reports it, if this machine cannot limit the memory of a job.
fn cannot_limit(messages: &str) -> bool {
    let note = messages.lines().find(|line| line.contains("reserved, and not limited"));
    note.inspect(|note| pace::skipped(pace::Need::TreeLimits, note)).is_some()
}

#[test]
fn a_job_that_runs_out_of_memory_gets_more_and_keeps_its_retries() {
    let place = Place::new();
    let jobs = format!(r#"{{"shell":"{HUNGRY}","mem":"16M..256M","retries":0}}"#);
    place.write("jobs.jsonl", &jobs);
    let script = "\"$PW\" batch --jsonl --from jobs.jsonl --log log.db --progress none";
    let output = place.sh(script);
    if cannot_limit(err(&output)) {
        return;
    }
    assert_eq!(output.status.code(), Some(0), "{}", err(&output));
    assert_eq!(out(&output).trim(), "41943040");
    let notes: Vec<&str> = err(&output).lines().filter(|it| it.contains("again with")).collect();
    let bytes = |mib: u64| format!("job 1: out of memory; again with {} bytes", mib << 20);
    assert!(notes.len() >= 2, "{notes:?}");
    assert!(notes[0].ends_with(&bytes(32)) && notes[1].ends_with(&bytes(64)), "{notes:?}");
    let query = "select outcome from attempts order by attempt";
    if let Some(rows) = place.rows("log.db", query) {
        assert_eq!(rows.last().map(String::as_str), Some("exited"));
        assert!(rows[..rows.len() - 1].iter().all(|outcome| outcome == "out_of_memory"));
        assert_eq!(rows.len(), notes.len() + 1);
    }
}

#[test]
fn a_job_over_its_memory_fails_as_out_of_memory_though_it_exits_with_0() {
    let place = Place::new();
    let jobs = format!(
        "{{\"shell\":\"{HUNGRY}\",\"mem\":\"16M\"}}\n{{\"shell\":\"echo fine\",\"mem\":\"16M\"}}"
    );
    place.write("jobs.jsonl", &jobs);
    let output = place.sh("\"$PW\" batch --jsonl --from jobs.jsonl --keep-order --progress none");
    if cannot_limit(err(&output)) {
        return;
    }
    assert_eq!(output.status.code(), Some(123), "{}", err(&output));
    assert!(err(&output).contains("job 1 failed: out of memory"), "{}", err(&output));
    assert!(out(&output).ends_with("fine\n"), "{}", out(&output));
}

#[test]
fn jobs_that_do_not_fit_into_the_free_memory_together_run_one_after_the_other() {
    let meminfo = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let free = meminfo.lines().find_map(|line| line.strip_prefix("MemAvailable:"));
    let kib = free.and_then(|free| free.split_whitespace().next()?.parse::<u64>().ok());
    let Some(kib) = kib else {
        return pace::skipped(
            pace::Need::File("/proc/meminfo"),
            "this system does not say how much is free",
        );
    };
    let place = Place::new();
    // Fails if another job runs.
    let script = "mkdir running && sleep 0.2 && rmdir running";
    let job = format!("{{\"shell\":\"{script}\",\"mem\":\"{}\"}}\n", kib * 6 / 10 * 1024);
    place.write("jobs.jsonl", &job.repeat(3));
    let output = place.sh("\"$PW\" batch -j3 --jsonl --from jobs.jsonl --progress none");
    assert_eq!(output.status.code(), Some(0), "{}", err(&output));
}

#[test]
fn a_range_of_memory_that_makes_no_sense_is_refused() {
    let place = Place::new();
    for mem in ["2G..1G", "2G..", "..2G", "x..2G"] {
        let output = place.batch_of(&format!(r#"{{"shell":"true","mem":"{mem}"}}"#), &["--jsonl"]);
        super::refused(&output, &["\"mem\"", "2G..16G"]);
    }
}

#[test]
fn memory_is_learned_from_the_log_of_an_earlier_run() {
    let place = Place::new();
    let script = "\"$PW\" batch -k --log monday.db --progress none -- echo ::: a b && \
                  \"$PW\" batch --learn monday.db --log tuesday.db --progress none -k -- echo ::: a b c";
    let output = place.sh(script);
    assert_eq!((output.status.code(), out(&output)), (Some(0), "a\nb\na\nb\nc\n"), "{output:?}");
    let output = place.batch_of("a", &["--learn", "no.db", "--", "echo"]);
    super::refused(&output, &["\"", "no.db"]);
}
