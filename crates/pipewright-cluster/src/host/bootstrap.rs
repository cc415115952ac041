//! The way of the program to a node, through a shell there.
//!
//! The shell reads commands from its stdin, one line at a time, and answers each with a line. Nothing is sent before the answer to the
//! line before has come, because a shell may read ahead and would swallow it. The program is copied once, under the hash of its bytes.
//! The folder and the file have to belong to the user of the shell, and nobody else may write to them: where the cache folder is
//! shared, another user could put his program there. The shell enters the folder before it looks, and stays there up to the start: who
//! owns the folder above could put another one in its place. The program checks its own bytes when it starts.
//!
//! A login may print greetings, with a newline at their end or without, and may echo what it reads. So an answer has a mark that nobody
//! can guess, which the shell puts together of two parts; and what the shell's commands print goes to stderr.

use std::io::{Read, Write};

use crate::error::RemoteError;
use crate::program::Program;

/// Bytes that a shell may print before an answer.
const MOST_NOISE_BYTES: usize = 64 << 10;

/// The mark of the answers of one connection, in two parts.
#[derive(Debug)]
pub(super) struct Mark([String; 2]);

impl Mark {
    /// Returns a mark that nobody can guess.
    ///
    /// # Errors
    /// The system has no random bytes.
    pub(super) fn random() -> std::io::Result<Mark> {
        let mut bytes = [0; 16];
        getrandom::fill(&mut bytes).map_err(std::io::Error::other)?;
        let digits: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        let (first, second) = digits.split_at(digits.len() / 2);
        Ok(Mark([format!("pipewright-{first}"), format!("{second}-")]))
    }

    fn whole(&self) -> String {
        self.0.concat()
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
    mark: &Mark,
) -> Result<(), RemoteError> {
    let hash = program.hash();
    let Mark([first, second]) = mark;
    // An installed program of this version is not looked for: another build of it may differ.
    writeln!(
        writer,
        "exec 3>&1 1>&2; m={first}; n={second}; say() {{ echo \"$m$n$1\" >&3; }}; \
         o=$PWD; d=\"${{XDG_CACHE_HOME:-$HOME/.cache}}/pipewright\"; f=./worker-{hash}; \
         own() {{ set -- $(LC_ALL=C ls -ldn \"$1\" 2>/dev/null); \
         case \"$1\" in ?????[!w]??[!w]*) [ \"$3\" = \"$(id -u)\" ];; *) false;; esac; }}; \
         enter() {{ CDPATH= cd -P -- \"$d\" && own .; }}; \
         if [ -e \"$d\" ] && ! enter; then say foreign; \
         elif [ -x \"$f\" ] && own \"$f\"; then say has; \
         else say \"lacks $(uname -s) $(uname -m)\"; fi"
    )?;
    writer.flush()?;
    let answer = read_answer(reader, mark)?;
    if answer == "foreign" {
        return Err(RemoteError::Command(
            "the cache folder of the node belongs to another user, or others may write to it: remove it, or give --worker-path"
                .to_owned(),
        ));
    }
    if let Some(system) = answer.strip_prefix("lacks") {
        check_system(system.trim())?;
        copy(reader, writer, program, mark)?;
    }
    // Not by the shell itself: bash makes the path absolute, and so looks it up by the names of the folders.
    writeln!(writer, "exec env PWD=\"$o\" \"$f\" {args} --sum {hash} --directory \"$o\" >&3 3>&-")?;
    writer.flush()?;
    Ok(())
}

fn copy(
    reader: &mut impl Read,
    writer: &mut impl Write,
    program: &Program,
    mark: &Mark,
) -> Result<(), RemoteError> {
    let length = program.bytes().len();
    writeln!(
        writer,
        "umask 077; if mkdir -p -- \"$d\" && enter && t=$(mktemp ./.worker-XXXXXX); then say send; \
         head -c {length} > \"$t\" && [ \"$(wc -c < \"$t\")\" -eq {length} ] && chmod 700 \"$t\" && mv -f \"$t\" \"$f\" \
         && say has || {{ rm -f \"$t\"; say failed; }}; else say failed; fi"
    )?;
    writer.flush()?;
    let stored = match read_answer(reader, mark)?.as_str() {
        "send" => {
            writer.write_all(program.bytes())?;
            writer.flush()?;
            read_answer(reader, mark)? == "has"
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

/// Reads lines until one has the mark, and returns what follows it there.
fn read_answer(reader: &mut impl Read, mark: &Mark) -> Result<String, RemoteError> {
    let mark = mark.whole();
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
        if let Some((_, answer)) = text.split_once(&mark) {
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
mod tests;
