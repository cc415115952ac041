//! Sends any bytes after a valid handshake. The host returns messages and then an error; it never crashes, hangs or
//! uses more memory than agreed.
#![no_main]

use libfuzzer_sys::fuzz_target;
use pipewright_fuzz::options;
use pipewright_ipc::SharedMemory;
use pipewright_tests::hostile::{outcome, send, send_hello};

fuzz_target!(|bytes: Vec<u8>| {
    outcome(
        move |end| {
            send_hello(end, "handles.v1");
            send(end, &bytes);
        },
        &options(SharedMemory::Off),
    );
});
