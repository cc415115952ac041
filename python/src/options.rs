//! A command from a dictionary of options, which `_options.py` has checked; values of options: limits, signals,
//! streams.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt as _;
use std::path::PathBuf;
use std::time::Duration;

use pipewright::{
    Command, Contain, Handle, Limit, Limits, Linger, PtySize, Resource, Scope, Signal, Stdio,
};
use pyo3::exceptions::{PyKeyError, PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use pyo3::types::{PyBytes, PyDict};

use crate::errors::Failure;
use crate::shared::duration;

/// Makes the command. `argv`, `stdin`, `stdout` and `stderr` are always there.
pub(crate) fn command(options: &Bound<'_, PyDict>) -> PyResult<Command> {
    let argv: Vec<Bound<'_, PyBytes>> = required(options, "argv")?.extract()?;
    let mut argv = argv.iter().map(text);
    let first = argv.next().ok_or_else(|| PyTypeError::new_err("the command is empty"))?;
    let mut command = match options.get_item("program")? {
        Some(program) => {
            let program = path(&program)?;
            let mut command = Command::new(&program);
            if program != first {
                command.arg0(first);
            }
            command
        }
        None => Command::new(first),
    };
    command.args(argv);
    for (key, value) in options {
        set(&mut command, &key.extract::<String>()?, &value)?;
    }
    Ok(command)
}

fn set(command: &mut Command, key: &str, value: &Bound<'_, PyAny>) -> PyResult<()> {
    match key {
        // The files are here so that they are open now: the caller may have no other reference to them.
        "argv" | "program" | "files" => {}
        "stdin" => set_stream(command, Command::stdin, value)?,
        "stdout" => set_stream(command, Command::stdout, value)?,
        "stderr" if value.extract::<i32>()? == TO_STDOUT => {
            command.merge_stderr();
        }
        "stderr" => set_stream(command, Command::stderr, value)?,
        "input" => {
            // Python's own bytes, however large: they are borrowed until the run has ended.
            command.stdin(Stdio::bytes_of(value.extract::<PyBackedBytes>()?));
        }
        "cwd" => {
            command.current_dir(path(value)?);
        }
        "env" => set_env(command, value)?,
        "pass_fds" => {
            for number in value.extract::<Vec<i32>>()? {
                command.inherit_fd_as(handle(number)?, number);
            }
        }
        "inherit_all" => {
            command.inherit_all();
        }
        _ => set_rule(command, key, value)?,
    }
    Ok(())
}

fn set_rule(command: &mut Command, key: &str, value: &Bound<'_, PyAny>) -> PyResult<()> {
    match key {
        "timeout" => {
            command.timeout(duration(value.extract()?)?);
        }
        "idle_timeout" => {
            command.idle_timeout(duration(value.extract()?)?);
        }
        "kill_grace" => {
            command.kill_grace(duration(value.extract()?)?);
        }
        "stop_signal" => {
            command.stop_signal(signal(value.extract()?)?);
        }
        "limit" => {
            let (limit, folder) = limit(value)?;
            command.limit(limit);
            if let Some(folder) = folder {
                command.spill_to(folder);
            }
        }
        "linger" => {
            command.linger(linger(value)?);
        }
        "max_line" => {
            command.max_line(value.extract()?);
        }
        "background" => {
            command.enforce_in_background();
        }
        "kill_on_drop" => {
            command.kill_on_drop();
        }
        "tree" => {
            command.contain(Contain::Tree);
        }
        "limits" => {
            command.limits(tree_limits(value.cast()?)?);
        }
        "parent_exit" => {
            let tree = value.extract::<String>()? == "tree";
            command.kill_on_parent_exit(if tree { Scope::Tree } else { Scope::Child });
        }
        "pty" => {
            command.pty(pty_size(value.extract()?));
        }
        _ => set_unix(command, key, value)?,
    }
    Ok(())
}

fn set_unix(command: &mut Command, key: &str, value: &Bound<'_, PyAny>) -> PyResult<()> {
    match key {
        "session" => {
            command.own_session();
        }
        "group" => {
            command.process_group(value.extract()?);
        }
        "uid" => {
            command.uid(value.extract()?);
        }
        "gid" => {
            command.gid(value.extract()?);
        }
        "groups" => {
            command.groups(&value.extract::<Vec<u32>>()?);
        }
        "umask" => {
            command.umask(value.extract()?);
        }
        "default_signals" => {
            for number in value.extract::<Vec<i32>>()? {
                command.default_signal(signal(number)?);
            }
        }
        "nice" => {
            command.nice(value.extract()?);
        }
        "rlimits" => {
            for (name, soft, hard) in value.extract::<Vec<(String, Option<u64>, Option<u64>)>>()? {
                command.rlimit(resource(&name)?, soft, hard);
            }
        }
        _ => return Err(PyTypeError::new_err(format!("there is no option {key:?}"))),
    }
    Ok(())
}

fn set_stream(
    command: &mut Command,
    setter: fn(&mut Command, Stdio) -> &mut Command,
    value: &Bound<'_, PyAny>,
) -> PyResult<()> {
    if let Some(stream) = stream(value.extract()?)? {
        setter(command, stream);
    }
    Ok(())
}

fn set_env(command: &mut Command, value: &Bound<'_, PyAny>) -> PyResult<()> {
    let variables: Vec<(Bound<'_, PyBytes>, Bound<'_, PyBytes>)> = value.extract()?;
    command.env_clear();
    command.envs(variables.iter().map(|(name, value)| (text(name), text(value))));
    Ok(())
}

fn required<'py>(options: &Bound<'py, PyDict>, key: &'static str) -> PyResult<Bound<'py, PyAny>> {
    options.get_item(key)?.ok_or_else(|| PyKeyError::new_err(key))
}

fn path(value: &Bound<'_, PyAny>) -> PyResult<OsString> {
    Ok(text(value.cast::<PyBytes>()?))
}

fn text(bytes: &Bound<'_, PyBytes>) -> OsString {
    OsString::from_vec(bytes.as_bytes().to_vec())
}

/// The numbers that `subprocess` has for streams, and one for a stream that is not set.
const PIPE: i32 = -1;
const TO_STDOUT: i32 = -2;
const NULL: i32 = -3;
const INHERIT: i32 = -4;
const TEE: i32 = -5;
const UNSET: i32 = -6;

/// Returns a stream by its number: one of the constants, or a descriptor, which is copied.
pub(crate) fn stream(number: i32) -> PyResult<Option<Stdio>> {
    Ok(Some(match number {
        UNSET => return Ok(None),
        PIPE => Stdio::piped(),
        NULL => Stdio::null(),
        INHERIT => Stdio::inherit(),
        TEE => Stdio::tee(),
        number if number < 0 => return Err(PyValueError::new_err("a stream has a wrong number")),
        number => handle(number)?.into(),
    }))
}

/// Copies a descriptor of Python.
pub(crate) fn handle(number: i32) -> Result<Handle, Failure> {
    Handle::copy_of_number(number).map_err(|error| Failure::Io("use the descriptor", error))
}

pub(crate) fn signal(number: i32) -> PyResult<Signal> {
    Signal::from_number(number)
        .ok_or_else(|| PyValueError::new_err(format!("there is no signal {number}")))
}

/// Reads `(rule, bytes)` or `("keep", head, tail, folder)`, whose last one may be missing.
pub(crate) fn limit(value: &Bound<'_, PyAny>) -> PyResult<(Limit, Option<PathBuf>)> {
    if let Ok((rule, head, tail, folder)) = value.extract::<(String, usize, usize, PathBuf)>() {
        return Ok((keep_both(&rule, head, tail)?, Some(folder)));
    }
    if let Ok((rule, head, tail)) = value.extract::<(String, usize, usize)>() {
        return Ok((keep_both(&rule, head, tail)?, None));
    }
    let (rule, bytes) = value.extract::<(String, usize)>()?;
    let limit = match rule.as_str() {
        "fail" => Limit::fail(bytes),
        "head" => Limit::keep_head(bytes),
        "tail" => Limit::keep_tail(bytes),
        _ => return Err(PyValueError::new_err("the rule of a limit is 'fail', 'head' or 'tail'")),
    };
    Ok((limit, None))
}

fn keep_both(rule: &str, head: usize, tail: usize) -> PyResult<Limit> {
    match rule {
        "keep" => Ok(Limit::keep_head_and_tail(head, tail)),
        _ => Err(PyValueError::new_err("the rule with a head and a tail is 'keep'")),
    }
}

/// Reads `"eof"`, `"exit"` or `(quiet, cap)`.
pub(crate) fn linger(value: &Bound<'_, PyAny>) -> PyResult<Linger> {
    if let Ok((quiet, cap)) = value.extract::<(f64, f64)>() {
        return Ok(Linger::Settle { quiet: duration(quiet)?, cap: duration(cap)? });
    }
    match value.extract::<String>().unwrap_or_default().as_str() {
        "eof" => Ok(Linger::UntilEof),
        "exit" => Ok(Linger::StopAtExit),
        _ => Err(PyValueError::new_err("linger is 'eof', 'exit' or (quiet, cap) in seconds")),
    }
}

fn pty_size((rows, cols): (u16, u16)) -> PtySize {
    PtySize { rows, cols }
}

/// Reads the limits of a tree.
pub(crate) fn tree_limits(options: &Bound<'_, PyDict>) -> PyResult<Limits> {
    let mut limits = Limits::new();
    for (key, value) in options {
        let key: String = key.extract()?;
        limits = match key.as_str() {
            "memory" => limits.memory_max(value.extract()?),
            "swap" => limits.memory_swap_max(value.extract()?),
            "cpus" => limits.cpu_max(value.extract()?),
            "pids" => limits.pids_max(value.extract()?),
            "oom_group" if value.is_truthy()? => limits.oom_group(),
            "best_effort" if value.is_truthy()? => limits.best_effort(),
            "oom_group" | "best_effort" => limits,
            _ => return Err(PyValueError::new_err(format!("there is no limit {key:?}"))),
        };
    }
    Ok(limits)
}

/// Finds a resource by the name that the module `resource` has for it, without the prefix and in lower case.
fn resource(name: &str) -> PyResult<Resource> {
    Ok(match name {
        "as" => Resource::AddressSpace,
        "core" => Resource::CoreDump,
        "cpu" => Resource::CpuTime,
        "data" => Resource::Data,
        "fsize" => Resource::FileSize,
        "memlock" => Resource::LockedMemory,
        "nofile" => Resource::OpenFiles,
        "nproc" => Resource::Processes,
        "stack" => Resource::Stack,
        _ => return Err(PyValueError::new_err(format!("there is no resource {name:?}"))),
    })
}

/// Returns seconds as Python has them.
pub(crate) fn seconds(duration: Duration) -> f64 {
    duration.as_secs_f64()
}
