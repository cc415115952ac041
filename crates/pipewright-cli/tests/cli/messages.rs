//! Messages about wrong values and commands that cannot be started.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use super::{Place, err, pipewright};

#[test]
fn a_wrong_value_is_an_error_about_the_value() {
    let duration = "is not a duration: write 200ms, 1.5s, 2m, 1h30m or 1d";
    let count = "is not a whole number: write 0, 1, 2 ...";
    let size = "is not a size: write 4096, 64k, 1MiB or 2GB";
    for command in ["run", "batch"] {
        for (option, value, words) in [
            ("--timeout", "-1", duration),
            ("--timeout", "-1s", duration),
            ("--timeout", "--quiet", duration),
            ("--idle-timeout", "-1", duration),
            ("--kill-grace", "-5", duration),
            ("--retry-delay", "-1", duration),
            ("--retries", "abc", count),
            ("--retries", "-1", count),
            ("--retries", "1.5", count),
            ("--limit", "-1", size),
            ("--limit", "1 KiB", size),
        ] {
            let output = pipewright(&[command, option, value, "--", "true"]).output().unwrap();
            let quoted = format!(": \"{value}\" {words}\n");
            assert!(err(&output).ends_with(&quoted), "{command} {option}: {}", err(&output));
            assert_eq!(output.status.code(), Some(125), "{command} {option}");
        }
    }
}

#[test]
fn a_misspelt_option_is_corrected() {
    for (command, typed, meant) in [
        ("run", "--timout", "--timeout"),
        ("pipe", "--timout", "--timeout"),
        ("batch", "--timout", "--timeout"),
        ("run", "--timeot=5", "--timeout"),
        ("run", "--retires", "--retries"),
        ("run", "--stdot", "--stdout"),
    ] {
        let output = pipewright(&[command, typed, "5", "--", "true"]).output().unwrap();
        let words = format!("'{meant}'");
        assert!(err(&output).contains(&words), "{command} {typed}: {}", err(&output));
        assert_eq!(output.status.code(), Some(125));
    }
}

#[test]
fn an_option_before_the_command_is_explained() {
    let output = pipewright(&["--timout", "5", "true"]).output().unwrap();
    let words = "'--timout' found; try --help; options follow a command, as in pipewright run --timeout 5s -- CMD\n";
    assert!(err(&output).ends_with(words), "{}", err(&output));
    assert_eq!(output.status.code(), Some(125));
}

#[test]
fn durations_and_sizes_are_read_as_people_write_them() {
    for text in ["1min", "1h30m", ".5", "500us", "1w", "2.34e5"] {
        let output = pipewright(&["run", "--timeout", text, "--", "true"]).output().unwrap();
        // 500 microseconds are too short for some starts.
        let is_over = text == "500us" && output.status.code() == Some(124);
        assert!(output.status.success() || is_over, "{text}: {}", err(&output));
    }
    for text in ["1KiB", "2.34e5", ".5k", "1kib"] {
        let output = pipewright(&["run", "--limit", text, "--", "true"]).output().unwrap();
        assert_eq!((err(&output), output.status.code()), ("", Some(0)), "{text}");
    }
}

#[test]
fn a_script_without_its_first_line_is_explained() {
    let place = Place::new();
    place.write("script", "echo hi\n");
    fs::set_permissions(place.path("script"), fs::Permissions::from_mode(0o755)).unwrap();
    let output = place.tool(&["run", "--", "./script"]).output().unwrap();
    assert_eq!(output.status.code(), Some(126));
    assert!(err(&output).contains("the first line of a script"), "{}", err(&output));
    assert!(err(&output).contains("as in #!/bin/sh"), "{}", err(&output));
}

#[test]
fn a_long_path_is_cut_and_has_the_documented_code() {
    let place = Place::new();
    for (command, code) in [
        (format!("./{}", "x".repeat(300)), 126),
        (format!("/{}", "x".repeat(300)), 126),
        (format!("./{}", "x/".repeat(2500)), 126),
        ("x".repeat(5000), 126),
        ("x".repeat(300), 126),
    ] {
        for tool in ["run", "pipe"] {
            let output = place.tool(&[tool, "--", &command]).output().unwrap();
            let start = &command[..10];
            assert_eq!(output.status.code(), Some(code), "{tool} {start}: {}", err(&output));
            assert!(err(&output).len() < 700, "{tool} {start}: {}", err(&output).len());
        }
    }
    for words in [
        &["run", "--stdin", &format!("/{}", "x".repeat(5000)), "--", "cat"][..],
        &["run", "--report", &format!("/{}", "x".repeat(5000)), "--", "true"],
        &["run", "--cwd", &format!("/{}", "x".repeat(5000)), "--", "true"],
        &["run", "--timeout", &"x".repeat(5000), "--", "true"],
        &[&format!("--{}", "x".repeat(5000))],
    ] {
        let output = place.tool(words).output().unwrap();
        assert_eq!(output.status.code(), Some(125), "{}", err(&output));
        assert!(err(&output).len() < 700, "{}", err(&output));
    }
}
