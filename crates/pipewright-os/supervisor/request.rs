//! Receives a request of the host, and the handles that come with it.

use core::mem::MaybeUninit;

use crate::nolibc::call;
use crate::nolibc::message::{
    MOST_HANDLES, Message, Part, REQUEST_WORDS, RIGHTS_HEADER_BYTES, Request, Rights, SCM_RIGHTS,
    SOL_SOCKET,
};
use crate::nolibc::number;
use crate::system;

/// The handles that came with a request. Each is close-on-exec.
pub struct Handles {
    rights: MaybeUninit<Rights<MOST_HANDLES, MaybeUninit<i32>>>,
    count: usize,
    /// Some did not arrive, because there was no room for them.
    is_truncated: bool,
}

/// The result of [`Handles::receive`].
pub enum Received {
    Request(Request),
    /// Nothing, or a message that is no request.
    Nothing,
    /// The host has closed its end.
    End,
}

impl Handles {
    pub fn none() -> Handles {
        Handles { rights: MaybeUninit::uninit(), count: 0, is_truncated: false }
    }

    /// Takes the next request, if there is one, and its handles.
    pub fn receive(&mut self) -> Received {
        const MSG_DONTWAIT_CMSG_CLOEXEC: usize = 0x4000_0040;
        const MSG_CTRUNC: usize = 8;
        const EAGAIN: isize = 11;
        let mut words = MaybeUninit::<[i64; REQUEST_WORDS]>::uninit();
        let mut part = Part { base: words.as_mut_ptr().cast(), length: REQUEST_WORDS * 8 };
        let mut message = Message::of(&mut part);
        message.control = self.rights.as_mut_ptr().cast();
        message.control_bytes = size_of_val(&self.rights);
        let place = &raw mut message as usize;
        let socket = system::HOST as usize;
        let received = call(number::RECVMSG, [socket, place, MSG_DONTWAIT_CMSG_CLOEXEC, 0, 0, 0]);
        self.count = 0;
        if received == -EAGAIN {
            return Received::Nothing;
        }
        if received <= 0 {
            return Received::End;
        }
        self.is_truncated = message.flags & MSG_CTRUNC != 0;
        self.set_count(message.control_bytes);
        if received as usize != REQUEST_WORDS * 8 {
            return Received::Nothing;
        }
        // SAFETY: the kernel has just filled all of it.
        match Request::of_words(unsafe { words.assume_init_ref() }) {
            Some(request) => Received::Request(request),
            None => Received::Nothing,
        }
    }

    /// Counts the handles in the control message, of which the kernel has written that many bytes.
    fn set_count(&mut self, written: usize) {
        if written < RIGHTS_HEADER_BYTES {
            return;
        }
        let rights = self.rights.as_ptr();
        // SAFETY: the kernel has written the header.
        let (level, kind) = unsafe { ((*rights).level, (*rights).kind) };
        // SAFETY: as above.
        let bytes = unsafe { (*rights).bytes };
        if level == SOL_SOCKET && kind == SCM_RIGHTS && bytes >= RIGHTS_HEADER_BYTES {
            let count = (bytes - RIGHTS_HEADER_BYTES) / 4;
            self.count = if count < MOST_HANDLES { count } else { MOST_HANDLES };
        }
    }

    pub fn count(&self) -> usize {
        self.count
    }

    pub fn is_truncated(&self) -> bool {
        self.is_truncated
    }

    /// Returns a handle; `None` beyond the last one.
    pub fn get(&self, index: usize) -> Option<i32> {
        if index >= self.count {
            return None;
        }
        let first =
            self.rights.as_ptr().cast::<u8>().wrapping_add(RIGHTS_HEADER_BYTES).cast::<i32>();
        // SAFETY: the kernel has written that many numbers, and the index is less.
        Some(unsafe { first.wrapping_add(index).read() })
    }

    /// Closes the handles of this process. A command has its own.
    pub fn close(&self) {
        let mut index = 0;
        while let Some(fd) = self.get(index) {
            call(number::CLOSE, [fd as usize, 0, 0, 0, 0, 0]);
            index += 1;
        }
    }
}
