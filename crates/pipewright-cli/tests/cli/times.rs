//! Times: timeouts, delays and the ways to write them.

use super::{err, out, pipewright, run_sh};

/// As in `timeout` of coreutils. It was a race: the command could win.
#[test]
fn a_timeout_of_zero_is_none() {
    for option in ["--timeout", "--idle-timeout"] {
        let output = run_sh(&[option, "0"], "sleep 0.1; echo done");
        assert_eq!((out(&output), output.status.code()), ("done\n", Some(0)), "{option}");
        let words = ["pipe", option, "0s", "--", "sh", "-c", "sleep 0.1; echo done", "|", "cat"];
        let output = pipewright(&words).output().unwrap();
        assert_eq!((out(&output), output.status.code()), ("done\n", Some(0)), "{option}");
    }
    for option in ["--timeout", "--idle-timeout", "--batch-timeout"] {
        let words =
            ["batch", "--quiet", option, "0", "--", "sh", "-c", "sleep 0.1; echo $0", ":::", "a"];
        let output = pipewright(&words).output().unwrap();
        assert_eq!((out(&output), err(&output)), ("a\n", ""), "{option}");
    }
}
