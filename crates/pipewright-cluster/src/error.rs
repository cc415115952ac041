//! Errors of remote nodes.

use std::error::Error;
use std::fmt;
use std::io;
use std::time::Duration;

use pipewright_os::base::error::OneLine;

/// An error of a node, or of the connection to it.
#[derive(Debug)]
#[non_exhaustive]
pub enum RemoteError {
    /// The connection failed.
    Io(io::Error),
    /// The other side closed the connection.
    Closed,
    /// The other side has sent nothing for this long.
    Silent(Duration),
    /// The other side is not a pipewright, or not the expected side of one. The text is what it sent, if
    /// that is known.
    NotPipewright(String),
    /// The other side is another build.
    Program {
        /// The hash of the program of this side.
        own: String,
        /// The hash of the program of the other side.
        peer: String,
    },
    /// The other side speaks another version of the protocol.
    Protocol {
        /// The version of this side.
        own: u16,
        /// The version of the other side.
        peer: u16,
    },
    /// The other side does not know the secret of the batch.
    WrongSecret,
    /// A message has more bytes than a frame may have.
    TooLong {
        /// The number of bytes.
        bytes: u64,
    },
    /// A message cannot be understood.
    Garbled(&'static str),
    /// The secret cannot be read.
    Secret(io::Error),
    /// The command that connects to the node failed. The text is one line.
    Command(String),
}

impl fmt::Display for RemoteError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RemoteError::Io(error) => write!(f, "the connection failed: {error}"),
            RemoteError::Closed => f.write_str("the connection was closed"),
            RemoteError::Silent(time) => {
                write!(f, "no answer for {:.1} s", time.as_secs_f64())
            }
            RemoteError::NotPipewright(text) if text.is_empty() => {
                f.write_str("the other side is not pipewright")
            }
            RemoteError::NotPipewright(text) => {
                write!(f, "the other side is not pipewright: {}", OneLine(text))
            }
            RemoteError::Program { own, peer } => {
                let peer = OneLine(peer);
                write!(
                    f,
                    "the other side is another build of pipewright: its program is {peer}, this one {own}"
                )
            }
            RemoteError::Protocol { own, peer } => write!(
                f,
                "the other side speaks protocol {peer}, this one {own}: use one build of pipewright"
            ),
            RemoteError::WrongSecret => f.write_str("the other side does not know the secret"),
            RemoteError::TooLong { bytes } => write!(f, "a message of {bytes} bytes is too long"),
            RemoteError::Garbled(what) => write!(f, "a message cannot be understood: {what}"),
            RemoteError::Secret(error) => write!(f, "the secret cannot be read: {error}"),
            RemoteError::Command(line) => write!(f, "{}", OneLine(line)),
        }
    }
}

impl Error for RemoteError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            RemoteError::Io(error) | RemoteError::Secret(error) => Some(error),
            _ => None,
        }
    }
}

impl From<io::Error> for RemoteError {
    fn from(error: io::Error) -> RemoteError {
        match error.kind() {
            io::ErrorKind::UnexpectedEof | io::ErrorKind::BrokenPipe => RemoteError::Closed,
            _ => RemoteError::Io(error),
        }
    }
}

impl From<postcard::Error> for RemoteError {
    fn from(_: postcard::Error) -> RemoteError {
        RemoteError::Garbled("its fields")
    }
}
