//! Sessions with the programs that people use: shells, editors, pagers, interpreters.

use pipewright::{Command, Key, Pattern, PtySize, Session, Stdio};
use pipewright_test_macros::watched_test;
use pipewright_tests::skip::{Need, skipped};
use pipewright_tests::{alive, pace, watchdog};

const SIZE: PtySize = PtySize { rows: 24, cols: 80 };

/// Returns true, and reports it, if a program is not installed.
fn is_missing(program: &str) -> bool {
    let mut command = Command::new("sh");
    command.args(["-c", "command -v \"$0\"", program]).stdout(Stdio::null());
    let missing = !command.status().unwrap().success();
    if missing {
        skipped(Need::Program(program), "is not here");
    }
    missing
}

/// Starts a program on a terminal of a known type.
fn start(words: &[&str]) -> Session {
    let (program, args) = words.split_first().unwrap();
    let mut command = Command::new(program);
    command.args(args).pty(SIZE).env("TERM", "xterm").env("PS1", "$ ").env("LC_ALL", "C.UTF-8");
    command.env_remove("PYTHONSTARTUP").env("PYTHON_BASIC_REPL", "1").kill_on_drop();
    let mut session = Session::spawn(&mut command).unwrap();
    session.set_timeout(pace::seconds(60));
    session
}

fn bash() -> Session {
    let mut session = start(&["bash", "--norc", "--noprofile", "-i"]);
    session.expect("$ ").unwrap();
    session.send_line("bind 'set enable-bracketed-paste off'").unwrap();
    session.expect("off'").unwrap();
    session.expect("$ ").unwrap();
    session
}

/// Returns the process group that has the terminal of that process.
#[cfg(target_os = "linux")]
fn foreground_group(pid: u32) -> u32 {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let after_name = stat.rsplit_once(") ").unwrap().1;
    after_name.split(' ').nth(5).unwrap().parse().unwrap_or(pid)
}

/// Returns the name of the program of a process; empty, if it has ended.
#[cfg(target_os = "linux")]
fn name(pid: u32) -> String {
    let name = std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    name.trim_end().to_owned()
}

/// Returns true if a process waits for input, and not for a processor.
#[cfg(target_os = "linux")]
fn sleeps(pid: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    stat.rsplit_once(") ").unwrap().1.starts_with('S')
}

#[cfg(target_os = "linux")]
#[watched_test]
fn bash_runs_jobs_in_its_terminal() {
    if is_missing("bash") {
        return;
    }
    let mut session = bash();
    session.send_line("sleep 600").unwrap();
    session.expect("sleep 600\r\n").unwrap();
    // The job takes the terminal a moment later: until then, the shell gets the key and shows another prompt. Until it
    // is another program, it ignores the key as the shell does.
    let shell = session.child().pid();
    watchdog::until("the sleep is in the foreground", || {
        let group = foreground_group(shell);
        group != shell && name(group) == "sleep"
    });
    session.send_key(Key::Ctrl('z')).unwrap();
    session.expect("Stopped").unwrap();
    session.expect("$ ").unwrap();
    session.send_line("jobs").unwrap();
    session.expect(Pattern::regex(r"\[1\]\+\s+Stopped\s+sleep 600").unwrap()).unwrap();
    session.expect("$ ").unwrap();
    session.send_line("fg").unwrap();
    session.expect("sleep 600\r\n").unwrap();
    // Until it has the terminal, the key is for the shell.
    watchdog::until("the sleep is in the foreground again", || foreground_group(shell) != shell);
    session.send_key(Key::Ctrl('c')).unwrap();
    session.expect("$ ").unwrap();
    session.send_line("echo status $?").unwrap();
    session.expect("status 130\r\n").unwrap();
    session.expect("$ ").unwrap();
    session.send_key(Key::Ctrl('d')).unwrap();
    assert_eq!(session.wait().unwrap().code(), Some(0));
}

#[watched_test]
fn a_shell_edits_its_line_by_keys() {
    if is_missing("bash") {
        return;
    }
    let mut session = bash();
    session.send("echo two").unwrap();
    for _ in 0..3 {
        session.send_key(Key::Left).unwrap();
    }
    session.send("one ").unwrap();
    session.send_key(Key::End).unwrap();
    session.send_key(Key::Backspace).unwrap();
    session.send_line("O").unwrap();
    session.expect("one twO\r\n$ ").unwrap();
    session.send_key(Key::Up).unwrap();
    session.send_key(Key::Enter).unwrap();
    session.expect("one twO\r\n$ ").unwrap();
}

#[watched_test]
fn vim_edits_a_file() {
    if is_missing("vim") {
        return;
    }
    let file = tempfile::NamedTempFile::new().unwrap();
    let path = file.path().to_str().unwrap();
    let mut session = start(&["vim", "-u", "NONE", "-N", "-i", "NONE", path]);
    session
        .expect(Pattern::screen(|screen| screen.is_alternate() && screen.contains("~")))
        .unwrap();
    session.send("ihello").unwrap();
    session.send_key(Key::Enter).unwrap();
    session.send("wrld").unwrap();
    for _ in 0..3 {
        session.send_key(Key::Left).unwrap();
    }
    session.send("o").unwrap();
    session.send_key(Key::Escape).unwrap();
    session.expect(Pattern::screen(|screen| screen.rows()[1] == "world")).unwrap();
    session.send(":wq\r").unwrap();
    assert!(session.wait().unwrap().success());
    assert_eq!(std::fs::read_to_string(path).unwrap(), "hello\nworld\n");
}

#[cfg(target_os = "linux")]
#[watched_test]
fn less_shows_pages_and_follows_the_size() {
    if is_missing("less") {
        return;
    }
    let file = tempfile::NamedTempFile::new().unwrap();
    let text: String = (1..=500).map(|number| format!("row {number} of the file\n")).collect();
    std::fs::write(file.path(), text).unwrap();
    let mut session = start(&["less", file.path().to_str().unwrap()]);
    session.expect(Pattern::screen(|screen| screen.rows()[22] == "row 23 of the file")).unwrap();
    session.send(" ").unwrap();
    // The whole page, and the prompt.
    session
        .expect(Pattern::screen(|screen| {
            let rows = screen.rows();
            rows[0] == "row 24 of the file" && rows[22] == "row 46 of the file" && rows[23] == ":"
        }))
        .unwrap();
    // A signal between the prompt and the wait for a key has no effect before the key.
    let less = session.child().pid();
    watchdog::until("less waits for a key", || sleeps(less));
    session.resize(PtySize { rows: 10, cols: 40 }).unwrap();
    session.expect(Pattern::screen(|screen| screen.rows()[8] == "row 32 of the file")).unwrap();
    session.send("/row 400\r").unwrap();
    session.expect(Pattern::screen(|screen| screen.rows()[0] == "row 400 of the file")).unwrap();
    session.send("q").unwrap();
    assert!(session.wait().unwrap().success());
}

#[watched_test]
fn top_shows_processes_until_q() {
    if is_missing("top") {
        return;
    }
    let mut session = start(&["top", "-d", "1"]);
    session
        .expect(Pattern::screen(|screen| screen.contains("PID") && screen.contains("CPU")))
        .unwrap();
    session.send("q").unwrap();
    assert!(session.wait().unwrap().success());
}

#[watched_test]
fn python_answers_and_reads_a_password() {
    if is_missing("python3") {
        return;
    }
    let mut session = start(&["python3", "-q", "-i"]);
    session.expect(">>> ").unwrap();
    session.send_line("6 * 7").unwrap();
    session.expect("42\r\n").unwrap();
    session.expect(">>> ").unwrap();
    session.send_line("import getpass; word = getpass.getpass('secret: ')").unwrap();
    // The echo has the prompt too.
    session.expect("')\r\n").unwrap();
    session.expect("secret: ").unwrap();
    session.expect_no_echo().unwrap();
    session.send_line("hidden").unwrap();
    session.expect(">>> ").unwrap();
    session.send_line("word[::-1]").unwrap();
    assert!(!session.expect("'neddih'").unwrap().before_text().contains("hidden"));
    session.expect(">>> ").unwrap();
    session.send_eof().unwrap();
    assert!(session.wait().unwrap().success());
}

#[watched_test]
fn gdb_runs_a_program_in_its_terminal() {
    if is_missing("gdb") {
        return;
    }
    let mut session = start(&["gdb", "-q", "-nx", "--args", "/bin/echo", "from inside"]);
    session.expect("(gdb) ").unwrap();
    session.send_line("set confirm off").unwrap();
    session.expect("(gdb) ").unwrap();
    session.send_line("print 6 * 7").unwrap();
    session.expect("$1 = 42").unwrap();
    session.expect("(gdb) ").unwrap();
    session.send_line("quit").unwrap();
    assert!(session.wait().unwrap().success());
}

/// Returns the rows that tmux shows for a command, without spaces at the ends.
fn rows_in_tmux(command: &str, until: &str) -> Option<Vec<String>> {
    // A server for each: one that has been asked to end may still be there when the next one starts.
    let name = format!("pipewright-{}-{until}", std::process::id());
    let tmux = |words: &[&str]| {
        let mut tmux = Command::new("tmux");
        tmux.args(["-L", &name, "-f", "/dev/null"]).args(words).env_remove("TMUX");
        tmux.env("LC_ALL", "C.UTF-8").read()
    };
    let script = format!("stty -echo; {command}; read line");
    tmux(&["new-session", "-d", "-x", "80", "-y", "24", "sh", "-c", &script]).ok()?;
    // Without its status line.
    let _ = tmux(&["set", "-g", "status", "off"]);
    let _ = tmux(&["resize-window", "-x", "80", "-y", "24"]);
    let mut shown = String::new();
    watchdog::until("tmux shows it", || {
        shown = tmux(&["capture-pane", "-p"]).unwrap_or_default();
        shown.contains(until)
    });
    let _ = tmux(&["kill-server"]);
    let mut rows: Vec<String> = shown.lines().map(|row| row.trim_end().to_owned()).collect();
    rows.resize(24, String::new());
    Some(rows)
}

#[watched_test]
fn the_screen_is_that_of_tmux() {
    if is_missing("tmux") {
        return;
    }
    let pictures = [
        (r"printf '\033[5;10Hmiddle\033[1;1Htop\033[24;70Hend'", "end"),
        (r"printf 'wrap%0100d\ttab\n'; printf 'over\rO\n'; echo 'finis'", "finis"),
        (r"seq 1 60; printf '\033[10;1H\033[2Kcleared\033[12;3H\033[Jrest'", "rest"),
        (
            r"printf 'caf\303\251 \346\227\245\346\234\254 wide\n'; printf '\033[3;5r\033[3;1H1\n2\n3\n4\n5done'",
            "done",
        ),
    ];
    for (command, until) in pictures {
        let Some(wanted) = rows_in_tmux(command, until) else {
            return skipped(Need::Program("tmux"), "tmux does not start here");
        };
        let script = format!("stty -echo; {command}; read line");
        let mut session = start(&["sh", "-c", &script]);
        session.expect(Pattern::screen(move |screen| screen.contains(until))).unwrap();
        assert_eq!(session.screen().rows(), wanted, "{command}");
    }
}

#[watched_test]
fn a_daemon_on_the_terminal_does_not_delay_the_wait_for_the_child() {
    let script = "trap '' HUP; sleep 600 & echo $!; exit 3";
    let mut session = start(&["sh", "-c", script]);
    let found = session.expect(Pattern::regex(r"(\d+)\r\n").unwrap()).unwrap();
    let pid = String::from_utf8_lossy(found.group(1).unwrap()).parse().unwrap();
    let daemon = alive::KillOnDrop(pid);
    assert_eq!(session.wait().unwrap().code(), Some(3));
    assert!(alive::is_running(daemon.0));
}
