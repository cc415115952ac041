//! Shells of this machine as nodes. In a file of its own, since platform code stays out of the product's files.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use super::*;

/// Starts a shell whose cache folder is that folder.
fn shell(name: &str, cache: &Path, path: Option<&str>) -> Child {
    Command::new(name)
        .env("XDG_CACHE_HOME", cache)
        .envs(std::env::current_dir().map(|here| ("PWD", here)))
        .envs(path.map(|path| ("PATH", path)))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap()
}

/// Runs the program in a shell, and returns what it prints.
fn run(name: &str, cache: &Path, program: &Program) -> Result<String, RemoteError> {
    run_in(shell(name, cache, None), program)
}

fn run_in(mut shell: Child, program: &Program) -> Result<String, RemoteError> {
    let (mut stdin, mut stdout) = (shell.stdin.take().unwrap(), shell.stdout.take().unwrap());
    let started =
        start_worker(&mut stdout, &mut stdin, program, "a 'b c'", &Mark::random().unwrap());
    let mut text = vec![0; if started.is_ok() { 2 } else { 0 }];
    // The program speaks first: a shell may have read ahead before.
    stdout.read_exact(&mut text).unwrap();
    stdin.write_all(b"input").unwrap_or_default();
    drop(stdin);
    stdout.read_to_end(&mut text).unwrap();
    let text = String::from_utf8(text).unwrap();
    shell.wait().unwrap();
    started.map(|()| text)
}

/// Writes a script that can be executed, by a process of its own: what another test starts at that moment has all files
/// of this process open for a while, and a file that is open for writing is not executed.
fn write_script(path: &Path, text: &str) {
    let mut cat = Command::new("sh")
        .args(["-c", "exec cat > \"$0\""])
        .arg(path)
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    cat.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
    assert!(cat.wait().unwrap().success());
    fs::set_permissions(path, Permissions::from_mode(0o755)).unwrap();
}

#[test]
fn the_program_is_copied_once_and_gets_its_words_and_its_input() {
    let mut bytes = b"#!/bin/sh\nfor word; do echo \"$word\"; done; cat; exit\n".to_vec();
    // More than a pipe holds, and no text.
    bytes.extend((0..300_000_u32).map(|number| (number % 251) as u8));
    let program = Program::new(bytes);
    for name in ["sh", "bash", "dash"] {
        let cache = tempfile::tempdir().unwrap();
        let here = std::env::current_dir().unwrap();
        let words = format!("a\nb c\n--sum\n{}\n--directory\n", program.hash());
        let said = format!("{words}{}\ninput", here.display());
        assert_eq!(run(name, cache.path(), &program).unwrap(), said);
        let path = cache.path().join("pipewright").join(format!("worker-{}", program.hash()));
        assert!(fs::read(&path).unwrap() == program.bytes());
        // The copy is used from then on.
        write_script(&path, "#!/bin/sh\necho second\n");
        assert_eq!(run(name, cache.path(), &program).unwrap(), "second\n");
        assert_eq!(fs::read_dir(path.parent().unwrap()).unwrap().count(), 1);
    }
}

/// Another user's program would run as the user of the shell.
#[test]
fn a_cache_folder_or_a_program_of_somebody_else_is_not_used() {
    use std::os::unix::fs::{chown, symlink};
    let program = Program::new(b"#!/bin/sh\necho own\n".to_vec());
    let mode = |path: &Path, mode| {
        fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
    };
    for name in ["sh", "bash", "dash"] {
        let cache = tempfile::tempdir().unwrap();
        let folder = cache.path().join("pipewright");
        let planted = folder.join(format!("worker-{}", program.hash()));
        let plant = || {
            fs::create_dir_all(&folder).unwrap();
            mode(&folder, 0o755);
            write_script(&planted, "#!/bin/sh\necho planted\n");
        };
        plant();
        assert_eq!(run(name, cache.path(), &program).unwrap(), "planted\n", "it is ours");
        // A file that others may write, and a link, are replaced.
        mode(&planted, 0o777);
        assert_eq!(run(name, cache.path(), &program).unwrap(), "own\n");
        fs::rename(&planted, folder.join("other")).unwrap();
        symlink(folder.join("other"), &planted).unwrap();
        assert_eq!(run(name, cache.path(), &program).unwrap(), "own\n");
        for rights in [0o777, 0o1777, 0o775] {
            plant();
            mode(&folder, rights);
            let error = run(name, cache.path(), &program).unwrap_err();
            assert!(error.to_string().contains("others may write to it"), "{error}");
        }
        if pipewright_tests::skip::is_root() {
            plant();
            chown(&folder, Some(65_533), Some(65_533)).unwrap();
            let error = run(name, cache.path(), &program).unwrap_err();
            assert!(error.to_string().contains("belongs to another user"), "{error}");
        }
    }
}

/// The owner of the folder above the cache folder acts between the look at it and its use.
#[test]
fn a_cache_folder_that_is_put_in_the_place_of_ours_is_not_used() {
    let program = Program::new(b"#!/bin/sh\necho own\n".to_vec());
    let worker = format!("worker-{}", program.hash());
    for (name, has_program) in [("sh", true), ("bash", true), ("dash", true), ("sh", false)] {
        let dir = tempfile::tempdir().unwrap();
        let (cache, bin) = (dir.path().join("cache"), dir.path().join("bin"));
        let other = cache.join("other");
        for folder in [&bin, &other] {
            fs::create_dir_all(folder).unwrap();
        }
        if has_program {
            run(name, &cache, &program).unwrap();
            write_script(&other.join(&worker), "#!/bin/sh\necho planted\n");
        }
        // The last look of each way: of two, or of one.
        let looks = if has_program { 2 } else { 1 };
        let swap = format!(
            "#!/bin/sh\necho >> \"$0-looks\"\n\
             [ $(wc -l < \"$0-looks\") -eq {looks} ] && cd '{}' && mv pipewright ours && mv other pipewright\n\
             PATH=${{PATH#*:}} exec id \"$@\"\n",
            cache.display()
        );
        write_script(&bin.join("id"), &swap);
        let path = format!("{}:{}", bin.display(), std::env::var("PATH").unwrap());
        let said = run_in(shell(name, &cache, Some(&path)), &program).unwrap();
        assert_eq!(said, "own\n", "{name}");
        assert!(cache.join("ours").join(&worker).exists(), "{name}");
        assert_eq!(cache.join("pipewright").join(&worker).exists(), has_program, "{name}");
    }
}

#[test]
fn a_cache_folder_that_cannot_be_made_is_an_error() {
    let cache = tempfile::NamedTempFile::new().unwrap();
    let error = run("sh", cache.path(), &Program::new(b"x".to_vec())).unwrap_err();
    assert!(error.to_string().contains("cannot be stored"), "{error}");
}

#[test]
fn another_system_is_refused() {
    let mut answers = &b"Welcome\nto pipewright-lacks Plan9 mips\n"[..];
    let program = Program::new(Vec::new());
    let mark = Mark(["pipewright".to_owned(), "-".to_owned()]);
    let error = start_worker(&mut answers, &mut Vec::new(), &program, "", &mark).unwrap_err();
    assert!(error.to_string().starts_with("the node is Plan9 mips, and"), "{error}");
}

#[test]
fn something_that_is_no_shell_is_an_error_with_its_last_line() {
    let program = Program::new(Vec::new());
    let mut answers = &b"sh: not found\n"[..];
    let mark = Mark::random().unwrap();
    let error = start_worker(&mut answers, &mut Vec::new(), &program, "", &mark).unwrap_err();
    assert!(error.to_string().ends_with("sh: not found"), "{error}");
    let mut endless = std::io::repeat(b'x');
    assert!(start_worker(&mut endless, &mut Vec::new(), &program, "", &mark).is_err());
}

#[test]
fn greetings_without_a_newline_and_echoes_are_no_answers() {
    let program = Program::new(b"#!/bin/sh\necho ran\n".to_vec());
    for noise in ["printf 'Welcome! '", "printf 'pipewright-has pipewright-lacks '", "set -v"] {
        let cache = tempfile::tempdir().unwrap();
        // The shell repeats what it reads on the stream of the answers.
        let mut shell = Command::new("sh")
            .args(["-c", &format!("{noise}; exec 2>&1; {noise}; exec sh -v")])
            .env("XDG_CACHE_HOME", cache.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let (mut stdin, mut stdout) = (shell.stdin.take().unwrap(), shell.stdout.take().unwrap());
        let mark = Mark::random().unwrap();
        start_worker(&mut stdout, &mut stdin, &program, "", &mark).unwrap();
        drop(stdin);
        let mut text = String::new();
        stdout.read_to_string(&mut text).unwrap();
        assert!(text.ends_with("ran\n"), "{text}");
        shell.wait().unwrap();
    }
}
