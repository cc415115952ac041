//! Sends any bytes as a handshake. The first byte selects how much of a valid handshake comes before them.
#![no_main]

use libfuzzer_sys::fuzz_target;
use pipewright_fuzz::options;
use pipewright_ipc::SharedMemory;
use pipewright_tests::hostile::{frame, outcome, send, send_hello};

fuzz_target!(|bytes: Vec<u8>| {
    outcome(
        move |end| {
            let Some((stage, rest)) = bytes.split_first() else { return };
            match stage % 4 {
                0 => send(end, rest),
                1 => send(end, &frame(1, 0, 0, rest.len() as u32, rest)),
                2 => {
                    send_hello(end, "shm.v1");
                    send(end, rest);
                }
                _ => {
                    send_hello(end, "shm.v1");
                    send(end, &frame(3, 0, 0, rest.len() as u32, rest));
                }
            }
        },
        &options(SharedMemory::Auto),
    );
});
