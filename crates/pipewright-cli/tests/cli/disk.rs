//! `pipewright disk`: a summary, the tests in words, JSON, an HTML page; failures on one line.

use serde_json::Value;

use super::{err, out, pipewright};

fn folder() -> tempfile::TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap()
}

#[test]
fn the_output_is_a_summary_and_each_test_in_words() {
    let folder = folder();
    let path = folder.path().join("data.bin");
    std::fs::write(&path, vec![1; 1 << 20]).unwrap();
    let name = path.display().to_string();
    let output = pipewright(&["disk", &name, "--requests", "30", "--bs", "16k"]).output().unwrap();
    assert_eq!((output.status.code(), err(&output)), (Some(0), ""));
    let text = out(&output);
    let first = text.lines().next().unwrap();
    assert!(first.starts_with(&format!("{name}: ")) && first.ends_with('.'), "{first}");
    assert_eq!(text.matches("\nTest ").count(), 4, "{text}");
    assert!(text.contains("30 requests issued and completed in "), "{text}");
    assert!(text.contains("Operations completed "), "{text}");
    assert!(text.contains("reads, all requested at once\n"), "{text}");
    assert!(text.contains("reads, one after the other\n"), "{text}");
    assert!(text.contains("SYNCHRONOUS, AS REQUESTED"), "{text}");

    let only = ["disk", &name, "--requests", "30", "--bs", "16k", "--sync", "--direct"];
    let output = pipewright(&only).output().unwrap();
    assert_eq!(out(&output).matches("\nTest ").count(), 1, "{}", out(&output));
}

#[test]
fn the_json_has_every_documented_field() {
    let folder = folder();
    let name = folder.path().display().to_string();
    let output =
        pipewright(&["disk", "--json", "--requests", "20", "--bs", "16k", &name]).output().unwrap();
    assert_eq!((output.status.code(), err(&output)), (Some(0), ""));
    assert_eq!(out(&output).lines().count(), 1);
    let report: Value = serde_json::from_str(out(&output)).unwrap();
    let names =
        |value: &Value| -> Vec<String> { value.as_object().unwrap().keys().cloned().collect() };
    assert_eq!(
        names(&report),
        [
            "backend",
            "block_bytes",
            "filesystem",
            "path",
            "refused",
            "requests",
            "schema",
            "sentence",
            "tests",
            "unjudged"
        ]
    );
    assert_eq!(report["schema"], "pipewright.disk/1");
    assert_eq!(report["unjudged"].is_null(), cfg!(target_os = "linux"));
    let tests = report["tests"].as_array().unwrap();
    assert_eq!(tests.len(), 13);
    let measured = tests.iter().find(|test| test["outcome"] == "measured").unwrap();
    assert_eq!(
        names(measured),
        [
            "asynchronous",
            "bytes",
            "classes",
            "completed_seconds",
            "direct",
            "free_share",
            "kernel_workers",
            "message",
            "out_of_order",
            "outcome",
            "queued_seconds",
            "reasons",
            "requests",
            "test",
            "verdict",
            "work"
        ]
    );
    let classes = measured["classes"].as_object().unwrap();
    assert_eq!(classes.len(), 6);
    let classified: u64 = classes.values().map(|count| count.as_u64().unwrap()).sum();
    assert!(classified <= 20);
    let reasons = tests.iter().filter_map(|test| test["reasons"].as_array()).flatten();
    for reason in reasons {
        assert_eq!(
            names(reason),
            [
                "evidence",
                "message",
                "reason",
                "remedy",
                "remedy_completed_seconds",
                "remedy_free_share",
                "remedy_message",
                "remedy_verdict"
            ]
        );
    }
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0, "its own files are gone");
}

#[test]
fn the_page_is_self_contained() {
    let folder = folder();
    let page = folder.path().join("page.html").display().to_string();
    let name = folder.path().display().to_string();
    let words = ["disk", &name, "--requests", "10", "--bs", "4k", "--html", &page];
    let output = pipewright(&words).output().unwrap();
    assert_eq!((output.status.code(), err(&output)), (Some(0), ""));
    let text = std::fs::read_to_string(&page).unwrap();
    assert!(text.starts_with("<!doctype html>") && text.contains("</table>"), "{text}");
    // A picture of the times in the words of the tool's model, the classes as a bar, and a layout for narrow screens.
    for part in [
        "<span>queued</span>",
        "<span>completed</span>",
        "requests ",
        "class=\"why\"",
        "max-width:640px",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    let measured = text.matches("<span>queued</span>").count();
    assert!(measured > 0 && text.matches("class=\"mark ").count() == measured, "{text}");
    for outside in ["http://", "https://", "<script", "src="] {
        assert!(!text.contains(outside), "{outside}");
    }
}

#[test]
fn a_page_never_overwrites_a_tested_file() {
    let folder = folder();
    let path = folder.path().join("data.bin");
    std::fs::write(&path, vec![1; 1 << 20]).unwrap();
    let name = path.display().to_string();
    // Under another spelling of the path too.
    let other = folder.path().join(".").join("data.bin").display().to_string();
    let output = pipewright(&["disk", &name, "--html", &other]).output().unwrap();
    assert_eq!((output.status.code(), out(&output)), (Some(125), ""));
    assert!(err(&output).starts_with("pipewright: --html would overwrite "), "{}", err(&output));
    assert_eq!(std::fs::read(&path).unwrap().len(), 1 << 20);
    if cfg!(unix) {
        let link = folder.path().join("hard link");
        std::fs::hard_link(&path, &link).unwrap();
        let link = link.display().to_string();
        let output = pipewright(&["disk", &name, "--html", &link]).output().unwrap();
        assert_eq!(output.status.code(), Some(125));
        assert_eq!(std::fs::read(&path).unwrap().len(), 1 << 20);
    }
}

#[test]
fn without_a_diagnosis_no_page_is_written_and_an_older_one_stays() {
    let folder = folder();
    let place = |name: &str| folder.path().join(name);
    std::fs::write(place("old.html"), "older").unwrap();
    for page in ["old.html", "new.html"] {
        let page = place(page).display().to_string();
        let output = pipewright(&["disk", "no/such/file", "--html", &page]).output().unwrap();
        assert_eq!(output.status.code(), Some(125));
        assert_eq!(err(&output).lines().count(), 1, "{}", err(&output));
    }
    assert_eq!(std::fs::read_to_string(place("old.html")).unwrap(), "older");
    assert!(!place("new.html").exists());
}

#[cfg(unix)]
#[test]
fn control_characters_in_a_name_are_escaped() {
    let folder = folder();
    let path = folder.path().join("a\nb\u{1b}[31m");
    std::fs::write(&path, vec![1; 1 << 16]).unwrap();
    let name = path.display().to_string();
    let output = pipewright(&["disk", "--requests", "5", &name]).output().unwrap();
    assert_eq!(output.status.code(), Some(0));
    let first = out(&output).lines().next().unwrap();
    assert!(first.contains("a\\nb\\u{1b}[31m: ") && first.ends_with('.'), "{first}");
    assert!(!out(&output).contains('\u{1b}'));
}

#[cfg(target_os = "linux")]
#[test]
fn limits_of_the_process_are_errors_on_one_line() {
    let folder = folder();
    let program = env!("CARGO_BIN_EXE_pipewright");
    for (limit, words, ends) in [
        // The signal SIGXFSZ would kill it.
        ("-f 100", "--requests 30 --bs 64k", "too large (os error 27)\n"),
        ("-v 120000", "--requests 30000 --bs 4k", "or the block size\n"),
    ] {
        let script = format!("ulimit {limit}; exec \"$0\" disk {words} \"$1\"");
        let output = std::process::Command::new("sh")
            .args(["-c", &script, program])
            .arg(folder.path())
            .output()
            .unwrap();
        assert_eq!((output.status.code(), out(&output)), (Some(125), ""), "{limit}");
        assert_eq!(err(&output).lines().count(), 1, "{}", err(&output));
        assert!(err(&output).ends_with(ends), "{}", err(&output));
    }
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
}

#[cfg(unix)]
#[test]
fn a_reader_that_has_gone_is_no_failure_and_a_full_disk_is_one() {
    use std::process::Stdio;
    let folder = folder();
    let name = folder.path().display().to_string();
    let words = ["disk", &name, "--requests", "5", "--bs", "4k", "--sync"];
    let (reader, writer) = rustix::pipe::pipe().unwrap();
    drop(reader);
    let output = pipewright(&words).stdout(writer).output().unwrap();
    assert_eq!((output.status.code(), err(&output)), (Some(0), ""));
    if super::pace::lacks("/dev/full") {
        return;
    }
    let full = std::fs::File::options().write(true).open("/dev/full").unwrap();
    let output = pipewright(&words).stdout(Stdio::from(full)).output().unwrap();
    assert_eq!(output.status.code(), Some(125));
    let expected = "pipewright: cannot write to stdout: No space left on device (os error 28)\n";
    assert_eq!(err(&output), expected);
}

#[cfg(target_os = "linux")]
#[test]
fn temporary_files_have_no_name_that_a_kill_could_leave() {
    let folder = folder();
    let name = folder.path().display().to_string();
    let mut child = pipewright(&["disk", &name, "--requests", "20000", "--bs", "4k"]);
    let mut child = child.stdout(std::process::Stdio::null()).spawn().unwrap();
    let process = child.id();
    let send = |signal: &str| {
        let words = [format!("-{signal}"), process.to_string()];
        assert!(std::process::Command::new("kill").args(words).status().unwrap().success());
    };
    let state = || {
        let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap();
        stat.rsplit(") ").next().and_then(|rest| rest.chars().next()).unwrap()
    };
    let holds_one = || {
        let fds = std::fs::read_dir(format!("/proc/{process}/fd")).unwrap().flatten();
        let mut targets = fds.filter_map(|fd| std::fs::read_link(fd.path()).ok());
        targets.any(|target| target.display().to_string().contains("/.pipewright-disk-"))
    };
    // Examined while stopped: the tool has a file open, and the directory has none.
    loop {
        send("STOP");
        while state() != 'T' {
            assert_ne!(state(), 'Z', "it has ended before it was looked at");
            std::thread::yield_now();
        }
        if holds_one() && std::fs::read_dir(folder.path()).unwrap().count() == 0 {
            break;
        }
        send("CONT");
        std::thread::yield_now();
    }
    send("KILL");
    child.wait().unwrap();
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
}

#[test]
fn a_failed_diagnosis_is_one_line_and_the_others_are_done() {
    let folder = folder();
    let name = folder.path().display().to_string();
    let words = ["disk", "no/such/file", &name, "--requests", "5", "--sync"];
    let output = pipewright(&words).output().unwrap();
    assert_eq!(output.status.code(), Some(125));
    assert_eq!(err(&output).lines().count(), 1);
    assert!(
        err(&output).starts_with("pipewright: cannot diagnose \"no/such/file\": "),
        "{}",
        err(&output)
    );
    assert!(out(&output).contains("Test 1"), "{}", out(&output));
    let output = pipewright(&["disk", &name, "--html", "/no/such/dir/page"]).output().unwrap();
    assert_eq!(output.status.code(), Some(125));
    assert!(
        err(&output).starts_with("pipewright: cannot write the HTML page to "),
        "{}",
        err(&output)
    );
    assert_eq!(out(&output), "");
}
