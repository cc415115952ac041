//! A command from options: its words, streams and files, and everything else that it starts with.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use pipewright::{CancelToken, Command, Handle, Limit, Scope, Source, Stdio};
use pipewright_batch::JobUser;
use pipewright_os::base::error::Quoted;
use pipewright_os::base::{os_text, private_file, this_process};
use pipewright_os::disk::file;

use super::ending::Kept;
use super::tee::{TeeFile, marked};
use crate::Failure;
use crate::args::{CommonOptions, ContainKind, EnvironmentOptions, RunOptions, ShowOutput};

pub(super) fn build(
    options: &RunOptions,
    cancel: &CancelToken,
    kept: &Kept,
    tee: Option<&Arc<TeeFile>>,
) -> Result<Command, Failure> {
    let (program, args) = options
        .command
        .split_first()
        .ok_or_else(|| Failure("the command is missing".to_owned()))?;
    let mut command = Command::new(program);
    command.args(args);
    check_links(options)?;
    if options.detach {
        set_files(&mut command, options);
    } else {
        command.cancel(cancel);
        set_times(&mut command, options);
        command.limit(count_only(options.common.max_output));
        if options.pty {
            set_terminal_streams(&mut command, options);
        } else {
            command.foreground();
            set_streams(&mut command, options, kept, tee);
        }
    }
    if let Some(limits) = options.resources.limits(measures(options)) {
        command.limits(limits);
    }
    set_environment(&mut command, &options.common.environment)?;
    if let Some(lock) = &options.lock {
        command.inherit(lock.try_clone().map_err(Failure::cannot("keep the lock"))?);
    }
    for number in &options.inherit {
        command.inherit_fd_as(duplicate(*number)?, *number);
    }
    Ok(command)
}

/// Returns true if the resources of the whole tree are reported.
fn measures(options: &RunOptions) -> bool {
    (options.time || options.common.report().is_some())
        && options.common.contain == ContainKind::Tree
}

/// Sets the containment, and kills the command or its tree when this process exits.
pub(crate) fn set_containment(command: &mut Command, contain: ContainKind, kill_scope: Scope) {
    command.contain(match contain {
        ContainKind::None => pipewright::Contain::None,
        ContainKind::Group => pipewright::Contain::Group,
        ContainKind::Tree => pipewright::Contain::Tree,
    });
    let whole = contain == ContainKind::Tree;
    command.kill_on_parent_exit(if whole { kill_scope } else { Scope::Child });
}

fn set_times(command: &mut Command, options: &RunOptions) {
    if let Some(timeout) = options.common.timeout() {
        command.timeout(timeout);
    }
    if let Some(timeout) = options.common.idle_timeout() {
        command.idle_timeout(timeout);
    }
    command.kill_grace(options.common.kill_after.duration).stop_signal(options.common.stop_signal);
    command.linger(options.common.linger.to_linger());
}

fn set_streams(
    command: &mut Command,
    options: &RunOptions,
    kept: &Kept,
    tee: Option<&Arc<TeeFile>>,
) {
    set_stdin(command, options);
    let output = |target: Option<&Path>, stream| match target.map(OutputTarget::of) {
        Some(OutputTarget::File(path)) => watched(file_to_write(path, options), &options.common),
        Some(OutputTarget::Null) => watched(Stdio::null(), &options.common),
        None if options.is_captured() => kept.stdio(stream),
        _ if options.show_output == ShowOutput::Never => Stdio::tee_to(Stdio::null()),
        _ if options.keep.keep_output.is_some() => kept.passed(stream),
        _ if options.is_marked() || tee.is_some() => marked(stream, options, tee),
        _ if options.common.passes_through() => Stdio::tee(),
        _ => Stdio::inherit(),
    };
    command.stdout(output(options.stdout.as_deref(), Source::Stdout));
    if options.merge || is_merged(options) {
        command.merge_stderr();
    } else {
        command.stderr(output(options.stderr.as_deref(), Source::Stderr));
    }
}

/// Sets the streams that `--pty` keeps apart from the terminal.
fn set_terminal_streams(command: &mut Command, options: &RunOptions) {
    if options.stdin.is_some() {
        set_stdin(command, options);
    }
    if let Some(path) = &options.stderr {
        command.stderr(watched(file_to_write(path, options), &options.common));
    }
}

/// Returns the destination of the terminal's output: a file, stdout, or a closure that records it, shows it or keeps
/// it.
pub(super) fn watched_terminal(
    options: &RunOptions,
    record: Option<impl FnMut(&[u8]) + Send + 'static>,
    kept: &Kept,
    tee: Option<&Arc<TeeFile>>,
) -> Stdio {
    match (options.stdout.as_deref().map(OutputTarget::of), record) {
        (None, Some(mut record)) if options.is_captured() => {
            let mut keep = kept.closure(Source::Stdout);
            Stdio::tee_with(move |chunk| {
                record(chunk);
                keep(chunk);
            })
        }
        (_, Some(record)) => Stdio::tee_with(record),
        (Some(OutputTarget::File(path)), None) => Stdio::tee_to(file_to_write(path, options)),
        (Some(OutputTarget::Null), None) => Stdio::tee_to(Stdio::null()),
        _ if options.is_captured() => kept.stdio(Source::Stdout),
        _ if options.show_output == ShowOutput::Never => Stdio::tee_to(Stdio::null()),
        _ if options.keep.keep_output.is_some() => kept.passed(Source::Stdout),
        _ if options.is_marked() || tee.is_some() => marked(Source::Stdout, options, tee),
        _ => Stdio::tee(),
    }
}

/// Passes output to a file through this process if a timeout or a limit has to watch it.
pub(crate) fn watched(file: Stdio, options: &CommonOptions) -> Stdio {
    let is_watched = options.idle_timeout().is_some() || options.max_output.is_some();
    if is_watched { Stdio::tee_to(file) } else { file }
}

/// Returns a limit that counts the output and keeps none of it.
pub(crate) fn count_only(limit: Option<usize>) -> Limit {
    limit.map_or(Limit::keep_head(0), Limit::fail).count_only()
}

/// Sets the streams of a detached command: files, or null by default.
fn set_files(command: &mut Command, options: &RunOptions) {
    if options.stdin.is_some() {
        set_stdin(command, options);
    }
    let output = |target: &Path| match OutputTarget::of(target) {
        OutputTarget::File(path) => file_to_write(path, options),
        OutputTarget::Null => Stdio::null(),
        OutputTarget::Inherit => Stdio::inherit(),
    };
    if let Some(target) = &options.stdout {
        command.stdout(output(target));
    }
    if options.merge || is_merged(options) {
        command.merge_stderr();
    } else if let Some(target) = &options.stderr {
        command.stderr(output(target));
    }
}

fn set_stdin(command: &mut Command, options: &RunOptions) {
    command.stdin(match options.stdin.as_deref().map(OsStr::as_encoded_bytes) {
        None | Some(b"inherit" | b"-") => Stdio::inherit(),
        Some(b"null") => Stdio::null(),
        Some(_) => Stdio::open(options.stdin.clone().unwrap_or_default()),
    });
}

/// The value of `--stdout` or `--stderr`.
pub(super) enum OutputTarget<'a> {
    Inherit,
    Null,
    File(&'a Path),
}

impl OutputTarget<'_> {
    pub(super) fn of(target: &Path) -> OutputTarget<'_> {
        match target.as_os_str().as_encoded_bytes() {
            b"inherit" | b"-" => OutputTarget::Inherit,
            b"null" => OutputTarget::Null,
            _ => OutputTarget::File(target),
        }
    }
}

fn file_to_write(path: &Path, options: &RunOptions) -> Stdio {
    if options.append { Stdio::append(path) } else { Stdio::create(path) }
}

/// Duplicates a handle of this process.
fn duplicate(number: i32) -> Result<Handle, Failure> {
    if (0..=2).contains(&number) {
        return Err(Failure(format!(
            "cannot inherit file descriptor {number}: use --stdin, --stdout or --stderr"
        )));
    }
    Handle::copy_of_number(number)
        .map_err(|error| Failure(format!("cannot inherit file descriptor {number}: {error}")))
}

/// Returns true if stdout and stderr go to the same file. Opened twice, each would overwrite the lines of the other.
fn is_merged(options: &RunOptions) -> bool {
    let (Some(stdout), Some(stderr)) = (file_of(&options.stdout), file_of(&options.stderr)) else {
        return false;
    };
    if !stdout.exists() {
        // Ignored: the start of the command opens it again, and reports the error.
        let _ = private_file::open(stdout, File::options().create(true).append(true));
    }
    is_one_file(stdout, stderr)
}

/// Refuses files for stdout and stderr that another user could have chosen by a link.
fn check_links(options: &RunOptions) -> Result<(), Failure> {
    [file_of(&options.stdout), file_of(&options.stderr)]
        .into_iter()
        .flatten()
        .try_for_each(check_link)
}

/// Refuses a file to write that another user could have chosen by a link.
pub(crate) fn check_link(path: &Path) -> Result<(), Failure> {
    let cannot = |error| Failure(format!("cannot write {}: {error}", Quoted(path.as_os_str())));
    private_file::check_link(path).map_err(cannot)
}

/// Refuses a file that one option would write while another one reads or writes it. Stdout and stderr may share one.
pub(super) fn check_files(options: &RunOptions) -> Result<(), Failure> {
    let report = options.common.report().filter(|path| path.as_os_str() != "-");
    let written = [
        ("--report", report),
        ("--record", options.record.as_deref()),
        ("--tee", file_of(&options.common.tee)),
        ("--stdout", file_of(&options.stdout)),
        ("--stderr", file_of(&options.stderr)),
    ];
    let stdin = options.stdin.as_deref().map(Path::new);
    let stdin = stdin.filter(|path| matches!(OutputTarget::of(path), OutputTarget::File(_)));
    let env_files =
        options.common.environment.env_file.iter().map(|path| ("--env-file", Some(path.as_path())));
    let read: Vec<_> = [("--stdin", stdin)].into_iter().chain(env_files).collect();
    for (index, (name, path)) in written.iter().enumerate() {
        let others = written.iter().skip(index + 1).chain(&read);
        for (other, other_path) in
            others.filter(|(other, _)| *name != "--stdout" || *other != "--stderr")
        {
            if let (Some(path), Some(other_path)) = (path, other_path) {
                if is_one_file(path, other_path) || (path == other_path && !path.exists()) {
                    return Err(Failure(format!(
                        "{name} would overwrite {}, the file of {other}; choose another file",
                        Quoted(other_path.as_os_str())
                    )));
                }
            }
        }
    }
    Ok(())
}

fn file_of(target: &Option<PathBuf>) -> Option<&Path> {
    match OutputTarget::of(target.as_deref()?) {
        OutputTarget::File(path) => Some(path),
        _ => None,
    }
}

/// Returns true for one file, not for one device: a device has nothing to overwrite.
fn is_one_file(one: &Path, other: &Path) -> bool {
    let is_file = fs::metadata(one).is_ok_and(|found| found.is_file());
    is_file && file::is_same(one, other).unwrap_or(false)
}

/// Sets the environment, the working directory, and the attributes of the process.
pub(crate) fn set_environment(
    command: &mut Command,
    options: &EnvironmentOptions,
) -> Result<(), Failure> {
    if let Some(dir) = &options.cwd {
        command.current_dir(dir);
    }
    if options.clear_env {
        command.env_clear();
    } else if let Some(dir) = options.cwd.as_deref().and_then(this_process::pwd_of) {
        // Programs show it, and shells take it for their directory if it is right.
        command.env("PWD", dir);
    }
    for (key, value) in variables(options)? {
        command.env(key, value);
    }
    if let Some(user) = &options.user {
        let user = find_user(user)?;
        command.uid(user.user).gid(user.group).groups(&user.groups);
    }
    if let Some(nice) = options.nice {
        command.nice(nice);
    }
    if let Some(umask) = options.umask {
        command.umask(umask);
    }
    Ok(())
}

/// Returns the variables of `--env-file` and `--env`, in that order.
pub(crate) fn variables(
    options: &EnvironmentOptions,
) -> Result<Vec<(OsString, OsString)>, Failure> {
    let mut all = Vec::new();
    for path in &options.env_file {
        all.extend(read_file(path)?);
    }
    for variable in &options.env {
        all.push(split_variable(variable)?);
    }
    Ok(all)
}

/// Splits `--env` into name and value. A name alone takes the value that this process has.
fn split_variable(variable: &OsStr) -> Result<(OsString, OsString), Failure> {
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

/// Reads the variables of a file: `K=V` in each line, up to its end, without quotes, as `docker run --env-file` does.
/// Empty lines and those that start with `#` are skipped, and so are a byte-order mark and the word `export`. A name
/// alone takes the value that this process has, if it has one.
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

/// Finds `USER` or `USER:GROUP`: names, or numbers.
pub(crate) fn find_user(text: &str) -> Result<JobUser, Failure> {
    find_in(text, &read_database("/etc/passwd"), &read_database("/etc/group")).map_err(Failure)
}

fn find_in(text: &str, users: &str, groups: &str) -> Result<JobUser, String> {
    let (user, group) = match text.split_once(':') {
        Some((user, group)) => (user, Some(group)),
        None => (text, None),
    };
    // passwd(5): name, password, id, group. group(5): name, password, id, members.
    let entry = fields(users).find(|entry| entry.first() == Some(&user));
    let entry = entry.or_else(|| fields(users).find(|entry| entry.get(2) == Some(&user)));
    let number = |entry: &Vec<&str>, at: usize| entry.get(at).and_then(|id| id.parse().ok());
    let id: Option<u32> = entry.as_ref().and_then(|entry| number(entry, 2)).or(user.parse().ok());
    let id = id.ok_or_else(|| {
        format!("invalid --user {text:?}: /etc/passwd has no user {user:?}; a number works too")
    })?;
    let Some(group) = group else {
        let group = entry.as_ref().and_then(|entry| number(entry, 3)).ok_or_else(|| {
            format!(
                "invalid --user {text:?}: the user has no group in /etc/passwd; write USER:GROUP"
            )
        })?;
        let name = entry.and_then(|entry| entry.first().copied()).unwrap_or_default();
        let is_member = |entry: &Vec<&str>| {
            entry.get(3).is_some_and(|members| members.split(',').any(|member| member == name))
        };
        let mut all: Vec<u32> =
            fields(groups).filter(is_member).filter_map(|entry| number(&entry, 2)).collect();
        all.retain(|other| *other != group);
        all.push(group);
        return Ok(JobUser::new(id, group, all));
    };
    let named = fields(groups).find(|entry| entry.first() == Some(&group));
    let number = named.and_then(|entry| number(&entry, 2)).or(group.parse().ok());
    let group = number.ok_or_else(|| {
        format!("invalid --user {text:?}: /etc/group has no group {group:?}; a number works too")
    })?;
    Ok(JobUser::new(id, group, vec![group]))
}

/// Returns the text of the file, or nothing if it cannot be read: then only numbers can be found.
fn read_database(path: &str) -> String {
    fs::read(path).map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).unwrap_or_default()
}

fn fields(text: &str) -> impl Iterator<Item = Vec<&str>> {
    text.lines().map(|line| line.split(':').collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    const USERS: &str =
        "root:x:0:0:root:/root:/bin/sh\nann:x:1000:100::/home/ann:/bin/sh\n1000:x:7:7::/:/bin/sh\n";
    const GROUPS: &str = "root:x:0:\nusers:x:100:ann\nwheel:x:10:root,ann\naudio:x:29:bob\n";

    fn find(text: &str) -> Result<JobUser, String> {
        find_in(text, USERS, GROUPS)
    }

    #[test]
    fn a_user_has_a_name_or_a_number_and_its_groups() {
        let user = |id, group, groups: &[u32]| Ok(JobUser::new(id, group, groups.to_vec()));
        assert_eq!(find("ann"), user(1000, 100, &[10, 100]));
        assert_eq!(find("root"), user(0, 0, &[10, 0]));
        assert_eq!(find("ann:audio"), user(1000, 29, &[29]));
        assert_eq!(find("ann:5"), user(1000, 5, &[5]));
        assert_eq!(find("4242:4343"), user(4242, 4343, &[4343]));
        assert_eq!(find("0"), user(0, 0, &[10, 0]));
        // A name comes before a number.
        assert_eq!(find("1000"), user(7, 7, &[7]));
    }

    #[test]
    fn an_unknown_user_or_group_is_an_error() {
        for (text, words) in [
            ("bob", "no user \"bob\""),
            ("", "no user \"\""),
            ("ann:nobody", "no group \"nobody\""),
            ("4242", "write USER:GROUP"),
            ("-1:0", "no user \"-1\""),
        ] {
            let error = find(text).unwrap_err();
            assert!(error.contains(words), "{text}: {error}");
        }
    }
}
