//! Large outputs. They grow in a `BytesIO` while the command runs, whose memory becomes the result: a copy of all at the end
//! would take as long as reading.

use std::mem;

use pipewright::RunningOutput;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::shared::Shared;

/// The number of bytes from which an output is large.
pub(crate) const LARGE_BYTES: usize = 1 << 20;

/// The parts of stdout and stderr so far, if they are large. One thread at a time adds some.
#[derive(Debug)]
pub(crate) struct Large {
    files: Shared<[Option<Py<PyAny>>; 2]>,
    /// Bytes that are in no file yet.
    buffers: Shared<[Vec<u8>; 2]>,
}

impl Large {
    pub(crate) fn new() -> Large {
        Large { files: Shared::new([None, None]), buffers: Shared::new([Vec::new(), Vec::new()]) }
    }

    /// Takes the bytes that a run has captured. Their lock is held for a moment only.
    pub(crate) fn take(&self, run: &mut RunningOutput) {
        run.take_so_far(&mut self.buffers.lock_detached());
    }

    /// Takes the bytes of one stream, and leaves an empty buffer.
    pub(crate) fn take_of(&self, index: usize, bytes: &mut Vec<u8>) {
        let mut buffers = self.buffers.lock_detached();
        match &mut buffers[index] {
            buffer if buffer.is_empty() => mem::swap(buffer, bytes),
            buffer => buffer.append(bytes),
        }
    }

    /// Adds the bytes that have been taken.
    pub(crate) fn add(&self, py: Python<'_>) -> PyResult<()> {
        let mut buffers = mem::take(&mut *self.buffers.lock(py));
        for (index, buffer) in buffers.iter_mut().enumerate().filter(|(_, it)| !it.is_empty()) {
            let file = match self.file(py, index) {
                Some(file) => file,
                None => {
                    let file = py.import("io")?.getattr("BytesIO")?.call0()?;
                    self.files.lock(py)[index] = Some(file.clone().unbind());
                    file
                }
            };
            file.call_method1("write", (bytes_of(py, &[buffer])?,))?;
            buffer.clear();
        }
        // The run reads into their memory again.
        *self.buffers.lock(py) = buffers;
        Ok(())
    }

    /// Returns the parts of a stream and these last bytes, without a copy, and forgets them.
    pub(crate) fn finish<'py>(
        &self,
        py: Python<'py>,
        index: usize,
        last: &[u8],
    ) -> PyResult<Bound<'py, PyBytes>> {
        let Some(file) = self.file(py, index) else { return bytes_of(py, &[last]) };
        file.call_method1("write", (bytes_of(py, &[last])?,))?;
        self.files.lock(py)[index] = None;
        Ok(file.call_method0("getvalue")?.cast_into()?)
    }

    /// Returns a copy of the parts of a stream and these last bytes.
    pub(crate) fn so_far<'py>(
        &self,
        py: Python<'py>,
        index: usize,
        last: &[u8],
    ) -> PyResult<Bound<'py, PyBytes>> {
        let Some(file) = self.file(py, index) else { return bytes_of(py, &[last]) };
        let first = file.call_method0("getvalue")?.cast_into::<PyBytes>()?;
        bytes_of(py, &[first.as_bytes(), last])
    }

    fn file<'py>(&self, py: Python<'py>, index: usize) -> Option<Bound<'py, PyAny>> {
        self.files.lock(py)[index].as_ref().map(|it| it.clone_ref(py).into_bound(py))
    }
}

/// Makes `bytes` of these parts. Without memory for a large one, that is a `MemoryError`.
pub(crate) fn bytes_of<'py>(py: Python<'py>, parts: &[&[u8]]) -> PyResult<Bound<'py, PyBytes>> {
    let count = parts.iter().map(|part| part.len()).sum();
    match parts {
        [part] if count < LARGE_BYTES => Ok(PyBytes::new(py, part)),
        parts => PyBytes::new_with(py, count, |mut room| {
            for part in parts {
                let (here, rest) = room.split_at_mut(part.len());
                here.copy_from_slice(part);
                room = rest;
            }
            Ok(())
        }),
    }
}
