//! Jobs as the log keeps them: the command as one line, and the settings as JSON.
//!
//! A job without settings, the usual one, has no JSON at all. The fields are those of JSON lines, where those have one.
//!
//! | field | value |
//! |---|---|
//! | `shell` | true if the command is a line for the shell |
//! | `words` | the words, if `{#}` or `{%}` are in them: an array of pieces for each word |
//! | `number` | the number that replaces `{#}` |
//! | `values` | the values of the record, for the tag |
//! | `env`, `stdin`, `stdin_file`, `after`, `cpus`, `mem`, `tokens`, `timeout`, `retries`, `once` | as in JSON lines |
//! | `env_hex` | variables whose names are not Unicode, by their bytes in hexadecimal |
//!
//! | file | contents |
//! |---|---|
//! | `encode.rs` | from a job to JSON |
//! | `decode.rs` | from the log to a job |
//! | `text.rs` | bytes that are mostly text, and times |

mod decode;
mod encode;
#[cfg(test)]
mod tests;
mod text;

pub(crate) use decode::StoredJob;
pub(crate) use encode::settings;
