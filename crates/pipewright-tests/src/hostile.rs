//! A worker that breaks the protocol: frames on the wire, written by hand.

use std::io::IoSlice;
use std::thread::JoinHandle;

use pipewright_ipc::{Channel, Error, Options};
use pipewright_os::base::handle::Handle;
use pipewright_os::base::wait::{self, Slot};
use pipewright_os::channel::handle_channel::{self, Arrived, ChannelEnd};
use pipewright_os::channel::shm::{Seen, ShmOptions, Written};

/// Returns the bytes of a frame.
pub fn frame(kind: u8, flags: u8, handles: u16, length: u32, body: &[u8]) -> Vec<u8> {
    let mut bytes = length.to_le_bytes().to_vec();
    bytes.extend([kind, flags]);
    bytes.extend(handles.to_le_bytes());
    bytes.extend([0; 8]);
    bytes.extend(body);
    bytes
}

/// Returns a frame with a body of text.
pub fn text(kind: u8, text: &str) -> Vec<u8> {
    frame(kind, 0, 0, text.len() as u32, text.as_bytes())
}

/// Sends all bytes, if the host still runs.
pub fn send(end: &mut ChannelEnd, bytes: &[u8]) {
    // Ignored: the host has returned an error and closed the channel.
    let _ = end.send(&[IoSlice::new(bytes)]);
    while end.unsent() > 0 {
        wait::any(&mut [Slot::Room(end)], None).unwrap();
        if end.flush().is_err() {
            return;
        }
    }
}

/// Returns the kind and body of the next frame from the host, or `None` if the host is gone.
pub fn receive_frame(end: &mut ChannelEnd) -> Option<(u8, String)> {
    loop {
        if let Some(head) = end.arrived().first_chunk::<16>() {
            let length = u32::from_le_bytes([head[0], head[1], head[2], head[3]]) as usize;
            let kind = head[4];
            if let Some(body) = end.arrived().get(16..16 + length) {
                let body = String::from_utf8_lossy(body).into_owned();
                end.consume(16 + length);
                return Some((kind, body));
            }
        }
        wait::any(&mut [Slot::Event(end)], None).unwrap();
        if end.receive(usize::MAX).ok()? == Arrived::End {
            return None;
        }
    }
}

/// Answers the host's hello with the same fields, and adds the worker's capabilities.
pub fn send_hello(end: &mut ChannelEnd, can: &str) {
    let (kind, hello) = receive_frame(end).unwrap();
    assert_eq!(kind, 1);
    let lines: Vec<&str> = hello.lines().filter(|line| !line.starts_with("can=")).collect();
    send(end, &text(1, &format!("{}\ncan={can}\n", lines.join("\n"))));
}

/// Does the same as [`send_hello`], and agrees on shared memory with the given memory as the worker's side.
pub fn send_hello_with_memory(end: &mut ChannelEnd, ours: &Written) {
    send_hello(end, "shm.v1");
    let (kind, memory) = receive_frame(end).unwrap();
    assert_eq!(kind, 3);
    let theirs = end.take_handle().unwrap();
    let bytes = memory.lines().find_map(|line| line.strip_prefix("bytes=")).unwrap();
    let shm = ShmOptions { bytes: bytes.parse().unwrap(), prefault: false };
    let theirs = Seen::open(&theirs, shm).unwrap();
    let [nonce, ..] = theirs.numbers(0).unwrap();
    let body = format!("memory\nbytes={}\nproof={}\n", ours.bytes(), u64::from_le(nonce));
    let frame = frame(3, 0, 1, body.len() as u32, body.as_bytes());
    let handle = ours.handle().try_clone().unwrap();
    assert!(end.send_handles(&[IoSlice::new(&frame)], &[handle]).unwrap());
    let (kind, ready) = receive_frame(end).unwrap();
    assert!(kind == 4 && ready.contains("shared=1"), "{ready}");
}

/// Starts that worker on a thread, and returns the host's end of the channel.
pub fn on_a_thread(act: impl FnOnce(&mut ChannelEnd) + Send + 'static) -> (Handle, JoinHandle<()>) {
    let (mut end, handle) = handle_channel::pair().unwrap();
    (handle, std::thread::spawn(move || act(&mut end)))
}

/// Returns the error of a host that connects to that worker and receives until an error.
pub fn outcome(act: impl FnOnce(&mut ChannelEnd) + Send + 'static, options: &Options) -> Error {
    let (link, thread) = on_a_thread(act);
    let error = host(link, options);
    thread.join().unwrap();
    error
}

fn host(link: Handle, options: &Options) -> Error {
    let connected: Result<Channel, Error> = Channel::as_host(link, options);
    let mut channel = match connected {
        Ok(channel) => channel,
        Err(error) => return error,
    };
    let mut received = Vec::new();
    loop {
        if let Err(error) = channel.recv().and_then(|message| message.read_into(&mut received)) {
            return error;
        }
        assert!(
            received.capacity() as u64 <= options.max_message_bytes,
            "{} bytes",
            received.capacity()
        );
    }
}
