//! Values of options: limits, signals, streams.

use std::time::Duration;

use pipewright::{Handle, Limit, Limits, Linger, PtySize, Resource, Signal, Stdio};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::errors::Failure;
use crate::waiting::duration;

/// The numbers that `subprocess` has for streams, and one for a stream that is not set.
pub(crate) const PIPE: i32 = -1;
pub(crate) const TO_STDOUT: i32 = -2;
pub(crate) const NULL: i32 = -3;
pub(crate) const INHERIT: i32 = -4;
pub(crate) const TEE: i32 = -5;
pub(crate) const UNSET: i32 = -6;

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

/// Reads `(rule, bytes)`.
pub(crate) fn limit((rule, bytes): (String, usize)) -> PyResult<Limit> {
    match rule.as_str() {
        "fail" => Ok(Limit::fail(bytes)),
        "head" => Ok(Limit::keep_head(bytes)),
        "tail" => Ok(Limit::keep_tail(bytes)),
        _ => Err(PyValueError::new_err("the rule of a limit is 'fail', 'head' or 'tail'")),
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

pub(crate) fn pty_size((rows, cols): (u16, u16)) -> PtySize {
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
pub(crate) fn resource(name: &str) -> PyResult<Resource> {
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
