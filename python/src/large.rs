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
            file.call_method1("write", (PyBytes::new(py, buffer),))?;
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
        let Some(file) = self.file(py, index) else { return Ok(PyBytes::new(py, last)) };
        file.call_method1("write", (PyBytes::new(py, last),))?;
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
        let Some(file) = self.file(py, index) else { return Ok(PyBytes::new(py, last)) };
        let mut all = file.call_method0("getvalue")?.cast::<PyBytes>()?.as_bytes().to_vec();
        all.extend_from_slice(last);
        Ok(PyBytes::new(py, &all))
    }

    fn file<'py>(&self, py: Python<'py>, index: usize) -> Option<Bound<'py, PyAny>> {
        self.files.lock(py)[index].as_ref().map(|it| it.clone_ref(py).into_bound(py))
    }
}
