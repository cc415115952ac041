//! Workers in other languages: the libraries of `clients/` behind real hosts, and in front of hostile ones.
//!
//! | file | contents |
//! |---|---|
//! | `good.rs` | a good worker: messages, calls, items, the ends of either side, and the workers of `docs/workers.md` |
//! | `hostile.rs` | a host that breaks the protocol |
//! | `signals.rs` | signal handlers that raise while a worker waits, and a host that stops in the middle of a frame |

mod good;
mod hostile;
#[cfg(target_os = "linux")]
mod signals;

use std::path::{Path, PathBuf};
#[cfg(unix)]
use std::sync::OnceLock;

use pipewright::Command;
#[cfg(unix)]
use pipewright::ErrorKind;
use pipewright_ipc::{Channel, Options};
use pipewright_tests::{pace, skip};

/// Makes the suite of one language: a test for each function.
macro_rules! suite {
    ($module:ident, $language:expr, $($file:ident: $($test:ident),+;)+) => {
        mod $module {
            use pipewright_test_macros::watched_test;
            $($(
                #[watched_test]
                fn $test() {
                    if let Some(client) = super::Language::client($language) {
                        super::$file::$test(&client);
                    }
                }
            )+)+
        }
    };
}

/// Makes the suites of all languages.
macro_rules! suites {
    ($($file:ident: $($test:ident),+;)+) => {
        suite!(c, super::Language::C, $($file: $($test),+;)+);
        suite!(node, super::Language::Node, $($file: $($test),+;)+);
        suite!(python, super::Language::Python, $($file: $($test),+;)+);
    };
}

suite! {
    rust, super::Language::Rust,
    good: items_go_both_ways_at_once, the_worker_decides_how_many_items_are_on_their_way,
        a_worker_may_reply_before_the_last_item, a_call_that_is_cancelled_between_items_ends,
        a_worker_that_knows_of_the_cancellation_does_not_wait, an_item_over_the_limit_ends_its_call;
    hostile: cancellations_of_no_call_are_ignored, items_have_the_documented_bytes,
        items_without_credit_end_the_worker, late_frames_of_items_are_ignored,
        a_host_that_ends_between_items_ends_the_worker, any_items_end_without_a_crash;
}

suites! {
    good: messages_around_every_size_boundary_round_trip, a_long_message_arrives_both_ways,
        a_host_that_does_not_receive_never_deadlocks, two_sides_that_send_everything_first_do_not_deadlock,
        a_stopped_and_continued_worker_loses_nothing, messages_before_a_kill_arrive_whole_and_in_order,
        handles_go_with_messages, stdout_is_not_read_as_messages, shared_memory_is_used_where_it_is_promised,
        many_calls_are_answered, a_failed_call_is_an_error_and_its_worker_is_kept,
        an_exception_without_a_text_fails_only_its_call, items_are_paced_by_their_reader, a_worker_asks_its_caller,
        a_cancelled_call_ends_and_its_worker_is_kept,
        a_call_that_is_cancelled_while_it_waits_is_not_started, a_reset_is_acknowledged,
        a_dead_worker_fails_its_calls_with_its_status, a_body_that_is_too_long_fails_only_its_own_call,
        an_answer_arrives_behind_long_calls_that_wait,
        items_of_a_request_arrive_whole_and_in_order, a_later_loop_continues_after_an_earlier_one,
        items_go_both_ways_at_once, the_worker_decides_how_many_items_are_on_their_way,
        a_worker_may_reply_before_the_last_item, a_call_that_is_cancelled_between_items_ends,
        a_worker_that_knows_of_the_cancellation_does_not_wait, items_may_end_before_their_call_begins,
        a_call_with_items_is_lost_with_its_worker, an_item_over_the_limit_ends_its_call,
        a_goodbye_ends_the_worker, refused_handshakes_name_the_field_on_both_sides,
        required_shared_memory_is_an_error_if_unavailable, a_program_without_a_host_is_told_so,
        a_worker_exits_when_its_host_is_gone, nothing_is_left_in_a_worker,
        the_worker_of_the_tutorial_reverses_requests, the_worker_of_the_tutorial_adds_up_items;
    hostile: items_have_the_documented_bytes, items_without_credit_end_the_worker, late_frames_of_items_are_ignored,
        a_host_that_ends_between_items_ends_the_worker, any_items_end_without_a_crash,
        cancellations_of_no_call_are_ignored, wrong_frames_end_the_worker_with_a_reason,
        wrong_handshakes_end_the_worker_with_a_reason,
        unsafe_memory_is_refused, a_corrupt_ring_ends_the_worker_with_a_reason,
        unexpected_handles_end_the_worker, any_frames_end_without_a_crash, any_ring_ends_without_a_crash;
}

/// Only Linux has shared memory for all of them, and tells that a process sleeps.
#[cfg(target_os = "linux")]
mod halves_of_all {
    use super::{Language, signals};
    use pipewright_test_macros::watched_test;

    #[watched_test]
    fn a_worker_with_half_a_message_sleeps() {
        for language in [Language::Rust, Language::C, Language::Python] {
            if let Some(client) = language.client() {
                signals::a_worker_with_half_a_message_sleeps(&client);
            }
        }
    }
}

/// A language that workers are written in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Language {
    /// The library itself, for its items and the hostile hosts. The other tests of the suite are about its calls.
    Rust,
    C,
    Python,
    Node,
}

/// The test worker of a language.
#[derive(Debug)]
struct Client {
    language: Language,
    program: Vec<PathBuf>,
}

fn clients() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../clients")
}

/// Returns the program in C that `ci/windows.sh` has compiled, as there is no compiler under Wine.
#[cfg(windows)]
fn compiled_before(name: &str) -> Option<PathBuf> {
    let folder = std::env::var_os("PIPEWRIGHT_C_WORKERS");
    if folder.is_none() {
        skip::skipped(
            skip::Need::CWorkers,
            "the workers in C were not compiled: see ci/windows.sh",
        );
    }
    Some(Path::new(&folder?).join(name).with_extension("exe"))
}

/// Returns true if this machine has the program. Reports that the test is skipped otherwise.
#[cfg(unix)]
fn has(program: &str) -> bool {
    match Command::new(program).arg("--version").output() {
        Err(error) if matches!(error.kind(), ErrorKind::NotFound { .. }) => {
            skip::skipped(skip::Need::Program(program), "is not here");
            false
        }
        version => version.unwrap().status.success(),
    }
}

/// Compiles a program of `clients`, with all warnings.
#[cfg(unix)]
fn compile(source: &str, flags: &[&str], program: &Path) {
    let mut command = Command::new("cc");
    command.args(["-std=c99", "-Wall", "-Wextra", "-Wpedantic", "-Werror"]).args(flags);
    command.arg("-I").arg(clients().join("c")).arg(clients().join(source));
    command.arg("-o").arg(program).run().unwrap();
}

/// Compiles the worker in C with the address and undefined behaviour sanitizers, once.
#[cfg(unix)]
fn compiled() -> PathBuf {
    static COMPILED: OnceLock<PathBuf> = OnceLock::new();
    let compiled = || {
        let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join("pipewright-worker-c");
        let sanitizers = ["-fsanitize=address,undefined", "-fno-sanitize-recover=all"];
        compile("c/tests/worker.c", &[&["-g", "-O1"], &sanitizers[..]].concat(), &program);
        program
    };
    COMPILED.get_or_init(compiled).clone()
}

impl Language {
    /// Returns its test worker. `None`: this machine cannot run it, as was reported.
    #[cfg(windows)]
    fn client(self) -> Option<Client> {
        let program = match self {
            Language::Rust => PathBuf::from(env!("CARGO_BIN_EXE_puppet")),
            Language::C => compiled_before("worker")?,
            Language::Python | Language::Node => {
                skip::skipped(skip::Need::Unix, "this client is for Unix only");
                return None;
            }
        };
        Some(Client { language: self, program: vec![program] })
    }

    /// Returns its test worker. `None`: this machine cannot run it, as was reported.
    #[cfg(unix)]
    fn client(self) -> Option<Client> {
        let script = |program: &str, file: &str| {
            has(program).then(|| vec![program.into(), clients().join(file)])
        };
        let program = match self {
            Language::Rust => Some(vec![env!("CARGO_BIN_EXE_puppet").into()]),
            Language::C => has("cc").then(|| vec![compiled()]),
            Language::Python => script("python3", "python/tests/worker.py"),
            Language::Node => script("node", "node/tests/worker.mjs"),
        };
        program.map(|program| Client { language: self, program })
    }
}

impl Client {
    /// Returns true if its messages can go through shared memory on this machine.
    fn has_shared_memory(&self) -> bool {
        let is_linux = cfg!(target_os = "linux") && !skip::is_forced_off("memfd");
        match self.language {
            Language::Rust => is_linux || cfg!(any(windows, target_os = "macos")),
            Language::C => (is_linux || cfg!(windows)) && cfg!(target_pointer_width = "64"),
            Language::Python => is_linux && cfg!(target_arch = "x86_64"),
            Language::Node => false,
        }
    }

    /// Returns true if handles can be passed to it.
    fn carries_handles(&self) -> bool {
        match self.language {
            Language::Rust | Language::C | Language::Python => true,
            Language::Node => false,
        }
    }

    /// Returns the command of its worker of that kind: `MODE KEY=VALUE...`.
    fn worker(&self, kind: &str) -> Command {
        let mut command = Command::new(&self.program[0]);
        if self.language == Language::Rust {
            command.arg(format!("ipc={}", kind.replace(' ', ",")));
            return command;
        }
        command.args(&self.program[1..]).args(kind.split(' '));
        // No files of bytecode beside the sources.
        command.env("PYTHONDONTWRITEBYTECODE", "1");
        command
    }

    /// Starts its worker of that kind, and returns the channel to it.
    #[track_caller]
    fn start(&self, kind: &str, options: &Options) -> Channel {
        // An interpreter may take longer to start, on a busy machine, than a host waits by default.
        let options = Options { handshake_timeout: pace::seconds(60), ..options.clone() };
        Channel::start(&mut self.worker(kind), &options).unwrap()
    }
}
