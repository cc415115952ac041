//! The way of the program to a node, through a shell there.
//!
//! The shell reads commands from its stdin, one line at a time, and answers each with a line. Nothing is sent before the answer to the
//! line before has come, because a shell may read ahead and would swallow it. The program is copied once, under the hash of its bytes.

use std::fs;
use std::io::{Read, Write};
use std::path::Path;

use sha2::{Digest, Sha256};

use crate::remote::error::RemoteError;

/// The word with which answers begin. Other lines are a shell's greetings.
const ANSWER: &str = "pipewright-";

/// Bytes that a shell may print before an answer.
const MOST_NOISE_BYTES: usize = 64 << 10;

/// The program of this process, for nodes that do not have it.
#[derive(Debug)]
pub(super) struct Program {
    bytes: Vec<u8>,
    /// The hash of the bytes, in hexadecimal digits.
    hash: String,
}

impl Program {
    /// Reads the program of this process.
    ///
    /// # Errors
    /// The file cannot be read.
    pub(super) fn own() -> std::io::Result<Program> {
        // Also after the file was replaced, as by a build.
        let own = Path::new("/proc/self/exe");
        let bytes = match fs::read(own) {
            Ok(bytes) => bytes,
            Err(_) => fs::read(std::env::current_exe()?)?,
        };
        Ok(Program::new(bytes))
    }

    fn new(bytes: Vec<u8>) -> Program {
        let hash = Sha256::digest(&bytes);
        let hash = hash.iter().take(16).map(|byte| format!("{byte:02x}")).collect();
        Program { bytes, hash }
    }
}

/// Makes a shell on a node run the worker. Its hello follows on the same stream.
///
/// # Errors
/// The node has no shell, or another system, or the program cannot be stored there.
pub(super) fn start_worker(
    reader: &mut impl Read,
    writer: &mut impl Write,
    program: &Program,
    args: &str,
) -> Result<(), RemoteError> {
    let hash = &program.hash;
    // An installed program of this version is not looked for: another build of it may differ.
    writeln!(
        writer,
        "d=\"${{XDG_CACHE_HOME:-$HOME/.cache}}/pipewright\"; f=\"$d/worker-{hash}\"; \
         if [ -x \"$f\" ]; then echo {ANSWER}has; else echo \"{ANSWER}lacks $(uname -s) $(uname -m)\"; fi"
    )?;
    writer.flush()?;
    let answer = read_answer(reader)?;
    if let Some(system) = answer.strip_prefix("lacks") {
        check_system(system.trim())?;
        copy(reader, writer, program)?;
    }
    writeln!(writer, "exec \"$f\" {args}")?;
    writer.flush()?;
    Ok(())
}

fn copy(
    reader: &mut impl Read,
    writer: &mut impl Write,
    program: &Program,
) -> Result<(), RemoteError> {
    let length = program.bytes.len();
    writeln!(
        writer,
        "umask 077; t=\"$f.$$\"; if mkdir -p \"$d\" && : > \"$t\"; then echo {ANSWER}send; \
         head -c {length} > \"$t\" && [ \"$(wc -c < \"$t\")\" -eq {length} ] && chmod 700 \"$t\" && mv -f \"$t\" \"$f\" \
         && echo {ANSWER}has || {{ rm -f \"$t\"; echo {ANSWER}failed; }}; else echo {ANSWER}failed; fi"
    )?;
    writer.flush()?;
    let stored = match read_answer(reader)?.as_str() {
        "send" => {
            writer.write_all(&program.bytes)?;
            writer.flush()?;
            read_answer(reader)? == "has"
        }
        _ => false,
    };
    match stored {
        true => Ok(()),
        false => Err(RemoteError::Command(
            "the program cannot be stored in the cache folder of the node".to_owned(),
        )),
    }
}

/// Refuses a node on which this program cannot run.
fn check_system(system: &str) -> Result<(), RemoteError> {
    let own = own_system();
    if system == own {
        return Ok(());
    }
    Err(RemoteError::Command(format!(
        "the node is {system}, and this program is built for {own}: give the path of a program there with --worker-path"
    )))
}

/// Returns this system in the words of `uname`.
fn own_system() -> String {
    let system = match std::env::consts::OS {
        "linux" => "Linux",
        "macos" => "Darwin",
        other => other,
    };
    let processor = match (system, std::env::consts::ARCH) {
        ("Darwin", "aarch64") => "arm64",
        (_, other) => other,
    };
    format!("{system} {processor}")
}

/// Reads lines until one is an answer, and returns the rest of it.
fn read_answer(reader: &mut impl Read) -> Result<String, RemoteError> {
    let (mut line, mut last) = (Vec::new(), String::new());
    let mut total = 0;
    loop {
        let mut byte = [0];
        // What follows an answer belongs to somebody else, so no byte may be read ahead. There are few of these lines.
        let is_end = match reader.read(&mut byte) {
            Ok(count) => count == 0,
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error.into()),
        };
        total += 1;
        if !is_end && byte[0] != b'\n' && total < MOST_NOISE_BYTES {
            line.push(byte[0]);
            continue;
        }
        let text = String::from_utf8_lossy(&line).trim().to_owned();
        line.clear();
        if let Some(answer) = text.strip_prefix(ANSWER) {
            return Ok(answer.to_owned());
        }
        if !text.is_empty() {
            last = text.chars().take(200).collect();
        }
        if is_end || total >= MOST_NOISE_BYTES {
            return Err(RemoteError::NotPipewright(last));
        }
    }
}

#[cfg(test)]
#[cfg(unix)]
mod tests {
    use std::process::{Child, Command, Stdio};

    use super::*;

    /// Starts a shell whose cache folder is that folder.
    fn shell(name: &str, cache: &Path) -> Child {
        Command::new(name)
            .env("XDG_CACHE_HOME", cache)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap()
    }

    /// Runs the program in a shell, and returns what it prints.
    fn run(name: &str, cache: &Path, program: &Program) -> Result<String, RemoteError> {
        let mut shell = shell(name, cache);
        let (mut stdin, mut stdout) = (shell.stdin.take().unwrap(), shell.stdout.take().unwrap());
        let started = start_worker(&mut stdout, &mut stdin, program, "a 'b c'");
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

    #[test]
    fn the_program_is_copied_once_and_gets_its_words_and_its_input() {
        let mut bytes = b"#!/bin/sh\nfor word; do echo \"$word\"; done; cat; exit\n".to_vec();
        // More than a pipe holds, and no text.
        bytes.extend((0..300_000_u32).map(|number| (number % 251) as u8));
        let program = Program::new(bytes);
        for name in ["sh", "bash", "dash"] {
            let cache = tempfile::tempdir().unwrap();
            assert_eq!(run(name, cache.path(), &program).unwrap(), "a\nb c\ninput");
            let path = cache.path().join("pipewright").join(format!("worker-{}", program.hash));
            assert!(fs::read(&path).unwrap() == program.bytes);
            // The copy is used from then on.
            fs::write(&path, "#!/bin/sh\necho second\n").unwrap();
            assert_eq!(run(name, cache.path(), &program).unwrap(), "second\n");
            assert_eq!(fs::read_dir(path.parent().unwrap()).unwrap().count(), 1);
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
        let mut answers = &b"Welcome\npipewright-lacks Plan9 mips\n"[..];
        let program = Program::new(Vec::new());
        let error = start_worker(&mut answers, &mut Vec::new(), &program, "").unwrap_err();
        assert!(error.to_string().starts_with("the node is Plan9 mips, and"), "{error}");
    }

    #[test]
    fn something_that_is_no_shell_is_an_error_with_its_last_line() {
        let program = Program::new(Vec::new());
        let mut answers = &b"sh: not found\n"[..];
        let error = start_worker(&mut answers, &mut Vec::new(), &program, "").unwrap_err();
        assert!(error.to_string().ends_with("sh: not found"), "{error}");
        let mut endless = std::io::repeat(b'x');
        assert!(start_worker(&mut endless, &mut Vec::new(), &program, "").is_err());
    }
}
