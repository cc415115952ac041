//! Everything that a command starts with besides its streams: variables, directory, user, priority and umask.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::Read as _;
use std::path::Path;

use pipewright::Command;
use pipewright_os::base::error::Quoted;
use pipewright_os::base::{os_text, pwd};

use super::user::User;
use crate::Failure;
use crate::args::CommonOptions;

/// Sets the environment, the working directory, and the attributes of the process.
pub(crate) fn set_environment(
    command: &mut Command,
    options: &CommonOptions,
) -> Result<(), Failure> {
    if let Some(dir) = &options.cwd {
        command.current_dir(dir);
    }
    if options.clear_env {
        command.env_clear();
    } else if let Some(dir) = options.cwd.as_deref().and_then(pwd::of) {
        // Programs show it, and shells take it for their directory if it is right.
        command.env("PWD", dir);
    }
    for path in &options.env_file {
        for (key, value) in read_file(path)? {
            command.env(key, value);
        }
    }
    for variable in &options.env {
        let (key, value) = split_variable(variable)?;
        command.env(key, value);
    }
    if let Some(user) = &options.user {
        User::find(user)?.set(command);
    }
    if let Some(nice) = options.nice {
        command.nice(nice);
    }
    if let Some(umask) = options.umask {
        command.umask(umask);
    }
    Ok(())
}

/// Splits `--env` into name and value. A name alone takes the value that this process has.
pub(crate) fn split_variable(variable: &OsStr) -> Result<(OsString, OsString), Failure> {
    let split = os_text::split_once(variable, b'=');
    match split.map(|(key, value)| (key.to_owned(), value.to_owned())) {
        Some((key, value)) if !key.is_empty() => Ok((key, value)),
        None if !variable.is_empty() => match std::env::var_os(variable) {
            Some(value) => Ok((variable.to_owned(), value)),
            None => Err(Failure(format!(
                "invalid --env {variable:?}: the variable is not set; expected K=V, or the name of a variable"
            ))),
        },
        _ => Err(Failure(format!("invalid --env {variable:?}: expected K=V"))),
    }
}

/// The most bytes of a file of variables. More than that fits into no environment.
const MOST_FILE_BYTES: u64 = 4 << 20;

/// Reads the variables of a file: `K=V` in each line, up to its end, without quotes, as `docker run --env-file` does. Empty lines and
/// those that start with `#` are skipped, and so are a byte-order mark and the word `export`. A name alone takes the value that this
/// process has, if it has one.
fn read_file(path: &Path) -> Result<Vec<(OsString, OsString)>, Failure> {
    let shown = Quoted(path.as_os_str());
    let mut text = Vec::new();
    let read = File::open(path)
        .and_then(|file| file.take(MOST_FILE_BYTES + 1).read_to_end(&mut text))
        .map_err(|error| Failure(format!("cannot read the --env-file {shown}: {error}")))?;
    if read as u64 > MOST_FILE_BYTES {
        return Err(Failure(format!(
            "cannot read the --env-file {shown}: it has more than {} MiB",
            MOST_FILE_BYTES >> 20
        )));
    }
    let text = text.strip_prefix(b"\xef\xbb\xbf").unwrap_or(&text);
    let mut variables = Vec::new();
    for (index, line) in text.split(|byte| *byte == b'\n').enumerate() {
        let line = line.strip_suffix(b"\r").unwrap_or(line).trim_ascii_start();
        let line = line
            .strip_prefix(b"export")
            .filter(|rest| rest.first().is_some_and(u8::is_ascii_whitespace))
            .map_or(line, <[u8]>::trim_ascii_start);
        if line.is_empty() || line.starts_with(b"#") {
            continue;
        }
        let bad = |why: &str| Failure(format!("line {} of {shown}: {why}", index + 1));
        let line = os_text::from_encoded_bytes(line.to_vec());
        let line = line.map_err(|_| bad("it is not text"))?;
        let name = os_text::split_once(&line, b'=').map_or(line.as_os_str(), |(name, _)| name);
        if name.as_encoded_bytes().iter().any(u8::is_ascii_whitespace) {
            return Err(bad("a name has no spaces"));
        }
        match os_text::split_once(&line, b'=') {
            Some((key, _)) if key.is_empty() => {
                return Err(bad("the name is missing before the ="));
            }
            Some((key, value)) => variables.push((key.to_owned(), value.to_owned())),
            None => variables.extend(std::env::var_os(&line).map(|value| (line.clone(), value))),
        }
    }
    Ok(variables)
}
