//! The environment of a child.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use pipewright::{Command, Contain, Error, Scope};
use pipewright_test_macros::{isolated_test, watched_test};
use pipewright_tests::pace;

use super::{cannot_supervise, puppet};

const STAYS: &str = "STAYS=here";
const CHANGING: &str = "a value that is long enough to be worth a look";

/// A child that exits with 0 if it has the variable that stays the same.
fn checks() -> Command {
    puppet([format!("expect-env={STAYS}")])
}

/// Runs `body` while another thread adds and removes variables, each of which has the C library
/// move the array of variables and free the old one.
fn while_variables_change<T>(body: impl FnOnce() -> T) -> T {
    // SAFETY: this process has no other thread yet that reads or writes the environment.
    unsafe { std::env::set_var("STAYS", "here") };
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                let names: Vec<String> = (0..64).map(|at| format!("CHANGES_{at}")).collect();
                for name in &names {
                    // SAFETY: the other threads read the environment through `std::env`, if the library behaves
                    // as this test requires.
                    unsafe { std::env::set_var(name, CHANGING) };
                }
                for name in &names {
                    // SAFETY: as above.
                    unsafe { std::env::remove_var(name) };
                }
            }
        });
        // Set even if `body` panics, because the scope waits for the other thread.
        let _over = Over(&is_over);
        body()
    })
}

struct Over<'a>(&'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// A way to start a child; returns true if the child had the right environment.
type StartVerb = (&'static str, fn() -> Result<bool, Error>);

const WAYS: &[StartVerb] = &[
    ("status", || Ok(checks().status()?.success())),
    ("spawn", || Ok(checks().spawn()?.wait()?.success())),
    ("capture", || {
        let text = puppet(["env-all"]).capture()?.stdout;
        let (changing, others): (Vec<&str>, Vec<&str>) =
            text.lines().partition(|line| line.starts_with("CHANGES_"));
        let is_whole = |line: &&str| line.split_once('=').is_some_and(|(_, it)| it == CHANGING);
        let stays = others.iter().filter(|line| **line == STAYS).count();
        Ok(changing.iter().all(is_whole) && stays == 1)
    }),
    ("run of a pipeline", || Ok((checks() | checks()).run().is_ok())),
    ("env", || Ok(checks().env("ADDED", "x").status()?.success())),
    ("env_remove", || Ok(checks().env_remove("CHANGES_7").status()?.success())),
    ("contain", || Ok(checks().contain(Contain::Tree).status()?.success())),
    ("kill_on_parent_exit", || Ok(checks().kill_on_parent_exit(Scope::Child).status()?.success())),
    #[cfg(unix)]
    ("a program that is searched for", || {
        let mut command = Command::new("sh");
        Ok(command.args(["-c", "[ \"$STAYS\" = here ]"]).status()?.success())
    }),
    // macOS: the child is forked.
    #[cfg(unix)]
    ("umask", || Ok(checks().umask(0o22).status()?.success())),
];

const OF_A_TREE: StartVerb = ("kill_on_parent_exit of a tree", || {
    Ok(checks().kill_on_parent_exit(Scope::Tree).status()?.success())
});

#[isolated_test]
fn children_have_a_whole_environment_while_another_thread_sets_variables() {
    let mut ways = WAYS.to_vec();
    if !cannot_supervise() {
        ways.push(OF_A_TREE);
    }
    let wrong = while_variables_change(|| {
        ways.into_iter().map(|way| (way.0, try_often(way))).collect::<Vec<_>>()
    });
    assert!(wrong.iter().all(|(_, wrong)| wrong.is_empty()), "{wrong:#?}");
}

/// Starts children by three threads. Returns a line for each that failed.
fn try_often((_, start): StartVerb) -> Vec<String> {
    let starts = if cfg!(windows) { 5 } else { pace::rounds(25, 3) };
    let by_one_thread = || {
        let wrong = |_| match start() {
            Ok(true) => None,
            Ok(false) => Some("wrong environment".to_owned()),
            Err(error) => Some(error.to_string()),
        };
        (0..starts).filter_map(wrong).collect::<Vec<String>>()
    };
    thread::scope(|scope| {
        let threads = [(); 3].map(|()| scope.spawn(by_one_thread));
        threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
    })
}

#[cfg(unix)]
#[watched_test]
fn exec_passes_on_a_whole_environment_while_another_thread_sets_variables() {
    let wrong = |_: &usize| {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args([
            "environment::execs_an_environment_check",
            "--exact",
            "--nocapture",
            "--ignored",
        ]);
        // A failed test exits with a different code.
        command.env("PIPEWRIGHT_EXEC", "1").capture().unwrap().status.code() != Some(42)
    };
    assert_eq!((0..pace::rounds(25, 5)).filter(wrong).count(), 0);
}

/// Runs in the process that the test above starts.
#[cfg(unix)]
#[watched_test]
#[ignore = "replaces the test program: only for the test above"]
fn execs_an_environment_check() {
    assert!(std::env::var_os("PIPEWRIGHT_EXEC").is_some());
    while_variables_change(|| {
        let mut command = Command::new("sh");
        panic!("{}", command.args(["-c", "[ \"$STAYS\" = here ] && exit 42"]).exec());
    });
}

/// The environment of the test below. Some of its entries can only be made by a C program.
#[cfg(target_os = "linux")]
const STRANGE: [&std::ffi::CStr; 9] = [
    c"Z=1",
    c"NO_EQUALS_SIGN",
    c"=DRIVE=x",
    c"TWICE=1",
    c"",
    c"PATH=/no/such/directory",
    c"=",
    c"TWICE=2",
    c"PATH=/usr/bin:/bin",
];

#[cfg(target_os = "linux")]
#[watched_test]
fn an_inherited_environment_keeps_order_and_duplicates_and_loses_malformed_entries() {
    use std::os::unix::process::CommandExt as _;

    let own_program = std::env::current_exe().unwrap();
    let path = std::ffi::CString::new(own_program.to_str().unwrap()).unwrap();
    let mut command = std::process::Command::new(&own_program);
    let become_it = move || {
        let act = c"environment::has_a_strange_environment";
        let argv = ended([&path, act, c"--exact", c"--nocapture", c"--ignored"]);
        let envp = ended(STRANGE);
        // SAFETY: a C string, and arrays of C strings that end with NULL.
        unsafe { libc::execve(path.as_ptr(), argv.as_ptr(), envp.as_ptr()) };
        Err(std::io::Error::last_os_error())
    };
    // SAFETY: one system call.
    let output = unsafe { command.pre_exec(become_it) }.output().unwrap();
    let stdout = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && stdout.contains("1 passed"), "{output:?}");
}

/// The array that execve(2) takes. Does not allocate: it is made in a forked child.
#[cfg(target_os = "linux")]
fn ended<const N: usize>(strings: [&std::ffi::CStr; N]) -> [*const std::ffi::c_char; 10] {
    let mut array = [std::ptr::null(); 10];
    for (place, text) in array.iter_mut().take(9).zip(strings) {
        *place = text.as_ptr();
    }
    array
}

/// Runs in the process that the test above starts.
#[cfg(target_os = "linux")]
#[watched_test]
#[ignore = "needs a strange environment: only for the test above"]
fn has_a_strange_environment() {
    let found = Command::new("/bin/cat").arg("/proc/self/environ").capture().unwrap().stdout;
    let expected = "Z=1\0=DRIVE=x\0TWICE=1\0PATH=/no/such/directory\0TWICE=2\0PATH=/usr/bin:/bin\0";
    assert_eq!(found, expected);
    // The first PATH counts, as for std.
    let ours = Command::new("true").status().unwrap_err();
    assert!(matches!(ours.kind(), pipewright::ErrorKind::NotFound { .. }), "{ours}");
    let theirs = std::process::Command::new("true").status().unwrap_err();
    assert_eq!(theirs.kind(), std::io::ErrorKind::NotFound);
}
