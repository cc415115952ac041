//! The output of jobs: together, in order if asked, complete, unchanged.

use std::io::{BufRead as _, BufReader};
use std::process::Stdio;

use super::super::Watchdog;
use super::{Place, err, out};

/// Prints three lines slowly enough that jobs would mix them.
const SCRIPT: &str = "for i in 1 2 3; do echo {}$i; sleep 0.02; done";

#[test]
fn the_output_of_a_job_stays_together_and_in_order_if_asked() {
    let _watchdog = Watchdog::start(120);
    let place = Place::new();
    let output = place.batch(&["-j3", "--", "sh", "-c", SCRIPT, ":::", "a", "b", "c"]);
    let lines: Vec<&str> = out(&output).lines().collect();
    for group in lines.chunks(3) {
        let name = &group[0][..1];
        assert_eq!(group, ["1", "2", "3"].map(|i| format!("{name}{i}")), "{lines:?}");
    }
    assert_eq!(lines.len(), 9);
    // The first job ends last.
    let script =
        "if [ {} = 1 ]; then until [ -e end ]; do sleep 0.05; done; else touch end; fi; echo {}";
    let output = place.batch(&["-j2", "--keep-order", "--", "sh", "-c", script, ":::", "1", "2"]);
    assert_eq!(out(&output), "1\n2\n");
    // Without the option, a job is printed when it has ended.
    std::fs::remove_file(place.path("end")).unwrap();
    let script = "if [ {} = 1 ]; then until [ -e end ]; do sleep 0.05; done; fi; echo {}";
    let words = ["batch", "--quiet", "-j2", "--", "sh", "-c", script, ":::", "1", "2"];
    let mut tool = place.tool(&words).stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(tool.stdout.take().unwrap()).lines().map(Result::unwrap);
    assert_eq!(lines.next().unwrap(), "2");
    place.write("end", "");
    assert_eq!(lines.collect::<Vec<_>>(), ["1"]);
    assert!(tool.wait().unwrap().success());
}

#[test]
fn the_output_before_a_kill_is_printed_and_bytes_are_not_changed() {
    let place = Place::new();
    let script = r"printf 'a\377\376b'; kill -9 $$";
    let output = place.batch(&["--", "sh", "-c", script, ":::", "1"]);
    assert_eq!(output.stdout, b"a\xff\xfeb");
    let silent = place.batch(&["--no-output", "--", "echo", ":::", "1"]);
    assert_eq!((out(&silent), silent.status.code()), ("", Some(0)));
}

#[test]
fn large_outputs_of_many_jobs_arrive_whole_in_every_mode() {
    let _watchdog = Watchdog::start(300);
    let place = Place::new();
    // Together they are more than what is kept in memory. Each line names its job and has its number.
    let script = "i=0; while [ $i -lt 20 ]; do seq -f 'job {} %.0f' 1 20000; i=$((i+1)); done";
    let mut words = vec!["--", "sh", "-c", script, ":::"];
    words.extend(["1", "2", "3", "4", "5", "6", "7", "8"]);
    for options in [&["-j8"][..], &["-j8", "--keep-order"], &["-j8", "--line-buffer"]] {
        let output = place.batch(&[options, &["--quiet"], &words[..]].concat());
        assert_eq!(output.status.code(), Some(0), "{options:?}: {}", err(&output));
        let mut next = [0_u64; 9];
        let mut changes = 0;
        let mut last = 0;
        for line in out(&output).lines() {
            let mut parts = line.split(' ').skip(1).map(|part| part.parse::<u64>().unwrap());
            let (job, number) = (parts.next().unwrap(), parts.next().unwrap());
            let expected = next[job as usize] % 20_000 + 1;
            assert_eq!(number, expected, "{options:?}: job {job}");
            next[job as usize] += 1;
            changes += usize::from(job != last);
            last = job;
        }
        assert_eq!(next[1..], [400_000; 8], "{options:?}");
        let is_grouped = !options.contains(&"--line-buffer");
        assert!(!is_grouped || changes == 8, "{options:?}: {changes} groups");
    }
}
