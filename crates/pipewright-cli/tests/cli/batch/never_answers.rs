//! Batches beside what never answers: pipes that nobody opens, mounts that are dead, and processes and nodes that are
//! stopped.

use std::fs::{self, Permissions};
use std::io::Read as _;
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

use super::{Place, TAKEN, err, out, pace};
use crate::Watchdog;
use crate::trees::until;

#[test]
fn a_list_that_is_a_pipe_without_a_writer_obeys_the_end_of_the_batch() {
    let _watchdog = Watchdog::start(60);
    let place = Place::new();
    place.make_pipe("pipe");
    let lists = [&[":::", "a", "::::", "pipe"][..], &["::::", "pipe", ":::", "a"]];
    for list in lists {
        let end = ["--batch-timeout", &pace::option(300), "--", "echo"];
        let output = place.batch(&[&end[..], list].concat());
        assert_eq!((output.status.code(), out(&output)), (Some(124), ""), "{}", err(&output));
    }
    let output = place.sh(
        "$PW batch -j1 --progress none -- echo ::: a :::: pipe & printf '1\\n2\\n' > pipe; wait $!; echo $?",
    );
    assert_eq!(out(&output), "a 1\na 2\n0\n", "{}", err(&output));
}

#[test]
fn an_input_that_is_a_pipe_without_a_writer_obeys_the_end_of_the_batch_and_a_signal() {
    let _watchdog = Watchdog::start(100);
    let place = Place::new();
    place.make_pipe("pipe");
    let end = pace::option(300);
    let inputs = [
        &["--from", "pipe", "--", "echo"][..],
        &["-a", "pipe", "--jsonl"],
        &["--from", "pipe", "--csv", "--", "echo", "{1}"],
        &["--from", "pipe", "--pipe", "--", "cat"],
        &["--from", "pipe", "--log", "run.db", "--", "echo"],
        &["--env-file", "pipe", "--", "echo", ":::", "a"],
        &["--dry-run", "--from", "pipe", "--", "echo"],
        &["--dry-run", "--", "echo", "::::", "pipe"],
    ];
    for input in inputs {
        let output = place.batch(&[&["--batch-timeout", &end], input].concat());
        let seen = (output.status.code(), out(&output));
        assert_eq!(seen, (Some(124), ""), "{input:?}: {}", err(&output));
    }
    // The open is under way once its thread runs. Either signal ends the batch, because no job runs.
    for signal in ["INT", "TERM"] {
        let mut tool = quietly(&mut place.tool(&["batch", "--from", "pipe", "--", "echo"]));
        let threads = format!("/proc/{}/task", tool.id());
        until("the input is opened", || {
            fs::read_dir(&threads).into_iter().flatten().flatten().any(|thread| {
                fs::read_to_string(thread.path().join("comm")).is_ok_and(|name| name == "input\n")
            })
        });
        let killed = Command::new("kill").args(["-s", signal, &tool.id().to_string()]).status();
        assert!(killed.unwrap().success());
        let status = tool.wait().unwrap();
        // A batch that is slow to begin ends with the code that a shell makes of the signal.
        let is_signal = signal == "INT" && (status.signal(), status.code()) == (Some(2), None);
        let code = if signal == "INT" { 130 } else { 143 };
        assert!(is_signal || status.code() == Some(code), "{signal}: {status}");
    }
}

#[test]
fn reports_that_are_pipes_without_a_reader_hold_up_no_job_and_no_end_of_the_batch() {
    let _watchdog = Watchdog::start(100);
    let place = Place::new();
    place.make_pipe("pipe");
    for report in ["--events", "--trace", "--html"] {
        // A slow machine may need longer for the job.
        let mut limit = 300;
        let output = loop {
            let args = [report, "pipe", "--batch-timeout", &pace::option(limit), "--", "sh", "-c"];
            let output = place.batch(&[&args[..], &["echo {} >> ran", ":::", report]].concat());
            if limit > 20_000 || place.lines("ran").iter().any(|line| line == report) {
                break output;
            }
            limit *= 3;
        };
        let message = err(&output);
        assert_eq!(output.status.code(), Some(125), "{report}: {message}");
        assert!(message.contains("its reader did not take it in time"), "{report}: {message}");
    }
    assert_eq!(place.lines("ran").len(), 3);
    // A signal does, too, and a reader that comes late gets everything.
    let output = place.sh(
        &format!("{TAKEN} $PW batch --quiet --events pipe -- true ::: a & while ! kill -TERM $!; do :; done; taken $!; \
         kill -TERM $! 2> /dev/null; wait $!; echo $?; \
         $PW batch --quiet --events pipe -- sh -c 'echo > done-{{}}' ::: a & until [ -e done-a ]; do sleep 0.01; done; \
         grep -c '\"event\":\"finished\"' pipe; wait $!; echo $?"),
    );
    let text = out(&output);
    assert!(text == "143\n1\n0\n" || text == "125\n1\n0\n", "{text} {}", err(&output));
}

#[test]
fn a_report_of_a_run_that_is_a_pipe_without_a_reader_obeys_its_timeout() {
    let _watchdog = Watchdog::start(60);
    let place = Place::new();
    place.make_pipe("pipe");
    let words = ["run", "--timeout", &pace::option(300), "--report", "pipe", "--", "true"];
    let output = place.tool(&words).output().unwrap();
    assert_eq!(output.status.code(), Some(125), "{}", err(&output));
    assert!(err(&output).contains("no other process has opened it"), "{}", err(&output));
    let output = place.sh(
        "$PW run --timeout 60 --report pipe -- sh -c 'echo > done' & until [ -e done ]; do sleep 0.01; done; \
         grep -c '\"outcome\"' pipe; wait $!; echo $?",
    );
    assert_eq!(out(&output), "1\n0\n", "{}", err(&output));
}

/// Runs a script in mounts of its own, where the folder `dead` is a mount that never answers. `None`, with a message:
/// this machine has no such mount.
fn beside_dead_mount(place: &Place, script: &str) -> Option<Output> {
    if !fs::read_to_string("/proc/filesystems").is_ok_and(|them| them.contains("\tfuse\n")) {
        pace::skipped(pace::Need::Filesystem("fuse"), "no mount that never answers");
        return None;
    }
    fs::create_dir(place.path("dead")).unwrap();
    // Nobody ever reads what the kernel asks for. A lazy unmount and the end of the handle free what waits.
    let mount = "exec 3<> /dev/fuse && \
                 mount -i -t fuse -o fd=3,rootmode=40000,user_id=0,group_id=0 dead dead || exit 99";
    let script = format!("{mount}\n{script}\numount -l dead\n");
    let mut command = Command::new("unshare");
    command.args(["--mount", "sh", "-c", &script]).env("PW", env!("CARGO_BIN_EXE_pipewright"));
    let output = command.current_dir(place.path("")).stdin(Stdio::null()).output().unwrap();
    if output.status.code() != Some(0) && out(&output).is_empty() {
        pace::skipped(pace::Need::Mount, format!("no mount that never answers: {}", err(&output)));
        return None;
    }
    Some(output)
}

#[test]
fn an_input_on_a_dead_mount_stops_its_job_alone() {
    let _watchdog = Watchdog::start(60);
    let place = Place::new();
    let timeout = pace::option(300);
    let job = "{\"argv\":[\"cat\"],\"stdin_file\":\"dead/file\"";
    place.write(
        "jobs",
        &format!("{job},\"timeout\":\"{timeout}\"}}\n{{\"argv\":[\"echo\",\"other\"]}}\n"),
    );
    place.write("endless", &format!("{job}}}\n"));
    let Some(output) = beside_dead_mount(
        &place,
        &format!(
            "$PW batch --jsonl -j2 --quiet --from jobs; echo $?; \
             $PW batch --jsonl --quiet --from endless --batch-timeout {timeout}; echo $?"
        ),
    ) else {
        return;
    };
    assert_eq!(out(&output), "other\n123\n124\n", "{}", err(&output));
}

#[test]
fn a_program_or_a_directory_on_a_dead_mount_stops_its_job_alone() {
    let _watchdog = Watchdog::start(100);
    let place = Place::new();
    let timeout = pace::option(300);
    let dead = [
        "\"argv\":[\"dead/program\"]",
        "\"argv\":[\"true\"],\"cwd\":\"dead\"",
        "\"argv\":[\"true\"],\"cwd\":\"dead/../dead\"",
    ];
    let with_timeout = dead.map(|job| format!("{{{job},\"timeout\":\"{timeout}\"}}\n")).concat();
    let others = "{\"argv\":[\"sh\",\"-c\",\"echo other\"]}\n".repeat(3);
    place.write("jobs", &format!("{with_timeout}{others}"));
    place.write("endless", &dead.map(|job| format!("{{{job}}}\n")).concat());
    let Some(output) = beside_dead_mount(
        &place,
        &format!(
            "$PW batch --jsonl -j4 --progress none --from jobs --events events; echo $?; \
             $PW batch --jsonl -j4 --quiet --from endless --batch-timeout {timeout}; echo $?"
        ),
    ) else {
        return;
    };
    assert_eq!(out(&output), "other\nother\nother\n123\n124\n", "{}", err(&output));
    assert_eq!(err(&output).matches("directory never answered").count(), 3, "{}", err(&output));
    assert_eq!(
        place.read("events").matches("\"timed_out\"").count(),
        3,
        "{}",
        place.read("events")
    );
}

#[test]
fn a_program_or_a_directory_on_a_dead_mount_stops_its_job_alone_without_a_tree_too() {
    let _watchdog = Watchdog::start(100);
    let place = Place::new();
    let timeout = pace::option(300);
    let dead = ["\"argv\":[\"dead/program\"]", "\"argv\":[\"true\"],\"cwd\":\"dead/../dead\""];
    // The other job has a timeout, too, and a start that does not answer must not hold it up.
    let other = format!("{{\"argv\":[\"sleep\",\"600\"],\"timeout\":\"{timeout}\"}}\n");
    let with_timeout = dead.map(|job| format!("{{{job},\"timeout\":\"{timeout}\"}}\n")).concat();
    let last = "{\"argv\":[\"sh\",\"-c\",\"echo last\"]}\n";
    place.write("jobs", &format!("{other}{with_timeout}{last}"));
    let endless = dead.map(|job| format!("{{{job}}}\n")).concat();
    place.write("endless", &format!("{other}{endless}"));
    let group = "$PW batch --jsonl --contain group";
    let Some(output) = beside_dead_mount(
        &place,
        &format!(
            "{group} -j3 --progress none --from jobs --events events; echo $?; \
             {group} -j4 --quiet --from endless --events other & pid=$!; \
             until grep -q timed_out other 2> /dev/null; do sleep 0.01; done; \
             kill -TERM $pid; wait $pid; echo $?; \
             {group} -j4 --quiet --from endless --batch-timeout {timeout}; echo $?"
        ),
    ) else {
        return;
    };
    assert_eq!(out(&output), "last\n123\n143\n124\n", "{}", err(&output));
    assert_eq!(err(&output).matches("directory never answered").count(), 2, "{}", err(&output));
    let events = place.read("events");
    assert_eq!(events.matches("\"timed_out\"").count(), 3, "{events}");
}

#[test]
fn a_command_beside_a_dead_mount_obeys_its_timeout() {
    let _watchdog = Watchdog::start(100);
    let place = Place::new();
    let timeout = pace::option(300);
    let Some(output) = beside_dead_mount(
        &place,
        &format!(
            "for option in --cwd --env-file --stdin --stdout --report; do \
               $PW run --timeout {timeout} $option dead/file -- touch started; echo $option $?; \
             done; \
             for contain in tree group none; do \
               $PW run --timeout {timeout} --contain $contain -- dead/program; echo $contain $?; \
             done; \
             $PW pipe --timeout {timeout} -- true \\| dead/program; echo pipe $?; \
             $PW timeout 0.3 dead/program; echo timeout $?"
        ),
    ) else {
        return;
    };
    let cases = "--cwd --env-file --stdin --stdout --report tree group none pipe timeout";
    let expected: String = cases.split(' ').map(|case| format!("{case} 124\n")).collect();
    assert_eq!(out(&output), expected, "{}", err(&output));
    assert_eq!(err(&output).matches("never answered").count(), 10, "{}", err(&output));
    assert!(!place.path("started").exists());
}

#[test]
fn a_batch_whose_files_are_on_a_dead_mount_obeys_its_end() {
    let _watchdog = Watchdog::start(100);
    let place = Place::new();
    let timeout = pace::option(300);
    let Some(output) = beside_dead_mount(
        &place,
        &format!(
            "for option in --from --log --learn --output-dir --events --trace --html; do \
               $PW batch --quiet --batch-timeout {timeout} $option dead/file -- touch started < /dev/null; \
               echo $option $?; \
             done; \
             $PW batch --quiet --batch-timeout {timeout} --resume dead/log; echo resume $?"
        ),
    ) else {
        return;
    };
    let cases = "--from --log --learn --output-dir --events --trace --html resume";
    let expected: String = cases.split(' ').map(|case| format!("{case} 124\n")).collect();
    assert_eq!(out(&output), expected, "{}", err(&output));
    assert!(!place.path("started").exists());
}

/// Runs a script in mounts of its own, where the folder `disk` is a disk to freeze. `None`, with a message: this
/// machine has no such disk.
fn beside_disk(place: &Place, script: &str) -> Option<Output> {
    if !fs::read_to_string("/proc/filesystems").is_ok_and(|them| them.contains("\text4\n")) {
        pace::skipped(pace::Need::Filesystem("ext4"), "no disk to freeze");
        return None;
    }
    let disk = "truncate -s 8M image && mkfs.ext4 -q -F image && mkdir disk && \
                mount -o loop image disk || exit 99";
    let script = format!("{disk}\n{script}\numount disk\n");
    let mut command = Command::new("unshare");
    command.args(["--mount", "sh", "-c", &script]).env("PW", env!("CARGO_BIN_EXE_pipewright"));
    let output = command.current_dir(place.path("")).stdin(Stdio::null()).output().unwrap();
    if output.status.code() != Some(0) && out(&output).is_empty() {
        pace::skipped(pace::Need::Mount, format!("no disk to freeze: {}", err(&output)));
        return None;
    }
    Some(output)
}

#[test]
fn a_disk_that_stops_to_answer_holds_up_no_timeout() {
    let _watchdog = Watchdog::start(300);
    let place = Place::new();
    let millis = pace::millis(1_500).as_millis();
    place.write(
        "job.sh",
        "trap '[ \"$past\" ] || echo > early; echo > stopped-$2; exit 3' TERM; echo > ran-$2\n\
         until [ -e go ]; do sleep 0.01; done\n\
         case $1-$2 in write-3) echo late;; end-3 | event-3) exit 0;; esac\n\
         past=yes; while :; do sleep 0.01; done\n",
    );
    // The thread of the batch waits for the disk: with the output of job 3, or its end, or the event of that. A timeout
    // that has come before proves nothing, and the next one is longer.
    let Some(output) = beside_disk(
        &place,
        &format!(
            "try() {{ \
               case=$1; shift; limit={millis}; \
               while :; do \
                 rm -rf early disk/$contain-*; \
                 $PW batch --quiet -j3 --timeout ${{limit}}ms \"$@\" \
                   -- sh job.sh $case {{}} ::: 1 2 3 > shown & pid=$!; \
                 for job in 1 2 3; do \
                   until [ -e ran-$job ] || ! kill -0 $pid; do sleep 0.01; done; \
                   [ -e ran-$job ] || echo > early; \
                 done; \
                 fsfreeze -f disk || {{ kill -KILL $pid; exit 99; }}; echo > go; tries=0; said=; \
                 until [ -e stopped-1 ] && [ -e stopped-2 ] || [ $tries = 1000 ]; do \
                   sleep 0.01; tries=$((tries + 1)); \
                 done; \
                 [ $tries = 1000 ] && said='too late, '; kill -0 $pid && said=${{said}}waits; \
                 fsfreeze -u disk; wait $pid; code=$?; rm -f ran-* stopped-* go; \
                 [ -e early ] && [ $limit -lt 20000 ] || break; \
                 limit=$((limit * 4)); \
               done; \
               echo $said; cat shown; echo $case $code; \
             }}; \
             for contain in tree group; do \
               try write --contain $contain --output-dir disk/$contain-write; \
               try end --contain $contain --output-dir disk/$contain-end; \
               try event --contain $contain --events disk/$contain-events; \
             done"
        ),
    ) else {
        return;
    };
    let each = "waits\nlate\nwrite 123\nwaits\nend 123\nwaits\nevent 123\n";
    assert_eq!(out(&output), each.repeat(2), "{}", err(&output));
}

#[test]
fn a_report_whose_disk_stops_to_answer_after_the_command_obeys_the_timeout() {
    let _watchdog = Watchdog::start(200);
    let place = Place::new();
    place.write("job.sh", "echo > ran; until [ -e go ]; do sleep 0.01; done");
    let Some(output) = beside_disk(
        &place,
        "try() { \
           $PW \"$@\" 2> said & pid=$!; until [ -e ran ]; do sleep 0.01; done; \
           fsfreeze -f disk || { kill -KILL $pid; exit 99; }; echo > go; tries=0; \
           until grep -q 'it did not answer in time' said || [ $tries = 1000 ]; do \
             sleep 0.02; tries=$((tries + 1)); \
           done; \
           fsfreeze -u disk; wait $pid; echo $1 $?; cat said; rm ran go; \
         }; \
         try run --timeout 60 --report disk/run -- sh job.sh; \
         try pipe --timeout 60 --report disk/pipe -- sh job.sh \\| cat",
    ) else {
        return;
    };
    let said = |name: &str| {
        format!(
            "{name} 125\npipewright: cannot write the report to \"disk/{name}\": it did not answer in time; \
             the exit code would have been 0\n"
        )
    };
    assert_eq!(out(&output), said("run") + &said("pipe"), "{}", err(&output));
}

#[test]
fn a_command_whose_output_goes_to_a_disk_that_stops_to_answer_obeys_its_timeout_and_a_signal() {
    let _watchdog = Watchdog::start(400);
    let place = Place::new();
    let timeout = pace::option(5_000);
    place.write("job.sh", "echo $$ > ran-$1; until [ -e go ]; do sleep 0.01; done; yes");
    // Output passes through the tool because of the idle timeout, and the tool waits for the disk (D).
    let Some(output) = beside_disk(
        &place,
        &format!(
            "start() {{ \
               $PW run --kill-after 0 --idle-timeout 600 --stdout disk/$@ -- sh job.sh $1 2> said-$1 & \
             }}; \
             start time --timeout {timeout}; time=$!; start signal; signal=$!; \
             until [ -s ran-time ] && [ -s ran-signal ]; do sleep 0.01; done; \
             fsfreeze -f disk || {{ kill -KILL $time $signal; exit 99; }}; echo > go; tries=0; \
             until grep -q '^State:.D' /proc/$signal/status; do sleep 0.01; done; kill -TERM $signal; \
             until grep -q 'did not end' said-time && grep -q 'did not end' said-signal && \
               ! kill -0 $(cat ran-time) && ! kill -0 $(cat ran-signal) || [ $tries = 3000 ]; do \
               sleep 0.02; tries=$((tries + 1)); \
             done; \
             [ $tries = 3000 ] && echo too late; \
             fsfreeze -u disk; wait $time; echo time $?; wait $signal; echo signal $?"
        ),
    ) else {
        return;
    };
    let said = place.read("said-time") + &place.read("said-signal");
    assert_eq!(out(&output), "time 124\nsignal 143\n", "{} {said}", err(&output));
}

#[test]
fn a_batch_whose_log_stops_to_answer_obeys_its_end_and_two_signals() {
    let _watchdog = Watchdog::start(120);
    let place = Place::new();
    let millis = pace::millis(1_000).as_millis();
    // The disk of the log takes nothing more while the batch runs. The kernel cannot end that wait, so it is thawed
    // once the tool has said that it ends. A batch that has ended before the disk was frozen gets a longer time.
    let script = format!(
        "{TAKEN} limit={millis}; \
         for end in time signals; do \
           while :; do \
             option=; [ $end = signals ] || option=\"--batch-timeout ${{limit}}ms\"; \
             $PW batch --quiet $option --log disk/$end.db -- sh -c \
               'echo > ran; [ {{}} = 1 ] || until [ -e go ]; do sleep 0.01; done' ::: 1 2 2> said & pid=$!; \
             until [ -e ran ] || ! kill -0 $pid; do sleep 0.01; done; \
             fsfreeze -f disk || {{ kill -KILL $pid; exit 99; }}; echo > go; \
             [ $end = time ] || {{ kill -TERM $pid; taken $pid; kill -TERM $pid; }}; \
             until grep -q 'ended before' said || ! kill -0 $pid; do sleep 0.01; done; \
             fsfreeze -u disk; wait $pid; code=$?; told=$(grep -c 'ended before' said); rm -f ran go; \
             [ $end = time ] && [ $told = 0 ] && [ $limit -lt 20000 ] || break; \
             limit=$((limit * 4)); rm -f disk/time.db*; \
           done; \
           echo $end $code $told; \
         done"
    );
    let Some(output) = beside_disk(&place, &script) else { return };
    assert_eq!(out(&output), "time 124 1\nsignals 143 1\n", "{}", err(&output));
}

#[test]
fn variables_that_come_through_a_pipe_without_a_writer_obey_the_timeout() {
    let _watchdog = Watchdog::start(60);
    let place = Place::new();
    place.make_pipe("pipe");
    let words = ["run", "--timeout", &pace::option(300), "--env-file", "pipe", "--", "true"];
    let output = place.tool(&words).output().unwrap();
    assert_eq!(output.status.code(), Some(124), "{}", err(&output));
    let output = place.sh(
        "$PW run --timeout 60 --env-file pipe -- printenv A & echo A=late > pipe; wait $!; echo $?",
    );
    assert_eq!(out(&output), "late\n0\n", "{}", err(&output));
}

/// Stops a batch by two signals, and returns its messages.
fn end_by_two_signals(mut tool: Child) -> String {
    let kill = |signal| {
        let killed = Command::new("kill").args(["-s", signal, &tool.id().to_string()]).status();
        assert!(killed.unwrap().success());
    };
    kill("TERM");
    // The kernel would make one of both.
    until("the first signal is taken", || !is_term_pending(tool.id()));
    kill("TERM");
    let status = tool.wait().unwrap();
    assert_eq!(status.code(), Some(143), "{status}");
    let mut text = String::new();
    tool.stderr.take().unwrap().read_to_string(&mut text).unwrap();
    text
}

fn is_term_pending(pid: u32) -> bool {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("ShdPnd:")).unwrap_or("0");
    (u64::from_str_radix(mask.trim(), 16).unwrap_or(0) >> (15 - 1)) & 1 == 1
}

fn quietly(command: &mut Command) -> Child {
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

#[test]
fn two_signals_end_a_batch_whose_supervisor_is_stopped() {
    let _watchdog = Watchdog::start(60);
    let place = Place::new();
    // It has begun once the supervisor is stopped: one that runs would end the job.
    let stop = "trap '' TERM; kill -STOP $PPID; echo > began; sleep 600; sleep 600";
    let grace = ["batch", "--quiet", "--kill-after", "600", "--", "sh", "-c", stop, ":::", "a"];
    let tool = quietly(&mut place.tool(&grace));
    until("the job has begun", || !place.read("began").is_empty());
    let text = end_by_two_signals(tool);
    assert!(text.contains("ended before job 1 did, which may still run"), "{text}");
}

#[test]
fn two_signals_end_a_batch_whose_node_is_stopped() {
    let _watchdog = Watchdog::start(60);
    let place = Place::new();
    let script = r#"echo $$ > worker; exec "$@""#;
    let tool = env!("CARGO_BIN_EXE_pipewright");
    let words = [
        "batch",
        "-j2",
        "--progress",
        "none",
        "--kill-after",
        "600",
        "--worker-path",
        tool,
        "--via",
    ];
    let mut command = place.tool(&words);
    command.arg(format!("sh -c '{script}' sh"));
    command.args([
        "--",
        "sh",
        "-c",
        "trap '' TERM; echo >> began; sleep 600; sleep 600",
        ":::",
        "a",
        "b",
    ]);
    let tool = quietly(&mut command);
    until("both jobs have begun", || place.lines("began").len() == 2);
    let worker = place.read("worker");
    let stopped = Command::new("kill").args(["-s", "STOP", worker.trim()]).status().unwrap();
    assert!(stopped.success());
    let text = end_by_two_signals(tool);
    // It is silent, too, and may be given up for that before.
    let words = ["which may still run", "is lost with 2 jobs"];
    assert!(words.iter().any(|words| text.contains(words)), "{text}");
    let _ = Command::new("kill").args(["-s", "KILL", worker.trim()]).status();
}

#[test]
fn two_signals_end_a_batch_whose_reader_stands_still() {
    let _watchdog = Watchdog::start(60);
    let place = Place::new();
    let many = "yes | head -c 1000000; echo > ran";
    let tool = quietly(&mut place.tool(&["batch", "--quiet", "--", "sh", "-c", many, ":::", "a"]));
    until("the job has ended", || !place.read("ran").is_empty());
    let text = end_by_two_signals(tool);
    assert!(text.contains("ended before the readers") || text.contains("discarded"), "{text}");
}

#[test]
fn two_signals_end_a_batch_whose_input_and_program_are_on_a_dead_mount() {
    let _watchdog = Watchdog::start(100);
    let place = Place::new();
    place.write("input", "{\"argv\":[\"cat\"],\"stdin_file\":\"dead/file\"}\n");
    place.write("program", "{\"argv\":[\"dead/program\"]}\n");
    place.write("directory", "{\"argv\":[\"true\"],\"cwd\":\"dead/../dead\"}\n");
    let Some(output) = beside_dead_mount(
        &place,
        &format!(
            "{TAKEN} for jobs in input program directory dead/jobs; do \
           $PW batch --jsonl --quiet --from $jobs & pid=$!; \
           while ! kill -TERM $pid; do :; done; taken $pid; kill -TERM $pid; wait $pid; echo $?; \
         done"
        ),
    ) else {
        return;
    };
    assert_eq!(out(&output), "143\n143\n143\n143\n", "{}", err(&output));
}

#[test]
fn a_stop_signal_before_the_start_ends_the_tool() {
    let _watchdog = Watchdog::start(60);
    let place = Place::new();
    let Some(output) = beside_dead_mount(
        &place,
        "for option in --events --trace --html --log --output-dir; do \
           $PW batch --quiet $option dead/file -- touch ::: started & pid=$!; \
           while ! grep -q 'SigBlk:.*400[13]$' /proc/$pid/status; do :; done; \
           kill -TERM $pid; wait $pid; echo $?; \
         done",
    ) else {
        return;
    };
    assert_eq!(out(&output), "143\n".repeat(5), "{}", err(&output));
    assert!(!place.path("started").exists());
}

const USER: u32 = 54_321;

/// Becomes root, in a folder that [`place`] has made.
const BECOME: &str = "./become --reuid=0 --regid=0 --clear-groups";

/// Returns the folder of an ordinary user, with the tool and a program that makes root of him. `None`, with a message:
/// this machine has no such program.
fn place() -> Option<Place> {
    if !rustix::process::geteuid().is_root() {
        pace::skipped(pace::Need::Root, "a program that makes root of a user");
        return None;
    }
    let place = Place::new();
    fs::set_permissions(place.path(""), Permissions::from_mode(0o755)).unwrap();
    chown(place.path(""), Some(USER), Some(USER)).unwrap();
    assert!(place.copy_program(env!("CARGO_BIN_EXE_pipewright"), "pw"));
    if !place.copy_program("/usr/bin/setpriv", "become") {
        pace::skipped(pace::Need::Program("setpriv"), "is not here");
        return None;
    }
    fs::set_permissions(place.path("become"), Permissions::from_mode(0o4755)).unwrap();
    let mut id = as_user(&place, "sh");
    let id = id.args(["-c", &format!("{BECOME} id -ru")]).output().unwrap();
    if out(&id) != "0\n" {
        pace::skipped(pace::Need::Mount, "programs in the temporary folder make root of nobody");
        return None;
    }
    Some(place)
}

/// Returns a command of that user.
fn as_user(place: &Place, program: &str) -> Command {
    let mut command = Command::new(program);
    command.uid(USER).gid(USER).current_dir(place.path("")).stdin(Stdio::null());
    command
}

fn batch(place: &Place, words: &[&str]) -> Command {
    let mut command = as_user(place, "./pw");
    command.args(["batch", "--progress", "none", "-j2", "--log", "run.db"]).args(words);
    command
}

/// Notes its start, and runs until there is a file `end`; notes in the file `both` that another one runs.
const JOB: &str =
    "mkdir one || touch both; echo $$ >> ran; until test -e end; do sleep 0.05; done; rmdir one";

/// Lets the jobs end, also if the test fails.
struct End<'a>(&'a Place);

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.0.write("end", "");
    }
}

#[test]
fn a_job_that_cannot_be_ended_does_not_run_beside_its_next_attempt() {
    let Some(place) = place() else { return };
    let _watchdog = Watchdog::start(120);
    let end = End(&place);
    // The first attempt is stopped for its output: a limit of its time could come before it is root's.
    let script = format!(
        "[ $PIPEWRIGHT_ATTEMPT != 1 ] || {{ until test -s ran; do sleep 0.01; done; echo more; }} & \
         {BECOME} sh -c '{JOB}'"
    );
    let limits =
        ["--max-output", "1", "--kill-after", "0", "--retries", "1", "--retry-on", "limit"];
    let delay = ["--retry-delay", "0", "--", "sh", "-c", &script, ":::", "x"];
    let mut tool = batch(&place, &[&limits[..], &delay[..]].concat());
    let messages = fs::File::create(place.path("messages")).unwrap();
    let mut tool = tool.stdout(Stdio::null()).stderr(messages).spawn().unwrap();
    let is_told = || place.read("messages").contains("job 1 cannot be started now: a process");
    until("the second attempt waits", || is_told() || place.path("both").exists());
    assert_eq!(place.lines("ran").len(), 1, "{}", place.read("messages"));
    assert!(place.read("messages").contains("a process of job 1 does not end"));
    drop(end);
    let status = tool.wait().unwrap();
    assert_eq!(status.code(), Some(0), "{}", place.read("messages"));
    assert_eq!(place.lines("ran").len(), 2);
    assert!(!place.path("both").exists());
}

#[test]
fn a_batch_is_not_resumed_beside_a_job_of_its_killed_runner() {
    for (contain, script) in [
        ("tree", format!("exec {BECOME} sh -c '{JOB}'")),
        ("group", format!("exec {BECOME} sh -c '{JOB}'")),
        ("tree", format!("{BECOME} sh -c '{JOB}'; true")),
        ("group", format!("{BECOME} sh -c '{JOB}'; true")),
    ] {
        let Some(place) = place() else { return };
        let _watchdog = Watchdog::start(120);
        let end = End(&place);
        let words = ["--contain", contain, "--", "sh", "-c", &script, ":::", "x"];
        let mut tool = batch(&place, &words).stdout(Stdio::null()).spawn().unwrap();
        let logged = || {
            let pids = place.rows("run.db", "SELECT pid FROM running WHERE pid IS NOT NULL")?;
            Some(pids.first().cloned().unwrap_or_default())
        };
        until("the job runs", || place.lines("ran").len() == 1);
        if logged().is_none() {
            // Nothing here reads the log.
            tool.kill().unwrap();
            tool.wait().unwrap();
            return;
        }
        until("its process is in the log", || logged().is_some_and(|pid| !pid.is_empty()));
        let pid = logged().unwrap();
        tool.kill().unwrap();
        tool.wait().unwrap();

        let resume = || batch(&place, &[&["--resume"], &words[..]].concat()).output().unwrap();
        let refused = resume();
        let message = err(&refused);
        assert_eq!(refused.status.code(), Some(125), "{contain} {script}: {message}");
        for part in ["job 1 of log", &format!("still runs as process {pid}"), "resume then"] {
            assert!(message.contains(part), "{contain} {script}: {message}");
        }
        assert_eq!(message.lines().count(), 1, "{message}");
        drop(end);
        let last = place.lines("ran").concat();
        until("it has ended", || !Path::new("/proc").join(&last).exists());
        let resumed = resume();
        assert_eq!(resumed.status.code(), Some(0), "{contain} {script}: {}", err(&resumed));
        assert_eq!(place.lines("ran").len(), 2, "{contain} {script}");
        assert!(!place.path("both").exists(), "{contain} {script}");
    }
}
