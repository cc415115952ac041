//! Redirects: files, and names that are none.

use super::place::Place;
use super::{err, out};

#[test]
fn inherit_null_and_a_dash_are_no_files() {
    let place = Place::new();
    let script = "echo out; echo err >&2";
    for (name, shown) in [("inherit", ["out\n", "err\n"]), ("-", ["out\n", "err\n"]), ("null", ["", ""])] {
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
