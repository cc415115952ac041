//! The output of jobs.

use std::io::{BufRead as _, BufReader};
use std::process::Stdio;

use super::super::Watchdog;
use super::{Place, err, out, sorted};

#[test]
fn tags_name_the_job_of_each_line() {
    let place = Place::new();
    let words = ["--", "sh", "-c", "echo x; echo {}y; echo e >&2", ":::", "a", "b c"];
    for mode in [&["--tag"][..], &["--tag", "--line-buffer"], &["--tag", "--keep-order"]] {
        let output = place.batch(&[mode, &["--quiet"], &words[..]].concat());
        assert_eq!(sorted(out(&output)), ["a\tay", "a\tx", "b c\tb cy", "b c\tx"], "{mode:?}");
        assert_eq!(sorted(err(&output)), ["a\te", "b c\te"], "{mode:?}");
    }
}

#[test]
fn lines_are_printed_as_they_arrive_if_asked() {
    let _watchdog = Watchdog::start(120);
    let place = Place::new();
    // No job ends before the first line of each has been printed.
    let script = "echo {}1; until [ -e end ]; do sleep 0.05; done; echo {}2";
    let args = ["batch", "--quiet", "-j2", "--line-buffer", "--", "sh", "-c", script, ":::", "a"];
    let mut tool = place.tool(&[&args[..], &["b"]].concat());
    let mut tool = tool.stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(tool.stdout.take().unwrap()).lines().map(Result::unwrap);
    let mut first = [lines.next().unwrap(), lines.next().unwrap()];
    first.sort();
    assert_eq!(first, ["a1", "b1"]);
    place.write("end", "");
    let mut rest: Vec<String> = lines.collect();
    rest.sort();
    assert_eq!(rest, ["a2", "b2"]);
    assert!(tool.wait().unwrap().success());
}

#[test]
fn each_job_has_a_folder_in_the_output_directory() {
    let place = Place::new();
    let script = "echo out{}; echo err{} >&2; exit {}";
    let args = ["--output-dir", "all/out", "--", "sh", "-c", script, ":::", "0", "7"];
    assert_eq!(place.batch(&args).status.code(), Some(123));
    let folders = std::fs::read_dir(place.path("all/out")).unwrap();
    let mut folders: Vec<_> = folders.map(|entry| entry.unwrap().path()).collect();
    folders.sort();
    assert_eq!(folders.len(), 2, "{folders:?}");
    for (folder, code) in folders.iter().zip(["0", "7"]) {
        let read = |name: &str| std::fs::read_to_string(folder.join(name)).unwrap();
        assert_eq!(read("stdout"), format!("out{code}\n"));
        assert_eq!(read("stderr"), format!("err{code}\n"));
        let facts: serde_json::Value = serde_json::from_str(&read("job.json")).unwrap();
        assert_eq!(facts["exit_code"].to_string(), code);
        assert_eq!(facts["outcome"], "exited");
    }
}

#[test]
fn output_beyond_the_cap_is_left_out_and_does_not_stop_the_job() {
    let place = Place::new();
    let script = "seq 100000; seq 100000 >&2; touch ended";
    let output =
        place.batch(&["--quiet", "--max-output", "10", "--", "sh", "-c", script, ":::", "1"]);
    assert_eq!(output.status.code(), Some(0), "{}", err(&output));
    assert_eq!((out(&output), err(&output)), ("1\n2\n3\n4\n5\n", "1\n2\n3\n4\n5\n"));
    assert!(place.path("ended").exists());
}
