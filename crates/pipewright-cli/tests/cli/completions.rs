//! Completions in the shells themselves; the picture of the README; the libraries that the tool starts with.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Command;

use crate::terminal::Shell;
use crate::{out, pace, pipewright};

/// The name of a program that no machine has. It prints its arguments.
const PROGRAM: &str = "pw-sample-program";

fn folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join(PROGRAM);
    fs::write(&program, "#!/bin/sh\necho \"called with <$*>\"\n").unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    for shell in ["bash", "zsh", "fish"] {
        let script = pipewright(&["completions", shell]).output().unwrap().stdout;
        fs::write(folder.path().join(shell), script).unwrap();
    }
    let tool = folder.path().join("pipewright");
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_pipewright"), tool).unwrap();
    folder
}

fn has(shell: &str) -> bool {
    let is_there = Command::new(shell).args(["-c", ":"]).output().is_ok();
    if !is_there {
        pace::skipped(pace::Need::Program(shell), "is not here");
    }
    is_there
}

/// Types lines with TAB in them, and checks the effect of the completed line.
fn check_completions(shell: &mut Shell) {
    for (typed, output) in [
        // Without the completion this is not a signal.
        ("pipewright run --stop-sig\tTER\t -- pw-samp\tone two\n", "called with <one two>"),
        ("pipewright run --timeout 60s pw-samp\tthree\n", "called with <three>"),
        ("pipewright pipe -- echo hi '|' pw-samp\tfour\n", "called with <four>"),
        (
            "pipewright run -- pw-sample-program pw-samp\tend\n",
            "called with <pw-sample-program end>",
        ),
        ("pipewright han\t--js\t\n", "pipewright.handles/1"),
    ] {
        shell.types(typed);
        shell.shows(output);
    }
}

#[test]
fn bash_completes_signals_and_the_command_after_the_options() {
    if !has("bash") {
        return;
    }
    let folder = folder();
    let shell = ["bash", "--norc", "--noprofile", "-i"];
    let Some(mut shell) = Shell::start_with(&shell, "dumb") else { return };
    let path = folder.path().display();
    shell.types(&format!("cd {path}; PATH={path}:$PATH; source ./bash; echo rea''dy\n"));
    shell.shows("ready");
    check_completions(&mut shell);
}

#[test]
fn zsh_completes_signals_and_the_command_after_the_options() {
    if !has("zsh") {
        return;
    }
    let folder = folder();
    let Some(mut shell) = Shell::start_with(&["zsh", "-f", "-i"], "vt100") else { return };
    let path = folder.path().display();
    let load = format!("cd {path}; path=({path} $path); autoload -U compinit; compinit -u -D");
    shell.types(&format!("{load}; source ./zsh; echo rea''dy\n"));
    shell.shows("ready");
    check_completions(&mut shell);
}

/// Returns the completions that the bash script offers for words, of which the last is at the cursor.
fn bash_offers(script: &Path, before: &str, words: &[&str]) -> Vec<String> {
    let driver = format!(
        r#"{before}
        source "$0"; compopt() {{ :; }}
        COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); COMP_LINE="$*"; COMP_POINT=${{#COMP_LINE}}
        _pipewright_words "$1" "${{COMP_WORDS[COMP_CWORD]}}" "${{COMP_WORDS[COMP_CWORD - 1]}}"
        printf '%s\n' "${{COMPREPLY[@]}}""#
    );
    let mut command = Command::new("bash");
    command.args(["--norc", "-c", &driver]).arg(script).arg("pipewright").args(words);
    let output = command.output().unwrap();
    out(&output).lines().filter(|line| !line.is_empty()).map(str::to_owned).collect()
}

#[test]
fn bash_tells_options_from_the_command() {
    if !has("bash") {
        return;
    }
    let folder = folder();
    let script = folder.path().join("bash");
    let path = format!("PATH={}:$PATH", folder.path().display());
    let offers = |words: &[&str]| bash_offers(&script, &path, words);
    let program = [PROGRAM];
    assert_eq!(offers(&["run", "--stop-signal", "TER"]), ["TERM"]);
    assert_eq!(offers(&["run", "--stop-signal", "=", "TER"]), ["TERM"]);
    assert_eq!(offers(&["run", "--contain", ""]), ["none", "group", "tree"]);
    assert_eq!(offers(&["run", "--timeout", "1s", "--kill-a"]), ["--kill-after"]);
    assert_eq!(offers(&["jobs", "--state", "succ"]), ["succeeded"]);
    assert_eq!(offers(&["man", "hand"]), ["handles"]);
    // The command for nodes is hidden.
    assert_eq!(offers(&["wor"]), [""; 0]);
    assert_eq!(offers(&["man", "wor"]), [""; 0]);
    for words in [
        &["run", "--", "pw-samp"][..],
        &["run", "pw-samp"],
        &["run", "--quiet", "--signal", "INT", "pw-samp"],
        &["run", "-q", "-s", "INT", "pw-samp"],
        &["run", "--env", "A", "=", "1", "--cwd", "=", "/", "--", "pw-samp"],
        &["pipe", "--", "'<'", "file", "pw-samp"],
        &["pipe", "--quiet", "cat", "-n", "'|'", "pw-samp"],
        &["pipe", "cat", "\\|", "sort", "\"|\"", "pw-samp"],
    ] {
        assert_eq!(offers(words), program, "{words:?}");
    }
    for words in [
        // An option of the command, a value, and files: the tool completes none of these.
        &["run", "--", "ls", "--kill-a"][..],
        &["run", "--timeout", "pw-samp"],
        &["pipe", "--", "cat", "'>'", "pw-samp"],
        &["pipe", "--", "'<'", "pw-samp"],
        &["run", "--", "cat", "pw-samp"],
    ] {
        let offered = offers(words);
        assert!(
            !offered.contains(&PROGRAM.to_owned()) && !offered.contains(&"--kill-after".to_owned()),
            "{words:?}"
        );
    }
}

#[test]
fn bash_completes_arguments_as_the_command_itself_does() {
    let library = "/usr/share/bash-completion/bash_completion";
    if !Path::new(library).exists() {
        pace::skipped(pace::Need::File(library), "there is no bash-completion here");
        return;
    }
    let folder = folder();
    let script = folder.path().join("bash");
    let before = format!("source {library}; complete -W 'alpha beta' {PROGRAM}");
    let words = ["run", "--timeout", "1s", "--", PROGRAM, "al"];
    assert_eq!(bash_offers(&script, &before, &words), ["alpha"]);
    let words = ["pipe", "--", "echo", "'|'", PROGRAM, "be"];
    assert_eq!(bash_offers(&script, &before, &words), ["beta"]);
}

#[test]
fn fish_completes_signals_and_the_command_after_the_options() {
    if !has("fish") {
        return;
    }
    let folder = folder();
    let offers = |line: &str| -> Vec<String> {
        let mut command = Command::new("fish");
        let path = folder.path().display();
        let load = format!("set -x PATH {path} $PATH; source {path}/fish");
        let own = format!("complete -c {PROGRAM} -f -a 'alpha beta'");
        let line = line.replace('\'', "\\'");
        command.args(["-c", &format!("{load}; {own}; complete -C '{line}'")]);
        let output =
            command.env("HOME", folder.path()).env_remove("XDG_CONFIG_HOME").output().unwrap();
        let lines = out(&output).lines().filter_map(|line| line.split('\t').next());
        lines.map(str::to_owned).collect()
    };
    assert_eq!(offers("pipewright run --stop-signal TER"), ["TERM"]);
    assert_eq!(offers("pipewright run --timeout 1s --kill-a"), ["--kill-after"]);
    for line in [
        "pipewright run -- pw-samp",
        "pipewright run --quiet --signal INT pw-samp",
        "pipewright pipe -- echo hi '|' pw-samp",
        "pipewright pipe -- '<' file pw-samp",
    ] {
        assert_eq!(offers(line), [PROGRAM], "{line}");
    }
    assert_eq!(offers("pipewright run -- pw-sample-program al"), ["alpha"]);
    assert_eq!(offers("pipewright pipe -- echo '|' pw-sample-program b"), ["beta"]);
}

#[test]
fn the_picture_shows_what_the_tool_prints() {
    if Command::new("jq").arg("--version").output().is_err() {
        pace::skipped(pace::Need::Program("jq"), "there is no jq here, which the picture has");
        return;
    }
    let picture = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/run.svg");
    let Ok(picture) = std::fs::read_to_string(picture) else {
        pace::skipped(pace::Need::File("docs/run.svg"), "the package has no picture");
        return;
    };
    let lines: Vec<String> = picture
        .lines()
        .filter_map(|line| {
            let line = line.trim_start().strip_prefix("<text ")?;
            let text = line.split_once('>')?.1.strip_suffix("</text>")?;
            let text = text.replace("<tspan class=\"p\">", "").replace("</tspan>", "");
            Some(text.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&"))
        })
        .collect();
    let is_typed = |line: &&String| line.starts_with("$ ");
    let typed = lines.iter().filter(is_typed).map(|line| line.trim_start_matches("$ "));
    let script: Vec<&str> = ["exec 2>&1"].into_iter().chain(typed).collect();
    assert!(script.len() > 4, "{script:?}");
    let folder = tempfile::tempdir().unwrap();
    let tool = folder.path().join("pipewright");
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_pipewright"), tool).unwrap();
    let path = format!("PATH={}:$PATH\n", folder.path().display());
    let script = path + &script.join("\n");
    let shown = lines.iter().filter(|line| !is_typed(line)).map(|line| format!("{line}\n"));
    let shown: String = shown.collect();
    let prints = |script: &str| {
        let mut command = Command::new("sh");
        let output = command.args(["-c", script]).current_dir(&folder).output().unwrap();
        out(&output).to_owned()
    };
    let printed = prints(&script);
    if !printed.starts_with("hi\n") {
        // A busy machine may need more than the two seconds until the command has printed that.
        let longer = |text: &str| text.replace("2s", "30s");
        assert_eq!(prints(&longer(&script)), longer(&shown));
        return;
    }
    assert_eq!(printed, shown);
}

/// Few libraries are loaded, since the tool starts other programs.
// A build with test hooks contains a runtime of tokio, and its logarithms: the gate looks at the build of the README.
#[cfg(not(pipewright_test_hooks))]
#[test]
fn no_library_is_loaded_for_backtraces_or_for_logarithms() {
    let output = crate::run_sh(&["--contain", "none"], "cat /proc/$PPID/maps");
    let maps = out(&output);
    assert!(maps.contains("/pipewright\n") && maps.contains("/libc"), "{maps}");
    assert!(!maps.contains("/libm.so") && !maps.contains("/libm-"), "{maps}");
    if cfg!(unwinder_inside) {
        assert!(!maps.contains("/libgcc_s"), "{maps}");
    } else {
        pace::skipped(
            pace::Need::UnwinderArchive,
            "the compiler that links has no archive of the unwinder",
        );
    }
}
