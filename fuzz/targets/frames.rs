//! Any bytes after a right handshake: messages, and then an error; no crash, no hang, no more memory than agreed.
#![no_main]

use libfuzzer_sys::fuzz_target;
use pipewright_fuzz::options;
use pipewright_ipc::SharedMemory;
use pipewright_tests::hostile::{greet, outcome, send};

fuzz_target!(|bytes: Vec<u8>| {
    outcome(
        move |end| {
            greet(end, "handles.v1");
            send(end, &bytes);
        },
        &options(SharedMemory::Off),
    );
});
