//! The suite of `pipewright-disk`, a file a subject; every backend passes the same tests.

mod bytes;
#[cfg(target_os = "linux")]
mod classes;
mod diagnosis;
#[cfg(target_os = "linux")]
mod diagnosis_pieces;
mod dropped;
mod errors;
#[cfg(target_os = "linux")]
mod mounted;
#[cfg(target_os = "linux")]
mod power_cut;
#[cfg(target_os = "linux")]
mod refused;
mod task;

use std::path::PathBuf;

use pipewright_disk::{
    BackendKind, DiskFile, Done, Engine, EngineOptions, ErrorKind, Operation, SharedEngine,
    UnavailableReason,
};
use pipewright_tests::skip::{Need, skipped};

/// Returns a folder on a disk for one test: some filesystems in memory have no direct I/O.
fn folder() -> tempfile::TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap()
}

const BACKENDS: [BackendKind; 5] = [
    BackendKind::IoUring,
    BackendKind::Aio,
    BackendKind::Overlapped,
    BackendKind::Threads,
    BackendKind::Caller,
];

/// An engine of either kind, for tests that do one thing after the other.
enum TestedEngine {
    Own(Box<Engine>),
    Shared(SharedEngine),
}

impl TestedEngine {
    fn run(&mut self, operation: Operation) -> Done {
        match self {
            TestedEngine::Own(engine) => engine.run(operation),
            TestedEngine::Shared(engine) => engine.start(operation).wait(),
        }
    }
}

/// Returns an engine of that backend; `None`, with a report, if there is none here.
fn engine(options: EngineOptions) -> Option<Engine> {
    match Engine::new(options) {
        Ok(engine) => Some(engine),
        Err(error) => {
            assert_ne!(options.backend, BackendKind::Auto, "{error}");
            // A backend of another system could not have been tested.
            let not_this_system = ErrorKind::NoBackend { reason: UnavailableReason::NotThisSystem };
            if *error.kind() != not_this_system {
                let need = match options.backend {
                    BackendKind::IoUring => Need::IoUring,
                    BackendKind::Aio => Need::Aio,
                    _ => Need::Windows,
                };
                skipped(need, error);
            }
            None
        }
    }
}

/// Returns every engine that can be made here, with its name.
fn tested_engines() -> Vec<(String, TestedEngine)> {
    let mut tested_engines = Vec::new();
    for backend in BACKENDS {
        for cached_first in [true, false] {
            let options = EngineOptions { backend, cached_first, ..EngineOptions::default() };
            let Some(own) = engine(options) else { continue };
            let name = format!("{backend}, cached first: {cached_first}");
            tested_engines.push((name.clone(), TestedEngine::Own(Box::new(own))));
            let shared = SharedEngine::new(options).unwrap();
            tested_engines.push((format!("shared {name}"), TestedEngine::Shared(shared)));
        }
    }
    tested_engines
}

/// Returns true, and reports it, if a worker of the kernel may be done before the call that submits has returned: its
/// operation then counts as done inside of that call.
#[cfg(target_os = "linux")]
fn has_one_processor() -> bool {
    let has = std::thread::available_parallelism().is_ok_and(|count| count.get() == 1);
    if has {
        skipped(
            Need::Processors,
            "with one processor workers of the kernel are not told from the call that submits",
        );
    }
    // Emulated processors stop for as long as the machine runs something else.
    let is_emulated = pipewright_tests::pace::scale() >= 10;
    if is_emulated {
        skipped(
            Need::Processors,
            "with emulated processors workers of the kernel are not told from the call",
        );
    }
    has || is_emulated
}

/// Creates a file with those bytes, open for reading and writing.
fn file_with(folder: &tempfile::TempDir, name: &str, bytes: &[u8], direct: bool) -> DiskFile {
    let path: PathBuf = folder.path().join(name);
    std::fs::write(&path, bytes).unwrap();
    DiskFile::options().read(true).write(true).direct(direct).open(path).unwrap()
}

/// Returns bytes that differ from offset to offset.
fn pattern(bytes: usize) -> Vec<u8> {
    (0..bytes as u64).map(|place| (place.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8).collect()
}
