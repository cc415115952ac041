//! `run` and `timeout` in an interactive shell on a pseudo-terminal: job control works as for the command itself.

use std::fs::{self, File};
use std::io::{Read as _, Write as _};
use std::process::{Child, Command};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};

use crate::pace;
use crate::trees::{catches, named_below, until};

pub(super) const CTRL_C: &str = "\x03";
pub(super) const CTRL_D: &str = "\x04";
pub(super) const CTRL_Z: &str = "\x1a";
const CTRL_BACKSLASH: &str = "\x1c";

/// An interactive shell, and the text on its terminal.
pub(super) struct Shell {
    shell: Child,
    keyboard: File,
    shown: Arc<Mutex<String>>,
    /// End of the text that has been examined.
    seen: usize,
}

impl Shell {
    /// Starts bash. `None`: nothing on this machine gives it the terminal.
    pub(super) fn start() -> Option<Shell> {
        Shell::start_with(&["bash", "--norc", "--noprofile", "-i"], "dumb")
    }

    /// Starts a shell in a terminal of a type.
    pub(super) fn start_with(shell: &[&str], terminal: &str) -> Option<Shell> {
        let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
        grantpt(&master).unwrap();
        unlockpt(&master).unwrap();
        let name = ptsname(&master, Vec::new()).unwrap();
        let slave = File::options().read(true).write(true).open(name.to_str().unwrap()).unwrap();
        let mut command = Command::new("setsid");
        command.args(["--ctty", "--wait"]).args(shell);
        command.stdin(slave.try_clone().unwrap()).stdout(slave.try_clone().unwrap()).stderr(slave);
        command.env("PW", env!("CARGO_BIN_EXE_pipewright")).env("PS1", "$ ").env("TERM", terminal);
        let Ok(shell) = command.spawn() else {
            pace::skipped(pace::Need::Program("setsid"), "there is no setsid here");
            return None;
        };
        drop(command);
        let keyboard = File::from(master);
        let mut screen = keyboard.try_clone().unwrap();
        let shown = Arc::new(Mutex::new(String::new()));
        let writing = Arc::clone(&shown);
        thread::spawn(move || {
            let mut buffer = [0; 4096];
            while let Ok(count @ 1..) = screen.read(&mut buffer) {
                writing.lock().unwrap().push_str(&String::from_utf8_lossy(&buffer[..count]));
            }
        });
        let mut shell = Shell { shell, keyboard, shown, seen: 0 };
        shell.types("bind 'set enable-bracketed-paste off' 2> /dev/null; echo be''gin\n");
        shell.shows("begin");
        Some(shell)
    }

    /// Returns the terminal, whose modes and size are those of the other side too.
    #[cfg(target_os = "linux")]
    pub(super) fn terminal(&self) -> &File {
        &self.keyboard
    }

    /// Returns the pid of the tool that the shell has started.
    #[cfg(target_os = "linux")]
    #[track_caller]
    pub(super) fn tool(&self) -> u32 {
        let named = || named_below(self.shell.id(), "pipewright");
        until("the tool runs", || !named().is_empty());
        named()[0]
    }

    pub(super) fn types(&mut self, text: &str) {
        self.keyboard.write_all(text.as_bytes()).unwrap();
    }

    /// Checks the exit status of the last line on a line of its own: after Ctrl-C a shell skips the rest of its line.
    #[track_caller]
    pub(super) fn ended_with(&mut self, code: i32) -> String {
        // The command might read text that is typed sooner.
        self.shows("$ ");
        self.types("echo ended''=$?\n");
        self.shows(&format!("ended={code}\r\n"))
    }

    /// Waits for the end of the shell, and returns its exit code.
    #[cfg(target_os = "linux")]
    pub(super) fn end(mut self) -> Option<i32> {
        self.shell.wait().unwrap().code()
    }

    /// Presses a key repeatedly until the terminal shows a text.
    #[track_caller]
    fn shows_while_typing(&mut self, key: &str, text: &str) -> String {
        let start = Instant::now();
        while !self.shown.lock().unwrap()[self.seen..].contains(text) {
            assert!(start.elapsed() < pace::millis(20_000), "never showed {text:?}");
            self.types(key);
            thread::park_timeout(Duration::from_millis(100));
        }
        self.shows(text)
    }

    /// Waits until the terminal shows a text after the previous one, and returns the text between them.
    #[track_caller]
    pub(super) fn shows(&mut self, text: &str) -> String {
        let start = Instant::now();
        loop {
            let shown = self.shown.lock().unwrap().clone();
            if let Some(at) = shown[self.seen..].find(text) {
                let before = shown[self.seen..self.seen + at].to_owned();
                self.seen += at + text.len();
                return before;
            }
            assert!(
                start.elapsed() < pace::millis(20_000),
                "never showed {text:?} after {:?}",
                &shown[self.seen..]
            );
            thread::park_timeout(Duration::from_millis(2));
        }
    }
}

impl Drop for Shell {
    fn drop(&mut self) {
        // Ignored: the shell may have ended.
        let _ = self.keyboard.write_all(format!("{CTRL_C}{CTRL_D}").as_bytes());
        let _ = self.keyboard.write_all(b"\nkill -9 %1 %2 2> /dev/null; exit\nexit\n");
        // After a failed test its command may read all of that.
        let until = Instant::now() + pace::millis(5_000);
        while matches!(self.shell.try_wait(), Ok(None)) && Instant::now() < until {
            thread::park_timeout(Duration::from_millis(10));
        }
        let _ = self.shell.kill();
        let _ = self.shell.wait();
    }
}

/// The command shares the terminal, or gets it with a group of its own.
const WAYS: [&str; 2] = ["", "--contain group"];

/// Reads a line in bash, and handles signals meanwhile. A `read` without a time limit can miss one: bash checks for
/// signals and then blocks, and one that arrives in between has to wait for input. One whose time ends has perhaps read
/// a part.
pub(super) const READS_LINE: &str =
    "line=; until read -t 0.1 part; do line=$line$part; done; line=$line$part";

#[test]
fn ctrl_c_kills_the_command_unless_it_handles_it() {
    let Some(mut shell) = Shell::start() else { return };
    for way in WAYS {
        shell.types(&format!("$PW run --quiet {way} -- sh -c 'echo up; exec sleep 600'\n"));
        shell.shows("up\r\n");
        shell.types(CTRL_C);
        shell.ended_with(130);
        let script =
            format!("trap \"echo caught\" INT; echo up; {READS_LINE}; echo got $line; exit 7");
        shell.types(&format!("$PW run --quiet {way} -- bash -c '{script}'; echo code=$?\n"));
        shell.shows("up\r\n");
        shell.types(CTRL_C);
        shell.shows("caught");
        shell.types("hello\n");
        shell.shows("got hello");
        shell.shows("code=7");
    }
}

#[test]
fn ctrl_backslash_kills_the_command() {
    let Some(mut shell) = Shell::start() else { return };
    for way in WAYS {
        shell.types("ulimit -c 0\n");
        shell.types(&format!(
            "$PW run --quiet {way} -- sh -c 'echo up; exec sleep 600'; echo code=$?\n"
        ));
        shell.shows("up\r\n");
        shell.types(CTRL_BACKSLASH);
        shell.shows("code=131");
    }
}

#[test]
fn ctrl_c_ends_retries() {
    let Some(mut shell) = Shell::start() else { return };
    for way in WAYS {
        shell.types(&format!("$PW run --retries 3 {way} -- sh -c 'echo up; exec sleep 600'\n"));
        shell.shows("up\r\n");
        shell.types(CTRL_C);
        let before = shell.ended_with(130);
        assert!(!before.contains("attempt"), "{before}");
    }
    // Between two attempts no command can handle it.
    shell.types("$PW run --retries 3 --retry-delay 600s -- sh -c 'exit 3'\n");
    shell.shows("attempt 1 of 4");
    shell.types(CTRL_C);
    shell.ended_with(130);
}

/// A shell continues its loop after a command that has exited, with any code.
#[test]
fn ctrl_c_ends_the_loop_of_a_shell() {
    let Some(mut shell) = Shell::start() else { return };
    let sleeps = "sh -c 'echo up; exec sleep 600'";
    let tools = [
        format!("run -- {sleeps}"),
        format!("run --contain group -- {sleeps}"),
        "run --quiet --retries 1 --retry-delay 10m -- sh -c 'echo up; exit 3'".to_owned(),
        format!("pipe -- {sleeps} '|' cat"),
    ];
    for tool in &tools {
        shell.types(&format!("for turn in 1 2 3; do echo at=$turn; $PW {tool}; done\n"));
        shell.shows("at=1\r\n");
        shell.shows("up\r\n");
        // No output marks the moment to press it: see below. A shell at its prompt ignores it.
        let between = shell.shows_while_typing(CTRL_C, "$ ");
        assert!(!between.contains("at=2\r\n"), "{tool}: {between}");
    }
    // A command that handles it and exits was not interrupted.
    shell.types(&format!(
        "for turn in 1 2; do $PW run -- bash -c 'trap \"exit 5\" INT; echo up; {READS_LINE}'; done\n"
    ));
    for _ in 0..2 {
        shell.shows("up\r\n");
        shell.types(CTRL_C);
    }
    shell.ended_with(5);
}

#[test]
fn a_report_is_written_after_ctrl_c() {
    let Some(mut shell) = Shell::start() else { return };
    for way in WAYS {
        shell.types(&format!("$PW run --report - {way} -- sh -c 'echo up; exec sleep 600'\n"));
        shell.shows("up\r\n");
        shell.types(CTRL_C);
        shell.shows("\"signal\":\"SIGINT\"");
        shell.ended_with(130);
    }
}

#[test]
fn ctrl_z_stops_the_job_and_fg_continues_it() {
    let Some(mut shell) = Shell::start() else { return };
    for way in WAYS {
        // The shell prints the job before it continues it; the command prints once it runs again.
        let script =
            format!("trap \"echo ag\\ain\" CONT; echo up; {READS_LINE}; echo got $line; exit 4");
        shell.types(&format!("$PW run --quiet {way} -- bash -c '{script}'\n"));
        shell.shows("up\r\n");
        for round in 0..3 {
            shell.types(CTRL_Z);
            shell.shows("Stopped");
            shell.types(&format!("echo the shell is ba''ck {round}\n"));
            shell.shows(&format!("the shell is back {round}"));
            shell.types("fg\n");
            shell.shows("again");
            // The command may get ahead of the tool here: no person types that fast.
            until("we are there too", || catches_ctrl_z(shell.shell.id()));
        }
        shell.types("hello\n");
        shell.shows("got hello");
        shell.types("echo code=$?\n");
        shell.shows("code=4");
    }
}

#[test]
fn ctrl_z_and_ctrl_c_between_two_attempts_reach_the_tool() {
    let Some(mut shell) = Shell::start() else { return };
    for way in WAYS {
        let tries = format!("$PW run --quiet {way} --retries 1 --retry-delay 10m");
        shell.types(&format!("{tries} -- sh -c 'echo up; exit 3'; echo co''de=$?\n"));
        shell.shows("up\r\n");
        until("the command has ended", || is_childless(shell.shell.id()));
        // No output marks the start of the wait, and so the key is pressed until it works. A shell that has the
        // terminal back ignores it.
        shell.shows_while_typing(CTRL_Z, "Stopped");
        shell.shows("code=148");
        shell.types("fg\n");
        until("it is in front again", || is_in_foreground(shell.shell.id()));
        shell.types(CTRL_C);
        shell.ended_with(130);
    }
}

/// Returns true if the tool below a shell has no child, and its guard neither.
fn is_childless(shell: u32) -> bool {
    named_below(shell, "pipewright").iter().any(|pid| {
        let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"));
        children.is_ok_and(|children| children.is_empty())
    })
}

/// Returns true if every process below one has stopped.
fn have_stopped(above: u32) -> bool {
    let children = fs::read_to_string(format!("/proc/{above}/task/{above}/children"));
    children.unwrap_or_default().split_whitespace().all(|pid| {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        stat.contains(") T ") && pid.parse().is_ok_and(have_stopped)
    })
}

/// Returns true if the group of a process is in the foreground.
fn has_terminal(pid: u32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let after_name: Vec<_> = stat.rsplit(')').next().unwrap().split_whitespace().collect();
    after_name[2] == after_name[5]
}

/// Returns true if the tool below a shell runs in the foreground (proc(5), `/proc/PID/stat`).
fn is_in_foreground(shell: u32) -> bool {
    named_below(shell, "pipewright").iter().any(|pid| {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        let after_name = stat.rsplit(')').next().unwrap_or_default();
        match after_name.split_whitespace().collect::<Vec<_>>()[..] {
            [state, _, group, _, _, group_in_front, ..] => state != "T" && group == group_in_front,
            _ => false,
        }
    })
}

/// Returns true if the tool below a shell catches SIGTSTP, as it does unless it is stopped.
fn catches_ctrl_z(shell: u32) -> bool {
    const TSTP: u32 = 20;
    named_below(shell, "pipewright").iter().any(|pid| catches(*pid, TSTP))
}

#[test]
fn a_command_that_suspends_itself_suspends_the_job() {
    let Some(mut shell) = Shell::start() else { return };
    for way in WAYS {
        shell
            .types(&format!("$PW run --quiet {way} -- bash -c 'kill -STOP $$; echo on; exit 6'\n"));
        shell.shows("Stopped");
        shell.types("fg; echo code=$?\n");
        shell.shows("on\r\n");
        shell.shows("code=6");
    }
}

#[test]
fn a_background_job_that_reads_the_terminal_is_suspended() {
    let Some(mut shell) = Shell::start() else { return };
    shell.types("$PW run --quiet -- bash -c 'read line; echo got $line' &\n");
    shell.types("until jobs -s | grep -q read; do sleep 0.05; done; jobs; echo lis''ted\n");
    shell.shows("Stopped");
    shell.shows("listed");
    shell.types("fg\n");
    shell.shows("$PW run");
    shell.types("hello\n");
    shell.shows("got hello");
}

#[test]
fn the_command_has_a_terminal_and_leaves_it_usable() {
    let Some(mut shell) = Shell::start() else { return };
    for way in WAYS {
        shell.types(&format!(
            "$PW run --quiet {way} -- bash -c 'test -t 0 && test -t 1 && test -t 2 && stty -a > /dev/null \
             && echo is''tty'\n"
        ));
        shell.shows("istty");
        shell.types(&format!("$PW run --quiet {way} -- sh -c 'echo up; exec cat'\n"));
        shell.shows("up\r\n");
        shell.types("typed\n");
        shell.shows("typed\r\ntyped");
        shell.types(CTRL_D);
        shell.types("echo the shell is ba''ck\n");
        shell.shows("the shell is back");
    }
}

#[test]
fn a_background_job_gets_the_terminal_with_fg() {
    let Some(mut shell) = Shell::start() else { return };
    for way in WAYS {
        // It reads before it has the terminal, and is stopped.
        shell.types(&format!("$PW run --quiet {way} -- cat &\n"));
        shell.types("until jobs -s | grep -q cat; do sleep 0.05; done; echo st''opped\n");
        shell.shows("stopped");
        shell.types("fg\n");
        shell.shows("$PW run");
        shell.types("hello\n");
        shell.shows("hello\r\nhello");
        shell.types(CTRL_D);
        shell.ended_with(0);
        // It reads only once it has the terminal.
        let dir = tempfile::tempdir().unwrap();
        let flag = dir.path().join("flag");
        let script = format!(
            "until [ -e {} ]; do sleep 0.05; done; read line; echo got $line; exit 5",
            flag.display()
        );
        shell.types(&format!("$PW run --quiet {way} -- bash -c '{script}' &\n"));
        shell.types("echo the shell is ba''ck\n");
        shell.shows("the shell is back");
        shell.types("fg\n");
        shell.shows("$PW run");
        // The shell names the job before it gives it the terminal, which the tool may pass on to the command.
        until("the shell is not in front", || !has_terminal(shell.shell.id()));
        fs::write(&flag, "").unwrap();
        shell.types("hello\n");
        shell.shows("got hello");
        shell.ended_with(5);
    }
}

/// The end of a job in the background leaves the terminal to the job that has it.
#[test]
fn a_job_in_the_background_does_not_take_the_terminal() {
    let Some(mut shell) = Shell::start() else { return };
    for way in WAYS {
        let dir = tempfile::tempdir().unwrap();
        let flag = dir.path().join("flag");
        let script = format!("echo up; until [ -e {} ]; do sleep 0.05; done", flag.display());
        shell.types(&format!("$PW run --quiet {way} -- bash -c '{script}'\n"));
        shell.shows("up\r\n");
        shell.types(CTRL_Z);
        shell.shows("Stopped");
        shell.types("bg; echo read''y; cat\n");
        shell.shows("ready\r\n");
        shell.types("one\n");
        shell.shows("one\r\none");
        fs::write(&flag, "").unwrap();
        let pid = shell.shell.id();
        until("the job has ended", || named_below(pid, "pipewright").is_empty());
        shell.types("two\n");
        shell.shows("two\r\ntwo");
        shell.types(CTRL_D);
        shell.ended_with(0);
    }
}

/// The two programs.
fn both() -> Vec<&'static str> {
    let has_other = Command::new("timeout").arg("--version").output().is_ok_and(|output| {
        String::from_utf8_lossy(&output.stdout).starts_with("timeout (GNU coreutils)")
    });
    if has_other {
        return vec!["timeout", "$PW timeout"];
    }
    pace::skipped(pace::Need::Program("timeout"), "ours is tried alone");
    vec!["$PW timeout"]
}

/// Runs a case with both programs, each in a shell of its own.
fn each(case: impl Fn(&mut Shell, &str)) {
    for program in both() {
        let Some(mut shell) = Shell::start() else { return };
        case(&mut shell, program);
        // The shell has its terminal: it reads a line.
        shell.types("echo a''live\n");
        shell.shows("alive\r\n");
    }
}

#[test]
fn a_script_reads_the_terminal_after_a_timeout() {
    each(|shell, timeout| {
        shell.types(&format!(
            "sh -c '{timeout} 60 true; echo u\"\"p; read x < /dev/tty && echo got $x'\n"
        ));
        shell.shows("up\r\n");
        shell.types("hello\n");
        shell.shows("got hello\r\n");
    });
}

#[test]
fn ctrl_c_ends_a_script_after_a_timeout() {
    each(|shell, timeout| {
        shell.types(&format!("sh -c '{timeout} 60 true; echo u\"\"p; exec sleep 600'\n"));
        shell.shows("up\r\n");
        shell.types(CTRL_C);
        shell.ended_with(130);
    });
}

#[test]
fn a_background_job_of_a_script_takes_no_terminal() {
    each(|shell, timeout| {
        shell.types(&format!(
            "sh -c '{timeout} 60 sleep 60 & echo u\"\"p; read x < /dev/tty && echo got $x; kill $!'\n"
        ));
        shell.shows("up\r\n");
        shell.types("hello\n");
        shell.shows("got hello\r\n");
    });
}

#[test]
fn a_member_of_a_pipeline_takes_no_terminal() {
    let reads = "sh -c \"read x < /dev/tty && echo got \\$x\"";
    each(|shell, timeout| {
        // The last one reads the terminal, as `less` does.
        shell.types(&format!(
            "{timeout} 60 sh -c 'echo u\"\"p; sleep 60' | (head -n1; {reads}; kill -PIPE 0)\n"
        ));
        shell.shows("up\r\n");
        shell.types("hello\n");
        shell.shows("got hello\r\n");
        shell.shows("$ ");
    });
}

#[test]
fn a_command_at_a_shell_reads_the_terminal_and_gets_its_signals() {
    each(|shell, timeout| {
        shell.types(&format!("{timeout} 60 sh -c 'echo u\"\"p; read x; echo got $x'\n"));
        shell.shows("up\r\n");
        shell.types("hello\n");
        shell.shows("got hello\r\n");
        shell.ended_with(0);
        shell.types(&format!("{timeout} 60 sh -c 'echo u\"\"p; exec sleep 60'\n"));
        shell.shows("up\r\n");
        shell.types(CTRL_C);
        shell.ended_with(130);
    });
}

#[test]
fn a_pipeline_at_a_shell_ends_by_ctrl_c() {
    each(|shell, timeout| {
        shell.types(&format!("{timeout} 60 sh -c 'echo u\"\"p; exec sleep 60' | cat\n"));
        shell.shows("up\r\n");
        shell.types(CTRL_C);
        shell.ended_with(130);
    });
}

#[test]
fn a_command_that_reads_the_terminal_in_a_script_is_stopped_and_timed_out() {
    each(|shell, timeout| {
        for command in ["cat", "sh -c \"stty sane; read x\""] {
            shell.types(&format!("sh -c '{timeout} 1 {command}; echo code=$?'\n"));
            shell.shows("code=124\r\n");
        }
    });
}

#[test]
fn with_foreground_a_command_reads_the_terminal_in_a_script() {
    each(|shell, timeout| {
        shell.types(&format!(
            "sh -c '{timeout} --foreground 60 sh -c \"echo u\\\"\\\"p; read x; echo got \\$x\"; echo code=$?'\n"
        ));
        shell.shows("up\r\n");
        shell.types("hello\n");
        shell.shows("got hello\r\n");
        shell.shows("code=0\r\n");
    });
}

#[test]
fn ctrl_z_and_fg_stop_and_continue_the_command() {
    each(|shell, timeout| {
        shell.types(&format!("{timeout} 60 sh -c 'echo u\"\"p; read x; echo got $x'\n"));
        shell.shows("up\r\n");
        shell.types(CTRL_Z);
        shell.shows("Stopped");
        shell.shows("$ ");
        // The shell waits for the process that it has started. The one below may still be in its read, which takes a
        // key before it looks at the signal that has come.
        until("the command has stopped too", || have_stopped(shell.shell.id()));
        shell.types("fg\n");
        shell.shows("timeout 60");
        shell.types("hello\n");
        shell.shows("got hello\r\n");
    });
}

#[test]
fn a_command_in_the_background_of_a_shell_is_stopped_by_the_terminal_and_timed_out() {
    each(|shell, timeout| {
        shell.types(&format!("{timeout} 1 cat & wait $!; echo code''=$?\n"));
        shell.shows("code=124\r\n");
    });
}

#[test]
fn nested_ones_leave_the_terminal_to_the_shell() {
    each(|shell, timeout| {
        shell.types(&format!("{timeout} 60 {timeout} 1 cat; echo code''=$?\n"));
        shell.shows("code=124\r\n");
    });
}

#[test]
fn the_time_ends_the_whole_job_of_a_shell() {
    each(|shell, timeout| {
        shell.types(&format!("{timeout} 1 sleep 60 | sleep 61; echo code''=${{PIPESTATUS[*]}}.\n"));
        // The pipeline is one group, which the signal reaches.
        shell.shows("code=124 143.\r\n");
    });
}
