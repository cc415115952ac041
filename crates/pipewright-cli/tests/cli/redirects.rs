//! Redirects: files, and names that are none.

use super::{Place, err, out};

#[test]
fn inherit_null_and_a_dash_are_no_files() {
    let place = Place::new();
    let script = "echo out; echo err >&2";
    for (name, shown) in
        [("inherit", ["out\n", "err\n"]), ("-", ["out\n", "err\n"]), ("null", ["", ""])]
    {
        for more in [&[][..], &["--tee"], &["--limit", "100"], &["--append"]] {
            let streams = ["--stdout", name, "--stderr", name];
            let words = [&["run"], &streams[..], more, &["--", "sh", "-c", script]].concat();
            let output = place.tool(&words).output().unwrap();
            assert_eq!([out(&output), err(&output)], shown, "{words:?}");
            assert!(!place.path(name).exists(), "{words:?}");
        }
    }
    let mut tool = place.tool(&["run", "--stdin", "-", "--", "cat"]);
    place.write("in", "input");
    tool.stdin(std::fs::File::open(place.path("in")).unwrap());
    assert_eq!(out(&tool.output().unwrap()), "input");
    // A file of that name has a path.
    let output = place.tool(&["run", "--stdout", "./null", "--", "echo", "hi"]).output().unwrap();
    assert_eq!((out(&output), place.read("null").as_str()), ("", "hi\n"));
}

#[test]
fn one_file_for_both_streams_has_all_lines_in_order() {
    let script = "for i in 1 2 3; do echo out $i; echo err $i >&2; done";
    let all = "out 1\nerr 1\nout 2\nerr 2\nout 3\nerr 3\n";
    for stderr in ["both", "./both", "link"] {
        for more in [&[][..], &["--tee"], &["--limit", "100"], &["--append"]] {
            let place = Place::new();
            std::os::unix::fs::symlink("both", place.path("link")).unwrap();
            let streams = ["--stdout", "both", "--stderr", stderr];
            let words = [&["run"], &streams[..], more, &["--", "sh", "-c", script]].concat();
            let output = place.tool(&words).output().unwrap();
            assert_eq!(err(&output), "", "{words:?}");
            assert_eq!(place.read("both"), all, "{words:?}");
        }
    }
    // A device has nothing to overwrite, and its streams stay two.
    let place = Place::new();
    let streams = ["--stdout", "/dev/null", "--stderr", "/dev/null", "--limit", "9", "--json"];
    let words = [&["run"], &streams[..], &["--", "sh", "-c", "echo hi"]].concat();
    let output = place.tool(&words).output().unwrap();
    assert!(out(&output).contains("\"stderr_bytes\":0"), "{}", out(&output));
}

#[test]
fn no_file_is_read_and_written_nor_written_twice() {
    for (options, written, other) in [
        (&["--stdin", "x", "--stdout", "./x"][..], "--stdout", "--stdin"),
        (&["--stdin", "x", "--stderr", "x"], "--stderr", "--stdin"),
        (&["--stdin", "x", "--report", "x"], "--report", "--stdin"),
        (&["--env-file", "x", "--stdout", "x"], "--stdout", "--env-file"),
        (&["--pty", "--record", "x", "--stdin", "x"], "--record", "--stdin"),
        (&["--pty", "--record", "x", "--stderr", "x"], "--record", "--stderr"),
        (&["--pty", "--record", "new", "--stderr", "new"], "--record", "--stderr"),
        (&["--pty", "--record", "x", "--report", "x"], "--report", "--record"),
    ] {
        let place = Place::new();
        place.write("x", "A=before\n");
        let words = [&["run"], options, &["--", "touch", "mark"]].concat();
        let output = place.tool(&words).output().unwrap();
        let words = format!("pipewright: {written} would overwrite ");
        assert!(err(&output).starts_with(&words), "{options:?}: {}", err(&output));
        assert!(err(&output).contains(&format!("the file of {other};")), "{}", err(&output));
        assert_eq!(output.status.code(), Some(125));
        assert_eq!((place.read("x").as_str(), place.path("mark").exists()), ("A=before\n", false));
    }
}

#[test]
fn a_report_does_not_overwrite_the_output() {
    for stream in ["--stdout", "--stderr"] {
        let place = Place::new();
        place.write("x", "before\n");
        let words = ["run", stream, "x", "--report", "./x", "--", "touch", "mark"];
        let output = place.tool(&words).output().unwrap();
        let error = format!(
            "pipewright: --report would overwrite \"x\", the file of {stream}; choose another file\n"
        );
        assert_eq!((err(&output), output.status.code()), (&error[..], Some(125)));
        assert_eq!((place.read("x").as_str(), place.path("mark").exists()), ("before\n", false));
    }
}
